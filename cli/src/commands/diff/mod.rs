//! `snap diff`: what differs between two snapshots, or between one and what is
//! there now.

mod contents;
mod names;
mod printer;
pub(crate) mod record;
mod remote;
pub(crate) mod sides;
mod stat;
mod unified;
pub(crate) mod words;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use snap_core::{
    base::limits,
    ops::diff::{self, Change, Detail, DiffError, Differences, Options, Outcome, Reader, Renames},
    repo::Repo,
};
use snap_remote::reading::Which;

use self::{
    names::Ends,
    printer::{Form, Printer},
    sides::{Sides, Wanted},
};
pub(crate) use self::{
    names::{letter, shown, word},
    printer::is_below,
};
use crate::{
    commands::commit::LeaveOut,
    context::Context,
    report::{CliError, Done},
    ui::size,
};

const EXAMPLES: &str = "\
Examples:
  snap diff                        the last commit with what is there now
  snap diff --stat latest~1 latest two commits, a line for each file
  snap diff v1.0 -- src docs       what became of two folders since v1.0
  snap diff v1.0:a.txt latest:b.txt
  snap diff origin/main main       what `snap push` would bring there
  snap diff origin#v1.0 origin#main
                                   two commits in a remote
  snap diff > changes.patch        for `patch -p1` or `git apply`
  snap diff --name-only -z | xargs -0 ls -l

Files that were renamed or moved are recognised by their content, unless more
than 50,000 came or went. A folder that was moved shows as its files, and an
empty file as removed and added. Files above 8 MiB and those that are no text
are said to differ, but not how. Owners, attributes, and what `patch` does not
know (pipes, devices, folders) stand on lines that it passes over.";

/// Show what changed between snapshots, or since one
///
/// Without REV the last commit is compared with what is there now, with one REV
/// that one; with two they are compared with each other. Only mode, owner and
/// extended attributes count beside the content, unless --metadata is given.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// Snapshots, or folders or files in them; paths may follow
    #[arg(value_name = "REV[:PATH]")]
    revs: Vec<OsString>,

    /// Files and folders to compare, relative to where you are
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// A line for each file: how many lines came and went
    #[arg(long, conflicts_with_all = ["name_only", "name_status"])]
    stat: bool,

    /// Paths only
    #[arg(long, conflicts_with_all = ["name_status", "json"])]
    name_only: bool,

    /// Paths with a letter: A new, D gone, M changed, T another kind, R renamed
    #[arg(long, conflicts_with = "json")]
    name_status: bool,

    /// End paths with NUL instead of a line end
    #[arg(short = 'z', long)]
    null: bool,

    /// Lines to show around each change
    #[arg(short = 'U', long, value_name = "LINES", default_value_t = 3)]
    #[arg(conflicts_with_all = ["stat", "name_only", "name_status", "json"])]
    unified: usize,

    /// Show differences in times, hard links and holes, too
    #[arg(long)]
    metadata: bool,

    /// Show renamed files as removed and added
    #[arg(long)]
    no_renames: bool,

    /// Exit with 1 if there are differences
    #[arg(long)]
    exit_code: bool,

    /// Folder to compare with; else the one that is committed without PATH
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,

    #[command(flatten)]
    leave_out: LeaveOut,
}

pub(crate) fn run(args: &DiffArgs, cx: &Context) -> Result<Done, CliError> {
    let Some((remote, revs)) = remote::split(&args.revs, cx)? else {
        return compare(args, &cx.open_repo()?, (&args.revs, args.folder.as_deref()), cx);
    };
    let specs: Vec<&[u8]> = revs.iter().map(|rev| rev.as_bytes()).collect();
    let elsewhere = cx.open_elsewhere(&remote, Which::Of(&specs))?;
    let here = remote::folder(&revs, cx)?;
    let folder = args.folder.as_deref().or(here.as_deref());
    compare(args, elsewhere.repo(), (&revs, folder), cx)
}

fn compare(
    args: &DiffArgs,
    repo: &Repo,
    (revs, folder): (&[OsString], Option<&Path>),
    cx: &Context,
) -> Result<Done, CliError> {
    let form = form(args, cx)?;
    let wanted = Wanted { args: revs, paths: &args.paths, folder, leave_out: &args.leave_out };
    let sides = sides::sides(repo, &wanted, cx)?;
    let progress = cx.progress();
    let new = match &sides {
        Sides::Trees { new, .. } | Sides::Entries(_, new) => new,
    };
    let reader = Reader::new(repo.store(), new, limits::DIFF_FILE_BYTES);
    let reader = reader.map_err(|source| CliError::Folder { source })?;
    let differences: fn(&Change) -> Differences = match args.metadata {
        true => Change::differences,
        false => |change| change.differences().usual(),
    };
    let mut printer = Printer::new(cx, &progress, reader, (form, differences));
    let outcome = match sides {
        Sides::Entries(change, _) => {
            let mut outcome = Outcome::default();
            if differences(&change).any() {
                outcome.count(&change);
                printer.take(*change)?;
            }
            outcome
        }
        Sides::Trees { old, new, prefix, limit } => {
            let detail = if args.metadata { Detail::All } else { Detail::Usual };
            let renames = if args.no_renames { Renames::Ignore } else { Renames::Find };
            let options = Options { prefix, limit, detail, renames, ..Options::default() };
            let mut each = |change| printer.take(change);
            collect(&mut each, |each| {
                diff::run(repo.store(), (old, &new), &options, &progress, each)
            })?
        }
    };
    let skipped = printer.finish(&outcome)?;
    drop(progress);
    Ok(done(&outcome, skipped, args.exit_code.then_some(Done::Different), cx))
}

/// How a comparison ended; `different` is how it ends when there are changes.
pub(crate) fn done(outcome: &Outcome, skipped: u64, different: Option<Done>, cx: &Context) -> Done {
    if skipped > 0 {
        let entries = size::count(skipped, "entry");
        cx.ui().warning(format_args!("{entries} could not be read and compared"));
        return Done::Skipped;
    }
    different.filter(|_| outcome.changes() > 0).unwrap_or(Done::Well)
}

/// Runs a comparison whose receiver may fail in more ways than core knows.
pub(crate) fn collect(
    each: &mut dyn FnMut(Change) -> Result<(), CliError>,
    run: impl FnOnce(diff::Each<'_>) -> Result<Outcome, DiffError>,
) -> Result<Outcome, CliError> {
    let mut failure = None;
    let outcome = run(&mut |change| {
        each(change).map_err(|error| {
            failure = Some(error);
            DiffError::Interrupted
        })
    });
    match failure {
        Some(failure) => Err(failure),
        None => Ok(outcome?),
    }
}

fn form(args: &DiffArgs, cx: &Context) -> Result<Form, CliError> {
    let ends = if args.null { Ends::Nul } else { Ends::Line };
    let form = match (cx.ui().is_json(), args.stat) {
        (true, false) => Form::Json,
        (true, true) => Form::JsonWithLines,
        (false, true) => Form::Stat,
        (false, false) if args.name_only => Form::Names(ends),
        (false, false) if args.name_status => Form::NamesAndStatus(ends),
        (false, false) => Form::Unified(args.unified),
    };
    match form {
        Form::Names(_) | Form::NamesAndStatus(_) => Ok(form),
        _ if args.null => Err(CliError::Usage("-z goes with --name-only or --name-status")),
        form => Ok(form),
    }
}
