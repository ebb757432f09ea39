//! The command line: what the user asks for, and what of it goes to other rooms.

pub mod arguments;
pub mod cargo;
