//! Tests of the real binary, one file a command.
//!
//! They check the wiring: exit code, stdout and stderr, in a cleared
//! environment with a fixed clock. What an operation does is tested in core.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod archive;
mod bad_input;
mod branch;
mod cat;
mod commit;
mod config;
mod diff;
mod env;
mod export;
mod find;
mod hooks;
mod init;
mod log;
mod ls;
mod moves;
mod pack;
mod path_log;
mod profile;
mod reflink;
mod restore;
mod stats;
mod status;
mod terminal;
mod undo;
mod usage;
mod verify;
