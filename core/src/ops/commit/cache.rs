//! Opens and saves the stat cache of a commit. The cache is trusted only while the packs
//! that it relies on are present.

use crate::{
    base::observe::{Note, Observer},
    local::stat_cache::StatCache,
    ops::commit::{CommitOptions, CommitRun},
    repo::Repo,
    store::{CacheTrust, ShadowVersion},
};

/// A stat cache, and the state of the store when the cache was opened.
pub(super) struct OpenedCache {
    pub(super) cache: StatCache,
    /// Version of the shadow table when the cache was opened.
    pub(super) shadows: ShadowVersion,
    /// False if objects that earlier commits stored may be gone or damaged.
    pub(super) is_relied_on: bool,
}

/// Opens the stat cache. The cache is empty if packs that it relies on are gone, or if
/// objects were shadowed since it was saved. The commit then reads all files and stores
/// missing objects again.
pub(super) fn open(repo: &Repo, options: &CommitOptions, observer: &dyn Observer) -> OpenedCache {
    let dir = repo.dir().join("cache");
    let disk = repo.disk().clone();
    for error in repo.store().shadow_cut_packs(options.run == CommitRun::Dry) {
        observer.note(Note::PackTruncated { error: &error });
    }
    let reliance = repo.store().cache_trust();
    let shadows = repo.store().shadows().version();
    if reliance == CacheTrust::Holds {
        let cache = StatCache::for_reading(options.reading, &dir, disk);
        return OpenedCache { cache, shadows, is_relied_on: true };
    }
    if let CacheTrust::Lost { packs, first } = reliance {
        observer.note(Note::PacksLost { packs, first });
    }
    if options.run == CommitRun::Real {
        // Clear the cache first: its tables must never outlive the list of packs that
        // they rely on.
        StatCache::clear(&dir, repo.disk());
        repo.store().invalidate_stat_cache();
    }
    OpenedCache { cache: StatCache::anew(&dir, disk), shadows, is_relied_on: false }
}

/// Saves the stat cache after all objects that it relies on are durable. Clears it
/// instead if packs were removed or objects were shadowed since it was `opened`.
pub(super) fn save(repo: &Repo, cache: StatCache, opened: ShadowVersion, observer: &dyn Observer) {
    if !repo.store().record_trusted_packs(opened) {
        return StatCache::clear(&repo.dir().join("cache"), repo.disk());
    }
    if let Err(error) = cache.save() {
        observer.note(Note::TidyFailed { error: &error });
    }
}
