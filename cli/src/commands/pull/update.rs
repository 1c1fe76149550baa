//! `snap pull --update`: brings the files of the project to the commit of the pulled branch.

use std::{
    collections::BTreeSet,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::Stat;
use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    format::commit::Commit,
    ops::{
        diff::{ComparedFiles, ComparedFolder},
        record,
        restore::{self, Existing, Extras, GitAtTop, RestoreOptions, RestoreOutcome},
        update::{self, Update},
    },
    repo::{Repo, files_lock::lock_target},
};

use crate::{
    commands::{
        commit::{LeaveOut, git},
        log::all_starts,
        restore::{
            RestoredJson, Summary, has_own_attributes, include_git, known_content, protection_of,
            stat_cache, summarize, warn_base,
        },
    },
    config::Profile,
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{VERSION, text},
};

/// The commits of an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    /// The branch, for messages.
    pub(super) branch: &'a str,
    /// Its commit before the pull.
    pub(super) old: Option<CommitId>,
    /// Its commit after the pull, to which the files are brought.
    pub(super) new: CommitId,
    /// True to update a `.git` at the top of the project, too.
    pub(super) include_git: bool,
}

/// Moves the branch with `advance`, and then updates the files of the project. If local changes
/// would be lost, lists their paths and does neither.
///
/// The files are locked from the comparison to the end. A killed update leaves the base of the files
/// at the commits that they came from, so another update completes it.
pub(super) fn run(
    (repo, project): (&Repo, &Path),
    target: Target<'_>,
    advance: impl FnOnce() -> Result<(), CliError>,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let progress = cx.progress();
    let _locks = lock_target(project, Some(repo), &progress)?;
    let bases = match repo.base()? {
        Some(base) => base.commits,
        // The file with the base is lost.
        None => target.old.into_iter().collect(),
    };
    if bases == [target.new] {
        drop(progress);
        advance()?;
        return Ok(CommandOutcome::Success);
    }
    // The changes of an undone commit are local changes again.
    let bases = repo.starts(&bases)?;
    let read = |id: &CommitId| repo.store().commit(id);
    let new = read(&target.new)?;
    let base_commits: Vec<Commit> = bases.iter().map(read).collect::<Result<_, _>>()?;
    let tip = target.old.as_ref().map(read).transpose()?;
    let mut ignore = LeaveOut::default().join(&Profile::default(), repo.config(), cx)?;
    git::leave_out(&mut ignore, repo, (project, target.include_git))?;
    let files = ComparedFolder {
        files: ComparedFiles::Folder(project.to_owned()),
        ignore,
        scope: repo.scope()?.unwrap_or_default(),
        reproducible: new.root.as_ref().is_some_and(|root| root.owner.is_none()),
    };
    let update =
        Update { bases: &base_commits, tip: tip.as_ref(), new: &new, project, files: &files };
    let cache = stat_cache(repo);
    let known = |stat: &Stat| known_content(&cache, stat);
    let mut protection =
        protection_of((repo.store(), &new), (Some(repo), Some(repo)), Path::new(""), cx)?;
    if target.include_git {
        include_git(&mut protection);
    }
    let before_changes = || {
        if let Err(error) = repo.start_restored_base(target.new) {
            warn_base(&error, cx);
        }
    };
    let mut tips = all_starts(repo, cx)?;
    tips.extend(&bases);
    let options = RestoreOptions {
        existing: Existing::Overwrite,
        extras: Extras::Delete,
        known: Some(&known),
        protection: Some(&protection),
        tips,
        above: Some(project),
        git: if target.include_git { GitAtTop::Restore } else { GitAtTop::Keep },
        before_changes: Some(&before_changes),
        jobs: cx.settings().config()?.jobs.unwrap_or(0),
        ..RestoreOptions::default()
    };
    let plan = update::plan(repo.store(), &update, &options, &progress)?;
    progress.clear();
    if let Some(first) = plan.conflicts.first() {
        list_conflicts(&plan.conflicts, cx)?;
        let (paths, first) = (plan.conflicts.len() as u64, first.clone());
        let branch = target.branch.to_string();
        return Err(CliError::UpdateConflict { paths, first, new: target.new, branch });
    }
    advance()?;
    let options = RestoreOptions { only: Some(&plan.paths), ..options };
    let outcome = match plan.paths.is_empty() {
        true => RestoreOutcome::default(),
        false => restore::run(repo.store(), &update.source(), project, &options, &progress)?,
    };
    let left = match outcome.excluded + outcome.kept {
        0 => Vec::new(),
        _ => update::leftovers(repo.store(), &update, &plan.deleted, &progress)?,
    };
    drop(progress);
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&RestoredJson::new(&outcome, false, true))?;
        out.finish()?;
    }
    summarize(&outcome, Summary::Update, cx);
    let is_whole = outcome.not_made + outcome.not_removed == 0
        && left.is_empty()
        && !has_own_attributes(&outcome);
    if is_whole {
        if let Err(error) = repo.set_restored_base(target.new) {
            warn_base(&error, cx);
        }
    } else {
        cx.ui().warning(format_args!("the files are not all those of {:.12}", target.new));
        cx.ui().hint("`snap pull --update` updates the rest; until then, `snap commit` is refused");
    }
    Ok(match is_whole && outcome.is_complete() {
        true => CommandOutcome::Success,
        false => CommandOutcome::Skipped,
    })
}

/// A path whose local change an update would lose.
#[derive(Serialize)]
struct UpdateConflictJson {
    version: u32,
    r#type: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

/// Lists the conflicts.
fn list_conflicts(conflicts: &BTreeSet<PathBuf>, cx: &Context) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    for path in conflicts {
        let bytes = path.as_os_str().as_bytes();
        match cx.ui().is_json() {
            true => out.json(&UpdateConflictJson {
                version: VERSION,
                r#type: "update-conflict",
                path: record::text(bytes),
                path_hex: record::exact(bytes),
            })?,
            false => writeln!(out, "conflict: {}", text::line(bytes))?,
        }
    }
    Ok(out.finish()?)
}
