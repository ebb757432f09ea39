//! The list of front ends. To add one, create a module next to `mtp` and add it here.

use super::FrontEnd;
#[cfg(feature = "connect")]
use crate::connect::ConnectFrontEnd;
#[cfg(feature = "mutation")]
use crate::mutation::MutationFrontEnd;
use crate::{mcp::McpFrontEnd, mtp::MtpFrontEnd, rsp::RspFrontEnd};

/// All front ends. The first one is the default.
pub static FRONT_ENDS: &[&dyn FrontEnd] = &[
    &MtpFrontEnd,
    &McpFrontEnd,
    &RspFrontEnd,
    #[cfg(feature = "mutation")]
    &MutationFrontEnd,
    #[cfg(feature = "connect")]
    &ConnectFrontEnd,
];

/// Returns the front ends that `heeler serve` offers.
pub fn program_front_ends() -> impl Iterator<Item = &'static dyn FrontEnd> {
    FRONT_ENDS.iter().copied().filter(|one| one.serves_programs())
}

/// Returns the `heeler serve` front end with this name.
#[must_use]
pub fn front_end(name: &str) -> Option<&'static dyn FrontEnd> {
    program_front_ends().find(|one| one.name() == name)
}
