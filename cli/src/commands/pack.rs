//! `snap pack`: one file that carries a snapshot with its history.

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
        output::{OutputFile, Taken, folder_of},
    },
    local::store_folder::store_above,
    ops::bundle::pack::{self, Options, Outcome},
};

use crate::{
    context::Context,
    report::{CliError, Done},
    stream::Stream,
    ui::{size, size::Size, text},
};

const EXAMPLES: &str = "\
Examples:
  snap pack latest -o project.snap                 all of it, in one file
  snap pack main --since v1.0 -o update.snap       only what v1.0 lacks
  snap pack latest -o - | ssh host snap unpack -   without a file in between
  snap ls project.snap:src                         look into it, without unpacking";

/// Write a snapshot with its history into one file
///
/// The file (a bundle) has everything that the commit and those before it
/// refer to. With --since it has only what the named commits lack, and can be
/// unpacked where those are. Nothing is compressed again: what lies in the
/// store is copied, and checked on the way.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PackArgs {
    /// Commit to pack: a branch, a tag, an id or `latest`
    #[arg(value_name = "REV", default_value = "HEAD")]
    rev: String,

    #[command(flatten)]
    output: OutputArgs,

    /// Commit that the other side has; may be repeated
    #[arg(long, value_name = "REV")]
    since: Vec<String>,
}

/// Where a file that a command makes goes.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// File to write; `-` is stdout
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(short, long)]
    force: bool,
}

/// The place of a file that a command makes.
pub(crate) enum Output {
    /// A file.
    File(Box<OutputFile>),
    /// Stdout, or something that is there and no file, such as a pipe or a
    /// device.
    Stream(Stream<File>),
}

impl OutputArgs {
    /// Opens it, and says in which folder scratch files may be made.
    pub(crate) fn open<'a>(&'a self, cx: &'a Context) -> Result<(Output, &'a Path), CliError> {
        if self.is_stdout() {
            if io::stdout().is_terminal() {
                return Err(CliError::ToTerminal);
            }
            if cx.ui().is_json() {
                return Err(CliError::Usage("--json and `-o -` both want stdout"));
            }
            return Ok((Output::Stream(cx.raw_out()?), cx.scratch()));
        }
        if store_above(&self.output).is_some() {
            return Err(CliError::Usage("the output would lie in a store: name a file elsewhere"));
        }
        let there = fs_err::metadata(&self.output);
        if there.is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            // It is not replaced: that would take /dev/null away.
            let stream = cx.open_output(&self.output);
            let stream = stream.map_err(PathError::when("open", &self.output))?;
            return Ok((Output::Stream(stream), cx.scratch()));
        }
        let taken = if self.force { Taken::Replace } else { Taken::Refuse };
        let file = OutputFile::create(&Disk::default(), &self.output, taken)?;
        Ok((Output::File(Box::new(file)), folder_of(&self.output)))
    }

    /// As it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.output
    }

    /// Whether it is stdout.
    pub(crate) fn is_stdout(&self) -> bool {
        self.output == Path::new("-")
    }

    /// As it is shown.
    pub(crate) fn shown(&self) -> String {
        match self.is_stdout() {
            true => "stdout".to_owned(),
            false => text::line(self.output.as_os_str().as_bytes()),
        }
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
    /// Makes a file durable and gives it its name.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        match self {
            Self::File(file) => Ok(file.finish()?),
            Self::Stream(mut stream) => Ok(io::Write::flush(&mut stream)?),
        }
    }
}

pub(crate) fn run(args: &PackArgs, cx: &Context) -> Result<Done, CliError> {
    let repo = cx.open_repo()?;
    let commit = cx.resolve_commit(&repo, &args.rev)?;
    let since = args.since.iter().map(|rev| cx.resolve_commit(&repo, rev));
    let since = since.collect::<Result<Vec<CommitId>, _>>()?;
    let (mut output, scratch) = args.output.open(cx)?;
    let options = Options { since, scratch, level: repo.config().compression.level };
    let progress = cx.progress();
    let outcome = pack::run(repo.store(), commit, &options, &mut output, &progress)
        .map_err(|source| CliError::Pack { file: args.output.shown(), source: Box::new(source) })?;
    output.finish()?;
    drop(progress);
    tell(args, (commit, &options.since), &outcome, cx)?;
    Ok(Done::Well)
}

#[derive(Serialize)]
struct Packed {
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

fn tell(
    args: &PackArgs,
    (commit, since): (CommitId, &[CommitId]),
    outcome: &Outcome,
    cx: &Context,
) -> Result<(), CliError> {
    if cx.ui().is_json() {
        let mut prerequisites: Vec<_> = since.iter().map(ToString::to_string).collect();
        prerequisites.sort_unstable();
        prerequisites.dedup();
        let mut out = cx.ui().out();
        out.json(&Packed {
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
        Size(outcome.file_bytes),
        Size(outcome.raw_bytes),
    ));
    if outcome.objects == 0 {
        cx.ui().warning(format_args!("there is nothing that the other side lacks"));
    }
    Ok(())
}
