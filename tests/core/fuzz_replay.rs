//! Replays of inputs that fuzzing found, and of valid encodings with one bit flipped.
//!
//! The checks are those of the fuzz targets, see `fuzz/src/lib.rs`. Inputs are kept
//! under `fixtures/fuzz/TARGET/`. Their names say what they broke.

use std::path::Path;

#[path = "../../fuzz/src/lib.rs"]
#[expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a crate of its own"
)]
pub(crate) mod checks;

/// In a longer seed, only about this many bytes are flipped, at equal distances.
const FLIPPED_BYTES: usize = 1 << 10;

#[test]
fn past_fuzzing_finds_stay_fixed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/fuzz");
    for entry in fs_err::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_type().unwrap().is_dir() {
            continue;
        }
        let name = entry.file_name().into_string().unwrap();
        let target = checks::TARGETS.iter().find(|(target, _)| *target == name);
        let (_, check) = target.unwrap_or_else(|| panic!("there is no target `{name}`"));
        for find in fs_err::read_dir(entry.path()).unwrap() {
            check(&fs_err::read(find.unwrap().path()).unwrap());
        }
    }
}

#[test]
fn decoders_survive_every_flipped_bit_and_truncation() {
    for (name, check) in checks::TARGETS {
        let seeds = checks::seeds::of(name);
        assert!(!seeds.is_empty(), "`{name}` has nothing to start from");
        for seed in seeds {
            check(&seed);
            let step = 1 + seed.len() / FLIPPED_BYTES;
            for at in (0..seed.len()).step_by(step) {
                check(&seed[..at]);
                for bit in 0..8 {
                    let mut flipped = seed.clone();
                    flipped[at] ^= 1 << bit;
                    check(&flipped);
                }
            }
        }
    }
}

/// Asserts that the seeds are valid, so that mutations of them get past the first
/// check.
#[test]
fn fuzzing_seeds_are_valid() {
    use snap_core::format::{chunk_list::ChunkList, commit::Commit, pack, tree::Node};
    for seed in checks::seeds::of("tree") {
        Node::decode(&seed).unwrap();
    }
    for seed in checks::seeds::of("commit") {
        Commit::decode(&seed).unwrap();
    }
    ChunkList::decode(&checks::seeds::of("chunk_list")[0]).unwrap();
    let pack = &checks::seeds::of("pack")[0];
    let end = pack.len() - pack::TRAILER_BYTES;
    pack::Trailer::decode(&pack[end..], pack.len() as u64).unwrap();
}
