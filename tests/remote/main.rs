//! Tests of remote stores.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod ceilings;
mod clone;
mod columns;
mod contract;
mod damage;
mod damaged_index;
mod distant;
mod gc;
mod gc_forgotten;
mod gc_project;
mod gc_repack;
mod gc_state;
mod other_copies;
mod outside;
mod patience;
mod pauses;
mod place;
mod proof;
mod pull_after_gc;
mod pushing;
mod ranges;
mod reading;
mod shadow;
mod transfer;
mod verify;
