//! `snap restore`: write what a snapshot holds into a folder.

mod parents;
mod protect;

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
    base::{
        id::{BlobId, CommitId},
        name::EntryName,
    },
    disk::Disk,
    local::{owners::Ids, scan::FileStat, stat_cache::StatCache, store_folder::STORE_FOLDER},
    ops::restore::{self, Change, Existing, Extras, Loss, Losses, Mode, Outcome, Ownership, What},
    repo::{
        Repo,
        files_lock::FilesUse,
        path::{Found, components},
        ref_name::RefKind,
    },
};

use self::protect::{check_target, is_in_place, protection, tell_leftovers};
use crate::{
    context::Context,
    report::{CliError, Done},
    snapshot::Snapshot,
    ui::{Out, Progress, size, size::Size, text},
};

const EXAMPLES: &str = "\
Examples:
  snap restore latest /tmp/look            a whole snapshot, elsewhere
  snap restore --overwrite latest~1:notes.txt
                                           one file, back in its place
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
/// before anything is written, unless --overwrite is given.
///
/// The exit code is 3, and a warning says why, if a pipe, socket or device could
/// not be made, an attribute not set, or an extra entry not removed. Attributes
/// that only root may set, such as other owners, are warned about and do not
/// change the exit code.
///
/// --delete removes only what the snapshot could have contained: what the ignore
/// rules exclude, before or after the restore or when the commit was made, stays.
/// If a file would be removed whose content no commit of this store holds, the
/// restore asks first; without a terminal it needs --yes. --dry-run lists every
/// path that would be removed or replaced, and marks what no commit holds.
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

    /// Remove what is in the folder but not in the snapshot; stores, mounted
    /// file systems and files that you cannot read stay
    #[arg(long)]
    delete: bool,

    /// With --delete, remove also what commits leave out: what ignore rules or
    /// a size limit exclude, and what the commit could not read
    #[arg(long, requires = "delete")]
    delete_excluded: bool,

    /// Remove files that no commit holds without asking
    #[arg(short, long)]
    yes: bool,

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
    // What is pulled while files are restored is not in them.
    let tip = snapshot.repo().map(|repo| repo.refs().head_commit()).transpose()?.flatten();
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
    let progress = cx.progress();
    let is_locked = |repo: &&Repo| !args.dry_run && is_in_place(repo, args, (&target, &place));
    let _lock = match snapshot.repo().filter(is_locked) {
        Some(repo) => repo.lock_files(FilesUse::Write, &progress)?,
        None => None,
    };
    let out = Mutex::new(cx.ui().out());
    let tells = args.dry_run;
    let on_change = |path: &Path, change: Change, loss: Loss| {
        if tells {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            // A reader that went away does not change what is restored.
            let _ = write_change(&mut out, cx, path, (change, loss));
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
    check_target(args, (&snapshot, project), &target)?;
    let protection = match args.delete {
        true => protection(&snapshot, args, (&target, &place), cx)?,
        false => None,
    };
    let confirm = |losses: &Losses| args.yes || cx.ui().asks() && ask(losses, &progress, cx);
    let so_far = Mutex::default();
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
        protection: protection.as_ref(),
        tips: tips(&snapshot)?,
        confirm: Some(&confirm),
        above: project.filter(|_| args.target.is_none()),
        so_far: Some(&so_far),
        jobs: cx.settings().config()?.jobs.unwrap_or(0),
        ..restore::Options::default()
    };
    if let (None, Some(project), false) = (&args.target, project, args.dry_run) {
        let above = match &what {
            What::Folder { .. } => place.parent().unwrap_or(Path::new("")),
            What::Entry(_) => &place,
        };
        parents::make(&snapshot, (project, above), options.ownership)?;
    }
    let restored = restore::run(snapshot.store(), &what, &target, &options, &progress);
    drop(progress);
    let mut out = out.into_inner().unwrap_or_else(PoisonError::into_inner);
    let outcome = match restored {
        Ok(outcome) => outcome,
        Err(error) => {
            let so_far = so_far.into_inner().unwrap_or_else(PoisonError::into_inner);
            report_so_far(out, &so_far, cx)?;
            return Err(error.into());
        }
    };
    if cx.ui().is_json() {
        out.json(&OutcomeJson::new(&outcome, args.dry_run, true))?;
    }
    out.finish()?;
    summarize(&outcome, args.dry_run, cx);
    let covered = covered(&snapshot, args);
    if let Some(repo) = snapshot.repo()
        && covered != Covered::Part
        && is_in_place(repo, args, (&target, &place))
        && !args.dry_run
        && outcome.not_made + outcome.not_removed == 0
        // A dump, or the files of another folder, are no state of this project.
        && tip.is_none_or(|tip| repo.shares_history(tip, snapshot.id))
        && (args.delete || !tell_leftovers(repo, tip, &snapshot, cx))
        && let Err(error) = repo
            .set_restored_base(&tip.into_iter().chain([snapshot.id]).collect::<Vec<_>>())
            .and_then(|()| match covered {
                Covered::Everything => repo.set_scope(&[]),
                _ => Ok(()),
            })
    {
        // A store that cannot be written can be restored from.
        cx.ui().warning(format_args!("the store cannot note what the files come from: {error}"));
    }
    if !args.include.is_empty() && is_empty(&outcome) {
        cx.ui().warning(format_args!("nothing in there matches --include and not --exclude"));
    }
    Ok(if outcome.is_complete() { Done::Well } else { Done::Skipped })
}

/// How much of the project's files a restore brings up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covered {
    Everything,
    /// The only path of the scope of a partial clone.
    Scope,
    Part,
}

fn covered(snapshot: &Snapshot, args: &RestoreArgs) -> Covered {
    if !args.include.is_empty() || !args.exclude.is_empty() {
        return Covered::Part;
    }
    let path = snapshot.path.as_deref().unwrap_or_default();
    let names: Vec<&[u8]> = components(path).collect();
    if names.is_empty() {
        return Covered::Everything;
    }
    let Some(repo) = snapshot.repo() else { return Covered::Part };
    let (Ok(Some(scope)), Some(project)) = (repo.scope(), repo.project()) else {
        return Covered::Part;
    };
    match &scope[..] {
        [only] if only.iter().map(EntryName::as_bytes).eq(names) && has_only(project, only) => {
            Covered::Scope
        }
        _ => Covered::Part,
    }
}

/// Returns whether a project holds nothing but its store and what is at `path`. Other
/// files may be old versions of files that the branch has.
fn has_only(project: &Path, path: &[EntryName]) -> bool {
    let mut folder = project.to_owned();
    path.iter().all(|name| {
        let has_other = fs_err::read_dir(&folder).into_iter().flatten().flatten().any(|entry| {
            let other = entry.file_name();
            other.as_bytes() != name.as_bytes() && other.as_bytes() != STORE_FOLDER.as_bytes()
        });
        folder.push(name.as_os_str());
        !has_other
    })
}

/// The commits of the store from which contents can be restored again: those
/// that its refs and `HEAD` name. What only a bundle or another place holds does
/// not count.
fn tips(snapshot: &Snapshot) -> Result<Vec<CommitId>, CliError> {
    let Some(repo) = snapshot.repo() else { return Ok(Vec::new()) };
    let refs = repo.refs();
    let mut tips: Vec<CommitId> = refs.head_commit()?.into_iter().collect();
    for kind in [RefKind::Branch, RefKind::Tag] {
        tips.extend(refs.list(kind)?.into_iter().map(|(_, id)| id));
    }
    Ok(tips)
}

/// Asks whether to remove what no commit holds.
fn ask(losses: &Losses, progress: &Progress<'_>, cx: &Context) -> bool {
    progress.clear();
    let files = size::count(losses.count, "file");
    let mut question = format!("{files} in no commit would be removed for ever:\n");
    for path in &losses.first {
        question.push_str(&format!("  {}\n", text::line(path.as_os_str().as_bytes())));
    }
    if losses.count > losses.first.len() as u64 {
        question.push_str("  …\n");
    }
    cx.ui().ask(&format!("{question}Remove them? [y/N] "), &|| cx.cancelled())
}

/// Reports what a restore that failed has removed until then.
fn report_so_far(mut out: Out, so_far: &Outcome, cx: &Context) -> Result<(), CliError> {
    let did = so_far.removed + so_far.not_removed + so_far.files_written > 0;
    if did && cx.ui().is_json() {
        out.json(&OutcomeJson::new(so_far, false, false))?;
    }
    out.finish()?;
    if so_far.removed > 0 {
        let removed = size::count(so_far.removed, "extra entry");
        cx.ui().warning(format_args!("removed {removed} before the restore ended"));
    }
    Ok(())
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

fn write_change(
    out: &mut Out,
    cx: &Context,
    path: &Path,
    (change, loss): (Change, Loss),
) -> std::io::Result<()> {
    let bytes = path.as_os_str().as_bytes();
    let verb = verb(change);
    if cx.ui().is_json() {
        let path = String::from_utf8_lossy(bytes);
        let mut record = serde_json::json!({ "version": 1, "change": verb, "path": path });
        if matches!(change, Change::Remove | Change::Replace) {
            record["recoverable"] = (loss != Loss::Unsaved).into();
        }
        return out.json(&record);
    }
    let mark = if loss == Loss::Unsaved { "  (in no commit)" } else { "" };
    writeln!(out, "{verb:<8}{}{mark}", text::line(bytes))
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
    not_removed: u64,
    kept: u64,
    excluded: u64,
    unsaved: u64,
    skipped: u64,
    complete: bool,
}

impl OutcomeJson {
    fn new(outcome: &Outcome, dry_run: bool, complete: bool) -> Self {
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
            not_removed: outcome.not_removed,
            kept: outcome.kept,
            excluded: outcome.excluded,
            unsaved: outcome.unsaved,
            skipped: outcome.skipped + outcome.not_made,
            complete,
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
    if outcome.excluded > 0 {
        let entries = size::count(outcome.excluded, "entry");
        ui.status(format_args!(
            "Kept {entries} that commits leave out; --delete-excluded removes them, too"
        ));
    }
    if outcome.unsaved > 0 {
        let files = size::count(outcome.unsaved, "file");
        let are = if outcome.unsaved == 1 { "is" } else { "are" };
        ui.warning(format_args!("{files} of these {are} in no commit and would be lost"));
    }
    if outcome.not_removed > 0 {
        let what = size::count(outcome.not_removed, "extra entry");
        ui.warning(format_args!("could not remove {what}"));
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
