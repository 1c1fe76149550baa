//! Buckets and shares behind OpenDAL. No module outside of `bucket` reads or writes through OpenDAL.
//!
//! An object store writes an object atomically. A WebDAV server may truncate the final file before
//! the first byte arrives. So each WebDAV write goes to a temporary key first, and a rename follows
//! when it is complete.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    ops::{Range, RangeBounds},
    slice::from_ref,
    sync::Arc,
};

use bytes::Bytes;
use futures::StreamExt;
use opendal::{Entry, Error, ErrorKind, Executor, Metadata, OperationContext, Operator, options};
use snap_core::base::limits;

use super::{
    Attempt, Body, Bucket, BucketFacts, ConditionalWrites, FailureReason, ListDepth, ListedObject,
    MultipartUpload, ObjectVersion, ServiceError, StoredObject, WriteCondition,
    call::{CallContext, HttpReply, SentFile, TokioExecutor, call},
    check_hash,
    keys::REFS,
    no_conditions,
    opendal_error::{is_long, service_error},
    parts::{self, OpendalUpload},
    temporary_key, too_long, too_many, too_short,
    transport::Transport,
    upload_notes::UploadNote,
};

/// A bucket or share behind an OpenDAL operator.
#[derive(Debug)]
pub struct OpendalBucket {
    /// The operator, whose root is that of the service. OpenDAL strips the root of an operator from
    /// listed paths without a check, and would panic at another path in a damaged reply.
    operator: Operator,
    /// Prefix of each key: empty, or a folder with a final slash.
    root: String,
    facts: BucketFacts,
    /// True if a write may be cut short but a rename is atomic; false if writes are atomic.
    renames: bool,
    /// Maximum number of objects in a listing.
    most_listed: usize,
}

impl OpendalBucket {
    /// Creates a bucket that speaks HTTP over `transport`. `endpoint` is the URL that `operator` was
    /// built with; empty for the default one.
    pub fn over_http(operator: Operator, transport: Transport, endpoint: &str) -> Self {
        let info = operator.info();
        let (scheme, name, can) = (info.scheme(), info.name(), info.capability());
        let conditions = ConditionalWrites {
            absent: can.write_with_if_not_exists,
            unchanged: can.write_with_if_match || can.write_with_if_version_match,
        };
        let bucket = format!("{scheme} {} {name}", endpoint.trim_end_matches('/'));
        let facts = BucketFacts {
            unproven_bucket: (conditions != ConditionalWrites::NONE).then_some(bucket),
            max_deletions: can.delete_max_size.unwrap_or(1).max(1),
            is_metered: true,
            ..BucketFacts::new(conditions)
        };
        let context = OperationContext::new().with_http_transport(transport.into());
        let context = context.with_executor(Executor::with(TokioExecutor));
        Self {
            operator: operator.with_context(context),
            root: String::new(),
            facts,
            renames: false,
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

    /// Makes writes go through temporary keys, because a write may be cut short: for WebDAV servers,
    /// which have folders. A condition would apply to the temporary key, so writes have none.
    #[must_use]
    pub fn with_renamed_writes(self) -> Self {
        let takes_conditions = ConditionalWrites::NONE;
        let facts = BucketFacts { takes_conditions, has_folders: true, ..self.facts };
        Self { renames: true, facts, ..self }.without_conditions()
    }

    /// Makes the bucket report no conditions, whatever the operator says.
    #[must_use]
    pub fn without_conditions(self) -> Self {
        let conditions = ConditionalWrites::NONE;
        Self { facts: BucketFacts { conditions, unproven_bucket: None, ..self.facts }, ..self }
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
        range: impl RangeBounds<u64>,
    ) -> Result<StoredObject, Error> {
        let options = options::ReaderOptions::default();
        let reader = self.operator.reader_options(&self.path(key), options).await?;
        let buffer = reader.read(range).await?;
        let version = reader.metadata().and_then(version_of);
        let bytes = buffer.to_bytes();
        Ok(StoredObject { bytes, version })
    }

    /// Renames a temporary object to its key, replacing an existing one, or removes it if the
    /// write failed.
    async fn finish_write(
        &self,
        aside: &String,
        key: &str,
        length: u64,
        written: Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        let result = match written {
            Ok(()) => self.rename(aside, key, length).await,
            Err(error) => Err(error),
        };
        let Err(error) = result else { return Ok(()) };
        let _ = self.delete(from_ref(aside)).await;
        // Not every server replaces on rename. An existing object under the name of its hash is as
        // good.
        match temporary_key::is_content_addressed(key)
            && self.head(key).await.is_ok_and(|found| found == Some(length))
        {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Renames a temporary object of this length, then looks up the result: a server may answer
    /// with 201 or 204 although it did nothing, and a proxy with 200 for any request. The writer of
    /// a ref reads the ref back itself.
    async fn rename(&self, aside: &str, key: &str, length: u64) -> Result<(), ServiceError> {
        let (from, to) = (self.path(aside), self.path(key));
        let (result, reply) = call(|_| (), self.operator.rename(&from, &to)).await;
        result.map_err(|error| {
            refusal_with_status(service_error("write", key, &error, &reply), &reply)
        })?;
        let why = match key.starts_with(REFS) {
            true if reply.status == Some(200) && self.head(aside).await?.is_some() => {
                "but the temporary object still exists"
            }
            false if self.head(key).await? != Some(length) => {
                "but no object of the right length has its new name"
            }
            _ => return Ok(()),
        };
        let message = format!("the service reported a successful rename, {why}");
        Err(ServiceError::new("write", key, FailureReason::Temporary, message))
    }

    /// Writes an object in place.
    async fn write_now(
        &self,
        key: &str,
        body: Body,
        options: options::WriteOptions,
    ) -> Result<(Option<ObjectVersion>, Option<blake3::Hash>), ServiceError> {
        let (length, path) = (body.length(), self.path(key));
        let (bytes, file) = match body {
            Body::Bytes(bytes) => (bytes, None),
            Body::File(path, length) => (Bytes::new(), Some(SentFile::new(&path, 0..length))),
        };
        let write = self.operator.write_options(&path, bytes, options);
        let (result, reply) = call(|context| context.file.clone_from(&file), write).await;
        let metadata = result.map_err(|error| {
            let error = service_error("write", key, &error, &reply);
            if self.renames { refusal_with_status(error, &reply) } else { error }
        })?;
        self.confirm(key, length, &metadata).await?;
        Ok((version_of(&metadata), file.map(|file| file.hash())))
    }

    /// Writes an object atomically.
    async fn write(
        &self,
        key: &str,
        body: Body,
        when: WriteCondition,
    ) -> Result<Option<ObjectVersion>, ServiceError> {
        let mut options = options::WriteOptions::default();
        match &when {
            WriteCondition::Always => {}
            WriteCondition::Absent => options.if_not_exists = true,
            WriteCondition::Unchanged(version) => {
                options.if_not_changed = Some(metadata_of(version));
            }
        }
        let (length, is_conditional) = (body.length(), when != WriteCondition::Always);
        let checked = |hash: Option<_>| hash.map_or(Ok(()), |hash| check_hash(key, hash));
        let Some(aside) = self.renames.then(|| temporary_key::of(key)).flatten() else {
            let (version, hash) = match self.write_now(key, body, options).await {
                Err(error) if is_conditional && error.reason == FailureReason::Unsupported => {
                    return Err(ServiceError { message: no_conditions(key).message, ..error });
                }
                written => written?,
            };
            let checked = checked(hash);
            if checked.is_err() {
                // Otherwise the next push would trust the name of the wrong pack.
                let _ = self.operator.delete(&self.path(key)).await;
            }
            return checked.map(|()| version);
        };
        let written = self.write_now(&aside, body, options).await;
        let written = written.map_err(|error| ServiceError { key: key.to_owned(), ..error });
        let written = written.and_then(|(_, hash)| checked(hash));
        self.finish_write(&aside, key, length, written).await.map(|()| None)
    }

    /// Checks that the service has written an object. A proxy may answer with 200 for any request,
    /// so this looks up the object unless the answer has a version.
    async fn confirm(&self, key: &str, length: u64, answer: &Metadata) -> Result<(), ServiceError> {
        if self.renames || version_of(answer).is_some() || self.head(key).await? == Some(length) {
            return Ok(());
        }
        let message = "the service confirmed the write, but the object does not exist".to_owned();
        Err(ServiceError::new("write", key, FailureReason::Temporary, message))
    }

    /// Lists the objects below a prefix, or returns `None` if there are more than the limit.
    async fn list_now(
        &self,
        prefix: &str,
        depth: ListDepth,
    ) -> Result<Option<Vec<ListedObject>>, Error> {
        let limit = match depth {
            ListDepth::All => None,
            ListDepth::Level(most) => Some(most),
        };
        let options =
            options::ListOptions { recursive: limit.is_none(), limit, ..Default::default() };
        let mut entries = self.operator.lister_options(&self.path(prefix), options).await?;
        let (mut listed, mut seen) = (Vec::new(), 0);
        let (mut names, hasher) = (HashSet::new(), RandomState::new());
        while limit.is_none_or(|most| listed.len() < most)
            && let Some(entry) = entries.next().await
        {
            let entry = entry?;
            if names.insert(hasher.hash_one(entry.path())) {
                CallContext::note_listed_name();
            }
            // Folders count as well: a listing of folders alone may be endless.
            seen += 1;
            if seen > self.most_listed {
                return Ok(None);
            }
            // Some servers list a file as the content of a folder with its name, and the listing
            // includes the folder itself.
            if let Some(key) = self.key(prefix, &entry)?
                && (limit.is_some() || entry.metadata().mode().is_file())
            {
                let (metadata, bytes) = (entry.metadata(), entry.metadata().content_length());
                let modified = metadata.last_modified();
                let modified_secs = modified.map(|time| time.into_inner().as_second());
                listed.push(ListedObject { key, bytes, modified_secs });
            }
        }
        Ok(Some(listed))
    }
}

impl Bucket for OpendalBucket {
    fn facts(&self) -> &BucketFacts {
        &self.facts
    }

    fn get<'a>(&'a self, key: &'a str, most: u64) -> Attempt<'a, StoredObject> {
        Box::pin(async move {
            let read = self.read_now(key, ..);
            let (result, reply) = call(|context| context.at_most(most), read).await;
            let object = result.map_err(|error| service_error("read", key, &error, &reply))?;
            match object.bytes.len() as u64 > most {
                true => Err(too_long(key, most)),
                false => Ok(object),
            }
        })
    }

    fn get_range<'a>(&'a self, key: &'a str, range: Range<u64>) -> Attempt<'a, Bytes> {
        Box::pin(async move {
            let (wanted, start) = (range.end - range.start, range.start);
            let read = self.read_now(key, range);
            let (result, reply) = call(|context| context.at_most(wanted), read).await;
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
            match object.bytes.len() as u64 {
                found if found == wanted => Ok(object.bytes),
                found => Err(too_short(key, wanted.saturating_sub(found))),
            }
        })
    }

    fn put<'a>(&'a self, key: &'a str, body: Body) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(self.write(key, body, WriteCondition::Always))
    }

    fn put_if<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(self.write(key, bytes.into(), when))
    }

    fn delete<'a>(&'a self, keys: &'a [String]) -> Attempt<'a, ()> {
        Box::pin(async move {
            let paths: Vec<_> = keys.iter().map(|key| self.path(key)).collect();
            let (result, reply) = call(|_| (), self.operator.delete_iter(paths)).await;
            let first = keys.first().map_or("", String::as_str);
            result.map_err(|error| service_error("remove", first, &error, &reply))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, depth: ListDepth) -> Attempt<'a, Vec<ListedObject>> {
        Box::pin(async move {
            let list = self.list_now(prefix, depth);
            let (result, reply) =
                call(|context| context.listing = Some(Arc::default()), list).await;
            match result {
                Ok(listed) => listed.ok_or_else(|| too_many(prefix, self.most_listed)),
                // A folder that does not exist contains no objects.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                Err(error) => Err(service_error("list", prefix, &error, &reply)),
            }
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> Attempt<'a, Option<u64>> {
        Box::pin(async move {
            let path = self.path(key);
            let (result, reply) = call(|_| (), self.operator.stat(&path)).await;
            match result {
                Ok(metadata) => Ok(Some(metadata.content_length())),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(service_error("stat", key, &error, &reply)),
            }
        })
    }

    fn upload(&self, key: &str, note: Arc<UploadNote>) -> Option<Box<dyn MultipartUpload>> {
        Some(Box::new(OpendalUpload::begin(&self.operator, key, &self.path(key), note)?))
    }

    fn abort_upload<'a>(&'a self, key: &'a str, id: &'a str) -> Attempt<'a, ()> {
        Box::pin(async move { parts::abort(&self.operator, key, &self.path(key), id).await })
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
