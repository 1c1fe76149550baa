//! Layer 6: what users ask for. An operation is a function; its `Options` are
//! choices with a default, its `Outcome` says what happened, in numbers. What
//! programs are told of it is in [`record`].

pub mod absent;
pub mod accept;
pub mod bundle;
pub mod cat;
pub mod commit;
mod content;
pub mod diff;
pub mod export;
pub mod find;
pub mod held;
pub mod list;
pub mod log;
pub mod path_log;
pub mod reach;
pub mod record;
pub mod repair;
pub mod restore;
pub mod select;
pub mod staged;
pub mod stats;
pub mod tidy;
pub mod undo;
pub mod verify;
