//! What `snap commit` says when it is done.

use std::{io::Write, time::Duration};

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    format::commit::Commit,
    ops::{commit::Outcome, record::CommitRecord},
    repo::Repo,
};

use crate::{
    context::Context,
    report::CliError,
    ui::{Versioned, size, size::Size, time},
};

/// A commit with what making it took.
#[derive(Serialize)]
struct Made {
    #[serde(flatten)]
    commit: Versioned<CommitRecord>,
    created: bool,
    files_new: u64,
    files_changed: u64,
    files_unmodified: u64,
    skipped: u64,
    without_attributes: u64,
    bytes_read: u64,
    bytes_added: u64,
    bytes_stored: u64,
}

/// What a commit would come to.
#[derive(Serialize)]
struct DryJson {
    version: u32,
    dry_run: bool,
    /// The commit that is there, when nothing changed.
    id: Option<String>,
    created: bool,
    files: u64,
    folders: u64,
    others: u64,
    bytes: u64,
    files_new: u64,
    files_changed: u64,
    files_unmodified: u64,
    skipped: u64,
    without_attributes: u64,
    bytes_read: u64,
    bytes_added: u64,
}

/// Prints the id, which is what stdout is for.
pub(super) fn id(outcome: &Outcome, repo: &Repo, cx: &Context) -> Result<(), CliError> {
    let Some(id) = &outcome.id else { return Ok(()) };
    let mut out = cx.ui().plain_out();
    if cx.ui().is_json() {
        let commit = read(id, repo)?;
        out.json(&Made {
            commit: Versioned::new(CommitRecord::new(id, &commit)),
            created: outcome.created,
            files_new: outcome.files_new,
            files_changed: outcome.files_changed,
            files_unmodified: outcome.files_unmodified,
            skipped: outcome.skipped,
            without_attributes: outcome.without_attributes,
            bytes_read: outcome.bytes_read,
            bytes_added: outcome.added.raw_bytes,
            bytes_stored: outcome.added.stored_bytes,
        })?;
    } else {
        writeln!(out, "{id}")?;
    }
    Ok(out.finish()?)
}

fn read(id: &CommitId, repo: &Repo) -> Result<Commit, CliError> {
    repo.store().refresh()?;
    Ok(repo.store().commit(id)?)
}

/// Says what a commit came to.
pub(super) fn summary(
    outcome: &Outcome,
    repo: &Repo,
    took: Duration,
    cx: &Context,
) -> Result<(), CliError> {
    let ui = cx.ui();
    let took = seconds(took);
    let Outcome { id, created, added, .. } = outcome;
    if let (false, Some(id)) = (created, id) {
        let time = time::local(repo.store().commit(id)?.time);
        ui.status(format_args!("Nothing changed since {time}, checked in {took}"));
        if outcome.stored_again > 0 {
            let objects = size::count(outcome.stored_again, "object");
            ui.warning(format_args!(
                "stored {objects} again that the store had lost; `snap verify` lists what earlier \
                 snapshots have lost"
            ));
        }
    } else {
        ui.status(format_args!("Committed {}", counts(outcome)));
        ui.status(format_args!(
            "Read {}, added {}, stored {} in {took}",
            Size(outcome.bytes_read),
            Size(added.raw_bytes),
            Size(added.stored_bytes),
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

/// Says what a commit would come to.
pub(super) fn dry(
    outcome: &Outcome,
    repo: &Repo,
    took: Duration,
    cx: &Context,
) -> Result<(), CliError> {
    let ui = cx.ui();
    let took = seconds(took);
    if ui.is_json() {
        let mut out = ui.out();
        out.json(&DryJson {
            version: 1,
            dry_run: true,
            id: outcome.id.map(|id| id.to_string()),
            created: outcome.created,
            files: outcome.totals.files,
            folders: outcome.totals.folders,
            others: outcome.totals.others,
            bytes: outcome.totals.bytes,
            files_new: outcome.files_new,
            files_changed: outcome.files_changed,
            files_unmodified: outcome.files_unmodified,
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
            Size(outcome.bytes_read),
            Size(outcome.added.raw_bytes),
        ));
    }
    skipped(outcome, cx);
    Ok(())
}

fn seconds(took: Duration) -> String {
    format!("{:.2} s", took.as_secs_f64())
}

fn counts(outcome: &Outcome) -> String {
    format!(
        "{}, {}: {} new, {} changed, {} unmodified",
        size::count(outcome.totals.files, "file"),
        Size(outcome.totals.bytes),
        size::grouped(outcome.files_new),
        size::grouped(outcome.files_changed),
        size::grouped(outcome.files_unmodified),
    )
}

fn skipped(outcome: &Outcome, cx: &Context) {
    if outcome.skipped > 0 {
        let entries = size::count(outcome.skipped, "entry");
        cx.ui().warning(format_args!("left out {entries} that could not be read"));
    }
    if outcome.without_attributes > 0 {
        let entries = size::count(outcome.without_attributes, "entry");
        cx.ui().warning(format_args!("committed {entries} without extended attributes"));
    }
}
