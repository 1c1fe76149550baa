//! Reads the new files of the index of a remote store into its mirror.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use snap_core::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        limits,
    },
    disk::scratch::Scratch,
    format::{
        gc_state::Phase,
        outline::{self, GroupFile, Name, OutlineFile},
        ref_text::FIRST_EPOCH,
        wire::FormatError,
    },
    store::StoreError,
};

use super::{
    INDEX, IndexContent, IndexListing, Mirror, Peer, RemoteError,
    bucket::{
        epoch::GC_STATE,
        index::{GROUP, PART, file_bytes, name_of},
    },
    gc_view::IndexedFile,
    known::Known,
};
use crate::bucket::{FailureReason, ListedObject, ServiceError};

/// Maximum number of listings of the index, if a listed file is missing.
const LISTINGS: u32 = 5;

/// Initial pause before another listing; the pause doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of objects to remember of each pack that no index file lists any more.
const UNTOLD_OBJECTS: usize = 100;

/// Number of files to read concurrently. Each is in memory.
const FILES_AT_ONCE: usize = 12;

/// One reading of the index.
pub(super) struct CatchUp<'a> {
    pub(super) peer: &'a Arc<dyn Peer>,
    pub(super) known: &'a mut Known,
    pub(super) location: &'a str,
    /// Damaged index files with unknown packs, which the reading skips.
    pub(super) passed_over: &'a mut BTreeSet<String>,
    /// Errors of damaged index files by name, if the reading skips damage; `None` if it fails
    /// instead.
    pub(super) damaged: Option<BTreeMap<String, RemoteError>>,
    /// If true, the mirror stays when the remote store is gone.
    pub(super) is_kept: bool,
}

impl CatchUp<'_> {
    /// Lists the index, and reads the new files.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if a file does not match its name; [`RemoteError::Vanished`] if a
    /// file is listed repeatedly but does not exist; [`RemoteError::Emptied`] for a store whose mirror
    /// is kept.
    pub(super) async fn refresh(&mut self) -> Result<(), RemoteError> {
        let listing = self.peer.list_index().await?;
        self.take_in_listed(listing).await
    }

    /// Reads new files like [`Self::refresh`], but skips damaged and missing files of the index,
    /// and returns an error for each. Reads known files again that were damaged before; with `all`,
    /// every known file.
    ///
    /// # Errors
    /// As [`Self::refresh`], without [`RemoteError::Damaged`].
    pub(super) async fn refresh_around_damage(
        &mut self,
        all: bool,
    ) -> Result<Vec<RemoteError>, RemoteError> {
        self.damaged = Some(BTreeMap::new());
        self.refresh().await?;
        let mut damaged = self.damaged.take().unwrap_or_default();
        self.check_known(all, &mut damaged).await?;
        let names: Vec<String> = damaged.keys().cloned().collect();
        self.known.mirror.note_damaged_index(&names)?;
        Ok(damaged.into_values().collect())
    }

    /// Marks known files of the index as damaged if the listing has a wrong length. Sends no
    /// request, unless the listing has no lengths.
    pub(super) async fn note_wrong_lengths(&self) -> Result<(), RemoteError> {
        let mut damaged: BTreeSet<String> = self.known.mirror.damaged_index().into_iter().collect();
        let before = damaged.len();
        damaged.extend(self.wrong_lengths(&|_| true).await?.into_keys());
        if damaged.len() > before {
            self.known.mirror.note_damaged_index(&damaged.into_iter().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Compares the listed lengths of known files of the index, except groups, with the right
    /// lengths. Returns an error for each wrong one.
    async fn wrong_lengths(
        &self,
        is_checked: &dyn Fn(&String) -> bool,
    ) -> Result<BTreeMap<String, RemoteError>, RemoteError> {
        let known = self.known.mirror.files();
        let gc = self.known.mirror.gc();
        let mut wrong = BTreeMap::new();
        for (name, bytes) in &self.known.listed {
            let Some(IndexedFile { epoch, packs }) = known.get(name) else { continue };
            // The mirror has no outlines of packs that are going.
            if gc.as_ref().is_some_and(|gc| !packs.is_disjoint(&gc.table.going)) {
                continue;
            }
            if name.ends_with(GROUP) || !is_checked(name) {
                continue;
            }
            let outlines: Vec<_> =
                packs.iter().map(|id| (self.known.mirror.store(), *id)).collect();
            let expected = file_bytes(*epoch, &outlines)?;
            // Zero means an empty file, or a service whose listings have no lengths.
            let found = match bytes {
                0 => self.peer.index_file_bytes(name).await?.unwrap_or(0),
                bytes => *bytes,
            };
            if found != expected {
                let (key, location) = (format!("{INDEX}{name}"), self.location.to_owned());
                let why = format!("it has {found} B instead of {expected} B");
                wrong.insert(name.clone(), RemoteError::Damaged { key, location, why });
            }
        }
        Ok(wrong)
    }

    /// Checks the known files of the index. With `all`, and for files that were damaged before,
    /// reads every byte, including the parts of groups. Otherwise checks only the lengths of files
    /// and the listing of the parts.
    async fn check_known(
        &self,
        all: bool,
        damaged: &mut BTreeMap<String, RemoteError>,
    ) -> Result<(), RemoteError> {
        let known = self.known.mirror.outlines();
        let noted: BTreeSet<String> = self.known.mirror.damaged_index().into_iter().collect();
        let is_read_whole = |name: &String| all || noted.contains(name);
        // Only the group file lists the parts that must exist.
        let is_read = |name: &String| is_read_whole(name) || name.ends_with(GROUP);
        let listed = || self.known.listed.keys().filter(|name| known.contains_key(*name));
        let to_read = listed().filter(|name| is_read(name));
        let to_read =
            to_read.map(|name| (name.clone(), limits::REMOTE_INDEX_BYTES)).collect::<Vec<_>>();
        damaged.extend(self.wrong_lengths(&|name| !is_read(name)).await?);
        let mut groups = BTreeMap::new();
        let mut files = self.files(to_read);
        while let Some((name, read)) = files.next().await {
            let Some(read) = read.map(file_of).transpose() else { continue };
            let checked = match name.ends_with(GROUP) {
                true => self.check_read(&name, read, outline::decode_group).map(|group| {
                    let parts = group.parts.iter().map(|part| format!("{part}{PART}"));
                    groups.extend(parts.map(|part| (part, name.clone())));
                }),
                false => self.check_read(&name, read, |_| Ok(())),
            };
            note(&name, checked, damaged)?;
        }
        let (to_read, to_find): (Vec<_>, Vec<_>) =
            groups.iter().partition(|(_, group)| is_read_whole(group));
        for (part, group) in to_find {
            // The listing may be out of date.
            if !self.known.listed_parts.contains(part)
                && self.peer.index_file_bytes(part).await?.is_none()
            {
                note(group, Err::<(), _>(self.lost(part)), damaged)?;
            }
        }
        let to_read = to_read.into_iter();
        let to_read = to_read.map(|(part, _)| (part.clone(), limits::REMOTE_INDEX_BYTES));
        let mut files = self.files(to_read.collect());
        while let Some((part, read)) = files.next().await {
            let Some(read) = read.map(file_of).transpose() else { continue };
            let checked = self.check_read(&part, read, |_| Ok(()));
            note(&groups[&part], checked, damaged)?;
        }
        Ok(())
    }

    /// Checks a known file of the index after a read.
    fn check_read<T>(
        &self,
        name: &str,
        read: Result<Bytes, ServiceError>,
        decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, RemoteError> {
        match read {
            Ok(bytes) => self.check(name, &bytes, decode),
            Err(error) if error.reason == FailureReason::NotFound => Err(self.lost(name)),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the error for a missing file of the index or part of a group.
    fn lost(&self, name: &str) -> RemoteError {
        let (key, location) = (format!("{INDEX}{name}"), self.location.to_owned());
        RemoteError::Damaged { key, location, why: "it is missing".to_owned() }
    }

    /// Records a damaged file of the index in [`RemoteStore::refresh_around_damage`]; fails
    /// otherwise.
    fn pass_over<T>(
        &mut self,
        name: &str,
        result: Result<T, RemoteError>,
    ) -> Result<Option<T>, RemoteError> {
        match (result, &mut self.damaged) {
            (Err(error), Some(damaged)) if error.is_of_object() => {
                // Keep the first error, because the loop may list the index and read the file
                // again.
                damaged.entry(name.to_owned()).or_insert(error);
                Ok(None)
            }
            (result, _) => result.map(Some),
        }
    }

    /// Reads the new files of a listing, and forgets the files that are gone. Then reads the garbage
    /// collection state if the listing has files of a later epoch, or while a collection goes on: it may
    /// have deleted packs, and listed their objects elsewhere. Also reads it if the store was set back to
    /// an older copy, which has packs that the mirror knows as deleted.
    pub(super) async fn take_in_listed(
        &mut self,
        listing: IndexListing,
    ) -> Result<(), RemoteError> {
        self.known.was_collected = listing.was_collected;
        self.take_in(listing.files).await?;
        let known = self.known.mirror.gc();
        let is_going_on = known.as_ref().is_some_and(|gc| gc.state.phase == Phase::Fenced);
        let is_set_back = self.known.lists_only_older_epochs();
        if !is_going_on && !self.known.lists_newer_epoch() && !is_set_back {
            return Ok(());
        }
        let is_lost = !self.peer.learn_epoch(self.known).await?;
        if is_lost && self.damaged.is_none() && self.known.lists_newer_epoch() {
            return Err(self.lost_state());
        }
        let is_new = self.known.mirror.gc() != known;
        if is_new && is_set_back {
            self.known.mirror.reset()?;
            self.known.mirror.remember_seen();
        }
        if is_new && (is_set_back || !self.known.knows_named_files()) {
            let listing = self.peer.list_index().await?;
            self.take_in(listing.files).await?;
        }
        Ok(())
    }

    async fn take_in(&mut self, listed: Vec<ListedObject>) -> Result<(), RemoteError> {
        let (mut listed, mut pause) = (self.names(listed), PAUSE);
        let (mut uncovered, mut shadowed, mut may_lack) = (Vec::new(), None, false);
        // The loop ends once no listed file is missing and the listing covers all packs in the
        // mirror.
        for number in 1.. {
            let gone = self.read_new(&listed).await?;
            if gone.is_empty() && self.are_covered(&listed).await? {
                break;
            }
            if number >= LISTINGS {
                self.pass_over_gone(gone)?;
                continue;
            }
            if gone.is_empty() && self.has_been_collected().await? {
                // A collector has removed index files. Nothing is lost.
                self.known.mirror.forget(&self.unlisted(&listed))?;
                self.known.mirror.drop_unlisted()?;
                continue;
            }
            if gone.is_empty() {
                if self.is_kept {
                    self.must_exist().await?;
                }
                let objects = self.uncovered_objects(&listed)?;
                may_lack |= objects.is_none();
                uncovered.extend(objects.into_iter().flatten());
                shadowed.get_or_insert_with(|| self.known.mirror.store().shadows());
                // The store may be on a disk that is not mounted now.
                let was_seen = self.known.mirror.was_seen();
                self.known.mirror.reset()?;
                if was_seen {
                    self.known.mirror.remember_seen();
                }
                continue;
            }
            // A push merged the file into another one after the listing.
            if number > 1 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            let again = self.peer.list_index().await?;
            listed = self.names(again.files);
        }
        if let Some(shadowed) = shadowed {
            self.known.mirror.restore_shadows(&shadowed.table)?;
        }
        if !listed.is_empty() {
            self.known.mirror.remember_seen();
            if may_lack || self.lacks_any(&uncovered)? {
                // An index file and its packs are lost.
                self.known.mirror.remember_damage();
            }
        }
        self.known.mirror.forget(&self.unlisted(&listed))?;
        self.known.listed = listed;
        Ok(())
    }

    /// Returns the names of known index files that a listing lacks.
    fn unlisted(&self, listed: &BTreeMap<String, u64>) -> Vec<String> {
        let known = self.known.mirror.files().into_keys();
        known.filter(|name| !listed.contains_key(name)).collect()
    }

    /// Returns true if the listed files cover all packs in the mirror. If not, another client has
    /// emptied the remote store.
    async fn are_covered(&self, listed: &BTreeMap<String, u64>) -> Result<bool, RemoteError> {
        let known = self.known.mirror.outlines();
        let (here, gone): (Vec<_>, Vec<_>) =
            known.iter().partition(|(name, _)| listed.contains_key(*name));
        let mut covered: BTreeSet<PackId> =
            here.into_iter().flat_map(|(_, packs)| packs).copied().collect();
        for (name, packs) in gone {
            // Another file lists these packs, because a push merged the file away.
            if packs.is_subset(&covered) {
                continue;
            }
            // The listing may be out of date.
            if self.peer.index_file_bytes(name).await?.is_none() {
                return Ok(false);
            }
            covered.extend(packs);
        }
        Ok(true)
    }

    /// Returns some objects of each pack in the mirror that no listed file covers. Returns `None`
    /// if the mirror is damaged.
    fn uncovered_objects(
        &self,
        listed: &BTreeMap<String, u64>,
    ) -> Result<Option<Vec<ObjectId>>, RemoteError> {
        let known = self.known.mirror.outlines();
        let (here, gone): (Vec<_>, Vec<_>) =
            known.iter().partition(|(name, _)| listed.contains_key(*name));
        let listed_packs: BTreeSet<&PackId> =
            here.into_iter().flat_map(|(_, packs)| packs).collect();
        let gone: BTreeSet<&PackId> = gone.into_iter().flat_map(|(_, packs)| packs).collect();
        let mut objects = Vec::new();
        for id in gone.difference(&listed_packs) {
            let pack = self.known.mirror.store().open_pack(id);
            let tables = pack.and_then(|pack| pack.objects());
            // Another reader of the mirror has read the index already, and dropped the stub.
            if matches!(tables, Err(StoreError::Gone { .. })) {
                continue;
            }
            // If the mirror itself is damaged, the objects are unknown.
            if tables.as_ref().is_err_and(|error| error.damaged_pack().is_some()) {
                return Ok(None);
            }
            objects.extend(tables?.iter().take(UNTOLD_OBJECTS).map(|object| object.id));
        }
        Ok(Some(objects))
    }

    /// Returns the names and lengths of files and groups in a listing. Remembers the parts.
    fn names(&mut self, listed: Vec<ListedObject>) -> BTreeMap<String, u64> {
        self.known.listed_parts.clear();
        let mut files = BTreeMap::new();
        for object in listed {
            let Some(name) = object.key.strip_prefix(INDEX) else { continue };
            let is_name = |text: &str| text.parse::<Name>().is_ok();
            if name.strip_suffix(PART).is_some_and(is_name) {
                self.known.listed_parts.insert(name.to_owned());
            } else if is_name(name.strip_suffix(GROUP).unwrap_or(name)) {
                files.insert(name.to_owned(), object.bytes);
            }
        }
        files
    }

    fn lacks_any(&self, objects: &[ObjectId]) -> Result<bool, RemoteError> {
        for id in objects {
            if !self.known.mirror.has(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Skips files of the index that are listed repeatedly but do not exist, in
    /// [`RemoteStore::refresh_around_damage`]; fails otherwise.
    fn pass_over_gone(&mut self, gone: Vec<MissingIndexFile>) -> Result<(), RemoteError> {
        let is_any = !gone.is_empty();
        for MissingIndexFile { name, key } in gone {
            let error = RemoteError::Vanished { key, location: self.location.to_owned() };
            let Some(damaged) = &mut self.damaged else { return Err(error) };
            damaged.entry(name.clone()).or_insert(error);
            self.passed_over.insert(name);
        }
        match is_any {
            true => Ok(()),
            // The known packs appear and disappear from listing to listing.
            false => {
                let (key, location) = (INDEX.to_owned(), self.location.to_owned());
                Err(RemoteError::Vanished { key, location })
            }
        }
    }

    /// Reads the unknown files. Returns the files that do not exist.
    async fn read_new(
        &mut self,
        listed: &BTreeMap<String, u64>,
    ) -> Result<Vec<MissingIndexFile>, RemoteError> {
        let mut new = Vec::new();
        for (name, bytes) in listed {
            if self.known.mirror.knows(name) || self.passed_over.contains(name) {
                continue;
            }
            if *bytes > limits::REMOTE_INDEX_BYTES {
                let (key, location) = (format!("{INDEX}{name}"), self.location.to_owned());
                let why = format!("its length of {bytes} B exceeds the limit");
                self.pass_over::<()>(name, Err(RemoteError::Damaged { key, location, why }))?;
                continue;
            }
            // Some listings have no lengths.
            let most = if *bytes > 0 { *bytes } else { limits::REMOTE_INDEX_BYTES };
            new.push((name.clone(), most));
        }
        let mut files = self.files(new);
        let mut gone = Vec::new();
        while let Some((name, read)) = files.next().await {
            match read {
                Ok(IndexContent::File(bytes)) if name.ends_with(GROUP) => {
                    let taken = take_in_group(
                        &**self.peer,
                        &self.known.mirror,
                        &name,
                        &bytes,
                        self.location,
                    )
                    .await;
                    if let Some(part) = self.pass_over(&name, taken)?.flatten() {
                        gone.push(MissingIndexFile { name, key: format!("{INDEX}{part}") });
                    }
                }
                Ok(IndexContent::Pack(outline)) => {
                    let outlines = [Ok::<_, RemoteError>(vec![*outline])];
                    self.known.mirror.add(&name, FIRST_EPOCH, outlines)?;
                }
                Ok(IndexContent::File(bytes)) => {
                    let outlines = self.check(&name, &bytes, outline::decode);
                    let Some(file) = self.pass_over(&name, outlines)? else { continue };
                    let OutlineFile { epoch, outlines } = file;
                    self.known.mirror.add(&name, epoch, [Ok::<_, RemoteError>(outlines)])?;
                }
                Err(error) if error.reason == FailureReason::NotFound => {
                    let key = format!("{INDEX}{name}");
                    gone.push(MissingIndexFile { name, key });
                }
                Err(error) => drop(self.pass_over::<()>(&name, Err(error.into()))?),
            }
        }
        Ok(gone)
    }

    /// Returns true if the store has a garbage collection state. Asks once for each listing that
    /// lacks packs.
    async fn has_been_collected(&self) -> Result<bool, RemoteError> {
        Ok(self.peer.learn_epoch(self.known).await? && self.known.mirror.gc().is_some())
    }

    async fn must_exist(&self) -> Result<(), RemoteError> {
        match self.peer.config().await? {
            Some(_) => Ok(()),
            None => Err(RemoteError::Emptied { location: self.location.to_owned() }),
        }
    }

    /// Creates the error for a lost state of garbage collection.
    fn lost_state(&self) -> RemoteError {
        let (key, location) = (GC_STATE.to_owned(), self.location.to_owned());
        RemoteError::Damaged { key, location, why: "it is missing".to_owned() }
    }

    /// Reads index files up to the given lengths, several concurrently and in any order.
    fn files(
        &self,
        names: Vec<(String, u64)>,
    ) -> impl Stream<Item = (String, Result<IndexContent, ServiceError>)> + use<> {
        let peer = Arc::clone(self.peer);
        let reads = stream::iter(names).map(move |(name, most)| {
            let peer = Arc::clone(&peer);
            // Use a task, so that other files arrive while the caller processes one.
            let read = tokio::spawn(async move {
                let read = read_twice(&*peer, &name, most).await;
                (name, read)
            });
            async move { read.await.expect("reading does not panic") }
        });
        reads.buffer_unordered(FILES_AT_ONCE)
    }

    fn check<T>(
        &self,
        name: &str,
        bytes: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, RemoteError> {
        check_index_file((name, self.location), bytes, decode)
    }
}

/// Reads an index file. If it does not hash to its name, reads it once more: a bit may have flipped in
/// transit.
async fn read_twice(peer: &dyn Peer, name: &str, most: u64) -> Result<IndexContent, ServiceError> {
    match peer.read_index(name, most).await? {
        IndexContent::File(bytes) if !is_named(&bytes, name) => peer.read_index(name, most).await,
        content => Ok(content),
    }
}

/// Reads the parts of a group. The parts become visible together, so they wait in scratch files
/// until all have arrived. Returns the name of a missing part.
pub(super) async fn take_in_group(
    peer: &dyn Peer,
    mirror: &Mirror,
    group: &str,
    bytes: &[u8],
    location: &str,
) -> Result<Option<String>, RemoteError> {
    let GroupFile { epoch, parts } =
        check_index_file((group, location), bytes, outline::decode_group)?;
    let scratch = Scratch::create(&mirror.store().dir().join("tmp"))?;
    let path = |name: &Name| -> PathBuf { scratch.path().join(name.to_string()) };
    let reads = parts.clone().into_iter().map(|name| async move {
        let name = format!("{name}{PART}");
        let read = read_twice(peer, &name, limits::REMOTE_INDEX_BYTES).await;
        (name, read)
    });
    let mut files = stream::iter(reads).buffer_unordered(FILES_AT_ONCE);
    while let Some((name, read)) = files.next().await {
        match read {
            Ok(IndexContent::File(bytes)) => {
                // The loop below checks the bytes.
                let path = scratch.path().join(name.trim_end_matches(PART));
                fs_err::write(&path, &bytes).map_err(PathError::when("write", &path))?;
            }
            // A store that lists packs has no groups.
            Ok(IndexContent::Pack(_)) => return Ok(Some(name)),
            Err(error) if error.reason == FailureReason::NotFound => return Ok(Some(name)),
            Err(error) => return Err(error.into()),
        }
    }
    let outlines = parts.iter().map(|name| {
        let path = path(name);
        let bytes = fs_err::read(&path).map_err(PathError::when("read", &path))?;
        let part = check_index_file((&format!("{name}{PART}"), location), &bytes, outline::decode)?;
        Ok::<_, RemoteError>(part.outlines)
    });
    mirror.add(group, epoch, outlines)?;
    Ok(None)
}

/// Returns the bytes of a file of the index; `None` for an outline, which the store has just built.
fn file_of(content: IndexContent) -> Option<Bytes> {
    match content {
        IndexContent::File(bytes) => Some(bytes),
        IndexContent::Pack(_) => None,
    }
}

/// Checks that an index file hashes to its name, and decodes it.
pub(super) fn check_index_file<T>(
    (name, location): (&str, &str),
    bytes: &[u8],
    decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
) -> Result<T, RemoteError> {
    let key = format!("{INDEX}{name}");
    if !is_named(bytes, name) {
        let why = "its bytes do not hash to its name".to_owned();
        return Err(RemoteError::Damaged { key, location: location.to_owned(), why });
    }
    decode(bytes).map_err(|error| RemoteError::of_format(&key, location, error))
}

/// A listed index file that is unusable because an object is missing.
struct MissingIndexFile {
    /// The name of the file.
    name: String,
    /// The missing key: the file's own, or that of one of its parts.
    key: String,
}

/// Returns true if the bytes of an index file hash to its name.
fn is_named(bytes: &[u8], name: &str) -> bool {
    name_of(bytes) == name.split('.').next().unwrap_or_default()
}

/// Records the error of a damaged index file.
///
/// # Errors
/// Any other error.
fn note<T>(
    name: &str,
    checked: Result<T, RemoteError>,
    damaged: &mut BTreeMap<String, RemoteError>,
) -> Result<(), RemoteError> {
    match checked {
        Err(error) if error.is_of_object() => drop(damaged.insert(name.to_owned(), error)),
        other => drop(other?),
    }
    Ok(())
}
