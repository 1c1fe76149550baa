//! Encodes zip records: the local header, the data descriptor, the central directory and
//! its end.
//!
//! An entry has these extra fields: its time in UTC (`UT`, if it fits in 32 bits), the uid and gid
//! (`ux`), and 64-bit lengths (ZIP64) if 32 bits are not enough. The DOS time in the header is in
//! UTC, too, and ranges from 1980 to 2107.

use crate::{
    base::time::{Civil, Time},
    local::owners::OwnerIds,
    ops::export::deflate::Method,
};

/// The first value that a 32-bit field cannot hold. The field then refers to ZIP64.
const FULL_32: u64 = 0xffff_ffff;

/// The first value that a 16-bit field cannot hold.
const FULL_16: u64 = 0xffff;

/// The high byte is the system, Unix; the low byte is the version of the specification,
/// 3.0.
const MADE_BY: u16 = 3 << 8 | 30;

/// The versions that a reader needs, for deflate and for ZIP64.
const NEEDED: u16 = 20;
const NEEDED_64: u16 = 45;

/// Flag: lengths and checksum follow the content.
const FLAG_DATA_DESCRIPTOR: u16 = 1 << 3;

/// Flag: the name is UTF-8. Without it, `unzip` on Unix uses the raw bytes.
const FLAG_UTF8: u16 = 1 << 11;

/// A streamed content of at least this many bytes gets ZIP64 fields, since compression
/// may make it slightly longer than 32 bits allow.
pub(super) const MAY_BE_LONG: u64 = 0xf000_0000;

/// The values of one entry.
pub(super) struct ZipHeader<'h> {
    /// The name, with a trailing slash for a folder.
    pub(super) name: &'h [u8],
    pub(super) method: Method,
    pub(super) mtime: Time,
    pub(super) owner: Option<OwnerIds>,
    /// Unix file type and mode bits.
    pub(super) mode: u32,
    pub(super) crc: u32,
    pub(super) packed_bytes: u64,
    pub(super) bytes: u64,
    /// Offset of the local header in the archive.
    pub(super) offset: u64,
    /// Width of the lengths that follow the content; `None` if the header contains them.
    pub(super) behind: Option<Bits>,
}

/// The width of a length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bits {
    Few,
    Many,
}

impl ZipHeader<'_> {
    fn flags(&self) -> u16 {
        let is_text = !self.name.is_ascii() && std::str::from_utf8(self.name).is_ok();
        (if is_text { FLAG_UTF8 } else { 0 })
            | (if self.behind.is_some() { FLAG_DATA_DESCRIPTOR } else { 0 })
    }

    fn is_long(&self) -> bool {
        self.behind == Some(Bits::Many)
            || self.packed_bytes >= FULL_32
            || self.bytes >= FULL_32
            || self.offset >= FULL_32
    }

    /// Returns the header fields from the version to the date.
    fn middle(&self, needed: u16) -> Vec<u8> {
        let method: u16 = if self.method == Method::Deflated { 8 } else { 0 };
        let (time, date) = dos_time(self.mtime);
        [needed, self.flags(), method, time, date].iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn extra(&self) -> Vec<u8> {
        let mut extra = Vec::new();
        if let Ok(secs) = i32::try_from(self.mtime.secs) {
            extra.extend(*b"UT\x05\0\x01");
            extra.extend(secs.to_le_bytes());
        }
        if let Some(OwnerIds { uid, gid }) = self.owner {
            extra.extend(*b"ux\x0b\0\x01\x04");
            extra.extend(uid.to_le_bytes());
            extra.push(4);
            extra.extend(gid.to_le_bytes());
        }
        extra
    }

    /// Returns the local header, which precedes the content.
    pub(super) fn local(&self) -> Vec<u8> {
        let is_long = self.behind == Some(Bits::Many);
        let mut out = b"PK\x03\x04".to_vec();
        out.extend(self.middle(if is_long { NEEDED_64 } else { NEEDED }));
        let mut extra = self.extra();
        let known = if self.behind.is_some() { [0; 3] } else { self.lengths() };
        let [crc, packed, raw] = if is_long { [0, u32::MAX, u32::MAX] } else { known };
        if is_long {
            extra.extend(*b"\x01\0\x10\0");
            extra.extend([0; 16]);
        }
        [crc, packed, raw].iter().for_each(|number| out.extend(number.to_le_bytes()));
        self.name_and_extra(&mut out, &extra);
        out.extend(self.name);
        out.extend(extra);
        out
    }

    /// Returns the checksum and the lengths, capped at 32 bits.
    fn lengths(&self) -> [u32; 3] {
        [self.crc, low(self.packed_bytes), low(self.bytes)]
    }

    fn name_and_extra(&self, out: &mut Vec<u8>, extra: &[u8]) {
        // The caller has checked the length of the name.
        for len in [self.name.len(), extra.len()] {
            out.extend(u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
        }
    }

    /// Returns the data descriptor, which follows a content whose length was unknown.
    pub(super) fn descriptor(&self) -> Vec<u8> {
        let mut out = b"PK\x07\x08".to_vec();
        out.extend(self.crc.to_le_bytes());
        for len in [self.packed_bytes, self.bytes] {
            match self.behind {
                Some(Bits::Many) => out.extend(len.to_le_bytes()),
                _ => out.extend(low(len).to_le_bytes()),
            }
        }
        out
    }

    /// Returns the entry in the central directory.
    pub(super) fn central(&self) -> Vec<u8> {
        let mut out = b"PK\x01\x02".to_vec();
        out.extend(MADE_BY.to_le_bytes());
        out.extend(self.middle(if self.is_long() { NEEDED_64 } else { NEEDED }));
        self.lengths().iter().for_each(|number| out.extend(number.to_le_bytes()));
        let mut extra = self.extra();
        let long: Vec<u8> = [self.bytes, self.packed_bytes, self.offset]
            .iter()
            .filter(|number| **number >= FULL_32)
            .flat_map(|number| number.to_le_bytes())
            .collect();
        if let Ok(len @ 1..) = u16::try_from(long.len()) {
            extra.extend([1, 0]);
            extra.extend(len.to_le_bytes());
            extra.extend(long);
        }
        self.name_and_extra(&mut out, &extra);
        // No comment, disk 0, no internal attributes.
        out.extend([0; 6]);
        let is_folder = self.name.ends_with(b"/");
        out.extend((self.mode << 16 | if is_folder { 0x10 } else { 0 }).to_le_bytes());
        out.extend(low(self.offset).to_le_bytes());
        out.extend(self.name);
        out.extend(extra);
        out
    }
}

/// Returns the end of the archive, for a directory of `entries` and `bytes` that starts
/// at `offset`.
pub(super) fn end(entries: u64, bytes: u64, offset: u64) -> Vec<u8> {
    let mut out = Vec::new();
    if entries >= FULL_16 || bytes >= FULL_32 || offset >= FULL_32 {
        out.extend(*b"PK\x06\x06");
        out.extend(44_u64.to_le_bytes());
        [MADE_BY, NEEDED_64].iter().for_each(|version| out.extend(version.to_le_bytes()));
        out.extend([0; 8]);
        [entries, entries, bytes, offset]
            .iter()
            .for_each(|number| out.extend(number.to_le_bytes()));
        out.extend(*b"PK\x06\x07\0\0\0\0");
        out.extend((offset + bytes).to_le_bytes());
        out.extend(1_u32.to_le_bytes());
    }
    out.extend(*b"PK\x05\x06\0\0\0\0");
    let count = u16::try_from(entries).unwrap_or(u16::MAX);
    [count, count].iter().for_each(|count| out.extend(count.to_le_bytes()));
    [low(bytes), low(offset)].iter().for_each(|number| out.extend(number.to_le_bytes()));
    out.extend([0; 2]);
    out
}

fn low(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns time and date in DOS format, with a resolution of two seconds.
fn dos_time(time: Time) -> (u16, u16) {
    const FIRST: i64 = 315_532_800; // 1980-01-01
    const LAST: i64 = 4_354_819_198; // 2107-12-31T23:59:58
    let secs = time.secs.clamp(FIRST, LAST);
    let Civil { year, month, day, hour, minute, second } = Time { secs, nanos: 0 }.civil();
    let bits = |number: u8, left: u8| u16::from(number) << left;
    let years = u16::try_from(year - 1980).unwrap_or_default();
    (
        bits(hour, 11) | bits(minute, 5) | bits(second / 2, 0),
        years << 9 | bits(month, 5) | bits(day, 0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(bytes: u64, offset: u64) -> ZipHeader<'static> {
        ZipHeader {
            name: b"n",
            method: Method::Stored,
            mtime: Time { secs: 1_700_000_000, nanos: 5 },
            owner: None,
            mode: 0o100_644,
            crc: 7,
            packed_bytes: bytes,
            bytes,
            offset,
            behind: None,
        }
    }

    #[test]
    fn times_are_converted_to_calendar_dates() {
        let date = |secs| {
            let (time, date) = dos_time(Time { secs, nanos: 0 });
            let (year, month, day) = (1980 + (date >> 9), date >> 5 & 15, date & 31);
            (year, month, day, time >> 11, time >> 5 & 63, (time & 31) * 2)
        };
        assert_eq!(date(1_700_000_000), (2023, 11, 14, 22, 13, 20));
        assert_eq!(date(951_782_399), (2000, 2, 28, 23, 59, 58));
        assert_eq!(date(951_782_400), (2000, 2, 29, 0, 0, 0));
        assert_eq!(date(951_868_800), (2000, 3, 1, 0, 0, 0));
        assert_eq!(date(-5), (1980, 1, 1, 0, 0, 0));
        assert_eq!(date(i64::MAX), (2107, 12, 31, 23, 59, 58));
    }

    #[test]
    fn lengths_beyond_32_bits_use_the_zip64_field() {
        let few = header(FULL_32 - 1, 0).central();
        assert!(!few.windows(4).any(|bytes| bytes == b"\x01\0\x10\0"));
        let many = header(FULL_32, FULL_32 + 1).central();
        let extra = &many[many.len() - 28..];
        assert_eq!(&extra[..4], b"\x01\0\x18\0");
        assert_eq!(extra[4..12], FULL_32.to_le_bytes());
        assert_eq!(extra[20..], (FULL_32 + 1).to_le_bytes());
        assert_eq!(many[20..28], [0xff; 8]);
        let stream = ZipHeader { behind: Some(Bits::Many), ..header(5, 0) };
        assert_eq!(stream.descriptor().len(), 24);
        assert_eq!(stream.local()[18..26], [0xff; 8]);
    }

    #[test]
    fn a_large_archive_ends_with_a_zip64_record() {
        assert_eq!(end(65_534, 10, 10).len(), 22);
        assert_eq!(end(65_535, 10, 10).len(), 98);
        assert_eq!(end(1, 10, FULL_32).len(), 98);
    }
}
