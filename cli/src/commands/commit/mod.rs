//! `snap commit`: make a snapshot.

mod describe;
mod hooks;
mod leave_out;
mod plan;
mod project;
mod tell;

use std::{ffi::OsString, path::PathBuf, time::Instant};

use snap_core::{
    base::observe::{Note, Observer},
    disk::Disk,
    ops::{
        commit::{self, Run},
        tidy,
    },
    repo::Repo,
};

pub(crate) use self::{
    describe::Describe,
    leave_out::LeaveOut,
    plan::{named, whole_folder},
};
use self::{
    hooks::Hooks,
    plan::{Place, Plan},
};
use crate::{
    commands::init,
    context::Context,
    report::{CliError, Done},
};

const EXAMPLES: &str = "\
Examples:
  snap commit                          the whole project you stand in
  snap commit ~/photos -m 'June'       what a folder contains
  snap commit src docs/plan.txt        update these and keep everything else
  pg_dump db | snap commit --stdin db.sql
  snap --store /mnt/usb/store commit ~/photos
  snap commit --exclude '*.o' --exclude-caches --label ci=1234
  snap commit --profile home           what the profile `home` says
  snap commit --dry-run                say what it would come to
  snap commit --checksum               also notice changes that left the times alone

What is left out: what .snapignore files say (in the syntax of .gitignore), the
options for it, the settings, and the store itself. Profiles and hooks are
settings, see docs/configuration.md.";

/// Make a snapshot
///
/// Without PATH the folder that holds the store is committed, from wherever in
/// it you are. In such a project, paths name what to update, and everything else
/// is kept from the last commit. A store elsewhere needs a path, and a branch of
/// it keeps to its sources. The id of the snapshot is printed when it is safe on the disk.
/// Where there is no store yet, `.snap` is made in the folder that is committed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CommitArgs {
    /// Files and folders of the project to update; elsewhere, what to commit
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    describe: Describe,

    /// Profile whose paths, excludes and labels count besides those given here
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// Branch to commit onto, made when it is missing; else the current one
    #[arg(short, long)]
    branch: Option<String>,

    /// Commit what comes from stdin, as a file of this name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["paths", "profile"])]
    stdin: Option<OsString>,

    /// Commit on top of commits that the files here do not contain; what they
    /// changed is taken back
    #[arg(long)]
    onto_tip: bool,

    /// Let the snapshot consist of PATH or the stream alone, whatever the last
    /// one was made of
    #[arg(long)]
    replace: bool,

    /// Make a commit even if nothing changed
    #[arg(long)]
    allow_empty: bool,

    /// Read every file, also those that their size and times say are unchanged
    #[arg(long)]
    checksum: bool,

    /// Look at everything, but write nothing; say what the commit would be
    #[arg(long)]
    dry_run: bool,

    /// Run neither of the commands that the settings say
    #[arg(long)]
    no_hooks: bool,

    #[command(flatten)]
    leave_out: LeaveOut,
}

pub(crate) fn run(args: &CommitArgs, cx: &Context) -> Result<Done, CliError> {
    let start = Instant::now();
    let (store, is_there) = match plan::place(args, cx)? {
        Place::There(store) => (store, true),
        Place::ToBeMade(store) => (store, false),
    };
    if !is_there && !args.dry_run {
        init::make_for_use(cx, &store)?;
    }
    let settings = match is_there || !args.dry_run {
        true => cx.settings_of(&store)?,
        false => cx.settings().clone(),
    };
    let plan = Plan::new(args, &settings, store)?;
    plan.check_source(args)?;
    // What is wrong with the options is said before anything runs.
    let mut options = plan.options(args, &settings.config()?, cx)?;
    let hooks = Hooks::find(args, (&plan, &settings), cx)?;
    let before = Instant::now();
    hooks.before(cx)?;
    // How long a hook takes is its own affair.
    let start = start + before.elapsed();

    let repo = match is_there || !args.dry_run {
        true if args.dry_run => cx.open_found(&plan.store)?,
        true => cx.open_at(&plan.store)?,
        false => Repo::absent(&plan.store, Disk::default(), settings.config()?),
    };
    // Hooks may have taken their time.
    options.now = Some(cx.now());
    let missing = plan.tell_missing(args, cx);
    let progress = cx.progress();
    let source = plan.source(args, &repo, &mut options, cx)?;
    let mut outcome = commit::run(&repo, source, &options, &progress)?;
    outcome.skipped += missing;
    progress.clear();
    let done = match outcome.skipped + outcome.without_attributes {
        0 => Done::Well,
        _ => Done::Skipped,
    };
    if options.run == Run::Dry {
        tell::dry(&outcome, &repo, start.elapsed(), cx)?;
        return Ok(done);
    }
    let told = tell::id(&outcome, &repo, cx);
    if outcome.created
        && let Err(error) = tidy::run(&repo, &progress)
    {
        progress.note(Note::TidyFailed { error: &error });
    }
    drop(progress);
    tell::summary(&outcome, &repo, start.elapsed(), cx)?;
    hooks.after(&outcome, &repo, cx)?;
    // Whether or not anybody reads the id, the snapshot is made.
    told.or_else(|error| if error.is_broken_pipe() { Ok(()) } else { Err(error) })?;
    Ok(done)
}
