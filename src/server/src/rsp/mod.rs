//! The front end of the Runtime Server Protocol: each suite is a server that its client starts and stops, a
//! run of a suite is a job and a process, output and states are notifications.
//!
//! - `front_end`: the protocol's entry among the front ends.
//! - `session`: one client, from the first byte to the last; `session/dispatch`: its messages;
//!   `session/runs`: the runs of its suites.
//! - `suites`: the suites as servers, and requests about them; pure.
//! - `suite_run`: the notifications of one run; pure.
//! - `progress`: how often progress is reported; pure.
//! - `output`: the texts about tests and runs; pure.
//! - `launch`: the attributes of a start; pure.
//! - `selection`: the tests of a start.

mod front_end;
mod launch;
mod output;
mod progress;
mod selection;
mod session;
mod suite_run;
mod suites;

pub(crate) use front_end::RspFrontEnd;
