//! Micro benchmarks: the hot paths one by one, a file each.
//!
//!     cargo bench -p snap-benches --bench micro            all of them
//!     cargo bench -p snap-benches --bench micro -- table   some of them
//!
//! All on one thread, but for a listing, whose stats are spread over all.

mod chunk;
mod frame;
mod scan;
mod table;
mod tree;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    chunk::cut,
    frame::encode,
    frame::decode,
    table::find,
    tree::encode,
    tree::decode,
    scan::list
);
criterion_main!(benches);
