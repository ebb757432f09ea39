//! The Model Context Protocol: Heeler as a server for agents, and as a filter between clients and servers.

mod filter;
mod http;
mod http_filter;
pub(crate) mod official_clients;
mod serve;
mod session;
