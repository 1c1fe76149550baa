//! Checking that every ref reaches a complete snapshot.
//!
//! Commits are walked one after the other, trees with an explicit stack, and
//! nothing twice: one bit for each object of the store says what was met.

use rayon::prelude::*;

use crate::{
    base::{
        id::{BlobId, CommitId, TreeId},
        kind::ErrorKind,
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{
        pack::ObjectKind,
        tree::{Child, Kind, Node},
    },
    ops::verify::{Dated, Findings, Outcome, Problem, VerifyError},
    repo::{
        Pointer, Repo,
        ref_log::{Line, Target},
        ref_name::{RefKind, RefName},
        refs::{Head, RefError},
    },
    store::{Content, Marks, Store, StoreError},
};

/// Where all refs point; a ref that cannot be read is a finding.
pub(super) fn tips(repo: &Repo, findings: &Findings<'_>) -> Result<Vec<CommitId>, VerifyError> {
    let mut tips = Vec::new();
    for kind in [RefKind::Branch, RefKind::Tag] {
        for name in repo.refs().names(kind)? {
            match repo.refs().read(&name) {
                Ok(id) => tips.extend(id),
                Err(source) => findings.add(Problem::Ref { name: name.to_string(), source }, []),
            }
        }
    }
    for (name, id) in lost_refs(repo)? {
        findings.add(Problem::RefLost { name, id }, []);
        tips.push(id);
    }
    match repo.refs().head() {
        Ok(Head::Detached(id)) => tips.push(id),
        Ok(Head::Branch(_)) => {}
        Err(source) => findings.add(Problem::Ref { name: "HEAD".to_owned(), source }, []),
    }
    Ok(tips)
}

/// Refs that are missing although their logs record no removal, and where
/// they were.
///
/// A log's last line may record a ref that was never made: a crash came between.
/// So a ref counts only if it was there before that line, or is the base.
fn lost_refs(repo: &Repo) -> Result<Vec<(RefName, CommitId)>, RefError> {
    let base = repo.base()?.unwrap_or_default();
    let mut lost = Vec::new();
    for pointer in repo.refs().logged()? {
        let Pointer::Ref(name) = pointer else { continue };
        // A ref that cannot be read was reported.
        if !matches!(repo.refs().read(&name), Ok(None)) {
            continue;
        }
        let last = repo.refs().log(&name)?.pop();
        let Some(Line { old, new: Target::Commit(id), .. }) = last else { continue };
        if old != Target::Nothing || base.contains(&id) {
            lost.push((name, id));
        }
    }
    Ok(lost)
}

/// Walks everything that is reached from `tips`. Returns all commits, newest
/// first.
pub(super) fn check(
    store: &Store,
    tips: &[CommitId],
    findings: &Findings<'_>,
    observer: &dyn Observer,
    outcome: &mut Outcome,
) -> Result<Vec<Dated>, VerifyError> {
    observer.phase(Phase::Structure, None);
    let marks = Marks::new(store);
    let mut commits = Vec::new();
    let mut waiting: Vec<CommitId> = tips.to_vec();
    while let Some(id) = waiting.pop() {
        if !marks.mark(&id.object())? {
            continue;
        }
        match store.commit(&id) {
            Err(StoreError::Absent { .. }) => {}
            Ok(commit) => {
                outcome.commits += 1;
                commits.push((commit.time, id));
                waiting.extend(&commit.parents);
                walk(store, commit.tree, &marks, findings, observer, outcome)?;
            }
            // An unknown id is met anew each time, but leads nowhere.
            Err(source) => {
                if findings.is_elsewhere() {
                    // Its date is not known: it comes last.
                    commits.push((Time::default(), id));
                }
                // That of a lost pack is no problem of its own.
                if !(source.kind() == ErrorKind::Damaged && findings.is_lost(&id.object())) {
                    findings.add_unreadable(store, id.object(), source);
                }
            }
        }
    }
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
    outcome: &mut Outcome,
) -> Result<(), VerifyError> {
    // With each node of a split directory, what the one above says of it: its
    // level and its first name.
    let mut waiting = vec![(root, 0usize, None)];
    while let Some((id, depth, place)) = waiting.pop() {
        findings.go_on(observer)?;
        if !marks.mark(&id.object())? {
            continue;
        }
        // Its pack is a problem already, and may be read from a copy here.
        if findings.is_lost(&id.object()) {
            continue;
        }
        if depth > limits::DEPTH {
            findings.add(Problem::Depth { id: id.object() }, [id.object()]);
            continue;
        }
        match store.tree(&id) {
            Err(StoreError::Absent { .. }) => continue,
            Ok(node)
                if place.is_some_and(|place| place != (node.level(), node.first().cloned())) =>
            {
                let what = "place of a tree node";
                let source = crate::format::wire::FormatError::Invalid { what, at: 1 };
                let (object, kind) = (id.object(), ObjectKind::Tree);
                let source = StoreError::Object { id: object, kind, source };
                findings.add(Problem::Object { id: object, source }, [object]);
            }
            Ok(Node::Leaf { entries, .. }) => {
                for entry in entries {
                    match entry.kind {
                        Kind::Folder { id } => waiting.push((id, depth + 1, None)),
                        Kind::File { size, id } => {
                            outcome.contents += u64::from(marks.mark(&id.object())?);
                            check_content(store, id, size, findings);
                        }
                        _ => {}
                    }
                }
            }
            Ok(Node::Inner { level, children, .. }) => {
                let place = |child: Child| (child.id, depth, Some((level - 1, Some(child.first))));
                waiting.extend(children.into_iter().map(place));
            }
            Err(source) => findings.add_unreadable(store, id.object(), source),
        }
        outcome.trees += 1;
        observer.advance(1, 0);
    }
    Ok(())
}

/// Checks that a content is there, with all its chunks and of the right size.
fn check_content(store: &Store, id: BlobId, size: u64, findings: &Findings<'_>) {
    let object = id.object();
    if findings.is_lost(&object) {
        return;
    }
    let found = match store.content(&id) {
        // Its list of chunks lies elsewhere.
        Err(StoreError::Absent { .. }) => return,
        Ok(Content::Whole(_)) => match store.locate_in_pack(&object) {
            Ok(Some(place)) => u64::from(place.bytes),
            Ok(None) => {
                let source = StoreError::Missing { id: object, wanted: ObjectKind::Blob };
                return findings.add_unreadable(store, object, source);
            }
            Err(source) => return findings.add_unreadable(store, object, source),
        },
        Ok(Content::Chunks(chunks)) => {
            for chunk in &chunks {
                let wanted = ObjectKind::Blob;
                let source = match store.locate_in_pack(&chunk.id.object()) {
                    Ok(Some(place)) if place.kind == wanted && place.bytes == chunk.bytes => {
                        continue;
                    }
                    Ok(_) => StoreError::Missing { id: chunk.id.object(), wanted },
                    Err(source) => source,
                };
                if !findings.is_bad(&chunk.id.object()) {
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
        // The size of a whole object follows from its id, that of a list does not.
        findings.shadow_list(store, object);
        findings.add(Problem::Size { id: object, expected: size, found }, [object]);
    }
}

/// Hashes every content that was cut, because a chunk list is not named by its
/// own bytes.
pub(super) fn check_lists(
    store: &Store,
    findings: &Findings<'_>,
    observer: &dyn Observer,
    outcome: &mut Outcome,
) -> Result<(), VerifyError> {
    let mut lists = Vec::new();
    for pack in store.packs() {
        let objects = store.open_pack(&pack).and_then(|pack| pack.objects());
        // A pack that cannot be read is a finding already.
        let objects = objects.unwrap_or_default();
        let cut = objects.iter().filter(|object| object.kind == ObjectKind::ChunkList);
        lists.extend(cut.map(|object| BlobId::from_object(object.id)));
    }
    observer.phase(Phase::Data, None);
    let read: u64 = lists.par_iter().map(|id| check_list(store, *id, findings, observer)).sum();
    outcome.bytes_read += read;
    if observer.cancelled() { Err(VerifyError::Interrupted) } else { Ok(()) }
}

fn check_list(store: &Store, id: BlobId, findings: &Findings<'_>, observer: &dyn Observer) -> u64 {
    let object = id.object();
    let Ok(Content::Chunks(chunks)) = store.content(&id) else { return 0 };
    let mut hasher = blake3::Hasher::new();
    let mut read = 0;
    for chunk in chunks {
        if observer.cancelled() {
            return read;
        }
        match store.object(&chunk.id.object(), ObjectKind::Blob) {
            Ok(bytes) => drop(hasher.update(&bytes).count()),
            Err(StoreError::Absent { .. }) => return read,
            Err(source) => {
                if !findings.is_bad(&chunk.id.object()) {
                    findings.add_unreadable(store, chunk.id.object(), source);
                }
                return read;
            }
        }
        read += u64::from(chunk.bytes);
        observer.advance(u64::from(chunk.bytes), 0);
    }
    let actual = BlobId::from_bytes(*hasher.finalize().as_bytes()).object();
    if actual != object {
        findings.shadow_place(store, object);
        findings.add(Problem::Chunks { id: object, actual }, [object]);
    }
    read
}
