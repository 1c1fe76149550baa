//! A table inside a remote snapshot, read column by column through the whole stack.
//!
//! The reads are those of the `parquet` crate for a file of 50 row groups and 12 columns: the
//! footer, then each column of each group. `benches/compare` scans a real Parquet file.

use std::sync::Arc;

use snap_core::{
    format::tree::{Entry, EntryKind},
    repo::{
        path::{ResolvedPath, resolve_path},
        spec::{Revisions, base_texts},
    },
};
use snap_nettest::{Proxy, S3Options, S3Server};
use snap_remote::{
    bucket::traffic::Traffic,
    ranges::RangeReaderOptions,
    reader::{RefSelection, RemoteReader},
    remote_packs::BlockingContext,
};
use snap_testkit::bytes::Corpus;

use super::transfer::{Place, bucket};

const GROUPS: u64 = 50;
const COLUMNS: u64 = 12;
const COLUMN_BYTES: u64 = 1_300;
const FOOTER_BYTES: u64 = 20_000;

#[test]
fn all_columns_of_a_small_table_are_read_in_four_requests() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let columns_bytes = GROUPS * COLUMNS * COLUMN_BYTES;
    let table = Corpus::Random.make((columns_bytes + FOOTER_BYTES) as usize);
    here.write_bytes("data/table", &table);
    here.write("data/other", "something else");
    let service = || bucket(&proxy.endpoint(), &server, &traffic);
    let first = here.commit();
    here.push(&mut here.remote(service(), Arc::clone(&traffic)), first).unwrap();

    let there = Place::new();
    let runtime = there.runtime.handle();
    let remote = there.remote(service(), Arc::clone(&traffic));
    let waiting = BlockingContext::without_stop(runtime);
    let spec = b"main:data/table";
    let which = RefSelection::Revisions(&[base_texts(spec, &|_| None)]);
    let reading = RemoteReader::open(remote, which, &waiting).unwrap();
    let resolved = Revisions::new(reading.repo(), &|_| None).resolve(spec).unwrap();
    let path = resolved.path.unwrap();
    let store = reading.repo().store();
    let entry = resolve_path(store, resolved.commit.tree, &path).unwrap();
    let ResolvedPath::Entry(Entry { kind: EntryKind::File { id, .. }, .. }) = entry else {
        panic!("not a file");
    };
    let content = reading.open_file(&id, RangeReaderOptions::default()).unwrap();
    proxy.take_counts();
    let read = |start: u64, bytes: u64| {
        let part = runtime.block_on(async { content.read_at(start, bytes).await }).unwrap();
        assert!(part == table[start as usize..(start + bytes) as usize]);
    };
    read(content.len() - 8, 8);
    read(columns_bytes, FOOTER_BYTES);
    for column in 0..GROUPS * COLUMNS {
        read(column * COLUMN_BYTES, COLUMN_BYTES);
    }
    let counts = proxy.take_counts();
    assert!(counts.total <= 4, "{counts:?}");
}
