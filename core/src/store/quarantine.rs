//! Damaged packs that were replaced, kept in `quarantine/`.
//!
//! Nothing reads them any more, and nothing deletes them: what somebody else can
//! still make of their bytes is not for a repair to decide. A pack keeps its name
//! there; where that is taken, a number follows.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    base::{id::PackId, io::PathError, observe::Observer},
    disk::{Renamed, scratch::unique_name},
    format::shadow::Reason,
    store::{Store, StoreError, compact, pack_reader::Home},
};

/// Packs of one name that are kept.
const NAMES: usize = 1000;

/// How often it is tried to lock out those who need packs to stay.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Says whether nothing in a pack is needed any more.
pub type IsSpare<'a> = dyn Fn(&PackId) -> Result<bool, StoreError> + 'a;

impl Store {
    /// The folder for damaged packs that were replaced.
    pub fn quarantine_dir(&self) -> &Path {
        &self.layout().quarantine
    }

    /// Keeps the bytes of a pack in `quarantine/`, durably, and leaves it where it is:
    /// for those who put the right bytes in its place next. Returns whether there is
    /// such a pack.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep_in_quarantine(&self, id: &PackId) -> Result<bool, StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let from = layout.path(Home::Whole, id);
        let Ok(there) = fs_err::symlink_metadata(&from) else { return Ok(false) };
        disk.create_folders(&layout.quarantine)?;
        for to in self.quarantine_names(id) {
            match disk.link(&from, &to) {
                Ok(Renamed::Done) => break,
                Ok(Renamed::Taken) => match fs_err::symlink_metadata(&to) {
                    // A repair that was interrupted here kept it.
                    Ok(kept) if (kept.dev(), kept.ino()) == (there.dev(), there.ino()) => break,
                    _ => {}
                },
                // A file system without hard links, or packs on another disk.
                Err(_) if self.copy_aside(&from, &to)? == Renamed::Done => break,
                Err(_) => {}
            }
        }
        disk.sync_folder(&layout.quarantine)?;
        Ok(true)
    }

    fn copy_aside(&self, from: &Path, to: &Path) -> Result<Renamed, StoreError> {
        let file = self.disk().create(&self.layout().tmp.join(unique_name("quarantine")))?;
        fs_err::copy(from, file.path()).map_err(PathError::when("copy", from))?;
        file.sync()?;
        let renamed = self.disk().rename_new(file.path(), to)?;
        if renamed == Renamed::Done {
            file.keep();
        }
        Ok(renamed)
    }

    fn move_aside(&self, from: &Path, to: &Path) -> Result<Renamed, StoreError> {
        match self.disk().rename_new(from, to) {
            // Packs may lie on another disk.
            Err(error) if error.source.kind() == io::ErrorKind::CrossesDevices => {
                let renamed = self.copy_aside(from, to)?;
                if renamed == Renamed::Done {
                    self.disk().sync_folder(&self.layout().quarantine)?;
                    self.disk().remove(from)?;
                }
                Ok(renamed)
            }
            renamed => Ok(renamed?),
        }
    }

    fn quarantine_names(&self, id: &PackId) -> impl Iterator<Item = PathBuf> {
        let first = self.layout().quarantine.join(id.to_string());
        let others = (2..NAMES).map({
            let first = first.clone();
            move |number| first.with_extension(number.to_string())
        });
        std::iter::once(first).chain(others)
    }

    /// Moves damaged packs to `quarantine/` of which `is_spare` says, once nobody
    /// needs packs to stay, that nothing in them is needed. They are not shadowed any
    /// more then. Returns which were moved; none when the user asks to stop. The
    /// caller must not hold packs itself.
    ///
    /// # Errors
    /// [`StoreError`]; those that were moved are whole in `quarantine/`.
    pub fn move_to_quarantine(
        &self,
        packs: &[PackId],
        is_spare: &IsSpare<'_>,
        observer: &dyn Observer,
    ) -> Result<Vec<PackId>, StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let mut moved = Vec::new();
        if packs.is_empty() {
            return Ok(moved);
        }
        let lock = compact::open_lock(self)?;
        while lock.try_lock().is_err() {
            if observer.cancelled() {
                return Ok(moved);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.refresh()?;
        for id in packs {
            let is_there = self.catalog().slot(id).is_some_and(|slot| slot.home == Home::Whole);
            if !is_there || !self.is_damaged(id) || !is_spare(id)? {
                continue;
            }
            disk.create_folders(&layout.quarantine)?;
            let from = layout.path(Home::Whole, id);
            for to in self.quarantine_names(id) {
                if self.move_aside(&from, &to)? == Renamed::Done {
                    moved.push(*id);
                    break;
                }
            }
        }
        if moved.is_empty() {
            return Ok(moved);
        }
        disk.sync_folder(&layout.quarantine)?;
        disk.sync_folder(&layout.objects)?;
        self.refresh()?;
        self.change_shadows(&|table| {
            for id in &moved {
                table.withdraw(id, Reason::Damaged);
            }
        })?;
        Ok(moved)
    }
}
