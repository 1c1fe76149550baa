//! Checks that every ref leads to a complete snapshot.
//!
//! Commits are visited one after the other. No object is visited twice: one bit for each
//! object of the store records the visit.

use std::{cell::Cell, collections::BTreeSet};

use rayon::prelude::*;

use crate::{
    base::{
        id::{BlobId, CommitId, ObjectId, PackId, TreeId},
        kind::ErrorKind,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{pack::ObjectKind, tree::EntryKind},
    ops::verify::{Dated, Findings, VerifyError, VerifyOutcome, VerifyProblem},
    repo::{Repo, history, ref_log::RefValue, ref_name::RefKind, refs::Head},
    store::{
        ContentError, ContentLayout, Marks, Prefetch, Store, StoreError, TreeCursor, TreeWalk,
        WalkStep, decode_list, read_chunks,
    },
};

/// The commits at which the walk begins.
pub(super) struct Roots<'a> {
    /// The commits that refs point at.
    pub(super) tips: Vec<CommitId>,
    /// Returns the commits that refs pointed at before. Called once, and only if a commit
    /// is lost.
    pub(super) earlier: &'a dyn Fn() -> Result<Vec<CommitId>, VerifyError>,
}

/// Returns the commits that all refs point at, and those that the project's files come from: the
/// next commit needs them, too. Unreadable refs and an unreadable scope are added to the findings.
pub(super) fn tips(repo: &Repo, findings: &Findings<'_>) -> Result<Vec<CommitId>, VerifyError> {
    let mut tips = Vec::new();
    for kind in [RefKind::Branch, RefKind::Tag] {
        for source in repo.refs().misnamed(kind)? {
            let name = source.misnamed_file().unwrap_or_default();
            findings.add(VerifyProblem::Ref { name, source }, []);
        }
        for name in repo.refs().names(kind)? {
            match repo.refs().read(&name) {
                Ok(id) => tips.extend(id),
                Err(source) => {
                    findings.add(VerifyProblem::Ref { name: name.to_string(), source }, [])
                }
            }
        }
    }
    for (name, id) in repo.lost_refs()? {
        findings.add(VerifyProblem::RefLost { name, id }, []);
        tips.push(id);
    }
    if let Err(source) = repo.scope() {
        findings.add(VerifyProblem::Scope { source }, []);
    }
    match repo.refs().head() {
        Ok(Head::Detached(id)) => tips.push(id),
        Ok(Head::Branch(_)) => {}
        Err(source) => findings.add(VerifyProblem::Ref { name: "HEAD".to_owned(), source }, []),
    }
    tips.extend(repo.base()?.unwrap_or_default().named());
    Ok(tips)
}

/// Returns the commits that branches and tags pointed at before, from their logs. Logs of
/// removed branches and tags are left out.
pub(super) fn earlier_tips(repo: &Repo) -> Result<Vec<CommitId>, VerifyError> {
    let mut names = repo.refs().names(RefKind::Branch)?;
    names.extend(repo.refs().names(RefKind::Tag)?);
    names.extend(repo.lost_refs()?.into_iter().map(|(name, _)| name));
    let mut tips = BTreeSet::new();
    for name in names {
        for line in repo.refs().log(&name)? {
            tips.extend([line.old, line.new].iter().filter_map(RefValue::commit));
        }
    }
    Ok(tips.into_iter().collect())
}

/// Walks everything that is reachable from the tips of `roots`. Returns all commits,
/// newest first.
pub(super) fn check(
    store: &Store,
    roots: &Roots<'_>,
    findings: &Findings<'_>,
    observer: &dyn Observer,
    outcome: &mut VerifyOutcome,
) -> Result<Vec<Dated>, VerifyError> {
    observer.phase(Phase::Structure, None);
    let marks = Marks::new(store);
    let (mut commits, mut lost) = (Vec::new(), BTreeSet::new());
    let mut visit = |id: CommitId, lost: &mut BTreeSet<CommitId>| {
        // The marks have no bit for an id that the index lacks.
        if lost.contains(&id) || !marks.mark(&id.object())? {
            return Ok(Vec::new());
        }
        match store.commit(&id) {
            Err(StoreError::Absent { .. }) => {}
            Err(source) if findings.lies_at_origin(&source) => {}
            Ok(commit) => {
                outcome.commits += 1;
                commits.push((commit.time, id));
                walk(store, commit.tree, &marks, findings, observer, outcome)?;
                return Ok(commit.parents);
            }
            Err(source) => {
                lost.insert(id);
                if findings.is_elsewhere() {
                    // The commit's time is unknown, so it is sorted last.
                    commits.push((Time::default(), id));
                }
                // A commit of a lost pack is not a separate problem.
                if !(source.kind() == ErrorKind::Damaged && findings.is_lost(&id.object())) {
                    findings.add_unreadable(store, id.object(), source);
                }
            }
        }
        Ok::<_, VerifyError>(Vec::new())
    };
    let mut tips = roots.tips.clone();
    history::walk(tips.iter().copied(), |id| visit(id, &mut lost))?;
    if !lost.is_empty() {
        // The parents of a lost commit are unknown. Earlier positions of refs may lead to them.
        let mut earlier = (roots.earlier)()?;
        earlier.retain(|id| !lost.contains(id));
        tips.extend(&earlier);
        history::walk(earlier, |id| visit(id, &mut lost))?;
    }
    outcome.roots = tips;
    findings.go_on(observer)?;
    commits.sort_unstable_by(|a, b| b.cmp(a));
    Ok(commits)
}

fn walk(
    store: &Store,
    root: TreeId,
    marks: &Marks,
    findings: &Findings<'_>,
    observer: &dyn Observer,
    outcome: &mut VerifyOutcome,
) -> Result<(), VerifyError> {
    let mut walk = TreeWalk::new(TreeCursor::new(root, Prefetch::Nothing), ());
    while let Some(step) = walk.next() {
        findings.go_on(observer)?;
        let WalkStep::Node(node) = step else { continue };
        let id = node.id().object();
        // The damage of its pack is reported already, and a local copy of the tree may
        // still be readable.
        if !marks.mark(&id)? || findings.is_lost(&id) {
            continue;
        }
        match walk.read(store, node) {
            Err(StoreError::Absent { .. }) => continue,
            Err(source) if findings.lies_at_origin(&source) => continue,
            Ok(entries) => {
                for entry in entries {
                    match entry.kind {
                        EntryKind::Folder { id } => {
                            let (is_too_deep, id) = (walk.enter(id, ()).is_err(), id.object());
                            if is_too_deep && marks.mark(&id)? && !findings.is_lost(&id) {
                                findings.add(VerifyProblem::Depth { id }, [id]);
                            }
                        }
                        EntryKind::File { size, id } => {
                            outcome.contents += u64::from(marks.mark(&id.object())?);
                            check_content(store, id, size, findings);
                        }
                        _ => {}
                    }
                }
            }
            Err(source) => findings.add_unreadable(store, id, source),
        }
        outcome.trees += 1;
        observer.advance(1, 0);
    }
    Ok(())
}

/// Checks that a content is present with all its chunks and has the right size.
fn check_content(store: &Store, id: BlobId, size: u64, findings: &Findings<'_>) {
    let object = id.object();
    if findings.is_lost(&object) {
        return;
    }
    let found = match store.content(&id) {
        // The content's chunk list is stored elsewhere.
        Err(StoreError::Absent { .. }) => return,
        Ok(ContentLayout::Whole(_)) => match store.locate_in_pack(&object) {
            Ok(Some(place)) => u64::from(place.bytes),
            Ok(None) => {
                let source = StoreError::Missing { id: object, wanted: ObjectKind::Blob };
                return findings.add_unreadable(store, object, source);
            }
            Err(source) => return findings.add_unreadable(store, object, source),
        },
        Ok(ContentLayout::Chunks(chunks)) => {
            for chunk in &chunks {
                let wanted = ObjectKind::Blob;
                let source = match store.locate_in_pack(&chunk.id.object()) {
                    Ok(Some(place)) if place.kind == wanted && place.bytes == chunk.bytes => {
                        continue;
                    }
                    Ok(_) => StoreError::Missing { id: chunk.id.object(), wanted },
                    Err(source) => source,
                };
                if !findings.lies_at_origin(&source) && !findings.is_bad(&chunk.id.object()) {
                    findings.add_unreadable(store, chunk.id.object(), source);
                    findings.add_bad(object);
                }
            }
            chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum()
        }
        Err(source) => {
            if !findings.is_bad(&object) {
                findings.add_unreadable(store, object, source);
            }
            return;
        }
    };
    if found != size {
        // The hash covers the size of a whole object. A chunk list is not covered by its
        // id, so the list must be wrong.
        findings.shadow_list(store, object);
        findings.add(VerifyProblem::Size { id: object, expected: size, found }, [object]);
    }
}

/// Hashes the chunks of every content that was cut. The id of a chunk list is not the
/// hash of its own bytes, so nothing else proves the list.
pub(super) fn check_lists(
    store: &Store,
    findings: &Findings<'_>,
    observer: &dyn Observer,
    outcome: &mut VerifyOutcome,
) -> Result<(), VerifyError> {
    let mut lists = Vec::new();
    for pack in store.packs() {
        let objects = store.open_pack(&pack).and_then(|pack| pack.objects());
        // An unreadable pack is among the findings already.
        let objects = objects.unwrap_or_default();
        let cut = objects.iter().filter(|object| object.kind == ObjectKind::ChunkList);
        lists.extend(cut.map(|object| BlobId::from_object(object.id)));
    }
    observer.phase(Phase::Data, None);
    let read: u64 = lists.par_iter().map(|id| check_list(store, *id, findings, observer)).sum();
    outcome.bytes_read += read;
    if observer.cancelled() { Err(VerifyError::Interrupted) } else { Ok(()) }
}

/// Records the sound whole packs as proven. Hashes the contents behind the lists of packs that
/// were not proven before once more: [`check_lists`] looks at one copy of each list.
///
/// # Errors
/// [`VerifyError`] when a pack cannot be read, or the user asks to stop.
pub(super) fn prove_packs(
    store: &Store,
    findings: &Findings<'_>,
    observer: &dyn Observer,
) -> Result<(), VerifyError> {
    let is_sound = |id: &PackId| !store.is_partial(id) && !findings.shadows(id);
    let sound: Vec<PackId> = store.packs().into_iter().filter(is_sound).collect();
    let (proven, unproven): (Vec<PackId>, Vec<PackId>) =
        sound.into_iter().partition(|id| store.is_proven(id));
    store.record_proven(&proven);
    for id in &unproven {
        let wrong = match store.prove_pack(id, observer) {
            // Reported already, or merged into another pack meanwhile.
            Err(error) if error.kind() == ErrorKind::Damaged => continue,
            Err(StoreError::Gone { .. }) => continue,
            proven => proven?,
        };
        for (id, source) in wrong {
            findings.add(VerifyProblem::Object { id, source }, [id]);
        }
        findings.go_on(observer)?;
    }
    Ok(())
}

fn check_list(store: &Store, id: BlobId, findings: &Findings<'_>, observer: &dyn Observer) -> u64 {
    let object = id.object();
    // The structure check reports a list of which a part cannot be read.
    let Ok(ContentLayout::Chunks(_)) = store.content(&id) else { return 0 };
    let (mut bytes_read, unreadable) = (0, Cell::new(object));
    let read = |id: &ObjectId, kind| store.object(id, kind).inspect_err(|_| unreadable.set(*id));
    let list = read(&object, ObjectKind::ChunkList).and_then(|list| decode_list(object, &list));
    let Ok(list) = list else { return 0 };
    let checked = read_chunks::<ContentError<()>>(&id, list, 0..u64::MAX, &read, &mut |chunk| {
        bytes_read += chunk.len() as u64;
        observer.advance(chunk.len() as u64, 0);
        if observer.cancelled() { Err(ContentError::Callback(())) } else { Ok(()) }
    });
    match checked {
        Err(ContentError::Store(StoreError::Content { actual, .. })) => {
            findings.shadow_place(store, object);
            findings.add(VerifyProblem::Chunks { id: object, actual: actual.object() }, [object]);
        }
        Err(ContentError::Store(StoreError::Absent { .. })) => {}
        Err(ContentError::Store(source)) if !findings.is_bad(&unreadable.get()) => {
            findings.add_unreadable(store, unreadable.get(), source);
        }
        _ => {}
    }
    bytes_read
}
