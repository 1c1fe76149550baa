//! Making a commit durable and moving the branch to it, last of all.

use crate::{
    base::{
        id::{CommitId, TreeId},
        limits,
        observe::{Note, Observer},
        time::Time,
    },
    format::{commit::Commit, tree::Metadata},
    ops::commit::{CommitError, Options, Outcome, Root, Unchanged, make},
    repo::{
        Repo,
        open::FIRST_BRANCH,
        ref_name::RefName,
        refs::{Change, Head, RefError},
    },
    store::Writer,
};

/// What a commit is made on top of.
pub(super) struct Base {
    head: Head,
    target: Target,
    tip: Option<(CommitId, Commit)>,
}

/// What moves to the new commit.
enum Target {
    Branch(RefName),
    DetachedHead,
}

impl Base {
    /// Reads where the branch stands.
    pub(super) fn read(repo: &Repo, options: &Options) -> Result<Self, CommitError> {
        let head = match repo.is_absent() {
            true => Head::Branch(RefName::branch(FIRST_BRANCH).map_err(RefError::Name)?),
            false => repo.refs().head()?,
        };
        let target = match (&options.branch, &head) {
            (Some(branch), _) | (None, Head::Branch(branch)) => Target::Branch(branch.clone()),
            (None, Head::Detached(_)) => Target::DetachedHead,
        };
        let tip = match (&target, &head) {
            (Target::Branch(branch), _) => repo.refs().read(branch)?,
            (Target::DetachedHead, Head::Detached(id)) => Some(*id),
            (Target::DetachedHead, Head::Branch(_)) => None,
        };
        let tip =
            tip.map(|id| Ok::<_, CommitError>((id, repo.store().commit(&id)?))).transpose()?;
        Ok(Self { head, target, tip })
    }

    /// The tree to compare with.
    pub(super) fn tree(&self) -> Option<TreeId> {
        self.tip.as_ref().map(|(_, commit)| commit.tree)
    }

    /// Bytes of the files in the commit before.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.tip.as_ref().map(|(_, commit)| commit.totals.bytes).filter(|bytes| *bytes > 0)
    }

    fn is_same(&self, root: &Root) -> bool {
        self.tip.as_ref().is_some_and(|(_, commit)| {
            commit.tree == root.tree && same_root(commit.root.as_ref(), root.metadata.as_ref())
        })
    }
}

/// Whether a root folder's attributes are the same, but for its mtime: a file
/// that comes and goes changes it, and so does a store that is made in it.
fn same_root(before: Option<&Metadata>, now: Option<&Metadata>) -> bool {
    let without_time = |metadata: Option<&Metadata>| {
        metadata.map(|metadata| Metadata { mtime: None, ..metadata.clone() })
    };
    without_time(before) == without_time(now)
}

/// Says what a commit would come to.
pub(super) fn preview(
    base: &Base,
    root: &Root,
    writer: &Writer<'_>,
    options: &Options,
    outcome: &mut Outcome,
) {
    outcome.created = options.unchanged == Unchanged::Commit || !base.is_same(root);
    outcome.added = writer.added();
    outcome.id = base.tip.as_ref().map(|(id, _)| *id).filter(|_| !outcome.created);
}

/// Adds the commit, makes everything durable, and moves the branch. When the
/// branch has moved meanwhile, the commit is made again on top of where it is.
pub(super) fn run(
    repo: &Repo,
    mut base: Base,
    root: &Root,
    writer: Writer<'_>,
    options: &Options,
    observer: &dyn Observer,
    outcome: &mut Outcome,
) -> Result<(), CommitError> {
    let (count, limit) = (options.labels.len(), limits::LABELS);
    if count > limit {
        return Err(CommitError::TooManyLabels { count, limit });
    }
    let mut writer = Some(writer);
    for _ in 0..limits::REF_RETRIES {
        if options.unchanged == Unchanged::Keep && base.is_same(root) {
            // Whoever moved the branch there may have died before it was durable.
            if let Target::Branch(branch) = &base.target {
                repo.refs().sync(branch)?;
            }
            outcome.id = base.tip.as_ref().map(|(id, _)| *id);
            return Ok(());
        }
        let commit = make(root, parents(&base), time(&base, options, observer), options);
        let bytes = commit.encode();
        if bytes.len() > limits::COMMIT_BYTES {
            return Err(CommitError::TooLarge { bytes: bytes.len(), limit: limits::COMMIT_BYTES });
        }
        let id = CommitId::of(&bytes);
        let writer = match writer.take() {
            Some(writer) => writer,
            None => Writer::new(repo.store(), repo.config().compression.level, 1)?,
        };
        writer.add_commit(id, &bytes)?;
        let added = writer.finish()?;
        outcome.added.objects += added.objects;
        outcome.added.raw_bytes += added.raw_bytes;
        outcome.added.stored_bytes += added.stored_bytes;
        outcome.added.packs += added.packs;
        match advance(repo, &base, id, &commit) {
            Ok(()) => {
                (outcome.id, outcome.created) = (Some(id), true);
                return Ok(());
            }
            Err(RefError::Moved { .. } | RefError::Exists { .. } | RefError::HeadMoved) => {
                repo.store().refresh()?;
                base = Base::read(repo, options)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let name = match base.target {
        Target::Branch(name) => name,
        Target::DetachedHead => return Err(RefError::HeadMoved.into()),
    };
    Err(CommitError::Contended { name, tries: limits::REF_RETRIES })
}

fn parents(base: &Base) -> Vec<CommitId> {
    base.tip.iter().map(|(id, _)| *id).collect()
}

/// The time of the commit, never before that of its parent: a clock that was
/// set back must not turn history around.
fn time(base: &Base, options: &Options, observer: &dyn Observer) -> Time {
    let now = options.time.unwrap_or_else(Time::now);
    match &base.tip {
        Some((_, parent)) if now <= parent.time => {
            let behind_secs = parent.time.secs - now.secs;
            if behind_secs > 0 {
                observer.note(Note::ClockBehind { behind_secs });
            }
            parent.time.successor()
        }
        _ => now,
    }
}

fn advance(repo: &Repo, base: &Base, id: CommitId, commit: &Commit) -> Result<(), RefError> {
    let first_line = commit.message.lines().next().unwrap_or_default();
    let reason =
        if first_line.is_empty() { "commit".to_owned() } else { format!("commit: {first_line}") };
    let change = Change { time: commit.time, who: &commit.author, reason: &reason };
    let before = base.tip.as_ref().map(|(id, _)| *id);
    let branch = match &base.target {
        Target::Branch(branch) => branch,
        Target::DetachedHead => {
            return repo.refs().set_head(&base.head, &Head::Detached(id), &change);
        }
    };
    repo.refs().update(branch, before, Some(id), &change)?;
    // The first commit of all went to another branch than HEAD names: then
    // that is the one to stand on.
    match &base.head {
        Head::Branch(head) if head != branch && repo.refs().read(head)?.is_none() => {
            let moved = repo.refs().set_head(&base.head, &Head::Branch(branch.clone()), &change);
            match moved {
                Err(RefError::HeadMoved) => Ok(()),
                other => other,
            }
        }
        _ => Ok(()),
    }
}
