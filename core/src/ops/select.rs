//! Which packs carry commits to somebody who has a part of them.
//!
//! What the commits reach and the other side lacks is marked, one bit an
//! object. A pack of which everything is wanted goes as it is. Of others the
//! wanted frames are gathered in packs of a scratch folder; frames are not
//! compressed again but for those of which only a part is wanted: a frame
//! holds what was committed together, and nobody is handed what was not asked
//! for. Of a partial pack what is wanted and lies elsewhere is fetched.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        observe::{Observer, Phase},
    },
    disk::{Disk, scratch::Scratch},
    format::{pack::Object, wire::FormatError},
    ops::reach::{self, ReachError},
    store::{
        Marks, PackFile, Place, Store, StoreError, Writer,
        copy::{Frames, copy_pack},
    },
};

/// Why packs could not be selected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The store lacks an object that a commit refers to.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The scratch folder could not be made.
    #[error(transparent)]
    Io(#[from] PathError),
}

impl SelectError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Reach(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Io(error) => error.kind(),
        }
    }
}

/// Where selected frames are gathered.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    /// Where a scratch folder may be made.
    pub scratch: &'a Path,
    /// zstd level for what has to be compressed again.
    pub level: i32,
    /// Packs that the other side had, and has lost: they go as they are, even
    /// when only a part of them is wanted.
    pub lost: &'a BTreeSet<PackId>,
}

/// What the other side has of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// The object, and all that it refers to.
    All,
    /// The object, but perhaps not all that it refers to.
    Alone,
    /// It had the object, and has lost it.
    Lost,
    /// It never had the object.
    Nothing,
}

impl Holding {
    /// Of a side that has each object with all that it refers to, or not at all.
    pub fn of(has: bool) -> Self {
        if has { Self::All } else { Self::Nothing }
    }
}

/// Says what the other side has of an object.
pub type Has<'a> = dyn Fn(&ObjectId) -> Result<Holding, StoreError> + 'a;

/// The packs.
#[derive(Debug)]
pub struct Selection<'s> {
    store: &'s Store,
    /// Those of the store that go as they are.
    whole: Vec<PackId>,
    /// Those that were gathered. Dropped before their folder.
    gathered: Option<(Store, Scratch)>,
    /// Objects in all of them.
    pub objects: u64,
    /// Their bytes, uncompressed.
    pub raw_bytes: u64,
    /// Objects among them that the other side had, and has lost.
    pub lost: u64,
}

impl<'s> Selection<'s> {
    /// Selects what `commits` reach and `has` does not know. The caller holds
    /// the packs ([`Store::hold_packs`]).
    ///
    /// # Errors
    /// [`SelectError`]; [`ReachError::Interrupted`] when the user asks to stop.
    pub fn make(
        store: &'s Store,
        commits: &[CommitId],
        has: &Has<'_>,
        gather: Gather<'_>,
        observer: &dyn Observer,
    ) -> Result<Self, SelectError> {
        observer.phase(Phase::Structure, None);
        let wanted = Wanted::find(store, commits, has, observer)?;
        let (whole, parts) = wanted.packs(store, gather.lost, observer)?;
        let gathered = match parts.is_empty() {
            true => None,
            false => Some(gather_parts(store, &wanted, &parts, gather, observer)?),
        };
        let Wanted { objects, raw_bytes, lost, .. } = wanted;
        Ok(Self { store, whole, gathered, objects, raw_bytes, lost })
    }

    /// The packs, and the store in which each lies.
    pub fn packs(&self) -> Vec<(&Store, PackId)> {
        let whole = self.whole.iter().map(|id| (self.store, *id));
        let gathered = self.gathered.iter();
        let gathered =
            gathered.flat_map(|(store, _)| store.packs().into_iter().map(move |id| (store, id)));
        whole.chain(gathered).collect()
    }

    /// Where each of them lies.
    pub fn paths(&self) -> Vec<(PackId, PathBuf)> {
        self.packs().into_iter().map(|(store, id)| (id, store.pack_path(&id))).collect()
    }

    /// How many are those of the store, byte for byte.
    pub fn whole(&self) -> u64 {
        self.whole.len() as u64
    }
}

/// What is to go.
struct Wanted {
    marks: Marks,
    /// Numbers of the packs in which any of it lies, and how many objects of
    /// each that is.
    touched: BTreeMap<u32, u64>,
    objects: u64,
    raw_bytes: u64,
    lost: u64,
}

impl Wanted {
    fn find(
        store: &Store,
        commits: &[CommitId],
        has: &Has<'_>,
        observer: &dyn Observer,
    ) -> Result<Self, ReachError> {
        let (marks, touched) = (Marks::new(store), BTreeMap::new());
        let mut wanted = Self { marks, touched, objects: 0, raw_bytes: 0, lost: 0 };
        // What is walked although it is not wanted.
        let passed = Marks::new(store);
        let mut enter = |id: &ObjectId, place: &Place| {
            let holding = has(id)?;
            match holding {
                Holding::All => return Ok(false),
                Holding::Alone => return passed.mark(id),
                Holding::Lost | Holding::Nothing => {}
            }
            let new = wanted.marks.mark(id)?;
            if new {
                wanted.lost += u64::from(holding == Holding::Lost);
                *wanted.touched.entry(place.pack).or_default() += 1;
                wanted.objects += 1;
                wanted.raw_bytes += u64::from(place.bytes);
            }
            Ok(new)
        };
        reach::visit(store, commits, &mut enter, observer)?;
        Ok(wanted)
    }

    /// Whether an object is wanted from this pack: it may be in others, too.
    fn is_wanted(&self, store: &Store, id: &ObjectId, pack: PackId) -> Result<bool, StoreError> {
        if !self.marks.is_marked(id)? {
            return Ok(false);
        }
        let place = store.locate(id)?;
        Ok(place.is_some_and(|place| store.pack_id(place.pack) == Some(pack)))
    }

    /// Says which frames of a pack will be read.
    fn announce(&self, store: &Store, pack: &PackFile) -> Result<(), StoreError> {
        if !store.may_fetch() {
            return Ok(());
        }
        let mut places = Vec::new();
        for object in pack.objects()? {
            if self.is_wanted(store, &object.id, pack.id())? {
                places.extend(store.locate(&object.id)?);
            }
        }
        places.sort_unstable();
        store.will_need(&places);
        Ok(())
    }

    /// Whether a pack of which everything is wanted is here; it is fetched when
    /// it lies elsewhere.
    fn made_whole(&self, store: &Store, pack: &PackId) -> Result<bool, StoreError> {
        match store.is_partial(pack).then(|| store.fetch_pack(pack)) {
            None | Some(Ok(())) => Ok(true),
            // Where it cannot be kept, its frames are copied.
            Some(Err(StoreError::Io(_))) => Ok(false),
            Some(Err(error)) => Err(error),
        }
    }

    /// The packs that are wanted whole, and those of which a part is.
    fn packs(
        &self,
        store: &Store,
        lost: &BTreeSet<PackId>,
        observer: &dyn Observer,
    ) -> Result<(Vec<PackId>, Vec<PackFile>), SelectError> {
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for (number, expected) in &self.touched {
            if observer.cancelled() {
                return Err(ReachError::Interrupted.into());
            }
            let id = store.pack_id(*number).expect("a place has a pack of this store");
            let pack = store.open_pack(&id)?;
            let (mut all, mut found) = (true, 0);
            for object in pack.objects()? {
                let is_wanted = self.is_wanted(store, &object.id, id)?;
                all &= is_wanted;
                found += u64::from(is_wanted);
            }
            // The file is not the pack that was indexed: what it lacks would be
            // left out in silence.
            if found < *expected {
                let source = FormatError::Invalid { what: "object table", at: 0 };
                return Err(StoreError::Format { pack: id, source }.into());
            }
            let goes_whole = all || lost.contains(&id);
            if goes_whole && !store.is_shadowed(&id) && self.made_whole(store, &id)? {
                whole.push(id);
            } else {
                parts.push(pack);
            }
        }
        // Numbers differ from one opening of the store to the next, and what is
        // gathered again must come out the same.
        whole.sort_unstable();
        parts.sort_unstable_by_key(PackFile::id);
        Ok((whole, parts))
    }
}

/// Copies what is wanted of some packs into packs of their own.
fn gather_parts(
    store: &Store,
    wanted: &Wanted,
    parts: &[PackFile],
    gather: Gather<'_>,
    observer: &dyn Observer,
) -> Result<(Store, Scratch), SelectError> {
    let scratch = Scratch::create(gather.scratch)?;
    let disk = Disk::scratch();
    Store::create(scratch.path(), &disk)?;
    let gathered = Store::open(scratch.path(), disk, observer)?;
    let total = parts.iter().map(PackFile::file_bytes).sum();
    observer.phase(Phase::Bundle, Some(total));
    let writer = Writer::new(&gathered, gather.level, 1)?;
    for pack in parts {
        let mut choose = |object: &Object| {
            Ok(wanted.is_wanted(store, &object.id, pack.id())? && writer.claim_anew(object))
        };
        wanted.announce(store, pack)?;
        copy_pack(&writer, pack, Frames::Keep, &mut choose)?;
        observer.advance(pack.file_bytes(), 0);
        if observer.cancelled() {
            return Err(ReachError::Interrupted.into());
        }
    }
    writer.finish()?;
    Ok((gathered, scratch))
}
