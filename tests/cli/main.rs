//! Tests of the real binary, one file for each command.
//!
//! They check exit code, stdout and stderr, in a cleared environment with a fixed clock. The
//! operations themselves are tested in core.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod archive;
mod archives_at_once;
mod bad_input;
mod base;
mod base_sequences;
mod branch;
mod cat;
mod commit;
mod completions;
mod config;
mod diff;
mod docs;
mod env;
mod excludes;
mod expanding;
mod export;
mod fifo;
mod find;
mod first_commit;
mod hooks;
mod init;
mod linked_paths;
mod local_remotes;
mod log;
mod ls;
mod mending;
mod messages;
mod moves;
mod noticed;
mod pack;
mod pager;
mod partial_remotes;
mod patch;
mod path_log;
mod profile;
mod pull_update;
mod reflink;
mod remote;
mod remote_cache;
mod remote_credentials;
mod remote_errors;
mod remote_names;
mod remote_read;
mod remote_sftp;
mod remote_sync;
mod repair;
mod restore;
mod restore_delete;
mod same_names;
mod schema;
mod serve;
mod serve_log;
mod serve_proxy;
mod serve_records;
mod serve_tls;
mod serve_tokens;
mod serve_upstream;
mod stats;
mod status;
mod store_access;
mod store_links;
mod streams;
mod terminal;
mod tools;
mod trust;
mod typed_paths;
mod undo;
mod updates;
mod usage;
mod verify;
mod verify_remote;
