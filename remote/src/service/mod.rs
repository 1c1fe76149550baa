//! Objects by key on any service. The trait [`Service`] hides OpenDAL and the SFTP library.
//!
//! Each call of [`Service`] is one attempt. A [`client::Client`] adds retries, limits and
//! counters.

mod adaptive_semaphore;
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
    collections::{BTreeSet, HashSet},
    fmt::Debug,
    io,
    ops::Range,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use snap_core::{
    base::id::{ObjectId, PackId},
    repo::ref_name::RefName,
};

pub use cancellation::CancellationToken;
pub(crate) use cancellation::shielded;
pub use error::{FailureDetail, FailureReason, ServiceError};
pub(crate) use opendal_error::service_error;
pub(crate) use requests::{Requests, jittered};
pub(crate) use transport::{HttpReply, Transport, at_most, with_file};
pub use upload::{MultipartUpload, UploadProgress};
pub use upload_notes::UploadNote;

/// Maximum number of keys of one folder that a search for stores reads.
const FOLDER_KEYS: usize = 5000;

/// Number of folders that a search for stores lists concurrently.
const FOLDERS_AT_ONCE: usize = 16;

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

/// The conditions that a service honours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionalWrites {
    /// [`WriteCondition::Absent`].
    pub absent: bool,
    /// [`WriteCondition::Unchanged`].
    pub unchanged: bool,
}

impl ConditionalWrites {
    /// No condition.
    pub const NONE: Self = Self { absent: false, unchanged: false };
}

/// A service that stores objects by key. Keys are relative to the root of the location, with `/`
/// between their parts. No key begins with `/` or has a part `..`.
pub trait Service: Debug + Send + Sync + 'static {
    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`FailureReason::NotFound`], and [`FailureReason::Short`] if the object ends before the
    /// range.
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>>;

    /// Reads a whole object. Never holds more than `most` bytes, however long the response is.
    ///
    /// # Errors
    /// [`FailureReason::NotFound`], and [`FailureReason::TooLong`] if the object exceeds `most`
    /// bytes.
    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>>;

    /// Writes an object atomically.
    ///
    /// # Errors
    /// [`FailureReason::Conflict`] if the condition does not hold.
    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> BoxFuture<'a, Result<Option<ObjectVersion>, ServiceError>>;

    /// Lists all objects whose keys begin with `prefix`, which is empty or ends with `/`.
    ///
    /// # Errors
    /// [`ServiceError`]. If no key has the prefix, the list is empty.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, ServiceError>>;

    /// Returns the length of an object, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>>;

    /// Removes an object, if it exists.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>>;

    /// Returns the conditions that the service honours.
    fn conditions(&self) -> ConditionalWrites;

    /// Returns the conditions that a write can carry, even if the service ignores them.
    fn takes_conditions(&self) -> ConditionalWrites {
        self.conditions()
    }

    /// Returns the bucket in which the service may ignore the conditions that it reports, because
    /// it is not an implementation of this project: its kind, its endpoint and its name. `None` if
    /// the service honours them, or reports none.
    fn unproven_bucket(&self) -> Option<&str> {
        None
    }

    /// Returns the number of concurrent requests that the service allows, if it is known in
    /// advance.
    fn max_concurrency(&self) -> usize {
        usize::MAX
    }

    /// Returns true if the service itself refuses a ref whose name is a parent folder of another
    /// ref's name, or the reverse.
    fn refuses_conflicting_refs(&self) -> bool {
        false
    }

    /// Returns true if a key with `/` in it is a file in a folder, so that no object can have the
    /// name of a folder of another object.
    fn has_folders(&self) -> bool {
        false
    }

    /// Returns an identity that differs for two places with the same location, such as two disks
    /// that are mounted in turn. The text has no spaces; `-` if the service has no identity.
    fn identity(&self) -> String {
        "-".to_owned()
    }

    /// Returns true if the service itself applies the rate limits of the client to its bodies.
    fn applies_rate_limits(&self) -> bool {
        false
    }

    /// Writes the first `length` bytes of a file as an object, atomically, and replaces an existing
    /// one. Hashes a pack as it sends it.
    ///
    /// # Errors
    /// [`FailureReason::Damaged`] if a pack does not hash to its name; the service then does not
    /// keep it.
    fn write_file<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let bytes = upload::read_part(path, 0..length).await;
            let bytes = bytes.map_err(|error| unreadable_file(key, &error))?;
            check_hash(key, blake3::hash(&bytes))?;
            self.write(key, bytes.into(), WriteCondition::Always).await.map(drop)
        })
    }

    /// Begins a multipart upload, or returns `None` if the service has none. Sends no request yet.
    /// Records an upload that can outlive this process in `note`.
    fn upload(&self, _key: &str, _note: Arc<UploadNote>) -> Option<Box<dyn MultipartUpload>> {
        None
    }

    /// Aborts a multipart upload by its recorded id.
    ///
    /// # Errors
    /// [`FailureReason::NotFound`] if the upload does not exist.
    fn abort_upload<'a>(
        &'a self,
        _key: &'a str,
        _id: &'a str,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async { Ok(()) })
    }

    /// Lists at most `most` of the keys that begin with `prefix`, including folders. The prefix
    /// is empty or ends with `/`.
    ///
    /// # Errors
    /// [`ServiceError`]. If no key has the prefix, the list is empty.
    fn list_some<'a>(
        &'a self,
        prefix: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        Box::pin(async move {
            let listed = self.list(prefix).await?;
            Ok(listed.into_iter().take(most).map(|object| object.key).collect())
        })
    }

    /// Returns the paths of the stores at most `levels` folders below the root. An empty path is
    /// the root itself, which is then the only store.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn stores(&self, levels: usize) -> BoxFuture<'_, Result<Vec<String>, ServiceError>> {
        Box::pin(async move {
            let (mut found, mut waiting) = (Vec::new(), vec![String::new()]);
            for level in 0..=levels {
                let prefixes = std::mem::take(&mut waiting);
                let look = async |prefix: String| {
                    let keys = self.list_some(&prefix, FOLDER_KEYS).await?;
                    Ok::<_, ServiceError>((prefix, keys))
                };
                let mut looks = stream::iter(prefixes).map(look).buffer_unordered(FOLDERS_AT_ONCE);
                while let Some(looked) = looks.next().await {
                    let (prefix, keys) = looked?;
                    let inside = keys.iter().filter_map(|key| key.strip_prefix(&prefix));
                    if inside.clone().any(|name| name == keys::CONFIG) {
                        found.push(prefix.trim_end_matches('/').to_owned());
                    } else if level < levels {
                        let folders = inside.filter_map(|name| Some(name.split_once('/')?.0));
                        let folders: BTreeSet<&str> = folders.collect();
                        waiting.extend(folders.iter().map(|folder| format!("{prefix}{folder}/")));
                    }
                }
            }
            found.sort_unstable();
            Ok(found)
        })
    }

    /// Returns the maximum number of objects that [`Service::remove_many`] removes in one request.
    fn max_removals_per_request(&self) -> usize {
        1
    }

    /// Removes objects in as few requests as the service allows; skips those that do not exist.
    ///
    /// # Errors
    /// [`ServiceError`]; some objects may be gone then.
    fn remove_many<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            for key in keys {
                self.remove(key).await?;
            }
            Ok(())
        })
    }
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

/// Creates the error for a local file that could not be read.
fn unreadable_file(key: &str, error: &io::Error) -> ServiceError {
    ServiceError::new("write", key, FailureReason::Other, error.to_string())
}
