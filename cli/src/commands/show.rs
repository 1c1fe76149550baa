//! `snap show`: prints all fields of a commit or an entry.

use std::{ffi::OsString, io, io::Write};

use snap_core::{
    format::{
        selection::Selection,
        tree::{Entry, EntryKind},
    },
    ops::{
        diff::DiffOutcome,
        record::{CommitRecord, EntryRecord},
    },
    repo::path::{ResolvedPath, components},
};

use crate::{
    commands::{diff, log},
    context::Context,
    report::{CliError, CommandOutcome},
    snapshot::Snapshot,
    ui::{Out, Versioned, size, size::ByteCount, text, time},
};

const EXAMPLES: &str = "\
Examples:
  snap show                       the newest commit
  snap show latest~3              three commits earlier
  snap show -p latest             also the changes that it made
  snap show v1.0:src/main.rs      one file: mode, owner, times, content id
  snap show --id                  the id of the newest commit, for scripts
  snap show --id v1.0:src         the id of a folder's tree";

/// Show a commit, or the metadata of one of its files
///
/// For a file, shows mode, owner, times, extended attributes and content id. `snap cat` prints its
/// content. `snap ls` lists a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Commit, or a file in it; also FILE.snap:PATH in a bundle, or URL#REV:PATH in a remote
    #[arg(value_name = "REV[:PATH]", default_value = "HEAD")]
    what: OsString,

    /// Also print the changes that the commit made, compared with its first parent
    #[arg(short, long)]
    patch: bool,
    /// Print only the full id of the commit or, with :PATH, of the content or folder
    #[arg(long, conflicts_with_all = ["json", "patch"])]
    id: bool,
}

pub(crate) fn run(args: &ShowArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let found = cx.open_snapshot(&args.what)?;
    let path = found.path.as_deref().unwrap_or_default();
    if args.id {
        return write_id(&found, cx);
    }
    let mut out = cx.ui().out();
    let progress = cx.progress();
    let found_path = found.find()?;
    let is_commit = matches!(found_path, ResolvedPath::Root(_));
    if args.patch && !is_commit {
        return Err(CliError::Usage("--patch needs a commit, not a path in it"));
    }
    match found_path {
        ResolvedPath::Root(_) if cx.ui().is_json() => {
            out.json(&Versioned::of_type("commit", CommitRecord::new(&found.id, &found.commit)))?;
        }
        ResolvedPath::Root(tree) => {
            let commit = (&found.id, &found.commit);
            let names =
                found.repo().map(|repo| log::names(repo, cx)).transpose()?.unwrap_or_default();
            log::write_commit(&mut out, cx.ui(), commit, &names)?;
            let totals = &found.commit.totals;
            writeln!(out)?;
            writeln!(out, "Tree:    {}", cx.ui().id(&tree))?;
            for parent in &found.commit.parents {
                writeln!(out, "Parent:  {}", cx.ui().id(parent))?;
            }
            writeln!(out, "Folders: {}", size::grouped(totals.folders))?;
            writeln!(out, "Others:  {}", size::grouped(totals.others))?;
            write_selection(&mut out, &found.commit.selection)?;
        }
        ResolvedPath::Entry(entry) => {
            let path = components(path).collect::<Vec<_>>().join(&b'/');
            match cx.ui().is_json() {
                true => out.json(&Versioned::of_type("entry", EntryRecord::new(&path, &entry)))?,
                false => write_entry(&mut out, cx, &path, &entry)?,
            }
        }
    }
    let mut skipped = 0;
    if args.patch {
        if !cx.ui().is_json() {
            out.write_all(b"\n")?;
        }
        let commit = (found.store(), &found.commit);
        skipped = diff::write_made_changes(&mut out, commit, Vec::new(), (cx, &progress))?;
    }
    out.finish()?;
    drop(progress);
    Ok(diff::done(&DiffOutcome::default(), skipped, None, cx))
}

/// Prints the id of the named object and nothing else.
fn write_id(found: &Snapshot, cx: &Context) -> Result<CommandOutcome, CliError> {
    let id = match (found.find()?, &found.path) {
        (ResolvedPath::Root(_), None) => found.id.to_string(),
        (ResolvedPath::Root(tree), Some(_)) => tree.to_string(),
        (ResolvedPath::Entry(entry), path) => match &entry.kind {
            EntryKind::File { id, .. } => id.to_string(),
            EntryKind::Folder { id } => id.to_string(),
            kind => {
                let path = text::line(path.as_deref().unwrap_or_default());
                return Err(CliError::NoId { path, noun: kind.noun() });
            }
        },
    };
    let mut out = cx.ui().plain_out();
    writeln!(out, "{id}")?;
    out.finish()?;
    Ok(CommandOutcome::Success)
}

fn write_selection(out: &mut Out, selection: &Selection) -> io::Result<()> {
    for source in &selection.sources {
        writeln!(out, "Source:  {}", text::line(source))?;
    }
    for rules in &selection.rules {
        let mut parts: Vec<String> =
            rules.patterns.iter().map(|pattern| text::line(pattern.as_bytes())).collect();
        let ignore_case = rules.ignore_case_patterns.iter();
        parts.extend(
            ignore_case.map(|pattern| format!("{} in any case", text::line(pattern.as_bytes()))),
        );
        parts.extend(rules.markers.iter().map(|marker| {
            let header = match &*marker.header {
                [] => String::new(),
                header => format!(":{}", text::line(header)),
            };
            format!("folders with {}{header}", text::line(marker.name.as_bytes()))
        }));
        parts.extend(
            rules.larger_than_bytes.map(|limit| format!("larger than {}", ByteCount(limit))),
        );
        for (is_set, what) in [
            (rules.gitignore, ".gitignore files"),
            (rules.cache_folders, "cache folders"),
            (rules.one_file_system, "other file systems"),
        ] {
            parts.extend(is_set.then(|| what.to_owned()));
        }
        writeln!(out, "Left out: {}", parts.join(", "))?;
    }
    for path in selection.unread.iter() {
        writeln!(out, "Unread:  {}", text::line(path))?;
    }
    if selection.unread.has_more() {
        writeln!(out, "Unread:  more paths, which the commit does not list")?;
    }
    Ok(())
}

fn write_entry(out: &mut Out, cx: &Context, path: &[u8], entry: &Entry) -> io::Result<()> {
    let metadata = &entry.metadata;
    writeln!(out, "{} {}", entry.kind.noun(), text::line(path))?;
    match &entry.kind {
        EntryKind::File { size, id } => {
            let chunked = if id.is_chunked() { " (chunked)" } else { "" };
            writeln!(out, "Content: {}{chunked}", cx.ui().id(&id.object()))?;
            writeln!(out, "Size:    {} ({} bytes)", ByteCount(*size), size::grouped(*size))?;
        }
        EntryKind::Folder { id } => writeln!(out, "Tree:    {}", cx.ui().id(id))?,
        EntryKind::Symlink { target } => writeln!(out, "Target:  {}", text::line(target))?,
        EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => {
            writeln!(out, "Device:  {}, {}", device.major, device.minor)?;
        }
        EntryKind::Fifo | EntryKind::Socket => {}
    }
    writeln!(out, "Mode:    {} ({:04o})", entry.mode_shown(), metadata.mode)?;
    if let Some(owner) = metadata.owner.as_deref() {
        let (user, group) = (text::line(&owner.user), text::line(&owner.group));
        writeln!(out, "Owner:   {user} ({}), {group} ({})", owner.uid, owner.gid)?;
    }
    if let Some(mtime) = metadata.mtime {
        writeln!(out, "Changed: {}", time::local(mtime))?;
    }
    if let Some(link) = metadata.link {
        writeln!(out, "Link:    {link:016x}, one file under several names")?;
    }
    if metadata.sparse {
        writeln!(out, "Sparse:  yes")?;
    }
    for xattr in &metadata.xattrs {
        let bytes = size::count(xattr.value.len() as u64, "byte");
        writeln!(out, "Xattr:   {}, {bytes}", text::line(&xattr.name))?;
    }
    Ok(())
}
