//! The output of `snap commit`.

use std::{io::Write, time::Duration};

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    format::commit::Commit,
    ops::{
        commit::{CommitOutcome, FileChanges},
        record::CommitRecord,
    },
    repo::Repo,
};

use crate::{
    context::Context,
    report::CliError,
    ui::{Versioned, size, size::ByteCount, time},
};

/// A commit with statistics of making it.
#[derive(Serialize)]
struct MadeCommitJson {
    #[serde(flatten)]
    commit: Versioned<CommitRecord>,
    created: bool,
    files_added: u64,
    files_modified: u64,
    files_deleted: u64,
    files_ignored: u64,
    files_unmodified: u64,
    skipped: u64,
    without_attributes: u64,
    bytes_read: u64,
    bytes_added: u64,
    bytes_stored: u64,
}

/// The result of a dry run.
#[derive(Serialize)]
struct WouldCommitJson {
    version: u32,
    r#type: &'static str,
    dry_run: bool,
    /// The existing commit, if nothing changed.
    id: Option<String>,
    created: bool,
    files: u64,
    folders: u64,
    others: u64,
    bytes: u64,
    files_added: u64,
    files_modified: u64,
    files_deleted: u64,
    files_ignored: u64,
    files_unmodified: u64,
    skipped: u64,
    without_attributes: u64,
    bytes_read: u64,
    bytes_added: u64,
}

/// Prints the id on stdout, unless quiet.
pub(super) fn id(outcome: &CommitOutcome, repo: &Repo, cx: &Context) -> Result<(), CliError> {
    let Some(id) = &outcome.id else { return Ok(()) };
    let mut out = cx.ui().plain_out();
    if cx.ui().is_json() {
        let commit = read(id, repo)?;
        out.json(&MadeCommitJson {
            commit: Versioned::of_type("made-commit", CommitRecord::new(id, &commit)),
            created: outcome.created,
            files_added: outcome.files.added,
            files_modified: outcome.files.modified,
            files_deleted: outcome.files.deleted,
            files_ignored: outcome.files.ignored,
            files_unmodified: outcome.files.unmodified,
            skipped: outcome.skipped,
            without_attributes: outcome.without_attributes,
            bytes_read: outcome.bytes_read,
            bytes_added: outcome.added.raw_bytes,
            bytes_stored: outcome.added.stored_bytes,
        })?;
    } else if !cx.ui().is_quiet() {
        writeln!(out, "{id}")?;
    }
    Ok(out.finish()?)
}

fn read(id: &CommitId, repo: &Repo) -> Result<Commit, CliError> {
    repo.store().refresh()?;
    Ok(repo.store().commit(id)?)
}

/// Prints a summary of a commit.
pub(super) fn summary(
    outcome: &CommitOutcome,
    repo: &Repo,
    took: Duration,
    cx: &Context,
) -> Result<(), CliError> {
    let ui = cx.ui();
    let took = seconds(took);
    let CommitOutcome { id, created, added, .. } = outcome;
    if let (false, Some(id)) = (created, id) {
        let time = time::local(repo.store().commit(id)?.time);
        ui.status(format_args!("Nothing changed since {time}, checked in {took}"));
        if outcome.stored_again > 0 {
            let objects = size::count(outcome.stored_again, "object");
            ui.warning(format_args!(
                "the store had lost {objects} and stored them again; `snap verify` lists what \
                 earlier snapshots lack"
            ));
        }
    } else {
        ui.status(format_args!("Committed {}", counts(outcome)));
        ui.status(format_args!(
            "Read {}, added {}, stored {} in {took}",
            ByteCount(outcome.bytes_read),
            ByteCount(added.raw_bytes),
            ByteCount(added.stored_bytes),
        ));
        ui.detail(format_args!(
            "Added {} in {}",
            size::count(added.objects, "object"),
            size::count(added.packs, "pack")
        ));
    }
    skipped(outcome, cx);
    Ok(())
}

/// Prints a summary of a dry run.
pub(super) fn dry(
    outcome: &CommitOutcome,
    repo: &Repo,
    took: Duration,
    cx: &Context,
) -> Result<(), CliError> {
    let ui = cx.ui();
    let took = seconds(took);
    if ui.is_json() {
        let mut out = ui.out();
        out.json(&WouldCommitJson {
            version: 1,
            r#type: "would-commit",
            dry_run: true,
            id: outcome.id.map(|id| id.to_string()),
            created: outcome.created,
            files: outcome.totals.files,
            folders: outcome.totals.folders,
            others: outcome.totals.others,
            bytes: outcome.totals.bytes,
            files_added: outcome.files.added,
            files_modified: outcome.files.modified,
            files_deleted: outcome.files.deleted,
            files_ignored: outcome.files.ignored,
            files_unmodified: outcome.files.unmodified,
            skipped: outcome.skipped,
            without_attributes: outcome.without_attributes,
            bytes_read: outcome.bytes_read,
            bytes_added: outcome.added.raw_bytes,
        })?;
        out.finish()?;
    }
    if let (false, Some(id)) = (outcome.created, &outcome.id) {
        let time = time::local(repo.store().commit(id)?.time);
        ui.status(format_args!("Nothing changed since {time}, checked in {took}"));
    } else {
        ui.status(format_args!("Would commit {}", counts(outcome)));
        ui.status(format_args!(
            "Read {}, would add {} before compression, checked in {took}",
            ByteCount(outcome.bytes_read),
            ByteCount(outcome.added.raw_bytes),
        ));
    }
    skipped(outcome, cx);
    Ok(())
}

/// Says that the first commit beside a `.git` also contains the files that git ignores.
pub(super) fn gitignore_unused(cx: &Context) {
    let ui = cx.ui();
    ui.status(format_args!(".gitignore is not used: the snapshot also contains what git ignores"));
    ui.hint(
        "`snap commit --gitignore` uses it once\n\
         `snap config set commit.gitignore true` uses it always",
    );
}

fn seconds(took: Duration) -> String {
    format!("{:.2} s", took.as_secs_f64())
}

fn counts(outcome: &CommitOutcome) -> String {
    let FileChanges { added, modified, deleted, ignored, unmodified } = outcome.files;
    let counts = [
        Some((added, "added")),
        Some((modified, "modified")),
        (deleted > 0).then_some((deleted, "deleted")),
        (ignored > 0).then_some((ignored, "now ignored")),
        Some((unmodified, "unmodified")),
    ];
    let counts = counts.into_iter().flatten();
    let counts = counts.map(|(count, word)| format!("{} {word}", size::grouped(count)));
    format!(
        "{}, {}: {}",
        size::count(outcome.totals.files, "file"),
        ByteCount(outcome.totals.bytes),
        counts.collect::<Vec<_>>().join(", "),
    )
}

fn skipped(outcome: &CommitOutcome, cx: &Context) {
    if outcome.skipped > 0 {
        let entries = size::count(outcome.skipped, "entry");
        cx.ui().warning(format_args!("skipped {entries} that could not be read"));
    }
    if outcome.without_attributes > 0 {
        let entries = size::count(outcome.without_attributes, "entry");
        cx.ui().warning(format_args!("committed {entries} without extended attributes"));
    }
}
