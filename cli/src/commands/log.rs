//! `snap log`: list commits, newest first.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io,
    io::Write,
    num::NonZeroU64,
    os::unix::ffi::OsStrExt,
};

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, time::Time},
    format::commit::Commit,
    ops::{
        log,
        path_log::{self, Moved, Renames},
        record::{self, CommitRecord},
    },
    repo::{Head, Repo, history::Parents, ref_name::RefKind},
};
use snap_remote::reading::Which;

use crate::{
    context::Context,
    remote::Split,
    report::{CliError, Done},
    ui::{
        Out, Ui, Versioned, size,
        size::Size,
        text,
        time::{self, Day},
    },
};

const EXAMPLES: &str = "\
Examples:
  snap log -n 5                the five newest
  snap log --oneline v1.0      what led to the tag v1.0, a line each
  snap log --since 2026-11-01  what was committed on that day and later
  snap log s3://bucket/project#main
                               of a remote, without cloning it
  snap log -- src/main.rs      only those in which that file changed
  snap log --follow -- a.txt   under the names it had before, too
  snap --json log | jq .id     for programs";

const PATHS: &str = "\
With paths after `--`, a snapshot is listed when one of them is not there as it is
in a parent: it came, went, or its content, mode, owner or extended attributes
differ. An mtime alone does not count for a file; a folder counts as changed when
anything in it did. Paths start at the top of the snapshot, as in REV:PATH.

A merge is left out when a path is as one of its parents has it, and only that
parent is followed, as in git; otherwise it is listed and all are followed.
--first-parent compares with the first parent and follows no other.

--follow: where a path appears in the same snapshot in which another one with the
same content goes, it was renamed, and is looked for under that name from there on.";

/// List commits, newest first
///
/// Starts at REV, or where HEAD stands, and follows all parents. With paths, only
/// the snapshots in which they changed are listed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{PATHS}\n\n{EXAMPLES}"))]
pub(crate) struct LogArgs {
    /// Commit to start at: a branch, a tag, an id or `latest` (HEAD if not
    /// given); also URL#REV, elsewhere
    rev: Option<String>,

    /// Most commits to list
    #[arg(short = 'n', long = "max-count", value_name = "NUMBER", value_parser = at_least_one)]
    limit: Option<NonZeroU64>,

    /// One line for each commit
    #[arg(long)]
    oneline: bool,

    /// Start at all branches and tags
    #[arg(long)]
    all: bool,

    /// Follow the first parent of each commit only
    #[arg(long)]
    first_parent: bool,

    /// None older than this; of a date, its first moment
    #[arg(long, value_name = "DATE")]
    since: Option<String>,

    /// None newer than this; of a date, its last moment
    #[arg(long, value_name = "DATE")]
    until: Option<String>,

    /// Follow a path to the names it had before; exact renames only
    #[arg(long, requires = "paths")]
    follow: bool,

    /// Files or folders whose changes to list
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &LogArgs, cx: &Context) -> Result<Done, CliError> {
    let rev = args.rev.as_deref().unwrap_or("HEAD");
    match cx.split_remote(rev.as_ref())? {
        None if args.all && args.rev.is_some() => {
            Err(CliError::Usage("--all starts at all branches and tags, not at one commit"))
        }
        None => write_log(args, &cx.open_repo()?, rev.as_ref(), cx),
        Some(Split { remote, rev }) => {
            let specs = [rev.as_bytes()];
            // Behind each commit stands which refs are at it.
            let which = if args.all { Which::All } else { Which::Of(&specs) };
            write_log(args, cx.open_elsewhere(&remote, which)?.repo(), &rev, cx)
        }
    }
}

fn write_log(args: &LogArgs, repo: &Repo, rev: &OsStr, cx: &Context) -> Result<Done, CliError> {
    let starts = match (args.all, rev.to_str()) {
        (true, _) => all_starts(repo)?,
        (false, Some(rev)) => vec![cx.resolve_commit(repo, rev)?],
        (false, None) => vec![cx.resolve(repo, rev)?.id],
    };
    let options = log::Options {
        parents: if args.first_parent { Parents::First } else { Parents::All },
        limit: args.limit,
        since: date(args.since.as_deref(), Day::Start, cx)?,
        until: date(args.until.as_deref(), Day::End, cx)?,
    };
    let names = names(repo)?;
    let mut writer = Writer { out: cx.ui().out(), ui: cx.ui(), names, args, number: 0 };
    if args.paths.is_empty() {
        for step in log::run(repo.store(), &starts, &options)? {
            let (id, commit) = step?;
            writer.write((&id, &commit), &[])?;
        }
    } else {
        let paths: Vec<&[u8]> = args.paths.iter().map(|path| path.as_bytes()).collect();
        let renames = if args.follow { Renames::Follow } else { Renames::Ignore };
        let progress = cx.progress();
        let log = path_log::run(repo.store(), &starts, &paths, (&options, renames), &progress)?;
        for step in log {
            let step = step?;
            writer.write((&step.id, &step.commit), &step.moved)?;
        }
    }
    writer.out.finish()?;
    Ok(Done::Well)
}

/// Writes commits, each in the form that was asked for.
struct Writer<'a> {
    out: Out,
    ui: &'a Ui,
    names: Names,
    args: &'a LogArgs,
    number: u64,
}

impl Writer<'_> {
    fn write(&mut self, commit: (&CommitId, &Commit), moved: &[Moved]) -> io::Result<()> {
        let (out, ui) = (&mut self.out, self.ui);
        if ui.is_json() {
            let renames = moved.iter().map(RenameJson::new).collect();
            let commit = Versioned::new(CommitRecord::new(commit.0, commit.1));
            return out.json(&StepJson { commit, renames });
        }
        if self.args.oneline {
            return write_line(out, ui, commit, &self.names);
        }
        if self.number > 0 {
            out.write_all(b"\n")?;
        }
        self.number += 1;
        write_commit(out, ui, commit, &self.names)?;
        for Moved { from, to } in moved {
            let gap = if commit.1.message.is_empty() { "" } else { "\n" };
            writeln!(out, "{gap}Renamed: {} -> {}", text::line(from), text::line(to))?;
        }
        Ok(())
    }
}

/// A commit, with the renames in it that were followed.
#[derive(Serialize)]
struct StepJson {
    #[serde(flatten)]
    commit: Versioned<CommitRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    renames: Vec<RenameJson>,
}

#[derive(Serialize)]
struct RenameJson {
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_hex: Option<String>,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_hex: Option<String>,
}

impl RenameJson {
    fn new(Moved { from, to }: &Moved) -> Self {
        let (text, exact) = (record::text, record::exact);
        Self { from: text(from), from_hex: exact(from), to: text(to), to_hex: exact(to) }
    }
}

fn date(text: Option<&str>, day: Day, cx: &Context) -> Result<Option<Time>, CliError> {
    let parse = |text: &str| {
        let bad = || CliError::BadDate { text: text.to_owned() };
        time::parse_for(day, text, cx.now()).ok_or_else(bad)
    };
    text.map(parse).transpose()
}

fn at_least_one(text: &str) -> Result<NonZeroU64, &'static str> {
    text.parse().map_err(|_| "expected a number from 1 on")
}

/// Where HEAD, branches and tags stand.
pub(crate) fn all_starts(repo: &Repo) -> Result<Vec<CommitId>, CliError> {
    let mut starts: Vec<CommitId> = repo.refs().head_commit()?.into_iter().collect();
    for kind in [RefKind::Branch, RefKind::Tag] {
        starts.extend(repo.refs().list(kind)?.into_iter().map(|(_, id)| id));
    }
    Ok(starts)
}

/// Names of commits, as they are shown behind the id.
pub(crate) type Names = HashMap<CommitId, Vec<String>>;

/// Which branches and tags stand where.
pub(crate) fn names(repo: &Repo) -> Result<Names, CliError> {
    let mut names = Names::new();
    let head = repo.refs().head()?;
    if let Head::Detached(id) = &head {
        names.entry(*id).or_default().push("HEAD".to_owned());
    }
    for (name, id) in repo.refs().list(RefKind::Branch)? {
        let is_current = matches!(&head, Head::Branch(current) if *current == name);
        let arrow = if is_current { "HEAD -> " } else { "" };
        names.entry(id).or_default().push(format!("{arrow}{}", name.short()));
    }
    for (name, id) in repo.refs().list(RefKind::Tag)? {
        names.entry(id).or_default().push(format!("tag: {}", name.short()));
    }
    Ok(names)
}

fn shown_names(ui: &Ui, id: &CommitId, names: &Names) -> String {
    match names.get(id) {
        Some(names) => format!(" ({})", ui.paint().name(&names.join(", "))),
        None => String::new(),
    }
}

/// A commit on one line.
pub(crate) fn write_line(
    out: &mut Out,
    ui: &Ui,
    (id, commit): (&CommitId, &Commit),
    names: &Names,
) -> io::Result<()> {
    let shown = ui.paint().id(&ui.id(id));
    let names = shown_names(ui, id, names);
    let message = commit.message.lines().next().unwrap_or_default();
    let message = text::line(message.as_bytes());
    let space = if message.is_empty() { "" } else { " " };
    writeln!(out, "{shown} {}{names}{space}{message}", time::local(commit.time))
}

/// A commit with all that belongs to its head.
pub(crate) fn write_commit(
    out: &mut Out,
    ui: &Ui,
    (id, commit): (&CommitId, &Commit),
    names: &Names,
) -> io::Result<()> {
    let shown = ui.paint().id(&format!("commit {}", ui.id(id)));
    writeln!(out, "{shown}{}", shown_names(ui, id, names))?;
    if commit.parents.len() > 1 {
        let parents: Vec<_> = commit.parents.iter().map(|parent| ui.id(parent)).collect();
        writeln!(out, "Parents: {}", parents.join(" "))?;
    }
    let (author, host) = (text::line(commit.author.as_bytes()), text::line(commit.host.as_bytes()));
    writeln!(out, "Author:  {author} on {host}")?;
    writeln!(out, "Date:    {}", ui.when(commit.time))?;
    let totals = &commit.totals;
    writeln!(out, "Content: {}, {}", size::count(totals.files, "file"), Size(totals.bytes))?;
    for (key, value) in &commit.labels {
        writeln!(out, "Label:   {}", text::line(format!("{key}={value}").as_bytes()))?;
    }
    if !commit.message.is_empty() {
        writeln!(out)?;
        for line in commit.message.lines() {
            writeln!(out, "    {}", text::line(line.as_bytes()))?;
        }
    }
    Ok(())
}
