//! Compares existing entries with those of the snapshot.

use std::{fs::File, io, os::fd::AsFd};

use rustix::fs::{FileType, Stat, fstat, makedev};

use crate::{
    base::{id::ContentId, name::EntryName},
    format::tree::{Entry, EntryKind, Metadata, Xattr},
    local::{
        attributes::{
            AttributeTarget, CAPABILITY, ExpectedFile, FileCapability, XattrTarget, apply,
            is_removable, is_settable, read_entry_xattrs, read_xattrs,
        },
        contain::{FolderPath, OpenFolder},
        cut::identify,
        holes,
        scan::FileStat,
    },
    ops::{
        file_content::equals,
        restore::{
            Existing,
            job::{OwnerRights, RestoreJob, owner_of},
            visit::FileProof,
        },
    },
    store::FileContent,
};

/// The result of comparing an entry of the snapshot with the existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparedState {
    /// No entry has this name.
    Absent,
    /// No difference was found. With [`FileProof::Kind`], only the kinds were compared, and with
    /// [`FileProof::Content`], no attributes.
    Same,
    /// The content is equal; the attributes differ and will be corrected.
    Attributes,
    /// The content is equal; the attributes differ and are kept.
    KeepsAttributes,
    /// The content or the kind differs.
    Differs,
}

impl ComparedState {
    /// Returns true if the existing entry has the kind and the content of the snapshot.
    pub(super) fn has_content(self) -> bool {
        !matches!(self, Self::Absent | Self::Differs)
    }
}

/// Selects what happens to attributes that differ from the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributePolicy {
    /// Keeps them. A different mtime alone then does not count as a difference.
    Keep,
    /// Replaces them.
    Replace,
}

impl AttributePolicy {
    /// Returns the policy for existing entries.
    pub(super) fn of(job: &RestoreJob<'_>) -> Self {
        match job.options.existing {
            Existing::Stop => Self::Keep,
            Existing::Overwrite => Self::Replace,
        }
    }

    /// Returns the policy for an entry in a folder with the policy `self`. An unfinished
    /// folder may contain entries that the earlier restore created without attributes.
    /// Files are not among them, since a file gets its attributes before its name.
    fn of_entry(self, job: &RestoreJob<'_>, kind: &EntryKind) -> Self {
        if let EntryKind::File { .. } = kind { Self::of(job) } else { self }
    }
}

/// Returns the file type of a stored kind.
pub(in crate::ops) fn file_type(kind: &EntryKind) -> FileType {
    match kind {
        EntryKind::File { .. } => FileType::RegularFile,
        EntryKind::Folder { .. } => FileType::Directory,
        EntryKind::Symlink { .. } => FileType::Symlink,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharDevice { .. } => FileType::CharacterDevice,
        EntryKind::BlockDevice { .. } => FileType::BlockDevice,
    }
}

impl RestoreJob<'_> {
    /// Compares an entry with the existing one. A file that cannot be read counts as
    /// different.
    pub(super) fn compare(
        &self,
        folder: &OpenFolder,
        entry: &Entry,
        stat: &Stat,
        proof: FileProof,
        policy: AttributePolicy,
    ) -> ComparedState {
        if FileType::from_raw_mode(stat.st_mode) != file_type(&entry.kind) {
            return ComparedState::Differs;
        }
        if proof == FileProof::Kind {
            return ComparedState::Same;
        }
        let same = match &entry.kind {
            EntryKind::File { size, id } => {
                let content = FileContent { id: *id, bytes: *size };
                u64::try_from(stat.st_size) == Ok(*size)
                    && (proof == FileProof::Compared
                        || self.has_content(folder, &entry.name, stat, &content).unwrap_or(false))
            }
            EntryKind::Symlink { target } => {
                folder.read_link(&entry.name).is_ok_and(|there| there[..] == target[..])
            }
            EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => {
                stat.st_rdev == makedev(device.major, device.minor)
            }
            EntryKind::Folder { .. } | EntryKind::Fifo | EntryKind::Socket => true,
        };
        if !same {
            return ComparedState::Differs;
        }
        if proof == FileProof::Content {
            return ComparedState::Same;
        }
        let is_shared = is_wrongly_linked(entry, stat);
        if is_shared && self.options.existing == Existing::Overwrite {
            return ComparedState::Differs;
        }
        let policy = policy.of_entry(self, &entry.kind);
        let xattrs = read_entry_xattrs(folder, &entry.name);
        let agrees = !self.holes_differ(folder, entry, stat)
            && (policy == AttributePolicy::Keep || time_agrees(entry, stat))
            && self.attributes_agree(&entry.metadata, stat, policy, xattrs);
        match (agrees, policy) {
            (true, _) => ComparedState::Same,
            (false, AttributePolicy::Replace) => ComparedState::Attributes,
            (false, AttributePolicy::Keep) => ComparedState::KeepsAttributes,
        }
    }

    /// Returns true if the attributes of an existing folder are right, except its mtime,
    /// which any change in the folder alters.
    pub(super) fn folder_agrees(
        &self,
        folder: &OpenFolder,
        metadata: &Metadata,
    ) -> io::Result<bool> {
        let stat = fstat(folder)?;
        let xattrs = folder.readable().and_then(|fd| read_xattrs(XattrTarget::Fd(fd.as_fd())));
        Ok(self.attributes_agree(metadata, &stat, AttributePolicy::of(self), xattrs))
    }

    /// Returns true if owner, mode and extended attributes are right. With
    /// [`AttributePolicy::Keep`], compares only attributes that this user could set.
    fn attributes_agree(
        &self,
        metadata: &Metadata,
        stat: &Stat,
        policy: AttributePolicy,
        xattrs: io::Result<Vec<Xattr>>,
    ) -> bool {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_folder = kind == FileType::Directory;
        let OwnerRights { mut owner, mut mode, capability } =
            self.owner_rights(metadata, is_folder, Some(stat));
        let (mut wanted, mut existing) = (metadata.xattrs.clone(), xattrs);
        if capability == FileCapability::Drop {
            wanted.retain(|xattr| *xattr.name != *CAPABILITY);
        }
        if policy == AttributePolicy::Keep {
            if owner.is_some_and(|owner| !self.may_own(stat.st_uid, owner)) {
                (owner, mode) = (None, mode & !0o6000);
            }
            wanted.retain(|xattr| is_settable(&xattr.name));
            if let Ok(existing) = &mut existing {
                existing.retain(|xattr| is_settable(&xattr.name));
            }
        }
        owner.is_none_or(|owner| owner == owner_of(stat))
            && (kind == FileType::Symlink || stat.st_mode & 0o7777 == u32::from(mode))
            && xattrs_agree(&wanted, existing)
    }

    /// Returns true if the stat cache or the file's bytes prove that it has the content. The
    /// mtime proves nothing.
    fn has_content(
        &self,
        folder: &OpenFolder,
        name: &EntryName,
        stat: &Stat,
        wanted: &FileContent,
    ) -> io::Result<bool> {
        if let Some(known) = self.known_content(stat) {
            return Ok(known == wanted.id);
        }
        // Before a different file is replaced, its id shows whether a commit has it.
        if self.asks_about_edits() {
            return Ok(self.content_of(folder, name, stat)? == wanted.id);
        }
        let Some(stat) = FileStat::from_raw(stat) else { return Ok(false) };
        let file = folder.open_file(name)?;
        equals(self.store, &file, &stat, wanted, &|| self.is_halted())
    }

    /// Returns the content's id of a file, if the stat cache or this run knows it.
    fn known_content(&self, stat: &Stat) -> Option<ContentId> {
        let known = self.options.known.and_then(|known| known(stat));
        known.or_else(|| self.hashed_before(stat))
    }

    /// Returns the content's id of a file, from the stat cache or by hashing the file.
    pub(super) fn content_of(
        &self,
        folder: &OpenFolder,
        name: &EntryName,
        stat: &Stat,
    ) -> io::Result<ContentId> {
        if let Some(known) = self.known_content(stat) {
            return Ok(known);
        }
        let file_stat = FileStat::from_raw(stat).ok_or(io::ErrorKind::InvalidInput)?;
        let file = folder.open_file(name)?;
        let (id, _) = identify(&file, &file_stat, &|| self.is_halted())?;
        self.note_hashed(stat, id);
        Ok(id)
    }

    /// Returns true if either the file or its entry has holes, but not both. Punching holes could
    /// destroy bytes that another program writes at that moment, so this counts only if files may
    /// be overwritten.
    fn holes_differ(&self, folder: &OpenFolder, entry: &Entry, stat: &Stat) -> bool {
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        // A snapshot without times does not record holes either.
        let counts = self.options.existing == Existing::Overwrite && entry.metadata.mtime.is_some();
        let Some(stat) = FileStat::from_raw(stat).filter(|_| is_file && counts) else {
            return false;
        };
        let has_holes = || {
            let file = folder.open_file(&entry.name);
            file.is_ok_and(|file| holes::has_holes(file.as_fd(), stat.size))
        };
        entry.metadata.sparse != (stat.may_have_holes() && has_holes())
    }

    /// Corrects the attributes of an entry whose content is right.
    pub(super) fn repair_entry(
        &self,
        folder: &OpenFolder,
        at: &FolderPath,
        entry: &Entry,
        stat: &Stat,
    ) {
        if self.holes_differ(folder, entry, stat)
            && let Err(error) = repair_holes(folder, entry)
        {
            (self.refusals(at, Some(&entry.name)))("holes", error);
        }
        let attributes = self.attributes(&entry.metadata, false, Some(stat));
        let target = match entry.kind {
            EntryKind::Symlink { .. } => AttributeTarget::Symlink(folder, &entry.name),
            _ => {
                let kind = FileType::from_raw_mode(stat.st_mode);
                let expected = ExpectedFile { kind, inode: Some(stat.st_ino) };
                AttributeTarget::Entry(folder, &entry.name, expected)
            }
        };
        apply(target, &attributes, &mut *self.refusals(at, Some(&entry.name)));
    }
}

/// Returns true if a file has several names but only one in the snapshot. A reproducible snapshot,
/// which has no times, does not record names.
fn is_wrongly_linked(entry: &Entry, stat: &Stat) -> bool {
    let Metadata { link, mtime, .. } = &entry.metadata;
    matches!(entry.kind, EntryKind::File { .. })
        && stat.st_nlink > 1
        && link.is_none()
        && mtime.is_some()
}

/// Returns true if the mtime is right, or if the snapshot records none.
fn time_agrees(entry: &Entry, stat: &Stat) -> bool {
    entry.metadata.mtime.is_none_or(|mtime| {
        (mtime.secs, u64::from(mtime.nanos)) == (stat.st_mtime, stat.st_mtime_nsec)
    })
}

/// Adds or removes holes to match the entry.
fn repair_holes(folder: &OpenFolder, entry: &Entry) -> io::Result<()> {
    let EntryKind::File { size, .. } = entry.kind else { return Ok(()) };
    let file = File::from(folder.open_for_update(&entry.name)?);
    if entry.metadata.sparse { holes::punch(&file, size) } else { holes::fill(&file, size) }
}

/// Returns true if the extended attributes are right. Attributes that are never removed
/// may exist in addition.
fn xattrs_agree(wanted: &[Xattr], existing: io::Result<Vec<Xattr>>) -> bool {
    let Ok(existing) = existing else { return wanted.is_empty() };
    wanted.iter().all(|xattr| existing.contains(xattr))
        && existing.iter().all(|xattr| wanted.contains(xattr) || !is_removable(&xattr.name))
}
