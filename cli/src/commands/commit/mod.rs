//! `snap commit`: makes a snapshot.

mod describe;
pub(crate) mod git;
mod hooks;
mod leave_out;
mod new_store;
mod output;
mod path_lists;
mod plan;
mod project;
pub(crate) mod unmatched;

use std::{ffi::OsString, path::PathBuf, time::Instant};

use clap::builder::{OsStringValueParser, TypedValueParser};
use snap_core::{
    base::observe::{Note, Observer},
    disk::Disk,
    ops::{
        commit::{self, BehindPolicy, CommitError, CommitRun, CommitSource},
        tidy,
    },
    repo::Repo,
};

pub(crate) use self::{
    describe::Describe,
    leave_out::LeaveOut,
    path_lists::PathLists,
    plan::{followed, named, source_name, whole_folder},
};
use self::{
    hooks::Hooks,
    plan::{CommitPlan, TargetStore},
};
use crate::{
    commands::{init, refs},
    context::Context,
    report::{CliError, CommandOutcome},
};

const EXAMPLES: &str = "\
Examples:
  snap commit                          the whole current project
  snap commit out -b build-1           a folder, on a new branch
  snap commit src docs/plan.txt        update these, keep everything else
  snap commit --stdin db.sql --stdin-from-command -- pg_dump db
  tar -c docs | snap commit --stdin docs.tar
  snap --store /mnt/usb/store commit ~/photos
  snap commit --exclude '*.o' --exclude-caches --label ci=1234
  snap commit --profile home           use the settings of profile `home`
  find . -name '*.md' -print0 | snap commit --files-from-raw -
  snap commit --exclude-if-present .nobackup --iexclude '*.tmp'
  snap commit --dry-run                show what would be committed
  snap commit --checksum               detect changes that kept size and time

A commit excludes what .snapignore files, the exclude options and the settings name,
and the store itself. Patterns have the syntax of .gitignore. Profiles and hooks are
settings; see docs/configuration.md.";

/// Create a snapshot
///
/// Without PATH, commits the whole project: the folder that contains the store. With PATH, updates
/// only these files and folders, and keeps the rest of the last commit. A PATH that is a symbolic
/// link is followed; a link in the project is saved as a link. Prints the id of the
/// snapshot when it is safe on disk, unless --quiet is given; `snap show --id` prints it later.
///
/// With a store outside the folder, PATH is required. One PATH stores its content at the top of the
/// snapshot. Several PATHs, and a profile with paths, store absolute paths. A branch keeps this
/// layout, and at least one of its PATHs; `-b` commits to another branch, and --replace continues
/// this one.
///
/// If there is no store, creates `.snap` in the current folder. On a terminal, asks for confirmation
/// in `/`, in your home folder, and inside another project; without one, it refuses `/` and your
/// home folder. A git work tree counts as a project: its `.git` is left out, unless --include-git or
/// the setting `commit.git` is given. Files named .gitignore have no effect, unless --gitignore or the
/// setting `commit.gitignore` is given.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CommitArgs {
    /// Files and folders to commit; default: the project. With --stdin-from-command, the command
    /// and its arguments
    // An argument of a command may be empty.
    #[arg(value_name = "PATH", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    operands: Vec<PathBuf>,

    #[command(flatten)]
    lists: PathLists,

    #[command(flatten)]
    describe: Describe,

    /// Profile whose paths, excludes and labels are added to those given here
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// Branch to commit to, created if missing; default: the current branch
    #[arg(short, long)]
    branch: Option<String>,

    /// Commit stdin as a file of this name
    #[arg(long, value_name = "NAME", conflicts_with = "profile")]
    stdin: Option<OsString>,

    /// Commit the output of the command after `--` instead of stdin, unless the command fails
    #[arg(long, requires = "stdin")]
    stdin_from_command: bool,

    /// Commit stdin even if it is empty
    #[arg(long, requires = "stdin")]
    allow_empty_stream: bool,

    /// Commit a path of the snapshot although `snap rewrite` removed its content; may be repeated
    #[arg(long, value_name = "PATH")]
    allow: Vec<OsString>,

    /// Commit even though the branch has newer commits. This undoes their changes
    #[arg(long)]
    onto_tip: bool,

    /// Commit only PATH or stdin, and keep nothing of the last commit
    #[arg(long)]
    replace: bool,

    /// Commit even if nothing changed
    #[arg(long)]
    allow_empty: bool,

    /// Read every file, even if its size and times are unchanged
    #[arg(long)]
    checksum: bool,

    /// Show what would be committed; write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Run no hooks
    #[arg(long)]
    no_hooks: bool,

    #[command(flatten)]
    leave_out: LeaveOut,

    /// Save a `.git` at the top of the project
    #[arg(long, help_heading = "Exclude options")]
    include_git: bool,
}

impl CommitArgs {
    /// Returns the paths to commit.
    fn paths(&self) -> &[PathBuf] {
        if self.stdin_from_command { &[] } else { &self.operands }
    }

    /// Checks what clap cannot: the meaning of the operands depends on an option.
    fn check(&self) -> Result<(), CliError> {
        let wrong = match (self.stdin_from_command, self.operands.as_slice()) {
            _ if self.stdin.is_some() && !self.lists.is_empty() => {
                "--stdin and --files-from cannot be used together"
            }
            (true, []) => "--stdin-from-command needs a command after `--`",
            (false, [_, ..]) if self.stdin.is_some() => "--stdin and PATH cannot be used together",
            (false, paths) if paths.iter().any(|path| path.as_os_str().is_empty()) => {
                "a PATH is empty"
            }
            _ => return Ok(()),
        };
        Err(CliError::Usage(wrong))
    }
}

pub(crate) fn run(args: &CommitArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    args.check()?;
    let start = Instant::now();
    let args = &CommitArgs { operands: args.lists.join(&args.operands, cx)?, ..args.clone() };
    let (store, is_there) = match plan::place(args, cx)? {
        TargetStore::There(store) => (store, true),
        TargetStore::ToBeMade(store) => (store, false),
    };
    if !is_there && !args.dry_run {
        new_store::confirm(&store, cx)?;
        init::make_for_use(cx, &store)?;
    }
    let settings = match is_there || !args.dry_run {
        true => cx.settings_of(&store)?,
        false => cx.settings().clone(),
    };
    let plan = CommitPlan::new(args, &settings, store)?;
    plan.check_source(args)?;
    // Invalid options are reported before any hook runs.
    let mut options = plan.options(args, &settings.config()?, cx)?;
    let hooks = Hooks::find(args, (&plan, &settings), cx)?;
    let before = Instant::now();
    hooks.before(cx)?;
    // The time of the hook does not count.
    let start = start + before.elapsed();

    let repo = match is_there || !args.dry_run {
        true if args.dry_run => cx.open_found(&plan.store)?,
        true => cx.open_at(&plan.store)?,
        false => Repo::absent(&plan.store, Disk::default(), settings.config()?),
    };
    if let Some(branch) = options.branch.as_ref().filter(|_| !repo.is_absent())
        && repo.refs().read(branch)?.is_none()
    {
        refs::check_new(branch, &repo, cx)?;
    }
    // Hooks may have taken some time.
    options.now = Some(cx.now());
    let missing = plan.warn_missing(args, cx);
    let progress = cx.progress();
    let source = plan.source(args, &repo, &mut options, cx)?;
    let is_stream = matches!(source, CommitSource::Stream { .. });
    let is_first_beside_git = !is_stream && plan.is_first_beside_git(&repo)?;
    if is_first_beside_git && !options.ignore.gitignore && plan.has_gitignore() {
        output::gitignore_unused(cx);
    }
    if options.unnamed == commit::OtherPaths::Remove {
        unmatched::warn(&source, &options.ignore, cx)?;
    }
    if let Some(project) = repo.project().filter(|_| !is_stream && is_of_project(&options)) {
        git::leave_out(&mut options.ignore, &repo, (project, args.include_git))?;
    }
    let mut outcome = commit::run(&repo, source, &options, &progress).map_err(of_commit)?;
    outcome.skipped += missing;
    progress.clear();
    let done = match outcome.skipped + outcome.without_attributes {
        0 => CommandOutcome::Success,
        _ => CommandOutcome::Skipped,
    };
    if options.run == CommitRun::Dry {
        output::dry(&outcome, &repo, start.elapsed(), cx)?;
        if is_first_beside_git && options.ignore.leaves_out_git() {
            git::note(cx);
        }
        return Ok(done);
    }
    let printed = output::id(&outcome, &repo, cx);
    if outcome.created
        && let Err(error) = tidy::run(&repo, &progress)
    {
        progress.note(Note::TidyFailed { error: &error });
    }
    drop(progress);
    output::summary(&outcome, &repo, start.elapsed(), cx)?;
    if options.ignore.leaves_out_git() {
        git::note_left_out(&outcome, &repo, cx)?;
    }
    hooks.after(&outcome, &repo, cx)?;
    // The snapshot exists, even if the reader of the id has gone.
    printed.or_else(|error| if error.is_broken_pipe() { Ok(()) } else { Err(error) })?;
    Ok(done)
}

/// Returns true for a commit of the project's own files.
fn is_of_project(options: &commit::CommitOptions) -> bool {
    options.unseen != BehindPolicy::Ignore
}

/// Returns the error of a commit. The error of a command whose output was to be committed is the
/// cause that counts.
fn of_commit(error: CommitError) -> CliError {
    match error {
        CommitError::Stream(source) => match source.downcast() {
            Ok(error) => CliError::CommandStream(error),
            Err(source) => CommitError::Stream(source).into(),
        },
        error => error.into(),
    }
}
