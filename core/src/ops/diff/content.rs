//! The contents on both sides of a change, for comparing them line by line.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, PoisonError},
};

use rustix::fs::{Mode, OFlags, openat};

use crate::{
    base::{id::BlobId, limits, observe::Observer},
    local::{
        read::{open_above, open_file},
        scan::{FileKind, FileStat},
    },
    ops::{
        cat::{self, CatError},
        diff::{Change, Item, New, What},
    },
    store::Store,
};

/// What one side of a change contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file's bytes, or the target of a symlink.
    Bytes(Vec<u8>),
    /// More than the reader was to take.
    TooLarge,
    /// Neither file nor symlink, or nothing at all.
    None,
}

/// Reads contents of both sides of a comparison.
#[derive(Debug)]
pub struct Reader<'a> {
    store: &'a Store,
    /// The folder that is the new side, if it is one.
    folder: Option<OwnedFd>,
    limit_bytes: u64,
    /// What was read before it was asked for.
    ahead: Mutex<HashMap<BlobId, Vec<u8>>>,
}

impl<'a> Reader<'a> {
    /// A reader of contents up to `limit_bytes` each.
    ///
    /// # Errors
    /// As the system says of the folder that is compared.
    pub fn new(store: &'a Store, new: &New, limit_bytes: u64) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match new {
            New::Tree(_) => None,
            New::Folder(folder) => {
                Some(openat(rustix::fs::CWD, &folder.path, flags, Mode::empty())?)
            }
        };
        Ok(Self { store, folder, limit_bytes, ahead: Mutex::default() })
    }

    /// Reads small contents of these changes at once, which takes less than
    /// one after the other when they lie together; they are kept until they
    /// are asked for.
    pub fn read_ahead<'c>(&self, changes: impl Iterator<Item = &'c Change>) {
        let mut ids = Vec::new();
        for change in changes.filter(|change| {
            change.old.is_none() || change.new.is_none() || change.differences().content
        }) {
            let new = if self.folder.is_some() { None } else { change.new.as_ref() };
            for item in [change.old.as_ref(), new].into_iter().flatten() {
                if let What::File { size, id: Some(id) } = item.what
                    && size <= limits::WHOLE_FILE_BYTES.min(self.limit_bytes)
                {
                    ids.push(id);
                }
            }
        }
        self.store.will_need_contents(&mut ids.iter().copied());
        self.store.gather(&ids, &|id, content| {
            self.ahead.lock().unwrap_or_else(PoisonError::into_inner).insert(id, content);
        });
    }

    /// Forgets what was read and not asked for.
    pub fn forget(&self) {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The old content of a change.
    ///
    /// # Errors
    /// [`CatError`] when the store lacks it or it is damaged.
    pub fn old(&self, item: Option<&Item>, observer: &dyn Observer) -> Result<Content, CatError> {
        match item.map(|item| &item.what) {
            Some(What::File { size, id: Some(id) }) => self.stored(id, *size, observer),
            Some(What::Symlink { target }) => Ok(Content::Bytes(target.to_vec())),
            _ => Ok(Content::None),
        }
    }

    /// The new content of a change of the file `path`.
    ///
    /// # Errors
    /// [`CatError::Output`] holds what the system says of a file that cannot
    /// be read; else as [`Reader::old`].
    pub fn new_side(
        &self,
        path: &[u8],
        item: Option<&Item>,
        observer: &dyn Observer,
    ) -> Result<Content, CatError> {
        match (&self.folder, item.map(|item| &item.what)) {
            (Some(_), Some(What::File { size, .. })) if *size > self.limit_bytes => {
                Ok(Content::TooLarge)
            }
            (Some(folder), Some(What::File { .. })) => Ok(self.file(folder, path)?),
            _ => self.old(item, observer),
        }
    }

    fn stored(&self, id: &BlobId, size: u64, observer: &dyn Observer) -> Result<Content, CatError> {
        if size > self.limit_bytes {
            return Ok(Content::TooLarge);
        }
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(bytes) = ahead {
            return Ok(Content::Bytes(bytes));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        cat::run(self.store, id, &mut bytes, observer)?;
        Ok(Content::Bytes(bytes))
    }

    fn file(&self, folder: &OwnedFd, path: &[u8]) -> io::Result<Content> {
        let (folder, name) = open_above(folder.as_fd(), path)?;
        let stat = FileStat::of_name(folder.as_fd(), name)?;
        let file = File::from(open_file(folder.as_fd(), name, &stat)?);
        if FileStat::of_fd(file.as_fd())?.kind != FileKind::File {
            return Err(io::Error::other("it is no longer a regular file"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(stat.size).unwrap_or(0).min(1 << 20));
        file.take(self.limit_bytes + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > self.limit_bytes {
            true => Ok(Content::TooLarge),
            false => Ok(Content::Bytes(bytes)),
        }
    }
}
