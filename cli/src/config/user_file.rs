//! The settings files of the user and the system: their paths, reading and writing.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use snap_core::{
    base::io::PathError,
    disk::{Disk, lock_wait::lock_folder, output::folder_of},
    repo::config::{
        ConfigError, ConfigFile, FILE, file,
        layer::{ConfigOwner, Layer},
    },
};

use crate::{env::Env, report::CliError};

/// Returns the path of the user's file, which need not exist.
///
/// `SNAP_CONFIG` names it; if that is empty, there is no user's file. Otherwise it is
/// `snap/config.toml` in the user's config folder.
pub(super) fn path(env: &Env) -> Option<PathBuf> {
    match &env.config {
        Some(named) if named.as_os_str().is_empty() || named == Path::new("/dev/null") => None,
        Some(named) => Some(named.clone()),
        None => env.config_home.as_ref().map(|folder| folder.join("snap").join(FILE)),
    }
}

/// The system's file, unless `SNAP_CONFIG_SYSTEM` names another one.
const SYSTEM_FILE: &str = "/etc/snap/config.toml";

/// Reads the system's file; a missing file is empty. Only root may have written it, or the user if
/// the user named the file.
pub(super) fn read_system(env: &Env) -> Result<Layer, CliError> {
    let path = match &env.system_config {
        Some(named) if named.as_os_str().is_empty() || named == Path::new("/dev/null") => {
            return Ok(Layer::default());
        }
        Some(named) => named.as_path(),
        None => Path::new(SYSTEM_FILE),
    };
    let file = match ConfigFile::read(path, ConfigOwner::System) {
        Ok(file) => file,
        Err(ConfigError::Io(error))
            if is_absent(error.source.kind(), env.system_config.is_some()) =>
        {
            return Ok(Layer::default());
        }
        Err(error) => return Err(unreadable(error)),
    };
    let named_by = env.system_config.as_ref().map_or(0, |_| rustix::process::geteuid().as_raw());
    match file.is_written_by(named_by) {
        true => Ok(file.layer),
        false => {
            let (path, uid, mode) = (file.path, file.uid, file.mode & 0o7777);
            Err(CliError::SystemFile { path, uid, mode })
        }
    }
}

/// Reads the user's file; a missing file is empty. An unreadable file in the user's own folders
/// counts as missing; this happens after a change of user.
pub(super) fn read(env: &Env) -> Result<Layer, CliError> {
    let Some(path) = path(env) else { return Ok(Layer::default()) };
    let is_named = env.config.is_some();
    match ConfigFile::read(&path, ConfigOwner::User) {
        Ok(file) => Ok(file.layer),
        Err(ConfigError::Io(error)) if is_absent(error.source.kind(), is_named) => {
            Ok(Layer::default())
        }
        Err(error) => Err(unreadable(error)),
    }
}

fn unreadable(error: ConfigError) -> CliError {
    match error {
        ConfigError::Io(error) => CliError::Settings(error),
        error => error.into(),
    }
}

fn is_absent(kind: io::ErrorKind, is_named: bool) -> bool {
    match kind {
        io::ErrorKind::NotFound => true,
        io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => !is_named,
        _ => false,
    }
}

/// Reads the text of the file for an edit; a missing file is empty.
pub(crate) fn text(path: &Path) -> Result<String, CliError> {
    // The error that wraps this one adds the path.
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|error| CliError::Settings(PathError::when("read", path)(error))),
    }
}

/// Locks the file against changes by other processes, until the returned file is dropped. Creates
/// its folder. Returns `None` if the file system does not support locks.
pub(crate) fn lock(path: &Path) -> Result<Option<File>, CliError> {
    let real = real(path);
    let folder = folder_of(&real);
    Disk::default().create_folders(folder).map_err(CliError::Settings)?;
    lock_folder(folder).map_err(CliError::Settings)
}

/// Returns the target of the path if it is a symbolic link.
fn real(path: &Path) -> PathBuf {
    fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Replaces the file atomically and durably; its folder must exist. If the path is a symbolic link,
/// replaces its target. A caller that changes existing settings must take [`lock`] before it reads
/// them.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let disk = Disk::default();
    let real = real(path);
    if real.exists() && !real.is_file() {
        let source = io::Error::other("it is not a regular file");
        return Err(CliError::Settings(PathError { action: "write", path: real, source }));
    }
    let mut temporary = real.clone().into_os_string();
    temporary.push(format!(".{}.tmp", std::process::id()));
    file::write(&disk, Path::new(&temporary), &real, text).map_err(CliError::Settings)
}
