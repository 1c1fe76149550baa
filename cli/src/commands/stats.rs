//! `snap stats`: prints how much each commit added, and the size of the store.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
};

use snap_core::{
    ops::{
        record::{AddedRecord, LargeFileRecord, StoreRecord},
        stats::{self, CommitStats, FrameFacts, LargeFile, StatsOptions, StatsOutcome},
    },
    repo::Repo,
};
use snap_remote::reader::RefSelection;

use crate::{
    commands::log::all_starts,
    context::Context,
    remote::RemoteRevision,
    report::{CliError, CommandOutcome},
    ui::{Out, Ui, Versioned, size, size::ByteCount, text, time},
};

const EXAMPLES: &str = "\
Examples:
  snap stats                the last ten commits, the ten largest files
  snap stats -n 100 v1.0    a hundred of each, in the history of v1.0
  snap stats --all          all branches and tags
  snap stats URL#main       the history of a branch of a remote
  snap --json stats | jq 'select(.type == \"store\")'";

const LEGEND: &str = "\
Columns: \"snapshot\" is the size of all files, \"changed\" the size of files that differ
from all parents, \"new\" the size of content that no earlier commit has, \"stored\" its
size after compression. Objects are compressed together; each counts with its share
of its frame, by length. Trees, chunk lists and commits are counted as \"meta\".";

/// Show the sizes of commits, of files and of the store
///
/// Lists the newest commits and the largest files in the history of REV. Also shows the effect of
/// deduplication and compression, and the content of the store.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{LEGEND}\n\n{EXAMPLES}"))]
pub(crate) struct StatsArgs {
    /// Commit whose history to count: a branch, a tag or an id, here or in a remote; default: HEAD
    #[arg(value_name = "REV|URL[#REV]")]
    rev: Option<OsString>,

    /// Count all branches and tags, here or of a URL
    #[arg(long)]
    all: bool,

    /// Maximum number of commits and of files
    #[arg(short = 'n', long = "max-count", value_name = "NUMBER", default_value_t = 10, value_parser = number)]
    limit: usize,
}

fn number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "expected a number")
}

pub(crate) fn run(args: &StatsArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let rev = args.rev.as_deref().unwrap_or(OsStr::new("HEAD"));
    match cx.split_remote(rev)? {
        None if args.all && args.rev.is_some() => {
            Err(CliError::Usage("--all cannot be combined with REV"))
        }
        None => count(args, &cx.open_repo()?, rev, cx),
        Some(RemoteRevision { remote, rev }) => {
            let texts = [cx.base_texts(&rev)];
            let which = if args.all { RefSelection::All } else { RefSelection::Revisions(&texts) };
            count(args, cx.open_elsewhere(&remote, which)?.repo(), &rev, cx)
        }
    }
}

fn count(
    args: &StatsArgs,
    repo: &Repo,
    rev: &OsStr,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let starts = match args.all {
        true => all_starts(repo, cx)?,
        false => vec![cx.resolve(repo, rev)?.id],
    };
    let options = StatsOptions { commits: args.limit, files: args.limit };
    let outcome = stats::run(repo.store(), &starts, &options, &cx.progress())?;
    let mut out = cx.ui().out();
    match cx.ui().is_json() {
        true => write_json(&mut out, &outcome)?,
        false => write_text(&mut out, cx.ui(), &outcome)?,
    }
    out.finish()?;
    Ok(CommandOutcome::Success)
}

fn write_json(out: &mut Out, outcome: &StatsOutcome) -> io::Result<()> {
    for commit in &outcome.commits {
        out.json(&Versioned::of_type("commit", AddedRecord::from(commit)))?;
    }
    for file in &outcome.files {
        out.json(&Versioned::of_type("file", LargeFileRecord::from(file)))?;
    }
    out.json(&Versioned::of_type("store", StoreRecord::from(outcome)))
}

fn write_text(out: &mut Out, ui: &Ui, outcome: &StatsOutcome) -> io::Result<()> {
    if !outcome.commits.is_empty() {
        write_commits(out, ui, &outcome.commits)?;
        writeln!(out)?;
    }
    if !outcome.files.is_empty() {
        writeln!(out, "Largest files:")?;
        for LargeFile { bytes, path, commit, .. } in &outcome.files {
            let (size, commit) = (ByteCount(*bytes), ui.paint().id(&ui.id(commit)));
            writeln!(out, "{size:>10}  {commit}  {}", text::line(path))?;
        }
        writeln!(out)?;
    }
    let (dedup, compression) = (outcome.dedup_ratio(), outcome.compression_ratio());
    let added = &outcome.added;
    let times = |ratio: Option<f64>| match ratio.filter(|ratio| *ratio >= 1.05) {
        Some(ratio) => format!(" ({ratio:.1} times smaller)"),
        None => String::new(),
    };
    let commits = size::count(outcome.commit_count, "snapshot");
    let forgotten = match outcome.forgotten_commits {
        0 => String::new(),
        count => format!("; {} forgotten", size::grouped(count)),
    };
    let bytes = ByteCount(outcome.snapshot_bytes);
    writeln!(out, "History:    {commits}, {bytes} in total{forgotten}")?;
    writeln!(out, "Contents:   {}{}", ByteCount(added.data.raw_bytes), times(dedup))?;
    writeln!(out, "Compressed: {}{}", ByteCount(added.data.stored_bytes()), times(compression))?;
    let (meta, stored) = (ByteCount(added.meta.raw_bytes), ByteCount(added.meta.stored_bytes()));
    writeln!(out, "Meta:       {meta}, compressed {stored}")?;
    writeln!(out)?;
    write_store(out, outcome)
}

fn write_commits(out: &mut Out, ui: &Ui, commits: &[CommitStats]) -> io::Result<()> {
    let width = commits.first().map_or(0, |commit| ui.id(&commit.id).len());
    let (id, when) = (format!("{:<width$}", "commit"), format!("{:<26}", "date"));
    let titles = ["snapshot", "changed", "new", "stored", "meta"];
    let titles = titles.map(|title| format!("{title:>10}")).join(" ");
    writeln!(out, "{id} {when} {titles} message")?;
    for commit in commits {
        let (added, id) = (&commit.added, ui.paint().id(&ui.id(&commit.id)));
        let sizes = [
            commit.bytes,
            added.changed_bytes,
            added.data.raw_bytes,
            added.data.stored_bytes(),
            added.meta.stored_bytes(),
        ];
        let sizes = sizes.map(|bytes| format!("{:>10}", ByteCount(bytes))).join(" ");
        let message = text::line(commit.message.as_bytes());
        let line = format!("{id} {:<26} {sizes} {message}", time::local(commit.time));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn write_store(out: &mut Out, outcome: &StatsOutcome) -> io::Result<()> {
    let store = &outcome.store;
    let packs = size::count(store.packs, "pack");
    writeln!(out, "Store:      {packs}, {}", ByteCount(store.pack_bytes))?;
    for (title, frames) in [("Data:", &store.data), ("Metadata:", &store.meta)] {
        let FrameFacts { frames, raw_bytes, stored_bytes } = *frames;
        let mean = raw_bytes.checked_div(frames).unwrap_or(0);
        writeln!(
            out,
            "{title:<11} {}, {} compressed to {}, {} each on average",
            size::count(frames, "frame"),
            ByteCount(raw_bytes),
            ByteCount(stored_bytes),
            ByteCount(mean),
        )?;
    }
    let kinds = [
        (&store.blobs, "blob"),
        (&store.trees, "tree"),
        (&store.commits, "commit"),
        (&store.chunk_lists, "chunk list"),
    ];
    let mut kinds = kinds.map(|(kind, noun)| size::count(kind.objects, noun)).join(", ");
    if store.links.objects > 0 {
        kinds = format!("{kinds}, {}", size::count(store.links.objects, "link"));
    }
    writeln!(out, "Objects:    {kinds}")?;
    if store.repeated.objects > 0 {
        let (count, bytes) =
            (size::grouped(store.repeated.objects), ByteCount(store.repeated.bytes));
        writeln!(out, "Duplicate:  {count}, {bytes}, also stored in another pack")?;
    }
    Ok(())
}
