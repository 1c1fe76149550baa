//! Upgrades the format version of a store before a ref of the new form is written.
//!
//! A program that knows only version 1 would report a ref of three lines as damaged. So snap
//! changes the settings to version 2 before it writes the first such ref; the old program then
//! reports that it is too old. The upgrade happens under the store's lock. Every write of a ref
//! reads the settings again, so a program that opened the store earlier notices an upgrade by
//! another process.

use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

use crate::{
    base::{
        id::CommitId,
        io::{PathError, if_exists},
        limits,
    },
    disk::regular::read_at_most,
    format::ref_text::RefText,
    repo::{
        config::{self, ConfigError, edit::Edit, file, layer::ConfigOwner},
        open::config_draft,
        refs::{RefError, Refs},
    },
};

/// The result of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::repo) enum Upgrade {
    /// The store has the version, or a newer one.
    Done,
    /// Another user owns the settings, so they stay.
    OfAnotherUser,
}

impl Refs {
    /// Returns the text of the file for a ref at `new`. First upgrades the store to the version
    /// whose refs have that form. The caller must hold the lock.
    ///
    /// Does not replace settings that another user owns: the new file would belong to this user,
    /// and the owner would no longer trust it. The ref then gets the form of version 1.
    pub(super) fn new_text(&self, new: Option<CommitId>) -> Result<RefText, RefError> {
        Ok(match self.upgrade(config::REFS_VERSION)? {
            Upgrade::Done => RefText::new(new),
            Upgrade::OfAnotherUser => RefText::without_nonce(new),
        })
    }

    /// Upgrades the store to a format version, unless it has a newer one. The caller must hold the
    /// lock.
    pub(in crate::repo) fn upgrade(&self, version: u32) -> Result<Upgrade, RefError> {
        let path = self.store.join(config::FILE);
        let bytes = if_exists(read_at_most(&path, limits::CONFIG_BYTES));
        let bytes = bytes.map_err(PathError::when("read", &path))?;
        // A scratch folder has refs but no settings.
        let Some(bytes) = bytes else { return Ok(Upgrade::Done) };
        let damaged = || RefError::Damaged { path: path.clone(), noun: "store's settings" };
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        let edit = Edit { text: &text, path: &path, owner: ConfigOwner::Store };
        let upgraded = edit.upgrade(version).map_err(|error| match error {
            ConfigError::Newer { .. } => RefError::Newer { path: path.clone() },
            _ => damaged(),
        })?;
        let Some(upgraded) = upgraded else { return Ok(Upgrade::Done) };
        let meta = fs_err::metadata(&path).map_err(PathError::when("stat", &path))?;
        let user = geteuid();
        if !user.is_root() && meta.uid() != user.as_raw() {
            return Ok(Upgrade::OfAnotherUser);
        }
        file::write(&self.disk, &config_draft(&self.store), &path, &upgraded)?;
        Ok(Upgrade::Done)
    }
}
