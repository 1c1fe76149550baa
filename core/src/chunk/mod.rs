//! Layer 3: content-defined chunking.
//!
//! Cut points are part of the format: if two versions of snap cut a file differently,
//! they do not share its chunks. So snap has its own small chunker with golden vectors.
//! It is tested against the `fastcdc` crate.
//!
//! The algorithm is FastCDC as Xia et al. describe it in "The Design of Fast
//! Content-Defined Chunking for Data Deduplication Based Storage Systems"
//! (IEEE TPDS 2020), with a gear hash and normalisation level 2:
//!
//! * The hash starts at 0 before the byte at offset `min` of the chunk. Each byte
//!   updates it: `hash = (hash << 1) + gear[byte]`, modulo 2⁶⁴.
//! * A chunk ends *before* the first byte after which certain bits of the hash are all
//!   zero. Below offset `average` = 2ⁿ these are the n + 2 bits from bit 62 downwards;
//!   from `average` on, the n − 2 bits from bit 62 downwards. A chunk also ends at
//!   `max` bytes.
//! * `gear[i]` is the little-endian u64 at byte 8 × i of the BLAKE3 output stream in
//!   derive-key mode, with the context [`GEAR_CONTEXT`] and no input.
//!
//! The paper spreads the mask bits. Adjacent bits work as well, because with the
//! default sizes each of them depends on at least the last 42 bytes. Bit 63 is not
//! used: the `fastcdc` crate processes two bytes per step and could not test it.

mod gear;

pub use gear::GEAR_CONTEXT;

use crate::base::limits;

/// The chunk sizes. Only [`Params::FORMAT`] is used, except in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Minimum length of a chunk in bytes. Only the last chunk of a content may be shorter.
    pub min: usize,
    /// Length at which the chunker begins to cut more often: a power of two, more than `min`.
    pub average: usize,
    /// Maximum length of a chunk in bytes, more than `average`.
    pub max: usize,
}

impl Params {
    /// The sizes of the format: 768 KiB, 1 MiB and 4 MiB. The mean is 1.2 MiB, and the first three
    /// fifths of a chunk are skipped without hashing; see `docs/decisions/0005`.
    pub const FORMAT: Self = Self {
        min: limits::MIN_CHUNK_BYTES,
        average: limits::AVERAGE_CHUNK_BYTES,
        max: limits::CHUNK_BYTES,
    };
}

/// Finds the ends of the chunks of a content that arrives in pieces.
#[derive(Clone, Debug)]
pub struct Cutter {
    params: Params,
    scanned: usize,
    hash: u64,
}

impl Cutter {
    /// Creates a cutter at the beginning of a content.
    pub fn new(params: Params) -> Self {
        Self { params, scanned: params.min, hash: 0 }
    }

    /// Searches the end of the chunk that starts at `data[0]`.
    ///
    /// Returns its length, or `None` when more data is needed. The caller then calls
    /// again with the same bytes followed by more; only the new ones are hashed. `last`
    /// means that no more data will come. After a cut, the next chunk starts at the
    /// first byte behind it.
    pub fn next_cut(&mut self, data: &[u8], last: bool) -> Option<usize> {
        let Params { min, average, max } = self.params;
        let end = data.len().min(max);
        if end > min {
            // Below the average size more bits must be zero, so cuts are rarer there.
            // This normalises the chunk sizes.
            let average_bits = average.trailing_zeros();
            let small = mask(average_bits + 2);
            let large = mask(average_bits - 2);
            let average = end.min(average);
            let found =
                self.scan(&data[..average], small).or_else(|| self.scan(&data[..end], large));
            if let Some(cut) = found {
                return Some(self.restart(cut));
            }
        }
        let done = data.len() >= max || (last && !data.is_empty());
        done.then(|| self.restart(end))
    }

    fn restart(&mut self, cut: usize) -> usize {
        (self.scanned, self.hash) = (self.params.min, 0);
        cut
    }

    fn scan(&mut self, data: &[u8], mask: u64) -> Option<usize> {
        if self.scanned >= data.len() {
            return None;
        }
        let found = gear::find(data, self.scanned, self.params.min, &mut self.hash, mask);
        self.scanned = data.len();
        found
    }
}

/// Returns true if all bytes of a chunk are zero.
pub fn is_zeros(chunk: &[u8]) -> bool {
    gear::is_zeros(chunk)
}

/// Returns a mask of `bits` bits from bit 62 downwards.
const fn mask(bits: u32) -> u64 {
    ((1 << bits) - 1) << (63 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Params = Params { min: 2048, average: 8192, max: 32768 };

    fn noise(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new_derive_key("snap test noise").finalize_xof().fill(&mut bytes);
        bytes
    }

    fn cuts(data: &[u8], params: Params) -> Vec<usize> {
        let (mut cutter, mut rest, mut lengths) = (Cutter::new(params), data, Vec::new());
        while let Some(len) = cutter.next_cut(rest, true) {
            lengths.push(len);
            rest = &rest[len..];
        }
        lengths
    }

    /// Cuts with the `fastcdc` crate, given snap's table and masks.
    fn fastcdc_cuts(data: &[u8], params: Params) -> Vec<usize> {
        let gear = gear::table();
        let shifted: Vec<u64> = gear.iter().map(|g| g << 1).collect();
        let (small, large) =
            (mask(params.average.trailing_zeros() + 2), mask(params.average.trailing_zeros() - 2));
        let (mut rest, mut lengths) = (data, Vec::new());
        while !rest.is_empty() {
            let (_, len) = fastcdc::v2020::cut_gear(
                rest,
                params.min,
                params.average,
                params.max,
                small,
                large,
                small << 1,
                large << 1,
                &gear[..],
                &shifted,
            );
            lengths.push(len);
            rest = &rest[len..];
        }
        lengths
    }

    #[test]
    fn cuts_agree_with_the_fastcdc_crate() {
        let params = SMALL;
        let text = b"the quick brown fox jumps over the lazy dog, again and again; ".repeat(9000);
        for data in [noise(3 << 20), vec![0; 500_001], text, noise(2049), noise(8193)] {
            let ours = cuts(&data, params);
            assert_eq!(ours, fastcdc_cuts(&data, params));
            assert_eq!(ours.iter().sum::<usize>(), data.len());
        }
    }

    /// Cuts with the plain loop that the format describes, one byte per step.
    fn plain_cuts(data: &[u8], params: Params) -> Vec<usize> {
        let gear = gear::table();
        let (small, large) =
            (mask(params.average.trailing_zeros() + 2), mask(params.average.trailing_zeros() - 2));
        let (mut rest, mut lengths) = (data, Vec::new());
        while !rest.is_empty() {
            let mut hash = 0_u64;
            let end = rest.len().min(params.max);
            let found = (params.min..end).find(|&at| {
                let mask = if at < params.average { small } else { large };
                hash = (hash << 1).wrapping_add(gear[usize::from(rest[at])]);
                hash & mask == 0
            });
            let len = found.unwrap_or(end);
            lengths.push(len);
            rest = &rest[len..];
        }
        lengths
    }

    #[test]
    fn runs_of_zeros_are_cut_as_by_the_plain_loop() {
        let params = SMALL;
        let noise = noise(200_000);
        let mut seed = blake3::Hasher::new_derive_key("snap test runs").finalize_xof();
        let mut number = |below: usize| {
            let mut bytes = [0; 8];
            seed.fill(&mut bytes);
            (u64::from_le_bytes(bytes) % below as u64) as usize
        };
        for round in 0..300 {
            let mut data = Vec::new();
            for _ in 0..1 + number(12) {
                let (zeros, from) = (number(40_000), number(150_000));
                // Also use runs that are about as long as the window.
                let zeros = if number(3) == 0 { zeros % 200 } else { zeros };
                data.resize(data.len() + zeros, 0);
                let len = number(20_000) % [3, 70, 20_000][number(3)];
                data.extend_from_slice(&noise[from..from + len]);
            }
            assert_eq!(cuts(&data, params), plain_cuts(&data, params), "round {round}");
        }
    }

    /// The search that skips zeros must find the same as a plain loop, also if the hash
    /// of zeros matches the mask.
    #[test]
    fn every_mask_finds_the_same_cut_in_zeros_as_a_plain_loop() {
        let table = gear::table();
        for bits in 1..24 {
            for len in [0, 1, 63, 64, 65, 127, 8191, 8192, 20_000] {
                let mut data = noise(300);
                data.resize(300 + len, 0);
                data.extend_from_slice(&noise(9000)[..100 + len % 7]);
                let mask = mask(bits);
                let mut hash = 0_u64;
                let plain = (200..data.len()).find(|&at| {
                    hash = (hash << 1).wrapping_add(table[usize::from(data[at])]);
                    hash & mask == 0
                });
                let mut end = 0;
                assert_eq!(gear::find(&data, 200, 200, &mut end, mask), plain, "{bits} {len}");
                if plain.is_none() {
                    assert_eq!(end, hash, "{bits} {len}");
                }
            }
        }
    }

    #[test]
    fn golden_cuts_do_not_move() {
        let data = noise(12 << 20);
        assert_eq!(cuts(&data, Params::FORMAT), GOLDEN);
    }

    /// The cuts of 12 MiB of test noise with the sizes of the format. A change here
    /// changes the format.
    const GOLDEN: &[usize] = &[
        1205782, 1073445, 1082740, 1159026, 813148, 1107545, 1215738, 1135356, 1291694, 1335983,
        1068688, 93767,
    ];

    #[test]
    fn cuts_do_not_depend_on_the_read_size() {
        let params = SMALL;
        let data = noise(300_000);
        let whole = cuts(&data, params);
        for step in [1000, 4096, 65536] {
            let (mut cutter, mut start, mut have, mut lengths) =
                (Cutter::new(params), 0, 0, Vec::new());
            loop {
                match cutter.next_cut(&data[start..have], have == data.len()) {
                    Some(len) => {
                        lengths.push(len);
                        start += len;
                    }
                    None if have == data.len() => break,
                    None => have = (have + step).min(data.len()),
                }
            }
            assert_eq!(lengths, whole, "in steps of {step}");
        }
    }

    #[test]
    fn an_inserted_byte_moves_few_cuts() {
        let params = SMALL;
        let data = noise(1 << 20);
        let mut changed = data.clone();
        changed.insert(500_000, b'!');
        let pieces = |data: &[u8]| {
            let mut at = 0;
            cuts(data, params)
                .into_iter()
                .map(|len| {
                    at += len;
                    blake3::hash(&data[at - len..at])
                })
                .collect::<Vec<_>>()
        };
        let before = pieces(&data);
        let fresh = pieces(&changed).iter().filter(|id| !before.contains(id)).count();
        assert!(fresh <= 3, "{fresh} new chunks");
    }
}
