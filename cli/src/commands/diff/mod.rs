//! `snap diff`: shows the differences between two snapshots, or between a snapshot and the current
//! files.

mod contents;
mod made;
mod names;
mod printer;
pub(super) mod range;
pub(crate) mod record;
mod remote;
pub(crate) mod sides;
mod stat;
mod unified;
pub(crate) mod words;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use snap_core::{
    base::{blocked::Blocked, limits},
    ops::diff::{
        self, Change, Detail, DiffError, DiffOptions, DiffOutcome, Differences, RenameDetection,
        SideReader,
    },
    repo::Repo,
};
use snap_remote::reader::RefSelection;

pub(crate) use self::{
    made::write_made_changes,
    names::{letter, shown, word},
    printer::is_below,
};
use self::{
    names::Ends,
    printer::{DiffFormat, Printer},
    sides::{SideArguments, Sides},
};
use crate::{
    commands::commit::{LeaveOut, PathLists},
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{measure, size},
};

const EXAMPLES: &str = "\
Examples:
  snap diff                        the last commit and the current files
  snap diff --stat latest~1 latest two commits, one line per file
  snap diff v1.0..main             the same as `snap diff v1.0 main`
  snap diff v1.0 -- src docs       changes in two folders since v1.0
  snap diff v1.0:a.txt latest:b.txt
  snap diff origin/main main       what `snap push` would send
  snap diff origin#v1.0 origin#main
                                   two commits of a remote
  snap diff > changes.patch        for `patch -p1` or `git apply`
  snap diff --name-only -z | xargs -0 ls -l

Renamed files are detected by their content, unless more than 50,000 files were
added or deleted. Each file of a moved folder is listed. A moved empty file is
listed as deleted and added. Files above 8 MiB (`--text-limit`) and binary files are
not compared by lines. Owners, attributes, pipes, devices and folders are shown on lines that
`patch` ignores.";

/// Default number of context lines.
const CONTEXT_LINES: usize = 3;

/// Show changes between snapshots, or a snapshot and the files
///
/// Without REV, compares the last commit with the files. With one REV, compares that commit with
/// the files; with two, compares them with each other. Shows changes of content, mode, owner and
/// extended attributes; --metadata shows all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// Snapshots, or folders or files in them; paths may follow
    #[arg(value_name = "REV[:PATH]")]
    revs: Vec<OsString>,

    /// Files and folders to compare, relative to the current folder
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<OsString>,

    #[command(flatten)]
    lists: PathLists,

    /// Number of added and deleted lines of each file
    #[arg(long, conflicts_with_all = ["name_only", "name_status"])]
    stat: bool,

    /// Only the paths of the changes
    #[arg(long, conflicts_with_all = ["name_status", "json"])]
    name_only: bool,

    /// Paths with a letter: A added, D deleted, I ignored, M modified, T changed type, R renamed
    #[arg(long, conflicts_with = "json")]
    name_status: bool,

    /// End each path with NUL instead of a newline
    #[arg(short = 'z', long)]
    null: bool,

    /// Number of context lines around each change
    #[arg(short = 'U', long, value_name = "LINES", default_value_t = CONTEXT_LINES)]
    #[arg(conflicts_with_all = ["stat", "name_only", "name_status", "json"])]
    unified: usize,

    /// Compare files up to this size by lines; both versions are held in memory; default: 8MiB
    #[arg(long, value_name = "SIZE", value_parser = measure::size)]
    text_limit: Option<u64>,

    /// Also show changes of times, hard links and holes
    #[arg(long)]
    metadata: bool,

    /// Show renamed files as deleted and added
    #[arg(long)]
    no_renames: bool,

    /// Exit with 1 if there are differences
    #[arg(long)]
    exit_code: bool,

    /// Folder to compare; default: the project, or the sources of the commit
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// Profile whose excludes are added to those given here
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    #[command(flatten)]
    leave_out: LeaveOut,

    /// Compare a `.git` at the top of the project, too
    #[arg(long, help_heading = "Exclude options")]
    include_git: bool,
}

pub(crate) fn run(args: &DiffArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let revs = range::expand(&args.revs)?;
    let Some((remote, revs)) = remote::split(&revs, cx)? else {
        return compare(args, &cx.open_repo()?, (&revs, args.folder.as_deref()), cx);
    };
    let texts: Vec<_> = revs.iter().map(|rev| cx.base_texts(rev)).collect();
    let elsewhere = cx.open_elsewhere(&remote, RefSelection::Revisions(&texts))?;
    let here = remote::folder(&revs, cx)?;
    let folder = args.folder.as_deref().or(here.as_deref());
    compare(args, elsewhere.repo(), (&revs, folder), cx)
}

fn compare(
    args: &DiffArgs,
    repo: &Repo,
    (revs, folder): (&[OsString], Option<&Path>),
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let form = form(args, cx)?;
    let paths = args.lists.join(&args.paths, cx)?;
    let wanted = SideArguments {
        args: revs,
        paths: &paths,
        folder,
        leave_out: &args.leave_out,
        include_git: args.include_git,
        profile: args.profile.as_deref(),
    };
    let sides = sides::sides(repo, &wanted, cx)?;
    let progress = cx.progress();
    let new = match &sides {
        Sides::Trees { new, .. } | Sides::Entries(_, new) => new,
    };
    // The positions of lines are 32-bit numbers.
    let most = args.text_limit.unwrap_or(limits::DIFF_FILE_BYTES).min(u32::MAX.into());
    let reader = SideReader::new(repo.store(), new, most)?;
    let differences: fn(&Change) -> Differences = match args.metadata {
        true => Change::differences,
        false => |change| change.differences().usual(),
    };
    let mut out = cx.ui().out();
    let mut printer = Printer::new(cx, &progress, reader, (form, differences), &mut out);
    let outcome = match sides {
        Sides::Entries(change, _) => {
            let mut outcome = DiffOutcome::default();
            if differences(&change).any() {
                outcome.count(&change);
                printer.take(*change)?;
            }
            outcome
        }
        Sides::Trees { old, new, prefix, limit } => {
            let detail = if args.metadata { Detail::All } else { Detail::Usual };
            let renames =
                if args.no_renames { RenameDetection::Ignore } else { RenameDetection::Find };
            let options = DiffOptions { prefix, limit, detail, renames, ..DiffOptions::default() };
            let mut each = |change| printer.take(change);
            collect(&mut each, |each| {
                diff::run(repo.store(), old, &new, &options, &progress, each)
            })?
        }
    };
    let skipped = printer.finish(&outcome)?;
    out.finish()?;
    drop(progress);
    Ok(done(&outcome, skipped, args.exit_code.then_some(CommandOutcome::Different), cx))
}

/// Returns the result of a comparison; `different` is the result if there are changes.
pub(crate) fn done(
    outcome: &DiffOutcome,
    skipped: u64,
    different: Option<CommandOutcome>,
    cx: &Context,
) -> CommandOutcome {
    if skipped > 0 {
        let entries = size::count(skipped, "entry");
        cx.ui().warning(format_args!("{entries} could not be read and compared"));
        return CommandOutcome::Skipped;
    }
    different.filter(|_| outcome.changes() > 0).unwrap_or(CommandOutcome::Success)
}

/// Runs a comparison whose callback can fail with any [`CliError`].
pub(crate) fn collect(
    each: &mut dyn FnMut(Change) -> Result<(), CliError>,
    run: impl FnOnce(diff::OnChange<'_>) -> Result<DiffOutcome, DiffError>,
) -> Result<DiffOutcome, CliError> {
    let mut failure = None;
    let outcome = run(&mut |change| {
        each(change).map_err(|error| {
            failure = Some(error);
            DiffError::Blocked(Blocked::Interrupted)
        })
    });
    match failure {
        Some(failure) => Err(failure),
        None => Ok(outcome?),
    }
}

fn form(args: &DiffArgs, cx: &Context) -> Result<DiffFormat, CliError> {
    let ends = if args.null { Ends::Nul } else { Ends::Line };
    let form = match (cx.ui().is_json(), args.stat) {
        (true, false) => DiffFormat::Json,
        (true, true) => DiffFormat::JsonWithLines,
        (false, true) => DiffFormat::Stat,
        (false, false) if args.name_only => DiffFormat::Names(ends),
        (false, false) if args.name_status => DiffFormat::NamesAndStatus(ends),
        (false, false) => DiffFormat::Unified(args.unified),
    };
    match form {
        DiffFormat::Names(_) | DiffFormat::NamesAndStatus(_) => Ok(form),
        _ if args.null => Err(CliError::Usage("-z needs --name-only or --name-status")),
        form => Ok(form),
    }
}
