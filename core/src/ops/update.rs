//! `update`: brings the files of a project to another commit, and keeps local changes.
//!
//! The files come from one or several commits, the *bases*. A path is *changed* if a base and the
//! new commit differ there. An update restores and removes only changed paths. It needs two things
//! of each: the file on disk is what the new commit has, so nothing is done, or it is what a base
//! has, so nothing is lost. Any other path is a *conflict*.
//!
//! [`plan`] finds the conflicts and changes nothing:
//!
//! 1. It compares the bases with the new commit, and records the state of the changed paths.
//! 2. It compares the bases with the files on disk. Owners do not count, because a restore of
//!    another user cannot set them.
//! 3. It runs the restore without writing. A path that would be created, replaced or removed and
//!    that differs from the bases is a conflict. So is a path that no base has and that would be
//!    replaced, also if the rules exclude it from commits, and a file that no commit contains.
//!
//! The caller then restores [`UpdatePlan::paths`] with the same options. A file that changes after
//! step 1 is refused there. A restore that was interrupted leaves each file as a base or as the new
//! commit has it, so another update completes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Mutex,
};

use crate::{
    base::{id::TreeId, kind::ErrorKind, mutex::lock, observe::Observer},
    format::{commit::Commit, tree::Xattr},
    ops::{
        diff::{
            self, Change, ChangeSide, ComparedFolder, Detail, DiffError, DiffOptions, Differences,
            Limit, New, RenameDetection, Status,
        },
        restore::{
            self, ContentLoss, ExactPaths, Mode, RestoreAction, RestoreError, RestoreOptions,
            RestoreSource,
        },
    },
    repo::{
        path::{is_within, resolve_path},
        scope::ScopePath,
    },
    store::Store,
};

/// The commits and files of an update.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The commits that the files come from. Without any, the project had no files.
    pub bases: &'a [Commit],
    /// The last commit of the branch. A file that equals it is committed, whatever the bases have.
    pub tip: Option<&'a Commit>,
    /// The commit to which the files are brought.
    pub new: &'a Commit,
    /// The folder of the project.
    pub project: &'a Path,
    /// The same folder with the rules of commits.
    pub files: &'a ComparedFolder,
}

/// What an update will change, or why it must not.
#[derive(Debug, Default)]
pub struct UpdatePlan {
    /// The changed paths.
    pub paths: ExactPaths,
    /// The changed paths, except folders, that the new commit lacks.
    pub deleted: BTreeSet<Vec<u8>>,
    /// The paths with local changes that the update would lose, relative to the project.
    pub conflicts: BTreeSet<PathBuf>,
}

/// Why an update could not be planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The commits or files could not be compared.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// The restore would fail.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl UpdateError {
    /// Returns the kind of the error, from which a caller decides what to do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Diff(error) => error.kind(),
            Self::Restore(error) => error.kind(),
        }
    }
}

impl Update<'_> {
    /// Returns what is restored.
    pub fn source(&self) -> RestoreSource {
        RestoreSource::Folder { tree: self.new.tree, root: self.new.root.clone() }
    }

    /// Returns the trees of the bases. A project without files comes from an empty tree.
    fn base_trees(&self) -> Vec<Option<TreeId>> {
        match self.bases {
            [] => vec![None],
            bases => bases.iter().map(|base| Some(base.tree)).collect(),
        }
    }
}

/// Finds the paths that an update changes, and its conflicts. Writes nothing. `options` are those
/// of the restore.
///
/// # Errors
/// [`UpdateError`].
pub fn plan(
    store: &Store,
    update: &Update<'_>,
    options: &RestoreOptions<'_>,
    observer: &dyn Observer,
) -> Result<UpdatePlan, UpdateError> {
    let changed = changed(store, update, observer)?;
    let mut plan = UpdatePlan::default();
    for (path, sides) in &changed {
        plan.paths.insert(path.clone());
        if sides.is_deleted {
            plan.deleted.insert(path.clone());
        }
    }
    let root = update.new.root.as_ref();
    if update.bases.iter().any(|base| base.root.as_ref() != root) {
        plan.paths.insert(Vec::new());
    }
    if plan.paths.is_empty() {
        return Ok(plan);
    }
    plan.paths.look(update.project);
    let local = local_changes(store, update, observer)?;
    let in_tip =
        |path: &[u8]| update.tip.is_some_and(|tip| resolve_path(store, tip.tree, path).is_ok());
    let had = |path: &[u8]| changed.get(path).is_some_and(|sides| sides.had) || in_tip(path);
    let conflicts = Mutex::new(BTreeSet::new());
    let on_change = |path: &Path, action: RestoreAction, loss: ContentLoss| {
        let bytes = path.as_os_str().as_bytes();
        let is_lost = match (action, local.get(bytes)) {
            // The content is that of the new commit.
            (RestoreAction::Repair, Some(LocalChange::Content)) => false,
            (_, Some(_)) => true,
            (RestoreAction::Replace, None) => !had(bytes),
            (_, None) => false,
        };
        if is_lost || loss == ContentLoss::Unsaved {
            lock(&conflicts).insert(path.to_owned());
        }
    };
    let options = RestoreOptions {
        mode: Mode::DryRun,
        only: Some(&plan.paths),
        on_change: Some(&on_change),
        confirm: None,
        before_changes: None,
        so_far: None,
        ..options.clone()
    };
    match restore::run(store, &update.source(), update.project, &options, observer) {
        Ok(_) => {}
        Err(RestoreError::Blocked { first, .. }) => lock(&conflicts).extend(first),
        Err(error) => return Err(error.into()),
    }
    plan.conflicts = std::mem::take(&mut *lock(&conflicts));
    Ok(plan)
}

/// The two sides of a changed path.
#[derive(Clone, Copy, Debug, Default)]
struct ChangedSides {
    /// True if a base has the path.
    had: bool,
    /// True if the new commit lacks it, and it is not a folder.
    is_deleted: bool,
}

/// Lists the paths at which a base and the new commit differ. A path outside the scope of a partial
/// clone counts only if it exists in the folder.
fn changed(
    store: &Store,
    update: &Update<'_>,
    observer: &dyn Observer,
) -> Result<BTreeMap<Vec<u8>, ChangedSides>, DiffError> {
    let mut changed = BTreeMap::<Vec<u8>, ChangedSides>::new();
    let options = DiffOptions {
        detail: Detail::All,
        renames: RenameDetection::Ignore,
        ..DiffOptions::default()
    };
    let scope: Vec<Vec<u8>> = update.files.scope.iter().map(joined).collect();
    let is_here = |path: &[u8]| {
        scope.is_empty()
            || scope.iter().any(|part| is_within(path, part))
            || update.project.join(OsStr::from_bytes(path)).symlink_metadata().is_ok()
    };
    for base in update.base_trees() {
        let mut each = |change: Change| {
            if is_here(&change.path) {
                let sides = changed.entry(change.path.clone()).or_default();
                sides.had |= change.old.is_some();
                sides.is_deleted |=
                    change.status() == Status::Deleted && !change.item().what.is_folder();
            }
            Ok(())
        };
        diff::run(store, (base, &New::Tree(Some(update.new.tree))), &options, observer, &mut each)?;
    }
    Ok(changed)
}

fn joined(names: &ScopePath) -> Vec<u8> {
    names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/')
}

/// How a path on disk differs from the commits that it may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalChange {
    /// It was added or deleted, or has another content or kind.
    Content,
    /// It has other attributes.
    Attributes,
}

/// Lists the paths that differ on disk from every base and from the tip. A file that cannot be read
/// is not listed; the restore reports it as one that no commit contains.
fn local_changes(
    store: &Store,
    update: &Update<'_>,
    observer: &dyn Observer,
) -> Result<BTreeMap<Vec<u8>, LocalChange>, DiffError> {
    let limit = match update.files.scope.as_slice() {
        [] => Limit::default(),
        scope => Limit::to_scope(scope.iter().map(joined).collect()),
    };
    let options = DiffOptions { limit, renames: RenameDetection::Ignore, ..DiffOptions::default() };
    let mut trees = update.base_trees();
    trees.extend(update.tip.map(|tip| Some(tip.tree)));
    trees.sort_unstable();
    trees.dedup();
    let mut local = None::<BTreeMap<Vec<u8>, LocalChange>>;
    for tree in trees {
        let mut found = BTreeMap::new();
        let mut each = |change: Change| {
            let is_other = local.as_ref().is_none_or(|local| local.contains_key(&change.path));
            if let Some(local) = local_change(&change).filter(|_| is_other) {
                found.insert(change.path, local);
            }
            Ok(())
        };
        let sides = (tree, &New::Folder(update.files.clone()));
        diff::run(store, sides, &options, observer, &mut each)?;
        local = Some(found);
    }
    Ok(local.unwrap_or_default())
}

/// Returns what an update that sets this path to another state would lose. Nothing is lost with the
/// attributes of a folder.
fn local_change(change: &Change) -> Option<LocalChange> {
    let is_folder = |side: &ChangeSide| side.what.is_folder();
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            let Differences { kind, content, mode, .. } = change.differences();
            if kind || content {
                return Some(LocalChange::Content);
            }
            let is_other = !is_folder(new) && (mode || !same_own_xattrs(old, new));
            is_other.then_some(LocalChange::Attributes)
        }
        (Some(side), None) | (None, Some(side)) => {
            (!is_folder(side)).then_some(LocalChange::Content)
        }
        (None, None) => None,
    }
}

/// Returns true if the extended attributes that a user may set are equal.
fn same_own_xattrs(old: &ChangeSide, new: &ChangeSide) -> bool {
    let is_own = |xattr: &&Xattr| {
        !xattr.name.starts_with(b"security.") && !xattr.name.starts_with(b"trusted.")
    };
    let own = |side: &'_ ChangeSide| -> Vec<Xattr> {
        side.metadata.xattrs.iter().filter(is_own).cloned().collect()
    };
    own(old) == own(new)
}

/// Lists the paths of [`UpdatePlan::deleted`] that still exist after the restore and that a commit
/// would add again.
///
/// # Errors
/// [`DiffError`].
pub fn leftovers(
    store: &Store,
    update: &Update<'_>,
    deleted: &BTreeSet<Vec<u8>>,
    observer: &dyn Observer,
) -> Result<Vec<Vec<u8>>, DiffError> {
    let mut left = Vec::new();
    let mut each = |change: Change| {
        if deleted.contains(&change.path) {
            left.push(change.path);
        }
        Ok(())
    };
    let options = DiffOptions { renames: RenameDetection::Ignore, ..DiffOptions::default() };
    let sides = (Some(update.new.tree), &New::Folder(update.files.clone()));
    diff::run(store, sides, &options, observer, &mut each)?;
    Ok(left)
}
