//! Tests of the services, with independent clients.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod dav;
mod harm;
mod lies;
mod passing;
mod s3;
