//! The protocol, as clients see it that are not ours: good ones and hostile
//! ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod commits;
mod files;
mod hostile;
mod page;
mod place;
mod protocol;
mod refused;
