//! Stores elsewhere as commands see them: which one is meant, whose keys open
//! it, what was asked of it and what that costs.
//!
//! How a store elsewhere is read and written is `snap-remote`'s concern. It
//! runs in a runtime that belongs to a [`Connection`], and the command waits.

mod connect;
mod credentials;
mod elsewhere;
mod network;
mod patience;
mod place;
mod price;
pub(crate) mod rate;
mod stats;
pub(crate) mod tracking;

pub(crate) use self::{
    connect::{Connection, LAST_MOMENT, LimitArgs, runtime},
    elsewhere::{Elsewhere, Split},
    network::Network,
    place::{Memory, Place, USUAL},
    price::Cost,
    stats::{StatsJson, by_kind},
};
