//! Determines the two sides of a comparison from revisions, folders and paths on the command line.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use snap_core::{
    base::{id::TreeId, name::EntryName},
    format::{commit::Commit, tree::Entry},
    local::ignore,
    ops::{
        commit::NamedPath,
        diff::{Change, ComparedFiles, ComparedFolder, Limit, New},
    },
    repo::{
        Head, Repo, SpecError,
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
    typed_path,
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
    /// True to compare a `.git` at the top of the project, too.
    pub(crate) include_git: bool,
    /// The profile whose excludes are added.
    pub(crate) profile: Option<&'a str>,
}

/// Returns the files that are compared with a commit, and their exclude rules.
fn folder(
    repo: &Repo,
    wanted: &SideArguments<'_>,
    commit: Option<&Commit>,
    cx: &Context,
) -> Result<ComparedFolder, CliError> {
    let mut recorded = &[][..];
    let files = match (wanted.folder, commit) {
        (Some(folder), _) => ComparedFiles::Folder(folder.to_owned()),
        (None, Some(commit)) => match sources(repo, commit)? {
            Some(files) => {
                recorded = &commit.selection.rules;
                files
            }
            None => ComparedFiles::Folder(commit::whole_folder(repo)),
        },
        (None, None) => ComparedFiles::Folder(commit::whole_folder(repo)),
    };
    let root = commit.and_then(|commit| commit.root.as_ref());
    let scope = if wanted.folder.is_none() { repo.scope()? } else { None };
    let profile = match wanted.profile {
        Some(name) => cx.settings_here()?.0.profile(name)?,
        None => Profile::default(),
    };
    // Commits of the same sources usually have the same exclude rules.
    let mut ignore = recorded.iter().fold(ignore::Options::default(), |mut all, rules| {
        all.add(rules);
        all
    });
    ignore.add(&wanted.leave_out.join(&profile, repo.config(), cx)?);
    if let ComparedFiles::Folder(folder) = &files {
        commit::git::leave_out(&mut ignore, repo, (folder, wanted.include_git))?;
    }
    Ok(ComparedFolder {
        files,
        scope: scope.unwrap_or_default(),
        ignore,
        reproducible: root.is_some_and(|root| root.owner.is_none()),
    })
}

/// Returns the recorded sources of a commit, each with its path in the snapshot. Returns `None` if
/// the commit has none on disk, or if the project's own files come from commits. The sources of a
/// clone are those of another machine.
pub(crate) fn sources(repo: &Repo, commit: &Commit) -> Result<Option<ComparedFiles>, CliError> {
    if repo.project().is_some() && (repo.base()?.is_some() || !commits_here(repo)?) {
        return Ok(None);
    }
    let sources = commit.selection.sources.iter().map(|name| OsStr::from_bytes(name));
    let sources: Vec<&Path> = sources.map(Path::new).filter(|path| path.is_absolute()).collect();
    Ok(match sources.as_slice() {
        [] => None,
        [one] if commit.root.is_some() => Some(ComparedFiles::Folder(one.to_path_buf())),
        several => {
            let places = several.iter().map(|path| source_place(repo, commit.tree, path));
            Some(ComparedFiles::Paths(places.collect::<Result<_, _>>()?))
        }
    })
}

/// Returns true if the last change of the current branch was a commit in this store.
fn commits_here(repo: &Repo) -> Result<bool, CliError> {
    let Head::Branch(branch) = repo.refs().head()? else { return Ok(false) };
    let last = repo.refs().log(&branch)?.pop();
    Ok(last.is_some_and(|line| line.reason.starts_with("commit")))
}

/// Returns a source with its path in a snapshot: that is the path as the user wrote it, which is
/// absolute or the end of the absolute one.
fn source_place(repo: &Repo, tree: TreeId, source: &Path) -> Result<NamedPath, CliError> {
    let whole = commit::followed(source, source);
    // A link that leads nowhere, or another path that cannot be followed, counts as removed.
    let whole = whole.or_else(|_| commit::named(source.to_owned(), source))?;
    for at in 0..whole.inside.len() {
        let inside = &whole.inside[at..];
        let path: Vec<_> = inside.iter().map(EntryName::as_bytes).collect();
        if in_tree(repo, Some(tree), &path.join(&b'/'))? {
            return Ok(NamedPath { inside: inside.to_vec(), ..whole });
        }
    }
    Ok(whole)
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
        (Some(_), Some(_))
            if *wanted.leave_out != LeaveOut::default()
                || wanted.include_git
                || wanted.profile.is_some() =>
        {
            Err(CliError::Usage("exclude options do not apply to two commits; pass paths instead"))
        }
        (Some(old), Some(new)) if named_path => inside(repo, &old, &new),
        (Some(old), Some(new)) => {
            let files = ComparedFiles::Folder(commit::whole_folder(repo));
            let sides = (Some(old.commit.tree), New::Tree(Some(new.commit.tree)));
            limited(repo, sides, (&files, &paths))
        }
        (Some(old), None) => {
            let folder = folder(repo, wanted, Some(&old.commit), cx)?;
            let new = New::Folder(folder.clone());
            match &old.path {
                None => limited(repo, (Some(old.commit.tree), new), (&folder.files, &paths)),
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
            limited(repo, sides, (&folder.files, &paths))
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
    Ok((folder.clone(), limit(repo, (tree, &new), (&folder.files, &paths))?))
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
            let change = Change { path: new_path, old_path, old, new, is_ignored: false };
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
    paths: (&ComparedFiles, &[&OsStr]),
) -> Result<Sides, CliError> {
    let limit = limit(repo, (old, &new), paths)?;
    Ok(Sides::Trees { old, new, prefix: Vec::new(), limit })
}

/// Limits a comparison to paths as they are typed. Each must exist on one side.
fn limit(
    repo: &Repo,
    (old, new): (Option<TreeId>, &New),
    (files, paths): (&ComparedFiles, &[&OsStr]),
) -> Result<Limit, CliError> {
    // Paths outside the scope of a partial clone need not be in its folder.
    if let (New::Folder(_), []) = (new, paths)
        && let ComparedFiles::Folder(folder) = files
        && repo.project() == Some(folder)
        && let Some(scope) = repo.scope()?
    {
        let joined = |names: Vec<EntryName>| {
            names.iter().map(EntryName::as_bytes).collect::<Vec<_>>().join(&b'/')
        };
        return Ok(Limit::to_scope(scope.into_iter().map(joined).collect()));
    }
    let paths = paths.iter().map(|path| match files {
        ComparedFiles::Folder(folder) => {
            typed_path::below(folder, path)?.ok_or_else(|| outside(path))
        }
        ComparedFiles::Paths(named) => in_paths(named, path),
    });
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    for path in &paths {
        let exists = match new {
            New::Tree(tree) => in_tree(repo, *tree, path)?,
            New::Folder(folder) => folder.files.has(path),
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

/// Converts a typed path to one in the snapshot of several sources. A path that leads to none of
/// them is one in the snapshot already.
fn in_paths(named: &[NamedPath], path: &OsStr) -> Result<Vec<u8>, CliError> {
    let joined = |inside: &[EntryName], below: &[u8]| {
        let names = inside.iter().map(EntryName::as_bytes).chain(components(below));
        names.collect::<Vec<_>>().join(&b'/')
    };
    let real = |path: &Path| fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let typed = commit::source_name(Path::new(path))?;
    let typed = real(Path::new(OsStr::from_bytes(&typed)));
    for NamedPath { path, inside } in named {
        if let Ok(below) = typed.strip_prefix(real(path)) {
            return Ok(joined(inside, below.as_os_str().as_bytes()));
        }
    }
    let names: Vec<_> = components(path.as_bytes()).collect();
    match names.contains(&&b".."[..]) {
        true => Err(outside(path)),
        false => Ok(names.join(&b'/')),
    }
}

fn outside(path: &OsStr) -> CliError {
    CliError::Outside { path: text::line(path.as_bytes()) }
}
