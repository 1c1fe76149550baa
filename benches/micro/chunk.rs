//! Rate of cutting content into chunks, in bytes/s on one thread.
//!
//! Random bytes and text are the usual case: three fifths of each chunk are below the minimum
//! length and are skipped. Zeros are the worst case: no cut point occurs in them, so everything
//! after the minimum length is examined.

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

/// Cuts all of `content`, and returns the number of chunks.
fn chunks(content: &[u8]) -> usize {
    let (mut cutter, mut rest, mut chunks) = (Cutter::new(Params::FORMAT), content, 0);
    while let Some(bytes) = cutter.next_cut(rest, true) {
        rest = &rest[bytes..];
        chunks += 1;
    }
    chunks
}
