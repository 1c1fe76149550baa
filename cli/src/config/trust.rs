//! Trust: which stores, and which settings in their files, the user trusts.
//!
//! A store can come from another user: in a folder that both users may write, or in an archive that
//! the user unpacked. This module decides two things:
//!
//! - May a command write to a store that the search found? Not if another user can have put it
//!   there: [`snap_core::repo::ownership`].
//! - Are hooks, profiles and remotes in a store's file used? Only if the user has reviewed them.
//!   The owner of the file proves nothing.
//!
//! For paths in `SNAP_TRUST` and in the setting `trust` of the user and the system, both answers
//! are yes. Otherwise a record in the user's state folder decides. There is one file for each
//! store, named by the hash of the store's real path. It holds a hash of that path and of all
//! sensitive settings. A store that was moved or copied, or whose settings changed, is therefore
//! not trusted.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use snap_core::{
    base::{id::BlobId, io::PathError},
    disk::{CreateMode, Disk, lock_wait::lock_folder},
    repo::{
        config::{
            ConfigFile,
            error::SettingOrigin,
            key::{KeyPath, Value},
            layer::Layer,
        },
        open::STORE_FOLDER,
        ownership::{self, Distrust},
    },
};

use crate::{env::Env, report::CliError};

/// Sections of a store's file that run commands, read files, or name places to which files and
/// credentials are sent.
const SENSITIVE: [&str; 3] = ["hooks", "profile", "remote"];

/// Suffix of a path in `SNAP_TRUST` that matches all stores below a folder.
const ALL_BELOW: &str = "/*";

/// Maximum length of a record, in bytes.
const RECORD_BYTES: u64 = 16 << 10;

/// The paths and users that the user trusts, and the records of trusted stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// Trusted stores or projects, as absolute paths.
    paths: Vec<PathBuf>,
    /// The folder of the records; `None` without a home folder.
    records: Option<PathBuf>,
    /// The uids of users whose stores are trusted.
    users: Vec<u32>,
}

/// The record of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TrustRecord {
    /// Path of the store, for people who read the file.
    path: String,
    /// Owner of the store when the user trusted the store itself.
    owner: Option<u32>,
    /// Hash of the sensitive settings that the user reviewed.
    settings: Option<String>,
}

/// A sensitive setting, its value and its origin.
pub(crate) type Sensitive<'l> = (&'l KeyPath, &'l Value, &'l SettingOrigin);

/// Iterates over the sensitive settings of a store's file.
pub(crate) fn sensitive(layer: &Layer) -> impl Iterator<Item = Sensitive<'_>> {
    let all = layer.values().map(|(path, (value, origin))| (path, value, origin));
    all.filter(|(path, ..)| is_sensitive(path))
}

/// Returns true if a setting in a store's file is used only if it is trusted.
pub(crate) fn is_sensitive(path: &KeyPath) -> bool {
    path.parts().first().is_some_and(|section| SENSITIVE.contains(&section.as_str()))
}

impl Trust {
    /// Reads the environment; `paths` are the trusted paths of the settings.
    pub(super) fn read(env: &Env, paths: &[String]) -> Result<Self, CliError> {
        let home = env.home.as_deref();
        let expand = |text: &String| match (text.strip_prefix("~/"), home) {
            (Some(below), Some(home)) => home.join(below),
            _ => PathBuf::from(text),
        };
        let of_settings = paths.iter().map(|text| ("`trust`", expand(text)));
        let of_variable = env.trust.iter().map(|path| ("SNAP_TRUST", path.clone()));
        let mut absolute = Vec::new();
        for (origin, path) in of_settings.chain(of_variable) {
            if !path.is_absolute() {
                return Err(CliError::RelativeTrust { origin, path });
            }
            absolute.push(path);
        }
        let own = rustix::process::geteuid();
        let mut users = vec![own.as_raw(), 0];
        // For `sudo snap commit` in the user's own project.
        users.extend(env.sudo_uid.filter(|_| own.is_root()));
        let records = env.state_home.as_ref().map(|state| state.join("snap/trust"));
        Ok(Self { paths: absolute, records, users })
    }

    /// Returns the reason if another user may have put the store in `dir` there.
    pub(crate) fn distrust(&self, dir: &Path) -> Option<Distrust> {
        // Named paths and records only matter if the ownership check fails.
        let why = ownership::check(dir, &self.users).err()?;
        let is_trusted = self.is_named(dir)
            || self.record(dir).is_some_and(|record| {
                let owner = fs_err::metadata(dir).map(|meta| meta.uid()).ok();
                record.owner.is_some() && record.owner == owner
            });
        (!is_trusted).then_some(why)
    }

    /// Returns true if the sensitive settings of a store's file are used.
    pub(super) fn counts(&self, file: &ConfigFile) -> bool {
        let Some(dir) = file.path.parent() else { return false };
        if sensitive(&file.layer).next().is_none() || self.is_named(dir) {
            return true;
        }
        let seen = self.record(dir).and_then(|record| record.settings);
        seen.is_some() && seen == digest(dir, &file.layer)
    }

    /// Returns true if `SNAP_TRUST` or the setting `trust` names the store.
    pub(crate) fn is_named(&self, dir: &Path) -> bool {
        let Ok(real) = fs_err::canonicalize(dir) else { return false };
        self.paths.iter().any(|path| {
            let bytes = path.as_os_str().as_bytes();
            if let Some(above) = bytes.strip_suffix(ALL_BELOW.as_bytes()) {
                let above = Path::new(std::ffi::OsStr::from_bytes(above));
                let above = if above.as_os_str().is_empty() { Path::new("/") } else { above };
                return fs_err::canonicalize(above).is_ok_and(|above| real.starts_with(above));
            }
            let is_it = |path: &Path| fs_err::canonicalize(path).is_ok_and(|named| named == real);
            is_it(path) || is_it(&path.join(STORE_FOLDER))
        })
    }

    /// Records the sensitive settings of the store in `dir` as reviewed.
    pub(crate) fn remember_settings(&self, dir: &Path, layer: &Layer) -> Result<(), CliError> {
        let none = sensitive(layer).next().is_none();
        if none && self.file(dir).is_some_and(|path| !path.exists()) {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut record = self.record(dir).unwrap_or_default();
        record.settings = if none { None } else { digest(dir, layer) };
        self.write(dir, record)
    }

    /// Records the store in `dir` as trusted for as long as its owner stays the same. Returns the
    /// owner.
    pub(crate) fn remember_owner(&self, dir: &Path) -> Result<u32, CliError> {
        let meta = fs_err::metadata(dir).map_err(PathError::when("look at", dir))?;
        let _lock = self.lock()?;
        let record =
            TrustRecord { owner: Some(meta.uid()), ..self.record(dir).unwrap_or_default() };
        self.write(dir, record)?;
        Ok(meta.uid())
    }

    /// Removes the record of the store in `dir`. Returns true if there was one.
    pub(crate) fn forget(&self, dir: &Path) -> Result<bool, CliError> {
        let Some(path) = self.file(dir) else { return Err(CliError::NoStateFolder) };
        let was_there = path.exists();
        Disk::default().remove(&path)?;
        Ok(was_there)
    }

    /// Returns true if trust can be recorded.
    pub(crate) fn can_remember(&self) -> bool {
        self.records.is_some()
    }

    /// Locks the records against other processes, until the returned file is dropped. Returns
    /// `None` if the file system does not support locks.
    fn lock(&self) -> Result<Option<File>, CliError> {
        let Some(folder) = &self.records else { return Err(CliError::NoStateFolder) };
        let disk = Disk::default().with_access(CreateMode::PRIVATE);
        disk.create_folders(folder)?;
        disk.apply_access(folder)?;
        Ok(lock_folder(folder)?)
    }

    /// Returns the path of the record of the store in `dir`.
    fn file(&self, dir: &Path) -> Option<PathBuf> {
        let real = fs_err::canonicalize(dir).ok()?;
        let name = BlobId::of(real.as_os_str().as_bytes()).to_string();
        Some(self.records.as_ref()?.join(name))
    }

    /// Reads the record of the store in `dir`. Ignores a record that another user owns: `sudo` may
    /// keep the home folder of the calling user.
    fn record(&self, dir: &Path) -> Option<TrustRecord> {
        let file = fs_err::File::open(self.file(dir)?).ok()?;
        if file.metadata().ok()?.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let mut text = String::new();
        file.take(RECORD_BYTES).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn write(&self, dir: &Path, record: TrustRecord) -> Result<(), CliError> {
        let (Some(path), Some(folder)) = (self.file(dir), &self.records) else {
            return Err(CliError::NoStateFolder);
        };
        let disk = Disk::default().with_access(CreateMode::PRIVATE);
        if record.owner.is_none() && record.settings.is_none() {
            return Ok(disk.remove(&path)?);
        }
        let real = fs_err::canonicalize(dir).map_err(PathError::when("look at", dir))?;
        let record = TrustRecord { path: real.to_string_lossy().into_owned(), ..record };
        let text = serde_json::to_string(&record).map_err(io::Error::other);
        let text = text.map_err(PathError::when("write", &path))?;
        Ok(disk.write_whole(folder, &path, text.as_bytes())?)
    }
}

/// Returns the hash of the store's real path and of all its sensitive settings. The length of each
/// part comes before it, so different settings never have the same bytes.
fn digest(dir: &Path, layer: &Layer) -> Option<String> {
    let real = fs_err::canonicalize(dir).ok()?;
    let mut bytes = b"snap trust v1".to_vec();
    let mut add = |part: &[u8]| {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part);
    };
    add(real.as_os_str().as_bytes());
    for (path, value, _) in sensitive(layer) {
        add(path.to_string().as_bytes());
        add(value.to_string().as_bytes());
    }
    Some(BlobId::of(&bytes).to_string())
}
