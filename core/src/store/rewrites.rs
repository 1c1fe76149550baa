//! The file `rewrites` of a store: commits that `rewrite` replaced, and objects that it purged.
//!
//! It is read when a command needs it, and not with the store: most stores have none. A damaged table
//! is an error, because a command that ignored it could store a purged object again.

use crate::{
    base::{
        io::{PathError, if_exists},
        limits,
    },
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
        let bytes = if_exists(read_at_most(&path, limits::REWRITES_BYTES));
        let Some(bytes) = bytes.map_err(PathError::when("read", &path))? else {
            return Ok(RewriteTable::default());
        };
        RewriteTable::decode(&bytes).map_err(|source| StoreError::Table { path, source })
    }

    /// Replaces the table of rewrites, durably. The caller holds the lock on the refs.
    ///
    /// # Errors
    /// [`StoreError`] when the table cannot be read or written.
    pub fn change_rewrites(
        &self,
        change: impl FnOnce(&mut RewriteTable),
    ) -> Result<(), StoreError> {
        let before = self.rewrites()?;
        let mut table = before.clone();
        change(&mut table);
        if table == before {
            return Ok(());
        }
        self.write_table(&self.dir().join(TABLE), table.is_empty(), || {
            let (bytes, what) = (table.encode(), "table of rewrites");
            FormatError::check_limit(what, bytes.len() as u64, limits::REWRITES_BYTES)?;
            Ok(bytes)
        })
    }
}
