//! Packs and bundles that come in several requests: a part of one stays when a
//! request breaks off, and the next goes on at its end.
//!
//! A part lies among what is staged as `HASH.LENGTH`, the BLAKE3 hash of the whole,
//! which is a pack's name, and how long it is to be; its own length is how far it
//! has come. Nothing of it is believed: once it is as long as it should be all of
//! it is hashed and checked as what came at once is, and only then does a pack
//! wait to count or is a bundle taken in. So a part needs not be durable, and may
//! be lost or damaged at any time.
//!
//! One request at a time writes to a part. A request that has stood still for
//! [`STILL`] can be taken for dead; whoever comes then goes on in its place, and
//! what it still sends is not taken any more.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use snap_core::{
    base::{id::PackId, io::PathError},
    disk::{Disk, NewFile},
    ops::{bundle::unpack, staged::Staged},
};

use super::{Repository, Sent};
use crate::{
    body::Pieces,
    problem::{Code, Problem},
};

/// Whoever sends nothing for so long makes room for another one.
const STILL: Duration = Duration::from_secs(5);

/// A part moves if something of it has come in that time.
const JUST_NOW: Duration = Duration::from_millis(100);

/// Whoever finds it taken may come again in so many seconds.
const AGAIN_SECS: u64 = 2;

/// A part that nobody has gone on with for so long is removed when there is no
/// room for another one.
const IDLE: Duration = Duration::from_secs(60);

/// How much may be unfinished in a repository.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Parts.
    pub parts: usize,
    /// Their bytes, once they are as long as they are to be.
    pub bytes: u64,
    /// Bytes of contents that are read to check a bundle.
    pub content_bytes: u64,
}

/// How far a pack or bundle has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// The pack is there, whether or not it counts; so long it is.
    Whole(u64),
    /// A part of it is.
    Part {
        /// Its first bytes that are there.
        offset: u64,
        /// How long it is to be.
        length: u64,
        /// More of it has come just now.
        is_moving: bool,
    },
}

/// What comes of a pack or bundle.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// Which: the hash of all of it.
    pub hash: blake3::Hash,
    /// Where the bytes begin.
    pub offset: u64,
    /// How long it is to be.
    pub length: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed<T> {
    /// It is whole, and taken.
    Whole(T),
    /// So many bytes of it are there.
    Part(u64),
}

/// Parts that are being written.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    writing: Mutex<HashMap<blake3::Hash, Arc<Part>>>,
}

/// A part that is being written.
#[derive(Debug)]
struct Part {
    /// Locked against those of other processes while it is open.
    file: Mutex<NewFile>,
    path: PathBuf,
    length: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Who writes; those with a lower number do no more.
    writer: u64,
    /// Bytes that are there.
    offset: u64,
    moved: Instant,
    /// All has come, and is being checked.
    is_ending: bool,
}

/// A part that lies there.
struct Lying {
    hash: blake3::Hash,
    path: PathBuf,
    offset: u64,
    length: u64,
    modified: Option<SystemTime>,
}

/// Somebody's turn to write to a part. Over when this is dropped.
struct Turn<'u> {
    uploads: &'u Uploads,
    hash: blake3::Hash,
    part: Arc<Part>,
    writer: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn locked() -> Problem {
    let why = "another request sends this just now";
    Problem { retry_after_secs: Some(AGAIN_SECS), ..Problem::new(Code::Locked, why) }
}

/// Whether that is where it goes on.
fn check_place(coming: &Coming, (offset, length): (u64, u64)) -> Result<(), Problem> {
    let why = match (length == coming.length, offset == coming.offset) {
        (true, true) => return Ok(()),
        (true, false) => format!("{offset} bytes of it are here"),
        (false, _) => format!("it was said to be {length} bytes long"),
    };
    Err(Problem { offset: Some(offset), ..Problem::new(Code::Offset, why) })
}

impl Part {
    fn write(&self, writer: u64, bytes: &[u8]) -> Result<(), Problem> {
        let mut file = lock(&self.file);
        if lock(&self.state).writer != writer {
            return Err(locked());
        }
        let written = file.write(bytes);
        // After an error it ends anywhere.
        let there = written.as_ref().map_or_else(
            |_| file.file().metadata().ok().map(|meta| meta.len()),
            |()| Some(lock(&self.state).offset + bytes.len() as u64),
        );
        let mut state = lock(&self.state);
        state.moved = Instant::now();
        state.offset = there.unwrap_or(state.offset);
        Ok(written?)
    }

    /// Has who writes it now do no more, if that has stood still and `may` lets it.
    /// Says who writes instead.
    fn take_over(&self, may: impl FnOnce(u64) -> Result<(), Problem>) -> Result<u64, Problem> {
        // Whoever has the file is writing.
        let free = self.file.try_lock().map_err(|_| locked())?;
        let mut state = lock(&self.state);
        if state.is_ending || state.moved.elapsed() < STILL {
            return Err(locked());
        }
        may(state.offset)?;
        (state.writer, state.moved) = (state.writer + 1, Instant::now());
        drop(free);
        Ok(state.writer)
    }
}

impl Turn<'_> {
    /// Writes what comes, and says how far it has come.
    fn take(
        &self,
        pieces: impl Iterator<Item = Result<Bytes, Problem>>,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<u64, Problem> {
        for piece in pieces {
            let written = piece.and_then(|piece| {
                seen(&piece);
                self.part.write(self.writer, &piece)
            });
            if let Err(problem) = written {
                // Who has no room, or sends more than was said, leaves nothing.
                if matches!(problem.code, Code::Full | Code::TooLarge) {
                    self.remove();
                }
                return Err(problem);
            }
        }
        let mut state = lock(&self.part.state);
        if state.writer != self.writer {
            return Err(locked());
        }
        state.is_ending = state.offset == self.part.length;
        Ok(state.offset)
    }

    /// Removes what there is, unless somebody else has gone on with it.
    fn remove(&self) {
        let mut state = lock(&self.part.state);
        if state.writer == self.writer {
            let _ = fs_err::remove_file(&self.part.path);
            state.offset = 0;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut writing = lock(&self.uploads.writing);
        let state = lock(&self.part.state);
        if state.writer != self.writer {
            return;
        }
        if state.offset == 0 {
            let _ = fs_err::remove_file(&self.part.path);
        }
        drop(state);
        // Whoever it was taken over from may keep it open for long.
        let _ = lock(&self.part.file).file().unlock();
        writing.remove(&self.hash);
    }
}

impl Uploads {
    /// How far a pack has come of which there is a part.
    fn standing(&self, staged: &Staged, hash: &blake3::Hash) -> Option<Upload> {
        if let Some(part) = lock(&self.writing).get(hash) {
            let state = lock(&part.state);
            let (offset, is_moving) = (state.offset, state.moved.elapsed() < JUST_NOW);
            return Some(Upload::Part { offset, length: part.length, is_moving });
        }
        let found = lying(staged).into_iter().find(|part| part.hash == *hash)?;
        Some(Upload::Part { offset: found.offset, length: found.length, is_moving: false })
    }

    /// Waits for nobody: whoever may not go on is told so at once.
    fn begin(&self, staged: &Staged, coming: &Coming, bounds: Bounds) -> Result<Turn<'_>, Problem> {
        let mut writing = lock(&self.writing);
        if let Some(part) = writing.get(&coming.hash) {
            let writer = part.take_over(|offset| check_place(coming, (offset, part.length)))?;
            return Ok(Turn { uploads: self, hash: coming.hash, part: Arc::clone(part), writer });
        }
        let parts = lying(staged);
        match parts.iter().find(|part| part.hash == coming.hash) {
            Some(part) => check_place(coming, (part.offset, part.length))?,
            None => {
                check_place(coming, (0, coming.length))?;
                make_room(parts, &writing, coming.length, bounds)?;
            }
        }
        let part = Arc::new(Part::open(staged, coming)?);
        writing.insert(coming.hash, Arc::clone(&part));
        Ok(Turn { uploads: self, hash: coming.hash, part, writer: 0 })
    }

    /// Bytes of all parts, once they are whole, but for those that are being written
    /// and `besides`.
    pub(super) fn unfinished(&self, staged: &Staged, besides: Option<&blake3::Hash>) -> u64 {
        let writing = lock(&self.writing);
        let counts = |hash: &blake3::Hash| Some(hash) != besides && !writing.contains_key(hash);
        let parts = lying(staged).into_iter().filter(|part| counts(&part.hash));
        parts.map(|part| part.length).fold(0, u64::saturating_add)
    }

    /// Removes parts that nobody goes on with, but for `besides`; says whether any went.
    pub(super) fn forget_idle(&self, staged: &Staged, besides: Option<&blake3::Hash>) -> bool {
        let writing = lock(&self.writing);
        let goes = |part: &Lying| Some(&part.hash) != besides && is_idle(part, &writing);
        let idle = lying(staged).into_iter().filter(goes);
        idle.filter(|part| fs_err::remove_file(&part.path).is_ok()).count() > 0
    }

    /// Removes what there is of a part, and says whether there was one.
    fn forget(&self, staged: &Staged, hash: &blake3::Hash) -> Result<bool, Problem> {
        let mut writing = lock(&self.writing);
        if let Some(part) = writing.get(hash) {
            part.take_over(|_| Ok(()))?;
            writing.remove(hash);
        }
        let found = lying(staged).into_iter().find(|part| part.hash == *hash);
        let Some(part) = found else { return Ok(false) };
        fs_err::remove_file(&part.path).map_err(PathError::when("remove", &part.path))?;
        Ok(true)
    }
}

impl Part {
    fn open(staged: &Staged, coming: &Coming) -> Result<Self, Problem> {
        let (dir, disk): (_, &Disk) = (staged.dir(), staged.disk());
        disk.create_folders(dir)?;
        let path = dir.join(format!("{}.{}", coming.hash, coming.length));
        let file = disk.append(&path)?;
        // Where nothing can be locked there is no other process either.
        if matches!(file.file().try_lock(), Err(std::fs::TryLockError::WouldBlock)) {
            return Err(locked());
        }
        let meta = file.file().metadata().map_err(PathError::when("stat", &path))?;
        check_place(coming, (meta.len(), coming.length))?;
        let (offset, moved) = (coming.offset, Instant::now());
        let state = Mutex::new(State { writer: 0, offset, moved, is_ending: false });
        Ok(Self { file: Mutex::new(file), path, length: coming.length, state })
    }
}

/// Parts that lie there, those included that are being written.
fn lying(staged: &Staged) -> Vec<Lying> {
    let Ok(entries) = fs_err::read_dir(staged.dir()) else { return Vec::new() };
    let parts = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let (hash, length) = name.to_str()?.split_once('.')?;
        let (hash, length) = (blake3::Hash::from_hex(hash).ok()?, length.parse().ok()?);
        let meta = entry.metadata().ok()?;
        let (offset, modified) = (meta.len(), meta.modified().ok());
        Some(Lying { hash, path: entry.path(), offset, length, modified })
    });
    parts.collect()
}

/// Whether nobody goes on with a part.
fn is_idle(part: &Lying, writing: &HashMap<blake3::Hash, Arc<Part>>) -> bool {
    let age = part.modified.and_then(|time| time.elapsed().ok());
    !writing.contains_key(&part.hash) && age.is_some_and(|age| age >= IDLE)
}

/// Sees to it that one more part is not too many: those that nobody has gone on
/// with for the longest go.
fn make_room(
    mut parts: Vec<Lying>,
    writing: &HashMap<blake3::Hash, Arc<Part>>,
    length: u64,
    bounds: Bounds,
) -> Result<(), Problem> {
    if length > bounds.bytes {
        let why = format!("at most {} bytes may come in part", bounds.bytes);
        return Err(Problem::new(Code::TooLarge, why));
    }
    parts.sort_by_key(|part| (!is_idle(part, writing), part.modified));
    let mut bytes = parts.iter().map(|part| part.length).fold(length, u64::saturating_add);
    let mut left = parts.len();
    let mut oldest = parts.iter();
    while left >= bounds.parts || bytes > bounds.bytes {
        let full = || Problem::slow_down(IDLE.as_secs(), "too many packs have come in part");
        let part = oldest.next().filter(|part| is_idle(part, writing)).ok_or_else(full)?;
        let _ = fs_err::remove_file(&part.path);
        (bytes, left) = (bytes.saturating_sub(part.length), left - 1);
    }
    Ok(())
}

impl Repository {
    /// How far a pack or bundle has come that somebody sends, or a pack that
    /// somebody has sent.
    ///
    /// # Errors
    /// [`Code::NotFound`] when nothing of it is here.
    pub fn upload(&self, hash: &blake3::Hash) -> Result<Upload, Problem> {
        // In the order in which it becomes what is asked for.
        if let Some(part) = self.uploads.standing(&self.staged, hash) {
            return Ok(part);
        }
        let (store, id) = (self.repo.store(), PackId::from_bytes(*hash.as_bytes()));
        let path = match self.staged.pack(&id)? {
            None if self.is_whole_here(&id)? => Some(store.pack_path(&id)),
            path => path,
        };
        let meta = path.and_then(|path| fs_err::metadata(path).ok());
        let whole = meta.map(|meta| Upload::Whole(meta.len()));
        whole.ok_or_else(|| Problem::not_found(format_args!("upload of {hash}")))
    }

    /// Takes in what comes of a pack, and once all of it has come the pack, as
    /// [`receive`](Self::receive) does.
    ///
    /// # Errors
    /// [`Code::Offset`] when it does not go on there, [`Code::Locked`] when another
    /// one sends it, [`Code::SlowDown`] when there are too many,
    /// [`Code::Rejected`] when all of it is not what its name says; nothing is
    /// left of it then. What came before a body broke off stays.
    pub fn resume(
        &self,
        coming: &Coming,
        bounds: Bounds,
        pieces: Pieces,
    ) -> Result<Resumed<Sent>, Problem> {
        let id = PackId::from_bytes(*coming.hash.as_bytes());
        if self.is_whole_here(&id)? {
            return self.known().map(Resumed::Whole);
        }
        let mut sent = Sent::Known;
        if self.staged.pack(&id)?.is_none() {
            let watch = pieces.observer();
            let keep = |hash, path: &Path| Ok(self.staged.keep(id, hash, path, &*watch)?);
            match self.come(coming, bounds, pieces, keep)? {
                Resumed::Part(offset) => return Ok(Resumed::Part(offset)),
                Resumed::Whole(()) => sent = Sent::New,
            }
        }
        self.pass_on_pack(&id)?;
        Ok(Resumed::Whole(sent))
    }

    /// Takes in what comes of a bundle, and once all of it has come the bundle, as
    /// [`take_bundle`](Self::take_bundle) does.
    ///
    /// # Errors
    /// Those of both. What has come stays where it may be taken in another time
    /// ([`Code::Unavailable`]): a request without a body tries that again.
    pub fn resume_bundle(
        &self,
        coming: &Coming,
        bounds: Bounds,
        pieces: Pieces,
    ) -> Result<Resumed<unpack::Outcome>, Problem> {
        let (watch, most) = (pieces.observer(), bounds.content_bytes);
        self.come(coming, bounds, pieces, |hash, path| {
            if hash != coming.hash {
                return Err(Problem::new(Code::Rejected, "the bytes do not hash to the name"));
            }
            let taken = self.unpack_file(path, (most, &*watch))?;
            // It would be swept after a day.
            let _ = fs_err::remove_file(path);
            Ok(taken)
        })
    }

    /// Takes in what comes; of what has come whole, `take` gets the hash and where
    /// it lies, and puts it elsewhere.
    fn come<T>(
        &self,
        coming: &Coming,
        bounds: Bounds,
        pieces: impl Iterator<Item = Result<Bytes, Problem>>,
        take: impl FnOnce(blake3::Hash, &Path) -> Result<T, Problem>,
    ) -> Result<Resumed<T>, Problem> {
        self.staged.sweep();
        let turn = self.uploads.begin(&self.staged, coming, bounds)?;
        let mut hasher = (coming.offset == 0).then(blake3::Hasher::new);
        let offset = turn.take(pieces, |piece| {
            hasher.as_mut().map(|hasher| hasher.update(piece));
        })?;
        if offset < coming.length {
            return Ok(Resumed::Part(offset));
        }
        let path = &turn.part.path;
        let taken = hash(hasher, path).and_then(|hash| take(hash, path));
        if let Err(problem) = &taken
            && !matches!(problem.code, Code::Unavailable | Code::Locked)
        {
            turn.remove();
        }
        taken.map(Resumed::Whole)
    }

    /// Forgets what there is of a pack or bundle that has not come whole.
    ///
    /// # Errors
    /// [`Code::NotFound`] when there is nothing, [`Code::Locked`] when somebody
    /// sends it.
    pub fn forget_upload(&self, hash: &blake3::Hash) -> Result<(), Problem> {
        match self.uploads.forget(&self.staged, hash)? {
            true => Ok(()),
            false => Err(Problem::not_found(format_args!("upload of {hash}"))),
        }
    }
}

/// The hash of a part that is whole, unless it is known.
fn hash(known: Option<blake3::Hasher>, path: &Path) -> Result<blake3::Hash, Problem> {
    if let Some(hasher) = known {
        return Ok(hasher.finalize());
    }
    let mut hasher = blake3::Hasher::new();
    let read = fs_err::File::open(path).and_then(|file| hasher.update_reader(file).map(drop));
    read.map_err(PathError::when("read", path))?;
    Ok(hasher.finalize())
}
