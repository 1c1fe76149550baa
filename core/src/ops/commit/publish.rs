//! Makes a commit durable, and moves the branch as the last step.

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        limits,
        observe::{Note, Observer},
        time::Time,
    },
    format::{commit::Commit, pack::ObjectKind},
    ops::{
        commit::{
            CommitError, CommitOptions, CommitOutcome, CommitSource, CommittedRoot, Unchanged,
            commit_base::CommitBase, purged,
        },
        reach::{self, ReachError},
    },
    repo::{Repo, refs::RefError},
    store::{Marks, ObjectLocation, ObjectWriter, Store, StoreError},
};

/// Fills in the result of a dry run.
pub(super) fn preview(
    repo: &Repo,
    commit_base: &CommitBase,
    root: &CommittedRoot,
    writer: &ObjectWriter<'_>,
    options: &CommitOptions,
    outcome: &mut CommitOutcome,
) {
    outcome.created =
        options.unchanged == Unchanged::Commit || !commit_base.is_same(repo.store(), root);
    outcome.added = writer.added();
    outcome.id = commit_base.tip.filter(|_| !outcome.created);
}

/// A commit whose trees are built, and everything that publishing it needs.
pub(super) struct Publication<'a> {
    pub(super) repo: &'a Repo,
    pub(super) root: &'a CommittedRoot,
    /// The packs that existed before files were read.
    pub(super) packs_before: &'a [PackId],
    pub(super) options: &'a CommitOptions,
    pub(super) source: &'a CommitSource<'a>,
    pub(super) observer: &'a dyn Observer,
}

impl Publication<'_> {
    /// Checks that the tree, which has entries from an earlier commit, is stored completely.
    fn check_complete(&self) -> Result<(), CommitError> {
        let store = self.repo.store();
        store.refresh()?;
        let marks = Marks::new(store);
        let mut enter = |id: &ObjectId, place: &ObjectLocation| match store.locate_unshadowed(id)? {
            Some(_) => marks.mark(id),
            None => Err(StoreError::Missing { id: *id, wanted: place.kind }),
        };
        let start = (self.root.tree.object(), ObjectKind::Tree);
        Ok(reach::visit_below(store, &[start], &mut enter, self.observer)?)
    }

    /// Adds the commit, makes everything durable, and moves the branch. If the branch has moved
    /// meanwhile, creates the commit again on top of the branch. Returns false if the tree must be
    /// built again first.
    pub(super) fn run(
        &self,
        mut commit_base: CommitBase,
        writer: ObjectWriter<'_>,
        outcome: &mut CommitOutcome,
    ) -> Result<bool, CommitError> {
        let Self { repo, root, options, source, observer, .. } = *self;
        let (count, limit) = (options.labels.len(), limits::LABELS);
        if count > limit {
            return Err(CommitError::TooManyLabels { count, limit });
        }
        let (count, limit) = (root.selection.rules.len(), limits::RULE_SETS);
        if count > limit {
            return Err(CommitError::TooManyRules { count, limit });
        }
        let mut writer = Some(writer);
        for _ in 0..limits::REF_RETRIES {
            if options.unchanged == Unchanged::Keep && commit_base.is_same(repo.store(), root) {
                if let Some(writer) = writer.take() {
                    self.store_again(&commit_base, writer, outcome)?;
                }
                if root.is_unproven {
                    self.check_complete()?;
                }
                // The process that moved the branch may have died before it synced the ref.
                if let Some(branch) = &commit_base.branch {
                    repo.refs().sync(branch)?;
                }
                purged::allow(repo, root.tree, &options.allow)?;
                outcome.id = commit_base.tip;
                outcome.id.iter().for_each(|id| commit_base.follow(repo, *id, observer));
                return Ok(true);
            }
            let commit = self.commit(&commit_base);
            let bytes = commit.encode();
            if bytes.len() > limits::COMMIT_BYTES {
                return Err(CommitError::TooLarge {
                    bytes: bytes.len(),
                    limit: limits::COMMIT_BYTES,
                });
            }
            // Fail now if a reader would refuse the commit.
            Commit::decode(&bytes).map_err(CommitError::Unreadable)?;
            let id = CommitId::of(&bytes);
            let writer = match writer.take() {
                Some(writer) => writer,
                None => ObjectWriter::new(repo.store(), repo.config().compression_level, 1)?,
            };
            writer.add_commit(id, &bytes)?;
            outcome.added += writer.finish()?;
            if root.is_unproven {
                self.check_complete()?;
            }
            let (store, table) = (repo.store(), repo.store().rewrites()?);
            purged::check(store, &table, commit.tree, commit_base.tree(), options)?;
            match commit_base.advance(repo, id, &commit, source.is_stream(), options) {
                Ok(()) => {
                    (outcome.id, outcome.created) = (Some(id), true);
                    purged::allow(repo, commit.tree, &options.allow)?;
                    commit_base.follow(repo, id, observer);
                    return Ok(true);
                }
                Err(RefError::Moved { .. } | RefError::Exists { .. } | RefError::HeadMoved) => {
                    if root.keeps_others {
                        return Ok(false);
                    }
                    repo.store().refresh()?;
                    let now = CommitBase::read(repo, source.is_stream(), options)?;
                    // A restore changed the files meanwhile, so the files that were read are
                    // out of date.
                    if now.base != commit_base.base {
                        return Ok(false);
                    }
                    commit_base = now;
                    commit_base.check(repo, source, options, observer)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(commit_base.contended())
    }

    /// Makes the objects durable that an unchanged commit stored again, because the store had lost
    /// them. Also stores the tip's own commit object if it is lost.
    fn store_again(
        &self,
        commit_base: &CommitBase,
        writer: ObjectWriter<'_>,
        outcome: &mut CommitOutcome,
    ) -> Result<(), CommitError> {
        if let Some((id, tip)) = &commit_base.parent {
            writer.add_commit(*id, &tip.encode())?;
        }
        if writer.added().objects == 0 {
            return Ok(());
        }
        let added = writer.finish()?;
        let store = self.repo.store();
        store.refresh()?;
        let mut new = store.packs();
        new.retain(|pack| !self.packs_before.contains(pack));
        // If there are more new packs than were written here, another process may have stored
        // the same objects. Then nothing counts as lost.
        if new.len() as u64 <= added.packs
            && let Some((id, commit)) = &commit_base.parent
        {
            outcome.stored_again = self.count_in(&new, id, commit)?;
        }
        outcome.added += added;
        Ok(())
    }

    /// Counts the objects of a commit that the store had lost and that `packs` now contain. Walks
    /// the commit, because the packs may also contain objects of no commit, such as the content of a
    /// file that was replaced while it was read.
    fn count_in(
        &self,
        packs: &[PackId],
        id: &CommitId,
        commit: &Commit,
    ) -> Result<u64, CommitError> {
        let store = self.repo.store();
        let marks = Marks::new(store);
        let mut found = 0;
        let mut enter = |id: &ObjectId, place: &ObjectLocation| {
            let is_first = marks.mark(id)?;
            found += u64::from(is_first && was_lost(store, packs, id)?);
            Ok(is_first && store.is_here(place)?)
        };
        if let Some(place) = store.locate(&id.object())? {
            enter(&id.object(), &place)?;
        }
        let start = (commit.tree.object(), ObjectKind::Tree);
        match reach::visit_below(&LocalObjects(store), &[start], &mut enter, self.observer) {
            Err(ReachError::Blocked(blocked)) => Err(blocked.into()),
            // Objects that cannot be reached are skipped.
            _ => Ok(found),
        }
    }

    /// Builds the commit object.
    fn commit(&self, commit_base: &CommitBase) -> Commit {
        let Self { root, options, .. } = *self;
        Commit {
            tree: root.tree,
            parents: commit_base.parent.iter().map(|(id, _)| *id).collect(),
            time: self.time(commit_base),
            author: options.author.clone(),
            host: options.host.clone(),
            message: options.message.clone(),
            labels: options.labels.clone(),
            root: root.metadata.clone(),
            totals: root.totals,
            selection: root.selection.clone(),
        }
    }

    /// Returns the time of the commit: the time that the user specified, or the present.
    ///
    /// Parents, not times, define the order of commits. One commit with a wrong time therefore does
    /// not affect others. Within one second the time still increases, because a clock may tick more
    /// slowly than commits are made.
    fn time(&self, commit_base: &CommitBase) -> Time {
        if let Some(named) = self.options.time {
            return named;
        }
        let now = self.options.now();
        match &commit_base.parent {
            Some((_, parent)) if now.secs == parent.time.secs => now.max(parent.time.successor()),
            Some((_, parent)) if now < parent.time => {
                // Another commit was created after this one started.
                let present = self.options.present.unwrap_or_else(Time::now);
                if parent.time <= present {
                    return present.max(parent.time.successor());
                }
                let ahead_secs = parent.time.secs.saturating_sub(present.secs);
                self.observer.note(Note::ParentInFuture { ahead_secs });
                now
            }
            _ => now,
        }
    }
}

/// Returns true if the store had lost an object that one of the new packs contains. An object that
/// a partial pack also lists was not lost: a remote has it.
fn was_lost(store: &Store, new: &[PackId], id: &ObjectId) -> Result<bool, StoreError> {
    let (mut is_new, mut lies_elsewhere) = (false, false);
    for place in store.places(id)? {
        let Some(pack) = store.pack_id(place.pack) else { continue };
        is_new |= new.contains(&pack);
        lies_elsewhere |= store.is_partial(&pack) && !store.is_damaged(&pack);
    }
    Ok(is_new && !lies_elsewhere)
}

/// The readable local objects of a store. A walk skips all other objects and fetches nothing.
pub(super) struct LocalObjects<'s>(pub(super) &'s Store);

impl reach::ObjectSource for LocalObjects<'_> {
    fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        self.0.locate(id)
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        self.0.object(id, kind)
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        reach::ObjectSource::is_here(self.0, id)
    }

    fn on_unreadable(&self, _: &ObjectId, _: ObjectKind, _: ReachError) -> Result<(), ReachError> {
        Ok(())
    }
}
