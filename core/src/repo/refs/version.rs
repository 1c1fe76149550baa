//! The version of a store as those see it who write a ref.
//!
//! A program that knows version 1 alone takes a ref of three lines for a damaged
//! one. So the settings say version 2 before the first of them is written: such a
//! program then says that it is too old. This happens under the store's lock, and
//! the settings are read again with each write of a ref, so a program that has had
//! the store open since before somebody upgraded it notices.

use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

use crate::{
    base::{id::CommitId, io::PathError, limits},
    disk::regular::read_at_most,
    format::ref_text::RefText,
    repo::{
        config::{self, ConfigError, edit::Edit, file, layer::Whose},
        refs::{RefError, Refs, temporary},
    },
};

impl Refs {
    /// The text of a ref that is to be written; makes the store one of the version
    /// in which refs have that text. The caller has the lock.
    ///
    /// Settings of somebody else stay as they are, since whoever replaces them
    /// would own them then, and the owner's trust in them would end. The text is
    /// that of version 1 then.
    pub(super) fn new_text(&self, new: Option<CommitId>) -> Result<RefText, RefError> {
        let path = self.store.join(config::FILE);
        let bytes = match read_at_most(&path, limits::CONFIG_BYTES) {
            // A folder of refs alone, as a scratch folder has it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(RefText::new(new));
            }
            read => read.map_err(PathError::when("read", &path))?,
        };
        let damaged = || RefError::Damaged { path: path.clone(), noun: "store's settings" };
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        let edit = Edit { text: &text, path: &path, whose: Whose::Store };
        let upgraded = edit.upgrade().map_err(|error| match error {
            ConfigError::Newer { .. } => RefError::Newer { path: path.clone() },
            _ => damaged(),
        })?;
        let Some(upgraded) = upgraded else { return Ok(RefText::new(new)) };
        let meta = fs_err::metadata(&path).map_err(PathError::when("stat", &path))?;
        let user = geteuid();
        if !user.is_root() && meta.uid() != user.as_raw() {
            return Ok(RefText::without_nonce(new));
        }
        file::write(&self.disk, &temporary(&self.store, "config"), &path, &upgraded)?;
        Ok(RefText::new(new))
    }
}
