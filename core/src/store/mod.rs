//! Layer 4: objects by id, over packs and an index.
//!
//! - A [`Store`] reads objects, and a [`ObjectWriter`] adds them.
//! - A [`ContentReader`] reads contents.
//! - A [`TreeCursor`] reads one directory, and a [`TreeWalk`] everything below it.
//! - [`compact`] merges small packs.
//! - A [`PackStream`] checks a pack in one pass over its bytes.
//! - A [`BundleStore`] reads a bundle file in place.
//! - A [`RemoteFrames`] fetches frames of packs from a remote.
//!
//! The packs are in `objects/`. `partial/` has a stub for each pack whose frames may be on a
//! remote. `index/` is derived from both folders: snap rebuilds missing or damaged segments. The
//! file `shadow` names stored objects that must not be relied on, and the file `forgotten` names
//! forgotten commits.

mod bundle;
mod bundle_store;
mod catalog;
pub mod compact;
mod content;
mod content_reader;
pub mod copy;
mod disk_usage;
mod entries;
pub(crate) mod epoch;
mod error;
mod fetch;
mod forgotten;
mod index_check;
mod lane;
mod lookup;
mod marks;
mod objects;
mod pack_reader;
pub mod pack_stream;
mod pack_writer;
mod partial;
mod prefetch;
mod proof;
mod quarantine;
mod remote_frames;
pub mod reserve;
mod rewrites;
mod segment;
mod shadow;
mod stored;
mod stub_cache;
pub mod sweep;
mod tree_cursor;
mod tree_pair;
mod tree_walk;
mod trusted_packs;
mod writer;

pub use bundle::{BundleError, BundleReader, BundleWriter, read_outline};
pub use bundle_store::BundleStore;
pub use compact::FreePacks;
pub use content::{ChunkVisit, Descend, EnteredParts, ReadObject, read_list, walk_chunks};
pub use content_reader::{
    BatchOutcome, ContentError, ContentReader, EachPiece, FileContent, read_chunks,
};
pub use disk_usage::DiskUsageSum;
pub use entries::Entries;
pub use epoch::{CollectedUntil, Epoch, EpochLock};
pub use error::StoreError;
pub use fetch::Pause;
pub use forgotten::Ancestor;
pub use index_check::IndexDigests;
pub use lookup::OtherCopies;
pub use marks::Marks;
pub use objects::{ObjectLocation, Store, actual_id};
pub use pack_reader::{FrameObjects, PackFile};
pub use pack_stream::PackStream;
pub use prefetch::ObjectIds;
pub use proof::{PackCheck, PackChecks, identity_of};
pub use quarantine::IsUnneeded;
pub use remote_frames::{RemoteCopies, RemoteFrameError, RemoteFrames};
pub use shadow::{ShadowVersion, Shadows, damage};
pub use tree_cursor::{
    NextItem, Prefetch, TreeCursor, TreeItem, TreeSource, UnreadNode, decode_tree,
};
pub use tree_pair::{PairedEntries, TreePair};
pub use tree_walk::{TreeWalk, WalkStep, check_depth};
pub use trusted_packs::CacheTrust;
pub use writer::{ObjectWriter, WriteStats};
