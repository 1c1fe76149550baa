//! The stat cache of a commit: believed only while the packs that it relies on
//! are there.

use crate::{
    base::observe::{Note, Observer},
    local::stat_cache::StatCache,
    ops::commit::{Options, Run},
    repo::Repo,
    store::{Reliance, ShadowVersion},
};

/// A stat cache, and what was known of the store when it was opened.
pub(super) struct Opened {
    pub(super) cache: StatCache,
    /// What was shadowed.
    pub(super) shadows: ShadowVersion,
    /// False if objects that earlier commits stored may be gone or damaged.
    pub(super) is_relied_on: bool,
}

/// Opens the stat cache. When packs that it relies on are gone, or objects were
/// shadowed since it was saved, it is empty: then all files are read, and what
/// is not stored any more is stored again.
pub(super) fn open(repo: &Repo, options: &Options, observer: &dyn Observer) -> Opened {
    let dir = repo.dir().join("cache");
    let disk = repo.disk().clone();
    for error in repo.store().shadow_cut_packs(options.run == Run::Dry) {
        observer.note(Note::PackCut { error: &error });
    }
    let reliance = repo.store().reliance();
    let shadows = repo.store().shadow_version();
    if reliance == Reliance::Holds {
        let cache = StatCache::for_reading(options.reading, &dir, disk);
        return Opened { cache, shadows, is_relied_on: true };
    }
    if let Reliance::Lost { packs, first } = reliance {
        observer.note(Note::PacksLost { packs, first });
    }
    if options.run == Run::Real {
        // In this order: tables must never outlive their list of packs.
        StatCache::clear(&dir, repo.disk());
        repo.store().distrust_stat_cache();
    }
    Opened { cache: StatCache::anew(&dir, disk), shadows, is_relied_on: false }
}

/// Saves the stat cache, once all that it stands for is durable. It is cleared if
/// packs went, or objects were shadowed, since it was `opened`.
pub(super) fn save(
    repo: &Repo,
    (cache, opened): (StatCache, ShadowVersion),
    observer: &dyn Observer,
) {
    if !repo.store().rely_on_packs(opened) {
        return StatCache::clear(&repo.dir().join("cache"), repo.disk());
    }
    if let Err(error) = cache.save() {
        observer.note(Note::TidyFailed { error: &error });
    }
}
