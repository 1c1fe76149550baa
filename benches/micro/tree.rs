//! Rate of encoding (including ids) and decoding a folder of 10,000 files, in entries/s on one
//! thread.

use std::{hint::black_box, sync::Arc};

use criterion::{BatchSize, Criterion, Throughput};
use snap_core::{
    base::{
        id::{BlobId, TreeId},
        name::EntryName,
        time::Time,
    },
    format::{
        tree::{Entry, EntryKind, Metadata, Node, Owner, Totals, split::FolderEncoder},
        wire::FormatError,
    },
};

const ENTRIES: u32 = 10_000;

pub(crate) fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/encode");
    group.throughput(Throughput::Elements(u64::from(ENTRIES)));
    let entries = entries();
    group.bench_function("10,000 files", |b| {
        b.iter_batched(|| entries.clone(), nodes, BatchSize::LargeInput);
    });
    group.finish();
}

pub(crate) fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/decode");
    group.throughput(Throughput::Elements(u64::from(ENTRIES)));
    let nodes = nodes(entries());
    group.bench_function("10,000 files", |b| {
        b.iter(|| {
            for node in &nodes {
                black_box(Node::decode(node).expect("it was just encoded"));
            }
        });
    });
    group.finish();
}

/// Returns all nodes of the folder.
fn nodes(entries: Vec<Entry>) -> Vec<Vec<u8>> {
    let mut nodes = Vec::new();
    let mut put = |_: TreeId, bytes: Vec<u8>| {
        nodes.push(bytes);
        Ok::<_, FormatError>(())
    };
    let mut encoder = FolderEncoder::new();
    for entry in entries {
        encoder.push(entry, &Totals::default(), &mut put).expect("a reader accepts the entry");
    }
    encoder.finish(&mut put).expect("there are few levels");
    nodes
}

fn entries() -> Vec<Entry> {
    let owner = Owner { uid: 1000, gid: 1000, user: (*b"ann").into(), group: (*b"users").into() };
    let owner = Arc::new(owner);
    let entry = |number: u32| {
        let name = format!("photo-{number:05}.jpeg");
        let size = u64::from(number) * 37;
        Entry {
            name: EntryName::new(name.as_bytes()).expect("no slash in it"),
            kind: EntryKind::File { size, id: BlobId::of(name.as_bytes()).into() },
            metadata: Metadata {
                mode: 0o644,
                owner: Some(Arc::clone(&owner)),
                mtime: Some(Time { secs: 1_780_000_000 + i64::from(number), nanos: number * 1000 }),
                ..Metadata::default()
            },
        }
    };
    (0..ENTRIES).map(entry).collect()
}
