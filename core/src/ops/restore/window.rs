//! A window: files that were collected while the tree was walked, written in
//! the order in which the store holds their contents.

use std::sync::Arc;

use rayon::prelude::*;

use crate::{
    base::{id::BlobId, kind::ErrorKind, name::EntryName},
    format::{pack::ObjectKind, tree::Metadata},
    local::{
        contain::{Cursor, FolderPath, Renamed},
        write::{FileSpec, Inherited, Placement},
    },
    ops::restore::{
        Existing,
        job::Job,
        large,
        links::{LeaderFailure, LinkTask, write_links},
        small,
    },
    store::{Place, StoreError},
};

/// Files of a full window; the names and attributes of so many are some MiB.
const WINDOW_FILES: usize = 16_384;

/// Bytes of the contents of a full window. They are not held in memory; the
/// number bounds how long the next window waits.
const WINDOW_BYTES: u64 = 256 << 20;

/// Files of the first window, so that writing begins early.
const FIRST_WINDOW_FILES: usize = 1024;

/// Large files written at once: each has a thread that reads ahead.
const LARGE_AT_ONCE: usize = 4;

/// A file to be written.
pub(super) struct FileTask {
    pub(super) folder: Arc<FolderPath>,
    pub(super) name: EntryName,
    pub(super) id: BlobId,
    pub(super) size: u64,
    pub(super) metadata: Metadata,
    pub(super) inherited: Option<Inherited>,
    pub(super) placement: Placement,
}

/// Files to be written next.
#[derive(Default)]
pub(super) struct Window {
    pub(super) files: Vec<FileTask>,
    pub(super) links: Vec<LinkTask>,
    pub(super) bytes: u64,
    pub(super) is_first: bool,
}

impl Window {
    pub(super) fn is_full(&self) -> bool {
        let files = if self.is_first { FIRST_WINDOW_FILES } else { WINDOW_FILES };
        self.files.len() + self.links.len() >= files || self.bytes >= WINDOW_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.links.is_empty()
    }
}

/// Writes all files of a window, then the further names of files.
pub(super) fn write(job: &Job<'_>, window: Window) {
    if job.is_halted() {
        return;
    }
    let mut small = Vec::with_capacity(window.files.len());
    let mut large = Vec::new();
    let places: Vec<_> = window
        .files
        .par_iter()
        .with_min_len(256)
        .map(|task| locate(job, task.size, task.id))
        .collect();
    for (task, place) in window.files.iter().zip(places) {
        match place {
            Ok(place) if place.is_some_and(|place| place.kind != ObjectKind::Blob) => {
                large.push((place, task));
            }
            Ok(place) => small.push((place, task)),
            Err(error) => task.damaged(job, error),
        }
    }
    small.sort_by_key(|(place, _)| *place);
    let groups: Vec<_> = small.chunk_by(|a, b| same_frame(a.0, b.0)).collect();
    groups.into_par_iter().for_each(|group| small::write_group(job, group));
    // Equal contents lie in one place. They go to one thread, one after the
    // other, so that all but the first can share its blocks.
    large.sort_by_key(|(place, _)| *place);
    let equal: Vec<_> = large.chunk_by(|a, b| a.1.id == b.1.id).collect();
    let share = equal.len().div_ceil(LARGE_AT_ONCE).max(1);
    equal.par_chunks(share).for_each(|groups| {
        groups.iter().copied().flatten().for_each(|(_, task)| large::write(job, task));
    });
    write_links(job, &window.links);
}

/// Where a content lies; nowhere, for the empty one.
pub(super) fn locate(job: &Job<'_>, size: u64, id: BlobId) -> Result<Option<Place>, StoreError> {
    if size == 0 && id == BlobId::of(b"") {
        return Ok(None);
    }
    let id = id.object();
    let place = job.store.locate(&id)?;
    place.map(Some).ok_or(StoreError::Missing { id, wanted: ObjectKind::Blob })
}

fn same_frame(a: Option<Place>, b: Option<Place>) -> bool {
    a.map(|place| (place.pack, place.frame)) == b.map(|place| (place.pack, place.frame))
}

impl FileTask {
    /// Leaves the file out because of what it is stored as, or ends the run
    /// where the next one would fare no better.
    pub(super) fn damaged(&self, job: &Job<'_>, error: StoreError) {
        match is_out_of_reach(&error) {
            true => job.fail(error),
            false => self.leave_out(job, Arc::new(error)),
        }
    }

    /// Leaves the file out because of what it is stored as.
    pub(super) fn leave_out(&self, job: &Job<'_>, error: Arc<StoreError>) {
        job.leader_failed(self.metadata.link, LeaderFailure::Damaged(Arc::clone(&error)));
        job.observer.advance(self.size, 1);
        job.tally.damaged(self.folder.join(&self.name), self.id.object(), error);
    }

    /// The file without its content.
    pub(super) fn spec(&self, job: &Job<'_>) -> FileSpec<'_> {
        let (owner, mode) = job.owner_and_mode(&self.metadata, false);
        FileSpec {
            name: &self.name,
            owner,
            mode,
            mtime: self.metadata.mtime,
            xattrs: &self.metadata.xattrs,
            sparse: self.metadata.sparse,
            inherited: self.inherited,
            placement: self.placement,
        }
    }

    /// Deals with a name that was taken since it was found to be free. Says
    /// whether to try again, replacing it.
    pub(super) fn taken(&self, job: &Job<'_>, renamed: Renamed) -> bool {
        if renamed == Renamed::Done {
            return false;
        }
        if job.options.existing == Existing::Overwrite {
            return true;
        }
        let error = std::io::ErrorKind::AlreadyExists.into();
        job.fail(job.error("create", &self.folder, Some(&self.name), error));
        false
    }
}

/// Whether it is not one object, but the place elsewhere that cannot be had.
pub(super) fn is_out_of_reach(error: &StoreError) -> bool {
    let of_one = [ErrorKind::NotFound, ErrorKind::Damaged];
    matches!(error, StoreError::Distant { .. }) && !of_one.contains(&error.kind())
}

/// A cursor over the target, for one thread.
pub(super) fn cursor<'j>(job: &'j Job<'_>) -> Option<Cursor<'j>> {
    job.root().map(Cursor::new)
}
