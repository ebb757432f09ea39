//! Registers in dumps, one file per processor.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(in crate::dump) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(in crate::dump) use x86_64::*;
