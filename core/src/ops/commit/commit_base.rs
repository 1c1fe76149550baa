//! The state that a commit builds on: the branch, its last commit, and whether the
//! project's files contain everything in its history.

use std::fmt;

use crate::{
    base::{
        blocked::Blocked,
        id::{CommitId, TreeId},
        kind::ErrorKind,
        limits,
        observe::{Note, Observer},
    },
    format::{
        commit::Commit,
        selection::{IgnoreOptions, Selection, UnreadPaths},
        tree::{EntryKind, Metadata, split::FolderEncoder},
    },
    local::ignore::GIT,
    ops::{
        commit::{
            BehindPolicy, CommitError, CommitOptions, CommitRun, CommitSource, CommittedRoot,
            NamedPath, OtherPaths, OtherSources, error::shown_sources, paths::joined,
            walk::NOTHING,
        },
        diff::{self, DiffError},
    },
    repo::{
        Repo,
        base_state::{self, Base},
        open::FIRST_BRANCH,
        path::{entry_named, is_within, resolve_path},
        ref_name::RefName,
        refs::{ExpectedRef, Head, RefError, RefLogMessage},
    },
    store::{Entries, Store, StoreError},
};

/// Maximum number of commits, and of paths, that an error lists.
const NAMED: usize = 10;

/// The state that a commit builds on.
pub(super) struct CommitBase {
    head: Head,
    /// The branch that moves to the new commit; `None` for a detached `HEAD`.
    pub(super) branch: Option<RefName>,
    /// The commit that the branch points at. The new commit moves the branch from there.
    pub(super) tip: Option<CommitId>,
    /// The parent of the new commit: the tip, or the base for a new branch.
    pub(super) parent: Option<(CommitId, Commit)>,
    /// The commits that the project's files come from; `None` if they are unknown or ignored.
    pub(super) base: Option<Base>,
    /// True if the project's files will contain everything in the new commit.
    contains_all: bool,
    /// The last known commit of a branch whose file was lost. A real run recreates the branch there;
    /// a dry run only reports the commit.
    made_again: Option<CommitId>,
}

impl CommitBase {
    /// Reads the branch and its last commit. Recreates a branch whose file was lost,
    /// except in a dry run.
    pub(super) fn read(
        repo: &Repo,
        is_stream: bool,
        options: &CommitOptions,
    ) -> Result<Self, CommitError> {
        let head = match repo.is_absent() {
            true => Head::Branch(RefName::branch(FIRST_BRANCH).map_err(RefError::Name)?),
            false => repo.refs().head()?,
        };
        let (branch, tip) = match (&options.branch, &head) {
            (Some(branch), _) | (None, Head::Branch(branch)) => {
                (Some(branch.clone()), repo.refs().read(branch)?)
            }
            (None, Head::Detached(id)) => (None, Some(*id)),
        };
        let mut made_again = None;
        let tip = match &branch {
            Some(branch) if tip.is_none() && !repo.is_absent() => {
                made_again = repo.lost_ref(branch)?;
                match (made_again, options.run) {
                    (Some(lost), CommitRun::Real) => {
                        let change = RefLogMessage {
                            time: options.now(),
                            who: "snap",
                            reason: "made again",
                        };
                        let made =
                            repo.refs().swap(branch, ExpectedRef::Lost(lost), Some(lost), &change);
                        match made {
                            // Another process recreated the branch and may have moved it
                            // since.
                            Err(RefError::Exists { at, .. }) => Some(at),
                            made => made?.commit,
                        }
                    }
                    _ => made_again,
                }
            }
            _ => tip,
        };
        if let (Some(branch), None) = (&options.branch, tip) {
            branch.check_new().map_err(RefError::Name)?;
        }
        let contains_all = options.unseen != BehindPolicy::Ignore;
        let base = if contains_all { repo.base()? } else { None };
        let parent = match tip {
            Some(tip) => match repo.store().commit(&tip) {
                Ok(commit) => Some((tip, commit)),
                Err(source) => return Err(parent_error(branch, source)),
            },
            // A stream on a new branch has no parent.
            None if is_stream || !contains_all => None,
            // A new branch starts at the commit that the files come from.
            None => {
                let starts = match &base {
                    Some(base) => repo.starts(&base.commits)?,
                    None => current(repo, &head)?.into_iter().collect(),
                };
                let commit = |id| repo.store().commit(&id).ok().map(|commit| (id, commit));
                starts.into_iter().find_map(commit)
            }
        };
        Ok(Self { head, branch, tip, parent, base, contains_all, made_again })
    }

    /// Refuses a commit that would silently revert newer commits of the branch, or that has none of
    /// the last commit's sources.
    pub(super) fn check(
        &mut self,
        repo: &Repo,
        source: &CommitSource<'_>,
        options: &CommitOptions,
        observer: &dyn Observer,
    ) -> Result<(), CommitError> {
        if let (Some(at), Some(branch)) = (&self.made_again, &self.branch) {
            observer.note(Note::BranchRecreated { branch: branch.short(), at });
        }
        if let (true, None, Some((parent, _))) = (self.contains_all, &self.base, &self.parent) {
            observer.note(Note::BaseUnknown { tip: parent });
        }
        let (Some(tip), Some((_, commit))) = (self.tip, &self.parent) else { return Ok(()) };
        if let Some(branch) = &self.branch {
            check_sources(repo, (branch, commit), source, options, observer)?;
        }
        let Some(base) = self.base.as_ref().filter(|_| self.contains_all) else { return Ok(()) };
        let unseen = repo.unseen(base, self.branch.as_ref(), tip)?;
        if unseen.commits.is_empty() {
            // A restore has taken changes out of the files. A commit of some paths keeps these
            // changes, so the files do not contain all of the new commit.
            self.contains_all = source.is_whole() || !unseen.has_replaced;
            return Ok(());
        }
        let unseen = unseen.commits;
        if options.unseen == BehindPolicy::Accept || source.is_stream() {
            // Unless the source is whole, the commit keeps changes that the project's files lack.
            self.contains_all = source.is_whole();
            return Ok(());
        }
        let from = base.commits.first().and_then(|id| repo.store().commit(id).ok());
        if let (CommitSource::Paths(paths), OtherPaths::Keep(_)) = (source, &options.unnamed)
            && leave_alone(repo, &unseen, paths, observer)?
        {
            self.contains_all = false;
            return Ok(());
        }
        let is_root_as_before =
            from.as_ref().is_some_and(|from| same_root(from.root.as_ref(), commit.root.as_ref()));
        if is_root_as_before && has_files_of(commit, repo, source, options, observer) {
            // The comparison skips files that this commit excludes. The branch may have deleted
            // them, so the files here do not contain all of its changes.
            self.contains_all = options.ignore == Default::default();
            return Ok(());
        }
        let branch = self.branch.clone();
        let base_tree = from.as_ref().map(|commit| commit.tree);
        let mut behind = BehindBranch::new(repo, branch, unseen, base_tree, commit.tree, observer);
        observer.check()?;
        let is_lost = |id: &&CommitId| repo.store().commit(id).is_err();
        behind.lost_base = base.commits.iter().find(is_lost).copied();
        Err(CommitError::Behind(Box::new(behind)))
    }

    /// Returns the tree of the parent commit, with which the files are compared.
    pub(super) fn tree(&self) -> Option<TreeId> {
        self.parent.as_ref().map(|(_, commit)| commit.tree)
    }

    /// Returns the root folder's attributes in the parent commit.
    pub(super) fn root_metadata(&self) -> Option<&Metadata> {
        self.parent.as_ref()?.1.root.as_ref()
    }

    /// Returns the total size in bytes of the files in the parent commit.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.parent.as_ref().map(|(_, commit)| commit.totals.bytes).filter(|bytes| *bytes > 0)
    }

    /// Returns true if the branch's last commit has this root already. A `.git` at the top that
    /// only the last commit has does not count.
    pub(super) fn is_same(&self, store: &Store, root: &CommittedRoot) -> bool {
        let Some((_, commit)) = self.parent.as_ref().filter(|_| self.tip.is_some()) else {
            return false;
        };
        let (before, now) = (&commit.selection, &root.selection);
        let leaves_out_git =
            || now.sources.is_empty() && now.rules.iter().any(IgnoreOptions::leaves_out_git);
        let is_same_tree = commit.tree == root.tree
            || leaves_out_git() && without_git(store, commit.tree) == Some(root.tree);
        is_same_tree
            && same_root(commit.root.as_ref(), root.metadata.as_ref())
            // Exclude rules and unreadable paths must be recorded, since a restore must
            // not delete what they cover.
            && before.has_rules_of(now)
            && now.unread.iter().all(|path| before.unread.covers(path))
            && (before.unread.has_more() || !now.unread.has_more())
    }

    /// Returns the exclude rules, the unreadable paths and the sources that the commit records.
    pub(super) fn selection(
        &self,
        unread: UnreadPaths,
        source: &CommitSource<'_>,
        options: &CommitOptions,
    ) -> Selection {
        let mut selection = Selection::default();
        let before = self.parent.as_ref().map(|(_, commit)| &commit.selection);
        let named: Option<Vec<Vec<u8>>> = match (source, &options.unnamed) {
            (CommitSource::Partial(_, scope), _) => {
                Some(scope.iter().map(|names| joined(names)).collect())
            }
            (CommitSource::Paths(paths), OtherPaths::Keep(_)) => {
                Some(paths.iter().map(|path| joined(&path.inside)).collect())
            }
            (CommitSource::Stored(entry), OtherPaths::Keep(_)) => {
                Some(vec![entry.name.as_bytes().to_vec()])
            }
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

    /// Returns the error for a branch that other processes kept moving.
    pub(super) fn contended(&self) -> CommitError {
        match self.branch.clone() {
            Some(name) => CommitError::Contended { name, tries: limits::REF_RETRIES },
            None => RefError::HeadMoved.into(),
        }
    }

    /// Moves the branch, or a detached `HEAD`, to the commit. The commit must be durable.
    pub(super) fn advance(
        &self,
        repo: &Repo,
        id: CommitId,
        commit: &Commit,
        is_stream: bool,
        options: &CommitOptions,
    ) -> Result<(), RefError> {
        let kind = match repo.project() {
            Some(_) if is_stream => base_state::STREAM,
            Some(_) if !self.contains_all => base_state::UPDATE,
            _ => base_state::COMMIT,
        };
        let first_line = commit.message.lines().next().unwrap_or_default();
        let reason = match first_line {
            "" => kind.to_owned(),
            first_line => format!("{kind}: {first_line}"),
        };
        let change = RefLogMessage { time: options.now(), who: &commit.author, reason: &reason };
        let Some(branch) = &self.branch else {
            return repo.refs().set_head(&self.head, &Head::Detached(id), &change);
        };
        repo.refs().update(branch, self.tip, Some(id), &change)?;
        // The first commit of the repository went to another branch than `HEAD` names, so
        // move `HEAD` to that branch.
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

    /// Records that the project's files are those of a commit. A failure is only
    /// reported: the log of the branch contains the commit, too.
    pub(super) fn follow(&self, repo: &Repo, id: CommitId, observer: &dyn Observer) {
        let is_known =
            self.base.as_ref().is_some_and(|base| base.commits == [id] && base.replaced.is_none());
        if self.contains_all
            && !is_known
            && let Err(error) = repo.set_committed_base(id)
        {
            observer.note(Note::TidyFailed { error: &error });
        }
    }
}

/// Returns the tree without the entry `.git`. Returns `None` if it has no such entry, or cannot be
/// read.
fn without_git(store: &Store, tree: TreeId) -> Option<TreeId> {
    entry_named(store, tree, GIT.as_bytes()).ok()??;
    let mut encoder = FolderEncoder::new();
    let mut drop_node = |_, _| Ok::<_, StoreError>(());
    for entry in Entries::of(store, tree) {
        let entry = entry.ok()?;
        if entry.name.as_bytes() == GIT.as_bytes() {
            continue;
        }
        let below = match &entry.kind {
            EntryKind::Folder { id } => *store.tree(id).ok()?.totals(),
            _ => NOTHING,
        };
        encoder.push(entry, &below, &mut drop_node).ok()?;
    }
    encoder.finish(&mut drop_node).ok().map(|folder| folder.id)
}

/// Refuses a commit that has none of the last commit's sources, or reports the sources
/// that it lacks.
fn check_sources(
    repo: &Repo,
    (branch, commit): (&RefName, &Commit),
    source: &CommitSource<'_>,
    options: &CommitOptions,
    observer: &dyn Observer,
) -> Result<(), CommitError> {
    let (before, now) = (&commit.selection.sources, &options.sources);
    let gone: Vec<_> = before.iter().filter(|source| !now.contains(*source)).cloned().collect();
    let differs = match (before.is_empty(), now.is_empty()) {
        (true, true) => false,
        // A commit of a project, which has no sources, may have been pulled into a bare store.
        (true, false) => repo.project().is_some(),
        (false, _) => gone.len() == before.len(),
    };
    if differs && options.other_sources == OtherSources::Refuse {
        let (before, now) = (before.clone(), now.iter().cloned().collect());
        return Err(CommitError::OtherSources { branch: branch.clone(), before, now });
    }
    check_layout(repo.store(), (branch, commit), source, options)?;
    if differs || !gone.is_empty() {
        observer
            .note(Note::SourcesDiffer { branch: branch.short(), sources: &shown_sources(&gone) });
    }
    Ok(())
}

/// The place of sources in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceLayout {
    /// The content of one source is at the top.
    Top,
    /// Each source is at its absolute path.
    Absolute,
}

impl SourceLayout {
    /// Returns the layout of a commit with these sources. A source that could not be read has no
    /// place, so one of them suffices.
    fn new(
        sources: impl IntoIterator<Item = impl AsRef<[u8]>>,
        has: impl Fn(&[u8]) -> bool,
    ) -> Self {
        let is_there = |source: &[u8]| source.strip_prefix(b"/").is_some_and(&has);
        match sources.into_iter().any(|source| is_there(source.as_ref())) {
            true => Self::Absolute,
            false => Self::Top,
        }
    }
}

/// Refuses a commit of sources with another layout than the last commit's: all files would seem to
/// be deleted and added elsewhere.
fn check_layout(
    store: &Store,
    (branch, commit): (&RefName, &Commit),
    source: &CommitSource<'_>,
    options: &CommitOptions,
) -> Result<(), CommitError> {
    let sources = &commit.selection.sources;
    if options.other_sources == OtherSources::Accept
        || sources.is_empty()
        || options.sources.is_empty()
    {
        return Ok(());
    }
    let before = match &commit.root {
        Some(_) => SourceLayout::Top,
        None => SourceLayout::new(sources, |path| resolve_path(store, commit.tree, path).is_ok()),
    };
    let now = match source {
        CommitSource::Paths(paths) => SourceLayout::new(&options.sources, |path| {
            paths.iter().any(|named| joined(&named.inside) == path)
        }),
        _ => SourceLayout::Top,
    };
    match before == now {
        true => Ok(()),
        false => Err(CommitError::OtherLayout { branch: branch.clone(), before }),
    }
}

/// Returns true if the project's files equal those of `tip`, so that a commit reverts nothing but
/// the attributes of the root folder. Only the times of folders may differ. An error counts as a
/// difference.
fn has_files_of(
    tip: &Commit,
    repo: &Repo,
    source: &CommitSource<'_>,
    options: &CommitOptions,
    observer: &dyn Observer,
) -> bool {
    let (path, scope) = match source {
        CommitSource::Folder(path) => (path, &[][..]),
        CommitSource::Partial(path, scope) => (path, &scope[..]),
        _ => return false,
    };
    let folder = diff::ComparedFolder {
        files: diff::ComparedFiles::Folder(path.clone()),
        ignore: options.ignore.clone(),
        scope: scope.to_vec(),
        reproducible: tip.root.as_ref().is_some_and(|root| root.owner.is_none()),
    };
    let wanted = diff::DiffOptions {
        limit: match scope {
            [] => diff::Limit::default(),
            _ => diff::Limit::to_scope(scope.iter().map(|path| joined(path)).collect()),
        },
        detail: diff::Detail::All,
        ..diff::DiffOptions::without_renames()
    };
    let only_mtime = diff::Differences { mtime: true, ..diff::Differences::default() };
    let mut stop_at_change = |change: diff::Change| {
        let is_folder = change.item().what.is_folder();
        match is_folder && change.differences() == only_mtime {
            true => Ok(()),
            false => Err(Blocked::Interrupted.into()),
        }
    };
    let new = diff::New::Folder(folder);
    diff::run(repo.store(), Some(tip.tree), &new, &wanted, observer, &mut stop_at_change)
        .is_ok_and(|compared| compared.skipped == 0)
}

/// Maximum number of commits that [`leave_alone`] compares with their parents.
const COMPARED: usize = 256;

/// Returns true if none of these commits changed anything at, below or above one of the
/// paths. A commit that cannot be read counts as a change.
fn leave_alone(
    repo: &Repo,
    commits: &[(CommitId, Commit)],
    paths: &[NamedPath],
    observer: &dyn Observer,
) -> Result<bool, CommitError> {
    if commits.len() > COMPARED {
        return Ok(false);
    }
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| joined(&path.inside)).collect();
    let limit = diff::Limit::to_paths_and_above(paths.clone());
    let options = diff::DiffOptions { limit, ..diff::DiffOptions::without_renames() };
    for (_, commit) in commits {
        let mut each = |change: diff::Change| {
            let is_folder = matches!(change.item().what, diff::ComparedKind::Folder { .. });
            let is_below = paths.iter().any(|named| is_within(&change.path, named));
            // The attributes of a folder above a path are kept, so a change of them does
            // not matter.
            if is_below || !is_folder { Err(Blocked::Interrupted.into()) } else { Ok(()) }
        };
        let compared = changes_of(repo, commit, &options, observer, &mut each);
        observer.check()?;
        if compared.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Passes the changes of a commit relative to its first parent to `each`.
fn changes_of(
    repo: &Repo,
    commit: &Commit,
    options: &diff::DiffOptions,
    observer: &dyn Observer,
    each: &mut dyn FnMut(diff::Change) -> Result<(), DiffError>,
) -> Result<(), DiffError> {
    let parent = commit.parents.first().map(|id| repo.store().commit(id)).transpose();
    let Ok(parent) = parent else { return Err(Blocked::Interrupted.into()) };
    let old = parent.map(|parent| parent.tree);
    let new = diff::New::Tree(Some(commit.tree));
    diff::run(repo.store(), old, &new, options, observer, &mut |change| each(change)).map(drop)
}

/// Returns the error for a parent commit that cannot be read.
fn parent_error(branch: Option<RefName>, source: StoreError) -> CommitError {
    let is_lost = matches!(source.kind(), ErrorKind::Damaged | ErrorKind::NotFound);
    if is_lost { CommitError::Parent { branch, source: Box::new(source) } } else { source.into() }
}

/// Returns the commit that `HEAD` points at.
fn current(repo: &Repo, head: &Head) -> Result<Option<CommitId>, RefError> {
    match head {
        Head::Branch(branch) => repo.refs().read(branch),
        Head::Detached(id) => Ok(Some(*id)),
    }
}

/// Compares the root folder's attributes without the mtime. The mtime changes when a
/// temporary file appears in the folder or when a store is created in it.
fn same_root(before: Option<&Metadata>, now: Option<&Metadata>) -> bool {
    let without_time = |metadata: Option<&Metadata>| {
        metadata.map(|metadata| Metadata { mtime: None, ..metadata.clone() })
    };
    without_time(before) == without_time(now)
}

/// The commits of a branch that the project's files do not contain, and the paths that
/// differ between the files' base and the branch.
#[derive(Clone, Debug)]
pub struct BehindBranch {
    /// The branch; `None` for a detached `HEAD`.
    pub branch: Option<RefName>,
    /// The newest of the commits that the files do not contain.
    pub commits: Vec<(CommitId, Commit)>,
    /// Number of further such commits.
    pub more_commits: usize,
    /// Some of the changed paths, sorted.
    pub paths: Vec<Vec<u8>>,
    /// True if further paths changed.
    pub has_more_paths: bool,
    /// A commit that the files come from and that the store has lost. Its history is unknown, so
    /// the files may contain the commits after all.
    pub lost_base: Option<CommitId>,
}

impl BehindBranch {
    fn new(
        repo: &Repo,
        branch: Option<RefName>,
        mut commits: Vec<(CommitId, Commit)>,
        from: Option<TreeId>,
        to: TreeId,
        observer: &dyn Observer,
    ) -> Self {
        let more_commits = commits.len().saturating_sub(NAMED);
        commits.truncate(NAMED);
        let mut paths = Vec::new();
        let options = diff::DiffOptions::without_renames();
        let mut each = |change: diff::Change| {
            if paths.len() == NAMED {
                return Err(Blocked::Interrupted.into());
            }
            paths.push(change.path);
            Ok(())
        };
        // A tree that is not stored here hides changed paths, but the commit is refused anyway.
        let compared = match more_commits {
            0 => commits.iter().try_for_each(|(_, commit)| {
                changes_of(repo, commit, &options, observer, &mut each)
            }),
            _ => {
                let new = diff::New::Tree(Some(to));
                diff::run(repo.store(), from, &new, &options, observer, &mut each).map(drop)
            }
        };
        paths.sort_unstable();
        paths.dedup();
        Self {
            branch,
            commits,
            more_commits,
            paths,
            has_more_paths: compared.is_err(),
            lost_base: None,
        }
    }
}

impl fmt::Display for BehindBranch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&branch_or_head(self.branch.as_ref()))?;
        let count = self.commits.len() + self.more_commits;
        let noun = if count == 1 { "commit" } else { "commits" };
        write!(f, " has {count} newer {noun} than the files here: ")?;
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
        if !self.paths.is_empty() {
            let paths: Vec<_> = self.paths.iter().map(|path| plain(path)).collect();
            let more = if self.has_more_paths { " and more" } else { "" };
            write!(f, "; they changed {}{more}", paths.join(", "))?;
        }
        match self.lost_base {
            Some(id) => write!(f, "; commit {id:.12}, from which the files come, is lost"),
            None => Ok(()),
        }
    }
}

/// Returns the name of a branch for messages, or `HEAD` if it is detached.
pub(super) fn branch_or_head(branch: Option<&RefName>) -> String {
    branch.map_or_else(|| "HEAD".to_owned(), |branch| format!("branch `{}`", branch.short()))
}

/// Replaces control characters, so that the text takes one line.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
