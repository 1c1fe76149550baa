//! Stores elsewhere, and their local mirrors.
//!
//! A [`Peer`] is a store elsewhere, in verbs: look, list and read the index, read and send packs,
//! publish them, move refs, create, mend. Transfers use these verbs only. What a verb takes to do,
//! such as the order of writes in a bucket, is the matter of the peer.
//!
//! | module | what |
//! |---|---|
//! | `error` | why an operation failed |
//! | [`mirror`] | the local mirror of a remote store: its packs without their frames |
//! | `mirror_state` | what a mirror remembers in a few words |
//! | [`gc_view`] | what a client knows about the garbage collection there |
//! | [`known`] | what this process knows: the mirror and the last listing of the index |
//! | [`slot`] | the content of a ref there |
//! | `server` | a store on a snap server |
//! | [`bucket`] | a store in a bucket, a share or a folder |
//! | [`local`] | a store in a project on this machine |
//! | [`open`] | opens the peer at a location |
//! | [`place`] | a location that may have a store |
//! | `checked_file` | small text files of a cache, with a checksum |
//! | `catch_up` | reads the new files of the index into the mirror |
//! | [`remote_store`] | a peer and what this process knows of it |
//! | [`all_refs`] | all refs of a remote store, and the branch that a clone starts with |

pub mod all_refs;
pub mod bucket;
mod catch_up;
mod checked_file;
mod error;
pub mod gc_view;
pub mod known;
pub mod local;
pub mod mirror;
mod mirror_state;
pub mod open;
pub mod place;
pub mod remote_store;
mod server;
pub mod slot;

use std::{fmt::Debug, ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Observer,
    },
    format::{outline::PackOutline, ref_text::FIRST_EPOCH},
    ops::repair::RepairRun,
    repo::ref_name::RefName,
    store::Store,
};

pub use crate::bucket::keys::{CONFIG, HEAD, INDEX, OBJECTS, REFS};
pub use bucket::{
    claims,
    condition_proofs::{CONDITIONS, ConditionProofs},
    epoch::{GC, GC_STATE},
};
pub use error::RemoteError;
pub use mirror::Mirror;
pub use place::Place;
pub use remote_store::{RemoteStore, StoreLookup};

pub(crate) use remote_store::SettingsState;

use self::{known::Known, slot::RefSlot};
use crate::{
    bucket::{
        FailureReason, ListedObject, PartialClone, ServiceError, UploadProgress, traffic::Traffic,
    },
    ranges::FetchRange,
};

/// A request that is under way.
pub type Reply<'a, T> = BoxFuture<'a, Result<T, RemoteError>>;

/// Maximum length of a pack that is always sent again whole after an interruption, like any request.
/// The waste is small. A smaller pack could have as few as one or two chunks of 4 MiB.
pub const RESENT_BYTES: u64 = 8 << 20;

/// A pack, and the store that has its outline.
pub type PackIn<'s> = (&'s Store, PackId);

/// Returns the key of a pack.
pub(crate) fn pack_key(pack: &PackId) -> String {
    format!("{OBJECTS}{pack}")
}

/// Returns the name of an object at a location, for messages.
pub(crate) fn place_of(key: &str, location: &str) -> String {
    format!("{key} at {location}")
}

/// The settings of a store to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStore {
    /// The text of the settings.
    pub config: String,
    /// The branch that clones start with.
    pub head: RefName,
}

/// The packs of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedPacks {
    pub packs: Vec<ListedPack>,
    /// A text that differs for two places with the same location, such as two disks that are mounted
    /// in turn. It has no spaces; `-` if the store has no identity.
    pub place: String,
}

/// A pack in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedPack {
    pub id: PackId,
    /// Length in bytes; 0 if the listing has no lengths.
    pub bytes: u64,
    /// Seconds since 1970 at the last write, by the clock of the service; `None` if unknown.
    pub modified_secs: Option<i64>,
}

/// What a store did with a pack that it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentPack {
    /// The store has hashed the pack.
    Checked,
    /// The store keeps bytes without looking at them.
    Unchecked,
}

/// The file of a pack to send.
#[derive(Clone, Copy, Debug)]
pub struct PackToSend<'a> {
    pub id: PackId,
    pub path: &'a Path,
    /// Length of the file.
    pub bytes: u64,
}

/// The listing of the index.
#[derive(Clone, Debug, Default)]
pub struct IndexListing {
    /// The files, with their keys and lengths; 0 if the listing has no lengths.
    pub files: Vec<ListedObject>,
    /// True if the store collects garbage by itself, and has done so. The mirror knows the
    /// collections of other stores.
    pub was_collected: bool,
}

/// The content of a file of the index.
#[derive(Clone, Debug)]
pub enum IndexContent {
    /// The bytes of a file, which hash to its name.
    File(Bytes),
    /// The outline of a pack, in a store that lists its packs instead of index files.
    Pack(Box<PackOutline>),
}

/// The trial of an operation.
#[derive(Debug)]
pub struct Trial {
    /// Name of the operation.
    pub name: &'static str,
    pub result: TrialResult,
}

/// The result of a trial.
#[derive(Debug)]
pub enum TrialResult {
    /// The operation works.
    Works,
    /// The operation does not work, and snap needs it.
    Fails(ServiceError),
    /// The operation gives a wrong result.
    Wrong(String),
    /// The operation does not work, but snap does not need it.
    Unneeded(String),
    /// The operation was not tried, because an earlier one failed.
    Untried,
}

/// A requested move of a ref.
#[derive(Clone, Copy, Debug)]
pub struct RefMove<'a> {
    pub name: &'a RefName,
    /// The content that the move replaces.
    pub expected: &'a RefSlot,
    /// The new commit; `None` deletes the ref.
    pub new: Option<CommitId>,
}

/// The first answer to a push that knows the store.
#[derive(Debug)]
pub struct Look {
    /// The content of each ref, in the order of the names.
    pub slots: Vec<RefSlot>,
    /// The listing of the index; `None` from a store that checks itself what it receives, so that a
    /// push needs the listing only if a ref moves.
    pub listing: Option<IndexListing>,
}

/// What to mend in a store, other than packs.
#[derive(Clone, Copy, Debug)]
pub enum Mend<'a> {
    /// Writes these settings in place of lost or damaged ones.
    Settings(&'a str),
    /// Makes `HEAD` name `head` if it is lost or damaged, or if the branch in `HEAD` neither exists
    /// nor is in `pushed`, but `head` is in `pushed`.
    Head { head: &'a RefName, pushed: &'a [&'a RefName] },
    /// Rewrites or removes damaged index files. The caller has read the index.
    Index,
    /// Writes what is lost of the state of garbage collection again. The caller has read the index.
    Collection,
}

/// Moves refs of a store that makes the first created branch its default branch: moves `head` first
/// if the store has none of the refs.
async fn move_head_first<P: Peer + ?Sized>(
    peer: &P,
    known: &Known,
    moves: &[RefMove<'_>],
    head: Option<&RefName>,
    observer: &dyn Observer,
) -> Vec<Result<(), RemoteError>> {
    let is_empty = moves.iter().all(|one| one.expected.commit.is_none());
    let first = moves.iter().position(|one| Some(one.name) == head).filter(|_| is_empty);
    let before = match first {
        Some(at) => Some((at, peer.swap(known, moves[at], observer).await)),
        None => None,
    };
    let others = moves.iter().enumerate().filter(|(at, _)| Some(*at) != first);
    let others = others.map(|(_, one)| peer.swap(known, *one, observer));
    let mut results = join_all(others).await;
    if let Some((at, result)) = before {
        results.insert(at, result);
    }
    results
}

/// The packs of a peer, as objects by key.
#[derive(Clone, Debug)]
pub(crate) struct PeerPacks(pub(crate) Arc<dyn Peer>);

impl FetchRange for PeerPacks {
    fn fetch<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, ServiceError>> {
        match key.strip_prefix(OBJECTS).and_then(|id| id.parse().ok()) {
            Some(pack) => self.0.read(pack, range),
            None => {
                let error = ServiceError::new("read", key, FailureReason::NotFound, String::new());
                Box::pin(async { Err(error) })
            }
        }
    }
}

/// A store elsewhere.
///
/// What a client relies on, such as the epoch of the store, is in [`Known`], so a peer decides from
/// what its caller has read. The defaults are those of a store that checks what it receives, makes its
/// index and collects its garbage by itself.
pub trait Peer: Debug + Send + Sync + 'static {
    /// Prepares the store for writes. Finishes the publication of a killed push, and aborts uploads
    /// that killed pushes left.
    fn begin(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the settings, or `None` if there are none.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if the store reports that they are damaged.
    fn config(&self) -> Reply<'_, Option<Bytes>>;

    /// Returns the settings like [`Peer::config`]. Without settings, checks that the location is free
    /// for a store.
    ///
    /// # Errors
    /// [`RemoteError::NoSettings`] if only the settings of a store are missing;
    /// [`RemoteError::NotAStore`] if the location has other files.
    fn inspect(&self) -> Reply<'_, Option<Bytes>>;

    /// Returns the objects that the store lacks, if it is a partial clone.
    fn partial_clone(&self) -> Reply<'_, Option<PartialClone>> {
        Box::pin(async { Ok(None) })
    }

    /// Creates a store, and runs `send`, which sends packs to it, as early as it takes packs.
    /// Returns the settings: those of another client that creates the store first.
    ///
    /// # Errors
    /// The errors of `send` come first.
    fn create<'a>(&'a self, new: &'a NewStore, send: Reply<'a, ()>) -> Reply<'a, Option<Bytes>>;

    /// Returns the branch that `HEAD` names, or `None` if there is no `HEAD`.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if `HEAD` does not name a branch.
    fn head(&self) -> Reply<'_, Option<RefName>>;

    /// Makes `first` the branch that clones start with.
    fn begin_head<'a>(&'a self, _first: &'a RefName) -> Reply<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the content of refs, also invalid content, in the order of the names.
    fn slots<'a>(&'a self, names: &'a [&'a RefName]) -> Reply<'a, Vec<RefSlot>>;

    /// Reads refs like [`Peer::slots`], with the listing of the index if the store gives it in the
    /// same round trip.
    fn look<'a>(&'a self, names: &'a [&'a RefName]) -> Reply<'a, Look> {
        Box::pin(async move { Ok(Look { slots: self.slots(names).await?, listing: None }) })
    }

    /// Returns all branches and tags, sorted. A content without a version cannot be replaced.
    fn refs(&self) -> Reply<'_, Vec<(RefName, RefSlot)>>;

    /// Moves a ref by compare-and-swap. Informs `observer` about a wait for other clients.
    ///
    /// # Errors
    /// [`RemoteError::Raced`] if the ref is not as expected; [`RemoteError::Collected`] if a
    /// collection has begun a new epoch; [`RemoteError::Held`].
    fn swap<'a>(
        &'a self,
        known: &'a Known,
        one: RefMove<'a>,
        observer: &'a dyn Observer,
    ) -> Reply<'a, ()>;

    /// Moves refs by compare-and-swap, and creates none whose name another ref blocks. Returns a
    /// result for each. `head` is the branch that clones of a new store start with.
    fn move_refs<'a>(
        &'a self,
        known: &'a Known,
        moves: &'a [RefMove<'a>],
        head: Option<&'a RefName>,
        observer: &'a dyn Observer,
    ) -> BoxFuture<'a, Vec<Result<(), RemoteError>>> {
        Box::pin(move_head_first(self, known, moves, head, observer))
    }

    /// Lists the index.
    fn list_index(&self) -> Reply<'_, IndexListing>;

    /// Reads a file of the index of at most `most` bytes. **Not** checked: the hash.
    fn read_index<'a>(
        &'a self,
        name: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<IndexContent, ServiceError>>;

    /// Returns the length of a file of the index, or `None` if it does not exist.
    fn index_file_bytes<'a>(&'a self, name: &'a str) -> Reply<'a, Option<u64>>;

    /// Lists all packs, also those that no index file lists.
    fn packs(&self) -> Reply<'_, ListedPacks>;

    /// Lists the packs that may be complete although no index file lists them, with their lengths.
    fn unlisted_packs<'a>(&'a self, _known: &'a Known) -> Reply<'a, Vec<ListedPack>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns the length of a pack, published or not; `None` if it does not exist.
    fn pack_bytes(&self, pack: PackId) -> Reply<'_, Option<u64>>;

    /// Reads a range of a pack.
    fn read(&self, pack: PackId, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ServiceError>>;

    /// Sends the file of a pack. It is not part of the store before it is published.
    ///
    /// # Errors
    /// [`FailureReason::Damaged`] if the pack does not hash to its name. If the connection breaks in
    /// a pack of more than [`RESENT_BYTES`], a snap server does not try again, and the error has
    /// [`ServiceError::interrupted_at`].
    fn send<'a>(
        &'a self,
        pack: PackToSend<'a>,
        progress: &'a UploadProgress,
    ) -> BoxFuture<'a, Result<SentPack, ServiceError>>;

    /// Publishes sent packs, and adds them to the mirror. Returns the key of the index file that lists
    /// them, if there is one.
    ///
    /// # Errors
    /// Either all packs or none are visible then.
    fn publish<'a>(&'a self, known: &'a Known, packs: Vec<PackIn<'a>>)
    -> Reply<'a, Option<String>>;

    /// Removes what the last publications have made superfluous.
    fn tidy<'a>(&'a self, _known: &'a Known) -> Reply<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Mends something. Returns the keys of what was written or removed.
    fn mend<'a>(&'a self, known: &'a Known, what: Mend<'a>) -> Reply<'a, Vec<String>>;

    /// Removes packs that do not exist from the index. Returns the removed packs, in a dry run all.
    fn unlist<'a>(
        &'a self,
        _known: &'a Known,
        _packs: &'a [PackId],
        _run: RepairRun,
    ) -> Reply<'a, Vec<PackId>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns the problems with names of refs. Informs `observer` about each file that cannot be a
    /// ref.
    fn name_problems<'a>(&'a self, _observer: &'a dyn Observer) -> Reply<'a, Vec<RemoteError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns the problem of a store whose state of garbage collection is missing or damaged.
    fn collection_problem(&self) -> Reply<'_, Option<RemoteError>> {
        Box::pin(async { Ok(None) })
    }

    /// Reads the state of garbage collection into the mirror. Returns false if the store has none
    /// that concerns clients.
    fn learn_epoch<'a>(&'a self, _known: &'a Known) -> Reply<'a, bool> {
        Box::pin(async { Ok(false) })
    }

    /// Returns true if a collection may have deleted packs since this client has read the index.
    fn is_overtaken<'a>(&'a self, known: &'a Known) -> Reply<'a, bool> {
        Box::pin(async { Ok(known.has_unlisted(&self.list_index().await?)) })
    }

    /// Returns the epoch of the store now, as far as it concerns clients.
    fn present_epoch(&self) -> Reply<'_, u64> {
        Box::pin(async { Ok(FIRST_EPOCH) })
    }

    /// Checks that this is not the store in `dir`.
    ///
    /// # Errors
    /// [`RemoteError::Itself`].
    fn check_another(&self, _dir: &Path) -> Result<(), RemoteError> {
        Ok(())
    }

    /// Returns the bucket whose garbage clients collect.
    ///
    /// # Errors
    /// [`RemoteError::CollectThere`], [`RemoteError::CollectServer`] for stores that do it themselves.
    fn collectable(self: Arc<Self>) -> Result<Arc<bucket::BucketStore>, RemoteError>;

    /// Returns the paths of the stores at most `levels` folders below the location. An empty path is
    /// the location itself, which is then the only store.
    fn stores(&self, levels: usize) -> Reply<'_, Vec<String>>;

    /// Tries the writes that a push makes; `None` if a write there would be part of a push.
    fn try_writes(&self) -> Reply<'_, Option<Vec<Trial>>> {
        Box::pin(async { Ok(None) })
    }

    /// Returns the counters of requests and bytes.
    fn traffic(&self) -> &Arc<Traffic>;
}
