//! Outlines: the header and the footer of a pack, without its frames.
//!
//! The index of a remote store consists of files of outlines. A reader of such a file can locate
//! each object without a request for each pack.
//!
//! | part    | bytes | field                                            |
//! |---------|-------|--------------------------------------------------|
//! | header  | 8     | magic, `SNAPOUTL`                                |
//! |         | 2     | format version, u16                              |
//! |         | 2     | 0                                                |
//! |         | 4     | packs p, u32                                     |
//! | epoch   | 8     | the epoch of the writer, u64                     |
//! | p times | 32    | name of the pack                                 |
//! |         | 8     | its length, u64                                  |
//! |         | 4     | length h of its header with the extension, u32   |
//! |         | 4     | length f of its footer with the trailer, u32     |
//! |         | h     | header and extension                             |
//! |         | f     | footer and trailer                               |
//!
//! Integers are little-endian. Ids strictly increase, so a set of packs has only one encoding. The
//! name of a file is the BLAKE3 of its bytes, so the file needs no checksum. The header and the
//! footer of each pack have their own checksums.
//!
//! Outlines that must be published together may be in several files, the *parts* of a *group*. The
//! file of the group lists its parts:
//!
//! | part    | bytes | field                                            |
//! |---------|-------|--------------------------------------------------|
//! | header  | 8     | magic, `SNAPGRUP`                                |
//! |         | 2     | format version, u16                              |
//! |         | 2     | 0                                                |
//! |         | 4     | parts p, u32                                     |
//! | epoch   | 8     | the epoch of the writer, u64                     |
//! | p times | 32    | name of the part                                 |

use crate::{
    base::{id::PackId, limits},
    format::{
        pack::{self, Frame, HEADER_BYTES, PackedObject, TRAILER_BYTES, Trailer},
        wire::{FormatError, WireReader, WireWriter},
    },
};

/// The first bytes of a file of outlines.
pub const MAGIC: &[u8; 8] = b"SNAPOUTL";

/// The first bytes of the file of a group.
pub const GROUP_MAGIC: &[u8; 8] = b"SNAPGRUP";

/// The version.
pub const VERSION: u16 = 3;

/// The name of a file of outlines: the BLAKE3 of its bytes.
pub type Name = PackId;

/// The outline of one pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackOutline {
    pub id: PackId,
    /// Length of the pack in bytes.
    pub file_bytes: u64,
    /// Header and extension of the pack.
    pub head: Vec<u8>,
    /// Footer and trailer of the pack.
    pub tail: Vec<u8>,
}

impl PackOutline {
    /// Returns the number of bytes that the outline takes in a file.
    pub fn file_share(&self) -> u64 {
        (self.id.as_bytes().len() + 16 + self.head.len() + self.tail.len()) as u64
    }

    /// Decodes both tables, with the same checks as a reader of the pack.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the outline breaks.
    pub fn tables(&self) -> Result<(Vec<Frame>, Vec<PackedObject>), FormatError> {
        let header = self.head.get(..HEADER_BYTES).unwrap_or(&self.head);
        let extension = pack::decode_header(header)? as usize;
        if self.head.len() != HEADER_BYTES + extension {
            return Err(FormatError::Invalid { what: "outline header", at: self.head.len() });
        }
        let Some(end) = self.tail.len().checked_sub(TRAILER_BYTES) else {
            return Err(FormatError::Truncated { what: "outline footer", at: self.tail.len() });
        };
        let trailer = Trailer::decode(&self.tail[end..], self.file_bytes)?;
        if trailer.footer_bytes() != end as u64 {
            return Err(FormatError::Invalid { what: "outline footer length", at: end });
        }
        let (frames, objects) = self.tail[..end].split_at(trailer.frame_table_bytes());
        let frames = trailer.decode_frames(frames, self.head.len() as u64)?;
        let objects = trailer.decode_objects(objects, &frames)?;
        Ok((frames, objects))
    }
}

fn header(magic: &[u8; 8], epoch: u64, count: usize) -> WireWriter {
    let mut w = WireWriter::new();
    w.raw(magic);
    w.u16(VERSION);
    w.u16(0);
    w.u32(count as u32);
    w.u64(epoch);
    w
}

/// Reads a header. Returns the epoch, and the number of items after the header.
fn read_header(r: &mut WireReader<'_>, magic: &[u8; 8]) -> Result<(u64, u32), FormatError> {
    if r.raw("outlines", magic.len())? != magic {
        return Err(FormatError::Magic { what: "file of outlines" });
    }
    FormatError::check_version("file of outlines", r.u16("outlines version")?, VERSION)?;
    if r.u16("outlines")? != 0 {
        return Err(FormatError::Invalid { what: "outlines", at: 10 });
    }
    let count = r.u32("outlines")?;
    Ok((r.u64("outlines epoch")?, count))
}

/// The content of a file of outlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineFile {
    /// The epoch of the writer.
    pub epoch: u64,
    /// The outlines, sorted by id.
    pub outlines: Vec<PackOutline>,
}

/// The content of the file of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFile {
    /// The epoch of the writer.
    pub epoch: u64,
    /// The names of the parts.
    pub parts: Vec<Name>,
}

/// Encodes the file of a group.
pub fn encode_group(epoch: u64, parts: &[Name]) -> Vec<u8> {
    let mut w = header(GROUP_MAGIC, epoch, parts.len());
    parts.iter().for_each(|name| w.raw(name.as_bytes()));
    w.finish()
}

/// Decodes the file of a group.
///
/// # Errors
/// [`FormatError`] names the rule that the file breaks.
pub fn decode_group(bytes: &[u8]) -> Result<GroupFile, FormatError> {
    let mut r = WireReader::new(bytes);
    let (epoch, count) = read_header(&mut r, GROUP_MAGIC)?;
    let name = |_| Ok(Name::from_bytes(r.digest("name of an outline in an index file")?));
    let parts = (0..count).map(name).collect::<Result<_, FormatError>>()?;
    r.finish()?;
    Ok(GroupFile { epoch, parts })
}

/// Encodes a file of outlines. Does **not** check that their ids increase.
pub fn encode(epoch: u64, outlines: &[PackOutline]) -> Vec<u8> {
    let mut w = header(MAGIC, epoch, outlines.len());
    for outline in outlines {
        w.raw(outline.id.as_bytes());
        w.u64(outline.file_bytes);
        w.u32(outline.head.len() as u32);
        w.u32(outline.tail.len() as u32);
        w.raw(&outline.head);
        w.raw(&outline.tail);
    }
    w.finish()
}

/// Decodes a file of outlines, but **not** the tables of the outlines.
///
/// # Errors
/// [`FormatError`] names the rule that the file breaks.
pub fn decode(bytes: &[u8]) -> Result<OutlineFile, FormatError> {
    let mut r = WireReader::new(bytes);
    let (epoch, count) = read_header(&mut r, MAGIC)?;
    let mut outlines: Vec<PackOutline> = Vec::new();
    for _ in 0..count {
        let at = r.at();
        let id = PackId::from_bytes(r.digest("outline name")?);
        if outlines.last().is_some_and(|before| before.id >= id) {
            return Err(FormatError::Order { what: "outlines", at });
        }
        let file_bytes = r.u64("outline")?;
        let at = r.at();
        if file_bytes > limits::PACK_BYTES {
            return Err(FormatError::Invalid { what: "outline pack length", at });
        }
        let head = r.u32("outline")? as usize;
        let tail = r.u32("outline")? as usize;
        let head = r.raw("outline header", head)?.to_vec();
        let tail = r.raw("outline footer", tail)?.to_vec();
        outlines.push(PackOutline { id, file_bytes, head, tail });
    }
    r.finish()?;
    Ok(OutlineFile { epoch, outlines })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(number: u8) -> PackOutline {
        let mut head = pack::encode_header().to_vec();
        head[15] = 0;
        let tail = pack::encode_footer(&[], &[], HEADER_BYTES as u64);
        let file_bytes = (head.len() + tail.len()) as u64;
        PackOutline { id: PackId::from_bytes([number; 32]), file_bytes, head, tail }
    }

    #[test]
    fn outlines_survive_a_round_trip() {
        let outlines = [outline(1), outline(2)];
        assert_eq!(outlines[0].tables().unwrap(), (vec![], vec![]));
        for epoch in [0, 1, u64::MAX] {
            let bytes = encode(epoch, &outlines);
            let file = OutlineFile { epoch, outlines: outlines.to_vec() };
            assert_eq!(decode(&bytes).unwrap(), file);
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut]).is_err(), "{cut}");
            }
        }
        assert!(matches!(decode(&encode(0, &[])), Ok(none) if none.outlines.is_empty()));
    }

    #[test]
    fn each_file_has_its_epoch() {
        let first = encode(0, &[outline(1)]);
        assert_eq!(&first[..24], b"SNAPOUTL\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0");
        let later = encode(7, &[outline(1)]);
        assert_eq!((later[16], &later[24..]), (7, &first[24..]));
        let group = b"SNAPGRUP\x03\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0";
        assert_eq!(encode_group(7, &[]), group);
    }

    #[test]
    fn groups_survive_a_round_trip() {
        let parts = [PackId::from_bytes([1; 32]), PackId::from_bytes([2; 32])];
        for epoch in [0, 3] {
            let group = GroupFile { epoch, parts: parts.to_vec() };
            assert_eq!(decode_group(&encode_group(epoch, &parts)).unwrap(), group);
        }
        let bytes = encode_group(0, &parts);
        for cut in 0..bytes.len() {
            assert!(decode_group(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(decode_group(&[&bytes[..], b"x"].concat()).is_err());
        let mut many = bytes;
        many[12..16].fill(0xff);
        assert!(matches!(decode_group(&many), Err(FormatError::Truncated { .. })));
        assert!(matches!(decode(&encode_group(0, &parts)), Err(FormatError::Magic { .. })));
    }

    #[test]
    fn outlines_are_unique_and_sorted() {
        let [one, two] = [1, 2].map(outline);
        for outlines in [[&one, &one], [&two, &one]] {
            let bytes = encode(0, &outlines.map(PackOutline::clone));
            let at = 24 + one.file_share() as usize;
            let refused = decode(&bytes);
            assert!(
                matches!(refused, Err(FormatError::Order { at: told, .. }) if told == at),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn outlines_with_wrong_fields_are_refused() {
        let mut bytes = encode(0, &[outline(1)]);
        bytes[8] = 4;
        assert!(matches!(decode(&bytes), Err(FormatError::Newer { .. })));
        bytes[8] = 2;
        assert!(matches!(decode(&bytes), Err(FormatError::Older { .. })));
        let mut many = encode(0, &[outline(1)]);
        many[12..16].fill(0xff);
        assert!(matches!(decode(&many), Err(FormatError::Truncated { .. })));
        let long = PackOutline { file_bytes: limits::PACK_BYTES + 1, ..outline(1) };
        assert!(decode(&encode(0, &[long])).is_err());
        let short = PackOutline { file_bytes: 1, ..outline(1) };
        assert!(short.tables().is_err());
        let headless = PackOutline { head: Vec::new(), ..outline(1) };
        assert!(headless.tables().is_err());
    }
}
