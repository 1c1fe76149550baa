//! `snap verify --against-files`: reads the files of the project and compares them with the last
//! commit.
//!
//! Commits and comparisons trust the stat cache. This command finds changes that the stat cache
//! cannot detect: the content of a file changed but its times did not. Causes are a damaged disk, a
//! program that wrote through a memory map, or an attacker who set the times.

use std::{io, io::Write};

use serde_json::json;
use snap_core::{
    local::read::ReadMode,
    ops::diff::{self, Change, DiffOptions, New, Status},
    repo::Repo,
};

use crate::{
    commands::{
        commit::LeaveOut,
        diff::{
            collect, done,
            record::{DiffChangeJson, SummaryJson},
            sides::{self, SideArguments},
            word,
        },
    },
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{Out, VERSION, size, text},
};

/// Compares the folder that `snap commit` saves with the last commit. Leaves out what `profile`
/// excludes.
pub(crate) fn run(
    repo: &Repo,
    profile: Option<&str>,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let Some(id) = repo.refs().head_commit()? else {
        return Err(CliError::Usage("the branch has no commit to compare the files with"));
    };
    let commit = repo.store().commit(&id)?;
    let leave_out = LeaveOut::default();
    let wanted = SideArguments {
        args: &[],
        paths: &[],
        folder: None,
        leave_out: &leave_out,
        include_git: false,
        profile,
    };
    let (new, limit) = sides::since(repo, &wanted, Some(&commit), cx)?;
    let options = DiffOptions { limit, reading: ReadMode::All, ..DiffOptions::default() };
    let progress = cx.progress();
    let mut out = cx.ui().out();
    let mut unseen = 0_u64;
    let mut each = |change: Change| {
        let is_unseen = changed_unseen(&change);
        unseen += u64::from(is_unseen);
        Ok(write(&mut out, cx, &change, is_unseen)?)
    };
    let outcome = collect(&mut each, |each| {
        let new = New::Folder(new);
        diff::run(repo.store(), Some(commit.tree), &new, &options, &progress, each)
    })?;
    drop(progress);
    if cx.ui().is_json() {
        out.json(&SummaryJson::new(&outcome, None))?;
    }
    out.finish()?;
    cx.ui().status(format_args!(
        "Read {}, {}, and compared them with commit {}",
        size::count(outcome.files_read, "file"),
        size::ByteCount(outcome.bytes_read),
        cx.ui().id(&id),
    ));
    let ended = done(&outcome, outcome.skipped, None, cx);
    if unseen == 0 {
        return Ok(ended);
    }
    let files = size::count(unseen, "file");
    cx.ui().warning(format_args!("{files} changed without a new modification time"));
    cx.ui().hint(
        "`snap restore HEAD --overwrite --checksum --yes` restores the content of the commit\n\
         `snap commit --checksum` commits the current content",
    );
    Ok(CommandOutcome::Damaged)
}

/// Returns true if a file has a different content but the same modification time.
fn changed_unseen(change: &Change) -> bool {
    let mtime =
        |item: &Option<diff::ChangeSide>| item.as_ref().and_then(|item| item.metadata.mtime);
    change.status() == Status::Modified
        && change.old.is_some()
        && mtime(&change.old).is_some()
        && mtime(&change.old) == mtime(&change.new)
}

fn write(out: &mut Out, cx: &Context, change: &Change, is_unseen: bool) -> io::Result<()> {
    let path = text::line(&change.path);
    if !cx.ui().is_json() {
        let word = if is_unseen { "damaged" } else { word(change.status()) };
        return writeln!(out, "{word}: {path}");
    }
    if is_unseen {
        let message = format!("{path} changed without a new modification time");
        let path = String::from_utf8_lossy(&change.path);
        let problem =
            json!({ "version": VERSION, "type": "problem", "message": message, "path": path });
        out.json(&problem)?;
    }
    out.json(&DiffChangeJson::new(change, change.differences().usual(), None))
}
