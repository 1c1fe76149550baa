//! The stat cache of a commit: believed only while the packs that it relies on
//! are there.

use crate::{
    base::observe::{Note, Observer},
    local::stat_cache::StatCache,
    ops::commit::{Options, Run},
    repo::Repo,
    store::{Reliance, ShadowVersion},
};

/// Opens the stat cache. When packs that it relies on are gone, or objects were
/// shadowed since it was saved, it is empty: then all files are read, and what
/// is not stored any more is stored again.
pub(super) fn open(repo: &Repo, options: &Options, observer: &dyn Observer) -> StatCache {
    let dir = repo.dir().join("cache");
    let disk = repo.disk().clone();
    for error in repo.store().shadow_cut_packs(options.run == Run::Dry) {
        observer.note(Note::PackCut { error: &error });
    }
    let reliance = repo.store().reliance();
    if reliance == Reliance::Holds {
        return StatCache::for_reading(options.reading, &dir, disk);
    }
    if let Reliance::Lost { packs, first } = reliance {
        observer.note(Note::PacksLost { packs, first });
    }
    if options.run == Run::Real {
        // In this order: tables must never outlive their list of packs.
        StatCache::clear(&dir, repo.disk());
        repo.store().distrust_stat_cache();
    }
    StatCache::anew(&dir, disk)
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
