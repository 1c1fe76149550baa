//! Layer 5: a repository: open it, move its refs, name its commits.
//!
//! | module        | what                                                   |
//! |---------------|--------------------------------------------------------|
//! | [`config`]    | settings: `config.toml` of a store and of a user       |
//! | `make`        | make a store ([`Repo::init`])                          |
//! | [`open`]      | open a store, find the one above a folder              |
//! | [`ref_name`]  | names of branches and tags                             |
//! | [`refs`]      | where they point; compare-and-swap                     |
//! | [`ref_log`]   | where they pointed before                              |
//! | [`spec`]      | `HEAD~2`, a prefix, `latest@2026-11-01` → one commit    |
//! | [`path`]      | `REV:PATH` → one entry, through split trees            |
//! | [`past`]      | why a walk through history ended early                 |
//! | [`history`]   | a commit and all before it, newest first               |
//! | [`changed`]   | what one snapshot has that others have not             |
//! | [`undo`]      | which change of a ref can be taken back, or made again |

pub mod changed;
pub mod config;
pub mod history;
mod make;
pub mod open;
pub mod past;
pub mod path;
pub mod ref_log;
pub mod ref_name;
pub mod refs;
pub mod spec;
pub mod undo;

pub use self::{
    config::Config,
    open::{Repo, RepoError},
    past::PastError,
    ref_name::{Pointer, RefName},
    refs::{Change, Head, RefError, Refs},
    spec::SpecError,
    undo::UndoError,
};
