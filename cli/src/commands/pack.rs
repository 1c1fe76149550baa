//! `snap pack`: writes a snapshot with its history into one file.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, io::PathError},
    disk::{
        Disk,
        output::{IfExists, OutputFile, folder_of},
    },
    local::store_folder::store_above,
    ops::bundle::pack::{self, PackOptions, PackOutcome},
};

use crate::{
    context::Context,
    report::{CliError, CommandOutcome},
    stream::Stream,
    ui::{size, size::ByteCount, text},
};

const EXAMPLES: &str = "\
Examples:
  snap pack latest -o project.snap                 the whole history, in one file
  snap pack main --since v1.0 -o update.snap       only changes since v1.0
  snap pack latest -o - | ssh host snap unpack -   through a pipe
  snap ls project.snap:src                         list its files, without unpacking";

/// Pack a snapshot and its history into one file
///
/// The file (a bundle) contains everything that the commit and its ancestors refer to. With --since
/// it contains only what the named commits lack, and can be unpacked where those exist. Stored data
/// is copied and verified, not compressed again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PackArgs {
    /// Commit to pack: a branch, a tag, an id or `latest`
    #[arg(value_name = "REV", default_value = "HEAD")]
    rev: String,

    #[command(flatten)]
    output: OutputArgs,

    /// Commit that the recipient has; may be repeated
    #[arg(long, value_name = "REV")]
    since: Vec<String>,
}

/// The destination of a file that a command writes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// File to write; `-` is stdout
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(short, long)]
    force: bool,
}

/// The output of a command.
pub(crate) enum Output {
    /// A file.
    File(Box<OutputFile>),
    /// Stdout, or an existing path that is not a regular file, such as a pipe or a device.
    Stream(Stream<File>),
}

impl OutputArgs {
    /// Opens the output. Returns the folder for scratch files too.
    pub(crate) fn open<'a>(&'a self, cx: &'a Context) -> Result<(Output, &'a Path), CliError> {
        if self.is_stdout() {
            if io::stdout().is_terminal() {
                return Err(CliError::ToTerminal);
            }
            if cx.ui().is_json() {
                return Err(CliError::Usage("--json and `-o -` both write to stdout"));
            }
            return Ok((Output::Stream(cx.raw_out()?), cx.scratch()));
        }
        if store_above(&self.output).is_some() {
            return Err(CliError::Usage(
                "the output file would be inside a store; pass another path",
            ));
        }
        let existing = fs_err::metadata(&self.output);
        if existing.is_ok_and(|existing| !existing.is_file() && !existing.is_dir()) {
            // It is opened, not replaced: a rename would replace /dev/null by a file.
            let stream = cx.open_output(&self.output);
            let stream = stream.map_err(PathError::when("open", &self.output))?;
            return Ok((Output::Stream(stream), cx.scratch()));
        }
        let taken = if self.force { IfExists::Replace } else { IfExists::Refuse };
        let file = OutputFile::create(&Disk::default(), &self.output, taken).map_err(failed)?;
        Ok((Output::File(Box::new(file)), folder_of(&self.output)))
    }

    /// Returns the path as the user wrote it.
    pub(crate) fn path(&self) -> &Path {
        &self.output
    }

    /// Returns true if the output is stdout.
    pub(crate) fn is_stdout(&self) -> bool {
        self.output == Path::new("-")
    }

    /// Returns the name for messages.
    pub(crate) fn shown(&self) -> String {
        match self.is_stdout() {
            true => "stdout".to_owned(),
            false => text::line(self.output.as_os_str().as_bytes()),
        }
    }
}

/// Returns the error of an output file; one that exists already gets its own.
fn failed(error: PathError) -> CliError {
    let is_taken = error.action == "write" && error.source.kind() == io::ErrorKind::AlreadyExists;
    match is_taken {
        true => CliError::OutputExists { file: text::line(error.path.as_os_str().as_bytes()) },
        false => error.into(),
    }
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stream(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stream(stream) => stream.flush(),
        }
    }
}

impl Output {
    /// Syncs a file and renames it to its final name; flushes a stream.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        match self {
            Self::File(file) => file.finish().map_err(failed),
            Self::Stream(mut stream) => Ok(io::Write::flush(&mut stream)?),
        }
    }
}

pub(crate) fn run(args: &PackArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let repo = cx.open_repo()?;
    let commit = cx.resolve_commit(&repo, &args.rev)?;
    let since = args.since.iter().map(|rev| cx.resolve_commit(&repo, rev));
    let since = since.collect::<Result<Vec<CommitId>, _>>()?;
    let (mut output, scratch) = args.output.open(cx)?;
    let options = PackOptions { since, scratch, level: repo.config().compression_level };
    let progress = cx.progress();
    let outcome = pack::run(repo.store(), commit, &options, &mut output, &progress)
        .map_err(|source| CliError::Pack { file: args.output.shown(), source: Box::new(source) })?;
    output.finish()?;
    drop(progress);
    print_result(args, (commit, &options.since), &outcome, cx)?;
    Ok(CommandOutcome::Success)
}

#[derive(Serialize)]
struct PackedJson {
    version: u32,
    r#type: &'static str,
    file: String,
    commit: String,
    prerequisites: Vec<String>,
    objects: u64,
    bytes: u64,
    file_bytes: u64,
    packs: u64,
    packs_copied: u64,
}

fn print_result(
    args: &PackArgs,
    (commit, since): (CommitId, &[CommitId]),
    outcome: &PackOutcome,
    cx: &Context,
) -> Result<(), CliError> {
    if cx.ui().is_json() {
        let mut prerequisites: Vec<_> = since.iter().map(ToString::to_string).collect();
        prerequisites.sort_unstable();
        prerequisites.dedup();
        let mut out = cx.ui().out();
        out.json(&PackedJson {
            version: 1,
            r#type: "packed",
            file: args.output.shown(),
            commit: commit.to_string(),
            prerequisites,
            objects: outcome.objects,
            bytes: outcome.raw_bytes,
            file_bytes: outcome.file_bytes,
            packs: outcome.packs,
            packs_copied: outcome.copied,
        })?;
        out.finish()?;
    }
    let (file, objects) = (args.output.shown(), size::count(outcome.objects, "object"));
    cx.ui().status(format_args!(
        "Packed {commit:.12} into {file}: {objects}, {}, {} of contents",
        ByteCount(outcome.file_bytes),
        ByteCount(outcome.raw_bytes),
    ));
    if outcome.objects == 0 {
        cx.ui().warning(format_args!("the bundle is empty: the other side has everything"));
    }
    Ok(())
}
