//! Shadows: marks of stored objects that must not be relied on.
//!
//! A shadowed object is *dead* (no kept commit refers to it, and garbage collection may delete it)
//! or *damaged* (its bytes are wrong or unreadable). Writers treat the object as new and store it
//! again. Readers try the shadowed copy after all other copies. A pack with a shadowed object is
//! neither sent nor merged as a whole.
//!
//! The table is the file `shadow` of a store, in the format of
//! [`format::shadow`](crate::format::shadow). A process replaces the file under the lock
//! `shadow.lock`. The table cannot be derived from the packs. If it is damaged, all packs count as
//! shadowed until [`verify`](crate::ops::verify) has checked each pack.

use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        limits,
    },
    disk::regular::read_at_most,
    format::{
        pack::{ObjectKind, checksum},
        shadow::{Reason, ShadowTable, ShadowedPart},
        wire::FormatError,
    },
    store::{
        Store, StoreError,
        catalog::{Catalog, StorePaths},
    },
};

/// Name of the table in a store.
pub(super) const TABLE: &str = "shadow";

/// The file that a process locks while it replaces the table.
const LOCK: &str = "shadow.lock";

/// The shadowed objects that this process knows.
#[derive(Debug, Default)]
pub struct Shadows {
    /// The table; empty if it is damaged.
    pub table: ShadowTable,
    /// True if the table is damaged. Then every pack counts as shadowed.
    pub is_unknown: bool,
    /// XXH3-64 of the damaged part of the table; 0 if nothing is damaged.
    damage: u64,
    /// True if the table file lacks a change that this process made in memory.
    is_unsaved: bool,
}

/// The version of the damage in the table at one moment, for comparison with a later version. Dead
/// objects do not count: a commit looks up each object on which it relies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowVersion {
    pub(super) damage: u64,
    pub(super) is_unsaved: bool,
}

impl Shadows {
    /// Loads the shadow table, without the damage of packs that this process has healed.
    ///
    /// # Errors
    /// As [`Shadows::read`].
    pub(super) fn load(layout: &StorePaths, before: &Catalog) -> Result<Arc<Self>, StoreError> {
        let shadows = Self::read(&layout.shadow)?;
        Ok(before.healed.iter().fold(shadows, |rest, pack| rest.without_damage(pack)).into())
    }

    /// Reads the table at `path`.
    ///
    /// # Errors
    /// [`StoreError::Table`] if another version of snap wrote the table, and [`StoreError::Io`].
    pub(super) fn read(path: &Path) -> Result<Self, StoreError> {
        let bytes = match read_at_most(path, limits::SHADOW_BYTES) {
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => return Ok(Self::default()),
                // snap never writes such a table, so the table is damaged.
                io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => {
                    return Ok(Self { is_unknown: true, damage: 1, ..Self::default() });
                }
                _ => return Err(PathError::when("read", path)(error).into()),
            },
        };
        match ShadowTable::decode(&bytes) {
            Ok(table) => {
                let damage = damage_checksum(&table);
                Ok(Self { table, damage, ..Self::default() })
            }
            Err(source) if source.is_of_version() => {
                Err(StoreError::Table { path: path.to_owned(), source })
            }
            Err(_) => Ok(Self { is_unknown: true, damage: checksum(&bytes), ..Self::default() }),
        }
    }

    /// Returns true if nothing is shadowed.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_unknown && self.table.is_empty()
    }

    /// Returns true if this object is shadowed in this pack.
    pub fn covers(&self, pack: &PackId, id: &ObjectId) -> bool {
        self.is_unknown || self.table.covers(pack, id)
    }

    /// Returns true if any object of a pack is shadowed.
    pub(super) fn touches(&self, pack: &PackId) -> bool {
        self.is_unknown || self.table.has_any(pack)
    }

    /// Returns the current version.
    pub fn version(&self) -> ShadowVersion {
        ShadowVersion { damage: self.damage, is_unsaved: self.is_unsaved }
    }

    /// Returns true if any object of a pack is damaged.
    pub(super) fn is_damaged(&self, pack: &PackId) -> bool {
        self.is_unknown || self.table.has(pack, Reason::Damaged)
    }

    /// Returns true if this object is shadowed as dead in this pack.
    pub(super) fn is_dead(&self, pack: &PackId, id: &ObjectId) -> bool {
        self.is_unknown || self.table.is_dead(pack, id)
    }

    /// Returns true if anything is shadowed as dead.
    pub fn has_any_dead(&self) -> bool {
        self.table.entries().any(|(_, reason, _)| reason == Reason::Dead)
    }

    /// Returns true if the table lists an object as dead by its id, also of a pack that is gone.
    pub fn lists_as_dead(&self, id: &ObjectId) -> bool {
        let lists =
            |part: &ShadowedPart| matches!(part, ShadowedPart::Objects(ids) if ids.contains(id));
        self.table.entries().any(|(_, reason, part)| reason == Reason::Dead && lists(part))
    }

    /// Returns true if any object of a pack is shadowed as dead.
    pub(super) fn has_dead(&self, pack: &PackId) -> bool {
        self.table.has(pack, Reason::Dead)
    }

    /// Returns the shadows without the damage of one pack.
    fn without_damage(&self, pack: &PackId) -> Self {
        let mut table = self.table.clone();
        table.remove(pack, Reason::Damaged);
        Self { table, ..*self }
    }
}

fn damage_checksum(table: &ShadowTable) -> u64 {
    let damage = table.of_reason(Reason::Damaged);
    let bytes = if damage.is_empty() { None } else { damage.encode().ok() };
    bytes.map_or(0, |bytes| checksum(&bytes))
}

/// Returns the pack that an error reports as damaged, and the damaged part of it.
pub fn damage(error: &StoreError) -> Option<(PackId, ShadowedPart)> {
    let pack = error.damaged_pack().filter(|_| error.kind() == ErrorKind::Damaged)?;
    let part = match error {
        StoreError::Damaged { wanted: id, .. } | StoreError::Shadowed { id, .. } => {
            ShadowedPart::Objects(BTreeSet::from([*id]))
        }
        _ => ShadowedPart::Whole,
    };
    Some((pack, part))
}

impl Store {
    /// Returns the shadows that this open store knows.
    pub fn shadows(&self) -> Arc<Shadows> {
        Arc::clone(&self.catalog().shadows)
    }

    /// Returns true if any object of a pack is shadowed. Such a pack is neither sent nor merged as
    /// a whole.
    pub fn is_shadowed(&self, pack: &PackId) -> bool {
        self.catalog().shadows.touches(pack)
    }

    /// Returns the error of an object whose copies are all shadowed.
    pub fn shadowed_error(&self, id: &ObjectId) -> StoreError {
        let place = self.locate(id).ok().flatten();
        match place.and_then(|place| self.pack_id(place.pack)) {
            Some(pack) => StoreError::Shadowed { id: *id, pack },
            None => StoreError::Missing { id: *id, wanted: ObjectKind::Blob },
        }
    }

    /// Returns true if anything is shadowed.
    pub fn has_shadows(&self) -> bool {
        !self.catalog().shadows.is_empty()
    }

    /// Returns true if any object of a pack is known to be damaged.
    pub fn is_damaged(&self, pack: &PackId) -> bool {
        self.catalog().shadows.is_damaged(pack)
    }

    /// Changes the shadow table, durably and in this open store. If the table cannot be
    /// written, the change still applies to this open store. Returns true if the table
    /// changed.
    ///
    /// # Errors
    /// [`StoreError`] when the table cannot be written.
    pub fn change_shadows(&self, change: &dyn Fn(&mut ShadowTable)) -> Result<bool, StoreError> {
        let written = self.write_shadows(change);
        let path = self.layout().shadow.clone();
        self.change_catalog(|catalog| {
            let shadows = if written.is_ok() { Shadows::read(&path).ok() } else { None };
            let mut shadows = shadows.unwrap_or_else(|| Shadows::from_known(catalog));
            change(&mut shadows.table);
            catalog.shadows = shadows.into();
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
        self.write_table(&layout.shadow, table.is_empty(), || table.encode())?;
        Ok(true)
    }

    /// Replaces the file of a table in the store, durably. An empty table has no file.
    pub(super) fn write_table(
        &self,
        path: &Path,
        is_empty: bool,
        encode: impl FnOnce() -> Result<Vec<u8>, FormatError>,
    ) -> Result<(), StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        if is_empty {
            disk.remove(path)?;
            return Ok(disk.sync_folder(&layout.dir)?);
        }
        let bytes = encode();
        let bytes = bytes.map_err(|source| StoreError::Table { path: path.to_owned(), source })?;
        disk.create_folders(&layout.tmp)?;
        Ok(disk.write_whole(&layout.tmp, path, &bytes)?)
    }

    /// Shadows the damage that an error reports, for this open store only, since readers never
    /// write to the store.
    pub(crate) fn shadow_in_memory(&self, error: &StoreError) {
        if let Some((pack, part)) = damage(error) {
            self.add_in_memory(pack, part);
        }
    }

    /// Shadows objects as damaged, for this open store only.
    pub(super) fn add_in_memory(&self, pack: PackId, part: ShadowedPart) {
        if self.shadows().is_unknown {
            return;
        }
        self.change_catalog(|catalog| {
            let mut shadows = Shadows::from_known(catalog);
            shadows.table.add(pack, Reason::Damaged, part);
            catalog.shadows = shadows.into();
        });
    }

    /// Shadows the damage that an error reports: the object, or the whole pack if the
    /// error names no object. Does nothing for other errors. Returns true if the table
    /// changed.
    ///
    /// # Errors
    /// As [`Store::change_shadows`].
    pub fn shadow_damage(&self, error: &StoreError) -> Result<bool, StoreError> {
        let Some((pack, part)) = damage(error) else { return Ok(false) };
        self.change_shadows(&|table| table.add(pack, Reason::Damaged, part.clone()))
    }

    /// Removes the damage of a pack from the shadows of this open store, because the caller has
    /// found all bytes of the pack right.
    pub fn mark_sound(&self, pack: &PackId) {
        self.change_catalog(|catalog| catalog.heal(pack));
    }

    /// Removes the damage of healed packs from the table, durably. The names of these packs must be
    /// durable.
    ///
    /// # Errors
    /// As [`Store::change_shadows`] and [`Store::reindex`].
    pub fn clear_healed(&self) -> Result<(), StoreError> {
        let healed: BTreeSet<PackId> = self.catalog().healed.iter().copied().collect();
        if healed.is_empty() {
            return Ok(());
        }
        self.change_shadows(&|table| {
            for pack in &healed {
                table.remove(pack, Reason::Damaged);
            }
        })?;
        self.change_catalog(|catalog| catalog.healed.retain(|pack| !healed.contains(pack)));
        // The index records of a damaged file may be wrong.
        self.reindex()
    }
}

impl Shadows {
    /// Returns the table, or a table that shadows every existing pack if the table is damaged. After
    /// a garbage collection, the packs may have had dead objects, so they count as dead until the
    /// next collection.
    pub(super) fn known_table(&self, catalog: &Catalog) -> ShadowTable {
        let mut table = self.table.clone();
        if self.is_unknown {
            for pack in catalog.numbers.keys() {
                table.add(*pack, Reason::Damaged, ShadowedPart::Whole);
                if !catalog.epoch.is_first() {
                    table.add(*pack, Reason::Dead, ShadowedPart::Whole);
                }
            }
        }
        table
    }

    /// Copies the shadows of an open store, for a change in memory only.
    fn from_known(catalog: &Catalog) -> Self {
        let shadows = &catalog.shadows;
        Self {
            table: shadows.known_table(catalog),
            is_unknown: false,
            damage: shadows.damage,
            is_unsaved: true,
        }
    }
}

impl Catalog {
    /// Removes the damage of a pack. The caller has just written the whole pack, or read it and
    /// compared its hash with its name.
    pub(super) fn heal(&mut self, id: &PackId) {
        if !self.shadows.is_damaged(id) {
            return;
        }
        self.shadows = Arc::new(self.shadows.without_damage(id));
        self.healed.push(*id);
        if let Some(slot) = self.slot(id) {
            // Close the open file, which is the damaged copy.
            *slot.open.lock() = None;
        }
    }
}
