//! Export: hand a snapshot to any tool, as tar or zip.
//!
//! Two threads. One walks the tree in its order, collects entries in batches
//! and loads the small contents of a batch (`order`, `load`): sorted by where
//! they lie, so that each frame is expanded once, checked against their ids,
//! and for zip compressed, on all processors. The other one writes a batch in
//! the order of the tree (`tar`, `zip`) while the next one is made. A content
//! that was cut into chunks is not loaded but streamed when its turn comes.
//!
//! Memory holds two batches, a few frames besides those that they lie in, and the
//! paths of files with several names; it does not grow with the snapshot. One commit gives the same bytes
//! each time, on every machine.
//!
//! Damage ends the export with an error that names the path. What has gone to a
//! pipe by then cannot be called back, so a script must look at the exit code;
//! for files there is [`OutputFile`](crate::disk::output::OutputFile).

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
    sync::mpsc::sync_channel,
    thread,
};

use zstd::zstd_safe::CParameter;

pub use error::ExportError;
pub use prefix::Prefix;

use crate::{
    base::{
        observe::{Observer, Phase},
        time::Time,
    },
    format::tree::Kind,
    ops::restore::What,
    store::{Store, StoreError},
};
use batch::Item;

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Threads that compress one `.tar.zst`; each takes some 6 MiB.
const ZSTD_WORKERS: usize = 4;

/// Bytes that one of them compresses at a time.
const ZSTD_JOB_BYTES: u32 = 2 << 20;

/// Level of `.tar.zst`, that of zstd itself.
const ZSTD_LEVEL: i32 = 3;

/// Level of zip: within a per cent of what `zip` makes at its level 6, on text and
/// on program sources. Level 6 takes an eighth more time for 1.3 % less.
const ZIP_LEVEL: i32 = 5;

/// Form of the archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// POSIX tar with extended headers where they are needed.
    #[default]
    Tar,
    /// The same, compressed with zstd.
    TarZst,
    /// Zip, as Info-ZIP writes it on Unix.
    Zip,
}

impl Format {
    /// Compression levels it takes; none for plain tar.
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

/// What an archive has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Loss {
    /// A socket is left out.
    Socket,
    /// A named pipe is left out.
    Fifo,
    /// A device is left out.
    Device,
    /// The extended attributes of an entry are left out.
    Attributes,
    /// A further name of a file becomes a copy.
    Link,
    /// A name that Windows would resolve is written in another way.
    Name,
}

/// Is told the path of an entry and what it loses.
pub type OnLoss<'a> = dyn Fn(&Path, Loss) + Sync + 'a;

/// Choices for an export.
#[derive(Clone)]
pub struct Options<'a> {
    /// Form of the archive.
    pub format: Format,
    /// Compression level, one of [`Format::levels`].
    pub level: Option<i32>,
    /// Folder in the archive that everything is put into.
    pub prefix: Prefix,
    /// Time of entries for which none was recorded.
    pub mtime: Time,
    /// Folder for what does not fit in memory: the directory of a zip archive.
    pub scratch: &'a Path,
    /// Most bytes that are written there.
    pub scratch_bytes: u64,
    /// Is told what an entry loses.
    pub on_loss: Option<&'a OnLoss<'a>>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            format: Format::default(),
            level: None,
            prefix: Prefix::default(),
            mtime: Time::default(),
            scratch: Path::new("/tmp"),
            scratch_bytes: u64::MAX,
            on_loss: None,
        }
    }
}

/// What an export came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Entries in the archive, folders included.
    pub entries: u64,
    /// Those that are files, by each of their names.
    pub files: u64,
    /// Bytes of the files' contents; that of a file with several names counts
    /// once where the archive has it once.
    pub bytes: u64,
    /// Length of the archive.
    pub archive_bytes: u64,
    /// How many entries lost what.
    pub lost: BTreeMap<Loss, u64>,
}

/// What all parts of one export work with.
struct Job<'j> {
    store: &'j Store,
    options: &'j Options<'j>,
    observer: &'j dyn Observer,
}

impl Job<'_> {
    fn level(&self) -> i32 {
        self.options.level.unwrap_or(self.options.format.default_level())
    }

    fn check(&self) -> Result<(), ExportError> {
        if self.observer.cancelled() { Err(ExportError::Interrupted) } else { Ok(()) }
    }

    /// An error about the content of an entry.
    fn damaged(&self, path: &[u8], source: StoreError) -> ExportError {
        let path = path.strip_prefix(self.options.prefix.as_bytes()).unwrap_or(path);
        let path = String::from_utf8_lossy(path).into_owned();
        ExportError::Content { path, source: Box::new(source) }
    }
}

/// An archive that is being written.
trait Archive {
    /// Appends an entry.
    fn add(&mut self, item: Item) -> Result<(), ExportError>;

    /// Writes what comes after the last one.
    fn finish(self: Box<Self>) -> Result<(), ExportError>;
}

/// Writes an archive of `what` to `sink`.
///
/// # Errors
/// [`ExportError`]; what was written by then is part of an archive.
pub fn run(
    store: &Store,
    what: &What,
    sink: &mut dyn Write,
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Outcome, ExportError> {
    observer.phase(Phase::Export, total_bytes(store, what));
    let job = Job { store, options, observer };
    let mut counted = Counted { sink, bytes: 0 };
    let mut outcome = match options.format {
        Format::Tar => {
            write(&job, what, |out| Ok(Box::new(tar::Tar::new(&job, out))), &mut counted)?
        }
        Format::TarZst => write(&job, what, |out| zstd(&job, out), &mut counted)?,
        Format::Zip => {
            write(&job, what, |out| Ok(Box::new(zip::Zip::new(&job, out))), &mut counted)?
        }
    };
    outcome.archive_bytes = counted.bytes;
    Ok(outcome)
}

type Out<'o> = &'o mut dyn Write;

/// Has one thread make batches, and writes them.
fn write<'o>(
    job: &'o Job<'o>,
    what: &What,
    open: impl FnOnce(Out<'o>) -> Result<Box<dyn Archive + 'o>, ExportError>,
    sink: Out<'o>,
) -> Result<Outcome, ExportError> {
    thread::scope(|scope| {
        let (sender, batches) = sync_channel(0);
        let producer = scope.spawn(move || order::produce(job, what, &sender));
        let mut archive = open(sink)?;
        let written = batches.iter().flatten().try_for_each(|item| {
            job.check()?;
            archive.add(item)
        });
        // Whoever still makes batches ends when nobody takes them.
        drop(batches);
        let produced = producer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written?;
        let outcome = produced?;
        archive.finish()?;
        Ok(outcome)
    })
}

/// A tar archive that goes through zstd.
struct TarZst<'o> {
    tar: tar::Tar<'o, zstd::Encoder<'static, Out<'o>>>,
}

fn zstd<'o>(job: &'o Job<'o>, out: Out<'o>) -> Result<Box<dyn Archive + 'o>, ExportError> {
    let mut encoder = zstd::Encoder::new(out, job.level())?;
    encoder.include_checksum(true)?;
    let workers = thread::available_parallelism().map_or(1, |count| count.get());
    // One thread of its own gives the same bytes as several, none does not.
    encoder.multithread(workers.clamp(1, ZSTD_WORKERS) as u32)?;
    encoder.set_parameter(CParameter::JobSize(ZSTD_JOB_BYTES))?;
    Ok(Box::new(TarZst { tar: tar::Tar::new(job, encoder) }))
}

impl Archive for TarZst<'_> {
    fn add(&mut self, item: Item) -> Result<(), ExportError> {
        self.tar.add(item)
    }

    fn finish(self: Box<Self>) -> Result<(), ExportError> {
        self.tar.end()?.finish()?.flush()?;
        Ok(())
    }
}

/// Bytes of the contents, for progress; unknown where the tree is damaged.
fn total_bytes(store: &Store, what: &What) -> Option<u64> {
    match what {
        What::Folder { tree, .. } => Some(store.tree(tree).ok()?.totals().bytes),
        What::Entry(entry) => match entry.kind {
            Kind::File { size, .. } => Some(size),
            _ => None,
        },
    }
}

/// Counts what goes to the sink.
struct Counted<'w> {
    sink: &'w mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// A buffer in front of a sink.
fn buffered<W: Write>(sink: W) -> BufWriter<W> {
    BufWriter::with_capacity(BUFFER_BYTES, sink)
}
