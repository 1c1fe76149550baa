//! The stat cache: remembers files and folders that have not changed.
//!
//! There are two sets of [tables](crate::format::table) in `cache/`, keyed by inode and device. The
//! record of a file has its size, times and content id. The record of a folder has the hash of its
//! listing and the resulting tree. A user may delete the tables at any time; the cache discards a
//! damaged one.
//!
//! The cache trusts a file only while size, mtime and ctime are the recorded ones. A program can
//! set an mtime back but not a ctime. So snap reads a file again if its ctime changed, although a
//! rename or a `chmod` changes the ctime too. Neither the birth time nor the listing of the parent
//! folder proves that a file was only renamed, and Linux does not expose its change cookie to
//! programs (`docs/decisions/0004`). The earlier content of such a file is only a guess that
//! hashing confirms: [`StatCache::likely_content`].
//!
//! If a file was compared and is different, the cache knows only the content from which it differs.
//!
//! The cache trusts a file with one name only under that name in that folder. Some file systems
//! (FUSE, network) assign new inode numbers after each mount and keep no ctime; there, another file
//! could be mistaken for the recorded one.
//!
//! The cache records a file only if both times were safely in the past when snap read it. If a file
//! changes twice within one tick of the file system's clock, its stat is the same after both
//! changes (git calls it racily clean). The cache drops a record that a read does not confirm.
//!
//! | record | bytes | fields                                                  |
//! |--------|-------|---------------------------------------------------------|
//! | file   | 80    | inode u64, device u64 (both big-endian, the key), size u64, mtime i64 ns, ctime i64 ns, content id 32, last u64 (bit 0: has xattrs, bit 1: has holes, bit 2: the id is that of a chunk list, bit 3: the content differs from that id, others: hash of its place) |
//! | folder | 112   | inode u64, device u64 (the key), listing hash 16, full hash 16, tree id 32, files, folders, others, bytes: 4 × u64 |
//!
//! A record with zeros after its key is a tombstone: it hides the records of this key in older
//! tables.

mod tables;

use std::{ops::Range, path::Path};

use twox_hash::XxHash3_64;

use crate::{
    base::{
        id::{BlobId, ChunkListId, ContentId, ObjectId, TreeId},
        time::Time,
    },
    disk::{Disk, table::TableError},
    format::{
        table::{Shape, TablePurpose},
        tree::Totals,
    },
    local::{read::ReadMode, scan::FileStat, stat_cache::tables::Tables},
};

const KEY_BYTES: usize = 16;
const FILE_BYTES: usize = 80;
const FOLDER_BYTES: usize = 112;

const FILES: Shape =
    Shape { purpose: TablePurpose::StatFiles, key_bytes: KEY_BYTES, record_bytes: FILE_BYTES };
const FOLDERS: Shape =
    Shape { purpose: TablePurpose::StatFolders, key_bytes: KEY_BYTES, record_bytes: FOLDER_BYTES };

const FILE_ENDING: &str = "files";
const FOLDER_ENDING: &str = "folders";

/// Minimum age of the times of a recorded file. Linux stamps files with a clock that ticks every 1
/// to 10 ms.
const SLACK_NANOS: i64 = 20_000_000;

/// Minimum age on file systems that keep whole seconds (FAT: every other second).
const COARSE_SLACK_NANOS: i64 = 2_000_000_000;

/// The knowledge about the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownContent {
    /// The file has this content.
    Is(ContentId),
    /// The file has another content than this one.
    DiffersFrom(ContentId),
}

impl KnownContent {
    fn id(self) -> ContentId {
        match self {
            Self::Is(id) | Self::DiffersFrom(id) => id,
        }
    }
}

/// The cached facts about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFile {
    pub content: KnownContent,
    /// True if it has extended attributes.
    pub xattrs: bool,
    /// True if it has holes.
    pub sparse: bool,
}

impl KnownFile {
    /// Returns the content of the file, if it is known.
    pub fn id(&self) -> Option<ContentId> {
        match self.content {
            KnownContent::Is(id) => Some(id),
            KnownContent::DiffersFrom(_) => None,
        }
    }

    /// Returns true if the file has a content, or `None` if that is not known.
    pub fn has_content(&self, id: &ContentId) -> Option<bool> {
        match &self.content {
            KnownContent::Is(known) => Some(known == id),
            KnownContent::DiffersFrom(known) => (known == id).then_some(false),
        }
    }

    fn flags(&self) -> u64 {
        let differs = matches!(self.content, KnownContent::DiffersFrom(_));
        u64::from(self.xattrs)
            | u64::from(self.sparse) << 1
            | u64::from(self.content.id().is_chunked()) << 2
            | u64::from(differs) << 3
    }
}

/// The flag bits in the last field of a file record.
const FLAGS: u64 = 15;

const SIZE_AND_MTIME: Range<usize> = KEY_BYTES..32;
const CTIME: Range<usize> = 32..40;

fn last(record: &[u8]) -> u64 {
    u64::from_le_bytes(array(&record[72..80]))
}

fn known(record: &[u8]) -> KnownFile {
    let flags = last(record);
    let id = ObjectId::from_bytes(array(&record[40..72]));
    let id = match flags & 4 != 0 {
        true => ContentId::Chunked(ChunkListId::from_object(id)),
        false => BlobId::from_object(id).into(),
    };
    let content = match flags & 8 != 0 {
        true => KnownContent::DiffersFrom(id),
        false => KnownContent::Is(id),
    };
    KnownFile { content, xattrs: flags & 1 != 0, sparse: flags & 2 != 0 }
}

/// A hash of the folder and the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHash(u64);

impl NameHash {
    /// Hashes `name` and the folder with this stat.
    pub fn new(folder: &FileStat, name: &[u8]) -> Self {
        let seed = folder.inode ^ folder.device.rotate_left(32);
        Self(XxHash3_64::oneshot_with_seed(seed, name) & !FLAGS)
    }
}

/// The cached facts about a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFolder {
    /// Hash of the listing without the trees of subfolders.
    pub listing: [u8; 16],
    /// Hash of the listing and of the trees of the subfolders.
    pub full: [u8; 16],
    /// Tree that a commit made of the folder.
    pub tree: TreeId,
    /// Totals of everything below.
    pub totals: Totals,
}

/// The stat cache, in the folder `cache/` of a store.
#[derive(Debug)]
pub struct StatCache {
    files: Tables<FILE_BYTES>,
    folders: Tables<FOLDER_BYTES>,
}

impl StatCache {
    /// Opens the cache in the folder `dir`. Skips tables that cannot be read.
    pub fn open(dir: &Path, disk: Disk) -> Self {
        Self {
            files: Tables::open(dir, &disk, FILES, FILE_ENDING),
            folders: Tables::open(dir, &disk, FOLDERS, FOLDER_ENDING),
        }
    }

    /// Makes an empty cache. Saving it replaces the cache in `dir`.
    pub fn anew(dir: &Path, disk: Disk) -> Self {
        Self {
            files: Tables::anew(dir, &disk, FILES, FILE_ENDING),
            folders: Tables::anew(dir, &disk, FOLDERS, FOLDER_ENDING),
        }
    }

    /// Opens the cache in `dir`; makes an empty one for [`ReadMode::All`].
    pub fn for_reading(reading: ReadMode, dir: &Path, disk: Disk) -> Self {
        match reading {
            ReadMode::Changed => Self::open(dir, disk),
            ReadMode::All => Self::anew(dir, disk),
        }
    }

    /// Looks up a file with exactly this stat, under any name.
    pub fn file(&self, stat: &FileStat) -> Option<KnownFile> {
        self.file_record(stat).map(known)
    }

    /// Looks up a file with exactly this stat at this place. Ignores the place of a file with
    /// several names.
    pub fn file_at(&self, stat: &FileStat, place: NameHash) -> Option<KnownFile> {
        let record = self.file_record(stat)?;
        let is_its_place = stat.links > 1 || last(record) & !FLAGS == place.0;
        is_its_place.then(|| known(record))
    }

    /// Returns the likely content of a file with the recorded size and mtime, even if the ctime
    /// differs because of a rename or a change of attributes. Only a read of the file proves the
    /// content.
    pub fn likely_content(&self, stat: &FileStat) -> Option<ContentId> {
        let wanted = file_record(stat, &ObjectId::from_bytes([0; 32]), 0)?;
        let record = self.files.find(&wanted[..KEY_BYTES])?;
        (record[SIZE_AND_MTIME] == wanted[SIZE_AND_MTIME]).then(|| known(record).id())?
    }

    fn file_record(&self, stat: &FileStat) -> Option<&[u8]> {
        let wanted = file_record(stat, &ObjectId::from_bytes([0; 32]), 0)?;
        let record = self.files.find(&wanted[..KEY_BYTES])?;
        let is_same =
            record[SIZE_AND_MTIME] == wanted[SIZE_AND_MTIME] && record[CTIME] == wanted[CTIME];
        is_same.then_some(record)
    }

    /// Records a file that had this stat before and after a read that began at `read_at`. If its
    /// times are too recent, drops its record instead.
    pub fn add_file(&self, stat: &FileStat, place: NameHash, known: &KnownFile, read_at: Time) {
        let record = is_settled(stat, read_at)
            .then(|| file_record(stat, &known.content.id().object(), known.flags() | place.0))
            .flatten();
        match record {
            Some(record) => self.files.add(record),
            None => self.forget_file(stat),
        }
    }

    /// Drops the record of the file with this inode.
    pub fn forget_file(&self, stat: &FileStat) {
        self.files.forget(&key(stat.device, stat.inode));
    }

    /// Drops the record of the folder with this inode.
    pub fn forget_folder(&self, stat: &FileStat) {
        self.folders.forget(&key(stat.device, stat.inode));
    }

    /// Looks up a folder.
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

    /// Records a folder. All files below it must be [settled](is_settled).
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
        self.folders.add(record);
    }

    /// Deletes the cache of a store that lacks objects which the cache names. Ignores tables that
    /// cannot be removed.
    pub fn clear(dir: &Path, disk: &Disk) {
        for ending in [FILE_ENDING, FOLDER_ENDING] {
            for path in tables::table_files(dir, ending).into_values() {
                let _ = disk.remove(&path);
            }
        }
    }

    /// Writes the added records. Their commit must be durable already: a later commit uses the tree
    /// of a cached folder without looking below it.
    ///
    /// # Errors
    /// [`TableError`] if the cache cannot be written; nothing is lost.
    pub fn save(self) -> Result<(), TableError> {
        self.files.save()?;
        self.folders.save()
    }
}

/// Returns true if the times of a file are safely in the past at `read_at`.
pub fn is_settled(stat: &FileStat, read_at: Time) -> bool {
    // A program can set an mtime of whole seconds, but the ctime always comes from the clock.
    let slack = if stat.ctime.nanos == 0 { COARSE_SLACK_NANOS } else { SLACK_NANOS };
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

/// Encodes a record; returns `None` if a time does not fit.
fn file_record(stat: &FileStat, id: &ObjectId, flags: u64) -> Option<[u8; FILE_BYTES]> {
    let mut record = [0; FILE_BYTES];
    record[..16].copy_from_slice(&key(stat.device, stat.inode));
    record[16..24].copy_from_slice(&stat.size.to_le_bytes());
    record[24..32].copy_from_slice(&stat.mtime.as_nanos()?.to_le_bytes());
    record[32..40].copy_from_slice(&stat.ctime.as_nanos()?.to_le_bytes());
    record[40..72].copy_from_slice(id.as_bytes());
    record[72..80].copy_from_slice(&flags.to_le_bytes());
    Some(record)
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

#[cfg(test)]
mod tests;
