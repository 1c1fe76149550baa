//! Layer 4: objects by id, over packs and an index.
//!
//! A [`Store`] reads, a [`Writer`] adds, [`compact`] merges small packs, what
//! comes from elsewhere passes through [`Incoming`]. A [`BundleStore`] is a
//! bundle file that is read in place, a [`Distant`] has packs that lie elsewhere.
//! The files in `objects/` are the whole truth, with stubs in `partial/` of what
//! lies elsewhere; what is in `index/` is made from them and made again when it is
//! missing or damaged. Objects that are there but must not be relied on are
//! shadowed: the file `shadow` names them.

mod bundle;
mod bundle_store;
mod catalog;
pub mod compact;
mod content;
pub mod copy;
mod cut;
mod distant;
mod entries;
mod error;
mod fetch;
mod frame_cache;
mod gather;
mod incoming;
mod lane;
mod listing;
mod lookup;
mod marks;
mod need;
mod objects;
mod pack_reader;
mod pack_writer;
mod partial;
mod quarantine;
mod relied;
mod segment;
mod shadow;
mod share;
mod stored;
pub mod sweep;
mod turns;
mod writer;

pub use bundle::{BundleError, BundleReader, BundleWriter, read_outline};
pub use bundle_store::BundleStore;
pub use catalog::{Repair, Upkeep};
pub use content::{Content, Met, ReadObject, listed_bytes, walk_chunks};
pub use distant::{Distant, DistantError};
pub use entries::Entries;
pub use error::StoreError;
pub use fetch::Pause;
pub use incoming::{Incoming, Receive};
pub use listing::{Leaf, Listing};
pub use marks::Marks;
pub use need::Needed;
pub use objects::{Place, Store, actual_id};
pub use pack_reader::PackFile;
pub use partial::{Contents, CopyError};
pub use quarantine::IsSpare;
pub use relied::Reliance;
pub use shadow::{ShadowVersion, damage};
pub use share::{Share, Shares};
pub use writer::{Added, Writer};
