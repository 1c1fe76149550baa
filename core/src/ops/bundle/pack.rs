//! `pack`: writes a commit with its history into a bundle.
//!
//! Copies the whole packs of a [`SelectedPacks`] unchanged. Assembles its parts of other packs
//! first, since the bundle states the length of a pack before its bytes.

use std::{collections::BTreeSet, io::Write, path::Path};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::{Observer, Phase},
    },
    format::bundle::BundleHead,
    ops::{
        bundle::Error,
        reach,
        select::{Gather, PeerHas, SelectedPacks},
    },
    store::{BundleWriter, Marks, ObjectLocation, Store},
};

#[derive(Clone, Debug)]
pub struct PackOptions<'a> {
    /// Commits that the receiver has, with everything they refer to.
    pub since: Vec<CommitId>,
    /// Folder in which a temporary folder may be created.
    pub scratch: &'a Path,
    /// The zstd level for frames that are compressed again.
    pub level: i32,
}

/// Totals of the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackOutcome {
    /// Objects in the bundle.
    pub objects: u64,
    /// Total size of the objects in bytes, uncompressed.
    pub raw_bytes: u64,
    /// Length of the bundle in bytes.
    pub file_bytes: u64,
    /// Packs in the bundle.
    pub packs: u64,
    /// Packs that were copied unchanged from the store.
    pub copied: u64,
}

/// Writes a bundle of `commit` to `out`.
///
/// # Errors
/// [`Error`]. The bytes written before the error are useless.
pub fn run(
    store: &Store,
    commit: CommitId,
    options: &PackOptions<'_>,
    out: impl Write + Send,
    observer: &dyn Observer,
) -> Result<PackOutcome, Error> {
    // Keep all packs in place until the bundle is written.
    let _hold = store.pin_packs()?;
    let theirs = Marks::new(store);
    if !options.since.is_empty() {
        observer.phase(Phase::Structure, None);
        let mut enter = |id: &ObjectId, _: &ObjectLocation| theirs.mark(id);
        reach::visit(store, &options.since, &mut enter, observer)?;
    }
    let has = |id: &ObjectId| theirs.is_marked(id).map(PeerHas::of);
    let lost = BTreeSet::new();
    let gather =
        Gather { scratch: options.scratch, level: options.level, lost: &lost, collected: None };
    let selection = SelectedPacks::make(store, &[commit], &has, gather, observer)?;

    let mut since = options.since.clone();
    since.sort_unstable();
    since.dedup();
    let (objects, raw_bytes) = (selection.objects, selection.raw_bytes);
    let head = BundleHead { commit, objects, raw_bytes, prerequisites: since };
    let sources = selection.packs();
    let mut outcome =
        PackOutcome { objects, raw_bytes, packs: sources.len() as u64, ..PackOutcome::default() };
    outcome.copied = selection.whole();
    outcome.file_bytes = write(&head, &sources, out, observer)?;
    store.report_repairs(observer);
    Ok(outcome)
}

/// Writes the head, the packs and the end of a bundle. Returns its length in bytes.
pub(super) fn write(
    head: &BundleHead,
    packs: &[(&Store, PackId)],
    out: impl Write + Send,
    observer: &dyn Observer,
) -> Result<u64, Error> {
    let size = |(store, id): &(&Store, PackId)| {
        fs_err::metadata(store.pack_path(id)).map_or(0, |meta| meta.len())
    };
    observer.phase(Phase::Bundle, Some(packs.iter().map(size).sum()));
    let mut writer = BundleWriter::new(out, head)?;
    for (store, id) in packs {
        writer.copy_pack(store, *id, observer)?;
    }
    Ok(writer.finish()?)
}
