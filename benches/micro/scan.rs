//! How fast a folder of 10,000 files is listed with the stat of each, in
//! entries/s. What the system remembers of it is warm.

use std::os::fd::AsFd;

use criterion::{Criterion, Throughput};
use snap_core::local::scan::Listing;

const FILES: usize = 10_000;

pub(crate) fn list(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for number in 0..FILES {
        let path = dir.path().join(format!("file-{number:05}.txt"));
        fs_err::write(path, b"").expect("there is room");
    }
    let mut group = c.benchmark_group("scan/list");
    group.throughput(Throughput::Elements(FILES as u64));
    group.bench_function("10,000 files", |b| {
        b.iter(|| {
            let folder = fs_err::File::open(dir.path()).expect("it was just made");
            let listing = Listing::read(folder.as_fd()).expect("it can be read");
            assert_eq!(listing.entries.len(), FILES);
        });
    });
    group.finish();
}
