//! `snap restore`: writes the entries of a snapshot into a folder.

mod parents;
mod protect;

use std::{
    ffi::OsString,
    io::Write,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use rustix::fs::Stat;
use serde::Serialize;
use snap_core::{
    base::{
        id::{CommitId, ContentId},
        name::EntryName,
    },
    local::{
        attributes::{FOLDER_ATTRIBUTES, MODE, MTIME},
        owners::OwnerMapping,
        scan::FileStat,
        stat_cache::StatCache,
        store_folder::STORE_FOLDER,
    },
    ops::restore::{
        self, AskedLosses, ContentLoss, Existing, Extras, Losses, Mode, Ownership, RestoreAction,
        RestoreError, RestoreOutcome, RestoreSource,
    },
    repo::{
        RefError, Repo,
        files_lock::lock_target,
        path::{ResolvedPath, components},
    },
};

use self::protect::{
    behind_branch, check_git, check_target, git_at_top, is_in_place, protection, unsaved_hint,
    warn_leftovers, warn_old_attributes,
};
pub(super) use self::protect::{include_git, protection_of};
use crate::{
    commands::{cat, log::all_starts},
    context::Context,
    report::{CliError, CommandOutcome},
    snapshot::Snapshot,
    typed_path,
    ui::{Out, Progress, size, size::ByteCount, text},
};

const EXAMPLES: &str = "\
Examples:
  snap restore latest /tmp/look            a whole snapshot, to another folder
  snap restore --overwrite latest~1:notes.txt
                                           one file, to its place in the project
  snap restore latest~1 --overwrite -- a b
                                           several files of the current folder
  snap restore v1.0:src /tmp/src           the content of a folder
  snap restore project.snap:src /tmp/src   the same, from a bundle
  snap restore origin#main:src /tmp/src    the same, from a remote
  snap restore latest --overwrite          revert changes in the whole project
  snap restore latest --overwrite --delete --dry-run
                                           what would make the project equal to it";

/// Restore files from a snapshot
///
/// Without DIR, restores files to their place in the project. Files that already equal the snapshot
/// stay, so you can run an interrupted restore again. If a file differs, writes nothing;
/// --overwrite replaces it. Without --overwrite, existing files and folders also keep their mode,
/// owner, ACL and other attributes. The output lists those that differ.
///
/// A path that cannot be written, such as one in an immutable folder, is named, and the restore
/// continues. A full, failing or read-only disk ends it.
///
/// The exit code is 3 if a path could not be restored or deleted, or has other attributes. If you
/// are not root, attributes that require root are skipped with a warning. Stores and mount points
/// stay, with a warning. The exit code is 1 if --include matches nothing.
///
/// --delete keeps excluded paths. A path is excluded if exclude rules matched it at the time of the
/// commit. So is a path that they match before or after the restore.
///
/// Asks before it deletes a file whose content is in no commit; without a terminal, --yes is needed.
/// In the project, it also asks before it overwrites such a file, unless the file itself is named.
/// --dry-run lists every path that would be deleted or replaced, and marks files that are in no
/// commit. A `.git` at the top of the project stays as it is, unless --include-git is given.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "snap restore [OPTIONS] <REV[:PATH]> [DIR]\n       \
                      snap restore [OPTIONS] <REV> -- <PATH>..."
)]
pub(crate) struct RestoreArgs {
    /// Snapshot, or a folder or file in it; also FILE.snap:PATH in a bundle, or URL#REV:PATH in a
    /// remote
    #[arg(value_name = "REV[:PATH]")]
    what: OsString,

    /// Folder to restore into, created if missing; default: the project; `-` for a file: stdout
    #[arg(value_name = "DIR")]
    target: Option<PathBuf>,

    /// Replace files that differ, and set the attributes of existing files and folders
    #[arg(long)]
    overwrite: bool,

    /// Delete paths that are not in the snapshot; stores, mounted file systems and unreadable files
    /// stay
    #[arg(long)]
    delete: bool,

    /// With --delete, also delete paths that were excluded or could not be read
    #[arg(long, requires = "delete")]
    delete_excluded: bool,

    /// Do not ask before deleting or overwriting files that are in no commit
    #[arg(short, long)]
    yes: bool,

    /// In the project, also restore and delete a `.git` at its top
    #[arg(long)]
    include_git: bool,

    /// Show what would be restored and deleted; write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Compare by content instead of by size and times
    #[arg(long)]
    checksum: bool,

    /// Pattern of paths to restore, as in .gitignore; may be repeated
    #[arg(short, long, value_name = "PATTERN")]
    include: Vec<String>,

    /// Pattern of paths to skip; may be repeated
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// Do not restore owners; files belong to the current user
    #[arg(long)]
    no_owner: bool,

    /// Restore owners by number, not by name
    #[arg(long, conflicts_with = "no_owner")]
    numeric_ids: bool,

    /// Paths to restore to their place, one after another, relative to the current folder
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &RestoreArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let mode = if args.dry_run { Mode::DryRun } else { Mode::Write };
    if args.paths.is_empty() {
        return match args.target.as_deref() {
            Some(target) if target == Path::new("-") => to_stdout(args, cx),
            _ => restore(args, mode, cx),
        };
    }
    if args.target.is_some() {
        return Err(CliError::FolderAndPaths);
    }
    if args.what.as_bytes().contains(&b':') || cx.split_remote(&args.what)?.is_some() {
        return Err(CliError::Usage("paths after `--` need a revision of this store before it"));
    }
    let repo = cx.open_repo()?;
    let of_path = |path: &OsString| {
        let path = typed_path::from_top(&repo, path)?;
        let what = OsString::from_vec([args.what.as_bytes(), b":", &path].concat());
        Ok(RestoreArgs { what, ..args.clone() })
    };
    let mut each = args.paths.iter().map(of_path).collect::<Result<Vec<_>, CliError>>()?;
    // The user decides about all paths before the first one is written.
    if mode == Mode::Write && each.len() > 1 && !args.yes {
        for one in &each {
            restore(one, Mode::Check, cx)?;
        }
        each.iter_mut().for_each(|one| one.yes = true);
    }
    let mut outcomes = Vec::new();
    for one in &each {
        outcomes.push(restore(one, mode, cx)?);
    }
    let all = |wanted| outcomes.iter().all(|outcome| *outcome == wanted);
    let same = [CommandOutcome::Success, CommandOutcome::Failed].into_iter().find(|one| all(*one));
    Ok(same.unwrap_or(CommandOutcome::Skipped))
}

/// Writes one file to stdout, as `snap cat` does.
fn to_stdout(args: &RestoreArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    // `--delete-excluded` requires `--delete`.
    let RestoreArgs { overwrite, delete, yes, include_git, dry_run, checksum, .. } = *args;
    let flags = [overwrite, delete, yes, include_git, dry_run, checksum];
    let has_flag = flags.contains(&true) || args.no_owner || args.numeric_ids;
    if has_flag || !args.include.is_empty() || !args.exclude.is_empty() {
        return Err(CliError::Usage("`-` writes one file to stdout, without further options"));
    }
    cat::print(&args.what, cx)
}

fn restore(args: &RestoreArgs, mode: Mode, cx: &Context) -> Result<CommandOutcome, CliError> {
    let snapshot = cx.open_snapshot(&args.what)?;
    // The tip is read first: a pull during the restore does not change the restored files.
    let tip = snapshot.repo().map(|repo| repo.refs().head_commit()).transpose()?.flatten();
    let (what, place) = what(&snapshot)?;
    let project = snapshot.repo().and_then(Repo::project);
    let target = match (&args.target, project) {
        (Some(target), _) => target.clone(),
        (None, Some(project)) => project.join(&place),
        (None, None) if snapshot.repo().is_some() => {
            return Err(CliError::Usage(
                "a bare store has no project folder; pass the folder to restore into",
            ));
        }
        (None, None) => {
            return Err(CliError::Usage(
                "a bundle or a remote has no project folder; pass the folder to restore into",
            ));
        }
    };
    let progress = cx.progress();
    let own = snapshot.repo().filter(|repo| is_in_place(repo, args, (&target, &place)));
    let _locks = match mode {
        Mode::Write => lock_target(&target, own, &progress)?,
        Mode::DryRun | Mode::Check => Vec::new(),
    };
    let out = Mutex::new(cx.ui().out());
    let on_change = |path: &Path, change: RestoreAction, loss: ContentLoss| {
        if mode == Mode::DryRun {
            let mut out = out.lock();
            // A closed stdout does not stop the restore.
            let _ = write_change(&mut out, cx, path, (change, loss));
        }
    };
    let cache = snapshot.repo().map(stat_cache);
    let known = |stat: &Stat| known_content(cache.as_ref()?, stat);
    // The restored file may still exist unchanged at its original place. A file system with
    // reflinks then shares its blocks.
    let original = project.map(|project| project.join(&place));
    let holder = |path: &Path, id: &ContentId| {
        let original = original.as_ref()?.join(path);
        let stat = FileStat::of_path(&original).ok()?;
        (cache.as_ref()?.file(&stat)?.id() == Some(*id)).then_some(original)
    };
    check_target(args, (&snapshot, project), &target)?;
    check_git(args, &snapshot, own)?;
    let protection = match args.delete {
        true => protection(&snapshot, args, (&target, &place), cx)?,
        false => None,
    };
    let confirm =
        |losses: &Losses| args.yes || cx.ui().is_interactive() && ask(losses, &progress, cx);
    let so_far = Mutex::default();
    let covered = covered(&snapshot, args);
    let in_place = own.filter(|_| mode == Mode::Write);
    let behind = in_place.and_then(|repo| behind_branch(repo, tip));
    let before_changes = || {
        if let Some(repo) = in_place.filter(|_| replaces_files(&snapshot, covered))
            && let Err(error) = repo.start_restored_base(snapshot.id)
        {
            warn_base(&error, cx);
        }
    };
    let options = restore::RestoreOptions {
        existing: if args.overwrite { Existing::Overwrite } else { Existing::Stop },
        extras: if args.delete { Extras::Delete } else { Extras::Keep },
        mode,
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        ids: if args.numeric_ids { OwnerMapping::Numeric } else { OwnerMapping::ByName },
        ownership: if args.no_owner { Ownership::Leave } else { Ownership::Apply },
        known: if args.checksum { None } else { Some(&known) },
        holder: if args.checksum { None } else { Some(&holder) },
        on_change: Some(&on_change),
        protection: protection.as_ref(),
        tips: tips(&snapshot, cx)?,
        confirm: Some(&confirm),
        asked: match (own, &what) {
            // A file that the user names may be overwritten.
            (Some(_), RestoreSource::Folder { .. }) if !args.yes => AskedLosses::RemovedAndReplaced,
            _ => AskedLosses::Removed,
        },
        git: git_at_top(args, &target),
        above: project.filter(|_| args.target.is_none()),
        so_far: Some(&so_far),
        before_changes: Some(&before_changes),
        jobs: cx.settings().config()?.jobs.unwrap_or(0),
        ..restore::RestoreOptions::default()
    };
    let was_there = fs_err::symlink_metadata(&target).is_ok();
    if let (None, Some(project), Mode::Write) = (&args.target, project, mode) {
        let above = match &what {
            RestoreSource::Folder { .. } => place.parent().unwrap_or(Path::new("")),
            RestoreSource::Entry(_) => &place,
        };
        parents::make(&snapshot, (project, above), options.ownership)?;
    }
    let restored = restore::run(snapshot.store(), &what, &target, &options, &progress);
    drop(progress);
    let mut out = out.into_inner();
    let outcome = match restored {
        Ok(outcome) => outcome,
        Err(error) => {
            let so_far = so_far.into_inner();
            report_so_far(out, &so_far, cx)?;
            return Err(match error {
                RestoreError::Unsaved(_) => {
                    let hint = unsaved_hint(args, (own, &place), &target, cx);
                    CliError::Unsaved { error: Box::new(error), hint }
                }
                error => error.into(),
            });
        }
    };
    if mode == Mode::Check {
        return Ok(CommandOutcome::Success);
    }
    let own_folders = outcome.folders.saturating_sub(u64::from(!was_there));
    if !args.include.is_empty() && is_empty(&outcome) && own_folders == 0 {
        if !was_there && !args.dry_run {
            // The restore has created the folder, and nothing in it. Removing it may fail.
            let _ = fs_err::remove_dir(&target);
        }
        return Err(CliError::NothingIncluded);
    }
    if cx.ui().is_json() {
        out.json(&RestoredJson::new(&outcome, args.dry_run, true))?;
    }
    out.finish()?;
    summarize(&outcome, if args.dry_run { Summary::Preview } else { Summary::Restore }, cx);
    // An older revision may lack files that the tip has and that the partial clone never fetched.
    // Their absence here does not mean that they were deleted.
    let is_all_here = tip.is_none_or(|tip| tip == snapshot.id);
    if let Some(repo) = snapshot.repo()
        && matches!(covered, Covered::Everything | Covered::Scope)
        && is_in_place(repo, args, (&target, &place))
        && !args.dry_run
        && outcome.not_made + outcome.not_removed == 0
        // A dump, or files of another folder, are not a state of this project.
        && tip.is_none_or(|tip| repo.shares_history(tip, snapshot.id))
        && (has_removed_extras(&outcome, args) || !warn_leftovers((repo, behind.as_ref()), &snapshot, args, cx)?)
        && !(has_own_attributes(&outcome) && warn_old_attributes(behind.as_ref(), cx))
        && let Err(error) = repo
            .set_restored_base(snapshot.id)
            .and_then(|()| match covered == Covered::Everything && is_all_here {
                true => repo.set_scope(&[]),
                false => Ok(()),
            })
    {
        warn_base(&error, cx);
    }
    Ok(match outcome.is_complete() {
        true => CommandOutcome::Success,
        // A skipped store is not a failure: a restore always leaves stores out.
        false if has_done_nothing(&outcome) && own_folders + outcome.skipped == 0 => {
            CommandOutcome::Failed
        }
        false => CommandOutcome::Skipped,
    })
}

/// Opens the stat cache of a store.
pub(super) fn stat_cache(repo: &Repo) -> StatCache {
    StatCache::open(&repo.dir().join("cache"), repo.disk().clone())
}

/// Returns the content of a file that the stat cache proves unchanged.
pub(super) fn known_content(cache: &StatCache, stat: &Stat) -> Option<ContentId> {
    cache.file(&FileStat::from_raw(stat)?)?.id()
}

/// Warns that the base of the files was not recorded. A restore from a read-only store must still
/// succeed.
pub(super) fn warn_base(error: &RefError, cx: &Context) {
    cx.ui()
        .warning(format_args!("the store cannot record which commit the files come from: {error}"));
}

/// Returns true if a restore in place replaces the project's files by those of another revision. A
/// restore of one path counts as an edit, and so does a restore of a dump, which lies beside the
/// files.
fn replaces_files(snapshot: &Snapshot, covered: Covered) -> bool {
    covered != Covered::Part && snapshot.commit.root.is_some()
}

/// Returns true if no path stays that the snapshot lacks.
fn has_removed_extras(outcome: &RestoreOutcome, args: &RestoreArgs) -> bool {
    args.delete && outcome.excluded + outcome.kept == 0
}

/// Returns true if entries keep attributes that differ from those of the snapshot. Owners, and
/// extended attributes that only root may set, do not count: every restore of another user lacks
/// them.
pub(super) fn has_own_attributes(outcome: &RestoreOutcome) -> bool {
    let is_kept = |what: &str| matches!(what, MODE | MTIME | FOLDER_ATTRIBUTES);
    outcome.files_own_attributes + outcome.folders_own_attributes + outcome.failed_attributes > 0
        || outcome.not_applied.iter().any(|(what, _)| is_kept(what))
}

/// How much of the project's files a restore updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covered {
    Everything,
    /// The only path in the scope of a partial clone.
    Scope,
    /// The paths in the whole project that match patterns.
    Matching,
    /// One path.
    Part,
}

fn covered(snapshot: &Snapshot, args: &RestoreArgs) -> Covered {
    let has_patterns = !args.include.is_empty() || !args.exclude.is_empty();
    let path = snapshot.path.as_deref().unwrap_or_default();
    let names: Vec<&[u8]> = components(path).collect();
    match (names.is_empty(), has_patterns) {
        (true, false) => return Covered::Everything,
        (true, true) => return Covered::Matching,
        (false, true) => return Covered::Part,
        (false, false) => {}
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

/// Returns true if a project contains only its store and the files at `path`. Other files could be
/// old versions of files of the branch.
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

/// Returns the commits of `HEAD` and all refs of the store. Contents in their histories can be
/// restored again; contents that only a bundle or a remote has do not count.
fn tips(snapshot: &Snapshot, cx: &Context) -> Result<Vec<CommitId>, CliError> {
    snapshot.repo().map_or(Ok(Vec::new()), |repo| all_starts(repo, cx))
}

/// Asks whether to continue although files that no commit contains would be lost.
fn ask(losses: &Losses, progress: &Progress<'_>, cx: &Context) -> bool {
    progress.clear();
    let files = size::count(losses.count, "file");
    let mut question = format!("{files} that no commit contains would be lost:\n");
    for path in &losses.first {
        question.push_str(&format!("  {}\n", text::line(path.as_os_str().as_bytes())));
    }
    if losses.count > losses.first.len() as u64 {
        question.push_str("  …\n");
    }
    cx.ui().ask(&format!("{question}Delete or overwrite them? [y/N] "), &|| cx.cancelled())
}

/// Reports what a failed restore has removed so far.
fn report_so_far(mut out: Out, so_far: &RestoreOutcome, cx: &Context) -> Result<(), CliError> {
    let did = so_far.removed + so_far.not_removed + so_far.files_written > 0;
    if did && cx.ui().is_json() {
        out.json(&RestoredJson::new(so_far, false, false))?;
    }
    out.finish()?;
    if so_far.removed > 0 {
        let removed = size::count(so_far.removed, "path");
        cx.ui().warning(format_args!("the restore ended early; removed {removed}"));
    }
    Ok(())
}

/// Returns what is restored, and its place below the project folder.
pub(crate) fn what(snapshot: &Snapshot) -> Result<(RestoreSource, PathBuf), CliError> {
    let path = snapshot.path.as_deref().unwrap_or_default();
    let mut place: PathBuf = components(path).map(std::ffi::OsStr::from_bytes).collect();
    let what = match snapshot.find()? {
        ResolvedPath::Root(tree) => {
            RestoreSource::Folder { tree, root: snapshot.commit.root.clone() }
        }
        ResolvedPath::Entry(entry) => match ResolvedPath::Entry(entry.clone()).tree() {
            Some(tree) => RestoreSource::Folder { tree, root: Some(entry.metadata) },
            None => {
                place.pop();
                RestoreSource::Entry(Box::new(entry))
            }
        },
    };
    Ok((what, place))
}

fn verb(change: RestoreAction) -> &'static str {
    match change {
        RestoreAction::Create => "create",
        RestoreAction::Replace => "replace",
        RestoreAction::Repair => "repair",
        RestoreAction::Keep => "keep",
        RestoreAction::Remove => "remove",
        _ => "change",
    }
}

fn write_change(
    out: &mut Out,
    cx: &Context,
    path: &Path,
    (change, loss): (RestoreAction, ContentLoss),
) -> std::io::Result<()> {
    let bytes = path.as_os_str().as_bytes();
    let verb = verb(change);
    if cx.ui().is_json() {
        let path = String::from_utf8_lossy(bytes);
        let mut record = serde_json::json!({ "version": 1, "type": "restore-change", "change": verb, "path": path });
        if matches!(change, RestoreAction::Remove | RestoreAction::Replace) {
            record["recoverable"] = (loss != ContentLoss::Unsaved).into();
        }
        return out.json(&record);
    }
    let mark = match (change, loss) {
        (_, ContentLoss::Unsaved) => "  (in no commit)",
        (RestoreAction::Keep, _) => "  (own attributes)",
        _ => "",
    };
    writeln!(out, "{verb:<8}{}{mark}", text::line(bytes))
}

#[derive(Serialize)]
pub(super) struct RestoredJson {
    version: u32,
    r#type: &'static str,
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
    files_own_attributes: u64,
    folders_own_attributes: u64,
    removed: u64,
    not_removed: u64,
    kept: u64,
    excluded: u64,
    unsaved: u64,
    skipped: u64,
    complete: bool,
}

impl RestoredJson {
    pub(super) fn new(outcome: &RestoreOutcome, dry_run: bool, complete: bool) -> Self {
        Self {
            version: 1,
            r#type: "restored",
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
            files_own_attributes: outcome.files_own_attributes,
            folders_own_attributes: outcome.folders_own_attributes,
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

/// Returns true if the snapshot had nothing to restore except folders.
fn is_empty(outcome: &RestoreOutcome) -> bool {
    let refused = outcome.not_made + outcome.not_removed + outcome.skipped;
    refused == 0 && has_done_nothing(outcome)
}

/// Returns true if no entry but folders was made, repaired or removed, or was there already.
fn has_done_nothing(outcome: &RestoreOutcome) -> bool {
    let files = outcome.files_written + outcome.files_kept;
    let made = outcome.symlinks + outcome.links + outcome.others;
    files + made + outcome.others_kept + outcome.removed + outcome.repaired == 0
}

/// Reports how many entries keep attributes that differ from the snapshot.
fn report_own_attributes(outcome: &RestoreOutcome, cx: &Context) {
    let (files, folders) = (outcome.files_own_attributes, outcome.folders_own_attributes);
    let counts = [(files, "file"), (folders, "folder")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, noun)| size::count(*count, noun)).collect();
    if !counts.is_empty() {
        let verb = if files + folders == 1 { "keeps its" } else { "keep their" };
        let what = counts.join(" and ");
        cx.ui().warning(format_args!(
            "{what} {verb} current attributes; --overwrite sets those of the snapshot"
        ));
    }
}

/// What [`summarize`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Summary {
    Restore,
    /// A restore with --dry-run.
    Preview,
    /// The restore of a `pull --update`.
    Update,
}

pub(super) fn summarize(outcome: &RestoreOutcome, summary: Summary, cx: &Context) {
    let ui = cx.ui();
    let (written, bytes) =
        (size::count(outcome.files_written, "file"), ByteCount(outcome.bytes_written));
    let kept = size::grouped(outcome.files_kept);
    let others = match outcome.symlinks + outcome.links + outcome.others {
        0 => String::new(),
        others => format!(" and {}", size::count(others, "other entry")),
    };
    let files = format!("{written}{others}, {bytes}");
    match summary {
        Summary::Restore => ui.status(format_args!("Restored {files}; {kept} already there")),
        Summary::Preview => ui.status(format_args!("Would restore {files}; {kept} already there")),
        Summary::Update => ui.status(format_args!("Updated {files}")),
    }
    report_own_attributes(outcome, cx);
    if outcome.removed > 0 {
        let verb = if summary == Summary::Preview { "Would delete" } else { "Deleted" };
        ui.status(format_args!("{verb} {}", size::count(outcome.removed, "path")));
    }
    if outcome.excluded > 0 {
        let entries = size::count(outcome.excluded, "entry");
        ui.status(format_args!("Kept {entries} that commits exclude"));
        if summary != Summary::Update {
            ui.hint("--delete-excluded also deletes them");
        }
    }
    if outcome.unsaved > 0 {
        let files = size::count(outcome.unsaved, "file");
        let are = if outcome.unsaved == 1 { "is" } else { "are" };
        ui.warning(format_args!("{files} of these {are} in no commit and would be lost"));
    }
    if outcome.not_removed > 0 {
        let what = size::count(outcome.not_removed, "path");
        ui.warning(format_args!("{what} could not be deleted"));
    }
    ui.detail(format_args!(
        "Created {}; cloned the blocks of {}; restored the attributes of {}",
        size::count(outcome.folders, "folder"),
        size::count(outcome.files_cloned, "file"),
        size::count(outcome.repaired, "entry"),
    ));
    if outcome.skipped > 0 {
        ui.warning(format_args!("the store in the target was not changed"));
    }
    if outcome.not_made > 0 {
        let what = size::count(outcome.not_made, "entry");
        ui.warning(format_args!("{what} could not be restored"));
    }
    for (what, count) in &outcome.not_applied {
        ui.warning(format_args!("{what} of {} could not be set", size::count(*count, "entry")));
    }
}
