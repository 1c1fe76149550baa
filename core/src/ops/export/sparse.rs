//! Finds the holes of a sparse file by their zeros, and encodes the map of its data for tar.
//!
//! The map is that of GNU tar's sparse format 1.0: the number of extents, then offset and
//! length of each, in decimal, one number a line, padded to a tar block. A final extent
//! of length 0 marks the end of a file that ends with a hole.

use std::fmt::Write as _;

use crate::local::holes::{HOLE_BYTES, data_in};

/// Maximum number of extents. Beyond it, extents that are close to each other are merged, so that a
/// file with very many holes takes bounded memory.
const EXTENTS: usize = 1 << 16;

/// The ranges of a file that contain data.
#[derive(Debug)]
pub(super) struct Extents {
    /// Start and end of each range, in order.
    data: Vec<(u64, u64)>,
    bytes: u64,
    /// Gaps of fewer bytes than this count as data.
    least_gap: u64,
}

impl Extents {
    /// Creates the map of an empty file.
    pub(super) fn new() -> Self {
        Self { data: Vec::new(), bytes: 0, least_gap: 1 }
    }

    /// Adds the next bytes of the file.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for data in data_in(bytes, self.bytes) {
            self.add(self.bytes + data.start as u64, self.bytes + data.end as u64);
        }
        self.bytes += bytes.len() as u64;
    }

    fn add(&mut self, start: u64, end: u64) {
        match self.data.last_mut() {
            Some(last) if start - last.1 < self.least_gap => last.1 = end,
            _ => self.data.push((start, end)),
        }
        while self.data.len() > EXTENTS {
            self.least_gap = (self.least_gap * 2).max(HOLE_BYTES as u64);
            let gap = self.least_gap;
            self.data.dedup_by(|next, last| {
                let is_close = next.0 - last.1 < gap;
                if is_close {
                    last.1 = next.1;
                }
                is_close
            });
        }
    }

    /// Returns true if the file has no holes.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes == 0 || self.data == [(0, self.bytes)]
    }

    /// Returns the total length of all data in bytes.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the encoded map without padding.
    pub(super) fn map(&self) -> String {
        let mut map = String::new();
        let ends_with_hole = self.data.last().is_none_or(|(_, end)| *end < self.bytes);
        // Writing to a string cannot fail.
        let _ = writeln!(map, "{}", self.data.len() + usize::from(ends_with_hole));
        for (start, end) in &self.data {
            let _ = write!(map, "{start}\n{}\n", end - start);
        }
        if ends_with_hole {
            let _ = write!(map, "{}\n0\n", self.bytes);
        }
        map
    }

    /// Returns the parts of `bytes` that are data. `bytes` start at `offset` in the file. `from` is
    /// the index of the first extent that may overlap; the call advances it.
    pub(super) fn within<'b>(
        &self,
        offset: u64,
        bytes: &'b [u8],
        from: &mut usize,
    ) -> Vec<&'b [u8]> {
        let end = offset + bytes.len() as u64;
        let mut parts = Vec::new();
        while let Some((data_start, data_end)) = self.data.get(*from) {
            if *data_start >= end {
                break;
            }
            let (first, last) = ((*data_start).max(offset), (*data_end).min(end));
            if first < last {
                parts.push(&bytes[(first - offset) as usize..(last - offset) as usize]);
            }
            if *data_end > end {
                break;
            }
            *from += 1;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(bytes: &[u8], pieces: usize) -> Extents {
        let mut extents = Extents::new();
        bytes.chunks(pieces).for_each(|piece| extents.feed(piece));
        extents
    }

    #[test]
    fn holes_are_found_for_every_read_size() {
        let mut file = vec![0; 100_000];
        file[5000] = 1;
        file[20_480..50_000].fill(2);
        for pieces in [1, 100, 4096, 5000, 100_000] {
            let extents = extents(&file, pieces);
            let mut out = vec![0; file.len()];
            let (mut from, mut offset, mut data) = (0, 0, Vec::new());
            for piece in file.chunks(777) {
                extents.within(offset, piece, &mut from).iter().for_each(|part| {
                    data.extend_from_slice(part);
                });
                offset += piece.len() as u64;
            }
            assert_eq!(data.len() as u64, extents.data_bytes());
            let mut rest = &data[..];
            for (start, end) in &extents.data {
                let (part, after) = rest.split_at((end - start) as usize);
                out[*start as usize..*end as usize].copy_from_slice(part);
                rest = after;
            }
            assert!(out == file, "in pieces of {pieces}");
            // One block with the single byte, and eight blocks.
            assert!(extents.data_bytes() <= 9 * HOLE_BYTES as u64);
        }
        assert_eq!(extents(&file, 4096).map(), "3\n4096\n4096\n20480\n32768\n100000\n0\n");
        assert_eq!(extents(&[0; 9000], 4096).map(), "1\n9000\n0\n");
        assert!(extents(&[1; 9000], 100).is_whole());
        assert!(extents(&[], 100).is_whole());
    }

    #[test]
    fn a_file_with_very_many_holes_takes_bounded_memory() {
        let mut extents = Extents::new();
        let mut block = [0; 2 * HOLE_BYTES];
        block[0] = 1;
        for _ in 0..3 * EXTENTS {
            extents.feed(&block);
        }
        assert!(extents.data.len() <= EXTENTS);
        assert_eq!(extents.bytes, 6 * (EXTENTS * HOLE_BYTES) as u64);
    }
}
