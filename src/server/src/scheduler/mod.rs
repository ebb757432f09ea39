//! The scheduler. It owns the worker pool, the catalogues of tests, the slots and the active runs, for all
//! clients of all protocols.
//!
//! A front end registers its client with [`SchedulerHandle::register`]. The front end requests listings and
//! runs through the returned [`RunClient`], which also delivers their events. Dropping the `RunClient` ends
//! only its own runs.
//!
//! - `handle`: the interface for front ends.
//! - `client_events`: events for one client.
//! - `event_loop`: waits for the next event and handles it; `event_loop/commands`: commands of clients.
//! - `builds`: builds before listings.
//! - `clients`: all clients, and their pauses.
//! - `listing`: catalogues, shared by all clients of the same programs.
//! - `memory_pressure`: lets tests run one at a time while the machine is short of memory.
//! - `runs`: active runs.
//! - `slots`: fair sharing of the slots.
//! - `machine_budget`: slots that all coordinators of this machine share.

mod builds;
mod client_events;
mod clients;
mod event_loop;
mod handle;
mod listing;
mod machine_budget;
mod memory_pressure;
mod runs;
mod slots;

pub(crate) use client_events::ClientEvents;
pub use client_events::{ClientEvent, ClientLogLine, DebuggeeWaiting, MachineWait};
pub use handle::{
    BuildRequest, ClientRegistration, DebuggeeLease, RequestNumber, RunClient, SchedulerGone,
    SchedulerHandle, SchedulerOptions, SchedulerTask, UpdateDelivery,
};
