//! Layer 6: the operations that users request. An operation is a function. Its `Options`
//! are choices with defaults, and its `Outcome` says in numbers what happened. [`record`]
//! defines the JSON that programs receive about operations.

pub mod affected;
pub mod bundle;
pub mod cat;
pub mod commit;
pub mod diff;
pub mod export;
mod file_content;
pub mod find;
pub mod forget;
pub mod gc;
pub mod inbox;
pub mod list;
pub mod log;
pub mod missing_objects;
pub mod path_log;
pub mod reach;
pub mod record;
pub mod recoverable;
pub mod remaining;
pub mod removal_error;
pub mod repair;
mod reserved;
pub mod restore;
pub mod rewrite;
pub mod select;
pub mod stats;
pub mod tidy;
pub mod unfetched_ignores;
pub mod update;
pub mod verify;
