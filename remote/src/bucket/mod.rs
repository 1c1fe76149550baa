//! Objects by key in a bucket, a share or a folder. The trait [`Bucket`] hides OpenDAL and the SFTP
//! library.
//!
//! Each call of [`Bucket`] is one attempt. A [`client::Client`] adds retries, limits and counters.

mod adaptive_semaphore;
pub(crate) mod call;
mod cancellation;
pub mod client;
mod error;
pub mod folder;
pub mod keys;
pub mod memory;
pub mod opendal;
mod opendal_error;
mod parts;
pub mod pending;
mod rate_limit;
mod requests;
#[cfg(feature = "sftp")]
pub mod sftp;
mod temporary_key;
pub mod traffic;
pub mod transport;
mod upload;
mod upload_notes;

use std::{
    collections::HashSet,
    fmt::Debug,
    future::ready,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use snap_core::{
    base::id::{ObjectId, PackId},
    disk::symlink_guard::folder_identity,
    repo::ref_name::RefName,
};

pub use cancellation::CancellationToken;
pub use error::{FailureDetail, FailureReason, ServiceError};
pub(crate) use opendal_error::service_error;
pub(crate) use requests::{Requests, jittered};
pub(crate) use transport::Transport;
pub use upload::{MultipartUpload, UploadProgress};
pub use upload_notes::UploadNote;

/// The version of an object, for conditional writes: an ETag or a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// ETag, including its quotes.
    pub etag: Option<String>,
    /// Generation, if the service has one.
    pub generation: Option<String>,
}

/// An object or a range of it.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// The bytes of the object or of the range.
    pub bytes: Bytes,
    /// The version, if the service has one.
    pub version: Option<ObjectVersion>,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Key, relative to the root of the location.
    pub key: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Seconds since 1970 at the last write, by the clock of the service; `None` if unknown.
    pub modified_secs: Option<i64>,
}

/// An incomplete store: a clone with `--depth` or `--path`.
#[derive(Clone, Debug, Default)]
pub struct PartialClone {
    /// The URL of the default remote, which has the rest.
    pub origin: Option<String>,
    /// Number of partial packs.
    pub packs: u64,
    /// The objects of the partial packs. Clients cannot read them from this store.
    pub objects: HashSet<ObjectId>,
}

/// The condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteCondition {
    /// No condition.
    Always,
    /// The object must not exist.
    Absent,
    /// The object must have this version.
    Unchanged(ObjectVersion),
}

/// Conditions of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionalWrites {
    /// [`WriteCondition::Absent`].
    pub absent: bool,
    /// [`WriteCondition::Unchanged`].
    pub unchanged: bool,
}

impl ConditionalWrites {
    /// All conditions.
    pub const ALL: Self = Self { absent: true, unchanged: true };
    /// No condition.
    pub const NONE: Self = Self { absent: false, unchanged: false };
}

/// What a bucket is and can do. Only this module and [`peer::bucket`](crate::peer::bucket) read it.
#[derive(Clone, Debug)]
pub struct BucketFacts {
    /// The conditions that the bucket honours, as far as its service tells.
    pub conditions: ConditionalWrites,
    /// The conditions that a write can carry, even if the service ignores them.
    pub takes_conditions: ConditionalWrites,
    /// The bucket in which the service may ignore the conditions that it reports, because it is not
    /// an implementation of this project: its kind, its endpoint and its name. `None` if the service
    /// honours them, or reports none.
    pub unproven_bucket: Option<String>,
    /// Maximum number of concurrent requests, if it is known in advance.
    pub max_requests: usize,
    /// Maximum number of objects that one request deletes.
    pub max_deletions: usize,
    /// True if the bucket itself refuses a ref whose name is a parent folder of another ref's name,
    /// or the reverse.
    pub refuses_conflicting_refs: bool,
    /// True if a key with `/` in it is a file in a folder, so that no object can have the name of a
    /// folder of another object.
    pub has_folders: bool,
    /// True if the bucket itself counts requests and bytes and applies the rate limits, because it
    /// sends several requests for one call. Always true for a bucket with multipart uploads.
    pub is_metered: bool,
    /// The folder of the objects on this machine.
    pub folder: Option<PathBuf>,
}

impl BucketFacts {
    /// The facts of a bucket that has no more than conditions.
    pub const fn new(conditions: ConditionalWrites) -> Self {
        Self {
            conditions,
            takes_conditions: conditions,
            unproven_bucket: None,
            max_requests: usize::MAX,
            max_deletions: 1,
            refuses_conflicting_refs: false,
            has_folders: false,
            is_metered: false,
            folder: None,
        }
    }

    /// Returns an identity that differs for two places with the same location, such as two disks
    /// that are mounted in turn. The text has no spaces; `-` if the bucket has no identity.
    pub(crate) fn identity(&self) -> String {
        self.folder.as_deref().map_or_else(|| "-".to_owned(), folder_identity)
    }
}

/// The content of a new object.
#[derive(Clone, Debug)]
pub enum Body {
    /// These bytes.
    Bytes(Bytes),
    /// A file, and the number of its first bytes to write.
    File(Arc<Path>, u64),
}

impl<B: Into<Bytes>> From<B> for Body {
    fn from(bytes: B) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl Body {
    fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, length) => *length,
        }
    }

    /// Reads a range, from a file on a thread that may block.
    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes, ServiceError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Self::File(path, _) => {
                let read = upload::read_part(path, range).await;
                read.map(Bytes::from).map_err(|error| {
                    ServiceError::new("write", key, FailureReason::Other, error.to_string())
                })
            }
        }
    }
}

/// How deep a listing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListDepth {
    /// All objects.
    All,
    /// At most this many objects and folders directly below the prefix. The key of a folder ends
    /// with `/`.
    Level(usize),
}

/// The result of an attempt, when it has ended.
pub type Attempt<'a, T> = BoxFuture<'a, Result<T, ServiceError>>;

/// Objects by key. Keys are relative to the root of the location, with `/` between their parts. No
/// key begins with `/` or has a part `..`.
pub trait Bucket: Debug + Send + Sync + 'static {
    /// Returns what the bucket is and can do.
    fn facts(&self) -> &BucketFacts;

    /// Reads a whole object. Never holds more than `most` bytes, however long the response is.
    ///
    /// # Errors
    /// [`FailureReason::NotFound`], and [`FailureReason::TooLong`] if the object exceeds `most`
    /// bytes.
    fn get<'a>(&'a self, key: &'a str, most: u64) -> Attempt<'a, StoredObject>;

    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`FailureReason::NotFound`], and [`FailureReason::Short`] if the object ends before the
    /// range.
    fn get_range<'a>(&'a self, key: &'a str, range: Range<u64>) -> Attempt<'a, Bytes>;

    /// Writes an object atomically, and replaces an existing one. Hashes a pack in a file as it
    /// sends it.
    ///
    /// # Errors
    /// [`FailureReason::Damaged`] if a pack in a file does not hash to its name; the bucket then does
    /// not keep it.
    fn put<'a>(&'a self, key: &'a str, body: Body) -> Attempt<'a, Option<ObjectVersion>>;

    /// Writes an object atomically, if a condition holds.
    ///
    /// # Errors
    /// [`FailureReason::Conflict`] if the condition does not hold, [`FailureReason::Unsupported`] if
    /// the bucket has no conditions.
    fn put_if<'a>(
        &'a self,
        key: &'a str,
        _bytes: Bytes,
        _when: WriteCondition,
    ) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(ready(Err(no_conditions(key))))
    }

    /// Deletes objects, at most [`BucketFacts::max_deletions`]; skips those that do not exist.
    ///
    /// # Errors
    /// [`ServiceError`]; some objects may be gone then.
    fn delete<'a>(&'a self, keys: &'a [String]) -> Attempt<'a, ()>;

    /// Lists the objects whose keys begin with `prefix`, which is empty or ends with `/`.
    ///
    /// # Errors
    /// [`ServiceError`]. If no key has the prefix, the list is empty.
    fn list<'a>(&'a self, prefix: &'a str, depth: ListDepth) -> Attempt<'a, Vec<ListedObject>>;

    /// Returns the length of an object, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn head<'a>(&'a self, key: &'a str) -> Attempt<'a, Option<u64>>;

    /// Begins a multipart upload, or returns `None` if the bucket has none. Sends no request yet.
    /// Records an upload that can outlive this process in `note`.
    fn upload(&self, _key: &str, _note: Arc<UploadNote>) -> Option<Box<dyn MultipartUpload>> {
        None
    }

    /// Aborts a multipart upload by its recorded id.
    ///
    /// # Errors
    /// [`FailureReason::NotFound`] if the upload does not exist.
    fn abort_upload<'a>(&'a self, _key: &'a str, _id: &'a str) -> Attempt<'a, ()> {
        Box::pin(ready(Ok(())))
    }
}

/// Creates the error for a condition that the bucket does not have.
fn no_conditions(key: &str) -> ServiceError {
    let message = "conditional writes".to_owned();
    ServiceError::new("write", key, FailureReason::Unsupported, message)
}

/// Creates the error for an object that ends `bytes` before the end of a range.
fn too_short(key: &str, bytes: u64) -> ServiceError {
    ServiceError::new("read", key, FailureReason::Short, format!("it ends {bytes} B early"))
}

/// Creates the error for a listing of more than `most` objects.
fn too_many(prefix: &str, most: usize) -> ServiceError {
    let message = format!("more than {most} objects");
    ServiceError::new("list", prefix, FailureReason::TooLong, message)
}

/// Creates the error for an object that is longer than its limit.
fn too_long(key: &str, most: u64) -> ServiceError {
    ServiceError::new("read", key, FailureReason::TooLong, format!("more than {most} B"))
}

/// Checks that a pack hashes to the name in its key. Accepts all other keys.
fn check_hash(key: &str, hash: blake3::Hash) -> Result<(), ServiceError> {
    let id = key.strip_prefix(keys::OBJECTS).and_then(|name| name.parse::<PackId>().ok());
    match id.is_none_or(|id| id.as_bytes() == hash.as_bytes()) {
        true => Ok(()),
        false => {
            let why = format!("it hashes to {}", hash.to_hex());
            Err(ServiceError::new("write", key, FailureReason::Damaged, why))
        }
    }
}

/// Creates the error for a ref whose name is a parent folder of another ref's name, or the
/// reverse.
pub(crate) fn ref_name_conflict(name: &RefName, other: &RefName) -> ServiceError {
    let short = |name: &RefName| format!("{}/{}", name.kind().folder(), name.short());
    let why = format!("`{}` conflicts with `{}`", short(name), short(other));
    let error = ServiceError::new("write", &name.to_string(), FailureReason::Refused, why);
    error.with_detail(FailureDetail::NameConflict)
}
