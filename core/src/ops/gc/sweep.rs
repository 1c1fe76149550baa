//! Begins the next epoch, and deletes packs.

use crate::{
    base::{
        blocked::{Blocked, PartialClone},
        id::{CommitId, PackId},
        observe::Observer,
        time::Time,
    },
    format::{
        forgotten::ForgottenState,
        shadow::{Reason, ShadowTable, ShadowedPart},
    },
    ops::gc::{
        GcOptions, GcOutcome, Live, add_roots, before, finish_rewrites,
        plan::{Fate, Plan, dead_of, purged_in},
        read_roots,
    },
    ops::removal_error::RemovalError,
    repo::{
        Repo,
        refs::{ExpectedRef, RefLogMessage},
    },
    store::{CollectedUntil, Epoch, Store},
};

/// Packs that are deleted under one lock, at least. A writer waits for them when it names a pack.
const DELETED_AT_ONCE: usize = 32;

/// Number of times that the lock is taken, at most: each time, the whole shadow table is read.
const LOCKED: usize = 64;

/// Begins the next epoch and deletes the packs of the plan. Returns `None` if another collection has
/// begun an epoch meanwhile.
pub(super) fn run(
    repo: &Repo,
    mut plan: Plan,
    live: &Live<'_>,
    epoch: Epoch,
    options: &GcOptions,
    observer: &dyn Observer,
) -> Result<Option<GcOutcome>, RemovalError> {
    let store = repo.store();
    // While a transfer uses packs by their names, rewritten packs stay.
    let free = store.free_packs(observer)?;
    let (mut dropped_refs, mut new_purged) = (0, 0);
    {
        let mut refs = repo.refs().hold()?;
        let writers = store.stop_writers()?;
        if store.epoch()? != epoch {
            return Ok(None);
        }
        store.refresh()?;
        if store.has_partial() {
            return Err(
                Blocked::Partial { action: "collect garbage", lacks: PartialClone::Packs }.into()
            );
        }
        live.start_journal();
        let dropped = add_roots(repo, &read_roots(repo, options)?, options, live, Some(&plan))?;
        for id in live.end_journal() {
            plan.keep_live(store, &id, live)?;
        }
        if free.is_none() {
            plan.keep_rewritten(store, live)?;
        }
        let mut dead: Vec<(PackId, ShadowedPart)> = Vec::new();
        for pack in &plan.packs {
            match &pack.fate {
                Fate::Stays(ids) if ids.is_empty() => {}
                Fate::Stays(ids) => dead.push((pack.id, ShadowedPart::Objects(ids.clone()))),
                Fate::Rewritten | Fate::Deleted => dead.push((pack.id, ShadowedPart::Whole)),
            }
        }
        // Packs that came after the plan, among them the copies.
        for id in store.packs() {
            if !plan.knows(&id) {
                new_purged += purged_in(store, &id, live)?;
                let ids = dead_of(store, &id, live)?;
                if !ids.is_empty() {
                    dead.push((id, ShadowedPart::Objects(ids)));
                }
            }
        }
        let reason = "gc: it reaches what `snap rewrite` removed";
        let message = RefLogMessage { time: options.present, who: "", reason };
        for (name, id) in &dropped {
            refs.swap(name, ExpectedRef::At(Some(*id)), None, &message)?;
            dropped_refs += 1;
        }
        // The project's files may come from a commit with a removed content.
        repo.keep_in_base(&refs, |id| {
            Ok(live.contains(&id.object())? || live.contains(&id.link())?)
        })?;
        // The shadows come first: a writer that knows the new epoch must know them.
        store.change_shadows(&|table: &mut ShadowTable| {
            *table = table.of_reason(Reason::Damaged);
            for (pack, part) in &dead {
                table.add(*pack, Reason::Dead, part.clone());
            }
        })?;
        // Without its link, no ref reaches the commit any more.
        let is_reached = |id: &CommitId, state| match state {
            ForgottenState::Forgotten => live.contains(&id.link()).unwrap_or(true),
            ForgottenState::Undone => live.contains(&id.object()).unwrap_or(true),
        };
        store.change_forgotten(&|table| table.retain(is_reached))?;
        // All later changes have later times than the last one, also if a clock is wrong.
        let last = refs.last_change()?;
        let forgotten = before(options.present, options.undo_of_forget);
        let collected = CollectedUntil {
            unnamed: before(options.present, options.undo).min(last.successor()),
            forgotten: Time { nanos: 999_999_999, ..forgotten }.min(last),
        };
        store.begin_epoch(&writers, epoch.next(collected))?;
        store.enter_epoch()?;
    }
    let gone = plan.deleted();
    store.note_merged(&gone, &plan.copies);
    delete(store, &gone)?;
    drop(free);
    let mut outcome = GcOutcome { dropped_refs, ..plan.outcome() };
    outcome.left_purged_objects += new_purged;
    finish_rewrites(repo, live)?;
    Ok(Some(outcome))
}

/// Deletes packs that are still shadowed as dead: a writer may have written one of them again.
fn delete(store: &Store, packs: &[PackId]) -> Result<(), RemovalError> {
    for some in packs.chunks(packs.len().div_ceil(LOCKED).max(DELETED_AT_ONCE)) {
        let writers = store.stop_writers()?;
        store.delete_dead(&writers, some)?;
    }
    store.forget_deleted(packs)?;
    Ok(())
}
