//! Protects files from a restore: files that no commit could have contained, and folders that the
//! user did not mean.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use snap_core::{
    base::id::CommitId,
    format::commit::Commit,
    local::{
        ignore::{self, GIT},
        store_folder::STORE_FOLDER,
    },
    ops::{
        diff::{self, DiffError},
        restore::{ExtraProtection, GitAtTop},
    },
    repo::{
        Repo,
        base_state::Base,
        path::{components, is_within, resolve_path},
    },
    store::{Entries, Store},
};

use crate::{
    commands::{commit::LeaveOut, restore::RestoreArgs},
    config::Profile,
    context::{Context, StoreChoice},
    report::CliError,
    snapshot::Snapshot,
    ui::{size, text},
};

/// Warns about files that commits from elsewhere deleted but that still exist here. Returns true if
/// there are any. The next commit would add them again.
///
/// # Errors
/// [`CliError::Diff`] if the user interrupts the comparison: nothing is known then.
pub(super) fn warn_leftovers(
    (repo, behind): (&Repo, Option<&Base>),
    snapshot: &Snapshot,
    args: &RestoreArgs,
    cx: &Context,
) -> Result<bool, CliError> {
    let (Some(base), Some(project)) = (behind, repo.project()) else {
        return Ok(false);
    };
    let old = base.commits.first().and_then(|id| repo.store().commit(id).ok());
    let Some(old) = old else { return Ok(false) };
    let mut left = (0_u64, PathBuf::new());
    let mut each = |change: diff::Change| {
        let path = project.join(OsStr::from_bytes(&change.path));
        let is_kept_git = !args.include_git && is_within(&change.path, GIT.as_bytes());
        if change.status() == diff::Status::Deleted
            && !is_kept_git
            && path.symlink_metadata().is_ok()
        {
            left = (left.0 + 1, PathBuf::from(OsStr::from_bytes(&change.path)));
        }
        Ok(())
    };
    let options = diff::DiffOptions {
        renames: diff::RenameDetection::Ignore,
        ..diff::DiffOptions::default()
    };
    let new = diff::New::Tree(Some(snapshot.commit.tree));
    // The restore has already reported trees that cannot be read.
    if let Err(error @ DiffError::Blocked(_)) =
        diff::run(repo.store(), Some(old.tree), &new, &options, &cx.progress(), &mut each)
    {
        return Err(error.into());
    }
    let (count, one) = left;
    if count > 0 {
        cx.ui().warning(format_args!(
            "files that the branch deleted still exist here: {}, such as `{}`; a commit would \
             restore them, so it is refused; --delete removes them",
            size::count(count, "entry"),
            text::line(one.as_os_str().as_bytes())
        ));
    }
    Ok(count > 0)
}

/// Returns the base of the project's files, if the branch has further commits from elsewhere.
pub(super) fn behind_branch(repo: &Repo, tip: Option<CommitId>) -> Option<Base> {
    let base = repo.base().ok()??;
    let head = repo.refs().head().ok()?;
    let unseen = repo.unseen(&base, head.branch(), tip?).ok()?;
    (!unseen.commits.is_empty()).then_some(base)
}

/// Warns that attributes of files differ from those in commits from elsewhere. Returns true if
/// there are such commits. The next commit would restore the old attributes.
pub(super) fn warn_old_attributes(behind: Option<&Base>, cx: &Context) -> bool {
    let is_behind = behind.is_some();
    if is_behind {
        cx.ui().warning(format_args!(
            "`snap commit` rejects these attributes, which would revert those of the branch; \
             `snap restore --overwrite` sets them"
        ));
    }
    is_behind
}

/// Returns the rules for files that stay because no commit could have contained them.
pub(super) fn protection(
    snapshot: &Snapshot,
    args: &RestoreArgs,
    (target, place): (&Path, &Path),
    cx: &Context,
) -> Result<Option<ExtraProtection>, CliError> {
    if args.delete_excluded {
        let place = place.as_os_str().as_bytes().to_vec();
        let of = |made_of| ExtraProtection {
            made_of: Some(made_of),
            place,
            ..ExtraProtection::default()
        };
        return Ok(made_of(snapshot.store(), &snapshot.commit).map(of));
    }
    let in_place = snapshot.repo().filter(|repo| is_in_place(repo, args, (target, place)));
    let of = (snapshot.store(), &snapshot.commit);
    let mut protection = protection_of(of, (snapshot.repo(), in_place), place, cx)?;
    if args.include_git {
        include_git(&mut protection);
    }
    Ok(Some(protection))
}

/// Returns the rules for files that stay when a commit is restored at `place`. `in_place` is the
/// store if that is the place in its project.
pub(in crate::commands) fn protection_of(
    (store, commit): (&Store, &Commit),
    (repo, in_place): (Option<&Repo>, Option<&Repo>),
    place: &Path,
    cx: &Context,
) -> Result<ExtraProtection, CliError> {
    let selection = &commit.selection;
    let mut rules = selection.rules.clone();
    // A commit without recorded rules was made with ignore files only.
    if rules.is_empty() {
        rules.push(ignore::Options::default());
    }
    if let Some(repo) = repo {
        rules.push(LeaveOut::default().join(&Profile::default(), repo.config(), cx)?);
    }
    // The commits that the files come from may have left out more than the snapshot's.
    let base = in_place.and_then(|repo| Some((repo, repo.base().ok()??)));
    for (repo, id) in base.iter().flat_map(|(repo, base)| base.commits.iter().map(|id| (*repo, id)))
    {
        rules.extend(
            repo.store().commit(id).map(|commit| commit.selection.rules).unwrap_or_default(),
        );
    }
    Ok(ExtraProtection {
        rules,
        made_of: made_of(store, commit),
        unread: selection.unread.clone(),
        place: place.as_os_str().as_bytes().to_vec(),
        root: Some(commit.tree),
        above: in_place.and_then(Repo::project).map(Path::to_owned),
    })
}

/// Removes the protection of a `.git` at the top of the project.
pub(in crate::commands) fn include_git(protection: &mut ExtraProtection) {
    protection.rules.iter_mut().for_each(|rules| *rules = rules.beside_git());
}

/// Returns the paths in the snapshot that the commit was made of, if its root is not a folder;
/// otherwise `None`. The path of a source in the snapshot is the longest suffix of its path that
/// the snapshot has.
fn made_of(store: &Store, commit: &Commit) -> Option<Vec<Vec<u8>>> {
    if commit.root.is_some() {
        return None;
    }
    let tree = commit.tree;
    let is_there = |path: &[u8]| resolve_path(store, tree, path).is_ok();
    let inside = |source: &[u8]| {
        let names: Vec<&[u8]> = components(source).collect();
        let ends = (0..names.len()).map(|start| names[start..].join(&b'/'));
        ends.into_iter().find(|end| is_there(end))
    };
    let sources = &commit.selection.sources;
    if !sources.is_empty() {
        return Some(sources.iter().filter_map(|source| inside(source)).collect());
    }
    let entries = Entries::of(store, tree).map_while(Result::ok);
    Some(entries.map(|entry| entry.name.as_bytes().to_vec()).collect())
}

/// Returns what happens to a `.git` at the top of the target. It stays in a folder that has a store,
/// wherever the snapshot comes from.
pub(super) fn git_at_top(args: &RestoreArgs, target: &Path) -> GitAtTop {
    match !args.include_git && target.join(STORE_FOLDER).symlink_metadata().is_ok() {
        true => GitAtTop::Keep,
        false => GitAtTop::Restore,
    }
}

/// Refuses to restore a path in the `.git` at the top of the project to its place.
pub(super) fn check_git(
    args: &RestoreArgs,
    snapshot: &Snapshot,
    own: Option<&Repo>,
) -> Result<(), CliError> {
    let path = snapshot.path.as_deref().unwrap_or_default();
    let is_git = components(path).next() == Some(GIT.as_bytes());
    match own.is_some() && is_git && !args.include_git {
        true => Err(CliError::GitAtTop { path: text::line(path) }),
        false => Ok(()),
    }
}

/// Returns the hint for files in no commit that a restore would delete from `target`. `own` is the
/// store if the target is the place in its project that was committed.
pub(super) fn unsaved_hint(
    args: &RestoreArgs,
    (own, place): (Option<&Repo>, &Path),
    target: &Path,
    cx: &Context,
) -> String {
    let word = |path: &Path| text::word(path.as_os_str().as_bytes()).to_string();
    let here = std::env::current_dir().ok();
    let near = here.and_then(|here| Some(target.strip_prefix(here).ok()?.to_owned()));
    let shown = match &near {
        Some(near) if near.as_os_str().is_empty() => ".".to_owned(),
        Some(near) => word(near),
        None => word(target),
    };
    let store = match (own, cx.named()) {
        (Some(repo), StoreChoice::ByOption) => format!(" --store {}", word(repo.dir())),
        _ => String::new(),
    };
    let save = match own {
        // Neither a commit nor an archive contains excluded files.
        _ if args.delete_excluded => "copy them to another folder to keep them".to_owned(),
        Some(_) if place.as_os_str().is_empty() => {
            format!("`snap{store} commit -b NAME` saves them first, on a new branch")
        }
        Some(_) => {
            format!("`snap{store} commit -b NAME {shown}` saves them first, on a new branch")
        }
        None => format!("`snap archive {shown} -o FILE.snap` saves them first, in a bundle"),
    };
    format!("--dry-run lists them\n{save}\n--yes deletes and overwrites them")
}

/// Refuses to write a whole snapshot into a folder of the project that the snapshot itself
/// contains: the user probably means that folder of the snapshot.
pub(super) fn check_target(
    args: &RestoreArgs,
    (snapshot, project): (&Snapshot, Option<&Path>),
    target: &Path,
) -> Result<(), CliError> {
    let is_root = snapshot.path.as_deref().is_none_or(|path| components(path).next().is_none());
    let real = |path: &Path| fs_err::canonicalize(path).ok();
    let (Some(project), Some(at)) = (project.and_then(real), real(target)) else { return Ok(()) };
    let Ok(below) = at.strip_prefix(&project) else { return Ok(()) };
    let below = below.as_os_str().as_bytes();
    if !is_root || below.is_empty() {
        return Ok(());
    }
    match resolve_path(snapshot.store(), snapshot.commit.tree, below) {
        Ok(_) => Err(CliError::FolderOfSnapshot {
            what: text::line(args.what.as_bytes()),
            path: text::line(below),
        }),
        Err(_) => Ok(()),
    }
}

/// Returns true if the target is the place in the project that was committed.
pub(super) fn is_in_place(
    repo: &Repo,
    args: &RestoreArgs,
    (target, place): (&Path, &Path),
) -> bool {
    let real = |path: &Path| fs_err::canonicalize(path).ok();
    let is_there = |project: &Path| {
        args.target.is_none()
            || real(&project.join(place)).is_some_and(|at| real(target) == Some(at))
    };
    repo.project().is_some_and(is_there)
}
