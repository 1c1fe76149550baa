//! Time of a lookup in an index of a million objects, on one thread.
//!
//! The keys are scattered over the whole table of 48 MB, which is in the page cache. A commit looks
//! up each new content once, and most lookups are misses.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use snap_core::{
    disk::{
        Disk,
        table::{Table, TableWriter},
    },
    format::table::{Shape, TablePurpose},
};
use snap_testkit::rng::Rng;

const RECORDS: usize = 1_000_000;

/// Number of lookups in one iteration, so that each iteration touches other blocks.
const LOOKUPS: usize = 1000;

const KEY_BYTES: usize = 32;
const SHAPE: Shape = Shape { purpose: TablePurpose::Index, key_bytes: KEY_BYTES, record_bytes: 48 };

type Key = [u8; KEY_BYTES];

pub(crate) fn find(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut rng = Rng::new(1);
    let mut keys: Vec<Key> = (0..RECORDS).map(|_| key(&mut rng)).collect();
    keys.sort_unstable();
    let table = made(&dir.path().join("table"), &keys);

    let hits: Vec<Key> = (0..RECORDS).map(|_| keys[rng.index(RECORDS)]).collect();
    let misses: Vec<Key> = (0..RECORDS).map(|_| key(&mut rng)).collect();
    let mut group = c.benchmark_group("table/find");
    group.throughput(Throughput::Elements(LOOKUPS as u64));
    for (name, wanted, is_there) in [("hit", &hits, true), ("miss", &misses, false)] {
        let mut turns = wanted.chunks_exact(LOOKUPS).cycle();
        group.bench_function(name, |b| {
            b.iter(|| {
                for key in turns.next().expect("a cycle has no end") {
                    let found = table.find(black_box(key)).expect("the table is complete");
                    assert_eq!(found.is_some(), is_there);
                }
            });
        });
    }
    group.finish();
}

fn key(rng: &mut Rng) -> Key {
    let mut key = [0; KEY_BYTES];
    rng.fill(&mut key);
    key
}

fn made(path: &std::path::Path, keys: &[Key]) -> Table {
    let mut writer = TableWriter::create(&Disk::default(), path, SHAPE).expect("a new file");
    let mut record = [0; 48];
    for key in keys {
        record[..KEY_BYTES].copy_from_slice(key);
        writer.push(&record).expect("there is room");
    }
    let path = writer.finish(&[]).expect("there is room");
    Table::open(&path, SHAPE).expect("it was just written")
}
