//! The commits from which everything that a store must keep can be reached.
//!
//! Each operation chooses how far its roots go ([`RootChoice`]): the larger choices contain the
//! smaller ones.

use std::collections::{BTreeSet, HashMap};

use crate::{
    base::{id::CommitId, time::Time},
    repo::{
        Pointer, Repo,
        ref_log::{RefLogEntry, RefValue},
        ref_name::{RefKind, RefName},
        refs::{Head, RefError},
    },
};

/// Which commits an operation starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootChoice {
    /// Branches and tags: what other stores may rely on.
    Shared,
    /// Also a detached `HEAD`: what `rewrite` moves.
    Movable,
    /// Also lost branches and tags, and the base of the project: what must be complete.
    Needed,
    /// Also remote-tracking branches, files whose names no ref can have, and what any of these refs
    /// pointed at since this time: what `gc` keeps.
    Kept { since: Time },
}

/// How a store refers to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootOrigin {
    /// A branch, a tag or `HEAD` points at the commit.
    Pointer(Pointer),
    /// The file of a branch or a tag is lost, and this was its last commit.
    Lost(RefName),
    /// The project's files come from the commit.
    Base,
    /// A remote-tracking branch points at the commit.
    Tracking(RefName),
    /// A file among the refs whose name no ref can have.
    Misnamed,
    /// A ref pointed at the commit, or `unpack` received it without a ref.
    Former,
}

/// A commit that a store refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub id: CommitId,
    pub origin: RootOrigin,
}

/// The commits that a store refers to. A commit has one root for each reference to it.
#[derive(Debug, Default)]
pub struct Roots {
    roots: Vec<Root>,
    /// Refs that cannot be read, each with its path in the store.
    unreadable: Vec<(String, RefError)>,
    /// The last time at which a branch, a tag or `HEAD` moved to a commit, for
    /// [`RootChoice::Kept`].
    reached: HashMap<CommitId, Time>,
}

impl Roots {
    /// Reads the roots. Refs that cannot be read are [listed](Self::unreadable).
    ///
    /// # Errors
    /// [`RefError`] if a folder of refs, a log or the base cannot be read.
    pub fn read(repo: &Repo, choice: RootChoice) -> Result<Self, RefError> {
        let mut roots = Self::default();
        roots.add_refs(repo, RefKind::Branch)?;
        roots.add_refs(repo, RefKind::Tag)?;
        if choice == RootChoice::Shared {
            return Ok(roots);
        }
        match repo.refs().head() {
            Ok(Head::Detached(id)) => roots.add(id, RootOrigin::Pointer(Pointer::Head)),
            Ok(Head::Branch(_)) => {}
            Err(error) => roots.unreadable.push(("HEAD".to_owned(), error)),
        }
        if choice == RootChoice::Movable {
            return Ok(roots);
        }
        for (name, id) in repo.lost_refs()? {
            roots.add(id, RootOrigin::Lost(name));
        }
        let base: BTreeSet<CommitId> = repo.base()?.unwrap_or_default().named().collect();
        base.into_iter().for_each(|id| roots.add(id, RootOrigin::Base));
        if let RootChoice::Kept { since } = choice {
            roots.add_refs(repo, RefKind::Remote)?;
            for kind in [RefKind::Branch, RefKind::Tag, RefKind::Remote] {
                let files = repo.refs().misnamed(kind)?;
                let commits = files.into_iter().filter_map(|file| file.commit);
                commits.for_each(|id| roots.add(id, RootOrigin::Misnamed));
            }
            roots.add_former(repo, since)?;
        }
        Ok(roots)
    }

    /// Returns the roots if all refs could be read.
    ///
    /// # Errors
    /// The error of the first ref that cannot be read: it may point at any commit.
    pub fn complete(mut self) -> Result<Self, RefError> {
        match self.unreadable.is_empty() {
            true => Ok(self),
            false => Err(self.unreadable.swap_remove(0).1),
        }
    }

    /// Returns the roots, each reference on its own.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter()
    }

    /// Returns the commits, each once.
    pub fn commits(&self) -> BTreeSet<CommitId> {
        self.roots.iter().map(|root| root.id).collect()
    }

    /// Returns the commits of the branches, the tags and a detached `HEAD`, each with its ref.
    pub fn pointers(&self) -> impl Iterator<Item = (&Pointer, CommitId)> {
        self.roots.iter().filter_map(|root| match &root.origin {
            RootOrigin::Pointer(pointer) => Some((pointer, root.id)),
            _ => None,
        })
    }

    /// Returns the last time at which a branch, a tag or `HEAD` moved to a commit. Needs
    /// [`RootChoice::Kept`].
    pub fn reached(&self, id: &CommitId) -> Option<Time> {
        self.reached.get(id).copied()
    }

    /// Returns the refs that cannot be read, each with its path in the store.
    pub fn unreadable(self) -> Vec<(String, RefError)> {
        self.unreadable
    }

    fn add(&mut self, id: CommitId, origin: RootOrigin) {
        self.roots.push(Root { id, origin });
    }

    fn add_refs(&mut self, repo: &Repo, kind: RefKind) -> Result<(), RefError> {
        let (readable, unreadable) = repo.refs().list_readable(kind)?;
        for (name, id) in readable {
            let origin = match kind {
                RefKind::Remote => RootOrigin::Tracking(name),
                RefKind::Branch | RefKind::Tag => RootOrigin::Pointer(Pointer::Ref(name)),
            };
            self.add(id, origin);
        }
        let named = unreadable.into_iter().map(|(name, error)| (name.to_string(), error));
        self.unreadable.extend(named);
        Ok(())
    }

    /// Adds what refs pointed at since a time.
    fn add_former(&mut self, repo: &Repo, since: Time) -> Result<(), RefError> {
        let refs = repo.refs();
        let mut former = BTreeSet::new();
        let is_recent = |line: &RefLogEntry| line.time >= since;
        for pointer in refs.logged()? {
            for line in refs.log_of(&pointer)?.into_iter().filter(is_recent) {
                former.extend([&line.old, &line.new].into_iter().filter_map(RefValue::commit));
                if let Some(id) = line.new.commit() {
                    let last = self.reached.entry(id).or_insert(line.time);
                    *last = line.time.max(*last);
                }
            }
        }
        for line in refs.other_logs()?.into_iter().filter(is_recent) {
            former.extend([&line.old, &line.new].into_iter().filter_map(RefValue::commit));
        }
        former.into_iter().for_each(|id| self.add(id, RootOrigin::Former));
        Ok(())
    }
}
