//! Reads a Parquet file inside a snapshot of a remote store with the `parquet`
//! crate, and says what that took:
//!
//! ```text
//! cargo run --manifest-path benches/Cargo.toml --example parquet -- s3://bucket/prefix main:data/table.parquet
//! ```

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    io::{self, Read, Write},
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    errors::ParquetError,
    file::reader::{ChunkReader, FileReader, Length, SerializedFileReader},
};
use snap_core::{
    format::tree::{Entry, EntryKind},
    repo::{
        path::{ResolvedPath, resolve_path},
        spec::{Revisions, base_texts},
    },
};
use snap_remote::{
    bucket::traffic::Traffic,
    peer::open::{Opening, RemoteCredentials},
    ranges::{RangeReader, RangeReaderOptions},
    reader::{RefSelection, RemoteReader},
    remote_packs::BlockingContext,
};
use tokio::runtime::{Handle, Runtime};

/// A content with the interface that the `parquet` crate needs: random access for blocking threads.
/// Close ranges are fetched in one request, and no range is fetched twice.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    content: RangeReader,
    runtime: Handle,
    position: u64,
}

impl Parts {
    /// The parts of `content`, waited for in `runtime`.
    pub(crate) fn of(content: RangeReader, runtime: &Handle) -> Self {
        Self { content, runtime: runtime.clone(), position: 0 }
    }

    fn read_at(&self, start: u64, bytes: u64) -> io::Result<Bytes> {
        Ok(self.runtime.block_on(async { self.content.read_at(start, bytes).await })?)
    }
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.read_at(self.position, buffer.len() as u64)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }
}

impl Length for Parts {
    fn len(&self) -> u64 {
        self.content.len()
    }
}

impl ChunkReader for Parts {
    type T = Self;

    fn get_read(&self, start: u64) -> Result<Self, ParquetError> {
        Ok(Self { position: start, ..self.clone() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.read_at(start, length as u64)?;
        match bytes.len() == length {
            true => Ok(bytes),
            false => Err(ParquetError::EOF("the file ends early".to_owned())),
        }
    }
}

/// The shape of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Rows of all row groups.
    pub(crate) rows: u64,
    /// Names of the columns.
    pub(crate) columns: Vec<String>,
    /// Bytes of all pages, expanded.
    pub(crate) page_bytes: u64,
}

/// Reads every page of every column.
pub(crate) fn scan(parts: Parts) -> Result<Table, ParquetError> {
    let reader = SerializedFileReader::new(parts)?;
    let metadata = reader.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let columns = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let mut table = Table { rows: 0, columns, page_bytes: 0 };
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number)?;
        table.rows += group.metadata().num_rows() as u64;
        for column in 0..group.num_columns() {
            let mut pages = group.get_column_page_reader(column)?;
            while let Some(page) = pages.get_next_page()? {
                table.page_bytes += page.buffer().len() as u64;
            }
        }
    }
    Ok(table)
}

/// Opens the file that `spec` (`REV:PATH`) names.
pub(crate) fn open_file(reading: &RemoteReader, spec: &str) -> Result<RangeReader, Box<dyn Error>> {
    let repo = reading.repo();
    let resolved = Revisions::new(repo, &|_| None).resolve(spec.as_bytes())?;
    let path = resolved.path.unwrap_or_default();
    match resolve_path(repo.store(), resolved.commit.tree, &path)? {
        ResolvedPath::Entry(Entry { kind: EntryKind::File { id, .. }, .. }) => {
            Ok(reading.open_file(&id, RangeReaderOptions::default())?)
        }
        _ => Err(format!("{spec} is not a file").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [location, spec] = words.as_slice() else {
        return Err("expected a location and REV:PATH".into());
    };
    let runtime = Runtime::new()?;
    let traffic = Arc::new(Traffic::default());
    let cache = tempfile::tempdir()?;
    let (options, secrets) = (BTreeMap::new(), RemoteCredentials::default());
    let remote = {
        let _entered = runtime.enter();
        Opening::new(&location.parse()?, &options, &secrets, &traffic).store(cache.path())?
    };
    let which = RefSelection::Revisions(&[base_texts(spec.as_bytes(), &|_| None)]);
    let reading =
        RemoteReader::open(remote, which, &BlockingContext::without_stop(runtime.handle()))?;
    let content = open_file(&reading, spec)?;
    let opened = traffic.counts().requests();
    let table = scan(Parts::of(content, runtime.handle()))?;
    let requests = traffic.counts().requests();
    let mut out = io::stdout().lock();
    writeln!(out, "{} rows, {} B of pages", table.rows, table.page_bytes)?;
    writeln!(out, "columns: {}", table.columns.join(", "))?;
    writeln!(out, "{opened} requests to open it, {} to read it", requests - opened)?;
    Ok(())
}
