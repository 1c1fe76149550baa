//! Determines the two sides of a comparison from revisions, folders and paths on the command line.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use snap_core::{
    base::{id::TreeId, io::PathError, name::EntryName},
    format::{commit::Commit, tree::Entry},
    ops::diff::{Change, ComparedFolder, Limit, New},
    repo::{
        Repo, SpecError,
        path::{PathInTreeError, ResolvedPath, components, resolve_path},
        spec::Resolved,
    },
};

use crate::{
    commands::commit::{self, LeaveOut},
    config::Profile,
    context::Context,
    report::CliError,
    snapshot::find,
    ui::text,
};

/// The two sides of a comparison.
pub(crate) enum Sides {
    /// Two folders.
    Trees {
        /// The old tree; `None` for an empty one.
        old: Option<TreeId>,
        /// The new tree or folder.
        new: New,
        /// The path of both.
        prefix: Vec<u8>,
        /// The paths that are compared.
        limit: Limit,
    },
    /// Two entries that are not folders.
    Entries(Box<Change>, New),
}

/// The arguments that select both sides.
pub(crate) struct SideArguments<'a> {
    pub(crate) args: &'a [OsString],
    pub(crate) paths: &'a [OsString],
    pub(crate) folder: Option<&'a Path>,
    pub(crate) leave_out: &'a LeaveOut,
}

/// Returns the folder that is compared with a commit, and its exclude rules.
fn folder(
    repo: &Repo,
    wanted: &SideArguments<'_>,
    commit: Option<&Commit>,
    cx: &Context,
) -> Result<ComparedFolder, CliError> {
    let path = wanted.folder.map_or_else(|| commit::whole_folder(repo), Path::to_owned);
    let root = commit.and_then(|commit| commit.root.as_ref());
    let scope = if wanted.folder.is_none() { repo.scope()? } else { None };
    Ok(ComparedFolder {
        path,
        scope: scope.unwrap_or_default(),
        ignore: wanted.leave_out.join(&Profile::default(), repo.config(), cx)?,
        reproducible: root.is_some_and(|root| root.owner.is_none()),
    })
}

/// Determines the two sides.
pub(crate) fn sides(
    repo: &Repo,
    wanted: &SideArguments<'_>,
    cx: &Context,
) -> Result<Sides, CliError> {
    let (revs, more) = revisions(repo, wanted.args, cx)?;
    let paths: Vec<&OsStr> = more.iter().chain(wanted.paths).map(OsString::as_os_str).collect();
    let mut revs = revs.into_iter();
    let (first, second) = (revs.next(), revs.next());
    let named_path = [&first, &second].into_iter().flatten().any(|rev| rev.path.is_some());
    if named_path && !paths.is_empty() {
        return Err(CliError::Usage("REV:PATH cannot be combined with further paths"));
    }
    match (first, second) {
        (Some(_), Some(_)) if wanted.folder.is_some() => {
            Err(CliError::Usage("--folder cannot be used with two commits"))
        }
        (Some(_), Some(_)) if *wanted.leave_out != LeaveOut::default() => {
            Err(CliError::Usage("exclude options do not apply to two commits; pass paths instead"))
        }
        (Some(old), Some(new)) if named_path => inside(repo, &old, &new),
        (Some(old), Some(new)) => {
            let path = commit::whole_folder(repo);
            let sides = (Some(old.commit.tree), New::Tree(Some(new.commit.tree)));
            limited(repo, sides, (&path, &paths))
        }
        (Some(old), None) => {
            let folder = folder(repo, wanted, Some(&old.commit), cx)?;
            let new = New::Folder(folder.clone());
            match &old.path {
                None => limited(repo, (Some(old.commit.tree), new), (&folder.path, &paths)),
                Some(path) => {
                    find(repo.store(), old.commit.tree, (&old.rev, path))?;
                    let limit = Limit::to(vec![normal(path)]);
                    Ok(Sides::Trees { old: Some(old.commit.tree), new, prefix: Vec::new(), limit })
                }
            }
        }
        (None, _) => {
            let head = repo.refs().head_commit()?;
            let head = head.map(|id| repo.store().commit(&id)).transpose()?;
            let folder = folder(repo, wanted, head.as_ref(), cx)?;
            let sides = (head.map(|commit| commit.tree), New::Folder(folder.clone()));
            limited(repo, sides, (&folder.path, &paths))
        }
    }
}

/// Returns the folder that is compared with the last commit, and the limit of the comparison.
pub(crate) fn since(
    repo: &Repo,
    wanted: &SideArguments<'_>,
    commit: Option<&Commit>,
    cx: &Context,
) -> Result<(ComparedFolder, Limit), CliError> {
    let folder = folder(repo, wanted, commit, cx)?;
    let paths: Vec<&OsStr> = wanted.paths.iter().map(OsString::as_os_str).collect();
    let new = New::Folder(folder.clone());
    let tree = commit.map(|commit| commit.tree);
    Ok((folder.clone(), limit(repo, (tree, &new), (&folder.path, &paths))?))
}

/// Returns the revisions at the start of the arguments, at most two. The rest are paths, if they
/// exist.
fn revisions<'a>(
    repo: &Repo,
    args: &'a [OsString],
    cx: &Context,
) -> Result<(Vec<Resolved>, &'a [OsString]), CliError> {
    let mut revs = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        match cx.resolve(repo, arg) {
            Ok(rev) => revs.push(rev),
            Err(CliError::Spec(SpecError::Unknown { .. } | SpecError::Syntax { .. }))
                if Path::new(arg).symlink_metadata().is_ok() =>
            {
                return Ok((revs, &args[at..]));
            }
            Err(error) => return Err(error),
        }
        if revs.len() > 2 {
            return Err(CliError::Usage("at most two commits can be compared"));
        }
    }
    Ok((revs, &[]))
}

fn normal(path: &[u8]) -> Vec<u8> {
    components(path).collect::<Vec<_>>().join(&b'/')
}

/// Returns the two sides for `REV:PATH` and another one.
fn inside(repo: &Repo, old: &Resolved, new: &Resolved) -> Result<Sides, CliError> {
    let path = |rev: &Resolved| normal(rev.path.as_deref().unwrap_or_default());
    let find = |rev: &Resolved| find(repo.store(), rev.commit.tree, (&rev.rev, &path(rev)));
    let (old_path, new_path) = (path(old), path(new));
    match (find(old)?, find(new)?) {
        (ResolvedPath::Entry(old), ResolvedPath::Entry(new))
            if !is_folder(&old) && !is_folder(&new) =>
        {
            let old_path = (old_path != new_path).then_some(old_path);
            let (old, new) = (Some(old.into()), Some(new.into()));
            let change = Change { path: new_path, old_path, old, new };
            Ok(Sides::Entries(Box::new(change), New::Tree(None)))
        }
        (old, new) => match (old.tree(), new.tree()) {
            (Some(old), Some(tree)) => {
                let prefix = if old_path == new_path { new_path } else { Vec::new() };
                let new = New::Tree(Some(tree));
                Ok(Sides::Trees { old: Some(old), new, prefix, limit: Limit::default() })
            }
            _ => Err(CliError::Usage("a folder cannot be compared with a file")),
        },
    }
}

fn is_folder(entry: &Entry) -> bool {
    matches!(entry.kind, snap_core::format::tree::EntryKind::Folder { .. })
}

fn limited(
    repo: &Repo,
    (old, new): (Option<TreeId>, New),
    paths: (&Path, &[&OsStr]),
) -> Result<Sides, CliError> {
    let limit = limit(repo, (old, &new), paths)?;
    Ok(Sides::Trees { old, new, prefix: Vec::new(), limit })
}

/// Limits a comparison to paths as they are typed. Each must exist on one side.
fn limit(
    repo: &Repo,
    (old, new): (Option<TreeId>, &New),
    (folder, paths): (&Path, &[&OsStr]),
) -> Result<Limit, CliError> {
    // Paths outside the scope of a partial clone need not be in its folder.
    if let (New::Folder(_), []) = (new, paths)
        && repo.project() == Some(folder)
        && let Some(scope) = repo.scope()?
    {
        let joined = |names: Vec<EntryName>| {
            names.iter().map(EntryName::as_bytes).collect::<Vec<_>>().join(&b'/')
        };
        return Ok(Limit::to_scope(scope.into_iter().map(joined).collect()));
    }
    let paths = paths.iter().map(|path| in_folder(folder, path));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    for path in &paths {
        let exists = match new {
            New::Tree(tree) => in_tree(repo, *tree, path)?,
            New::Folder(folder) => {
                folder.path.join(OsStr::from_bytes(path)).symlink_metadata().is_ok()
            }
        };
        if !exists && !in_tree(repo, old, path)? {
            return Err(CliError::OnNeitherSide { path: text::line(path) });
        }
    }
    Ok(Limit::to(paths))
}

fn in_tree(repo: &Repo, tree: Option<TreeId>, path: &[u8]) -> Result<bool, CliError> {
    let Some(tree) = tree else { return Ok(path.is_empty()) };
    match resolve_path(repo.store(), tree, path) {
        Ok(_) => Ok(true),
        Err(PathInTreeError::NotFound { .. } | PathInTreeError::NotAFolder { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Converts a typed path to one relative to the compared folder. If the current folder is outside
/// of that, the path is already relative to it.
fn in_folder(folder: &Path, path: &OsStr) -> Result<Vec<u8>, CliError> {
    let real = |path: &Path| {
        let real = fs_err::canonicalize(path);
        real.map_err(|error: io::Error| CliError::Source(PathError::when("find", path)(error)))
    };
    let outside = || CliError::Outside { path: text::line(path.as_bytes()) };
    let top = real(folder)?;
    let start = real(Path::new("."))?;
    let start = start.strip_prefix(&top).map(PathBuf::from).unwrap_or_default();
    let whole = match Path::new(path).is_absolute() {
        true => Path::new(path).strip_prefix(&top).map_err(|_| outside())?.to_owned(),
        false => start.join(path),
    };
    let mut names: Vec<&[u8]> = Vec::new();
    for name in components(whole.as_os_str().as_bytes()) {
        if name != b".." {
            names.push(name);
        } else if names.pop().is_none() {
            return Err(outside());
        }
    }
    Ok(names.join(&b'/'))
}
