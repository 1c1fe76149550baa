//! `snap commit`: make a snapshot.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::Serialize;
use snap_core::{
    base::{
        id::CommitId,
        io::PathError,
        name::EntryName,
        observe::{Note, Observer},
    },
    format::commit::Commit,
    local::ignore,
    ops::{
        commit::{self, Content, NamedPath, Outcome, Source, Unchanged},
        tidy,
    },
    repo::{Config, RefName, Repo, open::STORE_FOLDER},
};

use crate::{
    commands::init,
    context::{Context, Named},
    report::{CliError, Done},
    ui::{CommitJson, size, size::Size, time},
};

const EXAMPLES: &str = "\
Examples:
  snap commit                          the whole project you stand in
  snap commit ~/photos -m 'June'       what a folder contains
  snap commit src docs/plan.txt        several, each under its own path
  pg_dump db | snap commit --stdin db.sql
  snap commit --exclude '*.o' --exclude-caches --label ci=1234

What is left out: what .snapignore files say (in the syntax of .gitignore), the
options below, the store's settings, and the store itself.";

/// Make a snapshot
///
/// Without PATH the folder that holds the store is committed, from wherever in
/// it you are. The id of the snapshot is printed when it is safe on the disk.
/// Where there is no store yet, `.snap` is made in the folder that is committed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CommitArgs {
    /// Folder whose content is the snapshot; or several paths
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// What the snapshot is for; given again, it adds a paragraph
    #[arg(short, long, value_name = "TEXT")]
    message: Vec<String>,

    /// Label that goes with the snapshot; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    /// Branch to commit onto, made when it is missing; else the current one
    #[arg(short, long)]
    branch: Option<String>,

    /// Commit what comes from stdin, as a file of this name
    #[arg(long, value_name = "NAME", conflicts_with = "paths")]
    stdin: Option<OsString>,

    /// Keep neither owners nor times, so that equal content has equal ids
    #[arg(long)]
    reproducible: bool,

    /// Make a commit even if nothing changed
    #[arg(long)]
    allow_empty: bool,

    /// Who commits; else SNAP_AUTHOR, the store's setting, your user name
    #[arg(long, value_name = "NAME")]
    author: Option<String>,

    /// Name of the machine; else SNAP_HOST, the store's setting, the system's
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Time of the commit, such as 2026-11-21T08:00:00Z; for imports
    #[arg(long, value_name = "TIME")]
    time: Option<String>,

    #[command(flatten)]
    leave_out: LeaveOut,
}

/// What is left out.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leaving out")]
struct LeaveOut {
    /// Pattern of what to leave out, as in .gitignore; may be repeated
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// File with such patterns, one a line
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,

    /// Leave out folders with a CACHEDIR.TAG
    #[arg(long)]
    exclude_caches: bool,

    /// Leave out files larger than this, such as 100MiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    exclude_larger_than: Option<u64>,

    /// Stay on the file system of the folder that is committed
    #[arg(long)]
    one_file_system: bool,

    /// Honour .gitignore files, too
    #[arg(long)]
    gitignore: bool,
}

pub(crate) fn run(args: &CommitArgs, cx: &Context) -> Result<Done, CliError> {
    let start = Instant::now();
    let store = find_or_make_store(args, cx)?;
    let repo = cx.open_at(&store)?;
    let options = options(args, repo.config(), cx)?;
    let progress = cx.progress();
    let outcome = commit::run(&repo, source(args, &repo, cx)?, &options, &progress)?;
    progress.clear();
    let told = tell(&outcome, &repo, cx);
    if outcome.created
        && let Err(error) = tidy::run(&repo, &progress)
    {
        progress.note(Note::TidyFailed { error: &error });
    }
    drop(progress);
    summarize(&outcome, &repo, start, cx)?;
    // Whether or not anybody reads the id, the snapshot is made.
    told.or_else(|error| if error.is_broken_pipe() { Ok(()) } else { Err(error) })?;
    Ok(if outcome.skipped > 0 { Done::Skipped } else { Done::Well })
}

/// The store that was named or is there, else a new one.
fn find_or_make_store(args: &CommitArgs, cx: &Context) -> Result<PathBuf, CliError> {
    let here = Path::new(".");
    let top = match args.paths.as_slice() {
        [one] if one.is_dir() => one,
        _ => here,
    };
    if let Some(store) = cx.find_store(top)? {
        return Ok(store);
    }
    // Nothing is made for what cannot be committed anyway.
    for path in &args.paths {
        path.symlink_metadata()
            .map_err(|error| CliError::Source(PathError::when("read", path)(error)))?;
    }
    let store = if top == here { PathBuf::from(STORE_FOLDER) } else { top.join(STORE_FOLDER) };
    init::make(cx, &store)?;
    Ok(store)
}

fn source(args: &CommitArgs, repo: &Repo, cx: &Context) -> Result<Source<'static>, CliError> {
    if let Some(name) = &args.stdin {
        let bad = |source| CliError::StdinName { source };
        let name = EntryName::new(name.as_bytes()).map_err(bad)?;
        return Ok(Source::Stream { name, reader: Box::new(io::stdin()) });
    }
    match args.paths.as_slice() {
        [] => Ok(Source::Folder(match (cx.named(), repo.project()) {
            (Named::Nowhere, Some(project)) => project.to_owned(),
            _ => PathBuf::from("."),
        })),
        [one] if one.is_dir() => Ok(Source::Folder(one.clone())),
        several => {
            Ok(Source::Paths(several.iter().map(|path| named(path)).collect::<Result<_, _>>()?))
        }
    }
}

/// A path with its place in the snapshot: the same, without a leading `/`.
fn named(path: &Path) -> Result<NamedPath, CliError> {
    let no_place = || CliError::NoPlace { path: path.display().to_string() };
    let bytes = path.as_os_str().as_bytes();
    let parts = bytes.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    let inside =
        parts.map(EntryName::new).collect::<Result<Vec<_>, _>>().map_err(|_| no_place())?;
    if inside.is_empty() {
        return Err(no_place());
    }
    Ok(NamedPath { path: path.to_owned(), inside })
}

fn options(args: &CommitArgs, config: &Config, cx: &Context) -> Result<commit::Options, CliError> {
    let time = args.time.as_deref().map(|text| {
        let bad = || CliError::BadTime { name: "--time", text: text.to_owned() };
        time::parse_exact(text).ok_or_else(bad)
    });
    let mut labels = BTreeMap::new();
    for (key, value) in &args.labels {
        if labels.insert(key.clone(), value.clone()).is_some() {
            return Err(CliError::LabelTwice { key: key.clone() });
        }
    }
    Ok(commit::Options {
        branch: args.branch.as_deref().map(RefName::branch).transpose()?,
        message: args.message.join("\n\n"),
        labels,
        author: args.author.clone().unwrap_or_else(|| cx.author(config)),
        host: args.host.clone().unwrap_or_else(|| cx.host(config)),
        time: Some(time.transpose()?.unwrap_or_else(|| cx.now())),
        ignore: ignore_options(&args.leave_out, config)?,
        content: if args.reproducible { Content::Reproducible } else { Content::Complete },
        unchanged: if args.allow_empty { Unchanged::Commit } else { Unchanged::Keep },
        jobs: None,
    })
}

fn ignore_options(args: &LeaveOut, config: &Config) -> Result<ignore::Options, CliError> {
    let mut patterns = config.commit.exclude.clone();
    for file in &args.exclude_from {
        // What failed and where is said by the error around it.
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| CliError::Source(PathError::when("read", file)(error)))?;
        patterns.extend(text.lines().map(str::to_owned));
    }
    patterns.extend(args.exclude.iter().cloned());
    Ok(ignore::Options {
        patterns,
        gitignore: args.gitignore || config.commit.gitignore,
        cache_folders: args.exclude_caches || config.commit.exclude_caches,
        larger_than_bytes: args.exclude_larger_than,
        one_file_system: args.one_file_system,
    })
}

/// A commit with what making it took.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    commit: CommitJson<'a>,
    created: bool,
    files_new: u64,
    files_changed: u64,
    files_unmodified: u64,
    skipped: u64,
    bytes_read: u64,
    bytes_added: u64,
    bytes_stored: u64,
}

/// Prints the id, which is what stdout is for.
fn tell(outcome: &Outcome, repo: &Repo, cx: &Context) -> Result<(), CliError> {
    let Some(id) = &outcome.id else { return Ok(()) };
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        let commit = read(id, repo)?;
        out.json(&Made {
            commit: CommitJson::new(id, &commit),
            created: outcome.created,
            files_new: outcome.files_new,
            files_changed: outcome.files_changed,
            files_unmodified: outcome.files_unmodified,
            skipped: outcome.skipped,
            bytes_read: outcome.bytes_read,
            bytes_added: outcome.added.raw_bytes,
            bytes_stored: outcome.added.stored_bytes,
        })?;
    } else {
        writeln!(out, "{id}")?;
    }
    Ok(out.finish()?)
}

fn read(id: &CommitId, repo: &Repo) -> Result<Commit, CliError> {
    repo.store().refresh()?;
    Ok(repo.store().commit(id)?)
}

fn summarize(outcome: &Outcome, repo: &Repo, start: Instant, cx: &Context) -> Result<(), CliError> {
    let ui = cx.ui();
    let took = format!("{:.2} s", start.elapsed().as_secs_f64());
    let Outcome { id, created, totals, added, .. } = outcome;
    if let (false, Some(id)) = (created, id) {
        let time = time::local(repo.store().commit(id)?.time);
        ui.status(format_args!("Nothing changed since {time}, checked in {took}"));
    } else {
        ui.status(format_args!(
            "Committed {}, {}: {} new, {} changed, {} unmodified",
            size::count(totals.files, "file"),
            Size(totals.bytes),
            size::grouped(outcome.files_new),
            size::grouped(outcome.files_changed),
            size::grouped(outcome.files_unmodified),
        ));
        ui.status(format_args!(
            "Read {}, added {}, stored {} in {took}",
            Size(outcome.bytes_read),
            Size(added.raw_bytes),
            Size(added.stored_bytes),
        ));
        ui.detail(format_args!(
            "Added {} in {}",
            size::count(added.objects, "object"),
            size::count(added.packs, "pack")
        ));
    }
    if outcome.skipped > 0 {
        let entries = size::count(outcome.skipped, "entry");
        ui.warning(format_args!("left out {entries} that could not be read"));
    }
    Ok(())
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE"),
    }
}
