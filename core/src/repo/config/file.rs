//! Reading and writing a file of settings.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Gid, OFlags, Uid, fchown},
    io::Errno,
};

use crate::{
    base::{io::PathError, limits},
    disk::Disk,
    repo::config::{
        error::ConfigError,
        layer::{Layer, Whose, line_of},
    },
};

/// Bits of a mode that let group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Bits of a mode that say who may do what.
const PERMISSIONS: u32 = 0o777;

/// A file of settings as it was read.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, comments and all.
    pub text: String,
    /// Its settings.
    pub layer: Layer,
    /// Whom it belongs to.
    pub uid: u32,
    /// Who may do what with it.
    pub mode: u32,
    /// A store's file that is a link: whoever made the link chose what is read.
    pub is_link: bool,
}

/// Why a file of settings could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// What it says is not usable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It could not be read.
    #[error(transparent)]
    Io(#[from] PathError),
}

impl ConfigFile {
    /// Reads the file at `path`. Owner and mode are those of the very file
    /// that was read, whatever stands there a moment later.
    ///
    /// # Errors
    /// [`FileError`]; [`PathError::is_not_found`] tells that there is none.
    pub fn read(path: &Path, whose: Whose) -> Result<Self, FileError> {
        let when = || PathError::when("read", path);
        let (file, is_link) = open(path, whose).map_err(when())?;
        let meta = file.metadata().map_err(when())?;
        let limit = limits::CONFIG_BYTES;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(when())?;
        if bytes.len() as u64 > limit {
            return Err(ConfigError::TooLarge { path: path.to_owned(), limit }.into());
        }
        let text = String::from_utf8(bytes).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: line_of(error.as_bytes(), error.utf8_error().valid_up_to()),
            message: "what stands there is not UTF-8".to_owned(),
        })?;
        let layer = Layer::parse(&text, path, whose)?;
        let (uid, mode) = (meta.uid(), meta.mode());
        Ok(Self { path: path.to_owned(), text, layer, uid, mode, is_link })
    }

    /// Whether nobody but `uid` and root can have written what it says.
    pub fn is_written_by(&self, uid: u32) -> bool {
        self.is_of(uid) && self.mode & OTHERS_WRITE == 0 && !self.is_link
    }

    /// Whether it belongs to `uid` or to root.
    pub fn is_of(&self, uid: u32) -> bool {
        self.uid == uid || self.uid == 0
    }
}

/// Opens a file; says whether a store's is a link. The user's may well be one.
/// What failed and where is said by the error around it.
fn open(path: &Path, whose: Whose) -> io::Result<(File, bool)> {
    let open = |flags: OFlags| {
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        OpenOptions::new().read(true).custom_flags(flags).open(path)
    };
    match whose {
        Whose::User | Whose::System => Ok((open(OFlags::empty())?, false)),
        // Without `NONBLOCK` a pipe in its place would hang us.
        Whose::Store => match open(OFlags::NOFOLLOW | OFlags::NONBLOCK) {
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Ok((open(OFlags::NONBLOCK)?, true))
            }
            other => Ok((other?, false)),
        },
    }
}

/// Writes a file of settings whole, durably. One that was there keeps its
/// mode, and its owner where the system lets it; of a new one group and others
/// cannot write.
///
/// # Errors
/// [`PathError`] of the first step that failed.
pub fn write(disk: &Disk, temporary: &Path, path: &Path, text: &str) -> Result<(), PathError> {
    let before = match fs_err::metadata(path) {
        Ok(meta) => Some(meta),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(PathError::when("look at", path)(error)),
    };
    let mut file = disk.create(temporary)?;
    file.write(text.as_bytes())?;
    let own = file.file().metadata().map_err(PathError::when("look at", temporary))?;
    let mode = match before {
        Some(meta) => {
            if (meta.uid(), meta.gid()) != (own.uid(), own.gid()) {
                let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
                // Only root may give a file away.
                let _ = fchown(file.file(), Some(uid), Some(gid));
            }
            meta.permissions()
        }
        None => Permissions::from_mode(own.mode() & !OTHERS_WRITE & PERMISSIONS),
    };
    let set = PathError::when("set the mode of", temporary);
    file.file().set_permissions(mode).map_err(set)?;
    file.sync()?;
    disk.replace(temporary, path)?;
    file.keep();
    disk.sync_folder(path.parent().unwrap_or(Path::new(".")))
}
