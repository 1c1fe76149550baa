//! Bundles: downloads and uploads of a commit with its objects.
//!
//! The server lays out a download first, which settles its length, its ETag and the position of
//! each byte. Then the server can copy any range of the bundle from the packs in the store.

use std::{
    collections::{BTreeSet, HashSet},
    io::{self, Read, Write},
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
    format::bundle::{BundleHead, LENGTH_BYTES},
    ops::{
        bundle::{Error, unpack},
        inbox::Adoption,
        reach,
        select::{Gather, PeerHas, SelectedPacks},
    },
    store::{BundleError, BundleReader, Marks, ObjectLocation},
};

use super::Repository;
use crate::{
    body::{BodyPieces, copy_range},
    problem::{Code, HttpProblem},
};

/// The objects that a client already has, to be left out of a bundle.
#[derive(Clone, Debug, Default)]
pub struct ClientObjects {
    /// Commits that the client has, with everything they refer to. Unknown ids are
    /// ignored.
    pub commits: Vec<CommitId>,
    /// Objects that the client has, with everything they refer to.
    pub objects: HashSet<ObjectId>,
}

impl ClientObjects {
    fn is_nothing(&self) -> bool {
        self.commits.is_empty() && self.objects.is_empty()
    }
}

/// A function that writes a range of the pack at a path.
pub type CopyPack<'c> = dyn Fn(&Path, Range<u64>, &mut dyn Write) -> io::Result<()> + 'c;

/// The position of every byte of a bundle: a head, then the length and the bytes of each pack, then
/// a length of 0.
#[derive(Debug)]
pub struct BundleLayout {
    head: Vec<u8>,
    packs: Vec<(PathBuf, u64)>,
    bytes: u64,
    tag: String,
}

impl BundleLayout {
    fn new(head: &BundleHead, packs: Vec<(PackId, PathBuf)>) -> io::Result<Self> {
        let head = head.encode();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&head);
        let mut bytes = (head.len() + LENGTH_BYTES) as u64;
        let mut spans = Vec::with_capacity(packs.len());
        for (id, path) in packs {
            // A pack's name is the hash of its content, so it stands for the content.
            hasher.update(id.as_bytes());
            let pack_bytes = fs_err::metadata(&path)?.len();
            bytes += LENGTH_BYTES as u64 + pack_bytes;
            spans.push((path, pack_bytes));
        }
        let tag = hasher.finalize().to_hex().to_string();
        Ok(Self { head, packs: spans, bytes, tag })
    }

    /// Returns the length of the bundle in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a hash that identifies exactly these bytes, for use as an ETag.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    fn is_there(&self) -> bool {
        let is_there = |(path, bytes): &(PathBuf, u64)| {
            fs_err::metadata(path).is_ok_and(|meta| meta.len() == *bytes)
        };
        self.packs.iter().all(is_there)
    }

    /// Writes a range of the bundle. `copy` writes a range of the pack at a path.
    ///
    /// # Errors
    /// The errors of `out`, and an error when a pack cannot be read.
    pub fn write(
        &self,
        range: &Range<u64>,
        copy: &CopyPack<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut at = write_part(0, &self.head, range, out)?;
        for (path, bytes) in &self.packs {
            at = write_part(at, &bytes.to_le_bytes(), range, out)?;
            let end = at + bytes;
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from < to {
                copy(path, from - at..to - at, out)?;
            }
            at = end;
        }
        write_part(at, &[0; LENGTH_BYTES], range, out).map(drop)
    }
}

/// Writes those of the `bytes` that lie in `range`. The `bytes` begin at the position `at` of the
/// bundle. Returns the position of their end.
fn write_part(at: u64, bytes: &[u8], range: &Range<u64>, out: &mut dyn Write) -> io::Result<u64> {
    let end = at + bytes.len() as u64;
    let (from, to) = (range.start.max(at), range.end.min(end));
    if from < to {
        out.write_all(&bytes[(from - at) as usize..(to - at) as usize])?;
    }
    Ok(end)
}

impl Repository {
    /// Lays out the bundle of a commit without the objects in `have`, and passes it to
    /// `use_it`. The packs stay in place until `use_it` returns. `observer` can cancel
    /// the work.
    ///
    /// # Errors
    /// [`Code::NotFound`] when there is no such commit.
    pub fn with_bundle<T>(
        &self,
        commit: CommitId,
        have: &ClientObjects,
        observer: &dyn Observer,
        use_it: impl FnOnce(&BundleLayout) -> T,
    ) -> Result<T, HttpProblem> {
        let store = self.repo.store();
        // While `_hold` lives, no pack is merged or removed.
        let _hold = store.pin_packs()?;
        let known = self.bundles.get(&commit);
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
        let mut enter = |id: &ObjectId, _: &ObjectLocation| theirs.mark(id);
        reach::visit(store, &since, &mut enter, observer).map_err(Error::from)?;
        let has =
            |id: &ObjectId| Ok(PeerHas::of(have.objects.contains(id) || theirs.is_marked(id)?));
        let scratch = store.dir().join("tmp");
        let (level, lost) = (self.repo.config().compression_level, BTreeSet::new());
        let gather = Gather { scratch: &scratch, level, lost: &lost, collected: None };
        let selection = SelectedPacks::make(store, &[commit], &has, gather, observer);
        let selection = selection.map_err(Error::from)?;
        let (objects, raw_bytes) = (selection.objects, selection.raw_bytes);
        let head = BundleHead { commit, objects, raw_bytes, prerequisites: since };
        let paths = selection.paths();
        let is_whole = selection.whole() == paths.len() as u64;
        let layout =
            BundleLayout::new(&head, paths).map_err(PathError::when("stat", store.dir()))?;
        let layout = Arc::new(layout);
        // Other layouts refer to temporary packs, which are removed with the selection.
        // A path and a length take about 160 bytes for each pack.
        if have.is_nothing() && is_whole {
            let bytes = layout.head.len() + 160 * layout.packs.len();
            self.bundles.insert(commit, Arc::clone(&layout), bytes);
        }
        Ok(use_it(&layout))
    }

    /// Writes a range of a pack that a layout refers to. If a relay has evicted the pack from its
    /// cache in the meantime, it fetches the pack again.
    ///
    /// # Errors
    /// The errors of `out`, and an error when the pack cannot be read.
    pub fn copy_bundle_pack(
        &self,
        path: &Path,
        range: Range<u64>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let id = path.file_name().and_then(|name| name.to_str()?.parse::<PackId>().ok());
        match (&self.upstream, id.filter(|id| self.repo.store().packs().contains(id))) {
            (Some(_), Some(id)) => {
                let (source, _) = self.packs().open(&id).map_err(io::Error::other)?;
                self.packs().copy(&id, &source, range, out)
            }
            _ => copy_range(fs_err::File::open(path)?.file(), range, out),
        }
    }

    /// Unpacks a bundle that a client uploads, until the client disconnects. Moves no
    /// ref. Reads at most `most` bytes of contents to check it.
    ///
    /// # Errors
    /// [`Code::Rejected`] when the bundle is damaged or incomplete, or when its
    /// prerequisites are missing; [`Code::TooLarge`]. Nothing is added in these cases.
    pub fn take_bundle(
        &self,
        pieces: BodyPieces,
        most: u64,
    ) -> Result<unpack::UnpackOutcome, HttpProblem> {
        let watch = pieces.observer();
        let mut input = BodyReader { pieces, rest: bytes::Bytes::new(), problem: None };
        let taken = self.unpack(BundleReader::new(&mut input), most, &*watch);
        match (input.problem, taken) {
            (Some(problem), Err(_)) => Err(problem),
            (_, taken) => taken,
        }
    }

    /// Unpacks a bundle.
    fn unpack(
        &self,
        opened: Result<unpack::OpenedBundle<impl Read>, BundleError>,
        most_bytes: u64,
        observer: &dyn Observer,
    ) -> Result<unpack::UnpackOutcome, HttpProblem> {
        // Fail before the upload if the upstream does not answer.
        self.refresh_for_writer()?;
        let tips = self.refs().all()?.iter().map(|(_, id)| *id).collect();
        let options = unpack::UnpackOptions { tips, most_bytes };
        let prepared = opened
            .map_err(Error::from)
            .and_then(|opened| unpack::prepare(self.repo.store(), opened, &options, observer));
        let prepared = prepared.map_err(not_taken)?;
        let added = match &self.upstream {
            Some(upstream) => {
                let publication = upstream.publish(prepared.own())?;
                publication.followed(prepared.adopt(Adoption::Packs, observer))
            }
            None => {
                let level = self.repo.config().compression_level;
                prepared.adopt(Adoption::NewObjects(level), observer)
            }
        };
        added.map_err(not_taken)
    }
}

/// Returns the problem to report: either the bundle is wrong, or this store failed.
fn not_taken(error: Error) -> HttpProblem {
    if matches!(error, Error::TooMuch { .. }) {
        return HttpProblem::verify_limit(&error);
    }
    let is_theirs = match &error {
        Error::Bundle(error) => {
            matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported)
        }
        Error::Prerequisites { .. } | Error::Broken { .. } | Error::Damaged(_) => true,
        _ => false,
    };
    match is_theirs {
        true => HttpProblem::new(Code::Rejected, error.to_string()),
        false => error.into(),
    }
}

/// A reader over the body of a request.
struct BodyReader {
    pieces: BodyPieces,
    rest: bytes::Bytes,
    /// The error that ended the body.
    problem: Option<HttpProblem>,
}

impl Read for BodyReader {
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
