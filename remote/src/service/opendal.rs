//! Services behind OpenDAL. No module outside of `service` uses OpenDAL.
//!
//! An object store writes an object atomically. A WebDAV server may truncate the final file before
//! the first byte arrives. So each WebDAV write goes to a temporary key first, and a rename follows
//! when it is complete.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    ops::Range,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use opendal::{Entry, Error, ErrorKind, Executor, Metadata, OperationContext, Operator, options};
use snap_core::base::limits;

use super::{
    ConditionalWrites, FailureReason, ListedObject, MultipartUpload, ObjectVersion, Service,
    ServiceError, StoredObject, WriteCondition, check_hash,
    keys::REFS,
    opendal_error::{is_long, service_error},
    parts::{self, OpendalUpload},
    temporary_key, too_long,
    transport::{
        HttpReply, TokioExecutor, Transport, at_most, listing, note_listed_name, with_hashed_file,
    },
    upload_notes::UploadNote,
};

/// The way in which a service creates objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMode {
    /// A write is atomic.
    Direct,
    /// A write may be cut short; a rename is atomic.
    Renamed,
}

/// A service behind an OpenDAL operator.
#[derive(Debug)]
pub struct OpendalService {
    /// The operator, whose root is that of the service. OpenDAL strips the root of an operator from
    /// listed paths without a check, and would panic at another path in a damaged reply.
    operator: Operator,
    /// Prefix of each key: empty, or a folder with a final slash.
    root: String,
    /// The kind of the service, its endpoint, and its bucket.
    bucket: String,
    write_mode: WriteMode,
    /// False if the service ignores conditions, whatever the operator says.
    keeps_conditions: bool,
    /// Maximum number of objects in a listing.
    most_listed: usize,
}

impl OpendalService {
    /// Creates a service that speaks HTTP over `transport`. `endpoint` is the URL that `operator`
    /// was built with; empty for the default one.
    pub fn over_http(operator: Operator, transport: Transport, endpoint: &str) -> Self {
        let info = operator.info();
        let (scheme, name) = (info.scheme(), info.name());
        let bucket = format!("{scheme} {} {name}", endpoint.trim_end_matches('/'));
        let context = OperationContext::new().with_http_transport(transport.into());
        let context = context.with_executor(Executor::with(TokioExecutor));
        Self {
            operator: operator.with_context(context),
            root: String::new(),
            bucket,
            write_mode: WriteMode::Direct,
            keeps_conditions: true,
            most_listed: limits::LISTED_OBJECTS,
        }
    }

    /// Puts all keys below one folder of the service.
    #[must_use]
    pub fn below(self, folder: &str) -> Self {
        let parts = folder.split('/').filter(|part| !part.is_empty());
        Self { root: parts.flat_map(|part| [part, "/"]).collect(), ..self }
    }

    /// Sets the maximum number of objects in a listing.
    #[must_use]
    pub fn listing_at_most(self, most: usize) -> Self {
        Self { most_listed: most, ..self }
    }

    /// Makes writes go through temporary keys, because a write may be cut short.
    #[must_use]
    pub fn with_renamed_writes(self) -> Self {
        Self { write_mode: WriteMode::Renamed, ..self }
    }

    /// Makes the service use no conditions, whatever the operator says.
    #[must_use]
    pub fn without_conditions(self) -> Self {
        Self { keeps_conditions: false, ..self }
    }

    /// Returns the path of a key or a prefix on the service.
    fn path(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }

    /// Returns the key of an entry in the listing of `prefix`, or `None` for the folder itself.
    ///
    /// # Errors
    /// A temporary error if the listing is damaged.
    fn key(&self, prefix: &str, entry: &Entry) -> Result<Option<String>, Error> {
        let path = entry.path();
        if path == "/" || path == self.path(prefix) {
            return Ok(None);
        }
        let damaged = |message| Error::new(ErrorKind::Unexpected, message).set_temporary();
        if path.ends_with('/') && entry.metadata().mode().is_file() {
            return Err(damaged("the listing contains a file with the name of a folder"));
        }
        let key = path.strip_prefix(&self.root).filter(|key| key.starts_with(prefix));
        let outside = "the listing contains a key outside of the requested prefix";
        key.map(|key| Some(key.to_owned())).ok_or_else(|| damaged(outside))
    }

    async fn read_now(
        &self,
        key: &str,
        range: impl std::ops::RangeBounds<u64>,
    ) -> Result<StoredObject, opendal::Error> {
        let options = options::ReaderOptions::default();
        let reader = self.operator.reader_options(&self.path(key), options).await?;
        let buffer = reader.read(range).await?;
        let version = reader.metadata().and_then(version_of);
        let bytes = buffer.to_bytes();
        Ok(StoredObject { bytes, version })
    }
}

impl OpendalService {
    /// Returns the temporary key for a write of `key`, or `None` if the write is in place.
    fn temporary_key(&self, key: &str) -> Option<String> {
        (self.write_mode == WriteMode::Renamed).then(|| temporary_key::of(key)).flatten()
    }

    /// Renames a temporary object to its key, replacing an existing one, or removes it if the
    /// write failed.
    async fn finish_write(
        &self,
        aside: &str,
        key: &str,
        length: u64,
        written: Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        let result = match written {
            Ok(()) => self.rename(aside, key, length).await,
            Err(error) => Err(error),
        };
        let Err(error) = result else { return Ok(()) };
        let _ = self.remove(aside).await;
        // Not every server replaces on rename. An existing object under the name of its hash is as
        // good.
        match temporary_key::is_content_addressed(key)
            && self.length(key).await.is_ok_and(|found| found == Some(length))
        {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Renames a temporary object of this length, then looks up the result: a server may answer
    /// with 201 or 204 although it did nothing, and a proxy with 200 for any request. The writer of
    /// a ref reads the ref back itself.
    async fn rename(&self, aside: &str, key: &str, length: u64) -> Result<(), ServiceError> {
        let (result, reply) =
            HttpReply::of(self.operator.rename(&self.path(aside), &self.path(key))).await;
        result.map_err(|error| {
            refusal_with_status(service_error("write", key, &error, &reply), &reply)
        })?;
        let why = match key.starts_with(REFS) {
            true if reply.status == Some(200) && self.length(aside).await?.is_some() => {
                "but the temporary object still exists"
            }
            false if self.length(key).await? != Some(length) => {
                "but no object of the right length has its new name"
            }
            _ => return Ok(()),
        };
        let message = format!("the service reported a successful rename, {why}");
        Err(ServiceError::new("write", key, FailureReason::Temporary, message))
    }

    async fn write_now(
        &self,
        key: &str,
        bytes: Bytes,
        options: options::WriteOptions,
    ) -> Result<Option<ObjectVersion>, ServiceError> {
        let length = bytes.len() as u64;
        let path = self.path(key);
        let write = self.operator.write_options(&path, bytes, options);
        let (result, reply) = HttpReply::of(write).await;
        let metadata = result.map_err(|error| self.write_error(key, &error, &reply))?;
        self.confirm(key, length, &metadata).await?;
        Ok(version_of(&metadata))
    }

    fn write_error(&self, key: &str, error: &Error, reply: &HttpReply) -> ServiceError {
        let error = service_error("write", key, error, reply);
        match self.write_mode {
            WriteMode::Direct => error,
            WriteMode::Renamed => refusal_with_status(error, reply),
        }
    }

    /// Checks that the service has written an object. A proxy may answer with 200 for any request,
    /// so this looks up the object unless the answer has a version.
    async fn confirm(&self, key: &str, length: u64, answer: &Metadata) -> Result<(), ServiceError> {
        let is_told = self.write_mode == WriteMode::Renamed;
        if is_told || version_of(answer).is_some() || self.length(key).await? == Some(length) {
            return Ok(());
        }
        let message = "the service confirmed the write, but the object does not exist".to_owned();
        Err(ServiceError::new("write", key, FailureReason::Temporary, message))
    }

    async fn write_file_now(
        &self,
        key: &str,
        path: &Path,
        length: u64,
    ) -> Result<blake3::Hash, ServiceError> {
        let to = self.path(key);
        let write = self.operator.write(&to, Bytes::new());
        let write = with_hashed_file(path.to_owned(), 0..length, write);
        let ((result, hash), reply) = HttpReply::of(write).await;
        let metadata = result.map_err(|error| self.write_error(key, &error, &reply))?;
        self.confirm(key, length, &metadata).await?;
        Ok(hash)
    }

    /// Lists all objects below a prefix, or returns `None` if there are more than the limit.
    async fn list_now(&self, prefix: &str) -> Result<Option<Vec<ListedObject>>, Error> {
        let options = options::ListOptions { recursive: true, ..Default::default() };
        let mut entries = self.operator.lister_options(&self.path(prefix), options).await?;
        let (mut listed, mut seen) = (Vec::new(), 0);
        let (mut names, hasher) = (HashSet::new(), RandomState::new());
        while let Some(entry) = entries.next().await {
            let entry = entry?;
            if names.insert(hasher.hash_one(entry.path())) {
                note_listed_name();
            }
            // Folders count as well: a listing of folders alone may be endless.
            seen += 1;
            if seen > self.most_listed {
                return Ok(None);
            }
            // Some servers list a file as the content of a folder with its name.
            if let Some(key) = self.key(prefix, &entry)?
                && entry.metadata().mode().is_file()
            {
                let (metadata, bytes) = (entry.metadata(), entry.metadata().content_length());
                let modified = metadata.last_modified();
                let modified_secs = modified.map(|time| time.into_inner().as_second());
                listed.push(ListedObject { key, bytes, modified_secs });
            }
        }
        Ok(Some(listed))
    }

    async fn peek_now(&self, prefix: &str, most: usize) -> Result<Vec<String>, Error> {
        let options = options::ListOptions { limit: Some(most), ..Default::default() };
        let entries = self.operator.lister_options(&self.path(prefix), options).await?;
        let mut entries = entries.take(most);
        let mut keys = Vec::new();
        while let Some(entry) = entries.next().await {
            note_listed_name();
            // The listing includes the folder itself.
            keys.extend(self.key(prefix, &entry?)?);
        }
        Ok(keys)
    }
}

impl Service for OpendalService {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        Box::pin(async move {
            let (wanted, start) = (range.end - range.start, range.start);
            let (result, reply) = HttpReply::of(at_most(wanted, self.read_now(key, range))).await;
            // A service may answer with 200 if the range is the whole object.
            let is_longer = reply.longer_than.is_some()
                || match &result {
                    Ok(object) => object.bytes.len() as u64 > wanted,
                    Err(error) => is_long(error),
                };
            if reply.status == Some(200) && (start > 0 || is_longer) {
                let reason = FailureReason::RangeIgnored;
                return Err(ServiceError::new("read", key, reason, String::new()));
            }
            let object = result.map_err(|error| service_error("read", key, &error, &reply))?;
            if object.bytes.len() as u64 != wanted {
                let missing = wanted.saturating_sub(object.bytes.len() as u64);
                let message = format!("it ends {missing} B early");
                return Err(ServiceError::new("read", key, FailureReason::Short, message));
            }
            Ok(object)
        })
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        Box::pin(async move {
            let (result, reply) = HttpReply::of(at_most(most, self.read_now(key, ..))).await;
            let object = result.map_err(|error| service_error("read", key, &error, &reply))?;
            match object.bytes.len() as u64 > most {
                true => Err(too_long(key, most)),
                false => Ok(object),
            }
        })
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> BoxFuture<'a, Result<Option<ObjectVersion>, ServiceError>> {
        Box::pin(async move {
            let mut options = options::WriteOptions::default();
            let is_conditional = when != WriteCondition::Always;
            match when {
                WriteCondition::Always => {}
                WriteCondition::Absent => options.if_not_exists = true,
                WriteCondition::Unchanged(version) => {
                    options.if_not_changed = Some(metadata_of(&version))
                }
            }
            let Some(aside) = self.temporary_key(key) else {
                let written = self.write_now(key, bytes, options).await;
                return written.map_err(|error| unconditional(error, is_conditional));
            };
            let length = bytes.len() as u64;
            let written = self.write_now(&aside, bytes, options).await;
            let written = written.map(drop).map_err(|error| of_key(error, key));
            self.finish_write(&aside, key, length, written).await.map(|()| None)
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, ServiceError>> {
        Box::pin(async move {
            let (result, reply) = HttpReply::of(listing(self.list_now(prefix))).await;
            match result {
                Ok(Some(listed)) => Ok(listed),
                Ok(None) => {
                    let message = format!("more than {} objects", self.most_listed);
                    Err(ServiceError::new("list", prefix, FailureReason::TooLong, message))
                }
                // A folder that does not exist contains no objects.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                Err(error) => Err(service_error("list", prefix, &error, &reply)),
            }
        })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        Box::pin(async move {
            let (result, reply) = HttpReply::of(self.operator.stat(&self.path(key))).await;
            match result {
                Ok(metadata) => Ok(Some(metadata.content_length())),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(service_error("stat", key, &error, &reply)),
            }
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let (result, reply) = HttpReply::of(self.operator.delete(&self.path(key))).await;
            result.map_err(|error| service_error("remove", key, &error, &reply))
        })
    }

    fn write_file<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let Some(aside) = self.temporary_key(key) else {
                let hash = self.write_file_now(key, path, length).await?;
                let checked = check_hash(key, hash);
                if checked.is_err() {
                    // Otherwise the next push would trust the name of the wrong pack.
                    let _ = self.operator.delete(&self.path(key)).await;
                }
                return checked;
            };
            let written = self.write_file_now(&aside, path, length).await;
            let written = written.map_err(|error| of_key(error, key));
            let written = written.and_then(|hash| check_hash(key, hash));
            self.finish_write(&aside, key, length, written).await
        })
    }

    fn has_folders(&self) -> bool {
        // Services with renamed writes are WebDAV servers, which have folders.
        self.write_mode == WriteMode::Renamed
    }

    fn upload(&self, key: &str, note: Arc<UploadNote>) -> Option<Box<dyn MultipartUpload>> {
        if !self.operator.info().capability().write_can_multi {
            return None;
        }
        Some(Box::new(OpendalUpload::begin(&self.operator, key, &self.path(key), note)?))
    }

    fn abort_upload<'a>(
        &'a self,
        key: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move { parts::abort(&self.operator, key, &self.path(key), id).await })
    }

    fn list_some<'a>(
        &'a self,
        prefix: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        Box::pin(async move {
            let (result, reply) = HttpReply::of(listing(self.peek_now(prefix, most))).await;
            match result {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                result => result.map_err(|error| service_error("list", prefix, &error, &reply)),
            }
        })
    }

    fn max_removals_per_request(&self) -> usize {
        self.operator.info().capability().delete_max_size.unwrap_or(1).max(1)
    }

    fn remove_many<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let paths: Vec<_> = keys.iter().map(|key| self.path(key)).collect();
            let (result, reply) = HttpReply::of(self.operator.delete_iter(paths)).await;
            let first = keys.first().map_or("", String::as_str);
            result.map_err(|error| service_error("remove", first, &error, &reply))
        })
    }

    fn applies_rate_limits(&self) -> bool {
        true
    }

    fn conditions(&self) -> ConditionalWrites {
        match self.keeps_conditions {
            true => self.takes_conditions(),
            false => ConditionalWrites::NONE,
        }
    }

    fn takes_conditions(&self) -> ConditionalWrites {
        // A condition would apply to the temporary key.
        if self.write_mode == WriteMode::Renamed {
            return ConditionalWrites::NONE;
        }
        let can = self.operator.info().capability();
        let unchanged = can.write_with_if_match || can.write_with_if_version_match;
        ConditionalWrites { absent: can.write_with_if_not_exists, unchanged }
    }

    fn unproven_bucket(&self) -> Option<&str> {
        (self.conditions() != ConditionalWrites::NONE).then_some(&self.bucket)
    }
}

/// Names the status in the refusal of a write by a WebDAV server. Each of these statuses is final,
/// since the write has no condition. Only a locked file may be free later.
fn refusal_with_status(error: ServiceError, reply: &HttpReply) -> ServiceError {
    use FailureReason::{Conflict, Denied, Other, Refused, Unsupported};
    let Some(status @ (403 | 405 | 409 | 412)) = reply.status else { return error };
    let reason = match error.reason {
        Denied => Denied,
        Conflict | Other | Refused => Unsupported,
        _ => return error,
    };
    let refused = format!("the service refused the write with status {status}");
    let message = match error.message.as_str() {
        message if message.is_empty() || message.contains("and no message") => refused,
        message => format!("{refused}: {message}"),
    };
    ServiceError { reason, message, ..error }
}

/// Names the condition in the error if the service does not support it.
fn unconditional(error: ServiceError, is_conditional: bool) -> ServiceError {
    if !is_conditional || error.reason != FailureReason::Unsupported {
        return error;
    }
    ServiceError { message: "conditional writes".to_owned(), ..error }
}

/// Replaces the temporary key in an error by the real one.
fn of_key(error: ServiceError, key: &str) -> ServiceError {
    ServiceError { key: key.to_owned(), ..error }
}

fn version_of(metadata: &Metadata) -> Option<ObjectVersion> {
    let (etag, generation) = (metadata.etag(), metadata.version());
    let version =
        ObjectVersion { etag: etag.map(str::to_owned), generation: generation.map(str::to_owned) };
    (etag.is_some() || generation.is_some()).then_some(version)
}

fn metadata_of(version: &ObjectVersion) -> Metadata {
    let mut builder = opendal::MetadataBuilder::unknown();
    if let Some(etag) = &version.etag {
        builder.etag(etag.as_str());
    }
    if let Some(generation) = &version.generation {
        builder.version(generation.as_str());
    }
    builder.build()
}
