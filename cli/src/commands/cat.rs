//! `snap cat`: prints the content of a file.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use snap_core::{
    base::id::ContentId,
    format::tree::{Entry, EntryKind},
    ops::cat,
    repo::{Repo, path::ResolvedPath, spec::Revisions},
    store::{FileContent, Store},
};

use crate::{
    context::Context,
    report::{CliError, CommandOutcome},
    snapshot::Snapshot,
    ui::text,
};

const EXAMPLES: &str = "\
Examples:
  snap cat latest:notes.txt              from the newest snapshot
  snap cat main~5:data.csv | head
  snap cat s3://bucket/project#main:notes.txt";

/// Print the content of a file
///
/// Every chunk is verified before it is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CatArgs {
    /// File in a snapshot, a bundle or a remote (URL#REV:PATH), or a content id (4 digits or more)
    #[arg(value_name = "REV:PATH|ID")]
    what: OsString,
}

pub(crate) fn run(args: &CatArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    if args.what.as_bytes().contains(&b':') {
        return print(&args.what, cx);
    }
    let repo = cx.open_repo()?;
    let id = content_with_id(&args.what, &repo)?;
    write(repo.store(), &id, None, cx)
}

/// Prints a file in a snapshot.
pub(super) fn print(what: &OsStr, cx: &Context) -> Result<CommandOutcome, CliError> {
    let snapshot = cx.open_snapshot(what)?;
    let file = content_of(what, &snapshot)?;
    write(snapshot.store(), &file.id, Some(file.bytes), cx)
}

fn write(
    store: &Store,
    id: &ContentId,
    stated: Option<u64>,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let mut out = cx.ui().plain_out();
    cat::run(store, id, stated, &mut out, &cx.progress())?;
    out.finish()?;
    Ok(CommandOutcome::Success)
}

fn content_of(spec: &OsStr, snapshot: &Snapshot) -> Result<FileContent, CliError> {
    let path = snapshot.path.as_deref().unwrap_or_default();
    let noun = match snapshot.find()? {
        ResolvedPath::Entry(Entry { kind: EntryKind::File { id, size }, .. }) => {
            return Ok(FileContent { id, bytes: size });
        }
        ResolvedPath::Entry(entry) => entry.kind.noun(),
        ResolvedPath::Root(_) => "folder",
    };
    let named = if path.is_empty() { spec.as_bytes() } else { path };
    Err(CliError::NotAFile { path: text::line(named), noun })
}

fn content_with_id(text: &OsStr, repo: &Repo) -> Result<ContentId, CliError> {
    let none = || CliError::NoContent { text: text::line(text.as_bytes()) };
    let digits = text.to_str().ok_or_else(none)?;
    Revisions::new(repo, &|_| None).content(digits)?.ok_or_else(none)
}
