//! The engine of snap: objects, packs, index, scanning, commit, restore, verify.
//!
//! Core is synchronous and knows neither terminal, environment, network nor home
//! folder. A layer imports from lower layers only; `tests/core/layers.rs` checks this:
//!
//! | layer | modules                        | what                                  |
//! |-------|--------------------------------|---------------------------------------|
//! | 6     | [`ops`]                        | commit, restore, log, verify, …       |
//! | 5     | [`repo`]                       | open a repository, refs, revisions    |
//! | 4     | [`store`], [`local`]           | objects by id; the user's own files   |
//! | 3     | [`chunk`], [`codec`], [`disk`] | cut, compress, write durably          |
//! | 2     | [`mod@format`]                 | bytes ⇄ values, no I/O                |
//! | 1     | [`base`]                       | ids, names, limits, kinds, time       |

pub mod base;
pub mod chunk;
pub mod codec;
pub mod disk;
pub mod format;
pub mod local;
pub mod ops;
pub mod repo;
pub mod store;
