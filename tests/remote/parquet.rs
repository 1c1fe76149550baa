//! A Parquet file inside a remote snapshot, scanned by the `parquet` crate.

use std::sync::Arc;

use parquet::{
    data_type::DoubleType,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use snap_nettest::{Proxy, S3Options, S3Server};
use snap_remote::{
    reader::{RefSelection, RemoteReader},
    remote_packs::BlockingContext,
    service::traffic::Traffic,
};

use super::transfer::{Place, bucket};

#[path = "../../remote/examples/parquet.rs"]
#[expect(dead_code, reason = "an example has a main function of its own")]
mod example;

const GROUPS: usize = 50;
const COLUMNS: usize = 12;
const ROWS: usize = 160;

/// Returns a table of about 800 KiB.
fn table() -> Vec<u8> {
    let columns: String =
        (0..COLUMNS).map(|n| format!("required double column{n};")).collect::<Vec<_>>().join(" ");
    let schema = parse_message_type(&format!("message table {{ {columns} }}")).unwrap();
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties)).unwrap();
    for group in 0..GROUPS {
        let mut row_group = writer.next_row_group().unwrap();
        let mut column_number = 0;
        while let Some(mut column) = row_group.next_column().unwrap() {
            let value = |row: usize| ((group * ROWS + row) * COLUMNS + column_number) as f64 / 7.0;
            let values: Vec<f64> = (0..ROWS).map(value).collect();
            column.typed::<DoubleType>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
            column_number += 1;
        }
        row_group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

#[test]
fn all_columns_of_a_small_table_are_read_by_four_requests() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let table = table();
    assert!((700_000..900_000).contains(&table.len()), "{}", table.len());
    here.write_bytes("data/table.parquet", &table);
    here.write("data/other", "something else");
    let service = || bucket(&proxy.endpoint(), &server, &traffic);
    let first = here.commit();
    here.push(&mut here.remote(service(), Arc::clone(&traffic)), first).unwrap();

    let there = Place::new();
    let remote = there.remote(service(), Arc::clone(&traffic));
    let waiting = BlockingContext::without_stop(there.runtime.handle());
    let spec = "main:data/table.parquet";
    let reading =
        RemoteReader::open(remote, RefSelection::Revisions(&[spec.as_bytes()]), &waiting).unwrap();
    let content = example::open_file(&reading, spec).unwrap();
    proxy.take_counts();
    let scanned = example::scan(example::Parts::of(content, there.runtime.handle())).unwrap();
    assert_eq!((scanned.rows, scanned.columns.len()), ((GROUPS * ROWS) as u64, COLUMNS));
    assert!(scanned.page_bytes >= (GROUPS * ROWS * COLUMNS * 8) as u64);
    let counts = proxy.take_counts();
    assert!(counts.total <= 4, "{counts:?}");
}
