//! The front end of the Runtime Server Protocol. Each suite is a server that its client starts and stops. A
//! run of a suite is a job and a process; output and states are notifications.
//!
//! - `front_end`: implements the common front end interface.
//! - `session`: one client connection; `session/dispatch`: its messages; `session/runs`: the runs of its
//!   suites.
//! - `suites`: suites as servers, and requests about them; pure.
//! - `suite_run`: the notifications of one run; pure.
//! - `progress`: limits how often progress is reported; pure.
//! - `output`: texts about tests and runs; pure.
//! - `launch`: launch attributes; pure.
//! - `selection`: the tests of a launch.

mod front_end;
mod launch;
mod output;
mod progress;
mod selection;
mod session;
mod suite_run;
mod suites;

pub(crate) use front_end::RspFrontEnd;
