//! Heeler's own processes killed, and what the client then receives.

mod any_moment;
mod by_role;
mod cleanup;
mod first_moments;
mod system_errors;
