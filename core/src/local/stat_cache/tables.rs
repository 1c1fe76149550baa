//! The tables of the stat cache: looks up records from the newest table on, and adds, merges and
//! replaces tables.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use crate::{
    base::io::PathError,
    disk::{
        Disk,
        scratch::unique_name,
        table::{Table, TableError, TableWriter, merge_from},
    },
    format::table::Shape,
    local::stat_cache::KEY_BYTES,
};

/// Number of new records that the cache buffers before it writes them to a file.
const BUFFERED_RECORDS: usize = 1 << 17;

/// Maximum number of records. `save` discards a larger cache, which would grow forever on file
/// systems that never reuse an inode number.
const MAX_RECORDS: u64 = 1 << 25;

/// The tables of one shape, newest first, and the new records.
#[derive(Debug)]
pub(super) struct Tables<const WIDTH: usize> {
    dir: PathBuf,
    disk: Disk,
    shape: Shape,
    ending: &'static str,
    read: Vec<Table>,
    /// If true, `save` replaces old tables instead of merging them: one is damaged, or the cache
    /// starts anew.
    replace: AtomicBool,
    fresh: Mutex<Vec<[u8; WIDTH]>>,
    runs: Mutex<Runs>,
}

impl<const WIDTH: usize> Tables<WIDTH> {
    /// Opens the tables in the folder `dir`. Skips those that cannot be read.
    pub(super) fn open(dir: &Path, disk: &Disk, shape: Shape, ending: &'static str) -> Self {
        let mut read = Vec::new();
        for path in table_files(dir, ending).into_values().rev() {
            match Table::open(&path, shape) {
                Ok(table) => read.push(table),
                Err(TableError::Damaged { .. }) => drop(disk.remove(&path)),
                Err(TableError::Io(_)) => {}
            }
        }
        Self { read, replace: AtomicBool::new(false), ..Self::anew(dir, disk, shape, ending) }
    }

    /// Makes an empty set. Saving it removes the tables in the folder.
    pub(super) fn anew(dir: &Path, disk: &Disk, shape: Shape, ending: &'static str) -> Self {
        Self {
            dir: dir.to_owned(),
            disk: disk.clone(),
            shape,
            ending,
            read: Vec::new(),
            replace: AtomicBool::new(true),
            fresh: Mutex::default(),
            runs: Mutex::default(),
        }
    }

    /// Returns the newest record with this key, unless it is a tombstone. Stops at a damaged block:
    /// a record in an older table may be obsolete.
    pub(super) fn find(&self, key: &[u8]) -> Option<&[u8]> {
        for table in &self.read {
            match table.find(key) {
                Ok(Some((_, record))) => return Some(record).filter(|it| !is_tombstone(it)),
                Ok(None) => {}
                Err(_) => {
                    self.replace.store(true, Ordering::Relaxed);
                    return None;
                }
            }
        }
        None
    }

    /// Adds a record. Writes a full buffer to a temporary file, which `save` publishes. If that
    /// fails, drops the records in the buffer.
    pub(super) fn add(&self, record: [u8; WIDTH]) {
        let mut fresh = self.fresh.lock();
        fresh.push(record);
        if fresh.len() < BUFFERED_RECORDS {
            return;
        }
        let records = std::mem::take(&mut *fresh);
        drop(fresh);
        if let Ok(path) = self.write_run(records) {
            self.runs.lock().0.push(path);
        }
    }

    /// Adds a tombstone for this key if an older table has a record of it.
    pub(super) fn forget(&self, key: &[u8; KEY_BYTES]) {
        if self.find(key).is_some() {
            let mut tombstone = [0; WIDTH];
            tombstone[..KEY_BYTES].copy_from_slice(key);
            self.add(tombstone);
        }
    }

    /// Writes new records to a temporary file. Keeps only the smallest record of each key, so a
    /// tombstone wins.
    fn write_run(&self, mut records: Vec<[u8; WIDTH]>) -> Result<PathBuf, PathError> {
        records.sort_unstable();
        records.dedup_by(|a, b| a[..KEY_BYTES] == b[..KEY_BYTES]);
        let mut writer = TableWriter::create(&self.disk, &temporary(&self.dir), self.shape)?;
        records.iter().try_for_each(|record| writer.push(record))?;
        writer.finish(&[])
    }

    pub(super) fn save(mut self) -> Result<(), TableError> {
        let fresh = std::mem::take(&mut *self.fresh.lock());
        let mut runs = std::mem::take(&mut *self.runs.lock());
        if !fresh.is_empty() {
            runs.0.push(self.write_run(fresh)?);
        }
        let total: u64 = self.read.iter().map(Table::records).sum();
        let replace = self.replace.load(Ordering::Relaxed) || total > MAX_RECORDS;
        if runs.0.is_empty() && !replace {
            return Ok(());
        }
        let mut tables: Vec<Table> = runs
            .0
            .iter()
            .rev()
            .map(|path| Table::open(path, self.shape))
            .collect::<Result<_, _>>()?;
        let mut old = std::mem::take(&mut self.read);
        let present = old.len();
        let replaced: Vec<PathBuf> = if replace {
            old.clear();
            table_files(&self.dir, self.ending).into_values().collect()
        } else {
            // `old` is newest first. Merge the newest tables that are small compared with the new
            // records.
            let mut sizes: Vec<u64> = old.iter().rev().map(Table::records).collect();
            sizes.push(tables.iter().map(Table::records).sum());
            old.truncate(old.len() - merge_from(&sizes).min(old.len()));
            old.iter().map(|table| table.path().to_owned()).collect()
        };
        // A tombstone must stay while an older, unmerged table may have its key.
        let tombstones =
            if replace || old.len() == present { Tombstones::Drop } else { Tombstones::Keep };
        tables.extend(old);
        self.publish(&tables, tombstones)?;
        replaced.iter().try_for_each(|path| Ok(self.disk.remove(path)?))
    }

    /// Merges tables, newest first, into one table with the next free number.
    fn publish(&self, tables: &[Table], tombstones: Tombstones) -> Result<(), TableError> {
        let Self { dir, disk, ending, .. } = self;
        disk.create_folders(dir)?; // It may be deleted at any time.
        let path = temporary(dir);
        let mut writer = TableWriter::create(disk, &path, self.shape)?;
        merge(tables, &mut writer, tombstones)?;
        let _unless_renamed = Runs(vec![writer.finish(&[])?]);
        loop {
            let last = table_files(dir, ending).into_keys().next_back().unwrap_or(0);
            let name = dir.join(format!("{:012}.{ending}", last + 1));
            if disk.rename_new(&path, &name)? == crate::disk::Renamed::Done {
                return Ok(());
            }
        }
    }
}

/// Temporary files in `tmp/`, removed on drop.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<PathBuf>);

impl Drop for Runs {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs_err::remove_file(path);
        }
    }
}

/// How a merge treats tombstones. A merge may drop them if no older table remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tombstones {
    Keep,
    Drop,
}

fn is_tombstone(record: &[u8]) -> bool {
    record[KEY_BYTES..].iter().all(|byte| *byte == 0)
}

fn merge(
    tables: &[Table],
    writer: &mut TableWriter,
    tombstones: Tombstones,
) -> Result<(), TableError> {
    let mut tables: Vec<_> = tables.iter().map(Table::iter).collect();
    let mut heads: Vec<Option<&[u8]>> =
        tables.iter_mut().map(|table| table.next().transpose()).collect::<Result<_, _>>()?;
    // Of equal keys, the first table has the newest record.
    while let Some(record) =
        heads.iter().flatten().min_by_key(|record| &record[..KEY_BYTES]).copied()
    {
        if tombstones == Tombstones::Keep || !is_tombstone(record) {
            writer.push(record)?;
        }
        for (head, table) in heads.iter_mut().zip(&mut tables) {
            if head.is_some_and(|head| head[..KEY_BYTES] == record[..KEY_BYTES]) {
                *head = table.next().transpose()?;
            }
        }
    }
    Ok(())
}

pub(super) fn table_files(dir: &Path, ending: &str) -> BTreeMap<u64, PathBuf> {
    let entries = fs_err::read_dir(dir).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| {
        let path = entry.path();
        let fits = path.extension().is_some_and(|have| have == ending);
        let number = path.file_stem()?.to_str()?.parse().ok()?;
        fits.then_some((number, path))
    });
    numbered.collect()
}

fn temporary(dir: &Path) -> PathBuf {
    // Snap sweeps leftover files in `tmp/`, which is beside `cache/`.
    dir.parent().unwrap_or(dir).join("tmp").join(unique_name("stat"))
}
