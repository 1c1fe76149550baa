//! Micro benchmarks of the hot paths, one file for each.
//!
//!     cargo bench --manifest-path benches/Cargo.toml --bench micro            all of them
//!     cargo bench --manifest-path benches/Cargo.toml --bench micro -- table   some of them
//!
//! All run on one thread, except for the listing, which stats entries on all cores.

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
