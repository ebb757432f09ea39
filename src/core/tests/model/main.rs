//! The model of a run: the program's own decisions (`heeler_core::run`, `ledger`, `delivery`) among processes
//! that may die at any step, with test processes that may do anything, and connections that the client may
//! refuse, reset or leave unanswered.
//!
//! - `scenario`: what is tried: the plan, how much is modelled, faults, planted mistakes.
//! - `world`: the processes and what lies between them.
//! - `coordinator`, `watchdog`, `worker`, `client`: what each of them does.
//! - `streams`, `uplink`, `proofs`: a client with queues of its own, what workers write to it, and what is
//!   asked over a dead worker's connection.
//! - `observer`, `rules`: what the run was informed of and has ordered, and the rules.
//! - `steps`: what can happen next.
//! - `search`: the search of all paths, and the walk along random ones.
//! - `ack_windows`: the windows of one stream, alone.
//! - `exhaustive`, `handling`, `planted_mistakes`, `random_walks`: the scenarios.
//! - `cost_bounds`: the number of processes that a run takes, outside the search.

mod client;
mod coordinator;
mod observer;
mod proofs;
mod rules;
mod scenario;
mod search;
mod steps;
mod streams;
mod uplink;
mod watchdog;
mod worker;
mod world;

mod ack_windows;
mod cost_bounds;
mod exhaustive;
mod handling;
mod planted_mistakes;
mod random_walks;
