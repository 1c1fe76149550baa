//! Layer 5: a repository: open it, move its refs, name its commits.
//!
//! | module        | what                                                   |
//! |---------------|--------------------------------------------------------|
//! | [`base`]      | the commits that a project's files come from           |
//! | [`config`]    | settings: `config.toml` of a store and of a user       |
//! | [`files_lock`] | the lock on a project's files                         |
//! | `make`        | make a store ([`Repo::init`])                          |
//! | [`openness`]  | whether a store is more open than its files            |
//! | [`ownership`] | which users can have made or changed a store           |
//! | [`open`]      | open a store, find the one above a folder              |
//! | [`ref_name`]  | names of branches and tags                             |
//! | [`refs`]      | where they point; compare-and-swap                     |
//! | [`ref_log`]   | where they pointed before                              |
//! | [`scope`]     | the paths that a partial clone brought                 |
//! | [`spec`]      | `HEAD~2`, a prefix, `latest@2026-11-01` → one commit    |
//! | [`path`]      | `REV:PATH` → one entry, through split trees            |
//! | [`past`]      | why a walk through history ended early                 |
//! | [`history`]   | a commit and all before it, newest first               |
//! | [`changed`]   | what one snapshot has that others have not             |
//! | [`undo`]      | which change of a ref can be taken back, or made again |

pub mod base;
pub mod changed;
pub mod config;
pub mod files_lock;
pub mod history;
mod make;
pub mod open;
pub mod openness;
pub mod ownership;
pub mod past;
pub mod path;
pub mod ref_log;
pub mod ref_name;
pub mod refs;
pub mod scope;
pub mod spec;
pub mod undo;

pub use self::{
    config::Config,
    make::Sharing,
    open::{Repo, RepoError},
    past::PastError,
    ref_name::{Pointer, RefName},
    refs::{Change, Head, RefError, Refs},
    spec::SpecError,
    undo::UndoError,
};
