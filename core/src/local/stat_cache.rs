//! What is known about files and folders that have not changed since.
//!
//! Two sets of [tables](crate::format::table) in `cache/`, keyed by inode and
//! device: of a file, its size, times and content id; of a folder, what its
//! listing hashed to and the tree that came of it. Files are found again
//! wherever they were moved. All of it may be deleted at any time; a damaged
//! table is thrown away.
//!
//! A file is trusted only when size, mtime and ctime are those that were
//! recorded. Renaming a file changes its ctime and nothing else; so when it
//! has another name or folder than it had, its birth time (which tells it from
//! another file that got its inode) stands in for the ctime, and it is recorded
//! again under its new name. A file is recorded only when both times were safely in the past at the
//! moment the file was read: a file that changes twice within one tick of the
//! file system's clock looks the same after the second time (git calls it
//! racily clean).
//!
//! | record | bytes | fields                                                  |
//! |--------|-------|---------------------------------------------------------|
//! | file   | 88    | inode u64, device u64 (both big-endian, the key), size u64, mtime i64 ns, ctime i64 ns, content id 32, last u64 (bit 0: has xattrs, bit 1: has holes, others: hash of its place), birth i64 ns or 0 |
//! | folder | 112   | inode u64, device u64 (the key), listing hash 16, full hash 16, tree id 32, files, folders, others, bytes: 4 × u64 |

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use twox_hash::XxHash3_64;

use crate::{
    base::{
        id::{BlobId, TreeId},
        io::PathError,
        time::Time,
    },
    disk::{
        Disk,
        table::{Table, TableError, TableWriter, merge_from},
    },
    format::{
        table::{Purpose, Shape},
        tree::Totals,
    },
    local::scan::FileStat,
};

const KEY_BYTES: usize = 16;
const FILE_BYTES: usize = 88;
const FOLDER_BYTES: usize = 112;

const FILES: Shape =
    Shape { purpose: Purpose::StatFiles, key_bytes: KEY_BYTES, record_bytes: FILE_BYTES };
const FOLDERS: Shape =
    Shape { purpose: Purpose::StatFolders, key_bytes: KEY_BYTES, record_bytes: FOLDER_BYTES };

/// Times must be that far in the past. Linux stamps files with a clock that
/// ticks every 1 to 10 ms.
const SLACK_NANOS: i64 = 20_000_000;

/// The same on file systems that keep whole seconds (FAT: every other one).
const COARSE_SLACK_NANOS: i64 = 2_000_000_000;

/// New records are written out once there are so many of them.
const BUFFERED_RECORDS: usize = 1 << 17;

/// A cache of more records than that is started anew: on file systems that
/// never use an inode number twice it would only grow.
const MAX_RECORDS: u64 = 1 << 25;

/// What is known about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFile {
    /// Its content.
    pub id: BlobId,
    /// Whether it has extended attributes.
    pub xattrs: bool,
    /// Whether it has holes.
    pub sparse: bool,
}

impl KnownFile {
    fn flags(&self) -> u64 {
        u64::from(self.xattrs) | u64::from(self.sparse) << 1
    }
}

/// Bits of a file record's last field that are flags.
const FLAGS: u64 = 3;

const SIZE_AND_MTIME: Range<usize> = KEY_BYTES..32;
const CTIME: Range<usize> = 32..40;
const BIRTH: Range<usize> = 80..88;

fn last(record: &[u8]) -> u64 {
    u64::from_le_bytes(array(&record[72..80]))
}

fn known(record: &[u8]) -> KnownFile {
    let flags = last(record);
    let id = BlobId::from_bytes(array(&record[40..72]));
    KnownFile { id, xattrs: flags & 1 != 0, sparse: flags & 2 != 0 }
}

/// Zero where the file system does not keep it; that matches nothing.
fn birth_bytes(born: Option<Time>) -> [u8; 8] {
    born.and_then(Time::as_nanos).unwrap_or(0).to_le_bytes()
}

/// Folder and name of a file, as a hash: to tell whether it was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    /// The place of `name` in the folder with this stat.
    pub fn new(folder: &FileStat, name: &[u8]) -> Self {
        let seed = folder.inode ^ folder.device.rotate_left(32);
        Self(XxHash3_64::oneshot_with_seed(seed, name) & !FLAGS)
    }
}

/// What is known about a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFolder {
    /// What its own listing hashed to.
    pub listing: [u8; 16],
    /// The same together with the trees of its folders.
    pub full: [u8; 16],
    /// The tree that came of it.
    pub tree: TreeId,
    /// What is below.
    pub totals: Totals,
}

/// Files and folders that have not changed since they were last read.
#[derive(Debug)]
pub struct StatCache {
    dir: PathBuf,
    disk: Disk,
    files: Tables<FILE_BYTES>,
    folders: Tables<FOLDER_BYTES>,
}

/// Tables of one shape, newest first, and the records to be added.
#[derive(Debug)]
struct Tables<const WIDTH: usize> {
    shape: Shape,
    ending: &'static str,
    read: Vec<Table>,
    damaged: AtomicBool,
    fresh: Mutex<Vec<[u8; WIDTH]>>,
    runs: Mutex<Vec<PathBuf>>,
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

impl StatCache {
    /// Opens the cache in the folder `dir`. What cannot be read is not known.
    pub fn open(dir: &Path, disk: Disk) -> Self {
        Self {
            files: Tables::open(dir, FILES, "files"),
            folders: Tables::open(dir, FOLDERS, "folders"),
            dir: dir.to_owned(),
            disk,
        }
    }

    /// What is known about a file with exactly this stat.
    pub fn file(&self, stat: &FileStat) -> Option<KnownFile> {
        let (record, wanted) = self.file_record(stat)?;
        (record[CTIME] == wanted[CTIME]).then(|| known(record))
    }

    /// What is known about a file that seems to have changed and may only have
    /// been moved to `place`. When it was `born` is asked only if that could
    /// decide it.
    pub fn moved_file(
        &self,
        stat: &FileStat,
        place: Place,
        born: impl FnOnce() -> Option<Time>,
    ) -> Option<KnownFile> {
        let (record, _) = self.file_record(stat)?;
        if last(record) & !FLAGS == place.0 {
            return None;
        }
        let born = born()?;
        if record[BIRTH] != birth_bytes(Some(born)) {
            return None;
        }
        // The attributes may have changed as well.
        let known = KnownFile { xattrs: true, ..known(record) };
        // Its mtime is settled already, and a write would change that.
        let record = file_record(stat, Some(born), &known.id, known.flags() | place.0)?;
        self.files.add(&self.dir, &self.disk, record);
        Some(known)
    }

    /// The record of a file with this size and mtime, and what would be
    /// recorded of it now.
    fn file_record(&self, stat: &FileStat) -> Option<(&[u8], [u8; FILE_BYTES])> {
        let wanted = file_record(stat, None, &BlobId::from_bytes([0; 32]), 0)?;
        let record = self.files.find(&wanted[..KEY_BYTES])?;
        (record[SIZE_AND_MTIME] == wanted[SIZE_AND_MTIME]).then_some((record, wanted))
    }

    /// Remembers a file that was read from `read_at` on and had this stat
    /// before and after. Does nothing when its times are too recent.
    pub fn add_file(
        &self,
        (stat, born): (&FileStat, Option<Time>),
        place: Place,
        known: &KnownFile,
        read_at: Time,
    ) {
        if !is_settled(stat, read_at) {
            return;
        }
        if let Some(record) = file_record(stat, born, &known.id, known.flags() | place.0) {
            self.files.add(&self.dir, &self.disk, record);
        }
    }

    /// What is known about a folder.
    pub fn folder(&self, device: u64, inode: u64) -> Option<KnownFolder> {
        let record = self.folders.find(&key(device, inode))?;
        let count = |at: usize| u64::from_le_bytes(array(&record[at..at + 8]));
        Some(KnownFolder {
            listing: array(&record[16..32]),
            full: array(&record[32..48]),
            tree: TreeId::from_bytes(array(&record[48..80])),
            totals: Totals {
                files: count(80),
                folders: count(88),
                others: count(96),
                bytes: count(104),
            },
        })
    }

    /// Remembers a folder, all of whose files are settled.
    pub fn add_folder(&self, device: u64, inode: u64, known: &KnownFolder) {
        let Totals { files, folders, others, bytes } = known.totals;
        let mut record = [0; FOLDER_BYTES];
        record[..16].copy_from_slice(&key(device, inode));
        record[16..32].copy_from_slice(&known.listing);
        record[32..48].copy_from_slice(&known.full);
        record[48..80].copy_from_slice(known.tree.as_bytes());
        for (count, place) in [files, folders, others, bytes].iter().zip(record[80..].chunks_mut(8))
        {
            place.copy_from_slice(&count.to_le_bytes());
        }
        self.folders.add(&self.dir, &self.disk, record);
    }

    /// Writes what was added. The commit it came of must be durable: a folder
    /// that is known stands for everything below it.
    ///
    /// # Errors
    /// [`TableError`] when the cache cannot be written; nothing is lost.
    pub fn save(self) -> Result<(), TableError> {
        self.files.save(&self.dir, &self.disk)?;
        self.folders.save(&self.dir, &self.disk)
    }
}

/// Whether the times of a file are safely in the past at `read_at`.
pub fn is_settled(stat: &FileStat, read_at: Time) -> bool {
    let coarse = stat.mtime.nanos == 0 && stat.ctime.nanos == 0;
    let slack = if coarse { COARSE_SLACK_NANOS } else { SLACK_NANOS };
    let last = stat.mtime.max(stat.ctime).as_nanos();
    match (last, read_at.as_nanos()) {
        (Some(last), Some(read_at)) => last.saturating_add(slack) <= read_at,
        _ => false,
    }
}

fn key(device: u64, inode: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&inode.to_be_bytes());
    key[8..].copy_from_slice(&device.to_be_bytes());
    key
}

/// `None` when a time does not fit.
fn file_record(
    stat: &FileStat,
    born: Option<Time>,
    id: &BlobId,
    flags: u64,
) -> Option<[u8; FILE_BYTES]> {
    let mut record = [0; FILE_BYTES];
    record[..16].copy_from_slice(&key(stat.device, stat.inode));
    record[16..24].copy_from_slice(&stat.size.to_le_bytes());
    record[24..32].copy_from_slice(&stat.mtime.as_nanos()?.to_le_bytes());
    record[32..40].copy_from_slice(&stat.ctime.as_nanos()?.to_le_bytes());
    record[40..72].copy_from_slice(id.as_bytes());
    record[72..80].copy_from_slice(&flags.to_le_bytes());
    record[BIRTH].copy_from_slice(&birth_bytes(born));
    Some(record)
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<const WIDTH: usize> Tables<WIDTH> {
    fn open(dir: &Path, shape: Shape, ending: &'static str) -> Self {
        let mut read = Vec::new();
        for path in table_files(dir, ending).into_values().rev() {
            match Table::open(&path, shape) {
                Ok(table) => read.push(table),
                Err(TableError::Damaged { .. }) => drop(fs_err::remove_file(&path)),
                Err(TableError::Io(_)) => {}
            }
        }
        Self {
            shape,
            ending,
            read,
            damaged: AtomicBool::new(false),
            fresh: Mutex::default(),
            runs: Mutex::default(),
        }
    }

    /// The newest record with this key.
    fn find(&self, key: &[u8]) -> Option<&[u8]> {
        for table in &self.read {
            match table.find(key) {
                Ok(Some((_, record))) => return Some(record),
                Ok(None) => {}
                Err(_) => self.damaged.store(true, Ordering::Relaxed),
            }
        }
        None
    }

    /// Keeps a record. When there are many, they go to a file, which counts
    /// only once it is saved; if that fails, they are not remembered.
    fn add(&self, dir: &Path, disk: &Disk, record: [u8; WIDTH]) {
        let mut fresh = lock(&self.fresh);
        fresh.push(record);
        if fresh.len() < BUFFERED_RECORDS {
            return;
        }
        let records = std::mem::take(&mut *fresh);
        drop(fresh);
        if let Ok(path) = self.write_run(dir, disk, records) {
            lock(&self.runs).push(path);
        }
    }

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

    fn save(self, dir: &Path, disk: &Disk) -> Result<(), TableError> {
        let fresh = std::mem::take(&mut *lock(&self.fresh));
        let mut runs = std::mem::take(&mut *lock(&self.runs));
        if !fresh.is_empty() {
            runs.push(self.write_run(dir, disk, fresh)?);
        }
        let total: u64 = self.read.iter().map(Table::records).sum();
        let spoiled = self.damaged.load(Ordering::Relaxed) || total > MAX_RECORDS;
        if runs.is_empty() && !spoiled {
            return Ok(());
        }
        let mut tables: Vec<Table> = runs
            .iter()
            .rev()
            .map(|path| Table::open(path, self.shape))
            .collect::<Result<_, _>>()?;
        let mut old = self.read;
        let replaced: Vec<PathBuf> = if spoiled {
            old.clear();
            table_files(dir, self.ending).into_values().collect()
        } else {
            // Newest first, as many of the old ones as are small beside them.
            let mut sizes: Vec<u64> = old.iter().rev().map(Table::records).collect();
            sizes.push(tables.iter().map(Table::records).sum());
            old.truncate(old.len() - merge_from(&sizes).min(old.len()));
            old.iter().map(|table| table.path().to_owned()).collect()
        };
        tables.extend(old);
        publish(dir, disk, self.shape, self.ending, &tables)?;
        for path in runs.iter().chain(&replaced) {
            disk.remove(path)?;
        }
        Ok(())
    }
}

/// Merges tables, newest first, into one with the next free number.
fn publish(
    dir: &Path,
    disk: &Disk,
    shape: Shape,
    ending: &str,
    tables: &[Table],
) -> Result<(), TableError> {
    disk.create_folders(dir)?; // It may be deleted at any time.
    let path = temporary(dir);
    let mut writer = TableWriter::create(disk, &path, shape)?;
    let written = merge(tables, &mut writer).and_then(|()| Ok(writer.finish(&[])?));
    if let Err(error) = written {
        let _ = fs_err::remove_file(&path);
        return Err(error);
    }
    loop {
        let last = table_files(dir, ending).into_keys().next_back().unwrap_or(0);
        let name = dir.join(format!("{:012}.{ending}", last + 1));
        if disk.rename_new(&path, &name)? == crate::disk::Renamed::Done {
            return Ok(());
        }
    }
}

fn merge(tables: &[Table], writer: &mut TableWriter) -> Result<(), TableError> {
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
        writer.push(record)?;
        for head in &mut heads {
            head.next_if(
                |next| matches!(next, Ok(other) if other[..KEY_BYTES] == record[..KEY_BYTES]),
            );
        }
    }
}

fn table_files(dir: &Path, ending: &str) -> BTreeMap<u64, PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::scan::FileKind;

    fn stat(inode: u64, mtime: Time) -> FileStat {
        FileStat {
            kind: FileKind::File,
            mode: 0o644,
            links: 1,
            device: 1,
            inode,
            size: 10,
            blocks: 8,
            uid: 0,
            gid: 0,
            special: 0,
            mtime,
            ctime: mtime,
        }
    }

    fn store() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        fs_err::create_dir(&cache).unwrap();
        fs_err::create_dir(dir.path().join("tmp")).unwrap();
        (dir, cache)
    }

    const HERE: Place = Place(4);
    const BORN: Option<Time> = Some(Time { secs: 500, nanos: 0 });
    const OLD: Time = Time { secs: 1000, nanos: 1 };
    const NOW: Time = Time { secs: 2000, nanos: 0 };

    #[test]
    fn a_file_is_known_until_anything_about_it_changes() {
        let (_dir, cache) = store();
        let known = KnownFile { id: BlobId::of(b"x"), xattrs: true, sparse: false };
        for inode in 0..500 {
            let stats = StatCache::open(&cache, Disk::default());
            stats.add_file((&stat(inode, OLD), BORN), HERE, &known, NOW);
            stats.save().unwrap();
        }
        assert!(fs_err::read_dir(&cache).unwrap().count() < 12);
        let stats = StatCache::open(&cache, Disk::default());
        assert!((0..500).all(|inode| stats.file(&stat(inode, OLD)) == Some(known)));
        assert_eq!(stats.file(&stat(7, OLD.successor())), None);
        assert_eq!(stats.file(&FileStat { size: 11, ..stat(7, OLD) }), None);
        assert_eq!(stats.file(&FileStat { device: 2, ..stat(7, OLD) }), None);
        assert_eq!(stats.file(&stat(501, OLD)), None);
    }

    #[test]
    fn a_file_that_was_just_written_is_not_remembered() {
        let known = KnownFile { id: BlobId::of(b"x"), xattrs: false, sparse: false };
        let soon = Time { secs: 1000, nanos: 15_000_000 };
        let later = Time { secs: 1000, nanos: 21_000_000 };
        assert!(!is_settled(&stat(1, OLD), soon));
        assert!(is_settled(&stat(1, OLD), later));
        let coarse = Time { secs: 1000, nanos: 0 };
        assert!(!is_settled(&stat(1, coarse), later));
        assert!(is_settled(&stat(1, coarse), Time { secs: 1002, nanos: 0 }));
        assert!(!is_settled(&stat(1, Time { secs: 9000, nanos: 0 }), NOW));

        let (_dir, cache) = store();
        let stats = StatCache::open(&cache, Disk::default());
        stats.add_file((&stat(1, OLD), BORN), HERE, &known, soon);
        stats.save().unwrap();
        assert_eq!(StatCache::open(&cache, Disk::default()).file(&stat(1, OLD)), None);
    }

    #[test]
    fn the_newest_record_counts_and_damage_is_forgotten() {
        let (_dir, cache) = store();
        let record = |id: &[u8], mtime| {
            let stats = StatCache::open(&cache, Disk::default());
            let known = KnownFile { id: BlobId::of(id), xattrs: false, sparse: true };
            stats.add_file((&stat(1, mtime), BORN), HERE, &known, NOW);
            stats.save().unwrap();
        };
        record(b"first", OLD);
        record(b"second", OLD.successor());
        let stats = StatCache::open(&cache, Disk::default());
        assert_eq!(stats.file(&stat(1, OLD)), None);
        assert_eq!(
            stats.file(&stat(1, OLD.successor())).map(|f| f.id),
            Some(BlobId::of(b"second"))
        );

        for path in table_files(&cache, "files").into_values() {
            let mut bytes = fs_err::read(&path).unwrap();
            bytes[4096 + 40] ^= 1;
            fs_err::write(&path, bytes).unwrap();
        }
        assert_eq!(StatCache::open(&cache, Disk::default()).file(&stat(1, OLD.successor())), None);
    }

    #[test]
    fn a_file_that_was_only_moved_is_known_until_it_changes_again() {
        let (_dir, cache) = store();
        let known = KnownFile { id: BlobId::of(b"x"), xattrs: false, sparse: false };
        let stats = StatCache::open(&cache, Disk::default());
        stats.add_file((&stat(1, OLD), BORN), HERE, &known, NOW);
        stats.save().unwrap();

        let touched = FileStat { ctime: NOW, ..stat(1, OLD) };
        let there = Place(8);
        let stats = StatCache::open(&cache, Disk::default());
        assert_eq!(stats.file(&touched), None);
        assert_eq!(stats.moved_file(&touched, HERE, || BORN), None);
        // Another file that was given the inode, size and mtime of this one.
        assert_eq!(stats.moved_file(&touched, there, || Some(NOW)), None);
        assert_eq!(stats.moved_file(&touched, there, || None), None);
        assert_eq!(stats.moved_file(&FileStat { mtime: NOW, ..touched }, there, || BORN), None);
        let moved = stats.moved_file(&touched, there, || BORN);
        assert_eq!(moved, Some(KnownFile { xattrs: true, ..known }));
        stats.save().unwrap();

        let stats = StatCache::open(&cache, Disk::default());
        assert!(stats.file(&touched).is_some());
        let again = FileStat { ctime: NOW.successor(), ..touched };
        assert_eq!(stats.moved_file(&again, there, || BORN), None);
    }
}
