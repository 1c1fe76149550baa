//! The gear hash and a search that uses the processor's width.
//!
//! Each step of the hash waits for the one before it, which leaves most of a
//! core idle. But after 64 steps nothing is left of what came before, so the
//! search runs four lanes at once, a stretch apart, each warmed up on the 64
//! bytes before its own stretch, and takes the first hit of the first lane
//! that has one. The cut points are those of the plain loop.
//!
//! A run of zeros is not searched at all: once the window holds nothing but
//! zeros, one more zero leaves the hash as it is.

use std::sync::LazyLock;

/// Derive-key context of the gear table.
pub const GEAR_CONTEXT: &str = "snap 2026-11-21 gear table v1";

/// After so many bytes a byte has left the hash.
const WINDOW: usize = 64;

const LANES: usize = 4;

/// Bytes that each lane looks at before hits are compared.
const STRETCH: usize = 2048;

static GEAR: LazyLock<[u64; 256]> = LazyLock::new(|| {
    let mut stream = blake3::Hasher::new_derive_key(GEAR_CONTEXT).finalize_xof();
    std::array::from_fn(|_| {
        let mut word = [0; 8];
        stream.fill(&mut word);
        u64::from_le_bytes(word)
    })
});

/// The table, for comparing with another implementation.
#[cfg(test)]
pub(super) fn table() -> &'static [u64; 256] {
    &GEAR
}

fn step(gear: &[u64; 256], hash: u64, byte: u8) -> u64 {
    (hash << 1).wrapping_add(gear[usize::from(byte)])
}

/// Finds the first offset from `from` on after whose byte the hash has all
/// bits of `mask` zero. The hash began with the byte at `start`; `hash` is its
/// value before `from`, and becomes that at the end of `data` without a hit.
pub(super) fn find(
    data: &[u8],
    from: usize,
    start: usize,
    hash: &mut u64,
    mask: u64,
) -> Option<usize> {
    let gear: &[u64; 256] = &GEAR;
    let mut at = from;
    // Lanes need a full window behind them that lies inside the hashed part.
    let wide_from = start + WINDOW;
    // The hash of a window of zeros: the sum of `gear[0] << i` for i below 64.
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

/// Returns whether all bytes are zero.
pub(super) fn is_zeros(bytes: &[u8]) -> bool {
    zeros_at_start(bytes) == bytes.len()
}

/// How many zeros the bytes begin with.
fn zeros_at_start(bytes: &[u8]) -> usize {
    /// Compared by `memcmp`, which is fast however this is compiled.
    static ZEROS: [u8; 4096] = [0; 4096];
    let (blocks, _) = bytes.as_chunks::<4096>();
    let whole = ZEROS.len() * blocks.iter().take_while(|block| **block == ZEROS).count();
    whole + bytes[whole..].iter().take_while(|byte| **byte == 0).count()
}

/// Looks at `LANES × STRETCH` bytes from `at` on. `Err` is the hash at their end.
fn find_wide(gear: &[u64; 256], data: &[u8], at: usize, mask: u64) -> Result<usize, u64> {
    let mut hashes: [u64; LANES] = std::array::from_fn(|lane| {
        let begin = at + lane * STRETCH;
        data[begin - WINDOW..begin].iter().fold(0, |hash, &byte| step(gear, hash, byte))
    });
    // Arrays, so that the compiler sees that no index leaves them.
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
            // Nothing can come before a hit in the first lane.
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
