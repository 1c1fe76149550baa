//! Finds the paths of a project that a commit updates.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use snap_core::{
    base::{io::PathError, name::EntryName},
    ops::commit::NamedPath,
};

use crate::report::CliError;

/// The place of named paths.
pub(super) enum PathLocation {
    /// No path is named, or the project's folder is.
    Whole,
    /// All paths are in the project.
    Paths(Vec<NamedPath>),
    /// Some paths are outside the project.
    Outside,
}

/// Finds the place of paths as they were typed. Follows symlinks, except one at the end of a path
/// if it lies in the project: as in a commit of the whole project, it is saved as a link.
pub(super) fn within(project: &Path, paths: &[&Path]) -> Result<PathLocation, CliError> {
    let when = |path| move |error| CliError::Source(PathError::when("find", path)(error));
    let top = fs_err::canonicalize(project).map_err(when(project))?;
    let mut named = Vec::with_capacity(paths.len());
    for path in paths {
        let mut real = real(path).map_err(when(path))?;
        if !real.starts_with(&top)
            && let Ok(target) = fs_err::canonicalize(path)
        {
            real = target;
        }
        let Ok(below) = real.strip_prefix(&top) else { return Ok(PathLocation::Outside) };
        if below.as_os_str().is_empty() {
            return Ok(PathLocation::Whole);
        }
        let names = below.components().map(|name| EntryName::new(name.as_os_str().as_bytes()));
        let no_place = |_| CliError::NoPlace { path: path.display().to_string() };
        let inside = names.collect::<Result<Vec<_>, _>>().map_err(no_place)?;
        // Keeps the path as it was typed if it is relative to the project's folder.
        let is_same =
            path.components().filter(|name| *name != Component::CurDir).eq(below.components());
        let path = if is_same { below.to_owned() } else { project.join(below) };
        named.push(NamedPath { path, inside });
    }
    Ok(if named.is_empty() { PathLocation::Whole } else { PathLocation::Paths(named) })
}

/// Returns true if a path, which may be a link, lies in the project.
pub(super) fn contains(project: &Path, path: &Path) -> bool {
    match (fs_err::canonicalize(project), real(path)) {
        (Ok(top), Ok(real)) => real.starts_with(top),
        _ => false,
    }
}

/// Returns the path with all symlinks resolved except one at its end. Keeps components that do not
/// exist.
pub(super) fn real(path: &Path) -> io::Result<PathBuf> {
    let (mut above, mut rest) = (path, Vec::<&OsStr>::new());
    while let Some(name) = above.file_name() {
        rest.push(name);
        above = above.parent().unwrap_or(Path::new(""));
        let folder = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match fs_err::canonicalize(folder) {
            Ok(found) => return Ok(found.join(rest.iter().rev().collect::<PathBuf>())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(fs_err::canonicalize(above)?.join(rest.iter().rev().collect::<PathBuf>()))
}
