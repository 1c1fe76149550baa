//! The file `rewrites` of a store: commits that `rewrite` replaced, and objects that it purged.
//!
//! It is read when a command needs it, and not with the store: most stores have none. A damaged table
//! is an error, because a command that ignored it could store a purged object again.

use std::io;

use crate::{
    base::{io::PathError, limits},
    disk::regular::read_at_most,
    format::{rewrites::RewriteTable, wire::FormatError},
    store::{Store, StoreError},
};

/// Name of the table in a store.
const TABLE: &str = "rewrites";

impl Store {
    /// Reads the table of rewrites.
    ///
    /// # Errors
    /// [`StoreError::Table`] if it is damaged or newer than this version.
    pub fn rewrites(&self) -> Result<RewriteTable, StoreError> {
        let path = self.layout().dir.join(TABLE);
        match read_at_most(&path, limits::REWRITES_BYTES) {
            Ok(bytes) => {
                RewriteTable::decode(&bytes).map_err(|source| StoreError::Table { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(RewriteTable::default()),
            Err(error) => Err(PathError::when("read", &path)(error).into()),
        }
    }

    /// Replaces the table of rewrites, durably. The caller holds the lock on the refs.
    ///
    /// # Errors
    /// [`StoreError`] when the table cannot be read or written.
    pub fn change_rewrites(
        &self,
        change: impl FnOnce(&mut RewriteTable),
    ) -> Result<(), StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let before = self.rewrites()?;
        let mut table = before.clone();
        change(&mut table);
        let path = layout.dir.join(TABLE);
        if table == before {
            return Ok(());
        }
        if table.is_empty() {
            disk.remove(&path)?;
            return Ok(disk.sync_folder(&layout.dir)?);
        }
        let bytes = table.encode();
        FormatError::check_limit("table of rewrites", bytes.len() as u64, limits::REWRITES_BYTES)
            .map_err(|source| StoreError::Table { path: path.clone(), source })?;
        disk.create_folders(&layout.tmp)?;
        Ok(disk.write_whole(&layout.tmp, &path, &bytes)?)
    }
}
