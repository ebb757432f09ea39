//! The list of front ends. A new one is a folder beside `mtp`, and a line here.

use super::FrontEnd;
use crate::{mcp::McpFrontEnd, mtp::MtpFrontEnd, rsp::RspFrontEnd};

/// All front ends; the first one serves if no other is named.
pub static FRONT_ENDS: [&dyn FrontEnd; 3] = [&MtpFrontEnd, &McpFrontEnd, &RspFrontEnd];

/// Returns the front end with this name.
#[must_use]
pub fn front_end(name: &str) -> Option<&'static dyn FrontEnd> {
    FRONT_ENDS.into_iter().find(|one| one.name() == name)
}
