//! The list of front ends. A new one is a folder beside `mtp`, and a line here.

use super::FrontEnd;
#[cfg(feature = "connect")]
use crate::connect::ConnectFrontEnd;
#[cfg(feature = "mutation")]
use crate::mutation::MutationFrontEnd;
use crate::{mcp::McpFrontEnd, mtp::MtpFrontEnd, rsp::RspFrontEnd};

/// All front ends; the first one serves if no other is named.
pub static FRONT_ENDS: &[&dyn FrontEnd] = &[
    &MtpFrontEnd,
    &McpFrontEnd,
    &RspFrontEnd,
    #[cfg(feature = "mutation")]
    &MutationFrontEnd,
    #[cfg(feature = "connect")]
    &ConnectFrontEnd,
];

/// Returns the front ends that `heeler serve` can name.
pub fn program_front_ends() -> impl Iterator<Item = &'static dyn FrontEnd> {
    FRONT_ENDS.iter().copied().filter(|one| one.serves_programs())
}

/// Returns the front end that `heeler serve` names so.
#[must_use]
pub fn front_end(name: &str) -> Option<&'static dyn FrontEnd> {
    program_front_ends().find(|one| one.name() == name)
}
