//! Listing a folder of the user's: names and stats, sorted by name bytes.
//!
//! One `getdents64` for a few hundred names and one `fstatat` for each, both
//! relative to the open folder, so no path is looked up twice. Names and stats
//! lie in two flat vectors: a folder of a million entries takes about 150 MB,
//! not a million allocations.

use std::{
    io,
    mem::MaybeUninit,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
};

use rayon::prelude::*;
use rustix::fs::{AtFlags, FileType, RawDir, statat};

use crate::base::time::Time;

/// Room for names that one `getdents64` fills.
const BUFFER_BYTES: usize = 32 << 10;

/// Larger folders are stat'ed by several threads, so many entries at a time.
const STAT_BATCH: usize = 1024;

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Folder,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// What the system knows about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// What it is.
    pub kind: FileKind,
    /// The 12 mode bits.
    pub mode: u16,
    /// Number of names.
    pub links: u32,
    /// Device it lies on.
    pub device: u64,
    /// Inode on that device.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Blocks of 512 bytes that it occupies.
    pub blocks: u64,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// For devices: which.
    pub special: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

impl FileStat {
    /// Takes what `fstat` and its kin return. `None` for a kind that Linux
    /// does not have.
    pub fn from_raw(raw: &rustix::fs::Stat) -> Option<Self> {
        let kind = file_kind(FileType::from_raw_mode(raw.st_mode))?;
        Some(Self {
            kind,
            mode: (raw.st_mode & 0o7777) as u16,
            links: u32::try_from(raw.st_nlink).unwrap_or(u32::MAX),
            device: raw.st_dev,
            inode: raw.st_ino,
            size: u64::try_from(raw.st_size).unwrap_or(0),
            blocks: u64::try_from(raw.st_blocks).unwrap_or(0),
            uid: raw.st_uid,
            gid: raw.st_gid,
            special: raw.st_rdev,
            mtime: Time { secs: raw.st_mtime, nanos: raw.st_mtime_nsec as u32 },
            ctime: Time { secs: raw.st_ctime, nanos: raw.st_ctime_nsec as u32 },
        })
    }

    /// The stat of an open file.
    ///
    /// # Errors
    /// As the system says.
    pub fn of_fd(fd: BorrowedFd<'_>) -> io::Result<Self> {
        known(&rustix::fs::fstat(fd)?)
    }

    /// The stat of a name in a folder; symlinks are not followed.
    ///
    /// # Errors
    /// As the system says.
    pub fn of_name(folder: BorrowedFd<'_>, name: &std::ffi::OsStr) -> io::Result<Self> {
        known(&statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The stat of a path; a symlink at its end is not followed.
    ///
    /// # Errors
    /// As the system says.
    pub fn of_path(path: &std::path::Path) -> io::Result<Self> {
        Self::of_name(rustix::fs::CWD.as_fd(), path.as_os_str())
    }

    /// Whether content and attributes are surely the same as when `other` was
    /// taken of the same file.
    pub fn same_state(&self, other: &Self) -> bool {
        (self.device, self.inode, self.size, self.mtime, self.ctime)
            == (other.device, other.inode, other.size, other.mtime, other.ctime)
    }

    /// Whether fewer blocks are occupied than the length needs.
    pub fn may_have_holes(&self) -> bool {
        self.kind == FileKind::File && self.blocks.saturating_mul(512) < self.size
    }
}

fn file_kind(kind: FileType) -> Option<FileKind> {
    match kind {
        FileType::RegularFile => Some(FileKind::File),
        FileType::Directory => Some(FileKind::Folder),
        FileType::Symlink => Some(FileKind::Symlink),
        FileType::Fifo => Some(FileKind::Fifo),
        FileType::Socket => Some(FileKind::Socket),
        FileType::CharacterDevice => Some(FileKind::CharDevice),
        FileType::BlockDevice => Some(FileKind::BlockDevice),
        FileType::Unknown => None,
    }
}

fn known(raw: &rustix::fs::Stat) -> io::Result<FileStat> {
    FileStat::from_raw(raw).ok_or_else(|| io::Error::other("unknown kind of file"))
}

/// One entry of a [`Listing`].
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    name_start: u32,
    name_bytes: u16,
    /// What the system knows about it.
    pub stat: FileStat,
}

/// The entries of a folder.
#[derive(Debug, Default)]
pub struct Listing {
    names: Vec<u8>,
    /// Sorted by name bytes.
    pub entries: Vec<Listed>,
    /// Names that could not be stat'ed, and why.
    pub failed: Vec<(Vec<u8>, io::Error)>,
}

impl Listing {
    /// Lists the open folder `fd`. An entry that vanishes meanwhile is left
    /// out; one that cannot be stat'ed is in [`Listing::failed`].
    ///
    /// # Errors
    /// As the system says of the folder itself.
    pub fn read(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let (names, spans) = read_names(fd)?;
        let mut listing =
            Self { names, entries: Vec::with_capacity(spans.len()), failed: Vec::new() };
        if spans.len() <= 2 * STAT_BATCH {
            for span in spans {
                let result = listing.stat(fd, &span);
                listing.keep(span, result);
            }
        } else {
            for group in spans.chunks(64 * STAT_BATCH) {
                let results: Vec<_> = group
                    .par_iter()
                    .with_min_len(STAT_BATCH)
                    .map(|span| listing.stat(fd, span))
                    .collect();
                for (span, result) in group.iter().zip(results) {
                    listing.keep(span.clone(), result);
                }
            }
        }
        Ok(listing)
    }

    fn stat(&self, fd: BorrowedFd<'_>, span: &Range<u32>) -> io::Result<FileStat> {
        let name = &self.names[span.start as usize..=span.end as usize];
        let name = std::ffi::CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        known(&statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn keep(&mut self, span: Range<u32>, result: io::Result<FileStat>) {
        match result {
            Ok(stat) => self.entries.push(Listed {
                name_start: span.start,
                name_bytes: (span.end - span.start) as u16,
                stat,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.failed
                    .push((self.names[span.start as usize..span.end as usize].to_vec(), error));
            }
        }
    }

    /// The name of one of its entries.
    pub fn name(&self, entry: &Listed) -> &[u8] {
        let start = entry.name_start as usize;
        &self.names[start..start + usize::from(entry.name_bytes)]
    }
}

/// All names, each with a NUL behind it, and where each lies; sorted.
fn read_names(fd: impl AsFd) -> io::Result<(Vec<u8>, Vec<Range<u32>>)> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    let mut names: Vec<u8> = Vec::new();
    let mut spans: Vec<Range<u32>> = Vec::new();
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let too_many = || io::Error::other("a folder with more than 4 GiB of names");
        let start = u32::try_from(names.len()).map_err(|_| too_many())?;
        names.extend_from_slice(name.to_bytes_with_nul());
        let end = u32::try_from(names.len() - 1).map_err(|_| too_many())?;
        spans.push(start..end);
    }
    let name = |span: &Range<u32>| &names[span.start as usize..span.end as usize];
    spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    Ok((names, spans))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_sorted_by_bytes_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a", "a.txt", "Z", "ä"] {
            fs_err::write(dir.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("/nowhere", dir.path().join("link")).unwrap();
        let file = fs_err::File::open(dir.path()).unwrap();
        let listing = Listing::read(file.as_fd()).unwrap();
        let names: Vec<_> = listing.entries.iter().map(|e| listing.name(e).to_vec()).collect();
        let expected: [&[u8]; 6] = [b"Z", b"a", b"a.txt", b"b", b"link", "ä".as_bytes()];
        assert_eq!(names, expected);
        assert_eq!(listing.entries[4].stat.kind, FileKind::Symlink);
        assert_eq!(listing.entries[2].stat.size, 5);
    }

    #[test]
    fn a_large_folder_is_listed_whole() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..5000 {
            fs_err::write(dir.path().join(format!("{n:05}")), "").unwrap();
        }
        let file = fs_err::File::open(dir.path()).unwrap();
        let listing = Listing::read(file.as_fd()).unwrap();
        assert_eq!(listing.entries.len(), 5000);
        assert!(
            listing.entries.windows(2).all(|two| listing.name(&two[0]) < listing.name(&two[1]))
        );
    }
}
