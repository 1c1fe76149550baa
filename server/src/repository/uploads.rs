//! Resumable uploads of packs and bundles. An upload that breaks off leaves a part; the
//! next request continues at its end.
//!
//! A part is a file `HASH.LENGTH` in the staging folder. HASH is the BLAKE3 hash of the whole
//! upload; for a pack it is also the pack's name. LENGTH is the declared length of the whole
//! upload, in bytes. The size of the file is the current offset.
//!
//! The server does not trust the bytes of a part. Once the part has its declared length, the server
//! hashes and checks all of it, as it does for an upload in one request. Only then does the server
//! stage the pack or unpack the bundle. So a part may be lost or damaged at any time.
//!
//! One request at a time writes to a part. If that request has received nothing for
//! [`TAKEOVER_AFTER`], the next request takes over, and the server discards what the first one
//! still sends.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use parking_lot::Mutex;
use snap_core::{
    base::{id::PackId, io::PathError},
    disk::{Disk, NewFile},
    ops::{bundle::unpack, inbox::SharedInbox},
    store::pack_stream::hash_file,
};

use tokio::sync::watch;

use super::{Received, Repository};
use crate::{
    body::BodyPieces,
    clock::Clock,
    problem::{Code, HttpProblem},
};

/// Another request can take over from a request that has received no bytes for this long.
const TAKEOVER_AFTER: Duration = Duration::from_secs(5);

/// A part counts as moving if bytes were written to it within this time.
const MOVING_WITHIN: Duration = Duration::from_millis(100);

/// The `Retry-After` of a request that finds its upload locked, in seconds.
const RETRY_AFTER_SECS: u64 = 2;

/// A part that no request has written to for this long is idle. The server removes idle parts when
/// a new part needs their room.
const IDLE: Duration = Duration::from_secs(60);

/// Limits for the unfinished uploads of one repository, and for checking them.
#[derive(Clone, Copy, Debug)]
pub struct UploadLimits {
    /// Maximum number of parts.
    pub parts: usize,
    /// Maximum sum of the declared lengths of all parts, in bytes.
    pub bytes: u64,
    /// Maximum number of bytes of contents that are read to check a bundle.
    pub content_bytes: u64,
}

/// How much of an upload the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadState {
    /// The pack is stored whole, staged or published. Holds its length in bytes.
    Whole(u64),
    /// A part of the upload is stored.
    Part {
        /// Number of stored bytes.
        offset: u64,
        /// Declared length of the whole upload, in bytes.
        length: u64,
        /// True if a request has just written to the part.
        is_moving: bool,
    },
}

/// The upload that a request continues, as its headers describe it.
#[derive(Clone, Copy, Debug)]
pub struct UploadPosition {
    /// Hash of the whole upload.
    pub hash: blake3::Hash,
    /// Offset of the request's first byte in the upload.
    pub offset: u64,
    /// Declared length of the whole upload, in bytes.
    pub length: u64,
}

/// The outcome of a request that continues an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadOutcome<T> {
    /// The upload is complete and was accepted.
    Whole(T),
    /// The upload is incomplete. Holds the number of stored bytes.
    Part(u64),
}

/// The parts that requests are writing to.
#[derive(Debug)]
pub(super) struct Uploads {
    writing: Mutex<HashMap<blake3::Hash, Arc<OpenPart>>>,
    /// Notified when a request that wrote to a part ends.
    writer_ended: watch::Sender<()>,
    clock: Clock,
}

/// A part that a request is writing to.
#[derive(Debug)]
struct OpenPart {
    /// Locked against other processes, too, while the part is open.
    file: Mutex<NewFile>,
    path: PathBuf,
    length: u64,
    state: Mutex<PartState>,
    clock: Clock,
}

#[derive(Debug)]
struct PartState {
    /// The number of the request that writes now. Requests with lower numbers may not
    /// write.
    writer: u64,
    /// Number of stored bytes.
    offset: u64,
    moved: Instant,
    /// True if the upload is complete and is being checked.
    is_ending: bool,
}

/// A part as found in the staging folder.
struct StoredPart {
    hash: blake3::Hash,
    path: PathBuf,
    offset: u64,
    length: u64,
    modified: Option<SystemTime>,
}

/// The right of a request to write to a part. Dropping the guard ends the right.
struct UploadGuard<'u> {
    uploads: &'u Uploads,
    hash: blake3::Hash,
    part: Arc<OpenPart>,
    writer: u64,
}

/// The refusal of a request whose upload another request is writing.
fn locked() -> HttpProblem {
    let why = "another request is writing to this upload";
    HttpProblem { retry_after_secs: Some(RETRY_AFTER_SECS), ..HttpProblem::new(Code::Locked, why) }
}

/// Checks that a request continues at the stored offset, with the same declared length.
fn check_place(coming: &UploadPosition, offset: u64, length: u64) -> Result<(), HttpProblem> {
    let why = match (length == coming.length, offset == coming.offset) {
        (true, true) => return Ok(()),
        (true, false) => format!("the server has {offset} bytes of this upload"),
        (false, _) => format!("this upload was declared to have {length} bytes"),
    };
    Err(HttpProblem { offset: Some(offset), ..HttpProblem::new(Code::Offset, why) })
}

impl OpenPart {
    fn write(&self, writer: u64, bytes: &[u8]) -> Result<(), HttpProblem> {
        let mut file = self.file.lock();
        if self.state.lock().writer != writer {
            return Err(locked());
        }
        let written = file.write(bytes);
        // After a failed write the file may end anywhere, so ask for its length.
        let there = written.as_ref().map_or_else(
            |_| file.file().metadata().ok().map(|meta| meta.len()),
            |()| Some(self.state.lock().offset + bytes.len() as u64),
        );
        let mut state = self.state.lock();
        state.moved = self.clock.now();
        state.offset = there.unwrap_or(state.offset);
        Ok(written?)
    }

    /// Takes over from a request that has received nothing for [`TAKEOVER_AFTER`], if `may` accepts
    /// the current offset. Returns the number of the new writer.
    fn take_over(
        &self,
        may: impl FnOnce(u64) -> Result<(), HttpProblem>,
    ) -> Result<u64, HttpProblem> {
        // The mutex is held only while a request writes to the file.
        let free = self.file.try_lock().ok_or_else(locked)?;
        let mut state = self.state.lock();
        if state.is_ending || self.clock.elapsed(state.moved) < TAKEOVER_AFTER {
            return Err(locked());
        }
        may(state.offset)?;
        (state.writer, state.moved) = (state.writer + 1, self.clock.now());
        drop(free);
        Ok(state.writer)
    }
}

impl UploadGuard<'_> {
    /// Writes the body to the part. Returns the offset that was reached.
    fn take(
        &self,
        pieces: impl Iterator<Item = Result<Bytes, HttpProblem>>,
    ) -> Result<u64, HttpProblem> {
        for piece in pieces {
            let written = piece.and_then(|piece| self.part.write(self.writer, &piece));
            if let Err(problem) = written {
                // On a full disk, or if the body is longer than declared, keep nothing.
                if matches!(problem.code, Code::Full | Code::TooLarge) {
                    self.remove();
                }
                return Err(problem);
            }
        }
        let mut state = self.part.state.lock();
        if state.writer != self.writer {
            return Err(locked());
        }
        state.is_ending = state.offset == self.part.length;
        Ok(state.offset)
    }

    /// Removes the part, unless another request has taken over.
    fn remove(&self) {
        let mut state = self.part.state.lock();
        if state.writer == self.writer {
            let _ = fs_err::remove_file(&self.part.path);
            state.offset = 0;
        }
    }
}

impl Drop for UploadGuard<'_> {
    fn drop(&mut self) {
        let mut writing = self.uploads.writing.lock();
        let state = self.part.state.lock();
        if state.writer != self.writer {
            return;
        }
        if state.offset == 0 {
            let _ = fs_err::remove_file(&self.part.path);
        }
        drop(state);
        // Unlock explicitly: a request that lost the part may keep the file open for
        // long.
        let _ = self.part.file.lock().file().unlock();
        writing.remove(&self.hash);
        self.uploads.writer_ended.send_replace(());
    }
}

impl Uploads {
    pub(super) fn new(clock: Clock) -> Self {
        Self { writing: Mutex::default(), writer_ended: watch::Sender::default(), clock }
    }

    /// Returns the state of an unfinished upload, if there is a part of it.
    fn upload_state(&self, staged: &SharedInbox, hash: &blake3::Hash) -> Option<UploadState> {
        if let Some(part) = self.writing.lock().get(hash) {
            let state = part.state.lock();
            let is_moving = self.clock.elapsed(state.moved) < MOVING_WITHIN;
            let (offset, length) = (state.offset, part.length);
            return Some(UploadState::Part { offset, length, is_moving });
        }
        let found = list_parts(staged).into_iter().find(|part| part.hash == *hash)?;
        Some(UploadState::Part { offset: found.offset, length: found.length, is_moving: false })
    }

    /// Starts or resumes an upload. Never waits: returns an error at once if the request may not
    /// continue the upload.
    fn begin(
        &self,
        staged: &SharedInbox,
        coming: &UploadPosition,
        bounds: UploadLimits,
    ) -> Result<UploadGuard<'_>, HttpProblem> {
        let mut writing = self.writing.lock();
        if let Some(part) = writing.get(&coming.hash) {
            let writer = part.take_over(|offset| check_place(coming, offset, part.length))?;
            return Ok(UploadGuard {
                uploads: self,
                hash: coming.hash,
                part: Arc::clone(part),
                writer,
            });
        }
        let parts = list_parts(staged);
        match parts.iter().find(|part| part.hash == coming.hash) {
            Some(part) => check_place(coming, part.offset, part.length)?,
            None => {
                check_place(coming, 0, coming.length)?;
                make_room(parts, &writing, coming.length, bounds)?;
            }
        }
        let part = Arc::new(OpenPart::open(staged, coming, self.clock.clone())?);
        writing.insert(coming.hash, Arc::clone(&part));
        Ok(UploadGuard { uploads: self, hash: coming.hash, part, writer: 0 })
    }

    /// Returns the sum of the declared lengths of all parts for which `counts` returns true.
    pub(super) fn unfinished(staged: &SharedInbox, counts: &dyn Fn(&blake3::Hash) -> bool) -> u64 {
        let parts = list_parts(staged).into_iter().filter(|part| counts(&part.hash));
        parts.map(|part| part.length).fold(0, u64::saturating_add)
    }

    /// Removes idle parts for which `may` returns true. Returns true if any was removed.
    pub(super) fn forget_idle(
        &self,
        staged: &SharedInbox,
        may: &dyn Fn(&blake3::Hash) -> bool,
    ) -> bool {
        let writing = self.writing.lock();
        let is_removable = |part: &StoredPart| may(&part.hash) && is_idle(part, &writing);
        let idle = list_parts(staged).into_iter().filter(is_removable);
        idle.filter(|part| staged.disk().remove(&part.path).is_ok()).count() > 0
    }

    /// Removes a part. Returns true if there was one.
    fn forget(&self, staged: &SharedInbox, hash: &blake3::Hash) -> Result<bool, HttpProblem> {
        let mut writing = self.writing.lock();
        if let Some(part) = writing.get(hash) {
            part.take_over(|_| Ok(()))?;
            writing.remove(hash);
        }
        let found = list_parts(staged).into_iter().find(|part| part.hash == *hash);
        let Some(part) = found else { return Ok(false) };
        staged.disk().remove(&part.path)?;
        Ok(true)
    }
}

impl OpenPart {
    fn open(
        staged: &SharedInbox,
        coming: &UploadPosition,
        clock: Clock,
    ) -> Result<Self, HttpProblem> {
        staged.enter()?;
        let (dir, disk): (_, &Disk) = (staged.dir(), staged.disk());
        let path = dir.join(format!("{}.{}", coming.hash, coming.length));
        let file = disk.append(&path)?;
        // If the file system has no locks, assume that only this process uses it.
        if matches!(file.file().try_lock(), Err(std::fs::TryLockError::WouldBlock)) {
            return Err(locked());
        }
        let meta = file.file().metadata().map_err(PathError::when("stat", &path))?;
        check_place(coming, meta.len(), coming.length)?;
        let (offset, moved) = (coming.offset, clock.now());
        let state = Mutex::new(PartState { writer: 0, offset, moved, is_ending: false });
        Ok(Self { file: Mutex::new(file), path, length: coming.length, state, clock })
    }
}

/// Lists all parts, including those that requests are writing to.
fn list_parts(staged: &SharedInbox) -> Vec<StoredPart> {
    let Ok(entries) = fs_err::read_dir(staged.dir()) else { return Vec::new() };
    let parts = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let (hash, length) = name.to_str()?.split_once('.')?;
        let (hash, length) = (blake3::Hash::from_hex(hash).ok()?, length.parse().ok()?);
        let meta = entry.metadata().ok()?;
        let (offset, modified) = (meta.len(), meta.modified().ok());
        Some(StoredPart { hash, path: entry.path(), offset, length, modified })
    });
    parts.collect()
}

/// Returns true if no request writes to the part and none has done so for [`IDLE`].
fn is_idle(part: &StoredPart, writing: &HashMap<blake3::Hash, Arc<OpenPart>>) -> bool {
    let age = part.modified.and_then(|time| time.elapsed().ok());
    !writing.contains_key(&part.hash) && age.is_some_and(|age| age >= IDLE)
}

/// Makes room for one more part within the limits. Removes idle parts, oldest first.
fn make_room(
    mut parts: Vec<StoredPart>,
    writing: &HashMap<blake3::Hash, Arc<OpenPart>>,
    length: u64,
    bounds: UploadLimits,
) -> Result<(), HttpProblem> {
    if length > bounds.bytes {
        let why = format!("unfinished uploads may have at most {} bytes", bounds.bytes);
        return Err(HttpProblem::new(Code::TooLarge, why));
    }
    parts.sort_by_key(|part| (!is_idle(part, writing), part.modified));
    let mut bytes = parts.iter().map(|part| part.length).fold(length, u64::saturating_add);
    let mut left = parts.len();
    let mut oldest = parts.iter();
    while left >= bounds.parts || bytes > bounds.bytes {
        let full = || HttpProblem::slow_down(IDLE.as_secs(), "too many unfinished uploads");
        let part = oldest.next().filter(|part| is_idle(part, writing)).ok_or_else(full)?;
        let _ = fs_err::remove_file(&part.path);
        (bytes, left) = (bytes.saturating_sub(part.length), left - 1);
    }
    Ok(())
}

impl Repository {
    /// Returns how much of an upload is stored: a part of a pack or bundle, or a whole
    /// pack.
    ///
    /// # Errors
    /// [`Code::NotFound`] when nothing of the upload is stored.
    pub fn upload(&self, hash: &blake3::Hash) -> Result<UploadState, HttpProblem> {
        // A pack is first a part, then staged, then published. Looking in this order
        // cannot miss a pack that moves on meanwhile.
        if let Some(part) = self.uploads.upload_state(&self.staged, hash) {
            return Ok(part);
        }
        let (store, id) = (self.repo.store(), PackId::from_bytes(*hash.as_bytes()));
        let path = match self.staged.pack(&id)? {
            None if self.packs().is_whole_here(&id)? => Some(store.pack_path(&id)),
            path => path,
        };
        let meta = path.and_then(|path| fs_err::metadata(path).ok());
        let whole = meta.map(|meta| UploadState::Whole(meta.len()));
        whole.ok_or_else(|| HttpProblem::not_found(format_args!("upload of {hash}")))
    }

    /// Returns a receiver that changes when a request that wrote to an upload ends.
    pub fn upload_writers(&self) -> watch::Receiver<()> {
        self.uploads.writer_ended.subscribe()
    }

    /// Continues the upload of a pack. When the pack is complete, accepts it as
    /// `PUT packs` does.
    ///
    /// # Errors
    /// [`Code::Offset`] when the request starts at another offset than the stored one,
    /// [`Code::Locked`] when another request is writing, [`Code::SlowDown`] when there
    /// are too many unfinished uploads, [`Code::Rejected`] when the complete pack does
    /// not match its name. A rejected pack is removed. If the body breaks off, the
    /// bytes received so far are kept.
    pub fn resume(
        &self,
        coming: &UploadPosition,
        bounds: UploadLimits,
        pieces: BodyPieces,
    ) -> Result<UploadOutcome<Received>, HttpProblem> {
        let id = PackId::from_bytes(*coming.hash.as_bytes());
        if self.packs().is_whole_here(&id)? {
            return Ok(UploadOutcome::Whole(Received::AlreadyPresent));
        }
        let mut sent = Received::AlreadyPresent;
        if self.staged.pack(&id)?.is_none() {
            let watch = pieces.observer();
            let keep = |path: &Path| Ok(self.staged.keep(id, path, &*watch)?);
            match self.append_upload(coming, bounds, pieces, keep)? {
                UploadOutcome::Part(offset) => return Ok(UploadOutcome::Part(offset)),
                UploadOutcome::Whole(()) => sent = Received::Added,
            }
        }
        self.packs().forward(&id)?;
        Ok(UploadOutcome::Whole(sent))
    }

    /// Continues the upload of a bundle. When the bundle is complete, unpacks it as
    /// [`take_bundle`](Self::take_bundle) does.
    ///
    /// # Errors
    /// The errors of [`resume`](Self::resume) and [`take_bundle`](Self::take_bundle). After
    /// [`Code::Unavailable`] the complete upload is kept, and a request with an empty body tries to
    /// unpack it again.
    pub fn resume_bundle(
        &self,
        coming: &UploadPosition,
        bounds: UploadLimits,
        pieces: BodyPieces,
    ) -> Result<UploadOutcome<unpack::UnpackOutcome>, HttpProblem> {
        let (watch, most) = (pieces.observer(), bounds.content_bytes);
        self.append_upload(coming, bounds, pieces, |path| {
            if hash_file(path)?.as_bytes() != coming.hash.as_bytes() {
                return Err(HttpProblem::new(Code::Rejected, "the bytes do not hash to the name"));
            }
            let taken = self.unpack_file(path, most, &*watch)?;
            // Nothing else removes the file before the daily sweep.
            let _ = fs_err::remove_file(path);
            Ok(taken)
        })
    }

    /// Writes a body to a part. When the upload is complete, `take` gets its path, checks its hash, and
    /// moves or unpacks it. If `take` fails, the part is
    /// removed, unless a retry may help ([`Code::Unavailable`], [`Code::Locked`]).
    fn append_upload<T>(
        &self,
        coming: &UploadPosition,
        bounds: UploadLimits,
        pieces: impl Iterator<Item = Result<Bytes, HttpProblem>>,
        take: impl FnOnce(&Path) -> Result<T, HttpProblem>,
    ) -> Result<UploadOutcome<T>, HttpProblem> {
        self.staged.sweep();
        let turn = self.uploads.begin(&self.staged, coming, bounds)?;
        let offset = turn.take(pieces)?;
        if offset < coming.length {
            return Ok(UploadOutcome::Part(offset));
        }
        let path = &turn.part.path;
        let taken = take(path);
        if let Err(problem) = &taken
            && !matches!(problem.code, Code::Unavailable | Code::Locked)
        {
            turn.remove();
        }
        taken.map(UploadOutcome::Whole)
    }

    /// Removes an unfinished upload of a pack or bundle.
    ///
    /// # Errors
    /// [`Code::NotFound`] when there is none, [`Code::Locked`] when a request is
    /// writing to it.
    pub fn forget_upload(&self, hash: &blake3::Hash) -> Result<(), HttpProblem> {
        match self.uploads.forget(&self.staged, hash)? {
            true => Ok(()),
            false => Err(HttpProblem::not_found(format_args!("upload of {hash}"))),
        }
    }
}
