//! Remotes as the commands use them: choosing the remote, its credentials, and the statistics and
//! cost of requests.
//!
//! The crate `snap-remote` reads and writes remotes. It runs in a runtime that belongs to a
//! [`Connection`], and the command waits for it.

mod connect;
mod credentials;
mod network;
mod price;
mod source;
mod spec;
mod stats;
pub(crate) mod tracking;
mod wait_messages;

pub(crate) use self::{
    connect::{Connection, LAST_MOMENT, LimitArgs, runtime},
    network::Network,
    source::{RemoteRevision, RemoteSource, is_location},
    spec::{CachePolicy, DEFAULT_REMOTE, RemoteSpec},
    stats::RemoteStatsJson,
};
