//! Rate of compressing and expanding a frame of small files, in uncompressed bytes/s on one thread.
//!
//! Text is the usual case. Random bytes are detected and stored uncompressed: writing them costs
//! the attempt to compress, reading them a copy.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use snap_core::{
    base::limits::SMALL_FRAME_BYTES,
    codec::{DEFAULT_LEVEL, Decoder, Encoder},
};
use snap_testkit::bytes::Corpus;

const CORPORA: [Corpus; 2] = [Corpus::Text, Corpus::Random];

pub(crate) fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame/encode");
    group.throughput(Throughput::Bytes(SMALL_FRAME_BYTES as u64));
    let mut encoder = Encoder::new(DEFAULT_LEVEL).expect("the level is one");
    for corpus in CORPORA {
        let raw = corpus.make(SMALL_FRAME_BYTES);
        group.bench_with_input(BenchmarkId::from_parameter(corpus), &raw, |b, raw| {
            b.iter(|| encoder.encode(black_box(raw)).expect("memory is available").1.len());
        });
    }
    group.finish();
}

pub(crate) fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame/decode");
    group.throughput(Throughput::Bytes(SMALL_FRAME_BYTES as u64));
    let mut encoder = Encoder::new(DEFAULT_LEVEL).expect("the level is one");
    let mut decoder = Decoder::new().expect("memory is available");
    for corpus in CORPORA {
        let raw = corpus.make(SMALL_FRAME_BYTES);
        let (codec, stored) = encoder.encode(&raw).expect("memory is available");
        group.bench_with_input(BenchmarkId::from_parameter(corpus), stored, |b, stored| {
            b.iter(|| {
                let raw = decoder.decode(codec, black_box(stored), SMALL_FRAME_BYTES);
                raw.expect("it was just encoded")
            });
        });
    }
    group.finish();
}
