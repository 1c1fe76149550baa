//! `update`: brings the files of a project to another commit, and keeps local changes.
//!
//! The files come from one or several commits, the *bases*. A path is *changed* if a base and the
//! new commit differ there. An update restores and removes only changed paths. The file on disk
//! must be that of the new commit (nothing to do) or that of a base (nothing is lost). Any other
//! changed path is a *conflict*.
//!
//! [`plan`] finds the conflicts and changes nothing:
//!
//! 1. It compares the bases with the new commit, and records the state of the changed paths. A
//!    folder that cannot be listed and that holds a changed path is a conflict.
//! 2. It compares the bases and the tip with the files on disk. Owners and times do not count: a
//!    restore of another user cannot set owners.
//! 3. It runs the restore without writing. A path that the restore would create, replace or remove
//!    is a conflict if it differs from these commits, even if the rules exclude it from commits. A
//!    file that no commit contains is a conflict, too.
//!
//! If the contents agree, the mode and each extended attribute must be that of one of these commits
//! or of the new one. Otherwise the path is a conflict. A folder with other attributes keeps them
//! if the new commit changes none of them.
//!
//! The caller then restores [`UpdatePlan::paths`] with the same options. The restore refuses a file
//! that has changed after step 1. An interrupted restore leaves each file as a base or as the new
//! commit has it, so another update completes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use crate::{
    base::{id::TreeId, kind::Kind, observe::Observer},
    format::{
        commit::Commit,
        tree::{Metadata, Xattr},
    },
    local::{
        contain::{FolderPath, TargetRoot},
        describe,
        fingerprint::TreeOptions,
        ignore::GIT,
        owners::Owners,
        read::open_above,
        scan::FileStat,
    },
    ops::{
        commit::paths::joined,
        diff::{
            self, Change, ChangeSide, ComparedFolder, Detail, DiffError, DiffOptions, Differences,
            Limit, New, Status,
        },
        restore::{
            self, ContentLoss, ExactPaths, GitAtTop, Mode, RestoreAction, RestoreError,
            RestoreOptions, RestoreSource,
        },
    },
    repo::path::{ResolvedPath, is_within, resolve_path},
    store::Store,
};

/// The commits and files of an update.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The commits that the files come from. Without any, the project had no files.
    pub bases: &'a [Commit],
    /// The last commit of the branch. A file that equals the tip is committed, whatever the bases
    /// have.
    pub tip: Option<&'a Commit>,
    /// The commit to which the files are brought.
    pub new: &'a Commit,
    /// The folder of the project.
    pub project: &'a Path,
    /// The folder of the project, with the exclude rules of commits.
    pub files: &'a ComparedFolder,
}

/// The changes of an update, and the conflicts that forbid it.
#[derive(Debug, Default)]
pub struct UpdatePlan {
    /// The changed paths.
    pub paths: ExactPaths,
    /// Changed paths that the new commit lacks, except folders.
    pub deleted: BTreeSet<Vec<u8>>,
    /// The paths with local changes that the update would lose, relative to the project.
    pub conflicts: BTreeSet<PathBuf>,
}

/// Why an update could not be planned.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum UpdateError {
    /// The commits or files could not be compared.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// The restore would fail.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl Update<'_> {
    /// Returns the source of the restore: the root of the new commit.
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
    let mut changed = changed(store, update, observer)?;
    if options.git == GitAtTop::Keep {
        changed.retain(|path, _| !is_within(path, GIT.as_bytes()));
    }
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
    let unlisted = plan.paths.look(update.project);
    let local = LocalChanges::find(store, update, observer)?;
    let conflicts = Mutex::new(unlisted);
    let kept_folders = Mutex::new(Vec::new());
    let on_change = |path: &Path, action: RestoreAction, loss: ContentLoss| {
        let bytes = match path.as_os_str().as_bytes() {
            b"." => b"",
            bytes => bytes,
        };
        let had_by = changed.get(bytes).map(|sides| sides.had_by.as_slice()).unwrap_or_default();
        let is_folder = action == RestoreAction::Repair && local.is_folder(bytes);
        let is_lost = match is_folder {
            true => !local.are_attributes_known(bytes),
            false => local.is_lost(bytes, action, had_by),
        };
        // A folder can keep attributes that the new commit does not change.
        let keeps = is_folder && is_lost && !local.changes_attributes(bytes);
        if keeps {
            kept_folders.lock().push(bytes.to_vec());
        }
        if is_lost && !keeps || loss == ContentLoss::Unsaved {
            conflicts.lock().insert(path.to_owned());
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
        Err(RestoreError::Blocked { first, .. }) => conflicts.lock().extend(first),
        Err(error) => return Err(error.into()),
    }
    plan.conflicts = std::mem::take(&mut *conflicts.lock());
    kept_folders.lock().iter().for_each(|path| plan.paths.remove(path));
    Ok(plan)
}

/// The two sides of a changed path.
#[derive(Clone, Debug, Default)]
struct ChangedSides {
    /// The trees of the bases that have the path.
    had_by: Vec<TreeId>,
    /// True if the new commit lacks the path, and it is not a folder.
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
    let options = DiffOptions { detail: Detail::All, ..DiffOptions::without_renames() };
    let scope: Vec<Vec<u8>> = update.files.scope.iter().map(|path| joined(path)).collect();
    let is_here = |path: &[u8]| {
        scope.is_empty()
            || scope.iter().any(|part| is_within(path, part))
            || update.project.join(OsStr::from_bytes(path)).symlink_metadata().is_ok()
    };
    for base in update.base_trees() {
        let mut each = |change: Change| {
            if is_here(&change.path) {
                let sides = changed.entry(change.path.clone()).or_default();
                sides.had_by.extend(base.filter(|_| change.old.is_some()));
                sides.is_deleted |=
                    change.status() == Status::Deleted && !change.item().what.is_folder();
            }
            Ok(())
        };
        diff::run(store, base, &New::Tree(Some(update.new.tree)), &options, observer, &mut each)?;
    }
    Ok(changed)
}

/// How a path on disk differs from a commit that it may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalChange {
    /// The entry was added or deleted, or has another content or kind.
    Content,
    /// The entry has other attributes.
    Attributes,
}

/// The differences between the files on disk and the commits that they may come from: the bases and
/// the tip.
struct LocalChanges<'a> {
    store: &'a Store,
    update: &'a Update<'a>,
    trees: Vec<ChangesToTree>,
}

/// The differences between the files on disk and one tree.
struct ChangesToTree {
    tree: Option<TreeId>,
    /// The paths that differ. A file that cannot be read is not among them; the restore reports it
    /// as one that no commit contains.
    paths: BTreeMap<Vec<u8>, LocalChange>,
}

impl<'a> LocalChanges<'a> {
    fn find(
        store: &'a Store,
        update: &'a Update<'a>,
        observer: &dyn Observer,
    ) -> Result<Self, DiffError> {
        let limit = match update.files.scope.as_slice() {
            [] => Limit::default(),
            scope => Limit::to_scope(scope.iter().map(|path| joined(path)).collect()),
        };
        let options = DiffOptions { limit, ..DiffOptions::without_renames() };
        let mut ids = update.base_trees();
        ids.extend(update.tip.map(|tip| Some(tip.tree)));
        ids.sort_unstable();
        ids.dedup();
        let mut trees = Vec::new();
        for tree in ids {
            let mut paths = BTreeMap::new();
            let mut each = |change: Change| {
                if let Some(local) = local_change(&change) {
                    paths.insert(change.path, local);
                }
                Ok(())
            };
            let new = New::Folder(update.files.clone());
            diff::run(store, tree, &new, &options, observer, &mut each)?;
            trees.push(ChangesToTree { tree, paths });
        }
        Ok(Self { store, update, trees })
    }

    /// Returns true if a change of a path that is not a folder would lose a local change. `had_by` are
    /// trees that have the path.
    fn is_lost(&self, path: &[u8], action: RestoreAction, had_by: &[TreeId]) -> bool {
        let is_there = action != RestoreAction::Create;
        let has =
            |tree: TreeId| had_by.contains(&tree) || resolve_path(self.store, tree, path).is_ok();
        // A repair finds the content of the new commit.
        let mut has_content = action == RestoreAction::Repair;
        for ChangesToTree { tree, paths } in &self.trees {
            match paths.get(path) {
                None if !is_there || tree.is_some_and(has) => return false,
                // No difference, but the tree lacks the file: the rules exclude it.
                None | Some(LocalChange::Content) => {}
                Some(LocalChange::Attributes) => has_content = true,
            }
        }
        !(has_content && self.are_attributes_known(path))
    }

    fn is_folder(&self, path: &[u8]) -> bool {
        let resolved = resolve_path(self.store, self.update.new.tree, path);
        resolved.is_ok_and(|resolved| resolved.tree().is_some())
    }

    /// Returns the metadata of a path in each of these commits that has the path.
    fn recorded<'c>(
        &self,
        commits: impl Iterator<Item = &'c Commit>,
        path: &[u8],
    ) -> Vec<Metadata> {
        let of = |commit: &Commit| match resolve_path(self.store, commit.tree, path).ok()? {
            ResolvedPath::Root(_) => commit.root.clone(),
            ResolvedPath::Entry(entry) => Some(entry.metadata),
        };
        commits.filter_map(of).collect()
    }

    /// Returns true if a base and the new commit differ in the mode or the extended attributes of a
    /// path. Returns false for a folder that no base has, since it was added on both sides.
    fn changes_attributes(&self, path: &[u8]) -> bool {
        let new = self.recorded([self.update.new].into_iter(), path);
        let bases = self.recorded(self.update.bases.iter(), path);
        bases.iter().any(|base| {
            new.iter().any(|new| base.mode != new.mode || own_xattrs(base) != own_xattrs(new))
        })
    }

    /// Returns true if the mode and each extended attribute on disk is that of a commit. After an
    /// interrupted restore, they may come from several commits. A missing attribute counts as a
    /// value.
    fn are_attributes_known(&self, path: &[u8]) -> bool {
        let Some(disk) = self.read(path) else { return false };
        let Update { bases, tip, new, .. } = *self.update;
        let recorded = self.recorded(bases.iter().chain(tip).chain([new]), path);
        let disk_xattrs = own_xattrs(&disk);
        let known: Vec<_> = recorded.iter().map(own_xattrs).collect();
        let mut names = disk_xattrs.keys().chain(known.iter().flat_map(BTreeMap::keys));
        recorded.iter().any(|one| one.mode == disk.mode)
            && names.all(|name| known.iter().any(|one| one.get(name) == disk_xattrs.get(name)))
    }

    /// Reads the mode and the extended attributes of a path, as a commit would record them.
    fn read(&self, path: &[u8]) -> Option<Metadata> {
        let top = TargetRoot::open(self.update.project).ok()?.folder(&FolderPath::top()).ok()?;
        let (folder, name) = open_above(top.as_fd(), path).ok()?;
        let name = if name.is_empty() { OsStr::new(".") } else { name };
        let stat = FileStat::of_name(folder.as_fd(), name).ok()?;
        let xattrs = describe::xattrs(folder.as_fd(), name.as_bytes()).ok()?;
        let options =
            TreeOptions { reproducible: self.update.files.reproducible, one_file_system: false };
        Some(describe::metadata(&stat, &Owners::default(), options, xattrs, false))
    }
}

/// Returns how a path differs on disk. A folder that was added or deleted is not reported by
/// itself, and the restore reports the attributes of folders.
fn local_change(change: &Change) -> Option<LocalChange> {
    let is_folder = |side: &ChangeSide| side.what.is_folder();
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            let Differences { kind, content, mode, .. } = change.differences();
            if kind || content {
                return Some(LocalChange::Content);
            }
            let has_other = mode || own_xattrs(&old.metadata) != own_xattrs(&new.metadata);
            (!is_folder(new) && has_other).then_some(LocalChange::Attributes)
        }
        (Some(side), None) | (None, Some(side)) => {
            (!is_folder(side)).then_some(LocalChange::Content)
        }
        (None, None) => None,
    }
}

/// Returns the extended attributes that a user may set, by name.
fn own_xattrs(metadata: &Metadata) -> BTreeMap<&[u8], &Xattr> {
    let is_own = |xattr: &&Xattr| {
        !xattr.name.starts_with(b"security.") && !xattr.name.starts_with(b"trusted.")
    };
    let own = metadata.xattrs.iter().filter(is_own);
    own.map(|xattr| (xattr.name.as_ref(), xattr)).collect()
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
    let options = DiffOptions::without_renames();
    let new = New::Folder(update.files.clone());
    diff::run(store, Some(update.new.tree), &new, &options, observer, &mut each)?;
    Ok(left)
}
