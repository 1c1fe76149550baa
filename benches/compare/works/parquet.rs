//! Scans all columns of a Parquet file of 800 KiB in a remote snapshot, with a latency of 100 ms
//! for each request. The `parquet` crate reads it as in `examples/parquet.rs`. Opening the
//! file is counted separately.

use std::{sync::Arc, time::Duration, time::Instant};

use fs_err as fs;
use parquet::{
    data_type::DoubleType,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use snap_core::repo::spec::base_texts;
use snap_remote::{
    peer::RemoteStore,
    ranges::RangeReader,
    reader::{RefSelection, RemoteReader},
    remote_packs::BlockingContext,
};

use super::{Bench, remote::Ground};
use crate::{
    Result,
    bucket::{Bucket, Way, runtime},
    measure::Samples,
    place::empty,
    table::{Row, Target, Unit},
};

#[path = "../../examples/parquet.rs"]
#[expect(dead_code, reason = "an example has a main function of its own")]
mod example;

const LATENCY: Duration = Duration::from_millis(100);
const GROUPS: usize = 50;
const COLUMNS: usize = 12;
const ROWS: usize = 160;
const SPEC: &str = "main:table.parquet";

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    fs::create_dir_all(&data)?;
    fs::write(data.join("table.parquet"), table()?)?;
    bench.place.settle();
    let bucket = Bucket::open(bench.args.s3, Way::Counted)?;
    let ground = Ground::new(bench, &bucket, &data, &[]);
    ground.save_all()?;
    bucket.delay(LATENCY);
    let runtime = runtime()?;
    let (mut opening, mut scanning, mut samples) = (0, 0, Samples::default());
    for _ in 0..=bench.args.runs {
        bucket.counts();
        let content = open(&ground, &runtime)?;
        opening = bucket.requests().unwrap_or_default();
        let begin = Instant::now();
        let scanned = example::scan(example::Parts::of(content, runtime.handle()))?;
        samples.push(begin.elapsed());
        scanning = scanning.max(bucket.requests().unwrap_or_default());
        if (scanned.rows, scanned.columns.len()) != ((GROUPS * ROWS) as u64, COLUMNS) {
            return Err(format!("the table differs: {scanned:?}").into());
        }
    }
    let row = |measure, unit, figure, target| Row {
        work: format!("Parquet, {GROUPS} × {COLUMNS} chunks, {} ms", LATENCY.as_millis()),
        place: bucket.server.to_owned(),
        measure,
        unit,
        snap: figure,
        detail: String::new(),
        peers: Vec::new(),
        target,
    };
    Ok(vec![
        row("requests to scan", Unit::Count, Some(scanning as f64), Target::AtMost(4.0)),
        row("requests to open", Unit::Count, Some(opening as f64), Target::None),
        Row {
            detail: samples.shown_range(),
            ..row("time to scan", Unit::Secs, samples.median_secs(), Target::None)
        },
    ])
}

/// Opens the file by a client without a cache.
fn open(ground: &Ground<'_>, runtime: &tokio::runtime::Runtime) -> Result<RangeReader> {
    let cache = ground.bench.place.join("cache");
    empty(&cache)?;
    let (bucket, prefix) = (ground.bucket, ground.keepers[0].prefix());
    let remote = RemoteStore::new(bucket.client(&prefix)?, format!("s3://{prefix}"), &cache)?;
    let waiting = BlockingContext::without_stop(runtime.handle());
    let which = RefSelection::Revisions(&[base_texts(SPEC.as_bytes(), &|_| None)]);
    let reading = RemoteReader::open(remote, which, &waiting)?;
    example::open_file(&reading, SPEC)
}

fn table() -> Result<Vec<u8>> {
    let columns: String = (0..COLUMNS).map(|n| format!("required double column{n}; ")).collect();
    let schema = parse_message_type(&format!("message table {{ {columns} }}"))?;
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    for group in 0..GROUPS {
        let mut row_group = writer.next_row_group()?;
        let mut first = group * ROWS;
        while let Some(mut column) = row_group.next_column()? {
            let values: Vec<f64> = (first..first + ROWS).map(|row| row as f64 / 7.0).collect();
            column.typed::<DoubleType>().write_batch(&values, None, None)?;
            column.close()?;
            first += GROUPS * ROWS;
        }
        row_group.close()?;
    }
    writer.close()?;
    Ok(bytes)
}
