//! Tests of stores elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ceilings;
mod clone;
mod contract;
mod damage;
mod distant;
mod outside;
mod parquet;
mod patience;
mod pauses;
mod place;
mod pushing;
mod ranges;
mod reading;
mod shadow;
mod transfer;
mod verify;
