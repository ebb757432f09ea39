//! Invalid input, hostile peers and slow clients.

mod cli_input;
mod machine_slots;
mod odd_surroundings;
mod peers;
mod slow_clients;
mod slow_handlers;
