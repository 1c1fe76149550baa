//! Live files that still have what a store has lost.
//!
//! A file is read and cut as a commit cuts it. Whatever hashes to the id of a lost
//! object is that object, also when the rest of the file has changed since.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    os::fd::AsFd,
    path::Path,
};

use crate::{
    base::{
        id::{BlobId, ObjectId},
        limits,
        observe::Observer,
    },
    chunk::{Cutter, Params},
    format::{
        chunk_list::{self, Piece},
        pack::ObjectKind,
    },
    local::{
        read::{content, open_above, open_file},
        scan::{FileKind, FileStat},
    },
    store::{StoreError, Writer},
};

/// Bytes that are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// What is wanted of files.
pub(super) struct Wanted<'a> {
    /// Lost objects.
    pub(super) ids: &'a BTreeSet<ObjectId>,
    /// Says whether the store has an object: a list of chunks that was lost does not
    /// say which chunks it needs.
    pub(super) is_sound: &'a dyn Fn(&ObjectId) -> Result<bool, StoreError>,
}

/// Stores what is wanted of a file. Returns which of the wanted objects that was. A
/// file that cannot be read has nothing.
pub(super) fn take(
    writer: &Writer<'_>,
    (folder, path): (&Path, &[u8]),
    params: Params,
    wanted: &Wanted<'_>,
    observer: &dyn Observer,
) -> Result<BTreeMap<ObjectId, ObjectKind>, StoreError> {
    let mut take = Take { writer, params, wanted, observer, taken: BTreeMap::new() };
    match take.file(folder, path) {
        Err(Failed::Store(error)) => Err(error),
        // What was found before is right all the same.
        Ok(()) | Err(Failed::File) => Ok(take.taken),
    }
}

fn open(folder: &Path, path: &[u8]) -> io::Result<(Box<dyn Read + Send>, u64)> {
    let top = fs_err::File::open(folder)?;
    let (above, name) = open_above(top.as_fd(), path)?;
    let stat = FileStat::of_name(above.as_fd(), name)?;
    if stat.kind != FileKind::File {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = open_file(above.as_fd(), name, &stat)?;
    Ok((content(&file, &stat)?, stat.size))
}

/// Why a file was not read to its end.
enum Failed {
    Store(StoreError),
    /// It cannot be read, or the user asks to stop.
    File,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failed {
    fn from(_: io::Error) -> Self {
        Self::File
    }
}

struct Take<'a, 's> {
    writer: &'a Writer<'s>,
    params: Params,
    wanted: &'a Wanted<'a>,
    observer: &'a dyn Observer,
    taken: BTreeMap<ObjectId, ObjectKind>,
}

impl Take<'_, '_> {
    fn file(&mut self, folder: &Path, path: &[u8]) -> Result<(), Failed> {
        let (source, size) = open(folder, path)?;
        if size <= limits::WHOLE_FILE_BYTES {
            let mut bytes = Vec::new();
            source.take(limits::WHOLE_FILE_BYTES).read_to_end(&mut bytes)?;
            let id = BlobId::of(&bytes).object();
            return match self.wanted.ids.contains(&id) {
                true => Ok(self.store(id, &bytes)?),
                false => Ok(()),
            };
        }
        // Most files that have changed need not be read a second time.
        let mut pieces = Vec::new();
        let (id, total_bytes) = cut(
            source,
            self.params,
            &mut |chunk| {
                pieces.push(Piece { id: BlobId::of(chunk), bytes: chunk.len() as u32 });
                Ok(())
            },
            self.observer,
        )?;
        let is_list = pieces.len() > 1 && self.wanted.ids.contains(&id.object());
        let encoded = chunk_list::encode_content(total_bytes, &pieces).filter(|_| is_list);
        let parts = encoded.as_ref().map_or(&[][..], |encoded| &encoded.parts);
        let mut needed = BTreeSet::new();
        for id in pieces.iter().map(|piece| piece.id.object()) {
            if self.wanted.ids.contains(&id) || is_list && !(self.wanted.is_sound)(&id)? {
                needed.insert(id);
            }
        }
        if needed.is_empty() && !is_list {
            return Ok(());
        }
        let (source, _) = open(folder, path)?;
        let (params, observer) = (self.params, self.observer);
        let (again, _) = cut(
            source,
            params,
            &mut |chunk| {
                let id = BlobId::of(chunk).object();
                if needed.remove(&id) { self.store(id, chunk) } else { Ok(()) }
            },
            observer,
        )?;
        if let Some(encoded) = encoded.as_ref().filter(|_| again == id && needed.is_empty()) {
            for part in parts {
                self.store(BlobId::of(part).object(), part)?;
            }
            self.writer.add_chunk_list(id, &encoded.list)?;
            self.taken.insert(id.object(), ObjectKind::ChunkList);
        }
        Ok(())
    }

    /// Stores a blob.
    fn store(&mut self, id: ObjectId, bytes: &[u8]) -> Result<(), StoreError> {
        super::gather::add(self.writer, (&id, ObjectKind::Blob), bytes)?;
        if self.wanted.ids.contains(&id) {
            self.taken.insert(id, ObjectKind::Blob);
        }
        Ok(())
    }
}

/// Cuts a content, hands out its chunks in order, and returns its id and length.
fn cut(
    mut source: Box<dyn Read + Send>,
    params: Params,
    each: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    observer: &dyn Observer,
) -> Result<(BlobId, u64), Failed> {
    let (mut whole, mut cutter) = (blake3::Hasher::new(), Cutter::new(params));
    let (mut buffer, mut total_bytes, mut is_last) = (Vec::new(), 0, false);
    while !is_last {
        if observer.cancelled() {
            return Err(Failed::File);
        }
        let before = buffer.len();
        (&mut source).take(READ_BYTES).read_to_end(&mut buffer)?;
        is_last = buffer.len() == before;
        whole.update(&buffer[before..]);
        total_bytes += (buffer.len() - before) as u64;
        let mut start = 0;
        while let Some(length) = cutter.next_cut(&buffer[start..], is_last) {
            each(&buffer[start..start + length])?;
            start += length;
        }
        buffer.drain(..start);
    }
    Ok((BlobId::from_bytes(*whole.finalize().as_bytes()), total_bytes))
}
