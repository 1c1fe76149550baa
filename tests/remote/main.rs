//! Tests of stores elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod clone;
mod damage;
mod distant;
mod parquet;
mod ranges;
mod reading;
mod transfer;
