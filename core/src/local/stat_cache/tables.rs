//! The tables of the stat cache: newest first, added to, merged, replaced.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    base::{io::PathError, time::Time},
    disk::{
        Disk,
        table::{Table, TableError, TableWriter, merge_from},
    },
    format::table::Shape,
    local::stat_cache::KEY_BYTES,
};

/// New records are written out once there are so many of them.
const BUFFERED_RECORDS: usize = 1 << 17;

/// A cache of more records than that is started anew: on file systems that
/// never use an inode number twice it would only grow.
const MAX_RECORDS: u64 = 1 << 25;

/// Tables of one shape, newest first, and the records to be added.
#[derive(Debug)]
pub(super) struct Tables<const WIDTH: usize> {
    shape: Shape,
    ending: &'static str,
    read: Vec<Table>,
    /// Old tables are not merged but replaced, since one is damaged or they are
    /// not to be believed.
    replace: AtomicBool,
    fresh: Mutex<Vec<[u8; WIDTH]>>,
    runs: Mutex<Runs>,
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<const WIDTH: usize> Tables<WIDTH> {
    pub(super) fn open(dir: &Path, shape: Shape, ending: &'static str) -> Self {
        let mut read = Vec::new();
        for path in table_files(dir, ending).into_values().rev() {
            match Table::open(&path, shape) {
                Ok(table) => read.push(table),
                Err(TableError::Damaged { .. }) => drop(fs_err::remove_file(&path)),
                Err(TableError::Io(_)) => {}
            }
        }
        Self { read, replace: AtomicBool::new(false), ..Self::anew(shape, ending) }
    }

    /// No tables; those that are in the folder go when these are saved.
    pub(super) fn anew(shape: Shape, ending: &'static str) -> Self {
        Self {
            shape,
            ending,
            read: Vec::new(),
            replace: AtomicBool::new(true),
            fresh: Mutex::default(),
            runs: Mutex::default(),
        }
    }

    /// The newest record with this key, unless it is a tombstone. Behind a
    /// damaged block of a newer table no older one is believed.
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

    /// Keeps a record. When there are many, they go to a file, which counts
    /// only once it is saved; if that fails, they are not remembered.
    pub(super) fn add(&self, dir: &Path, disk: &Disk, record: [u8; WIDTH]) {
        let mut fresh = lock(&self.fresh);
        fresh.push(record);
        if fresh.len() < BUFFERED_RECORDS {
            return;
        }
        let records = std::mem::take(&mut *fresh);
        drop(fresh);
        if let Ok(path) = self.write_run(dir, disk, records) {
            lock(&self.runs).0.push(path);
        }
    }

    /// Has a tombstone hide what older tables know under this key, if they do.
    pub(super) fn forget(&self, dir: &Path, disk: &Disk, key: &[u8; KEY_BYTES]) {
        if self.find(key).is_some() {
            let mut tombstone = [0; WIDTH];
            tombstone[..KEY_BYTES].copy_from_slice(key);
            self.add(dir, disk, tombstone);
        }
    }

    /// Of several new records with one key the smallest stays, so a tombstone
    /// wins.
    fn write_run(
        &self,
        dir: &Path,
        disk: &Disk,
        mut records: Vec<[u8; WIDTH]>,
    ) -> Result<PathBuf, PathError> {
        records.sort_unstable();
        records.dedup_by(|a, b| a[..KEY_BYTES] == b[..KEY_BYTES]);
        let mut writer = TableWriter::create(disk, &temporary(dir), self.shape)?;
        records.iter().try_for_each(|record| writer.push(record))?;
        writer.finish(&[])
    }

    pub(super) fn save(self, dir: &Path, disk: &Disk) -> Result<(), TableError> {
        let fresh = std::mem::take(&mut *lock(&self.fresh));
        let mut runs = std::mem::take(&mut *lock(&self.runs));
        if !fresh.is_empty() {
            runs.0.push(self.write_run(dir, disk, fresh)?);
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
        let mut old = self.read;
        let present = old.len();
        let replaced: Vec<PathBuf> = if replace {
            old.clear();
            table_files(dir, self.ending).into_values().collect()
        } else {
            // Newest first, as many of the old ones as are small beside them.
            let mut sizes: Vec<u64> = old.iter().rev().map(Table::records).collect();
            sizes.push(tables.iter().map(Table::records).sum());
            old.truncate(old.len() - merge_from(&sizes).min(old.len()));
            old.iter().map(|table| table.path().to_owned()).collect()
        };
        let tombstones =
            if replace || old.len() == present { Tombstones::Drop } else { Tombstones::Keep };
        tables.extend(old);
        publish(dir, disk, (self.shape, self.ending), &tables, tombstones)?;
        replaced.iter().try_for_each(|path| Ok(disk.remove(path)?))
    }
}

/// Files in `tmp/` that go when they are no longer needed.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<PathBuf>);

impl Drop for Runs {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs_err::remove_file(path);
        }
    }
}

/// What a merge does with tombstones: they can go once no older table is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tombstones {
    Keep,
    Drop,
}

fn is_tombstone(record: &[u8]) -> bool {
    record[KEY_BYTES..].iter().all(|byte| *byte == 0)
}

/// Merges tables, newest first, into one with the next free number.
fn publish(
    dir: &Path,
    disk: &Disk,
    (shape, ending): (Shape, &str),
    tables: &[Table],
    tombstones: Tombstones,
) -> Result<(), TableError> {
    disk.create_folders(dir)?; // It may be deleted at any time.
    let path = temporary(dir);
    let mut writer = TableWriter::create(disk, &path, shape)?;
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

fn merge(
    tables: &[Table],
    writer: &mut TableWriter,
    tombstones: Tombstones,
) -> Result<(), TableError> {
    let mut heads = tables.iter().map(|table| table.iter().peekable()).collect::<Vec<_>>();
    loop {
        // The smallest key, and of equal ones the newest, which is the first.
        let mut best: Option<(usize, &[u8])> = None;
        for (which, head) in heads.iter_mut().enumerate() {
            match head.peek() {
                Some(Ok(record))
                    if best.is_none_or(|(_, least)| record[..KEY_BYTES] < least[..KEY_BYTES]) =>
                {
                    best = Some((which, record));
                }
                Some(Err(_)) => match head.next() {
                    Some(Err(error)) => return Err(error),
                    _ => unreachable!("peeked at an error"),
                },
                _ => {}
            }
        }
        let Some((_, record)) = best else { return Ok(()) };
        if tombstones == Tombstones::Keep || !is_tombstone(record) {
            writer.push(record)?;
        }
        for head in &mut heads {
            head.next_if(
                |next| matches!(next, Ok(other) if other[..KEY_BYTES] == record[..KEY_BYTES]),
            );
        }
    }
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
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let Time { secs, nanos } = Time::now();
    // Beside `cache/`, where left-over files are swept.
    let tmp = dir.parent().unwrap_or(dir).join("tmp");
    tmp.join(format!("stat-{}-{secs:x}{nanos:08x}-{serial}", std::process::id()))
}
