//! How fast a content is cut into chunks, in bytes/s of it on one thread.
//!
//! Random bytes and text are the usual case: three fifths of each chunk lie
//! below the shortest length and are skipped. Zeros are the worst one: nothing
//! in them ends a chunk, so all but that part is looked at.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use snap_core::chunk::{Cutter, Params};
use snap_testkit::bytes::Corpus;

const INPUT_BYTES: usize = 64 << 20;

pub(crate) fn cut(c: &mut Criterion) {
    let mut group = c.benchmark_group("chunk/cut");
    group.throughput(Throughput::Bytes(INPUT_BYTES as u64));
    for corpus in [Corpus::Random, Corpus::Text, Corpus::Zeros] {
        let input = corpus.make(INPUT_BYTES);
        group.bench_with_input(BenchmarkId::from_parameter(corpus), &input, |b, input| {
            b.iter(|| chunks(black_box(input)));
        });
    }
    group.finish();
}

/// Cuts all of `content`, and says how many chunks there are.
fn chunks(content: &[u8]) -> usize {
    let (mut cutter, mut rest, mut chunks) = (Cutter::new(Params::DEFAULT), content, 0);
    while let Some(bytes) = cutter.next_cut(rest, true) {
        rest = &rest[bytes..];
        chunks += 1;
    }
    chunks
}
