//! `snap ls`: lists the entries of a snapshot.

use std::{ffi::OsString, io, io::Write};

use snap_core::{
    format::tree::{Entry, EntryKind, Metadata},
    ops::{
        list::{self, ListDepth},
        record::EntryRecord,
    },
    repo::path::{ResolvedPath, components},
};

use crate::{
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{Out, Ui, Versioned, size::ByteCount, text, time},
};

const EXAMPLES: &str = "\
Examples:
  snap ls latest             the top folder of the newest snapshot
  snap ls -l latest:src      a folder in it, with mode, owner, size and time
  snap ls -R v1.0 | grep pdf all paths, recursively
  snap ls project.snap:src   a folder in a bundle, without unpacking it
  snap ls s3://bucket/project#main:src
                             a folder in a remote, without a clone
  snap ls origin#v1.0        the same for a named remote";

/// List the files in a snapshot
///
/// Paths are relative to the listed folder, and folders end in a slash. With --json each path
/// starts at the top of the snapshot.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LsArgs {
    /// Snapshot, or a folder or file in it; also FILE.snap:PATH in a bundle, or URL#REV:PATH in a
    /// remote
    #[arg(value_name = "REV[:PATH]", default_value = "HEAD")]
    what: OsString,

    /// Also show mode, owner, size and time
    #[arg(short, long)]
    long: bool,

    /// List folders recursively
    #[arg(short = 'R', long)]
    recursive: bool,
}

pub(crate) fn run(args: &LsArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let snapshot = cx.open_snapshot(&args.what)?;
    let path = snapshot.path.as_deref().unwrap_or_default();
    let folder = components(path).collect::<Vec<_>>().join(&b'/');
    let found = snapshot.find()?;
    let mut out = cx.ui().out();
    match (found.tree(), &found) {
        (Some(tree), _) => {
            let skip = if folder.is_empty() { 0 } else { folder.len() + 1 };
            let depth = if args.recursive { ListDepth::All } else { ListDepth::Folder };
            let mut each = |path: &[u8], entry: &Entry| {
                write_one(&mut out, cx.ui(), args, (path, skip), entry)
            };
            list::run(snapshot.store(), tree, &folder, depth, &cx.progress(), &mut each)?;
        }
        (None, ResolvedPath::Entry(entry)) => {
            let skip = folder.len() - entry.name.as_bytes().len();
            write_one(&mut out, cx.ui(), args, (&folder, skip), entry)?;
        }
        (None, ResolvedPath::Root(_)) => {}
    }
    out.finish()?;
    Ok(CommandOutcome::Success)
}

/// Writes one entry; text output leaves out the first `skip` bytes of its path.
fn write_one(
    out: &mut Out,
    ui: &Ui,
    args: &LsArgs,
    (path, skip): (&[u8], usize),
    entry: &Entry,
) -> io::Result<()> {
    if ui.is_json() {
        return out.json(&Versioned::of_type("entry", EntryRecord::new(path, entry)));
    }
    if args.long {
        write!(out, "{} ", columns(entry))?;
    }
    let name = path.get(skip..).unwrap_or(path);
    if ui.is_terminal() {
        let name = text::line(name);
        let painted = match &entry.kind {
            EntryKind::Folder { .. } => ui.paint().folder(&format!("{name}/")),
            EntryKind::Symlink { .. } => ui.paint().link(&name),
            _ => name,
        };
        out.write_all(painted.as_bytes())?;
    } else {
        // A pipe gets the bytes unchanged.
        out.write_all(name)?;
        out.write_all(if matches!(entry.kind, EntryKind::Folder { .. }) { b"/" } else { b"" })?;
    }
    if let (true, EntryKind::Symlink { target }) = (args.long, &entry.kind) {
        out.write_all(b" -> ")?;
        match ui.is_terminal() {
            true => out.write_all(text::line(target).as_bytes())?,
            false => out.write_all(target)?,
        }
    }
    out.write_all(b"\n")
}

/// Formats mode, owner, size and time in columns of the usual width.
fn columns(entry: &Entry) -> String {
    let Metadata { owner, mtime, .. } = &entry.metadata;
    let named = |name: &[u8], number: u32| match name.is_empty() {
        true => number.to_string(),
        false => text::line(name),
    };
    let (user, group) = match owner.as_deref() {
        Some(owner) => (named(&owner.user, owner.uid), named(&owner.group, owner.gid)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let size = match &entry.kind {
        EntryKind::File { size, .. } => ByteCount(*size).to_string(),
        _ => "-".to_owned(),
    };
    let mtime = mtime.map_or_else(|| "-".to_owned(), time::local);
    format!("{} {user:<8} {group:<8} {size:>10} {mtime:<26}", entry.mode_shown())
}
