//! How fast a frame of small files is compressed and expanded, in bytes/s of
//! what is in it, on one thread.
//!
//! Text is the usual case. Random bytes are recognised and stored as they are,
//! so writing them costs the attempt and reading them a copy.

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
            b.iter(|| encoder.encode(black_box(raw)).expect("there is memory").1.len());
        });
    }
    group.finish();
}

pub(crate) fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame/decode");
    group.throughput(Throughput::Bytes(SMALL_FRAME_BYTES as u64));
    let mut encoder = Encoder::new(DEFAULT_LEVEL).expect("the level is one");
    let mut decoder = Decoder::new().expect("there is memory");
    for corpus in CORPORA {
        let raw = corpus.make(SMALL_FRAME_BYTES);
        let (codec, stored) = encoder.encode(&raw).expect("there is memory");
        group.bench_with_input(BenchmarkId::from_parameter(corpus), stored, |b, stored| {
            b.iter(|| {
                let raw = decoder.decode(codec, black_box(stored), SMALL_FRAME_BYTES);
                raw.expect("it was just encoded")
            });
        });
    }
    group.finish();
}
