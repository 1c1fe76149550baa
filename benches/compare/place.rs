//! A working folder on a disk or in memory.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use fs_err as fs;
use tempfile::TempDir;
use walkdir::WalkDir;

use crate::{Result, measure::Call};

/// Minimum age of data before a measurement: stat caches distrust files that were written shortly
/// before they were read.
const SETTLE: Duration = Duration::from_secs(3);

/// The working folder of one place, removed on drop.
#[derive(Debug)]
pub(crate) struct Place {
    root: TempDir,
    /// Name of the file system, for the table.
    pub(crate) name: String,
    is_memory: bool,
}

impl Place {
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        let root = tempfile::Builder::new().prefix("snap-compare-").tempdir_in(parent)?;
        let (name, is_memory) = match rustix::fs::statfs(root.path())?.f_type {
            0x0102_1994 => ("tmpfs".to_owned(), true),
            0xef53 => ("disk (ext4)".to_owned(), false),
            0x5846_5342 => ("disk (xfs)".to_owned(), false),
            0x9123_683e => ("disk (btrfs)".to_owned(), false),
            other => (format!("disk ({other:#x})"), false),
        };
        Ok(Self { root, name, is_memory })
    }

    /// Returns the path of `name` in the folder; creates nothing.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Returns an error if less than `bytes` is free.
    pub(crate) fn needs(&self, bytes: u64) -> Result<()> {
        let stat = rustix::fs::statvfs(self.root.path())?;
        let mut free = stat.f_bavail * stat.f_frsize;
        if self.is_memory {
            free = free.min(available_memory_bytes()?);
        }
        if free >= bytes {
            return Ok(());
        }
        let (name, free, bytes) = (&self.name, free / 1_000_000, bytes / 1_000_000);
        Err(format!("{name} has {free} MB free, and {bytes} MB are needed").into())
    }

    /// Removes everything that a work has left, before the next one.
    pub(crate) fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(self.root.path())? {
            remove(&entry?.path())?;
        }
        Ok(())
    }

    /// Writes dirty pages to the disk, so that a run is not slowed down by earlier writes.
    pub(crate) fn sync(&self) {
        if !self.is_memory {
            rustix::fs::sync();
        }
    }

    /// Waits until new data is old enough for stat caches.
    pub(crate) fn settle(&self) {
        self.sync();
        thread::sleep(SETTLE);
    }
}

/// Returns how much memory can be used without swapping; a tmpfs may be larger than that.
fn available_memory_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or("/proc/meminfo does not tell the available memory")? * 1024)
}

/// Removes a file or a folder with its contents, if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(stat) if stat.is_dir() => Ok(fs::remove_dir_all(path)?),
        Ok(_) => Ok(fs::remove_file(path)?),
    }
}

/// Makes `path` an empty folder.
pub(crate) fn empty(path: &Path) -> Result<()> {
    remove(path)?;
    Ok(fs::create_dir_all(path)?)
}

/// Makes `to` a copy of the folder `from`, with all attributes.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    remove(to)?;
    Call::new("cp").arg("-a").arg(from).arg(to).run()
}

/// Returns the number of files below `path`, or of `path` itself, and their total size in bytes.
pub(crate) fn count(path: &Path) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in WalkDir::new(path) {
        let entry = entry?;
        if entry.file_type().is_file() {
            files += 1;
            bytes += entry.metadata()?.len();
        }
    }
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_cleared_and_counts_what_it_holds() {
        let place = Place::new(&std::env::temp_dir()).unwrap();
        empty(&place.join("a/b")).unwrap();
        fs::write(place.join("a/b/c"), "12345").unwrap();
        fs::write(place.join("d"), "678").unwrap();
        assert_eq!(count(&place.join("")).unwrap(), (2, 8));
        assert_eq!(count(&place.join("d")).unwrap(), (1, 3));
        for _ in 0..2 {
            copy(&place.join("a"), &place.join("e")).unwrap();
            assert_eq!(count(&place.join("e")).unwrap(), (1, 5));
        }
        place.clear().unwrap();
        assert_eq!(count(&place.join("")).unwrap(), (0, 0));
        place.needs(1).unwrap();
        assert!(place.needs(1 << 60).is_err());
        remove(&place.join("not there")).unwrap();
    }
}
