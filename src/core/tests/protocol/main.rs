//! The protocol of a run's end between coordinator, watchdog, workers and client, checked by trying everything: the
//! program's own decisions (`heeler_core::run`, `heeler_core::ledger`, `heeler_core::finish`) in processes that may die at any step, with
//! connections that the client may refuse, reset or leave without an answer.
//!
//! - `system`: what there is.
//! - `coordinator`, `watchdog`, `worker`, `client`: what each does.
//! - `steps`: what can happen next, and the properties.
//! - `mistakes`: what the checks must find.
//! - `search`: every path of small systems. `walks`: random paths of larger ones. `planted`: the mistakes.

mod client;
mod coordinator;
mod mistakes;
mod steps;
mod system;
mod watchdog;
mod worker;

mod planted_mistakes;
mod random_walks;
mod search;
