//! The gear hash, and a fast search for cut points.
//!
//! Each step of the hash depends on the step before it, so a plain loop leaves most of
//! a core idle. But a byte has no influence on the hash after 64 steps. So the search
//! hashes four adjacent stretches of the data in parallel lanes. Each lane first hashes
//! the 64 bytes before its stretch. The first hit of the first lane with a hit is the
//! cut point, the same one that the plain loop finds.
//!
//! A run of zeros is skipped. When the window holds only zeros, one more zero does not
//! change the hash.

use std::sync::LazyLock;

/// Derive-key context of the gear table.
pub const GEAR_CONTEXT: &str = "snap 2026-11-21 gear table v1";

/// Number of steps after which a byte has no influence on the hash.
const WINDOW: usize = 64;

const LANES: usize = 4;

/// Bytes that each lane hashes in one round.
const STRETCH: usize = 2048;

static GEAR: LazyLock<[u64; 256]> = LazyLock::new(|| {
    let mut stream = blake3::Hasher::new_derive_key(GEAR_CONTEXT).finalize_xof();
    std::array::from_fn(|_| {
        let mut word = [0; 8];
        stream.fill(&mut word);
        u64::from_le_bytes(word)
    })
});

/// Returns the table, for a comparison with another implementation.
#[cfg(test)]
pub(super) fn table() -> &'static [u64; 256] {
    &GEAR
}

fn step(gear: &[u64; 256], hash: u64, byte: u8) -> u64 {
    (hash << 1).wrapping_add(gear[usize::from(byte)])
}

/// Finds the first offset from `from` on at which, after its byte, all bits of `mask`
/// in the hash are zero. The hash started with the byte at `start`. `hash` is its value
/// before `from`; without a hit, it is set to the value at the end of `data`.
pub(super) fn find(
    data: &[u8],
    from: usize,
    start: usize,
    hash: &mut u64,
    mask: u64,
) -> Option<usize> {
    let gear: &[u64; 256] = &GEAR;
    let mut at = from;
    // A lane needs a full window of hashed bytes before it.
    let wide_from = start + WINDOW;
    // The hash of a window of zeros: the sum of `gear[0] << i` for i from 0 to 63,
    // which is −`gear[0]` modulo 2⁶⁴.
    let hash_of_zeros = gear[0].wrapping_neg();
    while at < data.len() {
        if at >= wide_from && data[at] == 0 && is_zeros(&data[at - WINDOW..at]) {
            if hash_of_zeros & mask == 0 {
                return Some(at);
            }
            at += zeros_at_start(&data[at..]);
            *hash = hash_of_zeros;
            continue;
        }
        if at >= wide_from && data.len() - at >= LANES * STRETCH {
            match find_wide(gear, data, at, mask) {
                Ok(found) => return Some(found),
                Err(end_hash) => *hash = end_hash,
            }
            at += LANES * STRETCH;
            continue;
        }
        let narrow_end = if at < wide_from { wide_from.min(data.len()) } else { data.len() };
        for (offset, &byte) in data[at..narrow_end].iter().enumerate() {
            *hash = step(gear, *hash, byte);
            if *hash & mask == 0 {
                return Some(at + offset);
            }
        }
        at = narrow_end;
    }
    None
}

/// Returns true if all bytes are zero.
pub(super) fn is_zeros(bytes: &[u8]) -> bool {
    zeros_at_start(bytes) == bytes.len()
}

/// Returns the number of zeros at the start.
fn zeros_at_start(bytes: &[u8]) -> usize {
    /// Compared with `memcmp`, which is fast at any optimization level.
    static ZEROS: [u8; 4096] = [0; 4096];
    let (blocks, _) = bytes.as_chunks::<4096>();
    let whole = ZEROS.len() * blocks.iter().take_while(|block| **block == ZEROS).count();
    whole + bytes[whole..].iter().take_while(|byte| **byte == 0).count()
}

/// Searches `LANES × STRETCH` bytes from `at` on. Returns `Err` with the hash at their
/// end if there is no hit.
fn find_wide(gear: &[u64; 256], data: &[u8], at: usize, mask: u64) -> Result<usize, u64> {
    let mut hashes: [u64; LANES] = std::array::from_fn(|lane| {
        let begin = at + lane * STRETCH;
        data[begin - WINDOW..begin].iter().fold(0, |hash, &byte| step(gear, hash, byte))
    });
    // Array types let the compiler omit bounds checks.
    let (stretches, _) = data[at..at + LANES * STRETCH].as_chunks::<STRETCH>();
    let [a, b, c, d] = stretches else { return Err(hashes[LANES - 1]) };
    let mut hits = [usize::MAX; LANES];
    for offset in 0..STRETCH {
        hashes[0] = step(gear, hashes[0], a[offset]);
        hashes[1] = step(gear, hashes[1], b[offset]);
        hashes[2] = step(gear, hashes[2], c[offset]);
        hashes[3] = step(gear, hashes[3], d[offset]);
        let any = hashes.iter().any(|hash| hash & mask == 0);
        if any {
            for lane in 0..LANES {
                if hashes[lane] & mask == 0 {
                    hits[lane] = hits[lane].min(offset);
                }
            }
            // The first lane comes first in the data, so its hit is the earliest.
            if hits[0] != usize::MAX {
                break;
            }
        }
    }
    match hits.iter().position(|&hit| hit != usize::MAX) {
        Some(lane) => Ok(at + lane * STRETCH + hits[lane]),
        None => Err(hashes[LANES - 1]),
    }
}
