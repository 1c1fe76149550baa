//! `export`: writes a snapshot as a tar or zip archive.
//!
//! An export uses two threads. One walks the tree in order, collects entries in batches, and loads
//! the small contents of a batch (`order`, `load`). It sorts contents by position, so that each
//! frame is decompressed once, and verifies them against their ids. For zip, it also compresses
//! them on all cores. The other thread writes a batch in the order of the tree (`tar`, `zip`) while
//! the next one is prepared. A content that was cut into chunks is not loaded; it is streamed when
//! the writer reaches it.
//!
//! Memory holds two batches, a few frames in addition to those that contain the batches, and the
//! paths of files with several names. Apart from these paths, it does not grow with the snapshot.
//! The same commit gives the same bytes each time, on every machine.
//!
//! Damage ends the export with an error that names the path. Bytes already written to a pipe cannot
//! be taken back, so a script must check the exit code.
//! [`OutputFile`](crate::disk::output::OutputFile) writes a file completely or not at all.

mod acl;
mod batch;
mod deflate;
mod directory;
mod error;
mod load;
mod order;
mod pax;
mod prefix;
mod sparse;
mod tar;
mod windows;
mod zip;
mod zip_header;

use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{Arc, mpsc::sync_channel},
    thread,
};

use zstd::zstd_safe::CParameter;

pub use error::ExportError;
pub use prefix::PathPrefix;

use crate::{
    base::{
        observe::{Observer, Phase},
        time::Time,
    },
    format::tree::EntryKind,
    ops::restore::RestoreSource,
    store::{ContentError, ContentReader, Store, StoreError},
};
use batch::ArchiveEntry;

/// Size in bytes of the buffer in front of the sink.
const BUFFER_BYTES: usize = 256 << 10;

/// Number of threads that compress a `.tar.zst`. Each takes about 6 MiB.
const ZSTD_WORKERS: usize = 4;

/// Number of bytes that each compression thread takes at a time.
const ZSTD_JOB_BYTES: u32 = 2 << 20;

/// The compression level of `.tar.zst`: zstd's own default.
const ZSTD_LEVEL: i32 = 3;

/// The compression level of zip. On text and program sources its result is within a
/// percent of what `zip` produces at level 6. Level 6 takes an eighth more time and saves
/// 1.3 %.
const ZIP_LEVEL: i32 = 5;

/// The format of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// POSIX tar, with extended headers where necessary.
    #[default]
    Tar,
    /// Tar compressed with zstd.
    TarZst,
    /// Zip as Info-ZIP writes it on Unix.
    Zip,
}

impl ArchiveFormat {
    /// Returns the supported compression levels, or `None` for plain tar.
    pub fn levels(self) -> Option<std::ops::RangeInclusive<i32>> {
        match self {
            Self::Tar => None,
            Self::TarZst => Some(1..=19),
            Self::Zip => Some(0..=9),
        }
    }

    fn default_level(self) -> i32 {
        if self == Self::Zip { ZIP_LEVEL } else { ZSTD_LEVEL }
    }
}

/// An entry, or a part of one, that is not in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MetadataLoss {
    /// A socket is left out.
    Socket,
    /// A named pipe is left out.
    Fifo,
    /// A device is left out.
    Device,
    /// The extended attributes of an entry are left out.
    Attributes,
    /// A further name of a file is written as a copy.
    Link,
    /// A name that Windows would interpret is written in another form.
    Name,
    /// A store, or a symbolic link called `.snap`, is left out, as by a restore. The observer
    /// receives a note with its path.
    Store,
}

/// Receives the path of an entry and what the archive loses of it.
pub type OnLoss<'a> = dyn Fn(&Path, MetadataLoss) + Sync + 'a;

/// Options of an export.
#[derive(Clone)]
pub struct ExportOptions<'a> {
    /// The format of the archive.
    pub format: ArchiveFormat,
    /// Compression level, within [`ArchiveFormat::levels`]; `None` means the default of the format.
    pub level: Option<i32>,
    /// The folder in the archive that contains all entries.
    pub prefix: PathPrefix,
    /// The mtime of entries for which none was recorded.
    pub mtime: Time,
    /// A folder for temporary data that does not fit in memory: the directory of a zip
    /// archive.
    pub scratch: &'a Path,
    /// Maximum number of bytes that are written to `scratch`.
    pub scratch_bytes: u64,
    /// Receives each loss of an entry.
    pub on_loss: Option<&'a OnLoss<'a>>,
}

impl Default for ExportOptions<'_> {
    fn default() -> Self {
        Self {
            format: ArchiveFormat::default(),
            level: None,
            prefix: PathPrefix::default(),
            mtime: Time::default(),
            scratch: Path::new("/tmp"),
            scratch_bytes: u64::MAX,
            on_loss: None,
        }
    }
}

/// Totals of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOutcome {
    /// Entries in the archive, including folders.
    pub entries: u64,
    /// Files in the archive. Each name of a file counts.
    pub files: u64,
    /// Total size of the files' contents. The content of a file with several names counts
    /// once if the archive contains it once.
    pub bytes: u64,
    /// Length of the archive in bytes.
    pub archive_bytes: u64,
    /// Number of entries for each loss.
    pub lost: BTreeMap<MetadataLoss, u64>,
}

/// The state that all parts of one export share.
struct ExportJob<'j> {
    store: &'j Store,
    options: &'j ExportOptions<'j>,
    observer: &'j dyn Observer,
}

impl ExportJob<'_> {
    fn level(&self) -> i32 {
        self.options.level.unwrap_or(self.options.format.default_level())
    }

    fn check(&self) -> Result<(), ExportError> {
        self.observer.check().map_err(|_| ExportError::Interrupted)
    }

    /// Returns an error about the content of an entry.
    fn damaged(&self, path: &[u8], source: impl Into<Arc<StoreError>>) -> ExportError {
        let path = path.strip_prefix(self.options.prefix.as_bytes()).unwrap_or(path);
        let path = String::from_utf8_lossy(path).into_owned();
        ExportError::Content { path, source: source.into() }
    }

    /// Passes the content of a large file to `each`, piece by piece.
    fn stream(
        &self,
        item: &ArchiveEntry,
        each: &mut dyn FnMut(&[u8]) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let Some((id, bytes)) = item.content() else { return Ok(()) };
        let mut unless_cancelled =
            |piece: &[u8]| each(piece).and_then(|()| self.check()).map_err(ContentError::Callback);
        let streamed =
            ContentReader::new(self.store).stream(&id, Some(bytes), &mut unless_cancelled);
        streamed.map_err(|error| match error {
            ContentError::Store(error) => self.damaged(&item.path, error),
            ContentError::Callback(error) => error,
        })
    }
}

/// A writer for an archive format.
trait Archive {
    /// Appends an entry.
    fn add(&mut self, item: ArchiveEntry) -> Result<(), ExportError>;

    /// Writes the end of the archive.
    fn finish(self: Box<Self>) -> Result<(), ExportError>;
}

/// Writes an archive of `what` to `sink`.
///
/// # Errors
/// [`ExportError`]. The bytes written before the error are an incomplete archive.
pub fn run(
    store: &Store,
    what: &RestoreSource,
    sink: &mut dyn Write,
    options: &ExportOptions<'_>,
    observer: &dyn Observer,
) -> Result<ExportOutcome, ExportError> {
    observer.phase(Phase::Export, total_bytes(store, what));
    let job = ExportJob { store, options, observer };
    let mut counted = CountingWriter { sink, bytes: 0 };
    let mut outcome = match options.format {
        ArchiveFormat::Tar => {
            let tar = |out| tar::Tar::new(&job, out, |out: ArchiveSink<'_>| out.flush());
            write(&job, what, |out| Ok(Box::new(tar(out))), &mut counted)?
        }
        ArchiveFormat::TarZst => write(&job, what, |out| zstd(&job, out), &mut counted)?,
        ArchiveFormat::Zip => {
            write(&job, what, |out| Ok(Box::new(zip::Zip::new(&job, out))), &mut counted)?
        }
    };
    outcome.archive_bytes = counted.bytes;
    Ok(outcome)
}

type ArchiveSink<'o> = &'o mut dyn Write;

/// Starts a thread that produces batches, and writes the batches on this thread.
fn write<'o>(
    job: &'o ExportJob<'o>,
    what: &RestoreSource,
    open: impl FnOnce(ArchiveSink<'o>) -> Result<Box<dyn Archive + 'o>, ExportError>,
    sink: ArchiveSink<'o>,
) -> Result<ExportOutcome, ExportError> {
    thread::scope(|scope| {
        // Without a buffer in the channel, at most two batches exist: one is written
        // while the next one is produced.
        let (sender, batches) = sync_channel(0);
        let producer = scope.spawn(move || order::produce(job, what, &sender));
        let mut archive = open(sink)?;
        let written = batches.iter().flatten().try_for_each(|item| {
            job.check()?;
            archive.add(item)
        });
        // Dropping the receiver ends the producer.
        drop(batches);
        let produced = producer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written?;
        let outcome = produced?;
        archive.finish()?;
        Ok(outcome)
    })
}

/// Opens a tar archive that is compressed with zstd.
fn zstd<'o>(
    job: &'o ExportJob<'o>,
    out: ArchiveSink<'o>,
) -> Result<Box<dyn Archive + 'o>, ExportError> {
    let mut encoder = zstd::Encoder::new(out, job.level())?;
    encoder.include_checksum(true)?;
    let workers = thread::available_parallelism().map_or(1, |count| count.get());
    // One worker thread produces the same bytes as several. Zero workers would produce
    // different bytes.
    encoder.multithread(workers.clamp(1, ZSTD_WORKERS) as u32)?;
    encoder.set_parameter(CParameter::JobSize(ZSTD_JOB_BYTES))?;
    Ok(Box::new(tar::Tar::new(job, encoder, |encoder| encoder.finish()?.flush())))
}

/// Returns the total size of the contents, for progress. Returns `None` if the tree is
/// damaged.
fn total_bytes(store: &Store, what: &RestoreSource) -> Option<u64> {
    match what {
        RestoreSource::Folder { tree, .. } => Some(store.tree(tree).ok()?.totals().bytes),
        RestoreSource::Entry(entry) => match entry.kind {
            EntryKind::File { size, .. } => Some(size),
            _ => None,
        },
    }
}

/// Counts the bytes that go to the sink.
struct CountingWriter<'w> {
    sink: &'w mut dyn Write,
    bytes: u64,
}

impl Write for CountingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Returns a buffer in front of a sink.
fn buffered<W: Write>(sink: W) -> BufWriter<W> {
    BufWriter::with_capacity(BUFFER_BYTES, sink)
}
