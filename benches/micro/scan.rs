//! Rate of listing a folder of 10,000 files with the stat of each, in entries/s, with warm caches
//! of the system.

use std::os::fd::AsFd;

use criterion::{Criterion, Throughput};
use snap_core::local::scan::ScannedFolder;

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
            let listing = ScannedFolder::read(folder.as_fd()).expect("it can be read");
            assert_eq!(listing.entries.len(), FILES);
        });
    });
    group.finish();
}
