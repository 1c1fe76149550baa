//! Tests of stores elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod contract;
mod place;
mod pushing;
mod ranges;
mod transfer;
