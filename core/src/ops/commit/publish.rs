//! Making a commit durable and moving the branch to it, last of all.

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId, TreeId},
        limits,
        observe::{Note, Observer},
        time::Time,
    },
    format::{commit::Commit, pack::ObjectKind},
    ops::{
        commit::{CommitError, Input, Options, Outcome, Root, Unchanged, ground::Ground, make},
        reach::{self, ReachError},
    },
    repo::{Repo, refs::RefError},
    store::{Added, Marks, Place, StoreError, Writer},
};

/// Says what a commit would come to.
pub(super) fn preview(
    ground: &Ground,
    root: &Root,
    writer: &Writer<'_>,
    options: &Options,
    outcome: &mut Outcome,
) {
    outcome.created = options.unchanged == Unchanged::Commit || !ground.is_same(root);
    outcome.added = writer.added();
    outcome.id = ground.tip().filter(|_| !outcome.created);
}

/// Checks that a tree whose entries are partly those of an earlier commit is stored
/// whole.
fn check_complete(repo: &Repo, tree: TreeId, observer: &dyn Observer) -> Result<(), CommitError> {
    let store = repo.store();
    store.refresh()?;
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, place: &Place| match store.locate_unshadowed(id)? {
        Some(_) => marks.mark(id),
        None => Err(StoreError::Missing { id: *id, wanted: place.kind }),
    };
    let start = (tree.object(), ObjectKind::Tree);
    match reach::visit_below(store, &[start], &mut enter, observer) {
        Ok(()) => Ok(()),
        Err(ReachError::Interrupted) => Err(CommitError::Interrupted),
        Err(error) => Err(CommitError::Incomplete(Box::new(error))),
    }
}

/// Adds the commit, makes everything durable, and moves the branch. When the
/// branch has moved meanwhile, the commit is made again on top of where it is;
/// `false` when its tree must be made again, too. `packs` are those that were
/// there before files were read.
pub(super) fn run(
    (repo, mut ground): (&Repo, Ground),
    (root, writer, packs): (&Root, Writer<'_>, &[PackId]),
    (options, input): (&Options, &Input<'_>),
    observer: &dyn Observer,
    outcome: &mut Outcome,
) -> Result<bool, CommitError> {
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
        if options.unchanged == Unchanged::Keep && ground.is_same(root) {
            if let Some(writer) = writer.take() {
                store_again((repo, &ground), (writer, packs), outcome)?;
            }
            if root.is_unproven {
                check_complete(repo, root.tree, observer)?;
            }
            // The process that moved the branch may have died before it synced it.
            if let Some(branch) = ground.branch() {
                repo.refs().sync(branch)?;
            }
            outcome.id = ground.tip();
            outcome.id.iter().for_each(|id| ground.follow(repo, *id, observer));
            return Ok(true);
        }
        let parents = ground.parent().iter().map(|(id, _)| *id).collect();
        let commit = make(root, parents, time(&ground, options, observer), options);
        let bytes = commit.encode();
        if bytes.len() > limits::COMMIT_BYTES {
            return Err(CommitError::TooLarge { bytes: bytes.len(), limit: limits::COMMIT_BYTES });
        }
        // What a reader would refuse must not be acknowledged.
        Commit::decode(&bytes).map_err(CommitError::Unreadable)?;
        let id = CommitId::of(&bytes);
        let writer = match writer.take() {
            Some(writer) => writer,
            None => Writer::new(repo.store(), repo.config().compression.level, 1)?,
        };
        writer.add_commit(id, &bytes)?;
        add(&mut outcome.added, writer.finish()?);
        if root.is_unproven {
            check_complete(repo, root.tree, observer)?;
        }
        match ground.advance(repo, (id, &commit), (input.is_stream(), options)) {
            Ok(()) => {
                (outcome.id, outcome.created) = (Some(id), true);
                ground.follow(repo, id, observer);
                return Ok(true);
            }
            Err(RefError::Moved { .. } | RefError::Exists { .. } | RefError::HeadMoved) => {
                if root.keeps_others {
                    return Ok(false);
                }
                repo.store().refresh()?;
                let now = Ground::read(repo, input.is_stream(), options)?;
                // Files that were restored meanwhile are not those that were read.
                if !now.has_base_of(&ground) {
                    return Ok(false);
                }
                ground = now;
                ground.check(repo, input, options, observer)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    match ground.branch() {
        Some(name) => {
            Err(CommitError::Contended { name: name.clone(), tries: limits::REF_RETRIES })
        }
        None => Err(RefError::HeadMoved.into()),
    }
}

/// Makes durable what an unchanged commit had to store again: objects whose
/// packs are gone, or that are shadowed. The tip itself is one of them.
fn store_again(
    (repo, ground): (&Repo, &Ground),
    (writer, packs): (Writer<'_>, &[PackId]),
    outcome: &mut Outcome,
) -> Result<(), CommitError> {
    if let Some((id, tip)) = ground.parent() {
        writer.add_commit(*id, &tip.encode())?;
    }
    if writer.added().objects == 0 {
        return Ok(());
    }
    let added = writer.finish()?;
    repo.store().refresh()?;
    let new = repo.store().packs().iter().filter(|pack| !packs.contains(pack)).count();
    // Another process may have stored the same objects meanwhile; then nothing
    // was lost.
    if new as u64 <= added.packs {
        outcome.stored_again = added.objects;
    }
    add(&mut outcome.added, added);
    Ok(())
}

fn add(total: &mut Added, more: Added) {
    total.objects += more.objects;
    total.raw_bytes += more.raw_bytes;
    total.stored_bytes += more.stored_bytes;
    total.packs += more.packs;
}

/// The time of the commit: the one that the user named, else the present.
///
/// Parents tell the order of commits, and times do not. So one commit that was
/// made while the clock was wrong dates no other. Within one second the time
/// still grows, because a clock may tick more slowly than commits are made.
fn time(ground: &Ground, options: &Options, observer: &dyn Observer) -> Time {
    if let Some(named) = options.time {
        return named;
    }
    let now = options.now();
    match ground.parent() {
        Some((_, parent)) if now.secs == parent.time.secs => now.max(parent.time.successor()),
        Some((_, parent)) if now < parent.time => {
            let ahead_secs = parent.time.secs.saturating_sub(now.secs);
            observer.note(Note::ParentInFuture { ahead_secs });
            now
        }
        _ => now,
    }
}
