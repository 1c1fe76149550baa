//! `snap restore`: write what a snapshot holds into a folder.

use std::{
    ffi::OsString,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::fs::Stat;
use serde::Serialize;
use snap_core::{
    base::id::BlobId,
    disk::Disk,
    local::{owners::Ids, scan::FileStat, stat_cache::StatCache},
    ops::restore::{self, Change, Existing, Extras, Mode, Outcome, Ownership, What},
    repo::{
        Repo,
        path::{Found, components},
    },
};

use crate::{
    context::Context,
    report::{CliError, Done},
    snapshot::Snapshot,
    ui::{Out, size, size::Size, text},
};

const EXAMPLES: &str = "\
Examples:
  snap restore latest /tmp/look            a whole snapshot, elsewhere
  snap restore latest~1:notes.txt          one file, back in its place
  snap restore v1.0:src /tmp/src           what a folder holds
  snap restore project.snap:src /tmp/src   the same, out of a bundle
  snap restore origin#main:src /tmp/src    the same, out of a remote
  snap restore latest --overwrite          undo changes in the whole project
  snap restore latest --overwrite --delete --dry-run
                                           what would make it exactly like that";

/// Write what a snapshot holds into a folder
///
/// Without DIR everything goes back to where it was, into the folder that
/// holds the store. Files that are there and equal are kept, so an interrupted
/// restore can simply be run again. A file that differs stops the restore
/// before anything is written, unless --overwrite is given. A pipe, socket or
/// device that the system does not let you make is left out and told, and the
/// exit code is 3.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// Snapshot, or a folder or file in it; also FILE.snap:PATH, in a bundle,
    /// and URL#REV:PATH, elsewhere
    #[arg(value_name = "REV[:PATH]")]
    what: OsString,

    /// Folder to write into; made when it is missing
    #[arg(value_name = "DIR")]
    target: Option<PathBuf>,

    /// Replace files that differ from the snapshot
    #[arg(long)]
    overwrite: bool,

    /// Remove what is in the folder but not in the snapshot
    #[arg(long)]
    delete: bool,

    /// Only list what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Read files that are there, instead of trusting what is known of them
    #[arg(long)]
    checksum: bool,

    /// Restore only what matches a pattern, as in .gitignore; may be repeated
    #[arg(short, long, value_name = "PATTERN")]
    include: Vec<String>,

    /// Leave alone what matches a pattern; may be repeated
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// Let files belong to whoever restores them
    #[arg(long)]
    no_owner: bool,

    /// Take owners by number, not by name
    #[arg(long, conflicts_with = "no_owner")]
    numeric_ids: bool,
}

pub(crate) fn run(args: &RestoreArgs, cx: &Context) -> Result<Done, CliError> {
    let snapshot = cx.open_snapshot(&args.what)?;
    let (what, place) = what(&snapshot)?;
    let project = snapshot.repo().and_then(Repo::project);
    let target = match (&args.target, project) {
        (Some(target), _) => target.clone(),
        (None, Some(project)) => project.join(&place),
        (None, None) if snapshot.repo().is_some() => {
            return Err(CliError::Usage("a bare store has no folder to restore into: name one"));
        }
        (None, None) => {
            return Err(CliError::Usage(
                "a bundle or a remote has no folder to restore into: name one",
            ));
        }
    };
    let out = Mutex::new(cx.ui().out());
    let tells = args.dry_run;
    let on_change = |path: &Path, change: Change| {
        if tells {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            // A reader that went away does not change what is restored.
            let _ = write_change(&mut out, cx, path, change);
        }
    };
    let cache =
        snapshot.repo().map(|repo| StatCache::open(&repo.dir().join("cache"), Disk::default()));
    let known = |stat: &Stat| Some(cache.as_ref()?.file(&FileStat::from_raw(stat)?)?.id);
    // What is restored elsewhere may still be there, unchanged, where it came
    // from; a file system with reflinks then shares its blocks.
    let original = project.map(|project| project.join(&place));
    let holder = |path: &Path, id: &BlobId| {
        let original = original.as_ref()?.join(path);
        let stat = FileStat::of_path(&original).ok()?;
        (cache.as_ref()?.file(&stat)?.id == *id).then_some(original)
    };
    let options = restore::Options {
        existing: if args.overwrite { Existing::Overwrite } else { Existing::Stop },
        extras: if args.delete { Extras::Delete } else { Extras::Keep },
        mode: if args.dry_run { Mode::DryRun } else { Mode::Write },
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        ids: if args.numeric_ids { Ids::Numeric } else { Ids::ByName },
        ownership: if args.no_owner { Ownership::Leave } else { Ownership::Apply },
        known: if args.checksum { None } else { Some(&known) },
        holder: if args.checksum { None } else { Some(&holder) },
        on_change: Some(&on_change),
        ..restore::Options::default()
    };
    let progress = cx.progress();
    let outcome = restore::run(snapshot.store(), &what, &target, &options, &progress)?;
    drop(progress);
    let mut out = out.into_inner().unwrap_or_else(PoisonError::into_inner);
    if cx.ui().is_json() {
        out.json(&OutcomeJson::new(&outcome, args.dry_run))?;
    }
    out.finish()?;
    summarize(&outcome, args.dry_run, cx);
    if !args.include.is_empty() && is_empty(&outcome) {
        cx.ui().warning(format_args!("nothing in there matches --include and not --exclude"));
    }
    Ok(if outcome.not_made > 0 { Done::Skipped } else { Done::Well })
}

/// What is restored, and where it belongs below the project folder.
pub(crate) fn what(snapshot: &Snapshot) -> Result<(What, PathBuf), CliError> {
    let path = snapshot.path.as_deref().unwrap_or_default();
    let mut place: PathBuf = components(path).map(std::ffi::OsStr::from_bytes).collect();
    let what = match snapshot.find()? {
        Found::Root(tree) => What::Folder { tree, root: snapshot.commit.root.clone() },
        Found::Entry(entry) => match Found::Entry(entry.clone()).tree() {
            Some(tree) => What::Folder { tree, root: Some(entry.metadata) },
            None => {
                place.pop();
                What::Entry(Box::new(entry))
            }
        },
    };
    Ok((what, place))
}

fn verb(change: Change) -> &'static str {
    match change {
        Change::Create => "create",
        Change::Replace => "replace",
        Change::Repair => "repair",
        Change::Remove => "remove",
        _ => "change",
    }
}

fn write_change(out: &mut Out, cx: &Context, path: &Path, change: Change) -> std::io::Result<()> {
    let bytes = path.as_os_str().as_bytes();
    let verb = verb(change);
    if cx.ui().is_json() {
        let path = String::from_utf8_lossy(bytes);
        return out.json(&serde_json::json!({ "version": 1, "change": verb, "path": path }));
    }
    writeln!(out, "{verb:<8}{}", text::line(bytes))
}

#[derive(Serialize)]
struct OutcomeJson {
    version: u32,
    dry_run: bool,
    files_written: u64,
    bytes_written: u64,
    files_cloned: u64,
    files_kept: u64,
    folders: u64,
    symlinks: u64,
    links: u64,
    others: u64,
    repaired: u64,
    removed: u64,
    skipped: u64,
}

impl OutcomeJson {
    fn new(outcome: &Outcome, dry_run: bool) -> Self {
        Self {
            version: 1,
            dry_run,
            files_written: outcome.files_written,
            bytes_written: outcome.bytes_written,
            files_cloned: outcome.files_cloned,
            files_kept: outcome.files_kept,
            folders: outcome.folders,
            symlinks: outcome.symlinks,
            links: outcome.links,
            others: outcome.others,
            repaired: outcome.repaired,
            removed: outcome.removed,
            skipped: outcome.skipped + outcome.not_made,
        }
    }
}

/// Whether the snapshot had nothing to restore, folders left aside.
fn is_empty(outcome: &Outcome) -> bool {
    let files = outcome.files_written + outcome.files_kept;
    let made = outcome.symlinks + outcome.links + outcome.others;
    files + made + outcome.others_kept + outcome.not_made + outcome.repaired == 0
}

fn summarize(outcome: &Outcome, dry_run: bool, cx: &Context) {
    let ui = cx.ui();
    let verb = if dry_run { "Would restore" } else { "Restored" };
    let (written, bytes) =
        (size::count(outcome.files_written, "file"), Size(outcome.bytes_written));
    let kept = size::grouped(outcome.files_kept);
    let others = match outcome.symlinks + outcome.links + outcome.others {
        0 => String::new(),
        others => format!(" and {}", size::count(others, "other entry")),
    };
    ui.status(format_args!("{verb} {written}{others}, {bytes}; {kept} already there"));
    if outcome.removed > 0 {
        let verb = if dry_run { "Would remove" } else { "Removed" };
        ui.status(format_args!("{verb} {}", size::count(outcome.removed, "extra entry")));
    }
    ui.detail(format_args!(
        "Made {}; {} shared blocks with another; {} got attributes back",
        size::count(outcome.folders, "folder"),
        size::count(outcome.files_cloned, "file"),
        size::count(outcome.repaired, "entry"),
    ));
    if outcome.skipped > 0 {
        ui.warning(format_args!("left the store in the target alone"));
    }
    if outcome.not_made > 0 {
        let what = size::count(outcome.not_made, "entry");
        ui.warning(format_args!("left out {what} that could not be made"));
    }
    for (what, count) in &outcome.not_applied {
        ui.warning(format_args!("could not set the {what} of {}", size::count(*count, "entry")));
    }
}
