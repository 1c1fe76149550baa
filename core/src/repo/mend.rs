//! Rewrites lost files of a store: its settings, `HEAD`, the epoch, and the list of paths of a partial
//! clone.
//!
//! Objects and refs do not record the settings, so a lost settings file gets the values of a new
//! store. `HEAD` comes from the last line of its log. Without a log it names the first branch of a
//! new store, or if that is missing any other branch. The list of paths comes from its copy in
//! `logs/`.

use std::{io, path::Path};

use crate::{
    base::{io::PathError, kind::ErrorKind, limits},
    disk::{Disk, regular::read_at_most},
    repo::{
        Repo, RepoError,
        config::{self, Config},
        make::{self, Sharing},
        open::{FIRST_BRANCH, STORE_FOLDER, read_config, write_config},
        ref_log::RefValue,
        ref_name::{Pointer, RefKind, RefName},
        refs::{Head, RefError, Refs},
        scope,
    },
    store::Epoch,
};

/// Name of the copy of damaged settings that [`Repo::mend_settings`] replaced.
pub const DAMAGED: &str = "config.toml.damaged";

/// A file that [`Repo::mend`] rewrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mended {
    /// The settings, with the values of a new store.
    Settings,
    /// `HEAD`.
    Head(Head),
    /// The list of paths of a partial clone, or its copy.
    Scope,
    /// The epoch of garbage collection.
    Epoch,
}

impl Repo {
    /// Returns true if the folder is a store with refs, logs or an index whose settings file is
    /// missing or empty.
    pub fn has_lost_settings(dir: &Path) -> bool {
        let has = |name: &str| dir.join(name).exists();
        let is_lost = || match read_at_most(&dir.join(config::FILE), limits::CONFIG_BYTES) {
            Ok(bytes) => has_no_settings(&bytes),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let is_store = dir.ends_with(STORE_FOLDER) || has(make::LOCK);
        is_store
            && has("objects")
            && ["refs", "logs", "index"].into_iter().any(has)
            && is_lost()
            && !Self::is_unfinished(dir)
    }

    /// Rewrites lost settings, `HEAD`, epoch and scope of a store. `config` is the configuration of a new
    /// store. Returns the rewritten files.
    ///
    /// # Errors
    /// [`RepoError`] if a file cannot be read or written.
    pub fn mend(dir: &Path, disk: &Disk, config: &Config) -> Result<Vec<Mended>, RepoError> {
        let mut mended = Vec::new();
        let refs = Refs::new(dir, disk.in_store(dir));
        if !Self::has_lost_settings(dir)
            && refs.head().is_ok()
            && scope::only_whole(dir).is_none()
            && !Epoch::is_lost(dir)?
        {
            return Ok(mended);
        }
        // Another process may rewrite these files, or move `HEAD`, at the same time.
        let _lock = refs.lock()?;
        if scope::mend(dir, &disk.in_store(dir))? {
            mended.push(Mended::Scope);
        }
        if Self::has_lost_settings(dir) {
            write_settings(dir, disk, config)?;
            mended.push(Mended::Settings);
        }
        if dir.join(config::FILE).exists() {
            mended.extend(write_lost_head(&refs)?.map(Mended::Head));
            if Epoch::mend(dir, &disk.in_store(dir))? {
                mended.push(Mended::Epoch);
            }
        }
        Ok(mended)
    }

    /// Rewrites `HEAD` if it is lost or damaged.
    ///
    /// # Errors
    /// [`RepoError`] if a file cannot be read or written.
    pub fn mend_head(&self) -> Result<(), RepoError> {
        if self.refs().head().is_ok() {
            return Ok(());
        }
        let _lock = self.refs().lock()?;
        write_lost_head(self.refs())?;
        Ok(())
    }

    /// Rewrites the settings of a store from `config` if they are lost or damaged. Keeps a damaged
    /// file that contains text as [`DAMAGED`]. Returns true if the function has rewritten the
    /// settings.
    ///
    /// # Errors
    /// [`RepoError`] if a file cannot be read or written.
    pub fn mend_settings(dir: &Path, disk: &Disk, config: &Config) -> Result<bool, RepoError> {
        let is_damaged = || read_config(dir).is_err_and(|error| error.is_of_settings());
        if !is_damaged() {
            return Ok(false);
        }
        // Another process may rewrite the settings at the same time.
        let _lock = Refs::new(dir, disk.in_store(dir)).lock()?;
        if !is_damaged() {
            return Ok(false);
        }
        match read_at_most(&dir.join(config::FILE), limits::CONFIG_BYTES) {
            // A person may have written this text.
            Ok(bytes) if !has_no_settings(&bytes) => {
                disk.in_store(dir).write_whole(&dir.join("tmp"), &dir.join(DAMAGED), &bytes)?;
            }
            _ => {}
        }
        write_settings(dir, disk, config)?;
        Ok(true)
    }
}

fn write_settings(dir: &Path, disk: &Disk, config: &Config) -> Result<(), RepoError> {
    Ok(write_config(dir, disk, &make::settings_text(sharing_of(dir)?, dir, config)?)?)
}

/// Returns true if a settings file has no setting. A power cut may leave a file that is empty or
/// full of zeros.
pub(super) fn has_no_settings(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').all(|line| {
        let mut text = line.iter().filter(|byte| !byte.is_ascii_whitespace() && **byte != 0);
        text.next().is_none_or(|first| *first == b'#')
    })
}

/// Returns who may use a store, according to the mode of its `objects` folder.
fn sharing_of(dir: &Path) -> Result<Sharing, RepoError> {
    use std::os::unix::fs::PermissionsExt;
    let objects = dir.join("objects");
    let meta = fs_err::metadata(&objects).map_err(PathError::when("stat", &objects))?;
    match meta.permissions().mode() & 0o020 {
        0 => Ok(Sharing::Private),
        _ => Ok(Sharing::Group),
    }
}

/// Rewrites `HEAD` if it is lost or damaged. The caller must hold the lock on the refs. Ignores
/// errors of other kinds, which the caller gets when it opens the store.
fn write_lost_head(refs: &Refs) -> Result<Option<Head>, RefError> {
    match refs.head() {
        Err(error) if error.kind() == ErrorKind::Damaged => {
            let head = last_head(refs)?;
            refs.write_head(&head)?;
            Ok(Some(head))
        }
        _ => Ok(None),
    }
}

/// Returns the last known value of `HEAD`.
fn last_head(refs: &Refs) -> Result<Head, RefError> {
    match refs.log_of(&Pointer::Head)?.pop().map(|line| line.new) {
        Some(RefValue::Branch(name)) => return Ok(Head::Branch(name)),
        Some(RefValue::Commit(id)) => return Ok(Head::Detached(id)),
        Some(RefValue::Nothing) | None => {}
    }
    let first = RefName::branch(FIRST_BRANCH).map_err(RefError::Name)?;
    let names = refs.names(RefKind::Branch)?;
    let is_first_there = names.contains(&first);
    let other = names.into_iter().next().filter(|_| !is_first_there);
    Ok(Head::Branch(other.unwrap_or(first)))
}
