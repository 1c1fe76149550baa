//! `pack`: write a commit with its history into a bundle.
//!
//! What the commit reaches and the prerequisites do not is marked, one bit an
//! object. A pack of which everything is wanted is copied as it is. Of others
//! the wanted frames are gathered in packs of a scratch folder first, since
//! the length of a pack comes before it; frames are not compressed again but
//! for those of which only a part is wanted.

use std::{collections::BTreeSet, io::Write, path::Path};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::{Observer, Phase},
    },
    disk::{Disk, scratch::Scratch},
    format::{bundle::Head, pack::Object},
    ops::{bundle::Error, reach},
    store::{
        BundleError, BundleWriter, Marks, PackFile, Place, Store, StoreError, Writer,
        copy::{Frames, copy_pack},
    },
};

/// Choices.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Commits that the other side has, with all that they refer to.
    pub since: Vec<CommitId>,
    /// Where a scratch folder may be made.
    pub scratch: &'a Path,
    /// zstd level for what has to be compressed again.
    pub level: i32,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Objects in the bundle.
    pub objects: u64,
    /// Their bytes, uncompressed.
    pub raw_bytes: u64,
    /// Length of the bundle.
    pub file_bytes: u64,
    /// Packs in it.
    pub packs: u64,
    /// Packs that are those of the store, byte for byte.
    pub copied: u64,
}

/// Writes a bundle of `commit` to `out`.
///
/// # Errors
/// [`Error`]; what was written is then of no use.
pub fn run(
    store: &Store,
    commit: CommitId,
    options: &Options<'_>,
    out: impl Write,
    observer: &dyn Observer,
) -> Result<Outcome, Error> {
    // No pack goes away while this is held.
    let _hold = store.hold_packs()?;
    observer.phase(Phase::Structure, None);
    let wanted = Wanted::find(store, commit, options, observer)?;
    let (whole, parts) = wanted.packs(store, observer)?;
    let scratch = gather(store, &wanted, &parts, options, observer)?;

    let mut since = options.since.clone();
    since.sort_unstable();
    since.dedup();
    let (objects, raw_bytes) = (wanted.objects, wanted.raw_bytes);
    let head = Head { commit, objects, raw_bytes, prerequisites: since };
    let gathered = scratch.as_ref().map(|(store, _)| store);
    let sources: Vec<(&Store, PackId)> = whole
        .iter()
        .map(|id| (store, *id))
        .chain(
            gathered
                .into_iter()
                .flat_map(|store| store.packs().into_iter().map(move |id| (store, id))),
        )
        .collect();
    let mut outcome =
        Outcome { objects, raw_bytes, packs: sources.len() as u64, ..Outcome::default() };
    outcome.copied = whole.len() as u64;
    outcome.file_bytes = write(&head, &sources, out, observer)?;
    store.tell_repairs(observer);
    Ok(outcome)
}

/// Writes the head, packs one after the other, and the end.
pub(super) fn write(
    head: &Head,
    packs: &[(&Store, PackId)],
    out: impl Write,
    observer: &dyn Observer,
) -> Result<u64, Error> {
    let size = |(store, id): &(&Store, PackId)| {
        fs_err::metadata(store.pack_path(id)).map_or(0, |meta| meta.len())
    };
    observer.phase(Phase::Bundle, Some(packs.iter().map(size).sum()));
    let mut writer = BundleWriter::new(out, head)?;
    for (store, id) in packs {
        let mut step = |bytes| match observer.cancelled() {
            true => Err(BundleError::Interrupted),
            false => {
                observer.advance(bytes, 0);
                Ok(())
            }
        };
        writer.copy_pack(store, *id, &mut step)?;
    }
    Ok(writer.finish()?)
}

/// What is to be packed.
struct Wanted {
    marks: Marks,
    /// Numbers of the packs in which any of it lies.
    touched: BTreeSet<u32>,
    objects: u64,
    raw_bytes: u64,
}

impl Wanted {
    fn find(
        store: &Store,
        commit: CommitId,
        options: &Options<'_>,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let theirs = Marks::new(store);
        if !options.since.is_empty() {
            let mut enter = |id: &ObjectId, _: &Place| theirs.mark(id);
            reach::visit(store, &options.since, &mut enter, observer)?;
        }
        let mut wanted =
            Self { marks: Marks::new(store), touched: BTreeSet::new(), objects: 0, raw_bytes: 0 };
        let mut enter = |id: &ObjectId, place: &Place| {
            let new = !theirs.is_marked(id)? && wanted.marks.mark(id)?;
            if new {
                wanted.touched.insert(place.pack);
                wanted.objects += 1;
                wanted.raw_bytes += u64::from(place.bytes);
            }
            Ok(new)
        };
        reach::visit(store, &[commit], &mut enter, observer)?;
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

    /// The packs that are wanted whole, and those of which a part is.
    fn packs(
        &self,
        store: &Store,
        observer: &dyn Observer,
    ) -> Result<(Vec<PackId>, Vec<PackFile>), Error> {
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for number in &self.touched {
            if observer.cancelled() {
                return Err(Error::Interrupted);
            }
            let id = store.pack_id(*number).expect("a place has a pack of this store");
            let pack = store.open_pack(&id)?;
            let mut all = true;
            for object in pack.objects()? {
                all = all && self.is_wanted(store, &object.id, id)?;
            }
            if all {
                whole.push(id);
            } else {
                parts.push(pack);
            }
        }
        Ok((whole, parts))
    }
}

/// Copies what is wanted of some packs into packs of their own.
fn gather(
    store: &Store,
    wanted: &Wanted,
    parts: &[PackFile],
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Option<(Store, Scratch)>, Error> {
    if parts.is_empty() {
        return Ok(None);
    }
    let scratch = Scratch::create(options.scratch)?;
    let disk = Disk::scratch();
    Store::create(scratch.path(), &disk)?;
    let gathered = Store::open(scratch.path(), disk, observer)?;
    let total = parts.iter().map(PackFile::file_bytes).sum();
    observer.phase(Phase::Bundle, Some(total));
    let writer = Writer::new(&gathered, options.level, 1)?;
    for pack in parts {
        let mut choose = |object: &Object| {
            Ok(wanted.is_wanted(store, &object.id, pack.id())? && writer.claim_anew(object))
        };
        copy_pack(&writer, pack, Frames::Keep, &mut choose)?;
        observer.advance(pack.file_bytes(), 0);
        if observer.cancelled() {
            return Err(Error::Interrupted);
        }
    }
    writer.finish()?;
    Ok(Some((gathered, scratch)))
}
