//! Shadows: objects that are there but must not be relied on.
//!
//! An object is *dead* (no kept commit refers to it, and it may be deleted) or
//! *damaged* (its bytes are wrong or cannot be read). Writers treat it as new
//! and store it again; readers prefer any other place of it and still try.
//! A pack with a shadowed object is neither sent nor merged whole.
//!
//! The table is a file of the store, `shadow`, in the format of
//! [`format::shadow`](crate::format::shadow). It is replaced under
//! `shadow.lock`. It cannot be derived from the packs, so while it cannot be
//! read all packs are shadowed, until [`verify`](crate::ops::verify) has looked
//! at each of them.

use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        limits,
    },
    disk::{regular::read_at_most, scratch::unique_name},
    format::{
        pack::checksum,
        shadow::{Extent, Reason, ShadowTable},
        wire::FormatError,
    },
    store::{
        Store, StoreError,
        catalog::{Catalog, Layout},
        objects::lock,
    },
};

/// Name of the table in a store.
pub(super) const TABLE: &str = "shadow";

/// The file that is locked to replace the table.
const LOCK: &str = "shadow.lock";

/// What is shadowed, as far as that is known.
#[derive(Debug, Default)]
pub(super) struct Shadows {
    table: ShadowTable,
    /// The table is damaged: every pack is shadowed.
    is_unknown: bool,
    /// XXH3-64 of the table file; 0 if there is no file.
    checksum: u64,
    /// True if the table file lacks a change that this process made in memory.
    is_unsaved: bool,
}

/// What was shadowed at one moment, to be compared with a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowVersion {
    pub(super) checksum: u64,
    pub(super) is_unsaved: bool,
}

impl Shadows {
    /// Loads the shadow table, without the damage of packs that this process wrote
    /// anew since.
    ///
    /// # Errors
    /// As [`Shadows::read`].
    pub(super) fn load(layout: &Layout, before: &Catalog) -> Result<Arc<Self>, StoreError> {
        let shadows = Self::read(&layout.shadow)?;
        Ok(before.healed.iter().fold(shadows, |rest, pack| rest.without_damage(pack)).into())
    }

    /// Reads the table at `path`.
    ///
    /// # Errors
    /// [`StoreError::Shadow`] when a newer snap wrote it, [`StoreError::Io`].
    fn read(path: &Path) -> Result<Self, StoreError> {
        let bytes = match read_at_most(path, limits::SHADOW_BYTES) {
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => return Ok(Self::default()),
                // Snap writes no such table, so it is damaged.
                io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => {
                    return Ok(Self { is_unknown: true, checksum: 1, ..Self::default() });
                }
                _ => return Err(PathError::when("read", path)(error).into()),
            },
        };
        let checksum = checksum(&bytes);
        match ShadowTable::decode(&bytes) {
            Ok(table) => Ok(Self { table, is_unknown: false, checksum, is_unsaved: false }),
            Err(source @ FormatError::Newer { .. }) => {
                Err(StoreError::Shadow { path: path.to_owned(), source })
            }
            Err(_) => Ok(Self { is_unknown: true, checksum, ..Self::default() }),
        }
    }

    /// Whether nothing is shadowed.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_unknown && self.table.is_empty()
    }

    /// Whether an object of a pack is shadowed.
    pub(super) fn covers(&self, pack: &PackId, id: &ObjectId) -> bool {
        self.is_unknown || self.table.covers(pack, id)
    }

    /// Whether any object of a pack is shadowed.
    pub(super) fn touches(&self, pack: &PackId) -> bool {
        self.is_unknown || self.table.touches(pack)
    }

    /// The present version.
    pub(super) fn version(&self) -> ShadowVersion {
        ShadowVersion { checksum: self.checksum, is_unsaved: self.is_unsaved }
    }

    /// Whether any object of a pack is damaged.
    pub(super) fn is_damaged(&self, pack: &PackId) -> bool {
        self.is_unknown || self.table.has(pack, Reason::Damaged)
    }

    /// The same without the damage of a pack that was written anew.
    fn without_damage(&self, pack: &PackId) -> Self {
        let mut table = self.table.clone();
        table.withdraw(pack, Reason::Damaged);
        Self { table, ..*self }
    }
}

/// The pack and the objects of it that an error says are damaged.
pub fn damage(error: &StoreError) -> Option<(PackId, Extent)> {
    let pack = error.damaged_pack().filter(|_| error.kind() == ErrorKind::Damaged)?;
    let extent = match error {
        StoreError::Damaged { wanted, .. } => Extent::Objects(BTreeSet::from([*wanted])),
        _ => Extent::Whole,
    };
    Some((pack, extent))
}

impl Store {
    /// Returns which version of the shadow table this open store knows.
    pub fn shadow_version(&self) -> ShadowVersion {
        self.catalog().shadows.version()
    }

    /// Whether any object of a pack is shadowed: then the pack is neither sent
    /// nor merged whole.
    pub fn is_shadowed(&self, pack: &PackId) -> bool {
        self.catalog().shadows.touches(pack)
    }

    /// Returns whether an object of a pack is shadowed by itself, and not because the
    /// whole pack is.
    pub fn is_shadowed_alone(&self, pack: &PackId, id: &ObjectId) -> bool {
        self.catalog().shadows.table.entries().any(|(other, _, extent)| {
            other == pack && matches!(extent, Extent::Objects(ids) if ids.contains(id))
        })
    }

    /// Whether anything is shadowed.
    pub fn has_shadows(&self) -> bool {
        !self.catalog().shadows.is_empty()
    }

    /// Whether any object of a pack is known to be damaged.
    pub fn is_damaged(&self, pack: &PackId) -> bool {
        self.catalog().shadows.is_damaged(pack)
    }

    /// Whether the shadow table could not be read, so that all packs are
    /// shadowed.
    pub fn is_shadow_table_lost(&self) -> bool {
        self.catalog().shadows.is_unknown
    }

    /// Changes the shadow table: durably, and for this open store. When the
    /// table cannot be written, it is changed for this open store all the same.
    /// Returns whether anything changed.
    ///
    /// # Errors
    /// [`StoreError`] when the table cannot be written.
    pub fn change_shadows(&self, change: &dyn Fn(&mut ShadowTable)) -> Result<bool, StoreError> {
        let written = self.write_shadows(change);
        let path = self.layout().shadow.clone();
        self.change_catalog(|before| {
            let mut catalog = before.copy();
            let shadows = match &written {
                Ok(_) => Shadows::read(&path).ok(),
                Err(_) => None,
            };
            let mut shadows = shadows.unwrap_or_else(|| Shadows::from_known(before));
            change(&mut shadows.table);
            catalog.shadows = shadows.into();
            (catalog, ())
        });
        written
    }

    fn write_shadows(&self, change: &dyn Fn(&mut ShadowTable)) -> Result<bool, StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let lock = layout.dir.join(LOCK);
        let locked = disk.lock_file(&lock)?;
        locked.lock().map_err(PathError::when("lock", &lock))?;
        let before = Shadows::read(&layout.shadow)?;
        let mut table = before.known_table(&self.catalog());
        change(&mut table);
        if !before.is_unknown && table == before.table {
            return Ok(false);
        }
        if table.is_empty() {
            disk.remove(&layout.shadow)?;
            disk.sync_folder(&layout.dir)?;
            return Ok(true);
        }
        let bytes = table.encode();
        let path = &layout.shadow;
        let bytes = bytes.map_err(|source| StoreError::Shadow { path: path.clone(), source })?;
        disk.create_folders(&layout.tmp)?;
        disk.write_whole(&layout.tmp.join(unique_name(TABLE)), path, &bytes)?;
        Ok(true)
    }

    /// Shadows what an error says is damaged, for this open store only: readers
    /// write nothing.
    pub(super) fn shadow_in_memory(&self, error: &StoreError) {
        if let Some((pack, extent)) = damage(error) {
            self.add_in_memory(pack, extent);
        }
    }

    /// Shadows objects as damaged, for this open store only.
    pub(super) fn add_in_memory(&self, pack: PackId, extent: Extent) {
        if self.is_shadow_table_lost() {
            return;
        }
        self.change_catalog(|before| {
            let mut catalog = before.copy();
            let mut shadows = Shadows::from_known(before);
            shadows.table.add(pack, Reason::Damaged, extent);
            catalog.shadows = shadows.into();
            (catalog, ())
        });
    }

    /// Shadows what an error says is damaged: the object, or the whole pack when
    /// the error names no object. Does nothing for other errors.
    ///
    /// # Errors
    /// As [`Store::change_shadows`].
    pub fn shadow_damage(&self, error: &StoreError) -> Result<bool, StoreError> {
        let Some((pack, extent)) = damage(error) else { return Ok(false) };
        self.change_shadows(&|table| table.add(pack, Reason::Damaged, extent.clone()))
    }

    /// Relies again on packs that were damaged and were written anew since.
    /// Their names must be durable.
    pub(super) fn withdraw_healed(&self) -> Result<(), StoreError> {
        let healed: BTreeSet<PackId> = self.catalog().healed.iter().copied().collect();
        if healed.is_empty() {
            return Ok(());
        }
        self.change_shadows(&|table| {
            for pack in &healed {
                table.withdraw(pack, Reason::Damaged);
            }
        })?;
        self.change_catalog(|before| {
            let mut catalog = before.copy();
            catalog.healed.retain(|pack| !healed.contains(pack));
            (catalog, ())
        });
        // Records that were made of the damaged file may be wrong.
        self.reindex()
    }
}

impl Shadows {
    /// The table; of one that is lost, an entry for each pack there is.
    fn known_table(&self, catalog: &Catalog) -> ShadowTable {
        let mut table = self.table.clone();
        if self.is_unknown {
            for pack in catalog.numbers.keys() {
                table.add(*pack, Reason::Damaged, Extent::Whole);
            }
        }
        table
    }

    /// Copies those of an open store, to be changed in memory only.
    fn from_known(catalog: &Catalog) -> Self {
        let shadows = &catalog.shadows;
        Self {
            table: shadows.known_table(catalog),
            is_unknown: false,
            checksum: shadows.checksum,
            is_unsaved: true,
        }
    }
}

impl Catalog {
    /// Takes note that a pack has just been written whole, from bytes that hash
    /// to its name.
    pub(super) fn heal(&mut self, id: &PackId) {
        if !self.shadows.is_damaged(id) {
            return;
        }
        self.shadows = Arc::new(self.shadows.without_damage(id));
        self.healed.push(*id);
        if let Some(slot) = self.slot(id) {
            // What is open is the damaged file.
            *lock(&slot.open) = None;
        }
    }
}
