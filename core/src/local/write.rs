//! Writes a file atomically: whole or not at all.
//!
//! A [`Draft`] is a file under a temporary name in its target folder. A restore writes content and
//! attributes to the draft, then renames it to its final name. Dropping a draft before the rename
//! removes its file. The next restore into the folder removes the drafts of a killed process
//! ([`sweep`]).
//!
//! A restore syncs nothing: when run again, it finds missing content by hashing.
//!
//! A small file costs six system calls: create, lock, write, set the time, close, rename. A restore
//! sets owner and mode only if they differ from those of a new file, see [`Inherited`].

use std::{
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::{
    fs::{FileType, FlockOperation, flock, fstat, ftruncate},
    io::Errno,
};

use crate::{
    base::{name::EntryName, time::Time},
    disk::scratch,
    disk::{DiskStep, Renamed, take_step},
    local::{
        attributes::{
            AttributeTarget, Attributes, Extra, Refused, XattrTarget, apply, read_xattrs,
        },
        contain::{FolderNames, OpenFolder},
        holes::data_in,
        owners::OwnerIds,
    },
};

/// Prefix of temporary names; 24 hex digits follow.
pub const TEMPORARY_PREFIX: &[u8] = b".snap-tmp-";

/// The owner and mode that a new file in a folder gets, determined once by creating one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// The owner. The folder or the mount may determine the group.
    pub owner: OwnerIds,
    /// Mode bits that the umask clears.
    pub umask: u16,
}

impl Inherited {
    /// Creates a file in `folder`, reads its stat and removes it. Returns `None` if new files there
    /// get an ACL; the caller must then check the attributes of each file.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn probe(folder: &OpenFolder) -> io::Result<Option<Self>> {
        // A file with a name would change the folder's modification time.
        let draft;
        let nameless = folder.create_nameless(0o777);
        let fd = match &nameless {
            Ok(fd) => fd.as_fd(),
            Err(_) => {
                draft = Draft::create(folder, 0o777)?;
                draft.file.as_fd()
            }
        };
        let stat = fstat(fd)?;
        let has_acl = read_xattrs(XattrTarget::Fd(fd))?
            .iter()
            .any(|xattr| xattr.name.starts_with(b"system.posix_acl_"));
        let umask = u16::try_from(0o777 & !stat.st_mode).unwrap_or(0o777);
        let owner = OwnerIds { uid: stat.st_uid, gid: stat.st_gid };
        Ok((!has_acl).then_some(Self { owner, umask }))
    }
}

/// Selects whether a new file may replace an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The draft must not replace an existing entry.
    New,
    /// The draft replaces an existing entry that is not a folder.
    Replace,
}

/// The name and attributes of a file to write.
#[derive(Clone, Copy, Debug)]
pub struct FileSpec<'a> {
    pub name: &'a EntryName,
    pub attributes: Attributes<'a>,
    /// True if blocks of zeros become holes.
    pub sparse: bool,
    /// The owner and mode of new files in this folder, if known.
    pub inherited: Option<Inherited>,
    /// Selects whether the file may replace an existing entry.
    pub placement: Placement,
}

impl FileSpec<'_> {
    /// Returns true if a new file in the folder already has all attributes but its time.
    fn is_plain(&self) -> bool {
        let Some(inherited) = self.inherited else { return false };
        let Attributes { owner, mode, xattrs, .. } = self.attributes;
        xattrs.is_empty()
            && mode.is_some_and(|mode| mode & (inherited.umask | 0o7000) == 0)
            && owner.is_none_or(|owner| owner == inherited.owner)
    }

    /// Creates the file under a temporary name. Other users cannot read it until its owner and
    /// attributes are set.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn start<'f>(&self, folder: &'f OpenFolder) -> io::Result<Draft<'f>> {
        let mode = self.attributes.mode.filter(|_| self.is_plain());
        let mut draft = Draft::create(folder, mode.unwrap_or(0o600))?;
        draft.sparse = self.sparse;
        Ok(draft)
    }

    /// Applies the attributes and renames the draft to its final name.
    ///
    /// # Errors
    /// Returns the error of the system call; the draft is removed.
    pub fn finish(&self, draft: Draft<'_>, refused: &mut Refused<'_>) -> io::Result<Renamed> {
        // A sparse file may end with a hole.
        if draft.sparse {
            ftruncate(&draft.file, draft.bytes)?;
        }
        let inherited = self.inherited.map(|inherited| inherited.owner);
        let attributes = Attributes {
            owner: self.attributes.owner.filter(|owner| inherited != Some(*owner)),
            mode: self.attributes.mode.filter(|_| !self.is_plain()),
            extra: if self.inherited.is_none() { Extra::Remove } else { Extra::Keep },
            ..self.attributes
        };
        apply(AttributeTarget::Fd(draft.file.as_fd()), &attributes, refused);
        draft.place(self.name, self.placement)
    }
}

/// A file under a temporary name; removed on drop.
#[derive(Debug)]
pub struct Draft<'f> {
    folder: &'f OpenFolder,
    temporary: EntryName,
    file: File,
    bytes: u64,
    sparse: bool,
    placed: bool,
}

impl<'f> Draft<'f> {
    fn create(folder: &'f OpenFolder, mode: u16) -> io::Result<Self> {
        loop {
            let temporary = temporary_name();
            match folder.create_file(&temporary, mode) {
                Ok(fd) => {
                    // The lock shows other processes that the draft is in use. On a file system
                    // without locks, only the age of the draft shows that.
                    let _ = flock(&fd, FlockOperation::NonBlockingLockShared);
                    let file = File::from(fd);
                    return Ok(Self {
                        folder,
                        temporary,
                        file,
                        bytes: 0,
                        sparse: false,
                        placed: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the descriptor of the file.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Appends `bytes`; in a sparse file, zero blocks become holes.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_at(bytes, self.bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes `bytes` at an offset; in a sparse file, zero blocks become holes. Several threads may
    /// write different ranges at once. The caller [adopts](Draft::adopt) the length.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn write_at(&self, bytes: &[u8], start: u64) -> io::Result<()> {
        take_step(DiskStep::Write { bytes: bytes.len() }, self.temporary.as_os_str())?;
        if !self.sparse {
            return self.file.write_all_at(bytes, start);
        }
        data_in(bytes, start).try_for_each(|data| {
            let at = start + data.start as u64;
            self.file.write_all_at(&bytes[data], at)
        })
    }

    /// Returns true if blocks of zeros become holes.
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// Sets the number of written bytes, after the caller has filled the file by other means.
    pub fn adopt(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Truncates the file, to start again.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn clear(&mut self) -> io::Result<()> {
        self.bytes = 0;
        io::Seek::rewind(&mut self.file)?;
        Ok(ftruncate(&self.file, 0)?)
    }

    fn place(mut self, name: &EntryName, placement: Placement) -> io::Result<Renamed> {
        let renamed = match placement {
            Placement::New => self.folder.rename_new(&self.temporary, name)?,
            Placement::Replace => {
                self.folder.replace(&self.temporary, name)?;
                Renamed::Done
            }
        };
        self.placed = renamed == Renamed::Done;
        Ok(renamed)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // If the removal fails, the next restore removes the file.
            let _ = self.folder.remove(&self.temporary);
        }
    }
}

/// Returns a name that no other process generates: the prefix, 16 unique hex digits, and 8 digits
/// of their checksum.
pub fn temporary_name() -> EntryName {
    static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // An odd multiplier maps different counts to different values, and spreads them.
    let count = COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut name = [0; TEMPORARY_PREFIX.len() + 24];
    let (prefix, digits) = name.split_at_mut(TEMPORARY_PREFIX.len());
    prefix.copy_from_slice(TEMPORARY_PREFIX);
    let unique = START.wrapping_add(count);
    let encoded = hex::encode_to_slice(unique.to_be_bytes(), &mut digits[..16])
        .and_then(|()| hex::encode_to_slice(name_sum(unique).to_be_bytes(), &mut digits[16..]));
    encoded.expect("two digits for each byte");
    EntryName::new(&name).expect("no slash and no NUL in it")
}

/// Returns the checksum of the unique part of a temporary name, so that a user's file with a
/// similar name is not mistaken for a draft.
fn name_sum(unique: u64) -> u32 {
    let mut text = TEMPORARY_PREFIX.to_vec();
    text.extend_from_slice(&unique.to_be_bytes());
    scratch::name_sum(&text)
}

/// Returns true if snap gave this name to a temporary file or folder beside the user's files: a
/// draft, an incomplete output file, or a scratch folder.
pub fn is_temporary(name: &[u8]) -> bool {
    is_draft(name)
        || [scratch::PREFIX, scratch::PART_PREFIX]
            .iter()
            .any(|what| scratch::is_unique_name(name, what))
}

/// Returns true if a name has the form that [`temporary_name`] generates.
fn is_draft(name: &[u8]) -> bool {
    let Some(digits) = name.strip_prefix(TEMPORARY_PREFIX).filter(|digits| digits.len() == 24)
    else {
        return false;
    };
    let is_lower = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let (mut unique, mut sum) = ([0; 8], [0; 4]);
    digits.iter().all(is_lower)
        && hex::decode_to_slice(&digits[..16], &mut unique).is_ok()
        && hex::decode_to_slice(&digits[16..], &mut sum).is_ok()
        && name_sum(u64::from_be_bytes(unique)) == u32::from_be_bytes(sum)
}

/// Removes drafts that a killed restore left in `folder`: files with a temporary name that have not
/// changed since `before` and that no process has locked.
///
/// # Errors
/// Returns the error of the system call.
pub fn sweep(folder: &OpenFolder, listing: &FolderNames, before: Time) -> io::Result<()> {
    for (name, _) in listing.iter().filter(|(name, _)| is_draft(name)) {
        let Ok(name) = EntryName::new(name) else { continue };
        let Some(stat) = folder.stat(&name)? else { continue };
        let changed = Time { secs: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 };
        let is_left = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => folder.open_file(&name).is_ok_and(|file| {
                !matches!(
                    flock(&file, FlockOperation::NonBlockingLockExclusive),
                    Err(Errno::WOULDBLOCK)
                )
            }),
            FileType::Directory => false,
            _ => true,
        };
        if is_left && changed < before {
            folder.remove(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
