//! Layer 4: objects by id, over packs and an index.
//!
//! A [`Store`] reads, a [`Writer`] adds, [`compact`] merges small packs. The
//! files in `objects/` are the whole truth; what is in `index/` is made from
//! them and made again when it is missing or damaged.

mod catalog;
pub mod compact;
mod entries;
mod error;
mod frame_cache;
mod lane;
mod marks;
mod objects;
mod pack_reader;
mod pack_writer;
mod segment;
mod sweep;
mod writer;

pub use catalog::Repair;
pub use entries::Entries;
pub use error::StoreError;
pub use marks::Marks;
pub use objects::{Content, Place, Store, actual_id};
pub use pack_reader::PackFile;
pub use writer::{Added, Writer};
