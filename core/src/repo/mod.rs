//! Layer 5: repositories: opening them, moving their refs, naming their commits.
//!
//! | module        | purpose                                                |
//! |---------------|--------------------------------------------------------|
//! | [`base`]      | the commits that a project's files come from           |
//! | [`base_state`] | the base as a state machine                           |
//! | [`collected`] | distinguishes deleted commits from lost ones            |
//! | [`config`]    | settings: `config.toml` of a store and of a user       |
//! | [`files_lock`] | the lock on a project's files                         |
//! | `make`        | creates a store ([`Repo::init`])                       |
//! | [`openness`]  | compares the mode of a store with those of its files   |
//! | [`ownership`] | checks which users can have created or changed a store |
//! | [`open`]      | opens a store; finds the store above a folder          |
//! | [`ref_name`]  | names of branches and tags                             |
//! | [`refs`]      | reads refs; moves them by compare-and-swap             |
//! | [`ref_log`]   | the log of each ref: its earlier values                |
//! | [`seen`]      | tells damage from what other processes have changed    |
//! | [`scope`]     | the paths that a partial clone fetched                 |
//! | [`spec`]      | resolves `HEAD~2`, an id prefix, `latest@2026-11-01`   |
//! | [`path`]      | resolves `REV:PATH` to an entry, through split trees   |
//! | [`past`]      | errors of a walk through history                       |
//! | [`mend`]      | rewrites lost settings and a lost `HEAD`               |
//! | [`history`]   | iterates over a commit and its ancestors, newest first |
//! | [`roots`]     | the commits that a store refers to, for each operation |
//! | [`changed`]   | entries of a snapshot that other snapshots lack        |
//! | [`undo`]      | finds the ref change to take back or to make again     |

pub mod base;
pub mod base_state;
pub mod changed;
pub mod collected;
pub mod config;
pub mod files_lock;
pub mod history;
mod lost;
mod make;
pub mod mend;
pub mod open;
pub mod openness;
pub mod ownership;
pub mod past;
pub mod path;
pub mod ref_log;
pub mod ref_name;
pub mod refs;
pub mod roots;
pub mod scope;
pub mod seen;
pub mod spec;
pub mod undo;

pub use self::{
    config::Config,
    make::{NewStore, Sharing},
    open::{Repo, RepoError},
    past::PastError,
    ref_name::{Pointer, RefName},
    refs::{Head, RefError, RefLogMessage, Refs},
    spec::SpecError,
    undo::UndoError,
};
