//! Files of settings of the user and the system: where they are, reading and
//! writing them.

use std::{
    io,
    path::{Path, PathBuf},
};

use snap_core::{
    base::io::PathError,
    disk::Disk,
    repo::config::{
        ConfigFile, FILE,
        file::{self, FileError},
        layer::{Layer, Whose},
    },
};

use crate::{env::Env, report::CliError};

/// Where the user's file is, whether or not there is one.
///
/// `SNAP_CONFIG` names it, or says with nothing that there is none; else it is
/// `snap/config.toml` where the user keeps settings.
pub(super) fn path(env: &Env) -> Option<PathBuf> {
    match &env.config {
        Some(named) if named.as_os_str().is_empty() || named == Path::new("/dev/null") => None,
        Some(named) => Some(named.clone()),
        None => env.config_home.as_ref().map(|folder| folder.join("snap").join(FILE)),
    }
}

/// The system's file, unless `SNAP_CONFIG_SYSTEM` names another.
const SYSTEM_FILE: &str = "/etc/snap/config.toml";

/// What the system's file says; nothing when it is not there. Only root may
/// have written it, or the user who named another file.
pub(super) fn read_system(env: &Env) -> Result<Layer, CliError> {
    let path = match &env.system_config {
        Some(named) if named.as_os_str().is_empty() || named == Path::new("/dev/null") => {
            return Ok(Layer::default());
        }
        Some(named) => named.as_path(),
        None => Path::new(SYSTEM_FILE),
    };
    let file = match ConfigFile::read(path, Whose::System) {
        Ok(file) => file,
        Err(FileError::Io(error))
            if is_absent(error.source.kind(), env.system_config.is_some()) =>
        {
            return Ok(Layer::default());
        }
        Err(error) => return Err(unreadable(error, path)),
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

/// What it says; nothing when it is not there. One in the user's own folders
/// that may not be read, as after a change of user, counts as not there.
pub(super) fn read(env: &Env) -> Result<Layer, CliError> {
    let Some(path) = path(env) else { return Ok(Layer::default()) };
    let is_named = env.config.is_some();
    match ConfigFile::read(&path, Whose::User) {
        Ok(file) => Ok(file.layer),
        Err(FileError::Io(error)) if is_absent(error.source.kind(), is_named) => {
            Ok(Layer::default())
        }
        Err(error) => Err(unreadable(error, &path)),
    }
}

fn unreadable(error: FileError, path: &Path) -> CliError {
    match error {
        FileError::Io(error) => CliError::Settings(error),
        FileError::Config(error) => error.into(),
        error => CliError::Settings(PathError {
            action: "read",
            path: path.to_owned(),
            source: io::Error::other(error),
        }),
    }
}

fn is_absent(kind: io::ErrorKind, is_named: bool) -> bool {
    match kind {
        io::ErrorKind::NotFound => true,
        io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => !is_named,
        _ => false,
    }
}

/// Its text, to be changed; empty when it is not there.
pub(crate) fn text(path: &Path) -> Result<String, CliError> {
    // What failed and where is said by the error around it.
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|error| CliError::Settings(PathError::when("read", path)(error))),
    }
}

/// Writes it whole, durably; makes the folders that it needs. Where the name
/// is a link, what it leads to is written.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let disk = Disk::default();
    let real = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if real.exists() && !real.is_file() {
        let source = io::Error::other("it is not a regular file");
        return Err(CliError::Settings(PathError { action: "write", path: real, source }));
    }
    if let Some(folder) = real.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        disk.create_folders(folder).map_err(CliError::Settings)?;
    }
    let mut temporary = real.clone().into_os_string();
    temporary.push(format!(".{}.tmp", std::process::id()));
    file::write(&disk, Path::new(&temporary), &real, text).map_err(CliError::Settings)
}
