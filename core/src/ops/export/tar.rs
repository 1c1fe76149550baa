//! Writes tar archives: ustar headers, preceded by extensions for values that ustar
//! cannot hold.
//!
//! | what                                   | where it goes                     |
//! |----------------------------------------|-----------------------------------|
//! | path ≤ 100 bytes, or cut at a `/`      | ustar, as raw bytes               |
//! | longer path or link target, UTF-8      | pax `path`, `linkpath`            |
//! | the same, not UTF-8                    | GNU `L`, `K`: pax has text only   |
//! | time before 1970, or with a fraction   | pax `mtime`                       |
//! | length from 8 GiB, numbers from 2 Mi   | pax `size`, `uid`, `gid`          |
//! | extended attributes                    | pax `SCHILY.xattr.NAME`           |
//! | access control lists                   | the same, and text `SCHILY.acl.*` |
//! | holes                                  | GNU sparse format 1.0             |
//!
//! GNU tar, bsdtar and Python read all of these. The names of a file after the first are
//! hard links to it. An extended header takes 1 KiB and is written only if it is needed.

use std::io::{self, BufWriter, Write};

use crate::{
    format::tree::{Device, EntryKind, Metadata, Owner},
    ops::export::{
        Archive, ExportError, ExportJob, acl,
        batch::{ArchiveEntry, EntryData},
        buffered,
        pax::{self, PaxRecords},
        sparse::Extents,
    },
};

/// Headers and contents are padded to a multiple of this.
const BLOCK_BYTES: usize = 512;

/// The whole archive is padded to a multiple of this, the traditional tape record.
const RECORD_BYTES: u64 = 10_240;

/// Size of the fields for the name and for the target of a link.
const NAME_BYTES: usize = 100;

/// Size of the field for the folders before the name.
const PREFIX_BYTES: usize = 155;

/// Size of the fields for user and group names, including a NUL.
const OWNER_NAME_BYTES: usize = 32;

/// The largest number with eleven octal digits.
const OCTAL_11: u64 = (1 << 33) - 1;

/// The largest number with seven octal digits.
const OCTAL_7: u64 = (1 << 21) - 1;

pub(super) struct Tar<'o, W: Write> {
    job: &'o ExportJob<'o>,
    out: BufWriter<W>,
    bytes: u64,
    /// Ends the sink.
    close: fn(W) -> io::Result<()>,
}

/// The values of a header that do not come from the metadata.
struct HeaderValues<'h> {
    path: &'h [u8],
    target: &'h [u8],
    kind: u8,
    bytes: u64,
    device: Option<Device>,
}

impl<'o, W: Write> Tar<'o, W> {
    pub(super) fn new(job: &'o ExportJob<'o>, sink: W, close: fn(W) -> io::Result<()>) -> Self {
        Self { job, out: buffered(sink), bytes: 0, close }
    }

    fn file(&mut self, item: &ArchiveEntry) -> Result<(), ExportError> {
        let Some((_, size)) = item.content() else { return Ok(()) };
        if item.metadata.sparse {
            let extents = self.extents(item)?;
            if !extents.is_whole() {
                return self.sparse(item, size, &extents);
            }
        }
        let path = &item.path;
        let head = HeaderValues { path, target: b"", kind: b'0', bytes: size, device: None };
        self.head(&head, &item.metadata)?;
        self.content(item, &mut |tar, piece| tar.write(piece))?;
        Ok(self.pad()?)
    }

    /// Returns the ranges of a file that contain data. They must be known before any data
    /// is written.
    fn extents(&self, item: &ArchiveEntry) -> Result<Extents, ExportError> {
        let mut extents = Extents::new();
        match &item.body {
            EntryData::Bytes(bytes) => extents.feed(bytes),
            _ => self.job.stream(item, &mut |piece| {
                extents.feed(piece);
                Ok(())
            })?,
        }
        Ok(extents)
    }

    fn sparse(
        &mut self,
        item: &ArchiveEntry,
        size: u64,
        extents: &Extents,
    ) -> Result<(), ExportError> {
        let mut map = extents.map().into_bytes();
        map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
        let mut records = PaxRecords::default();
        records.push(b"GNU.sparse.major", b"1");
        records.push(b"GNU.sparse.minor", b"0");
        records.push(b"GNU.sparse.name", &item.path);
        records.push(b"GNU.sparse.realsize", size.to_string().as_bytes());
        // The name under which a reader without support for sparse files unpacks the
        // entry.
        let shown = inner_name(b"GNUSparseFile.0/", &item.path);
        let bytes = map.len() as u64 + extents.data_bytes();
        let head = HeaderValues { path: &shown, target: b"", kind: b'0', bytes, device: None };
        self.head_with(&head, &item.metadata, records)?;
        self.write(&map)?;
        let (mut offset, mut from) = (0, 0);
        self.content(item, &mut |tar, piece| {
            for part in extents.within(offset, piece, &mut from) {
                tar.write(part)?;
            }
            offset += piece.len() as u64;
            Ok(())
        })?;
        Ok(self.pad()?)
    }

    /// Passes the content of a file to `each`.
    fn content(
        &mut self,
        item: &ArchiveEntry,
        each: &mut dyn FnMut(&mut Self, &[u8]) -> io::Result<()>,
    ) -> Result<(), ExportError> {
        let job = self.job;
        match &item.body {
            EntryData::Bytes(bytes) => {
                each(self, bytes)?;
                job.observer.advance(bytes.len() as u64, 1);
            }
            _ => {
                job.stream(item, &mut |piece| {
                    each(self, piece)?;
                    job.observer.advance(piece.len() as u64, 0);
                    Ok(())
                })?;
                job.observer.advance(0, 1);
            }
        }
        Ok(())
    }

    fn head(&mut self, head: &HeaderValues<'_>, metadata: &Metadata) -> io::Result<()> {
        self.head_with(head, metadata, PaxRecords::default())
    }

    /// Writes the header of an entry, preceded by its extensions.
    fn head_with(
        &mut self,
        head: &HeaderValues<'_>,
        metadata: &Metadata,
        mut records: PaxRecords,
    ) -> io::Result<()> {
        let mut block = HeaderBlock::new(head.kind);
        if !block.path(head.path) {
            self.long(b'L', b"path", head.path, &mut records)?;
        }
        if !block.field(157, NAME_BYTES, head.target) {
            self.long(b'K', b"linkpath", head.target, &mut records)?;
        }
        block.octal(100, 8, u64::from(metadata.mode));
        if !block.octal(124, 12, head.bytes) {
            records.push(b"size", head.bytes.to_string().as_bytes());
        }
        let mtime = metadata.mtime.unwrap_or_default();
        let fits = u64::try_from(mtime.secs).is_ok_and(|secs| block.octal(136, 12, secs));
        if !fits || mtime.nanos != 0 {
            records.push(b"mtime", pax::time(mtime).as_bytes());
        }
        if let Some(owner) = metadata.owner.as_deref() {
            set_owner(&mut block, owner, &mut records);
        }
        if let Some(device) = head.device {
            block.number(329, device.major);
            block.number(337, device.minor);
        }
        // A hard link shares the attributes of its target.
        if head.kind != b'1' {
            for xattr in &metadata.xattrs {
                records.push(&pax::xattr_key(&xattr.name), &xattr.value);
                if let Some((key, text)) = acl::record(xattr) {
                    records.push(key, text.as_bytes());
                }
            }
        }
        if !records.as_bytes().is_empty() {
            let name = inner_name(b"PaxHeaders/", head.path);
            self.inner(b'x', &name, records.as_bytes())?;
        }
        self.write(&block.finish())
    }

    /// Adds a long name: to the pax records if it is UTF-8, or else as a GNU record of type `gnu`.
    fn long(
        &mut self,
        gnu: u8,
        key: &[u8],
        name: &[u8],
        records: &mut PaxRecords,
    ) -> io::Result<()> {
        if std::str::from_utf8(name).is_ok() {
            records.push(key, name);
            return Ok(());
        }
        self.inner(gnu, b"././@LongLink", &[name, b"\0"].concat())
    }

    /// Writes an auxiliary entry, which describes the next entry.
    fn inner(&mut self, kind: u8, name: &[u8], content: &[u8]) -> io::Result<()> {
        let mut block = HeaderBlock::new(kind);
        block.field(0, NAME_BYTES, name);
        block.octal(100, 8, 0o644);
        if !block.octal(124, 12, content.len() as u64) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.write(&block.finish())?;
        self.write(content)?;
        self.pad()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let rest = (self.bytes % BLOCK_BYTES as u64) as usize;
        if rest > 0 { self.write(&[0; BLOCK_BYTES][rest..]) } else { Ok(()) }
    }

    /// Writes the end of the archive and returns the sink.
    fn end(mut self) -> io::Result<W> {
        let end = (self.bytes + 2 * BLOCK_BYTES as u64).next_multiple_of(RECORD_BYTES);
        let zeros = vec![0; (end - self.bytes) as usize];
        self.write(&zeros)?;
        self.out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl<W: Write> Archive for Tar<'_, W> {
    fn add(&mut self, item: ArchiveEntry) -> Result<(), ExportError> {
        let metadata = &item.metadata;
        let plain =
            |kind| HeaderValues { path: &item.path, target: b"", kind, bytes: 0, device: None };
        let head = match (&item.body, &item.kind) {
            (EntryData::Link(first), _) => HeaderValues { target: first, ..plain(b'1') },
            (_, EntryKind::File { .. }) => return self.file(&item),
            (_, EntryKind::Folder { .. }) => {
                let path = [&item.path[..], b"/"].concat();
                return Ok(self.head(&HeaderValues { path: &path, ..plain(b'5') }, metadata)?);
            }
            (_, EntryKind::Symlink { target }) => HeaderValues { target, ..plain(b'2') },
            (_, EntryKind::CharDevice { device }) => {
                HeaderValues { device: Some(*device), ..plain(b'3') }
            }
            (_, EntryKind::BlockDevice { device }) => {
                HeaderValues { device: Some(*device), ..plain(b'4') }
            }
            // The producer leaves sockets out.
            (_, EntryKind::Fifo | EntryKind::Socket) => plain(b'6'),
        };
        Ok(self.head(&head, metadata)?)
    }

    fn finish(self: Box<Self>) -> Result<(), ExportError> {
        let close = self.close;
        Ok(close(self.end()?)?)
    }
}

fn set_owner(block: &mut HeaderBlock, owner: &Owner, records: &mut PaxRecords) {
    for (at, key, number) in [(108, b"uid", owner.uid), (116, b"gid", owner.gid)] {
        if !block.octal(at, 8, u64::from(number)) {
            records.push(key, number.to_string().as_bytes());
        }
    }
    for (at, key, name) in [(265, b"uname", &owner.user), (297, b"gname", &owner.group)] {
        // A name that is too long and not UTF-8 is left out; the number identifies the
        // owner.
        if !block.field(at, OWNER_NAME_BYTES - 1, name) && std::str::from_utf8(name).is_ok() {
            records.push(key, name);
        }
    }
}

/// Returns the name of an auxiliary entry: `folder`, which indicates its purpose, and as much of
/// the last name of `path` as fits.
fn inner_name(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let room = NAME_BYTES - folder.len();
    [folder, &last[..last.len().min(room)]].concat()
}

struct HeaderBlock([u8; BLOCK_BYTES]);

impl HeaderBlock {
    fn new(kind: u8) -> Self {
        let mut block = Self([0; BLOCK_BYTES]);
        block.0[156] = kind;
        block.0[257..265].copy_from_slice(b"ustar\x0000");
        for (at, width) in [(100, 8), (108, 8), (116, 8), (124, 12), (136, 12)] {
            block.octal(at, width, 0);
        }
        for at in [329, 337] {
            block.octal(at, 8, 0);
        }
        block
    }

    /// Sets a field to bytes, truncated if necessary. Returns true if they fit.
    fn field(&mut self, at: usize, width: usize, bytes: &[u8]) -> bool {
        let len = bytes.len().min(width);
        self.0[at..at + len].copy_from_slice(&bytes[..len]);
        len == bytes.len()
    }

    /// Sets the path, split in two if necessary. Returns true if it fits.
    fn path(&mut self, path: &[u8]) -> bool {
        if path.len() <= NAME_BYTES {
            return self.field(0, NAME_BYTES, path);
        }
        // Split at the first slash after which the rest fits in the name field. A
        // trailing slash belongs to the name.
        let from = path.len() - NAME_BYTES - 1;
        let slash = path[from..path.len() - 1].iter().position(|byte| *byte == b'/');
        match slash.map(|at| from + at) {
            Some(slash) if (1..=PREFIX_BYTES).contains(&slash) => {
                self.field(345, PREFIX_BYTES, &path[..slash])
                    && self.field(0, NAME_BYTES, &path[slash + 1..])
            }
            _ => self.field(0, NAME_BYTES, path),
        }
    }

    /// Sets a field to an octal number. Returns false and leaves it unchanged if the
    /// number does not fit.
    fn octal(&mut self, at: usize, width: usize, number: u64) -> bool {
        let most = if width == 12 { OCTAL_11 } else { OCTAL_7 };
        if number > most {
            return false;
        }
        let mut rest = number;
        for digit in self.0[at..at + width - 1].iter_mut().rev() {
            *digit = b'0' + (rest & 7) as u8;
            rest >>= 3;
        }
        self.0[at + width - 1] = 0;
        true
    }

    /// Sets a field of eight bytes to a number. A number too large for octal is stored as
    /// binary, as GNU tar and star do.
    fn number(&mut self, at: usize, number: u32) {
        if !self.octal(at, 8, u64::from(number)) {
            self.0[at..at + 8].copy_from_slice(&(1 << 63 | u64::from(number)).to_be_bytes());
        }
    }

    fn finish(mut self) -> [u8; BLOCK_BYTES] {
        self.0[148..156].fill(b' ');
        let sum = self.0.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        self.octal(148, 7, sum);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tar_path_is_split_into_prefix_and_name() {
        let fits = |path: &[u8]| HeaderBlock::new(b'0').path(path);
        let long = |count: usize| vec![b'n'; count];
        assert!(fits(&long(100)) && !fits(&long(101)));
        let folder = |folder: usize, name: usize| [&long(folder)[..], b"/", &long(name)].concat();
        assert!(fits(&folder(155, 100)));
        assert!(!fits(&folder(156, 100)) && !fits(&folder(155, 101)));
        assert!(fits(&[&folder(155, 99)[..], b"/"].concat()));
        assert!(!fits(&[&long(100)[..], b"/"].concat()));
        let mut block = HeaderBlock::new(b'0');
        assert!(block.path(&[&folder(20, 20)[..], b"/", &folder(30, 60)].concat()));
        assert_eq!(&block.0[345..386], &folder(20, 20));
        assert_eq!(block.0[386], 0);
    }

    #[test]
    fn numbers_are_octal_as_long_as_they_fit() {
        let mut block = HeaderBlock::new(b'3');
        assert!(block.octal(124, 12, OCTAL_11) && !block.octal(124, 12, OCTAL_11 + 1));
        assert_eq!(&block.0[124..136], b"77777777777\0");
        block.number(337, 65_537);
        assert_eq!(&block.0[337..345], b"0200001\0");
        block.number(337, u32::MAX);
        assert_eq!(&block.0[337..345], [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    }
}
