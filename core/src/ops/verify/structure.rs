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
        Ancestor, ContentError, ContentPlace, Marks, Prefetch, StoreError, TreeCursor, TreeWalk,
        WalkStep, decode_list, read_chunks,
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
                                if marks.mark(&id.object())? {
                                    self.count(|outcome| outcome.contents += 1);
                                }
                                self.check_content(id, size);
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

    /// Checks that a content is present with all its chunks and has the right size.
    fn check_content(&self, id: BlobId, size: u64) {
        let object = id.object();
        if self.is_lost(&object) {
            return;
        }
        let place = self.store.locate_in_pack(&object);
        let found = place.and_then(|place| match ContentPlace::of(&object, place)? {
            ContentPlace::Whole(place) => Ok(place.bytes.into()),
            ContentPlace::Cut(_) => self.store.for_each_chunk(&id, &mut |chunk| {
                self.check_chunk(&object, chunk);
                Ok(())
            }),
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
            // The hash covers the size of a whole object. A chunk list is not covered by its
            // id, so the list must be wrong.
            self.shadow_list(object);
            self.add(VerifyProblem::Size { id: object, expected: size, found }, [object]);
        }
    }

    /// Checks that a chunk of a content is present and has the length that the list states.
    fn check_chunk(&self, content: &ObjectId, chunk: &BlobRef) {
        let id = chunk.id.object();
        let located = self.store.locate_chunk(chunk).and_then(|_| self.store.locate_in_pack(&id));
        if let Err(source) = located
            && !self.lies_at_origin(&source)
            && !self.is_bad(&id)
        {
            self.add_unreadable(id, source);
            self.add_bad(*content);
        }
    }

    /// Hashes the chunks of every content that was cut. The id of a chunk list is not the
    /// hash of its own bytes, so nothing else proves the list.
    pub(super) fn check_lists(&self) -> Result<(), VerifyError> {
        let mut lists = Vec::new();
        for pack in self.store.packs() {
            let objects = self.store.open_pack(&pack).and_then(|pack| pack.objects());
            // The check of the packs has reported an unreadable pack.
            let objects = objects.unwrap_or_default();
            let cut = objects.iter().filter(|object| object.kind == ObjectKind::ChunkList);
            lists.extend(cut.map(|object| BlobId::from_object(object.id)));
        }
        self.observer.phase(Phase::Data, None);
        lists.par_iter().for_each(|id| self.check_list(*id));
        self.observer.check(VerifyError::Interrupted)
    }

    /// Records the sound whole packs as proven. For packs that were not proven before, hashes the
    /// contents behind the lists again: [`Verification::check_lists`] checks one copy of each list.
    ///
    /// # Errors
    /// [`VerifyError`] when a pack cannot be read, or the user asks to stop.
    pub(super) fn prove_packs(&self) -> Result<(), VerifyError> {
        let is_sound = |id: &PackId| !self.store.is_partial(id) && !self.shadows(id);
        let sound: Vec<PackId> = self.store.packs().into_iter().filter(is_sound).collect();
        let (proven, unproven): (Vec<PackId>, Vec<PackId>) =
            sound.into_iter().partition(|id| self.store.is_proven(id));
        self.store.record_proven(&proven);
        for id in &unproven {
            let wrong = match self.store.prove_pack(id, self.observer) {
                // Reported already, or merged into another pack meanwhile.
                Err(error) if error.kind() == ErrorKind::Damaged => continue,
                Err(StoreError::Gone { .. }) => continue,
                proven => proven?,
            };
            for (id, source) in wrong {
                self.add(VerifyProblem::Object { id, source }, [id]);
            }
            self.check_stopped()?;
        }
        Ok(())
    }

    fn check_list(&self, id: BlobId) {
        let object = id.object();
        // The structure check has reported a list of which a part cannot be read.
        if self.is_bad(&object) {
            return;
        }
        let unreadable = Cell::new(object);
        let read =
            |id: &ObjectId, kind| self.store.object(id, kind).inspect_err(|_| unreadable.set(*id));
        let list = read(&object, ObjectKind::ChunkList).and_then(|list| decode_list(object, &list));
        let Ok(list) = list else { return };
        let checked =
            read_chunks::<ContentError<()>>(&id, &list, 0..u64::MAX, &read, &mut |chunk| {
                self.observer.advance(chunk.len() as u64, 0);
                self.observer.check(ContentError::Callback(()))
            });
        match checked {
            Err(ContentError::Store(StoreError::Content { actual, .. })) => {
                self.shadow_place(object);
                self.add(VerifyProblem::Chunks { id: object, actual: actual.object() }, [object]);
            }
            Err(ContentError::Store(StoreError::Absent { .. })) => {}
            Err(ContentError::Store(source)) if !self.is_bad(&unreadable.get()) => {
                self.add_unreadable(unreadable.get(), source);
            }
            _ => {}
        }
    }
}
