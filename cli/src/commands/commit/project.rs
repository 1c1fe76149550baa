//! Which paths of a project a commit updates.

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

/// Where named paths lie.
pub(super) enum Within {
    /// No path is named, or the project's folder itself is.
    Whole,
    /// All of them lie in the project.
    Paths(Vec<NamedPath>),
    /// Some of them lie elsewhere.
    Elsewhere,
}

/// Finds out where paths lie, as they are typed: a symlink at the end of a path
/// is not followed, those before it are.
pub(super) fn within(project: &Path, paths: &[&Path]) -> Result<Within, CliError> {
    let when = |path| move |error| CliError::Source(PathError::when("find", path)(error));
    let top = fs_err::canonicalize(project).map_err(when(project))?;
    let mut named = Vec::with_capacity(paths.len());
    for path in paths {
        let real = real(path).map_err(when(path))?;
        let Ok(below) = real.strip_prefix(&top) else { return Ok(Within::Elsewhere) };
        if below.as_os_str().is_empty() {
            return Ok(Within::Whole);
        }
        let names = below.components().map(|name| EntryName::new(name.as_os_str().as_bytes()));
        let no_place = |_| CliError::NoPlace { path: path.display().to_string() };
        let inside = names.collect::<Result<Vec<_>, _>>().map_err(no_place)?;
        // As it was typed, where that is its path from the project's folder.
        let is_same =
            path.components().filter(|name| *name != Component::CurDir).eq(below.components());
        let path = if is_same { below.to_owned() } else { project.join(below) };
        named.push(NamedPath { path, inside });
    }
    Ok(if named.is_empty() { Within::Whole } else { Within::Paths(named) })
}

/// The path with all symlinks resolved but one at its end. What does not exist
/// is taken as it is written.
fn real(path: &Path) -> io::Result<PathBuf> {
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
