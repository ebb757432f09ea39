//! The model of a run: the program's own decisions (`heeler_core::run`, `ledger`, `delivery`) among processes
//! that may die at any step, test processes that may do anything, and connections that the client may refuse,
//! reset or leave unanswered.
//!
//! - `scenario`: the plan, the modelled parts, faults, planted mistakes.
//! - `world`: the processes and the channels between them.
//! - `coordinator`, `watchdog`, `worker`, `client`: the actions of each.
//! - `streams`, `uplink`, `proofs`: a client with its own queues, the messages that workers write to it, and
//!   proofs over a dead worker's connection.
//! - `observer`, `rules`: an independent record of the run's events and actions, and the rules.
//! - `steps`: the possible next steps.
//! - `search`: the search of all paths, and random walks.
//! - `ack_windows`: the windows of one stream, alone.
//! - `exhaustive`, `handling`, `planted_mistakes`, `random_walks`: the scenarios.
//! - `cost_bounds`: the number of processes that a run starts, outside the search.

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
