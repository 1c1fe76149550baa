//! Reads and writes settings files.

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
    base::{
        io::{PathError, if_exists},
        limits,
    },
    disk::{Disk, output::folder_of},
    repo::config::{
        error::ConfigError,
        layer::{ConfigOwner, Layer, line_of},
    },
};

/// Mode bits that let the group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Mode bits for the permissions of owner, group and others.
const PERMISSIONS: u32 = 0o777;

/// The text, owner and mode of a settings file.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    pub path: PathBuf,
    /// The whole text, including comments.
    pub text: String,
    pub layer: Layer,
    pub uid: u32,
    pub mode: u32,
    /// True if a store's file is a symbolic link. The owner of the link then chose the file that
    /// was read.
    pub is_link: bool,
}

impl ConfigFile {
    /// Reads the file at `path`. Owner and mode come from the same open file as the text.
    ///
    /// # Errors
    /// [`ConfigError`]; [`ConfigError::Io`] tells if the file does not exist.
    pub fn read(path: &Path, owner: ConfigOwner) -> Result<Self, ConfigError> {
        let when = || PathError::when("read", path);
        let (file, is_link) = open(path, owner).map_err(when())?;
        let meta = file.metadata().map_err(when())?;
        let limit = limits::CONFIG_BYTES;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(when())?;
        if bytes.len() as u64 > limit {
            return Err(ConfigError::TooLarge { path: path.to_owned(), limit });
        }
        let text = String::from_utf8(bytes).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: line_of(error.as_bytes(), error.utf8_error().valid_up_to()),
            message: "the text is not UTF-8".to_owned(),
        })?;
        let layer = Layer::parse(&text, path, owner)?;
        let (uid, mode) = (meta.uid(), meta.mode());
        Ok(Self { path: path.to_owned(), text, layer, uid, mode, is_link })
    }

    /// Returns true if only `uid` and root can have written the file.
    pub fn is_written_by(&self, uid: u32) -> bool {
        self.is_of(uid) && self.mode & OTHERS_WRITE == 0 && !self.is_link
    }

    /// Returns true if the file belongs to `uid` or to root.
    pub fn is_of(&self, uid: u32) -> bool {
        self.uid == uid || self.uid == 0
    }
}

/// Opens a file. Also returns true if it is a store's file and a symbolic link; the files of users
/// may be links. The caller adds the path to an error.
fn open(path: &Path, owner: ConfigOwner) -> io::Result<(File, bool)> {
    let open = |flags: OFlags| {
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        OpenOptions::new().read(true).custom_flags(flags).open(path)
    };
    match owner {
        ConfigOwner::User | ConfigOwner::System => Ok((open(OFlags::empty())?, false)),
        // Without `NONBLOCK`, opening a pipe would block.
        ConfigOwner::Store => match open(OFlags::NOFOLLOW | OFlags::NONBLOCK) {
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Ok((open(OFlags::NONBLOCK)?, true))
            }
            other => Ok((other?, false)),
        },
    }
}

/// Replaces a settings file atomically and durably. The new file keeps the mode of the old one, and
/// its owner if the system allows it. If there was no file, the group and others cannot write to
/// the new one.
///
/// # Errors
/// [`PathError`] of the first step that failed.
pub fn write(disk: &Disk, temporary: &Path, path: &Path, text: &str) -> Result<(), PathError> {
    let before = if_exists(fs_err::metadata(path)).map_err(PathError::when("look at", path))?;
    let mut file = disk.create(temporary)?;
    file.write(text.as_bytes())?;
    let own = file.file().metadata().map_err(PathError::when("look at", temporary))?;
    let mode = match before {
        Some(meta) => {
            if (meta.uid(), meta.gid()) != (own.uid(), own.gid()) {
                let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
                // Only root may change the owner of a file.
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
    disk.sync_folder(folder_of(path))
}
