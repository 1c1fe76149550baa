//! Checking that every ref reaches a complete snapshot.
//!
//! Commits are walked one after the other, trees with an explicit stack, and
//! nothing twice: one bit for each object of the store says what was met.

use rayon::prelude::*;

use crate::{
    base::{
        id::{BlobId, CommitId, TreeId},
        limits,
        observe::{Observer, Phase},
    },
    format::{
        pack::ObjectKind,
        tree::{Child, Kind, Node},
    },
    ops::verify::{Dated, Findings, Outcome, Problem, VerifyError},
    repo::{Repo, ref_name::RefKind, refs::Head},
    store::{Content, Marks, Store, StoreError},
};

/// Where all refs point; a ref that cannot be read is a finding.
pub(super) fn tips(repo: &Repo, findings: &Findings) -> Result<Vec<CommitId>, VerifyError> {
    let mut tips = Vec::new();
    for kind in [RefKind::Branch, RefKind::Tag] {
        for name in repo.refs().names(kind)? {
            match repo.refs().read(&name) {
                Ok(id) => tips.extend(id),
                Err(source) => findings.add(Problem::Ref { name: name.to_string(), source }, []),
            }
        }
    }
    match repo.refs().head() {
        Ok(Head::Detached(id)) => tips.push(id),
        Ok(Head::Branch(_)) => {}
        Err(source) => findings.add(Problem::Ref { name: "HEAD".to_owned(), source }, []),
    }
    Ok(tips)
}

/// Walks everything that is reached from `tips`. Returns all commits, newest
/// first.
pub(super) fn check(
    store: &Store,
    tips: &[CommitId],
    findings: &Findings,
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
            Err(source) => findings.add(Problem::Object { id: id.object(), source }, [id.object()]),
        }
    }
    commits.sort_unstable_by(|a, b| b.cmp(a));
    Ok(commits)
}

fn walk(
    store: &Store,
    root: TreeId,
    marks: &Marks,
    findings: &Findings,
    observer: &dyn Observer,
    outcome: &mut Outcome,
) -> Result<(), VerifyError> {
    // With each node of a split directory, what the one above says of it: its
    // level and its first name.
    let mut waiting = vec![(root, 0usize, None)];
    while let Some((id, depth, place)) = waiting.pop() {
        if observer.cancelled() {
            return Err(VerifyError::Interrupted);
        }
        if !marks.mark(&id.object())? {
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
            Err(source) => findings.add(Problem::Object { id: id.object(), source }, [id.object()]),
        }
        outcome.trees += 1;
        observer.advance(1, 0);
    }
    Ok(())
}

/// Checks that a content is there, with all its chunks and of the right size.
fn check_content(store: &Store, id: BlobId, size: u64, findings: &Findings) {
    let object = id.object();
    let found = match store.content(&id) {
        // Its list of chunks lies elsewhere.
        Err(StoreError::Absent { .. }) => return,
        Ok(Content::Whole(place)) => u64::from(place.bytes),
        Ok(Content::Chunks(chunks)) => {
            for chunk in &chunks {
                let wanted = ObjectKind::Blob;
                let source = match store.locate(&chunk.id.object()) {
                    Ok(Some(place)) if place.kind == wanted && place.bytes == chunk.bytes => {
                        continue;
                    }
                    Ok(_) => StoreError::Missing { id: chunk.id.object(), wanted },
                    Err(source) => source,
                };
                if !findings.is_bad(&chunk.id.object()) {
                    let problem = Problem::Object { id: chunk.id.object(), source };
                    findings.add(problem, [chunk.id.object(), object]);
                }
            }
            chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum()
        }
        Err(source) => {
            if !findings.is_bad(&object) {
                findings.add(Problem::Object { id: object, source }, [object]);
            }
            return;
        }
    };
    if found != size {
        findings.add(Problem::Size { id: object, expected: size, found }, [object]);
    }
}

/// Hashes every content that was cut, because a chunk list is not named by its
/// own bytes.
pub(super) fn check_lists(
    store: &Store,
    findings: &Findings,
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

fn check_list(store: &Store, id: BlobId, findings: &Findings, observer: &dyn Observer) -> u64 {
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
                    let problem = Problem::Object { id: chunk.id.object(), source };
                    findings.add(problem, [chunk.id.object()]);
                }
                return read;
            }
        }
        read += u64::from(chunk.bytes);
        observer.advance(u64::from(chunk.bytes), 0);
    }
    let actual = BlobId::from_bytes(*hasher.finalize().as_bytes()).object();
    if actual != object {
        findings.add(Problem::Chunks { id: object, actual }, [object]);
    }
    read
}
