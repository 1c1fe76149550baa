//! Paths in a snapshot as the user types them, with their starts as in git.
//!
//! | text                                | the path starts at          |
//! |-------------------------------------|-----------------------------|
//! | PATH of a command, also after `--`  | the current folder          |
//! | `REV:./x`, `REV:../x`               | the current folder          |
//! | `REV:x`                             | the top of the snapshot     |
//! | `FILE.snap:PATH`, `URL#REV:PATH`    | the top of the snapshot     |
//!
//! If the store has no project, or the current folder is outside of it, all paths start at the top.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use snap_core::{
    base::{id::TreeId, io::PathError},
    repo::{
        Repo, SpecError,
        path::{components, resolve_path},
        spec::{Resolved, Revisions},
    },
};

use crate::{
    args::Command,
    context::Context,
    report::CliError,
    ui::{text, time},
};

/// Converts a path that starts at the current folder to one that starts at the folder `top`.
/// Returns `None` if it leads out of `top`. If the current folder is outside of `top`, the path
/// starts at `top` already.
pub(crate) fn below(top: &Path, typed: &OsStr) -> Result<Option<Vec<u8>>, CliError> {
    let real = |path: &Path| {
        let real = fs_err::canonicalize(path);
        real.map_err(|error: io::Error| CliError::Source(PathError::when("find", path)(error)))
    };
    let top = real(top)?;
    let start = real(Path::new("."))?;
    let start = start.strip_prefix(&top).map(PathBuf::from).unwrap_or_default();
    let whole = match Path::new(typed).is_absolute() {
        true => match Path::new(typed).strip_prefix(&top) {
            Ok(below) => below.to_owned(),
            Err(_) => return Ok(None),
        },
        false => start.join(typed),
    };
    let mut names: Vec<&[u8]> = Vec::new();
    for name in components(whole.as_os_str().as_bytes()) {
        if name != b".." {
            names.push(name);
        } else if names.pop().is_none() {
            return Ok(None);
        }
    }
    Ok(Some(names.join(&b'/')))
}

/// Converts a PATH of a command to a path from the top of the snapshots of a store.
pub(crate) fn from_top(repo: &Repo, typed: &OsStr) -> Result<Vec<u8>, CliError> {
    within_project(repo, typed)?.ok_or_else(|| outside(typed))
}

/// Converts a path as [`from_top`] does. Returns `None` if it leads out of the project.
fn within_project(repo: &Repo, typed: &OsStr) -> Result<Option<Vec<u8>>, CliError> {
    match repo.project() {
        Some(project) => below(project, typed),
        None => Ok(Some(typed.as_bytes().to_vec())),
    }
}

fn outside(typed: &OsStr) -> CliError {
    CliError::OutsideProject { path: text::line(typed.as_bytes()) }
}

/// Converts the path of a `REV:PATH` to one from the top of the snapshot.
pub(crate) fn in_revision(repo: &Repo, path: &[u8]) -> Result<Vec<u8>, CliError> {
    match path.split(|byte| *byte == b'/').next() {
        Some(b"." | b"..") => from_top(repo, OsStr::from_bytes(path)),
        _ => Ok(path.to_vec()),
    }
}

/// Converts a pattern that starts with `./` or `../` to one from the top of the snapshots.
pub(crate) fn in_pattern(repo: &Repo, pattern: &OsStr) -> Result<Vec<u8>, CliError> {
    let bytes = pattern.as_bytes();
    let mut start = 0;
    while let Some(slash) = bytes[start..].iter().position(|byte| *byte == b'/')
        && matches!(&bytes[start..start + slash], b"." | b"..")
    {
        start += slash + 1;
    }
    if start == 0 {
        return Ok(bytes.to_vec());
    }
    let folder = within_project(repo, OsStr::from_bytes(&bytes[..start]))?;
    let folder = folder.ok_or_else(|| outside(pattern))?;
    let mut whole = vec![b'/'];
    for byte in folder {
        // The folder is a path, so it matches only itself.
        if b"*?[]{}\\".contains(&byte) {
            whole.push(b'\\');
        }
        whole.push(byte);
    }
    if whole.len() > 1 {
        whole.push(b'/');
    }
    whole.extend_from_slice(&bytes[start..]);
    Ok(whole)
}

/// Returns the hint for a command line in which a path lacks its revision, or starts at the current
/// folder where it must start at the top: the command that was probably meant.
pub(crate) fn advice(
    error: &CliError,
    (command, cx): (&Command, &Context),
    arguments: &[OsString],
) -> Option<String> {
    if !takes_entry(command) {
        return None;
    }
    let repo = Repo::open_read_only(&cx.find_store(Path::new(".")).ok()??).ok()?;
    let arguments = arguments.get(1..)?;
    let corrected = |argument| corrected(error, argument, &repo, cx);
    let (at, meant) =
        arguments.iter().enumerate().find_map(|(at, argument)| Some((at, corrected(argument)?)))?;
    let mut words = vec!["snap".to_owned()];
    for (number, argument) in arguments.iter().enumerate() {
        let argument = if number == at { &meant } else { argument };
        words.push(text::word(argument.as_bytes()));
    }
    Some(format!("did you mean `{}`?", words.join(" ")))
}

/// Returns true if an argument of the command may be `REV:PATH`.
fn takes_entry(command: &Command) -> bool {
    matches!(
        command,
        Command::Cat(_)
            | Command::Diff(_)
            | Command::Export(_)
            | Command::Fetch(_)
            | Command::Ls(_)
            | Command::Restore(_)
            | Command::Show(_)
    )
}

/// Returns `REV:PATH` for the argument that caused `error`, if that entry exists.
fn corrected(error: &CliError, argument: &OsStr, repo: &Repo, cx: &Context) -> Option<OsString> {
    let has = |tree: TreeId, path: &[u8]| resolve_path(repo.store(), tree, path).is_ok();
    let entry = |rev: &str, path: &[u8]| OsString::from_vec([rev.as_bytes(), b":", path].concat());
    match error {
        CliError::Spec(SpecError::Unknown { text, .. }) | CliError::NoContent { text }
            if !text.is_empty() && text::line(argument.as_bytes()).starts_with(text.as_str()) =>
        {
            let head = repo.refs().head_commit().ok()??;
            let path = from_top(repo, argument).ok().filter(|path| !path.is_empty())?;
            let tree = repo.store().commit(&head).ok()?.tree;
            has(tree, &path).then(|| entry("HEAD", &path))
        }
        CliError::NotWithin { within, .. } => {
            let date = |text: &str| time::parse(text, cx.now());
            let found = Revisions::new(repo, &date).resolve(argument.as_bytes()).ok()?;
            let Resolved { commit, rev, path: Some(typed), .. } = found else { return None };
            let path = from_top(repo, OsStr::from_bytes(&typed)).ok()?;
            let is_other = text::line(rev.as_bytes()) == *within && path != typed;
            (is_other && has(commit.tree, &path)).then(|| entry(&rev, &path))
        }
        _ => None,
    }
}
