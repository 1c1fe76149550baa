//! What a commit is made on top of: the branch, its last commit, and whether the
//! project's files contain all that is in its history.

use std::fmt;

use crate::{
    base::{
        id::{CommitId, TreeId},
        kind::ErrorKind,
        observe::{Note, Observer, Silent},
    },
    format::{
        commit::Commit,
        selection::{Selection, UnreadPaths},
        tree::Metadata,
    },
    ops::{
        commit::{
            CommitError, Input, NamedPath, Options, OtherSources, Root, Unnamed, Unseen,
            error::shown_sources,
        },
        diff::{self, DiffError},
    },
    repo::{
        Repo, base,
        open::FIRST_BRANCH,
        path::is_within,
        ref_name::RefName,
        refs::{Change, Head, RefError},
    },
    store::StoreError,
};

/// Commits and paths that an error names.
const NAMED: usize = 10;

/// What a commit is made on top of.
pub(super) struct Ground {
    head: Head,
    target: Target,
    /// Where the branch stands; the commit moves it from there.
    tip: Option<CommitId>,
    /// What the commit follows: the tip, or the base for a new branch.
    parent: Option<(CommitId, Commit)>,
    /// What the project's files come from, if that counts and is known.
    base: Option<Vec<CommitId>>,
    /// True if the project's files will contain all of the new commit.
    contains_all: bool,
}

/// What moves to the new commit.
enum Target {
    Branch(RefName),
    DetachedHead,
}

impl Ground {
    /// Reads where the branch stands.
    pub(super) fn read(
        repo: &Repo,
        is_stream: bool,
        options: &Options,
    ) -> Result<Self, CommitError> {
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
        if let (Some(branch), None) = (&options.branch, tip) {
            branch.check_new().map_err(RefError::Name)?;
        }
        let contains_all = options.unseen != Unseen::Ignore;
        let base = if contains_all { repo.base()? } else { None };
        let parent = match tip {
            Some(tip) => match repo.store().commit(&tip) {
                Ok(commit) => Some((tip, commit)),
                Err(source) => return Err(parent_error(&target, source)),
            },
            // A stream on a new branch has no parent.
            None if is_stream || !contains_all => None,
            // A new branch starts where the files come from.
            None => {
                let starts = match &base {
                    Some(base) => base.clone(),
                    None => current(repo, &head)?.into_iter().collect(),
                };
                let commit = |id| repo.store().commit(&id).ok().map(|commit| (id, commit));
                starts.into_iter().find_map(commit)
            }
        };
        Ok(Self { head, target, tip, parent, base, contains_all })
    }

    /// Refuses what would silently take back the work of others, or replace
    /// one source by another.
    pub(super) fn check(
        &mut self,
        repo: &Repo,
        input: &Input<'_>,
        options: &Options,
        observer: &dyn Observer,
    ) -> Result<(), CommitError> {
        if let (true, None, Some((parent, _))) = (self.contains_all, &self.base, &self.parent) {
            observer.note(Note::BaseLost { tip: parent });
        }
        let (Some(tip), Some((_, commit))) = (self.tip, &self.parent) else { return Ok(()) };
        if let Target::Branch(branch) = &self.target {
            check_sources(repo, (branch, commit), options, observer)?;
        }
        let Some(base) = self.base.as_ref().filter(|_| self.contains_all) else { return Ok(()) };
        let unseen = repo.unseen(base, tip)?;
        if unseen.is_empty() {
            return Ok(());
        }
        if options.unseen == Unseen::Accept || input.is_stream() {
            // The others' changes stay in the commit, but not in the files.
            self.contains_all = input.is_whole();
            return Ok(());
        }
        let from = base.first().and_then(|id| repo.store().commit(id).ok());
        let trees = (from.map(|commit| commit.tree), commit.tree);
        if let (Input::Paths(paths), Unnamed::Keep(_)) = (input, &options.unnamed)
            && leave_alone(repo, &unseen, paths)
        {
            self.contains_all = false;
            return Ok(());
        }
        let branch = match &self.target {
            Target::Branch(branch) => Some(branch.clone()),
            Target::DetachedHead => None,
        };
        Err(CommitError::Behind(Box::new(Behind::new(repo, branch, unseen, trees))))
    }

    /// Returns whether the project's files come from the same commits as they did
    /// when an earlier ground was read.
    pub(super) fn has_base_of(&self, earlier: &Self) -> bool {
        self.base == earlier.base
    }

    /// The tree to compare with.
    pub(super) fn tree(&self) -> Option<TreeId> {
        self.parent.as_ref().map(|(_, commit)| commit.tree)
    }

    /// The root folder's attributes in the commit before.
    pub(super) fn root_metadata(&self) -> Option<&Metadata> {
        self.parent.as_ref()?.1.root.as_ref()
    }

    /// Bytes of the files in the commit before.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.parent.as_ref().map(|(_, commit)| commit.totals.bytes).filter(|bytes| *bytes > 0)
    }

    /// The commit before, on the branch itself.
    pub(super) fn tip(&self) -> Option<CommitId> {
        self.tip
    }

    /// What the new commit follows.
    pub(super) fn parent(&self) -> Option<&(CommitId, Commit)> {
        self.parent.as_ref()
    }

    /// The branch that moves.
    pub(super) fn branch(&self) -> Option<&RefName> {
        match &self.target {
            Target::Branch(branch) => Some(branch),
            Target::DetachedHead => None,
        }
    }

    /// Whether the branch holds this already.
    pub(super) fn is_same(&self, root: &Root) -> bool {
        let Some((_, commit)) = self.parent.as_ref().filter(|_| self.tip.is_some()) else {
            return false;
        };
        let (before, now) = (&commit.selection, &root.selection);
        commit.tree == root.tree
            && same_root(commit.root.as_ref(), root.metadata.as_ref())
            // What a restore must not delete has to be recorded.
            && now.rules.iter().all(|rules| before.rules.contains(rules))
            && now.unread.iter().all(|path| before.unread.covers(path))
            && (before.unread.has_more() || !now.unread.has_more())
    }

    /// What a commit on this ground could have contained.
    pub(super) fn selection(
        &self,
        unread: UnreadPaths,
        (input, options): (&Input<'_>, &Options),
    ) -> Selection {
        let mut selection = Selection::default();
        let before = self.parent.as_ref().map(|(_, commit)| &commit.selection);
        let named: Option<Vec<Vec<u8>>> = match (input, &options.unnamed) {
            (Input::Partial(_, scope), _) => {
                Some(scope.iter().map(|names| joined(names)).collect())
            }
            (Input::Paths(paths), Unnamed::Keep(_)) => {
                Some(paths.iter().map(|path| joined(&path.inside)).collect())
            }
            (Input::Entry(entry), Unnamed::Keep(_)) => Some(vec![entry.name.as_bytes().to_vec()]),
            _ => None,
        };
        if let (Some(named), Some(before)) = (named, before) {
            selection.rules.clone_from(&before.rules);
            let is_named = |path: &[u8]| named.iter().any(|named| is_within(path, named));
            if !before.unread.has_more() {
                let kept = before.unread.iter().filter(|path| !is_named(path));
                kept.for_each(|path| selection.unread.insert(path));
            } else {
                selection.unread = before.unread.clone();
            }
        }
        selection.unread.extend(&unread);
        selection.add_rules(&options.ignore);
        selection.sources = options.sources.iter().cloned().collect();
        selection
    }

    /// Moves the branch to the commit, which is durable.
    pub(super) fn advance(
        &self,
        repo: &Repo,
        (id, commit): (CommitId, &Commit),
        (is_stream, options): (bool, &Options),
    ) -> Result<(), RefError> {
        let kind = match repo.project() {
            Some(_) if is_stream => base::STREAM,
            Some(_) if !self.contains_all => base::UPDATE,
            _ => base::COMMIT,
        };
        let first_line = commit.message.lines().next().unwrap_or_default();
        let reason = match first_line {
            "" => kind.to_owned(),
            first_line => format!("{kind}: {first_line}"),
        };
        let change = Change { time: options.now(), who: &commit.author, reason: &reason };
        let branch = match &self.target {
            Target::Branch(branch) => branch,
            Target::DetachedHead => {
                return repo.refs().set_head(&self.head, &Head::Detached(id), &change);
            }
        };
        repo.refs().update(branch, self.tip, Some(id), &change)?;
        // The first commit of all went to another branch than HEAD names: then
        // that is the one to stand on.
        match &self.head {
            Head::Branch(head) if head != branch && repo.refs().read(head)?.is_none() => {
                let moved =
                    repo.refs().set_head(&self.head, &Head::Branch(branch.clone()), &change);
                match moved {
                    Err(RefError::HeadMoved) => Ok(()),
                    other => other,
                }
            }
            _ => Ok(()),
        }
    }

    /// Remembers that the project's files are those of a commit. A failure is
    /// reported and does no harm: the log of the branch has the commit, too.
    pub(super) fn follow(&self, repo: &Repo, id: CommitId, observer: &dyn Observer) {
        let is_known = self.base.as_ref().is_some_and(|base| base.first() == Some(&id));
        if self.contains_all
            && !is_known
            && let Err(error) = repo.set_base(&[id])
        {
            observer.note(Note::TidyFailed { error: &error });
        }
    }
}

/// Refuses a commit whose sources are all others than those of the last one, or
/// reports which of them it lacks.
fn check_sources(
    repo: &Repo,
    (branch, commit): (&RefName, &Commit),
    options: &Options,
    observer: &dyn Observer,
) -> Result<(), CommitError> {
    let (before, now) = (&commit.selection.sources, &options.sources);
    let gone: Vec<_> = before.iter().filter(|source| !now.contains(*source)).cloned().collect();
    let differs = match (before.is_empty(), now.is_empty()) {
        (true, true) => false,
        // In a bare store an older program made it and did not say.
        (true, false) => repo.project().is_some(),
        (false, _) => gone.len() == before.len(),
    };
    if differs && options.other_sources == OtherSources::Refuse {
        let (before, now) = (before.clone(), now.iter().cloned().collect());
        return Err(CommitError::OtherSources { branch: branch.clone(), before, now });
    }
    if differs || !gone.is_empty() {
        observer.note(Note::SourcesLeft { branch: branch.short(), sources: &shown_sources(&gone) });
    }
    Ok(())
}

/// Commits that are compared with their parents, at most.
const COMPARED: usize = 256;

/// Returns whether none of these commits changed what is at, below or above one of the
/// paths. What cannot be read may have been changed.
fn leave_alone(repo: &Repo, commits: &[(CommitId, Commit)], paths: &[NamedPath]) -> bool {
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| joined(&path.inside)).collect();
    let is_near =
        |path: &[u8]| paths.iter().any(|named| is_within(path, named) || is_within(named, path));
    commits.len() <= COMPARED
        && commits.iter().all(|(_, commit)| {
            let mut each = |change: diff::Change| {
                let is_folder = matches!(change.item().what, diff::What::Folder { .. });
                let is_below = paths.iter().any(|named| is_within(&change.path, named));
                // The attributes of a folder above are kept.
                match is_near(&change.path) && (is_below || !is_folder) {
                    true => Err(DiffError::Interrupted),
                    false => Ok(()),
                }
            };
            changes_of(repo, commit, &mut each).is_ok()
        })
}

/// Hands out what a commit changed in its first parent.
fn changes_of(
    repo: &Repo,
    commit: &Commit,
    each: &mut dyn FnMut(diff::Change) -> Result<(), DiffError>,
) -> Result<(), DiffError> {
    let parent = commit.parents.first().map(|id| repo.store().commit(id)).transpose();
    let Ok(parent) = parent else { return Err(DiffError::Interrupted) };
    let options = diff::Options { renames: diff::Renames::Ignore, ..Default::default() };
    let sides = (parent.map(|parent| parent.tree), &diff::New::Tree(Some(commit.tree)));
    diff::run(repo.store(), sides, &options, &Silent, &mut |change| each(change)).map(drop)
}

/// The error that the commit before cannot be read.
fn parent_error(target: &Target, source: StoreError) -> CommitError {
    let is_lost = matches!(source.kind(), ErrorKind::Damaged | ErrorKind::NotFound);
    let branch = match target {
        Target::Branch(branch) => Some(branch.clone()),
        Target::DetachedHead => None,
    };
    match is_lost {
        true => CommitError::Parent { branch, source: Box::new(source) },
        false => source.into(),
    }
}

/// The commit that `HEAD` stands on.
fn current(repo: &Repo, head: &Head) -> Result<Option<CommitId>, RefError> {
    match head {
        Head::Branch(branch) => repo.refs().read(branch),
        Head::Detached(id) => Ok(Some(*id)),
    }
}

fn joined(names: &[crate::base::name::EntryName]) -> Vec<u8> {
    names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/')
}

/// Whether a root folder's attributes are the same, but for its mtime: a file
/// that comes and goes changes it, and so does a store that is made in it.
fn same_root(before: Option<&Metadata>, now: Option<&Metadata>) -> bool {
    let without_time = |metadata: Option<&Metadata>| {
        metadata.map(|metadata| Metadata { mtime: None, ..metadata.clone() })
    };
    without_time(before) == without_time(now)
}

/// Commits of a branch that the project's files do not contain, and paths that
/// differ between the files' base and the branch.
#[derive(Clone, Debug)]
pub struct Behind {
    /// The branch; `None` for a detached `HEAD`.
    pub branch: Option<RefName>,
    /// The newest of the commits.
    pub commits: Vec<(CommitId, Commit)>,
    /// How many further commits there are.
    pub more_commits: usize,
    /// The first of the paths that they changed.
    pub paths: Vec<Vec<u8>>,
    /// Whether they changed further paths.
    pub has_more_paths: bool,
}

impl Behind {
    fn new(
        repo: &Repo,
        branch: Option<RefName>,
        mut commits: Vec<(CommitId, Commit)>,
        (from, to): (Option<TreeId>, TreeId),
    ) -> Self {
        let more_commits = commits.len().saturating_sub(NAMED);
        commits.truncate(NAMED);
        let mut paths = Vec::new();
        let options = diff::Options { renames: diff::Renames::Ignore, ..Default::default() };
        let mut each = |change: diff::Change| {
            if paths.len() == NAMED {
                return Err(DiffError::Interrupted);
            }
            paths.push(change.path);
            Ok(())
        };
        // A tree that is not here hides paths; the refusal stands without them.
        let compared = match more_commits {
            0 => commits.iter().try_for_each(|(_, commit)| changes_of(repo, commit, &mut each)),
            _ => {
                let sides = (from, &diff::New::Tree(Some(to)));
                diff::run(repo.store(), sides, &options, &Silent, &mut each).map(drop)
            }
        };
        paths.sort_unstable();
        paths.dedup();
        Self { branch, commits, more_commits, paths, has_more_paths: compared.is_err() }
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&branch_or_head(self.branch.as_ref()))?;
        let count = self.commits.len() + self.more_commits;
        let noun = if count == 1 { "commit" } else { "commits" };
        write!(f, " has {count} {noun} that the files here do not contain: ")?;
        for (at, (id, commit)) in self.commits.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{id:.12} by {}", plain(commit.author.as_bytes()))?;
            let message = commit.message.lines().next().unwrap_or_default();
            if !message.is_empty() {
                write!(f, " ({})", plain(message.as_bytes()))?;
            }
        }
        if self.more_commits > 0 {
            write!(f, " and {} more", self.more_commits)?;
        }
        if self.paths.is_empty() {
            return Ok(());
        }
        let paths: Vec<_> = self.paths.iter().map(|path| plain(path)).collect();
        let more = if self.has_more_paths { " and more" } else { "" };
        write!(f, "; they changed {}{more}", paths.join(", "))
    }
}

/// A branch, or a detached `HEAD`, in words.
pub(super) fn branch_or_head(branch: Option<&RefName>) -> String {
    branch.map_or_else(|| "HEAD".to_owned(), |branch| format!("branch `{}`", branch.short()))
}

/// One line of text without control characters.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
