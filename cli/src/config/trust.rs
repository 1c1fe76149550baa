//! Which stores, and which settings in their files, the user trusts.
//!
//! A store can come from another user: in a folder that both may write, or in
//! an archive that the user unpacked. Two questions are answered here:
//!
//! - May a command write to a store that it found by itself? Not if another
//!   user can have put it there: [`snap_core::repo::ownership`].
//! - Do hooks, profiles and remotes in a store's file count? Only if the user
//!   has seen them. Who owns the file proves nothing.
//!
//! Both are answered with yes for the paths in `SNAP_TRUST` and in the setting
//! `trust` of the user and the system. Else a record in the state folder of the
//! user decides, one file for each store, named by the hash of the store's real
//! path. It holds a hash of that path and of all sensitive settings, so a store
//! that was moved or copied, or whose settings changed, is not trusted.

use std::{
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use snap_core::{
    base::{id::BlobId, io::PathError},
    disk::{Access, Disk, scratch::unique_name},
    repo::{
        config::{
            ConfigFile,
            error::Origin,
            key::{KeyPath, Value},
            layer::Layer,
        },
        open::STORE_FOLDER,
        ownership::{self, Distrust},
    },
};

use crate::{env::Env, report::CliError};

/// Sections of a store's file that run commands, read files, or name places to
/// which files and keys are sent.
const SENSITIVE: [&str; 3] = ["hooks", "profile", "remote"];

/// End of a path in `SNAP_TRUST` that stands for all stores below a folder.
const ALL_BELOW: &str = "/*";

/// Longest record that is read, in bytes.
const RECORD_BYTES: u64 = 16 << 10;

/// What the user trusts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// Paths of stores or projects, absolute.
    paths: Vec<PathBuf>,
    /// Folder of the records; `None` without a home folder.
    records: Option<PathBuf>,
    /// Users whose stores are trusted.
    users: Vec<u32>,
}

/// The record of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// Path of the store, for readers of the file.
    path: String,
    /// Owner of the store when the user trusted the store itself.
    owner: Option<u32>,
    /// Hash of the sensitive settings that the user has seen.
    settings: Option<String>,
}

/// A sensitive setting, its value, and where it is set.
pub(crate) type Sensitive<'l> = (&'l KeyPath, &'l Value, &'l Origin);

/// Settings of a store's file that count only when they are trusted.
pub(crate) fn sensitive(layer: &Layer) -> impl Iterator<Item = Sensitive<'_>> {
    let all = layer.values().map(|(path, (value, origin))| (path, value, origin));
    all.filter(|(path, ..)| is_sensitive(path))
}

/// Whether a setting counts in a store's file only when it is trusted.
pub(crate) fn is_sensitive(path: &KeyPath) -> bool {
    path.parts().first().is_some_and(|section| SENSITIVE.contains(&section.as_str()))
}

impl Trust {
    /// Reads what the environment says; `paths` are those of the settings.
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
        // `sudo snap commit` in one's own project.
        users.extend(env.sudo_uid.filter(|_| own.is_root()));
        let records = env.state_home.as_ref().map(|state| state.join("snap/trust"));
        Ok(Self { paths: absolute, records, users })
    }

    /// Why the store in `dir` may have been planted by another user.
    pub(crate) fn distrust(&self, dir: &Path) -> Option<Distrust> {
        let why = ownership::check(dir, &self.users).err()?;
        let is_trusted = self.is_named(dir)
            || self.record(dir).is_some_and(|record| {
                let owner = fs_err::metadata(dir).map(|meta| meta.uid()).ok();
                record.owner.is_some() && record.owner == owner
            });
        (!is_trusted).then_some(why)
    }

    /// Whether the sensitive settings of a store's file count.
    pub(super) fn counts(&self, file: &ConfigFile) -> bool {
        let Some(dir) = file.path.parent() else { return false };
        if sensitive(&file.layer).next().is_none() || self.is_named(dir) {
            return true;
        }
        let seen = self.record(dir).and_then(|record| record.settings);
        seen.is_some() && seen == digest(dir, &file.layer)
    }

    /// Whether `SNAP_TRUST` or the setting `trust` names the store.
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

    /// Remembers the sensitive settings of the store in `dir` as seen.
    pub(crate) fn remember_settings(&self, dir: &Path, layer: &Layer) -> Result<(), CliError> {
        let mut record = self.record(dir).unwrap_or_default();
        let none = sensitive(layer).next().is_none();
        record.settings = if none { None } else { digest(dir, layer) };
        self.write(dir, record)
    }

    /// Remembers the store in `dir` as trusted while its owner stays the
    /// same. Returns the owner.
    pub(crate) fn remember_owner(&self, dir: &Path) -> Result<u32, CliError> {
        let meta = fs_err::metadata(dir).map_err(PathError::when("look at", dir))?;
        let record = Record { owner: Some(meta.uid()), ..self.record(dir).unwrap_or_default() };
        self.write(dir, record)?;
        Ok(meta.uid())
    }

    /// Forgets what was remembered of the store in `dir`. Returns whether
    /// anything was.
    pub(crate) fn forget(&self, dir: &Path) -> Result<bool, CliError> {
        let Some(path) = self.file(dir) else { return Err(CliError::NoStateFolder) };
        let was_there = path.exists();
        Disk::default().remove(&path)?;
        Ok(was_there)
    }

    /// Whether anything can be remembered.
    pub(crate) fn can_remember(&self) -> bool {
        self.records.is_some()
    }

    /// File of the record of the store in `dir`.
    fn file(&self, dir: &Path) -> Option<PathBuf> {
        let real = fs_err::canonicalize(dir).ok()?;
        let name = BlobId::of(real.as_os_str().as_bytes()).to_string();
        Some(self.records.as_ref()?.join(name))
    }

    /// The record of the store in `dir`. A record that another user owns counts as
    /// missing: `sudo` may keep the home folder of the user who called it.
    fn record(&self, dir: &Path) -> Option<Record> {
        let file = fs_err::File::open(self.file(dir)?).ok()?;
        if file.metadata().ok()?.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let mut text = String::new();
        file.take(RECORD_BYTES).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn write(&self, dir: &Path, record: Record) -> Result<(), CliError> {
        let (Some(path), Some(folder)) = (self.file(dir), &self.records) else {
            return Err(CliError::NoStateFolder);
        };
        let disk = Disk::default().with_access(Access::PRIVATE);
        if record.owner.is_none() && record.settings.is_none() {
            return Ok(disk.remove(&path)?);
        }
        disk.create_folders(folder)?;
        disk.apply_access(folder)?;
        let real = fs_err::canonicalize(dir).map_err(PathError::when("look at", dir))?;
        let record = Record { path: real.to_string_lossy().into_owned(), ..record };
        let text = serde_json::to_string(&record).map_err(io::Error::other);
        let text = text.map_err(PathError::when("write", &path))?;
        Ok(disk.write_whole(&folder.join(unique_name("record")), &path, text.as_bytes())?)
    }
}

/// Hash of the store's real path and of all its sensitive settings. Each part
/// is preceded by its length, so no two sets have the same bytes.
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
