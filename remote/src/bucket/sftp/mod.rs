//! SFTP through an `ssh` child process and its pipes, like sftp(1).
//!
//! If this process is killed, its pipes close and `ssh` exits. No process and no socket remains.
//!
//! An SFTP server truncates a file before the first byte arrives. So the service writes an object
//! under `tmp/`, syncs it, and renames it (see `temporary_key.rs`). SFTP cannot sync a folder.
//! Instead the service syncs the file once more after the rename, which makes the file systems of
//! Linux write the new name.

mod connection;
mod frames;
mod ssh;

use std::{ops::Range, slice::from_ref, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, future, stream};
use openssh_sftp_client::{Error, error::SftpErrorKind, file::File, metadata::MetaData};
use snap_core::base::{limits, time::Time};
use tokio::{
    sync::OnceCell,
    time::{sleep, timeout},
};

use super::{
    Attempt, Body, Bucket, BucketFacts, ConditionalWrites, FailureReason, ListDepth, ListedObject,
    ObjectVersion, ServiceError, StoredObject,
    call::CallContext,
    check_hash,
    keys::REFS,
    temporary_key::{self, ASIDE},
    too_long, too_many, too_short,
    traffic::{RequestKind, Traffic},
};
use connection::{Lease, SftpConnections, SftpFailure};
pub use ssh::{KnownHosts, SshHost};

/// Maximum number of concurrent requests, which share few connections.
const AT_ONCE: usize = 64;

/// Number of folders to list concurrently.
const FOLDERS_AT_ONCE: usize = 16;

/// Seconds without a write after which an object under `tmp/` counts as left by a killed push. A
/// slower push loses at most one attempt.
const STALE_SECS: i64 = 15 * 60;

/// Number of bytes to read of an object before its length is known.
const FIRST_BYTES: u64 = 16 << 10;

/// Timeout for removing a temporary object after a failed write. After the timeout, a later push
/// removes it.
const CLEARING: Duration = Duration::from_secs(5);

/// Maximum memory to reserve for an object in advance, whatever length the server reports.
const RESERVED_BYTES: u64 = 64 << 20;

/// Objects as files on a host.
#[derive(Debug)]
pub struct SftpBucket {
    connections: SftpConnections,
    facts: BucketFacts,
    /// Folder of the location, with `/` at both ends.
    root: String,
    traffic: Arc<Traffic>,
    /// Maximum number of objects in a listing.
    most_listed: usize,
    /// Set once the service has removed the leftovers of killed pushes, before its first write.
    swept: Arc<OnceCell<()>>,
}

/// An error that may still lack the message of the connection.
enum SftpError {
    Service(ServiceError),
    Failed(Error),
}

impl From<Error> for SftpError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ServiceError> for SftpError {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

impl SftpBucket {
    /// Creates a bucket for the absolute path `root` of `host`.
    pub fn new(host: SshHost, root: &str, traffic: Arc<Traffic>) -> Self {
        let root = format!("{}/", root.trim_end_matches('/'));
        let connections = SftpConnections::new(host);
        let facts = BucketFacts {
            max_requests: AT_ONCE,
            has_folders: true,
            is_metered: true,
            ..BucketFacts::new(ConditionalWrites::NONE)
        };
        let (most_listed, swept) = (limits::LISTED_OBJECTS, Arc::default());
        Self { connections, facts, root, traffic, most_listed, swept }
    }

    /// Sets the maximum number of objects in a listing.
    #[must_use]
    pub fn listing_at_most(self, most: usize) -> Self {
        Self { most_listed: most, ..self }
    }

    fn path(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }

    async fn lease(
        &self,
        operation: &'static str,
        key: &str,
        bytes: u64,
    ) -> Result<Lease, ServiceError> {
        let leased = self.connections.lease(bytes).await;
        leased.map_err(|failure| service_error(operation, key, failure))
    }

    /// Adds the message of the connection to an error.
    async fn with_ssh_message(
        &self,
        operation: &'static str,
        key: &str,
        lease: &Lease,
        problem: SftpError,
    ) -> ServiceError {
        match problem {
            SftpError::Service(error) => error,
            SftpError::Failed(error) => {
                service_error(operation, key, lease.request_error(error).await)
            }
        }
    }

    /// Reads a range of an open file, or fewer bytes at the end of the file.
    async fn read_range(
        &self,
        lease: &Lease,
        file: &File,
        range: Range<u64>,
    ) -> Result<BytesMut, Error> {
        let pace = CallContext::now().limits;
        let step = pace.as_ref().and_then(|pace| pace.down.piece()).unwrap_or(u64::MAX);
        let step = step.min(lease.piece());
        let length = range.end - range.start;
        let mut room = BytesMut::with_capacity(length.min(RESERVED_BYTES) as usize);
        let pieces = (range.start..range.end).step_by(step as usize).map(|at| {
            let length = step.min(range.end - at) as usize;
            // All pieces share one allocation, so that `unsplit` joins them without a copy.
            let rest = room.split_off(length.min(room.capacity()));
            (at, length, std::mem::replace(&mut room, rest))
        });
        let pieces = stream::iter(pieces).map(|(at, length, buffer)| {
            let (file, pace) = (file.clone(), pace.clone());
            async move {
                let bytes = lease.read_piece(file, at, length, buffer).await?;
                self.traffic.received(bytes.len() as u64);
                if let Some(pace) = pace {
                    pace.down.take(bytes.len() as u64).await;
                }
                Ok::<_, Error>((bytes, length))
            }
        });
        let mut pieces = pieces.buffered(lease.pieces_at_once());
        let mut found = BytesMut::new();
        while let Some((bytes, length)) = pieces.try_next().await? {
            let is_short = bytes.len() < length;
            found.unsplit(bytes);
            if is_short {
                break;
            }
        }
        Ok(found)
    }

    async fn read_now(&self, key: &str, range: Range<u64>) -> Result<Bytes, ServiceError> {
        self.traffic.request(RequestKind::Get);
        let lease = self.lease("read", key, range.end - range.start).await?;
        let read = async {
            let file = lease.sftp().open(self.path(key)).await?;
            self.read_range(&lease, &file, range.clone()).await
        };
        let bytes = match read.await {
            Ok(bytes) => bytes,
            Err(error) => {
                return Err(self.with_ssh_message("read", key, &lease, error.into()).await);
            }
        };
        let missing = (range.end - range.start) - bytes.len() as u64;
        match missing {
            0 => Ok(bytes.freeze()),
            _ => Err(too_short(key, missing)),
        }
    }

    /// Reads a small object, or returns `Err` with the length of a larger one. Takes the length
    /// from the open file, because another client may replace a ref in the meantime.
    async fn read_small(
        &self,
        lease: &Lease,
        key: &str,
        most: u64,
    ) -> Result<Result<BytesMut, u64>, SftpError> {
        let file = lease.sftp().open(self.path(key)).await?;
        let mut looked_at = file.clone();
        let first = FIRST_BYTES.min(most.saturating_add(1));
        let first = self.read_range(lease, &file, 0..first);
        let (metadata, first) = future::join(looked_at.metadata(), first).await;
        let metadata = metadata?;
        if is_folder(&metadata) {
            let what = if key.starts_with(REFS) {
                FailureReason::NotFound
            } else {
                FailureReason::NotAFile
            };
            return Err(ServiceError::new("read", key, what, String::new()).into());
        }
        let mut bytes = first?;
        let length = metadata.len().unwrap_or(bytes.len() as u64);
        if length > most {
            return Err(too_long(key, most).into());
        }
        if length <= bytes.len() as u64 {
            bytes.truncate(length as usize);
            return Ok(Ok(bytes));
        }
        if !SftpConnections::is_small(length) {
            return Ok(Err(length));
        }
        let at = bytes.len() as u64;
        bytes.unsplit(self.read_range(lease, &file, at..length).await?);
        if (bytes.len() as u64) < length {
            return Err(too_short(key, length - bytes.len() as u64).into());
        }
        Ok(Ok(bytes))
    }

    /// Creates a folder of the location and its parents.
    async fn make_folders(&self, lease: &Lease, folder: &str) -> Result<(), SftpError> {
        let mut fs = lease.sftp().fs();
        let mut missing = vec![folder];
        while let Some(folder) = missing.last().copied() {
            match fs.create_dir(folder).await {
                Ok(()) => drop(missing.pop()),
                Err(error) if is_missing(&error) => match folder.rsplit_once('/') {
                    Some((above, _)) if !above.is_empty() => missing.push(above),
                    _ => return Err(error.into()),
                },
                // The folder usually exists already, because another client has created it.
                Err(error) => match fs.metadata(folder).await {
                    Ok(metadata) if is_folder(&metadata) => drop(missing.pop()),
                    Ok(_) => {
                        let why = format!("`{folder}` on the server is not a folder");
                        return Err(
                            ServiceError::new("write", "", FailureReason::Refused, why).into()
                        );
                    }
                    Err(_) => return Err(error.into()),
                },
            }
        }
        Ok(())
    }

    async fn make_folder_of(&self, lease: &Lease, key: &str) -> Result<(), SftpError> {
        let path = self.path(key);
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.make_folders(lease, folder).await
    }

    /// Opens a file for writing and truncates it.
    async fn create(&self, lease: &Lease, key: &str) -> Result<File, SftpError> {
        let path = self.path(key);
        match lease.sftp().create(&path).await {
            Err(error) if is_missing(&error) => {
                self.make_folder_of(lease, key).await?;
                Ok(lease.sftp().create(&path).await?)
            }
            created => Ok(created?),
        }
    }

    /// Writes a body to an open file. Returns the hash of the bytes of a file.
    async fn send(
        &self,
        lease: &Lease,
        file: &File,
        key: &str,
        body: &Body,
    ) -> Result<blake3::Hash, SftpError> {
        let pace = &CallContext::now().limits;
        let step = pace.as_ref().and_then(|pace| pace.up.piece()).unwrap_or(u64::MAX);
        let step = step.min(lease.piece());
        let length = body.length();
        let mut hasher = blake3::Hasher::new();
        let hashed = &mut hasher;
        let pieces =
            stream::iter((0..length).step_by(step as usize)).then(|at| {
                let (body, key) = (body.clone(), key.to_owned());
                async move {
                    Ok::<_, SftpError>((at, body.read(&key, at..length.min(at + step)).await?))
                }
            });
        let is_hashed = matches!(body, Body::File(..));
        let pieces = pieces.inspect_ok(move |(_, bytes)| {
            if is_hashed {
                hashed.update(bytes);
            }
        });
        let writes = pieces.map_ok(|(at, bytes)| {
            let file = file.clone();
            async move {
                if let Some(pace) = pace {
                    pace.up.take(bytes.len() as u64).await;
                }
                self.traffic.sent(bytes.len() as u64);
                Ok(lease.write_piece(file, at, bytes).await?)
            }
        });
        writes.try_buffer_unordered(lease.pieces_at_once()).try_collect::<()>().await?;
        Ok(hasher.finalize())
    }

    /// Writes a body under a key and syncs it. Returns the hash of the bytes of a file.
    async fn put(&self, lease: &Lease, key: &str, body: &Body) -> Result<blake3::Hash, SftpError> {
        let mut file = self.create(lease, key).await?;
        let hash = self.send(lease, &file, key, body).await?;
        // A claim is worthless after a power cut, so do not sync it.
        if !temporary_key::is_claim(key) {
            self.sync(lease, &mut file).await?;
        }
        file.close().await?;
        Ok(hash)
    }

    async fn sync(&self, lease: &Lease, file: &mut File) -> Result<(), Error> {
        use SftpErrorKind::{BadMessage, OpUnsupported};
        if !lease.sftp().support_fsync() {
            return Ok(());
        }
        match file.sync_all().await {
            // File systems that cannot sync report one of these errors.
            Err(Error::SftpError(OpUnsupported | BadMessage, _)) => Ok(()),
            synced => synced,
        }
    }

    /// Renames a temporary object to its key. If a server without `posix-rename` refuses to replace
    /// an object, the old object stays. To remove the old object first could lose a ref if the
    /// connection breaks in between.
    async fn rename(&self, lease: &Lease, aside: &str, key: &str) -> Result<(), SftpError> {
        self.traffic.request(RequestKind::Post);
        let (from, to) = (self.path(aside), self.path(key));
        let mut fs = lease.sftp().fs();
        let renamed = match fs.rename(&from, &to).await {
            Err(error) if is_missing(&error) => {
                self.make_folder_of(lease, key).await?;
                fs.rename(&from, &to).await
            }
            renamed => renamed,
        };
        match renamed {
            Err(error) if is_missing(&error) => {
                let why = "the temporary file was removed during the upload".to_owned();
                return Err(ServiceError::new("write", key, FailureReason::Temporary, why).into());
            }
            Err(error @ Error::SftpError(..)) => {
                let is_folder = fs.metadata(&to).await.is_ok_and(|there| is_folder(&there));
                if !is_folder {
                    return Err(error.into());
                }
                let why = "the server has a folder with this name".to_owned();
                return Err(ServiceError::new("write", key, FailureReason::Refused, why).into());
            }
            renamed => renamed?,
        }
        if !lease.sftp().support_fsync() {
            return Ok(());
        }
        match lease.sftp().options().write(true).open(&to).await {
            Ok(mut file) => Ok(self.sync(lease, &mut file).await?),
            // The object exists, but this user may not write to it, or another client has removed
            // it.
            Err(Error::SftpError(..)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn write_now(&self, key: &str, body: Body) -> Result<(), ServiceError> {
        self.traffic.request(RequestKind::Put);
        let length = body.length();
        let lease = self.lease("write", key, length).await?;
        let swept = self.swept.get_or_try_init(|| async {
            match self.sweep(&lease).await {
                // A folder that cannot be listed may still be writable.
                Ok(()) | Err(Error::SftpError(..)) => Ok(()),
                Err(error) => Err(error),
            }
        });
        if let Err(error) = swept.await {
            return Err(self.with_ssh_message("open the store", "", &lease, error.into()).await);
        }
        let Some(aside) = temporary_key::of(key) else {
            let written = self.put(&lease, key, &body).await;
            return match written {
                Ok(_) => Ok(()),
                Err(problem) => Err(self.with_ssh_message("write", key, &lease, problem).await),
            };
        };
        let write = async {
            let hash = self.put(&lease, &aside, &body).await?;
            if let Body::File(..) = body {
                check_hash(key, hash)?;
            }
            self.rename(&lease, &aside, key).await
        };
        let Err(problem) = write.await else { return Ok(()) };
        let error = self.with_ssh_message("write", key, &lease, problem).await;
        let error = ServiceError { key: key.to_owned(), ..error };
        let _removed = timeout(CLEARING, self.clear(&aside)).await;
        // Not every server replaces on rename. An existing object under the name of its hash is as
        // good.
        let is_there = temporary_key::is_content_addressed(key)
            && error.reason != FailureReason::Damaged
            && self.head(key).await.is_ok_and(|found| found == Some(length));
        if is_there { Ok(()) } else { Err(error) }
    }

    /// Removes a temporary object after a failed write. Retries, because all connections may have
    /// broken at once, and the first request on each fails then.
    async fn clear(&self, aside: &String) {
        while let Err(error) = self.delete(from_ref(aside)).await
            && error.reason == FailureReason::Temporary
        {
            sleep(CLEARING / 20).await;
        }
    }

    /// Lists at most `most` entries of a folder, or none if it does not exist.
    async fn list_folder(
        &self,
        lease: &Lease,
        prefix: &str,
        most: usize,
    ) -> Result<Vec<(String, MetaData)>, Error> {
        let mut fs = lease.sftp().fs();
        let folder = match fs.open_dir(self.path(prefix)).await {
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut entries = Box::pin(folder.read_dir());
        let mut found = Vec::new();
        while found.len() < most {
            let Some(entry) = entries.try_next().await? else { break };
            // A name that is not UTF-8 or not a plain name cannot be an object of a store.
            let name = entry.filename().to_str().filter(|name| !name.contains('/'));
            let Some(name) = name.filter(|name| !["", ".", ".."].contains(name)) else { continue };
            found.push((format!("{prefix}{name}"), entry.metadata()));
        }
        Ok(found)
    }

    /// Lists the objects below a prefix, or returns `None` if there are more than the limit.
    async fn list_now(
        &self,
        lease: &Lease,
        prefix: &str,
        depth: ListDepth,
    ) -> Result<Option<Vec<ListedObject>>, Error> {
        if let ListDepth::Level(most) = depth {
            let found = self.list_folder(lease, prefix, most).await?;
            let listed = found.into_iter().map(|(mut key, metadata)| {
                key.extend(is_folder(&metadata).then_some('/'));
                listed(key, &metadata)
            });
            return Ok(Some(listed.collect()));
        }
        let (mut all, mut seen) = (Vec::new(), 0);
        let mut waiting = vec![prefix.to_owned()];
        while !waiting.is_empty() {
            let most = self.most_listed + 1;
            let look = async |folder: String| self.list_folder(lease, &folder, most).await;
            let looks = stream::iter(std::mem::take(&mut waiting)).map(look);
            let mut looks = looks.buffer_unordered(FOLDERS_AT_ONCE);
            while let Some(found) = looks.try_next().await? {
                // Folders count as well: a listing of folders alone may be endless.
                seen += found.len();
                if seen > self.most_listed {
                    return Ok(None);
                }
                for (key, metadata) in found {
                    if is_folder(&metadata) {
                        waiting.push(format!("{key}/"));
                    } else if is_file(&metadata) {
                        all.push(listed(key, &metadata));
                    }
                }
            }
        }
        Ok(Some(all))
    }

    /// Removes temporary objects of killed pushes.
    async fn sweep(&self, lease: &Lease) -> Result<(), Error> {
        let stale = Time::now().secs - STALE_SECS;
        let is_stale = |metadata: &MetaData| {
            is_file(metadata) && modified_secs(metadata).is_some_and(|at| at < stale)
        };
        for (key, metadata) in self.list_folder(lease, ASIDE, self.most_listed).await? {
            if temporary_key::is_temporary(&key) && is_stale(&metadata) {
                self.traffic.request(RequestKind::Delete);
                match lease.sftp().fs().remove_file(self.path(&key)).await {
                    // The file belongs to another user, or another client removed it first.
                    Ok(()) | Err(Error::SftpError(..)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Bucket for SftpBucket {
    fn facts(&self) -> &BucketFacts {
        &self.facts
    }

    fn get<'a>(&'a self, key: &'a str, most: u64) -> Attempt<'a, StoredObject> {
        Box::pin(async move {
            self.traffic.request(RequestKind::Get);
            let lease = self.lease("read", key, 0).await?;
            let bytes = match self.read_small(&lease, key, most).await {
                Ok(Ok(bytes)) => bytes.freeze(),
                Ok(Err(length)) => self.read_now(key, 0..length).await?,
                Err(problem) => {
                    return Err(self.with_ssh_message("read", key, &lease, problem).await);
                }
            };
            Ok(StoredObject { bytes, version: None })
        })
    }

    fn get_range<'a>(&'a self, key: &'a str, range: Range<u64>) -> Attempt<'a, Bytes> {
        Box::pin(self.read_now(key, range))
    }

    fn put<'a>(&'a self, key: &'a str, body: Body) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(async move { self.write_now(key, body).await.map(|()| None) })
    }

    fn delete<'a>(&'a self, keys: &'a [String]) -> Attempt<'a, ()> {
        Box::pin(async move {
            for key in keys {
                self.traffic.request(RequestKind::Delete);
                let lease = self.lease("remove", key, 0).await?;
                match lease.sftp().fs().remove_file(self.path(key)).await {
                    Err(error) if !is_missing(&error) => {
                        let error = error.into();
                        return Err(self.with_ssh_message("remove", key, &lease, error).await);
                    }
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, depth: ListDepth) -> Attempt<'a, Vec<ListedObject>> {
        Box::pin(async move {
            self.traffic.request(RequestKind::List);
            let lease = self.lease("list", prefix, 0).await?;
            match self.list_now(&lease, prefix, depth).await {
                Ok(listed) => listed.ok_or_else(|| too_many(prefix, self.most_listed)),
                Err(error) => {
                    Err(self.with_ssh_message("list", prefix, &lease, error.into()).await)
                }
            }
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> Attempt<'a, Option<u64>> {
        Box::pin(async move {
            self.traffic.request(RequestKind::Head);
            let lease = self.lease("stat", key, 0).await?;
            match lease.sftp().fs().metadata(self.path(key)).await {
                Ok(metadata) if is_file(&metadata) => Ok(Some(metadata.len().unwrap_or(0))),
                Ok(_) => Ok(None),
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(self.with_ssh_message("stat", key, &lease, error.into()).await),
            }
        })
    }
}

fn service_error(operation: &'static str, key: &str, failure: SftpFailure) -> ServiceError {
    ServiceError::new(operation, key, failure.reason, failure.message)
}

fn listed(key: String, metadata: &MetaData) -> ListedObject {
    let (bytes, modified_secs) = (metadata.len().unwrap_or(0), modified_secs(metadata));
    ListedObject { key, bytes, modified_secs }
}

fn modified_secs(metadata: &MetaData) -> Option<i64> {
    metadata.modified().map(|at| i64::from(at.into_raw()))
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::SftpError(SftpErrorKind::NoSuchFile, _))
}

fn is_folder(metadata: &MetaData) -> bool {
    metadata.file_type().is_some_and(|kind| kind.is_dir())
}

/// Returns true for a file, and if the server does not report the kind.
fn is_file(metadata: &MetaData) -> bool {
    metadata.file_type().is_none_or(|kind| kind.is_file())
}
