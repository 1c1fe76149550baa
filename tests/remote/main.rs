//! Tests of stores elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod outside;
mod ranges;
mod transfer;
