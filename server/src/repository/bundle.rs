//! A commit as a bundle: laid out first, so that its length, its ETag and any
//! part of it are known, then copied from where the packs lie.

use std::{
    collections::{BTreeSet, HashSet},
    io::{self, BufReader, Read, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        observe::Observer,
    },
    disk::scratch::Scratch,
    format::bundle::{Head, LENGTH_BYTES},
    ops::{
        bundle::{Error, unpack},
        reach,
        select::{Gather, Holding, Selection},
    },
    store::{Marks, Place},
};

use super::Repository;
use crate::{
    body::{Pieces, copy},
    problem::{Code, Problem},
};

/// Bytes of a bundle in a file that are read at a time.
const READ_BYTES: usize = 256 << 10;

/// What somebody has of what a commit refers to.
#[derive(Clone, Debug, Default)]
pub struct Have {
    /// Commits, with all that they refer to. Those that are not here are of no use.
    pub commits: Vec<CommitId>,
    /// Objects, with all that they refer to.
    pub objects: HashSet<ObjectId>,
}

impl Have {
    fn is_nothing(&self) -> bool {
        self.commits.is_empty() && self.objects.is_empty()
    }
}

/// Writes a range of the pack at a path.
pub type CopyPack<'c> = dyn Fn(&Path, Range<u64>, &mut dyn Write) -> io::Result<()> + 'c;

/// Every byte of a bundle.
#[derive(Debug)]
pub struct Layout {
    head: Vec<u8>,
    packs: Vec<(PathBuf, u64)>,
    bytes: u64,
    tag: String,
}

impl Layout {
    fn new(head: &Head, packs: Vec<(PackId, PathBuf)>) -> io::Result<Self> {
        let head = head.encode();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&head);
        let mut bytes = (head.len() + LENGTH_BYTES) as u64;
        let mut spans = Vec::with_capacity(packs.len());
        for (id, path) in packs {
            // A pack's name is the hash of all that is in it.
            hasher.update(id.as_bytes());
            let pack_bytes = fs_err::metadata(&path)?.len();
            bytes += LENGTH_BYTES as u64 + pack_bytes;
            spans.push((path, pack_bytes));
        }
        let tag = hasher.finalize().to_hex().to_string();
        Ok(Self { head, packs: spans, bytes, tag })
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What names these bytes and no others.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    fn is_there(&self) -> bool {
        let is_there = |(path, bytes): &(PathBuf, u64)| {
            fs_err::metadata(path).is_ok_and(|meta| meta.len() == *bytes)
        };
        self.packs.iter().all(is_there)
    }

    /// Writes a part of it. `copy` writes a range of the pack at a path.
    ///
    /// # Errors
    /// Those of `out`, and when a pack cannot be read.
    pub fn write(
        &self,
        range: &Range<u64>,
        copy: &CopyPack<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut at = write_part((0, &self.head), range, out)?;
        for (path, bytes) in &self.packs {
            at = write_part((at, &bytes.to_le_bytes()), range, out)?;
            let end = at + bytes;
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from < to {
                copy(path, from - at..to - at, out)?;
            }
            at = end;
        }
        write_part((at, &[0; LENGTH_BYTES]), range, out).map(drop)
    }
}

/// Writes what of `bytes`, which lie at `at`, is in the range; returns their end.
fn write_part(
    (at, bytes): (u64, &[u8]),
    range: &Range<u64>,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let end = at + bytes.len() as u64;
    let (from, to) = (range.start.max(at), range.end.min(end));
    if from < to {
        out.write_all(&bytes[(from - at) as usize..(to - at) as usize])?;
    }
    Ok(end)
}

impl Repository {
    /// Lays out the bundle of a commit without what somebody has, unless `observer`
    /// cancels that, and hands it to `use_it`; until that returns its packs stay
    /// where they are.
    ///
    /// # Errors
    /// [`Code::NotFound`] when there is no such commit.
    pub fn with_bundle<T>(
        &self,
        commit: CommitId,
        have: &Have,
        observer: &dyn Observer,
        use_it: impl FnOnce(&Layout) -> T,
    ) -> Result<T, Problem> {
        let store = self.repo.store();
        // No pack goes away while this is held.
        let _hold = store.hold_packs()?;
        let known = self.bundles.get(&commit, |id| *id == commit);
        if let Some(layout) = known.filter(|layout| have.is_nothing() && layout.is_there()) {
            return Ok(use_it(&layout));
        }
        let theirs = Marks::new(store);
        let mut since = Vec::new();
        for id in &have.commits {
            if store.locate(&id.object())?.is_some() && store.commit(id).is_ok() {
                since.push(*id);
            }
        }
        since.sort_unstable();
        since.dedup();
        let mut enter = |id: &ObjectId, _: &Place| theirs.mark(id);
        reach::visit(store, &since, &mut enter, observer).map_err(Error::from)?;
        let has =
            |id: &ObjectId| Ok(Holding::of(have.objects.contains(id) || theirs.is_marked(id)?));
        let scratch = store.dir().join("tmp");
        let (level, lost) = (self.repo.config().compression.level, BTreeSet::new());
        let gather = Gather { scratch: &scratch, level, lost: &lost };
        let selection = Selection::make(store, &[commit], &has, gather, observer);
        let selection = selection.map_err(Error::from)?;
        let (objects, raw_bytes) = (selection.objects, selection.raw_bytes);
        let head = Head { commit, objects, raw_bytes, prerequisites: since };
        let paths = selection.paths();
        let is_whole = selection.whole() == paths.len() as u64;
        let layout = Layout::new(&head, paths).map_err(PathError::when("stat", store.dir()))?;
        let layout = Arc::new(layout);
        if have.is_nothing() && is_whole {
            let bytes = layout.head.len() + 160 * layout.packs.len();
            self.bundles.put(&commit, commit, Arc::clone(&layout), bytes);
        }
        Ok(use_it(&layout))
    }

    /// Writes a range of a pack of a bundle. Where the store lies elsewhere the pack
    /// may have made room for others since it was laid out: then it comes again.
    ///
    /// # Errors
    /// Those of `out`, and when it cannot be read.
    pub fn copy_laid(&self, path: &Path, range: Range<u64>, out: &mut dyn Write) -> io::Result<()> {
        let id = path.file_name().and_then(|name| name.to_str()?.parse::<PackId>().ok());
        match (&self.behind, id.filter(|id| self.repo.store().packs().contains(id))) {
            (Some(_), Some(id)) => {
                let (source, _) = self.pack(&id).map_err(io::Error::other)?;
                self.copy_pack((&id, &source), range, out)
            }
            _ => copy(fs_err::File::open(path)?.file(), range, out),
        }
    }

    /// Takes in a bundle that somebody sends, as long as they wait for that. No ref is
    /// moved. No more than `most` bytes of contents are read to check it.
    ///
    /// # Errors
    /// [`Code::Rejected`] when it is damaged, not complete, or builds on what is
    /// not here, [`Code::TooLarge`]; nothing was added then.
    pub fn take_bundle(&self, pieces: Pieces, most: u64) -> Result<unpack::Outcome, Problem> {
        let watch = pieces.observer();
        if let Some(behind) = &self.behind {
            // Nobody sends it in vain.
            behind.look()?;
            return self.unpack_kept(pieces, (most, &*watch));
        }
        let mut input = Input { pieces, rest: bytes::Bytes::new(), problem: None };
        let taken = self.unpack(&mut input, (most, &*watch));
        match (input.problem, taken) {
            (Some(problem), Err(_)) => Err(problem),
            (_, taken) => taken,
        }
    }

    /// Keeps a bundle until all of it has come, and then takes it in: while packs
    /// are added nothing is removed from the cache, and nobody else adds any.
    fn unpack_kept(
        &self,
        pieces: Pieces,
        check: (u64, &dyn Observer),
    ) -> Result<unpack::Outcome, Problem> {
        let scratch = Scratch::create(&self.repo.store().dir().join("tmp"))?;
        let path = scratch.path().join("bundle");
        let failed = || PathError::when("write", &path);
        let mut file = fs_err::File::create_new(&path).map_err(failed())?;
        for piece in pieces {
            file.write_all(&piece?).map_err(failed())?;
        }
        self.unpack_file(&path, check)
    }

    /// Takes in a bundle that lies in a file.
    pub(super) fn unpack_file(
        &self,
        path: &Path,
        check: (u64, &dyn Observer),
    ) -> Result<unpack::Outcome, Problem> {
        let file = fs_err::File::open(path).map_err(PathError::when("open", path))?;
        self.unpack(&mut BufReader::with_capacity(READ_BYTES, file), check)
    }

    /// Takes in a bundle from where it can be read; before an upstream, where all of
    /// it is here.
    fn unpack(
        &self,
        input: &mut dyn Read,
        (most_bytes, observer): (u64, &dyn Observer),
    ) -> Result<unpack::Outcome, Problem> {
        if let Some(behind) = &self.behind {
            // It may refer to what came through another server.
            behind.look()?;
        }
        let tips = self.refs()?.into_iter().map(|(_, id)| id).collect();
        let level = self.repo.config().compression.level;
        let options = unpack::Options { tips, level, most_bytes };
        let prepared = unpack::prepare(self.repo.store(), input, &options, observer);
        let prepared = prepared.map_err(not_taken)?;
        let _one_at_a_time = self.behind.is_some().then(|| self.staged.publishing()).transpose()?;
        self.pass_on(|| prepared.adopt(observer).map_err(not_taken))
    }
}

/// Why a bundle was not taken: either it is wrong, or the store is.
fn not_taken(error: Error) -> Problem {
    if matches!(error, Error::TooMuch { .. }) {
        return Problem::too_much(&error);
    }
    let is_theirs = match &error {
        Error::Bundle(error) => {
            matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported)
        }
        Error::Prerequisites { .. } | Error::Broken { .. } | Error::Damaged(_) => true,
        _ => false,
    };
    match is_theirs {
        true => Problem::new(Code::Rejected, error.to_string()),
        false => error.into(),
    }
}

/// What somebody sends, to be read.
struct Input {
    pieces: Pieces,
    rest: bytes::Bytes,
    /// Why there is no more.
    problem: Option<Problem>,
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.next() {
                None => return Ok(0),
                Some(Ok(piece)) => self.rest = piece,
                Some(Err(problem)) => {
                    self.problem = Some(problem);
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
        let some = out.len().min(self.rest.len());
        out[..some].copy_from_slice(&self.rest.split_to(some));
        Ok(some)
    }
}
