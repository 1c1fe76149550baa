//! `snap log`: lists commits, newest first.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io,
    io::Write,
    num::NonZeroU64,
};

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, time::Time},
    format::commit::Commit,
    ops::{
        diff::DiffOutcome,
        log,
        path_log::{self, FollowRenames, FollowedRename, PathChange},
        record::{self, CommitRecord},
    },
    repo::{
        Head, Pointer, Repo,
        history::{HistoryStep, Parents},
        ref_name::RefKind,
    },
};
use snap_remote::reader::RefSelection;

use crate::{
    commands::{
        diff::{self, range},
        refs::readable,
        verify::tell_at_collected,
    },
    context::Context,
    remote::RemoteRevision,
    report::{CliError, CommandOutcome},
    typed_path,
    ui::{
        Out, Progress, Ui, Versioned, size,
        size::ByteCount,
        text,
        time::{self, Day},
    },
};

const EXAMPLES: &str = "\
Examples:
  snap log -n 5                the five newest commits
  snap log --oneline v1.0      the history of tag v1.0, one line per commit
  snap log HEAD..origin/main   commits of the remote branch that HEAD lacks
  snap log --since 2026-11-01  commits on that day and later
  snap log --grep upgrade      commits with this text in their message
  snap log -p -n 1             the newest commit and its changes
  snap log s3://bucket/project#main
                               commits of a remote, without a clone
  snap log -- src/main.rs      commits that changed the file
  snap log --follow -- a.txt   also under earlier names of the file
  snap --json log | jq .id     for programs";

const PATHS: &str = "\
With paths after `--`, a commit is listed if one of them differs from a parent: it
was added or removed, or its content, mode, owner or extended attributes changed.
A new mtime alone does not count for a file; a folder has changed if anything in it
has. Paths are relative to the current folder, those of a remote to its top.

A merge is omitted if one of its parents has the same paths; only that parent is
then followed, as in git. Otherwise the merge is listed and all parents are followed.
--first-parent compares with, and follows, only the first parent.

--author and --grep search for text, with its case; --host and --label compare whole
names. A commit must meet all conditions. Those of --max-count are counted last.

--follow: if a commit adds the path and removes another path with the same content,
the file was renamed; earlier commits are searched for the old name.";

/// List commits, newest first
///
/// Starts at REV and follows all parents. With paths, lists only the commits that changed them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{PATHS}\n\n{EXAMPLES}"))]
pub(crate) struct LogArgs {
    /// Commit to start at: a branch, a tag, an id or `latest`, or URL#REV in a remote; `A..B` lists
    /// what B has and A lacks; default: HEAD
    rev: Option<String>,

    /// Maximum number of commits
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

    /// List the oldest commit first; --max-count still selects the newest ones
    #[arg(long)]
    reverse: bool,

    /// Also print the changes that each commit made, compared with its first parent
    #[arg(short, long)]
    patch: bool,

    #[command(flatten)]
    filter: FilterArgs,

    /// Follow a file to its earlier names; only exact renames
    #[arg(long, requires = "paths")]
    follow: bool,

    /// Files or folders whose changes to list, relative to the current folder
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Options that select commits. A commit must meet all of them.
#[derive(Debug, clap::Args)]
struct FilterArgs {
    /// Time of the oldest commit; a date means its start
    #[arg(long, alias = "after", value_name = "DATE")]
    since: Option<String>,

    /// Time of the newest commit; a date means its end
    #[arg(long, alias = "before", value_name = "DATE")]
    until: Option<String>,

    /// Text that the author contains
    #[arg(long, value_name = "TEXT")]
    author: Option<String>,

    /// Text that the message contains
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,

    /// Name of the machine
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Label of the commits, with this value or any; may be repeated
    #[arg(long = "label", value_name = "KEY[=VALUE]", value_parser = label)]
    labels: Vec<(String, Option<String>)>,
}

impl FilterArgs {
    fn parsed(&self, cx: &Context) -> Result<log::CommitFilter, CliError> {
        Ok(log::CommitFilter {
            since: date(self.since.as_deref(), Day::Start, cx)?,
            until: date(self.until.as_deref(), Day::End, cx)?,
            author: self.author.clone(),
            host: self.host.clone(),
            message: self.grep.clone(),
            labels: self.labels.clone(),
        })
    }
}

/// Parses `KEY` or `KEY=VALUE`.
pub(super) fn label(text: &str) -> Result<(String, Option<String>), &'static str> {
    match text.split_once('=') {
        Some(("", _)) => Err("expected KEY or KEY=VALUE"),
        Some((key, value)) => Ok((key.to_owned(), Some(value.to_owned()))),
        None => Ok((text.to_owned(), None)),
    }
}

impl LogArgs {
    /// Returns true if the command reads the contents of files.
    pub(crate) fn reads_contents(&self) -> bool {
        self.patch
    }
}

pub(crate) fn run(args: &LogArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let rev = args.rev.as_deref().unwrap_or("HEAD");
    match cx.split_remote(rev.as_ref())? {
        None if args.all && args.rev.is_some() => {
            Err(CliError::Usage("--all cannot be combined with REV"))
        }
        None => write_log(args, &cx.open_repo()?, rev.as_ref(), cx),
        Some(RemoteRevision { remote, rev }) => {
            let (old, new) = range::split(&rev)?.unwrap_or_else(|| (rev.clone(), rev.clone()));
            let texts = [cx.base_texts(&old), cx.base_texts(&new)];
            // The refs of each commit are shown, so they are needed too.
            let which = if args.all { RefSelection::All } else { RefSelection::Revisions(&texts) };
            write_log(args, cx.open_elsewhere(&remote, which)?.repo(), &rev, cx)
        }
    }
}

fn write_log(
    args: &LogArgs,
    repo: &Repo,
    rev: &OsStr,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let commit = |rev: &OsStr| match rev.to_str() {
        Some(rev) => cx.resolve_commit(repo, rev),
        None => Ok(cx.resolve(repo, rev)?.id),
    };
    let (excluded, starts) = match (args.all, range::split(rev)?) {
        (true, _) => (Vec::new(), all_starts(repo, cx)?),
        (false, Some((old, new))) => (vec![commit(&old)?], vec![commit(&new)?]),
        (false, None) => (Vec::new(), vec![commit(rev)?]),
    };
    let options = log::LogOptions {
        excluded,
        parents: if args.first_parent { Parents::First } else { Parents::All },
        limit: args.limit,
        filter: args.filter.parsed(cx)?,
    };
    let progress = cx.progress();
    let mut writer = LogWriter {
        out: cx.ui().out(),
        names: names(repo, cx)?,
        repo,
        args,
        cx,
        progress: &progress,
        origin: origin(repo, cx),
        number: 0,
        skipped: 0,
    };
    if args.paths.is_empty() {
        let step = |HistoryStep { id, commit, is_forgotten }| {
            let (paths, moved) = (Vec::new(), Vec::new());
            PathChange { id, commit, is_forgotten, paths, moved }
        };
        let log = log::run(repo.store(), &starts, &options)?;
        writer.write_all(log.map(|found| Ok(step(found?))))?;
    } else {
        let paths = args.paths.iter().map(|path| typed_path::from_top(repo, path));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let paths: Vec<&[u8]> = paths.iter().map(Vec::as_slice).collect();
        let renames = if args.follow { FollowRenames::Follow } else { FollowRenames::Ignore };
        let log = path_log::run(repo.store(), &starts, &paths, &options, renames, &progress)?;
        writer.write_all(log.map(|step| Ok(step?)))?;
    }
    let skipped = writer.skipped;
    writer.out.finish()?;
    Ok(diff::done(&DiffOutcome::default(), skipped, None, cx))
}

/// Returns the remote from which the history of a store comes; `None` without a remote, with several
/// ones of which none is `origin`, and for the store of a remote itself.
fn origin(repo: &Repo, cx: &Context) -> Option<String> {
    cx.store_dir().ok().filter(|dir| dir == repo.dir())?;
    cx.remote(None::<&str>.into()).ok()?.name
}

/// Writes commits in the requested format.
struct LogWriter<'a> {
    out: Out,
    names: Names,
    repo: &'a Repo,
    args: &'a LogArgs,
    cx: &'a Context,
    progress: &'a Progress<'a>,
    /// The remote from which history comes, if there is one.
    origin: Option<String>,
    number: u64,
    /// Number of files that could not be read.
    skipped: u64,
}

impl LogWriter<'_> {
    fn write_all(
        &mut self,
        mut steps: impl Iterator<Item = Result<PathChange, CliError>>,
    ) -> Result<(), CliError> {
        if !self.args.reverse {
            return steps.try_for_each(|step| self.write(&step?));
        }
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        steps.iter().rev().try_for_each(|step| self.write(step))
    }

    fn write(&mut self, step: &PathChange) -> Result<(), CliError> {
        if step.is_forgotten {
            let mark = match self.forgotten_at(&step.id) {
                Some(remote) => format!("forgotten at {remote}"),
                None => "forgotten".to_owned(),
            };
            self.names.entry(step.id).or_default().push(mark);
        }
        self.write_commit(step)?;
        if !self.args.patch || step.is_forgotten {
            return Ok(());
        }
        if !self.cx.ui().is_json() && !self.args.oneline {
            self.out.write_all(b"\n")?;
        }
        let old_names = step.moved.iter().map(|moved| moved.from.clone());
        let paths = step.paths.iter().cloned().chain(old_names).collect();
        let commit = (self.repo.store(), &step.commit);
        self.skipped +=
            diff::write_made_changes(&mut self.out, commit, paths, (self.cx, self.progress))?;
        Ok(())
    }

    /// Returns the remote that has forgotten a commit which was not forgotten here.
    fn forgotten_at(&self, id: &CommitId) -> Option<&str> {
        let is_own = self.repo.store().forgotten().contains(id);
        self.origin.as_deref().filter(|_| !is_own)
    }

    fn write_commit(
        &mut self,
        PathChange { id, commit, is_forgotten, moved, .. }: &PathChange,
    ) -> io::Result<()> {
        let forgotten_at = self.forgotten_at(id).filter(|_| *is_forgotten).map(str::to_owned);
        let (out, ui) = (&mut self.out, self.cx.ui());
        if ui.is_json() {
            let renames = moved.iter().map(RenameJson::new).collect();
            let commit = Versioned::of_type("commit", CommitRecord::new(id, commit));
            return out.json(&StepJson { commit, forgotten: *is_forgotten, forgotten_at, renames });
        }
        if self.args.oneline {
            return write_line(out, ui, (id, commit), &self.names);
        }
        if self.number > 0 {
            out.write_all(b"\n")?;
        }
        self.number += 1;
        write_commit(out, ui, (id, commit), &self.names)?;
        for FollowedRename { from, to } in moved {
            let gap = if commit.message.is_empty() { "" } else { "\n" };
            writeln!(out, "{gap}Renamed: {} -> {}", text::line(from), text::line(to))?;
        }
        Ok(())
    }
}

/// A commit, with the renames in it that `log` followed.
#[derive(Serialize)]
struct StepJson {
    #[serde(flatten)]
    commit: Versioned<CommitRecord>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    forgotten: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    forgotten_at: Option<String>,
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
    fn new(FollowedRename { from, to }: &FollowedRename) -> Self {
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
    text.parse().map_err(|_| "expected a number of 1 or more")
}

/// Returns the commits of `HEAD`, all branches and all tags. Names those that a collection at a remote
/// has deleted, and leaves them out.
pub(crate) fn all_starts(repo: &Repo, cx: &Context) -> Result<Vec<CommitId>, CliError> {
    let head = repo.refs().head_commit()?;
    let pointer = match repo.refs().head()? {
        Head::Detached(_) => Pointer::Head,
        Head::Branch(name) => Pointer::Ref(name),
    };
    let mut refs: Vec<(Pointer, CommitId)> = head.map(|id| (pointer, id)).into_iter().collect();
    for kind in [RefKind::Branch, RefKind::Tag] {
        let named = readable(cx, repo, kind)?.into_iter();
        let named = named.map(|(name, id)| (Pointer::Ref(name), id));
        let is_head = |(pointer, _): &(Pointer, CommitId)| {
            refs.iter().take(1).any(|(head, _)| head == pointer)
        };
        let others: Vec<_> = named.filter(|own| !is_head(own)).collect();
        refs.extend(others);
    }
    let mut starts = Vec::new();
    for (pointer, id) in refs {
        match repo.is_found_dead(&id)? && repo.store().commit(&id).is_err() {
            true => tell_at_collected(pointer, id, cx),
            false => starts.push(id),
        }
    }
    Ok(starts)
}

/// Names of commits, as they are shown after the id.
pub(crate) type Names = HashMap<CommitId, Vec<String>>;

/// Returns the names of the branches and tags at each commit.
pub(crate) fn names(repo: &Repo, cx: &Context) -> Result<Names, CliError> {
    let mut names = Names::new();
    let head = repo.refs().head()?;
    if let Head::Detached(id) = &head {
        names.entry(*id).or_default().push("HEAD".to_owned());
    }
    for (name, id) in readable(cx, repo, RefKind::Branch)? {
        let is_current = matches!(&head, Head::Branch(current) if *current == name);
        let arrow = if is_current { "HEAD -> " } else { "" };
        names.entry(id).or_default().push(format!("{arrow}{}", name.short()));
    }
    for (name, id) in readable(cx, repo, RefKind::Tag)? {
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

/// Writes a commit on one line.
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

/// Writes a commit with all its fields.
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
    writeln!(out, "Content: {}, {}", size::count(totals.files, "file"), ByteCount(totals.bytes))?;
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
