//! Checks that every ref leads to a complete snapshot.
//!
//! Commits are visited one after the other. No object is visited twice: one bit for each
//! object of the store records the visit.

use std::collections::BTreeSet;

use crate::{
    base::{
        id::{ChunkListId, CommitId, ContentId, ObjectId, TreeId},
        kind::ErrorKind,
        observe::Phase,
        time::Time,
    },
    format::{chunk_list::BlobRef, pack::ObjectKind, tree::EntryKind},
    ops::{
        reach,
        verify::{Dated, Verification, VerifyError, VerifyProblem},
    },
    repo::{
        Repo, history,
        ref_log::RefValue,
        ref_name::RefKind,
        roots::{Root, RootChoice, RootOrigin, Roots},
    },
    store::{
        Ancestor, ChunkVisit, Descend, Marks, Prefetch, StoreError, TreeCursor, TreeWalk, WalkStep,
        read_list, walk_chunks,
    },
};

/// The commits at which the walk begins.
pub(super) struct StartCommits<'a> {
    /// The commits that refs point at.
    pub(super) tips: Vec<CommitId>,
    /// Returns the commits that refs pointed at before. Called once, and only if a commit
    /// is lost.
    pub(super) earlier: &'a dyn Fn() -> Result<Vec<CommitId>, VerifyError>,
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

impl Verification<'_> {
    /// Returns the commits that all refs point at, and those that the project's files come from:
    /// the next commit needs them, too. Reports unreadable refs and an unreadable scope.
    pub(super) fn tips(&self, repo: &Repo) -> Result<Vec<CommitId>, VerifyError> {
        let mut tips = Vec::new();
        repo.refs().note_misnamed(self.observer)?;
        if let Err(source) = repo.scope() {
            self.add(VerifyProblem::Scope { source }, []);
        }
        let roots = Roots::read(repo, RootChoice::Needed)?;
        for root @ Root { id, origin } in roots.iter() {
            if let RootOrigin::Lost(name) = origin {
                self.add(VerifyProblem::RefLost { name: name.clone(), id: *id }, []);
            }
            match reach::is_collected(repo, *id, self.observer)? {
                true => self.count(|outcome| outcome.collected.push(root.clone())),
                false => tips.push(*id),
            }
        }
        for (name, source) in roots.unreadable() {
            self.add(VerifyProblem::Ref { name, source }, []);
        }
        Ok(tips)
    }

    /// Walks everything that is reachable from the tips of `roots`. Returns all commits,
    /// newest first.
    pub(super) fn check_structure(
        &self,
        roots: &StartCommits<'_>,
    ) -> Result<Vec<Dated>, VerifyError> {
        self.observer.phase(Phase::Structure, None);
        let marks = Marks::new(self.store);
        let at_refs: BTreeSet<CommitId> = roots.tips.iter().copied().collect();
        let (mut commits, mut lost) = (Vec::new(), BTreeSet::new());
        let mut visit = |id: CommitId, lost: &mut BTreeSet<CommitId>| {
            // The marks have no bit for an id that the index lacks.
            if lost.contains(&id) || !marks.mark_ancestor(&id)? {
                return Ok(Vec::new());
            }
            match self.store.ancestor(&id) {
                Err(StoreError::Absent { .. }) => {}
                Err(source) if self.lies_at_origin(&source) => {}
                Ok(Ancestor { commit, is_forgotten: true }) if !at_refs.contains(&id) => {
                    self.count(|outcome| outcome.forgotten_commits += 1);
                    return Ok(commit.parents);
                }
                Ok(Ancestor { commit, .. }) => {
                    self.count(|outcome| outcome.commits += 1);
                    commits.push((commit.time, id));
                    self.check_tree(commit.tree, &marks)?;
                    return Ok(commit.parents);
                }
                Err(source) => {
                    lost.insert(id);
                    if self.remote.is_some() {
                        // The commit's time is unknown, so it is sorted last.
                        commits.push((Time::default(), id));
                    }
                    // A commit of a lost pack is not a separate problem.
                    if !(source.kind() == ErrorKind::Damaged && self.is_lost(&id.object())) {
                        self.add_unreadable(id.object(), source);
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
        self.count(|outcome| outcome.roots = tips);
        self.check_stopped()?;
        commits.sort_unstable_by(|a, b| b.cmp(a));
        Ok(commits)
    }

    fn check_tree(&self, root: TreeId, marks: &Marks) -> Result<(), VerifyError> {
        let mut walk = TreeWalk::new(TreeCursor::new(root, Prefetch::Nothing), ());
        while let Some(step) = walk.next() {
            self.check_stopped()?;
            let WalkStep::Node(node) = step else { continue };
            let id = node.id().object();
            // The damage of the node's pack is reported already, and a local copy of the node may
            // still be readable.
            if !marks.mark(&id)? || self.is_lost(&id) {
                continue;
            }
            match walk.read(self.store, node) {
                Err(StoreError::Absent { .. }) => continue,
                Err(source) if self.lies_at_origin(&source) => continue,
                Ok(entries) => {
                    for entry in entries {
                        match entry.kind {
                            EntryKind::Folder { id } => {
                                let (is_too_deep, id) = (walk.enter(id, ()).is_err(), id.object());
                                if is_too_deep && marks.mark(&id)? && !self.is_lost(&id) {
                                    self.add(VerifyProblem::Depth { id }, [id]);
                                }
                            }
                            EntryKind::File { size, id } => {
                                let is_new = marks.mark(&id.object())?;
                                self.count(|outcome| outcome.contents += u64::from(is_new));
                                self.check_content(id, size, is_new);
                            }
                            _ => {}
                        }
                    }
                }
                Err(source) => self.add_unreadable(id, source),
            }
            self.count(|outcome| outcome.trees += 1);
            self.observer.advance(1, 0);
        }
        Ok(())
    }

    /// Checks that a content is present and has the right size. Also checks the chunks of a new
    /// content.
    fn check_content(&self, id: ContentId, size: u64, is_new: bool) {
        let object = id.object();
        if self.is_lost(&object) {
            return;
        }
        let found = self.store.locate_in_pack(&object).and_then(|place| match id {
            ContentId::Blob(_) => {
                let wanted = ObjectKind::Blob;
                let place = place.ok_or(StoreError::Missing { id: object, wanted })?;
                Ok(place.of_kind(&object, wanted)?.bytes.into())
            }
            ContentId::Chunked(list) if is_new => self.check_chunks(&list),
            ContentId::Chunked(list) => {
                let read = |id: &ObjectId, kind| self.store.object(id, kind);
                Ok(read_list(&list, &read)?.total_bytes())
            }
        });
        let found = match found {
            Ok(found) => found,
            // The content's chunk list is stored elsewhere.
            Err(StoreError::Absent { .. }) => return,
            Err(source) => {
                if !self.is_bad(&object) {
                    self.add_unreadable(object, source);
                }
                return;
            }
        };
        if found != size {
            self.add(VerifyProblem::Size { id: object, expected: size, found }, [object]);
        }
    }

    /// Checks the parts and the chunks that a list names. Returns the length of the content.
    fn check_chunks(&self, list: &ChunkListId) -> Result<u64, StoreError> {
        let content = list.object();
        let read = |id: &ObjectId, kind| self.store.object(id, kind);
        let mut last = content;
        walk_chunks(list, &read, &mut |visit| {
            match visit {
                ChunkVisit::Part(part, end) => {
                    last = part.id.object();
                    return Ok(self.parts.lock().enter(part, end));
                }
                ChunkVisit::Chunks(Ok(chunks)) => {
                    chunks.iter().for_each(|chunk| self.check_chunk(&content, chunk));
                }
                ChunkVisit::Chunks(Err(error)) => self.add_unreadable_below(&content, last, error),
            }
            Ok(Descend::Enter)
        })
    }

    /// Checks that a chunk of a content is present and has the length that the list states.
    fn check_chunk(&self, content: &ObjectId, chunk: &BlobRef) {
        let id = chunk.id.object();
        let located = self.store.locate_chunk(chunk).and_then(|_| self.store.locate_in_pack(&id));
        if let Err(source) = located {
            self.add_unreadable_below(content, id, source);
        }
    }

    /// Reports an object that the list of a content names.
    fn add_unreadable_below(&self, content: &ObjectId, id: ObjectId, source: StoreError) {
        let is_elsewhere =
            matches!(source, StoreError::Absent { .. }) || self.lies_at_origin(&source);
        if !is_elsewhere && !self.is_bad(&id) {
            self.add_unreadable(id, source);
            self.add_bad(*content);
        }
    }
}
