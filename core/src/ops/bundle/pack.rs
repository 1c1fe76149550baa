//! `pack`: write a commit with its history into a bundle.
//!
//! What goes in is a [`Selection`]: whole packs are copied as they are. Parts
//! of others are gathered first, since the length of a pack comes before it.

use std::{collections::BTreeSet, io::Write, path::Path};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::{Observer, Phase},
    },
    format::bundle::Head,
    ops::{
        bundle::Error,
        reach,
        select::{Gather, Holding, Selection},
    },
    store::{BundleError, BundleWriter, Marks, Place, Store},
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
    let theirs = Marks::new(store);
    if !options.since.is_empty() {
        observer.phase(Phase::Structure, None);
        let mut enter = |id: &ObjectId, _: &Place| theirs.mark(id);
        reach::visit(store, &options.since, &mut enter, observer)?;
    }
    let has = |id: &ObjectId| theirs.is_marked(id).map(Holding::of);
    let lost = BTreeSet::new();
    let gather = Gather { scratch: options.scratch, level: options.level, lost: &lost };
    let selection = Selection::make(store, &[commit], &has, gather, observer)?;

    let mut since = options.since.clone();
    since.sort_unstable();
    since.dedup();
    let (objects, raw_bytes) = (selection.objects, selection.raw_bytes);
    let head = Head { commit, objects, raw_bytes, prerequisites: since };
    let sources = selection.packs();
    let mut outcome =
        Outcome { objects, raw_bytes, packs: sources.len() as u64, ..Outcome::default() };
    outcome.copied = selection.whole();
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
