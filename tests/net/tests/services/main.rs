//! The services themselves, by clients that others wrote.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod dav;
mod harm;
mod lies;
mod passing;
mod s3;
