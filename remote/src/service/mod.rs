//! Objects by key, wherever they lie: one trait of our own, behind which
//! OpenDAL stays.
//!
//! Each call of [`Service`] is one attempt. Whoever wants more than that
//! asks a [`client::Client`], which retries, waits its turn and counts.

pub mod client;
mod error;
pub mod folder;
mod gauge;
pub mod keys;
pub mod local_store;
pub mod memory;
pub mod open;
pub mod opendal;
mod refusal;
pub mod snap_server;
mod stop;
mod throttle;
pub mod traffic;
pub mod transport;
mod upload;
pub mod waits;

use std::{collections::BTreeSet, fmt::Debug, io, ops::Range, path::Path};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use snap_core::{
    base::id::{CommitId, PackId},
    repo::ref_name::RefName,
};

pub use error::{ServiceError, What};
pub use stop::Stop;
pub(crate) use stop::shielded;
pub use upload::{Arrived, Progress, Resume, Upload};

/// Keys of a folder that are looked at for stores in it.
const FOLDER_KEYS: usize = 5000;

/// Folders that are looked into at once.
const FOLDERS_AT_ONCE: usize = 16;

/// What says whether an object is still what it was: an ETag, a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its ETag, quotes included.
    pub etag: Option<String>,
    /// Its generation, where the service counts them.
    pub generation: Option<String>,
}

/// An object as it was read.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its bytes, or those of the range that was asked for.
    pub bytes: Bytes,
    /// Its version, where the service has such a thing.
    pub version: Option<Version>,
}

/// An object as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key, from the root of the location.
    pub key: String,
    /// Its length.
    pub bytes: u64,
}

/// Full names of refs, and where they stand.
pub type Standings = Vec<(String, CommitId)>;

/// On what condition an object is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Whatever is there.
    Always,
    /// Nothing is there.
    Absent,
    /// What is there has this version.
    Unchanged(Version),
}

/// Which conditions a service keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// [`When::Absent`].
    pub absent: bool,
    /// [`When::Unchanged`].
    pub unchanged: bool,
}

impl Conditions {
    /// None of them.
    pub const NONE: Self = Self { absent: false, unchanged: false };
}

/// Objects by key. Keys are relative to the root of the location, with `/`
/// between their parts; none begins with one or has a part `..`.
pub trait Service: Debug + Send + Sync + 'static {
    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`What::NotFound`], and [`What::Short`] when it ends before the range.
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Object, ServiceError>>;

    /// Reads all of an object, of which no more than `most` bytes are held
    /// however much comes.
    ///
    /// # Errors
    /// [`What::NotFound`], and [`What::TooLong`] when it is longer.
    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<Object, ServiceError>>;

    /// Writes an object, whole or not at all.
    ///
    /// # Errors
    /// [`What::Conflict`] when the condition does not hold.
    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: When,
    ) -> BoxFuture<'a, Result<Option<Version>, ServiceError>>;

    /// Lists all objects whose keys begin with `prefix`, which ends with `/`
    /// or is empty.
    ///
    /// # Errors
    /// [`ServiceError`]; a prefix of which there is nothing is an empty list.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, ServiceError>>;

    /// Length of an object; `None` when there is none.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>>;

    /// Removes an object, if there is one.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>>;

    /// Which conditions it keeps to.
    fn conditions(&self) -> Conditions;

    /// Which conditions can go along with a write, whether or not it keeps to them.
    fn takes_conditions(&self) -> Conditions {
        self.conditions()
    }

    /// Whether it may claim to keep to conditions and not do so: others wrote it.
    fn must_prove_conditions(&self) -> bool;

    /// How many requests it bears at a time, if that is known beforehand.
    fn at_once(&self) -> usize {
        usize::MAX
    }

    /// Whether it refuses by itself a ref that would be a folder of another one, or lie
    /// below it.
    fn keeps_names_apart(&self) -> bool {
        false
    }

    /// Whether a key with `/` in it stands for a file in a folder, so that no object can
    /// be called like the folder of another one.
    fn has_folders(&self) -> bool {
        false
    }

    /// Whether a store must be made before anything else is written to it.
    fn is_made_first(&self) -> bool {
        false
    }

    /// Whether it sees to the files of its index itself: nobody merges them.
    fn keeps_index(&self) -> bool {
        false
    }

    /// The folder of a store on this machine that commits go to, if it is one. Nothing
    /// keeps a request to it waiting but its work.
    fn local_store(&self) -> Option<&Path> {
        None
    }

    /// Makes ready to take a push, before it asks anything. What a push that was
    /// killed has left half done is finished.
    ///
    /// # Errors
    /// [`ServiceError`] when nothing can be pushed there.
    fn begin_push(&self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async { Ok(()) })
    }

    /// Full names of all refs, and where they stand, where it says so in one
    /// answer.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn standings(&self) -> BoxFuture<'_, Result<Option<Standings>, ServiceError>> {
        Box::pin(async { Ok(None) })
    }

    /// Whether its bodies keep to the limits of a client by themselves.
    fn keeps_pace(&self) -> bool {
        false
    }

    /// Writes the first `length` bytes of a file as an object, whole or not at
    /// all, whatever is there. A pack is hashed as it is sent.
    ///
    /// # Errors
    /// [`What::Damaged`] when it does not hash to its name; it is not there then.
    fn write_file<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let bytes = upload::read_part(path, 0..length).await;
            let bytes = bytes.map_err(|error| unread(key, &error))?;
            check_hash(key, blake3::hash(&bytes))?;
            self.write(key, bytes.into(), When::Always).await.map(drop)
        })
    }

    /// Begins to write an object in parts; `None` where the service knows none.
    /// Nothing is asked yet.
    fn upload(&self, _key: &str) -> Option<Box<dyn Upload>> {
        None
    }

    /// How a file of that length goes on where it broke off; `None` where the
    /// service knows no such thing, or it is not worth it. Nothing is asked yet.
    fn resuming(&self, _key: &str, _length: u64) -> Option<&dyn Resume> {
        None
    }

    /// Lists some of the keys that begin with `prefix`, which ends with `/` or
    /// is empty: at most `most`, folders among them.
    ///
    /// # Errors
    /// [`ServiceError`]; a prefix of which there is nothing is an empty list.
    fn peek<'a>(
        &'a self,
        prefix: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        Box::pin(async move {
            let listed = self.list(prefix).await?;
            Ok(listed.into_iter().take(most).map(|object| object.key).collect())
        })
    }

    /// Paths of the stores below the root, at most so many folders deep; the
    /// empty one is the root itself, which then is the only one.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn stores(&self, levels: usize) -> BoxFuture<'_, Result<Vec<String>, ServiceError>> {
        Box::pin(async move {
            let (mut found, mut waiting) = (Vec::new(), vec![String::new()]);
            for level in 0..=levels {
                let prefixes = std::mem::take(&mut waiting);
                let look = async |prefix: String| {
                    let keys = self.peek(&prefix, FOLDER_KEYS).await?;
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

    /// Objects that [`Service::remove_many`] removes in one request.
    fn removed_at_once(&self) -> usize {
        1
    }

    /// Removes objects, as far as they are there, in as few requests as the
    /// service allows.
    ///
    /// # Errors
    /// [`ServiceError`]; some may then be removed.
    fn remove_many<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            for key in keys {
                self.remove(key).await?;
            }
            Ok(())
        })
    }
}

/// An object is longer than it can be.
fn too_long(key: &str, most: u64) -> ServiceError {
    ServiceError::new("read", key, What::TooLong, format!("more than {most} B"))
}

/// Checks that the bytes of a pack that are written under `key` hash to its name. What
/// lies under other keys has no such name.
fn check_hash(key: &str, hash: blake3::Hash) -> Result<(), ServiceError> {
    let id = key.strip_prefix(keys::OBJECTS).and_then(|name| name.parse::<PackId>().ok());
    match id.is_none_or(|id| id.as_bytes() == hash.as_bytes()) {
        true => Ok(()),
        false => {
            let why = format!("it hashes to {}", hash.to_hex());
            Err(ServiceError::new("write", key, What::Damaged, why))
        }
    }
}

/// A ref cannot be beside another one, of which it would be a folder or in which it
/// would lie.
pub(crate) fn beside(name: &RefName, other: &RefName) -> ServiceError {
    let short = |name: &RefName| format!("{}/{}", name.kind().folder(), name.short());
    let why = format!("`{}` cannot be beside `{}`", short(name), short(other));
    ServiceError::new("write", &name.to_string(), What::Refused, why)
}

/// A file here that was to be written there could not be read.
fn unread(key: &str, error: &io::Error) -> ServiceError {
    ServiceError::new("write", key, What::Other, error.to_string())
}
