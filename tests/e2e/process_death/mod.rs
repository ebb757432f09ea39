//! Tests that kill or stop Heeler's own processes and check what the client receives.

mod any_moment;
mod by_role;
mod cleanup;
mod completion;
mod first_moments;
mod redial;
mod stopped;
mod system_errors;

use std::fs;

use crate::support::{
    process::{state, wait_until},
    world::TestWorld,
};

/// Waits until a process has stopped at a fault point; returns its process id.
fn wait_stopped_at(world: &TestWorld, point: &str) -> u32 {
    let path = world.path("points").join(point);
    let pid = || fs::read_to_string(&path).ok()?.parse().ok();
    wait_until("a process stands at its point", || pid().is_some_and(|pid| state(pid) == Some('T')));
    pid().unwrap()
}
