//! Reads the contents of both sides of a change, for a comparison line by line.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use crate::{
    base::{id::ContentId, limits, observe::Observer},
    local::{
        read::{open_file, read_unsized},
        scan::{FileKind, FileStat},
    },
    ops::{
        cat::{self, CatError},
        diff::{Change, ChangeSide, ComparedKind, DiffError, New, disk_paths::DiskPaths},
    },
    store::{ContentReader, FileContent, Store},
};

/// The content of one side of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SideContent {
    /// The bytes of a file, or the target of a symlink.
    Bytes(Vec<u8>),
    /// The content is larger than the reader's limit.
    TooLarge,
    /// The entry is neither a file nor a symlink, or this side does not exist.
    None,
}

/// Number of bytes by which a file may grow between its comparison and the reading of its content.
const GROWTH_BYTES: u64 = 64 << 10;

/// Reads the contents of both sides of a comparison.
#[derive(Debug)]
pub struct SideReader<'a> {
    store: &'a Store,
    /// The files on the new side, unless that side is a tree.
    disk_paths: Option<DiskPaths>,
    limit_bytes: u64,
    /// Contents that were prefetched and not yet requested.
    ahead: Mutex<HashMap<ContentId, Vec<u8>>>,
    /// True if a content was larger than the limit.
    has_left_out: AtomicBool,
}

impl<'a> SideReader<'a> {
    /// Creates a reader for contents of up to `limit_bytes` each.
    ///
    /// # Errors
    /// [`DiffError::Folder`] if the compared folder cannot be opened.
    pub fn new(store: &'a Store, new: &New, limit_bytes: u64) -> Result<Self, DiffError> {
        let disk_paths = match new {
            New::Tree(_) => None,
            New::Folder(folder) => Some(DiskPaths::open(&folder.files)?),
        };
        let (ahead, has_left_out) = (Mutex::default(), AtomicBool::default());
        Ok(Self { store, disk_paths, limit_bytes, ahead, has_left_out })
    }

    /// Prefetches the small contents of these changes in one batch, so that each frame is
    /// decompressed once. Keeps each content until it is requested.
    pub fn read_ahead<'c>(&self, changes: impl Iterator<Item = &'c Change>) {
        let mut batch = Vec::new();
        for change in changes.filter(|change| {
            change.old.is_none() || change.new.is_none() || change.differences().content
        }) {
            let new = if self.disk_paths.is_some() { None } else { change.new.as_ref() };
            for item in [change.old.as_ref(), new].into_iter().flatten() {
                if let ComparedKind::File { size: bytes, id: Some(id) } = item.what
                    && bytes <= limits::WHOLE_FILE_BYTES.min(self.limit_bytes)
                {
                    batch.push(FileContent { id, bytes });
                }
            }
        }
        batch.sort_unstable_by_key(|content| content.id);
        batch.dedup();
        self.store.prefetch_contents(&mut batch.iter().map(|content| content.id));
        ContentReader::new(self.store).read_batch(
            &batch,
            0,
            &|| Some(()),
            &|(), index, content| {
                // Ignore an error: `stored` reads the content again and returns the error.
                if let Ok(bytes) = content {
                    self.ahead.lock().insert(batch[index].id, bytes.to_vec());
                }
            },
        );
    }

    /// Drops prefetched contents that were not requested.
    pub fn forget(&self) {
        self.ahead.lock().clear();
    }

    /// Returns the old content of a change.
    ///
    /// # Errors
    /// [`CatError`] if the content is missing or damaged.
    pub fn old(
        &self,
        item: Option<&ChangeSide>,
        observer: &dyn Observer,
    ) -> Result<SideContent, CatError> {
        match item.map(|item| &item.what) {
            Some(ComparedKind::File { size, id: Some(id) }) => self.stored(id, *size, observer),
            Some(ComparedKind::Symlink { target }) => Ok(SideContent::Bytes(target.to_vec())),
            _ => Ok(SideContent::None),
        }
    }

    /// Returns the new content of the change at `path`.
    ///
    /// # Errors
    /// [`CatError::Output`] if a file in the folder cannot be read; otherwise as
    /// [`SideReader::old`].
    pub fn new_side(
        &self,
        path: &[u8],
        item: Option<&ChangeSide>,
        observer: &dyn Observer,
    ) -> Result<SideContent, CatError> {
        match (&self.disk_paths, item.map(|item| &item.what)) {
            (Some(_), Some(ComparedKind::File { size, .. })) if *size > self.limit_bytes => {
                Ok(self.left_out())
            }
            (Some(disk_paths), Some(ComparedKind::File { size, .. })) => {
                Ok(self.file(disk_paths, path, *size)?)
            }
            _ => self.old(item, observer),
        }
    }

    /// Returns true if a content was larger than the limit.
    pub fn has_left_out(&self) -> bool {
        self.has_left_out.load(Ordering::Relaxed)
    }

    fn left_out(&self) -> SideContent {
        self.has_left_out.store(true, Ordering::Relaxed);
        SideContent::TooLarge
    }

    fn stored(
        &self,
        id: &ContentId,
        size: u64,
        observer: &dyn Observer,
    ) -> Result<SideContent, CatError> {
        if size > self.limit_bytes {
            return Ok(self.left_out());
        }
        let ahead = self.ahead.lock().remove(id);
        if let Some(bytes) = ahead {
            return Ok(SideContent::Bytes(bytes));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        cat::run(self.store, id, Some(size), &mut bytes, observer)?;
        Ok(SideContent::Bytes(bytes))
    }

    /// Reads a file of the compared folder, which had `size` bytes when it was compared. A file
    /// that grew by more than [`GROWTH_BYTES`] is an error, so that a batch takes bounded memory.
    fn file(&self, disk_paths: &DiskPaths, path: &[u8], size: u64) -> io::Result<SideContent> {
        let (folder, name) = disk_paths.open_above(path)?;
        let stat = FileStat::of_name(folder.as_fd(), &name)?;
        let fd = open_file(folder.as_fd(), &name, &stat)?;
        let stat = FileStat::of_fd(fd.as_fd())?;
        if stat.kind != FileKind::File {
            return Err(io::Error::other("no longer a regular file"));
        }
        if stat.size == 0 {
            return read_unsized(fd, limits::UNSIZED_FILE_TIME).map(SideContent::Bytes);
        }
        let most = size.saturating_add(GROWTH_BYTES).min(self.limit_bytes);
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0).min(1 << 20));
        File::from(fd).take(most + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > most {
            true if most == self.limit_bytes => Ok(self.left_out()),
            true => Err(io::Error::other("it grew while it was compared")),
            false => Ok(SideContent::Bytes(bytes)),
        }
    }
}
