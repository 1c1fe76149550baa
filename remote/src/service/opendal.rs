//! Services that OpenDAL reaches. Nothing outside of this module knows it.
//!
//! An object store writes an object whole or not at all. A server of files need
//! not: over SFTP the final file is opened and emptied before the first byte
//! goes, and a WebDAV server may do the same with a PUT. There whatever is
//! written goes under a name aside first, and is renamed when it is complete.

use std::{ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use opendal::{
    Error, ErrorKind, Executor, Metadata, OperationContext, Operator, options,
    raw::{OpWrite, Service as _, oio, oio::Write},
};
use snap_core::{base::limits, disk::scratch::unique_name};

use super::{
    Conditions, Listed, Object, Service, ServiceError, Upload, Version, What, When, check_hash,
    refusal::told,
    throttle::Pace,
    too_long,
    traffic::{Kind, Traffic},
    transport::{Reply, Tasks, Transport, at_most, with_hashed_file},
    unread,
    upload::read_part,
};

/// Parts of one object that are under way at once.
const PARTS_AT_ONCE: usize = 4;

/// Bytes that are written at a time where an object goes out as a stream.
const PIECE_BYTES: u64 = 1 << 20;

/// Requests over SFTP that are under way at once. Each has a connection of its
/// own, and a server refuses some when more than 10 log in together
/// (`MaxStartups` of OpenSSH).
const SFTP_AT_ONCE: usize = 8;

/// What keys begin with whose objects count as soon as they are there, or are
/// renamed: they are written in place.
const IN_PLACE: [&str; 2] = ["claims/", ASIDE];

/// What keys of objects begin with that are being written.
const ASIDE: &str = "tmp/";

/// How objects come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Puts {
    /// A write is all or nothing.
    Whole,
    /// A write may end half-way, a rename not.
    Aside,
}

/// A service behind an operator.
#[derive(Debug)]
pub struct Bucket {
    operator: Operator,
    /// Requests are counted here when they are none of HTTP.
    traffic: Option<Arc<Traffic>>,
    puts: Puts,
    /// Whether conditions are kept to, as far as the operator knows any.
    keeps_conditions: bool,
    /// Objects that a listing may have.
    most_listed: usize,
}

impl Bucket {
    /// A service that speaks HTTP, over `transport`.
    pub fn over_http(operator: Operator, transport: Transport) -> Self {
        let context = OperationContext::new().with_http_transport(transport.into());
        let context = context.with_executor(Executor::with(Tasks));
        Self::new(operator.with_context(context))
    }

    fn new(operator: Operator) -> Self {
        Self {
            operator,
            traffic: None,
            puts: Puts::Whole,
            keeps_conditions: true,
            most_listed: limits::LISTED_OBJECTS,
        }
    }

    /// The same, of which a listing may have so many objects.
    #[must_use]
    pub fn listing_at_most(self, most: usize) -> Self {
        Self { most_listed: most, ..self }
    }

    /// The same, of which a write may end half-way.
    #[must_use]
    pub fn putting_aside(self) -> Self {
        Self { puts: Puts::Aside, ..self }
    }

    /// The same, which keeps to no conditions, whatever the operator says.
    #[must_use]
    pub fn without_conditions(self) -> Self {
        Self { keeps_conditions: false, ..self }
    }

    /// SFTP, whose operations are counted in `traffic`.
    pub fn sftp(operator: Operator, traffic: Arc<Traffic>) -> Self {
        // What OpenDAL has for it makes an empty file, and then writes that.
        Self {
            traffic: Some(traffic),
            puts: Puts::Aside,
            keeps_conditions: false,
            ..Self::new(operator)
        }
    }

    /// Waits until so many bytes may go out, if not over HTTP, whose bodies do
    /// so themselves.
    async fn pace_up(&self, bytes: u64) {
        if let (Some(_), Some(pace)) = (&self.traffic, Pace::now()) {
            pace.up.take(bytes).await;
        }
    }

    fn count(&self, kind: Kind, sent: usize, received: usize) {
        if let Some(traffic) = &self.traffic {
            traffic.request(kind);
            traffic.sent(sent as u64);
            traffic.received(received as u64);
        }
    }

    async fn read_now(
        &self,
        key: &str,
        range: impl std::ops::RangeBounds<u64>,
    ) -> Result<Object, opendal::Error> {
        let reader = self.operator.reader_options(key, options::ReaderOptions::default()).await?;
        let buffer = reader.read(range).await?;
        let version = reader.metadata().and_then(version_of);
        let bytes = buffer.to_bytes();
        self.count(Kind::Get, 0, bytes.len());
        if let (Some(_), Some(pace)) = (&self.traffic, Pace::now()) {
            pace.down.take(bytes.len() as u64).await;
        }
        Ok(Object { bytes, version })
    }
}

impl Bucket {
    /// Under which name an object is written that shall be at `key`, if that is
    /// another one.
    fn aside(&self, key: &str) -> Option<String> {
        let in_place = IN_PLACE.iter().any(|start| key.starts_with(start));
        (self.puts == Puts::Aside && !in_place).then(|| format!("{ASIDE}{}", unique_name("put")))
    }

    /// Gives what was written aside its name, in place of whatever has it, or
    /// clears away what was not.
    async fn settle(
        &self,
        (aside, key): (&str, &str),
        length: u64,
        written: Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        let result = match written {
            Ok(()) => self.rename(aside, key).await,
            Err(error) => Err(error),
        };
        let Err(error) = result else { return Ok(()) };
        let _ = self.remove(aside).await;
        // Not every server replaces. What is named by its hash need not be.
        let is_named = key.starts_with("objects/") || key.starts_with("index/");
        match is_named && self.length(key).await.is_ok_and(|found| found == Some(length)) {
            true => Ok(()),
            false => Err(error),
        }
    }

    async fn rename(&self, aside: &str, key: &str) -> Result<(), ServiceError> {
        self.count(Kind::Post, 0, 0);
        let (result, reply) = Reply::of(self.operator.rename(aside, key)).await;
        result.map_err(|error| told("write", key, &error, reply))
    }

    async fn write_now(
        &self,
        key: &str,
        bytes: Bytes,
        options: options::WriteOptions,
    ) -> Result<Option<Version>, ServiceError> {
        self.count(Kind::Put, bytes.len(), 0);
        self.pace_up(bytes.len() as u64).await;
        let length = bytes.len() as u64;
        let write = self.operator.write_options(key, bytes, options);
        let (result, reply) = Reply::of(write).await;
        let metadata = result.map_err(|error| told("write", key, &error, reply))?;
        self.confirm(key, length, &metadata).await?;
        Ok(version_of(&metadata))
    }

    /// Makes sure that an object was written. Anything between here and there can
    /// answer with 200, so without a version in the answer the service is asked
    /// for the object.
    async fn confirm(&self, key: &str, length: u64, answer: &Metadata) -> Result<(), ServiceError> {
        let is_told = self.puts == Puts::Aside || self.traffic.is_some();
        if is_told || version_of(answer).is_some() || self.length(key).await? == Some(length) {
            return Ok(());
        }
        let message = "the answer says that it is written, and it is not there".to_owned();
        Err(ServiceError::new("write", key, What::Temporary, message))
    }

    async fn write_file_now(
        &self,
        key: &str,
        path: &Path,
        length: u64,
    ) -> Result<blake3::Hash, ServiceError> {
        if self.traffic.is_some() {
            return self.stream_file(key, path, length).await;
        }
        let write = self.operator.write(key, Bytes::new());
        let write = with_hashed_file((path.to_owned(), 0..length), write);
        let ((result, hash), reply) = Reply::of(write).await;
        let metadata = result.map_err(|error| told("write", key, &error, reply))?;
        self.confirm(key, length, &metadata).await?;
        Ok(hash)
    }

    /// Writes a file piece by piece to a service that takes it so. Returns the hash of
    /// what went.
    async fn stream_file(
        &self,
        key: &str,
        path: &Path,
        length: u64,
    ) -> Result<blake3::Hash, ServiceError> {
        self.count(Kind::Put, length as usize, 0);
        let failed = |error: Error| told("write", key, &error, Reply::default());
        let mut writer = self.operator.writer(key).await.map_err(failed)?;
        let (mut at, mut hasher) = (0, blake3::Hasher::new());
        while at < length {
            let piece = Pace::now().and_then(|pace| pace.up.piece()).unwrap_or(PIECE_BYTES);
            let end = length.min(at + piece);
            self.pace_up(end - at).await;
            let written = match read_part(path, at..end).await {
                Ok(piece) => {
                    hasher.update(&piece);
                    writer.write(piece).await.map_err(failed)
                }
                Err(error) => Err(unread(key, &error)),
            };
            if let Err(error) = written {
                let _ = writer.abort().await;
                return Err(error);
            }
            at = end;
        }
        writer.close().await.map_err(failed)?;
        Ok(hasher.finalize())
    }

    /// All objects below a prefix; `None` when there are more than there may be.
    async fn list_now(&self, prefix: &str) -> Result<Option<Vec<Listed>>, Error> {
        let options = options::ListOptions { recursive: true, ..Default::default() };
        let mut entries = self.operator.lister_options(prefix, options).await?;
        let (mut listed, mut seen) = (Vec::new(), 0);
        while let Some(entry) = entries.next().await {
            let entry = entry?;
            // Folders, too, may have no end.
            seen += 1;
            if seen > self.most_listed {
                return Ok(None);
            }
            if entry.metadata().mode().is_file() {
                let bytes = entry.metadata().content_length();
                listed.push(Listed { key: entry.path().to_owned(), bytes });
            }
        }
        Ok(Some(listed))
    }

    async fn peek_now(&self, prefix: &str, most: usize) -> Result<Vec<String>, Error> {
        let options = options::ListOptions { limit: Some(most), ..Default::default() };
        let entries = self.operator.lister_options(prefix, options).await?;
        let mut entries = entries.take(most);
        let mut keys = Vec::new();
        while let Some(entry) = entries.next().await {
            let entry = entry?;
            // The folder itself is listed, too.
            if entry.path() != prefix && entry.path() != "/" {
                keys.push(entry.path().to_owned());
            }
        }
        Ok(keys)
    }
}

/// An object that OpenDAL writes in parts. At the level below its writers: those
/// have lost a part when it comes back with an error.
struct Parts {
    writer: oio::Writer,
    key: String,
}

impl Parts {
    async fn told<T>(
        key: &str,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Result<(), ServiceError> {
        let (result, reply) = Reply::of(attempt).await;
        result.map(drop).map_err(|error| told("write", key, &error, reply))
    }
}

impl Upload for Parts {
    fn part(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(Self::told(&self.key, self.writer.write(bytes.into())))
    }

    fn finish(&mut self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(Self::told(&self.key, self.writer.close()))
    }

    fn abort(&mut self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(Self::told(&self.key, self.writer.abort()))
    }
}

impl Service for Bucket {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        Box::pin(async move {
            let wanted = range.end - range.start;
            let (result, reply) = Reply::of(at_most(wanted, self.read_now(key, range))).await;
            let object = result.map_err(|error| told("read", key, &error, reply))?;
            if object.bytes.len() as u64 != wanted {
                let missing = wanted.saturating_sub(object.bytes.len() as u64);
                let message = format!("it ends {missing} B early");
                return Err(ServiceError::new("read", key, What::Short, message));
            }
            Ok(object)
        })
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        Box::pin(async move {
            if self.traffic.is_some() {
                // What comes cannot be stopped, so it is asked for its length.
                return match self.length(key).await? {
                    Some(length) if length <= most => self.read(key, 0..length).await,
                    Some(_) => Err(too_long(key, most)),
                    None => Err(ServiceError::new("read", key, What::NotFound, String::new())),
                };
            }
            let (result, reply) = Reply::of(at_most(most, self.read_now(key, ..))).await;
            let object = result.map_err(|error| told("read", key, &error, reply))?;
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
        when: When,
    ) -> BoxFuture<'a, Result<Option<Version>, ServiceError>> {
        Box::pin(async move {
            let mut options = options::WriteOptions::default();
            let is_conditional = when != When::Always;
            match when {
                When::Always => {}
                When::Absent => options.if_not_exists = true,
                When::Unchanged(version) => options.if_not_changed = Some(metadata_of(&version)),
            }
            let Some(aside) = self.aside(key) else {
                let written = self.write_now(key, bytes, options).await;
                return written.map_err(|error| unconditional(error, is_conditional));
            };
            let length = bytes.len() as u64;
            let written = self.write_now(&aside, bytes, options).await;
            let written = written.map(drop).map_err(|error| of_key(error, key));
            self.settle((&aside, key), length, written).await.map(|()| None)
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, ServiceError>> {
        Box::pin(async move {
            let (result, reply) = Reply::of(self.list_now(prefix)).await;
            self.count(Kind::List, 0, 0);
            match result {
                Ok(Some(listed)) => Ok(listed),
                Ok(None) => {
                    let message = format!("more than {} objects", self.most_listed);
                    Err(ServiceError::new("list", prefix, What::TooLong, message))
                }
                // Folders that are not there hold nothing.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                Err(error) => Err(told("list", prefix, &error, reply)),
            }
        })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        Box::pin(async move {
            self.count(Kind::Head, 0, 0);
            let (result, reply) = Reply::of(self.operator.stat(key)).await;
            match result {
                Ok(metadata) => Ok(Some(metadata.content_length())),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(told("stat", key, &error, reply)),
            }
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            self.count(Kind::Delete, 0, 0);
            let (result, reply) = Reply::of(self.operator.delete(key)).await;
            result.map_err(|error| told("remove", key, &error, reply))
        })
    }

    fn write_file<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let Some(aside) = self.aside(key) else {
                let hash = self.write_file_now(key, path, length).await?;
                let checked = check_hash(key, hash);
                if checked.is_err() {
                    // Else the next push would take it for what its name says.
                    let _ = self.operator.delete(key).await;
                }
                return checked;
            };
            let written = self.write_file_now(&aside, path, length).await;
            let written = written.map_err(|error| of_key(error, key));
            let written = written.and_then(|hash| check_hash(key, hash));
            self.settle((&aside, key), length, written).await
        })
    }

    fn has_folders(&self) -> bool {
        // Those on which files are emptied before they are written.
        self.puts == Puts::Aside
    }

    fn upload(&self, key: &str) -> Option<Box<dyn Upload>> {
        if !self.operator.info().capability().write_can_multi || self.traffic.is_some() {
            return None;
        }
        let options = options::WriteOptions { concurrent: PARTS_AT_ONCE, ..Default::default() };
        let capability = self.operator.info().capability();
        let (write, _) = OpWrite::from_options(&capability, options).ok()?;
        let writer = self.operator.service().write(self.operator.context(), key, write).ok()?;
        Some(Box::new(Parts { writer, key: key.to_owned() }))
    }

    fn peek<'a>(
        &'a self,
        prefix: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        Box::pin(async move {
            let (result, reply) = Reply::of(self.peek_now(prefix, most)).await;
            self.count(Kind::List, 0, 0);
            match result {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                result => result.map_err(|error| told("list", prefix, &error, reply)),
            }
        })
    }

    fn removed_at_once(&self) -> usize {
        self.operator.info().capability().delete_max_size.unwrap_or(1).max(1)
    }

    fn remove_many<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            keys.iter().for_each(|_| self.count(Kind::Delete, 0, 0));
            let remove = self.operator.delete_iter(keys.iter().map(String::as_str));
            let (result, reply) = Reply::of(remove).await;
            let first = keys.first().map_or("", String::as_str);
            result.map_err(|error| told("remove", first, &error, reply))
        })
    }

    fn keeps_pace(&self) -> bool {
        true
    }

    fn at_once(&self) -> usize {
        if self.traffic.is_some() { SFTP_AT_ONCE } else { usize::MAX }
    }

    fn conditions(&self) -> Conditions {
        match self.keeps_conditions {
            true => self.takes_conditions(),
            false => Conditions::NONE,
        }
    }

    fn takes_conditions(&self) -> Conditions {
        // They would be of the name aside.
        if self.puts == Puts::Aside {
            return Conditions::NONE;
        }
        let can = self.operator.info().capability();
        let unchanged = can.write_with_if_match || can.write_with_if_version_match;
        Conditions { absent: can.write_with_if_not_exists, unchanged }
    }

    fn must_prove_conditions(&self) -> bool {
        true
    }
}

/// The same error; of a write on a condition, that this is what cannot be done.
fn unconditional(error: ServiceError, is_conditional: bool) -> ServiceError {
    if !is_conditional || error.what != What::Unsupported {
        return error;
    }
    ServiceError { message: "write on a condition".to_owned(), ..error }
}

/// The same error, of the object that was meant.
fn of_key(error: ServiceError, key: &str) -> ServiceError {
    ServiceError { key: key.to_owned(), ..error }
}

fn version_of(metadata: &Metadata) -> Option<Version> {
    let (etag, generation) = (metadata.etag(), metadata.version());
    let version =
        Version { etag: etag.map(str::to_owned), generation: generation.map(str::to_owned) };
    (etag.is_some() || generation.is_some()).then_some(version)
}

fn metadata_of(version: &Version) -> Metadata {
    let mut builder = opendal::MetadataBuilder::unknown();
    if let Some(etag) = &version.etag {
        builder.etag(etag.as_str());
    }
    if let Some(generation) = &version.generation {
        builder.version(generation.as_str());
    }
    builder.build()
}
