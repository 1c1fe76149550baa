//! Proofs: the record of the packs that this machine has hashed.
//!
//! A pack from another machine can have objects whose bytes do not match their ids. Readers hash the
//! objects that they read. A writer skips a stored object without reading it, so it may rely only on
//! *proven* packs. This machine has written a proven pack, has received and hashed it, or has hashed
//! it in `verify --data`. The wrong objects of a proven pack are [shadowed](super::shadow).
//!
//! In any other pack, for example of a copied store, a writer treats an object as stored after this
//! open store has hashed the object ([`Store::is_stored`]), or this machine all objects of the pack
//! ([`Store::hash_unproven_packs`]).
//!
//! The file `cache/proven` has a line for each hashed pack, as in [`PackCheck`]. The file is a cache:
//! a pack without a line is not proven, and a line counts only if its identity is that of the present
//! pack file. The maker of an archive cannot foresee the inode and the birth time of an extracted
//! file.

use std::{
    collections::{BTreeMap, HashSet},
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    disk::{made_here::birth_nanos, output::folder_of, regular::read_at_most},
    format::pack::PackedObject,
    store::{
        PackFile, PackStream, Store, StoreError,
        catalog::{Catalog, PackSlot},
        damage,
        pack_reader::Completeness,
    },
};

/// Name of the file in `cache/`.
const FILE: &str = "proven";

/// Number of lines in excess of twice the number of packs at which the file is rewritten with one
/// line for each present pack.
const STALE_LINES: usize = 64;

/// Maximum size of the set of hashed objects of unproven packs. A full set is cleared.
const HASHED_OBJECTS: usize = 1 << 16;

/// The last complete check of a pack. In a file, it is a line `PACK SECS IDENTITY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackCheck {
    /// Time of the check in seconds since 1970.
    pub secs: i64,
    /// Identity of the checked file; see [`identity_of`].
    pub identity: String,
}

/// The last check of each pack, by pack id.
pub type PackChecks = BTreeMap<PackId, PackCheck>;

impl PackCheck {
    /// Returns the line of this check, including the newline.
    pub fn line(&self, pack: &PackId) -> String {
        format!("{pack} {} {}\n", self.secs, self.identity)
    }

    /// Reads a file with one check a line, as [`PackCheck::line`] writes it. Ignores malformed
    /// lines, and keeps the last line of each pack. A file that cannot be read or is too long counts
    /// as empty.
    pub fn read_all(path: &Path) -> PackChecks {
        let bytes = read_at_most(path, limits::CHECK_LOG_BYTES).unwrap_or_default();
        let parse = |line: &str| {
            let mut words = line.split(' ');
            let (id, secs, identity) = (words.next()?, words.next()?, words.next()?);
            let check = Self { secs: secs.parse().ok()?, identity: identity.to_owned() };
            words.next().is_none().then_some((id.parse().ok()?, check))
        };
        String::from_utf8_lossy(&bytes).lines().filter_map(parse).collect()
    }
}

/// Returns the identity of a file: its inode and its birth time, or its ctime on a file system
/// without birth times. A copy of the file has a different identity.
pub fn identity_of(file: &Metadata) -> String {
    match birth_nanos(file) {
        Some(born) => format!("{}:{born}", file.ino()),
        None => format!("{}:c{}.{:09}", file.ino(), file.ctime(), file.ctime_nsec()),
    }
}

/// The file of proven packs of a store.
#[derive(Debug, Default)]
pub(super) struct ProvenPacks {
    pub(super) path: Option<PathBuf>,
    known: Mutex<KnownProofs>,
}

#[derive(Debug, Default)]
struct KnownProofs {
    /// Length of the file when it was read.
    file_bytes: u64,
    checks: PackChecks,
}

impl ProvenPacks {
    /// Creates the record of the store in `dir`, without reading the file.
    pub(super) fn of(dir: &Path) -> Self {
        Self { path: Some(dir.join("cache").join(FILE)), known: Mutex::default() }
    }

    /// Returns true if the file `pack` is proven.
    fn has(&self, id: &PackId, pack: &Path) -> bool {
        let Some(path) = &self.path else { return false };
        let Ok(file) = fs_err::metadata(pack) else { return false };
        let identity = identity_of(&file);
        let mut known = self.known.lock();
        let is_known = |known: &KnownProofs| {
            known.checks.get(id).is_some_and(|check| check.identity == identity)
        };
        if is_known(&known) {
            return true;
        }
        // Another process may have added lines.
        let file_bytes = fs_err::metadata(path).map_or(0, |meta| meta.len());
        if file_bytes == known.file_bytes {
            return false;
        }
        *known = KnownProofs { file_bytes, checks: PackCheck::read_all(path) };
        is_known(&known)
    }
}

impl Catalog {
    /// Returns true if the pack in a slot is proven.
    pub(super) fn is_proven(&self, slot: &PackSlot) -> bool {
        *slot.proof.lock().get_or_insert_with(|| {
            let is_file = slot.completeness == Completeness::Whole && slot.span.is_none();
            is_file && self.proven.has(&slot.id, &slot.path)
        })
    }
}

impl Store {
    /// Returns true if this machine has hashed every object of a pack.
    pub fn is_proven(&self, pack: &PackId) -> bool {
        let catalog = self.catalog();
        catalog.slot(pack).is_some_and(|slot| catalog.is_proven(slot))
    }

    /// Records that this machine has just hashed every object of packs. The caller must have shadowed
    /// their wrong objects, durably. If the file cannot be written, the proof holds for this open
    /// store only.
    pub fn record_proven(&self, packs: &[PackId]) {
        let catalog = self.catalog();
        let secs = Time::now().secs;
        let mut lines = String::new();
        for id in packs {
            let Some(slot) =
                catalog.slot(id).filter(|slot| slot.completeness == Completeness::Whole)
            else {
                continue;
            };
            *slot.proof.lock() = Some(true);
            if let Ok(file) = fs_err::metadata(&slot.path) {
                lines.push_str(&PackCheck { secs, identity: identity_of(&file) }.line(id));
            }
        }
        // The file is a cache: a pack without a line is hashed again when needed.
        let _ = self.append_proven(&catalog, &lines);
    }

    fn append_proven(&self, catalog: &Catalog, lines: &str) -> Result<(), PathError> {
        let Some(path) = catalog.proven.path.as_ref().filter(|_| !lines.is_empty()) else {
            return Ok(());
        };
        self.disk().create_folders(folder_of(path))?;
        let mut file = self.disk().append(path)?;
        file.write(lines.as_bytes())?;
        let file_bytes = file.file().metadata().map_or(0, |meta| meta.len());
        let average = lines.len() / lines.lines().count();
        if file_bytes as usize / average <= 2 * catalog.numbers.len() + STALE_LINES {
            return Ok(());
        }
        let mut checks = PackCheck::read_all(path);
        checks.retain(|id, _| catalog.numbers.contains_key(id));
        let text: String = checks.iter().map(|(id, check)| check.line(id)).collect();
        self.disk().write_unsynced(&self.layout().tmp, path, text.as_bytes())
    }

    /// Returns true if a writer may skip an object: a whole pack has an unshadowed copy, and this
    /// machine has hashed that copy. Hashes an object of an unproven pack now, and shadows a wrong
    /// object for this open store.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn is_stored(&self, id: &ObjectId) -> Result<bool, StoreError> {
        self.is_stored_or(id, &|error| {
            self.shadow_in_memory(error);
            Ok(())
        })
    }

    /// Like [`Store::is_stored`], but calls `shadow` with the error of each wrong object, to shadow
    /// it.
    pub(super) fn is_stored_or(
        &self,
        id: &ObjectId,
        shadow: &dyn Fn(&StoreError) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        for _ in 0..limits::MERGE_RETRIES {
            let Some((place, is_proven)) = self.locate_for_writers(id)? else { return Ok(false) };
            if is_proven || self.hashed.lock().contains(&(*id, place.pack)) {
                return Ok(true);
            }
            match self.object_at(id, &place) {
                Ok(_) => {
                    let mut hashed = self.hashed.lock();
                    if hashed.len() >= HASHED_OBJECTS {
                        hashed.clear();
                    }
                    hashed.insert((*id, place.pack));
                    return Ok(true);
                }
                Err(StoreError::Gone { .. }) => self.refresh()?,
                // The next round looks at another copy.
                Err(error) if damage(&error).is_some() => shadow(&error)?,
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Returns true if a whole pack, proven or not, has an unshadowed copy of an object.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn is_in_whole_pack(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.locate_for_writers(id)?.is_some())
    }

    /// Hashes the objects of all whole packs that this machine has not hashed, and records the
    /// proofs. Shadows wrong objects, durably. An operation that looks up most objects of a store
    /// calls this function first, so that each frame is read once. Ends early when the user asks to
    /// stop.
    ///
    /// # Errors
    /// [`StoreError`] when the shadow table cannot be written.
    pub fn hash_unproven_packs(&self, observer: &dyn Observer) -> Result<(), StoreError> {
        // Lookups hash the other objects of a damaged pack one by one.
        let mut shadow = |_: &PackId, error| self.shadow_damage(&error).map(drop);
        self.prove_packs(self.packs(), &mut shadow, observer)
    }

    /// Hashes the objects of those of `packs` that are whole and that this machine has not hashed, and
    /// records the proofs. Passes the error of a pack to `refused`. Ends early when the user asks to
    /// stop.
    ///
    /// # Errors
    /// Those of `refused`.
    pub fn prove_packs(
        &self,
        mut packs: Vec<PackId>,
        refused: &mut dyn FnMut(&PackId, StoreError) -> Result<(), StoreError>,
        observer: &dyn Observer,
    ) -> Result<(), StoreError> {
        packs.retain(|id| !self.is_partial(id) && !self.is_proven(id));
        let bytes = |id: &PackId| fs_err::metadata(self.pack_path(id)).map_or(0, |meta| meta.len());
        if !packs.is_empty() {
            observer.phase(Phase::Data, Some(packs.iter().map(bytes).sum()));
        }
        for id in &packs {
            let pack = self.open_pack(id);
            let check =
                |pack: PackFile| PackStream::of(&pack, observer).check_objects(&pack.objects()?);
            let checked = pack.and_then(check);
            match checked {
                _ if observer.cancelled() => return Ok(()),
                Ok(_) => self.record_proven(&[*id]),
                Err(error) => refused(id, error)?,
            }
            observer.advance(bytes(id), 0);
        }
        Ok(())
    }

    /// Returns true if a sender may leave the object out: it is [stored](Store::is_stored), or a
    /// partial pack has an unshadowed copy.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn is_stored_or_partial(&self, object: &PackedObject) -> Result<bool, StoreError> {
        if self.is_stored(&object.id)? {
            return Ok(true);
        }
        let place = self.locate_unshadowed(&object.id)?.filter(|_| self.has_partial());
        let pack = place.and_then(|place| self.pack_id(place.pack));
        Ok(pack.is_some_and(|pack| self.is_partial(&pack)))
    }
}

/// The hashed objects of unproven packs, each with the number of its pack.
pub(super) type HashedObjects = Mutex<HashSet<(ObjectId, u32)>>;
