//! `snap show`: all that a commit or an entry says.

use std::{ffi::OsString, io, io::Write};

use snap_core::{
    format::{
        selection::Selection,
        tree::{Entry, Kind},
    },
    ops::record::{CommitRecord, EntryRecord},
    repo::path::{Found, components},
};

use crate::{
    commands::log,
    context::Context,
    report::{CliError, Done},
    ui::{Out, Versioned, size, size::Size, text, time},
};

const EXAMPLES: &str = "\
Examples:
  snap show                       the newest commit
  snap show latest~3              three before it
  snap show v1.0:src/main.rs      one entry: mode, owner, times, content id";

/// Show what a commit or an entry of it says
///
/// Of an entry also its owner, extended attributes and content id. The content
/// of a file is printed by `snap cat`, that of a folder by `snap ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Commit, or an entry in it; also FILE.snap:PATH, in a bundle,
    /// and URL#REV:PATH, elsewhere
    #[arg(value_name = "REV[:PATH]", default_value = "HEAD")]
    what: OsString,
}

pub(crate) fn run(args: &ShowArgs, cx: &Context) -> Result<Done, CliError> {
    let found = cx.open_snapshot(&args.what)?;
    let path = found.path.as_deref().unwrap_or_default();
    let mut out = cx.ui().out();
    match found.find()? {
        Found::Root(_) if cx.ui().is_json() => {
            out.json(&Versioned::new(CommitRecord::new(&found.id, &found.commit)))?;
        }
        Found::Root(tree) => {
            let commit = (&found.id, &found.commit);
            let names = found.repo().map(log::names).transpose()?.unwrap_or_default();
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
        Found::Entry(entry) => {
            let path = components(path).collect::<Vec<_>>().join(&b'/');
            match cx.ui().is_json() {
                true => out.json(&Versioned::new(EntryRecord::new(&path, &entry)))?,
                false => write_entry(&mut out, cx, &path, &entry)?,
            }
        }
    }
    out.finish()?;
    Ok(Done::Well)
}

fn write_selection(out: &mut Out, selection: &Selection) -> io::Result<()> {
    for source in &selection.sources {
        writeln!(out, "Source:  {}", text::line(source))?;
    }
    for rules in &selection.rules {
        let mut parts: Vec<String> =
            rules.patterns.iter().map(|pattern| text::line(pattern.as_bytes())).collect();
        parts.extend(rules.larger_than_bytes.map(|limit| format!("larger than {}", Size(limit))));
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
        writeln!(out, "Unread:  further paths, which the commit does not record")?;
    }
    Ok(())
}

fn write_entry(out: &mut Out, cx: &Context, path: &[u8], entry: &Entry) -> io::Result<()> {
    let metadata = &entry.metadata;
    writeln!(out, "{} {}", entry.kind.noun(), text::line(path))?;
    match &entry.kind {
        Kind::File { size, id } => {
            writeln!(out, "Content: {}", cx.ui().id(id))?;
            writeln!(out, "Size:    {} ({} bytes)", Size(*size), size::grouped(*size))?;
        }
        Kind::Folder { id } => writeln!(out, "Tree:    {}", cx.ui().id(id))?,
        Kind::Symlink { target } => writeln!(out, "Target:  {}", text::line(target))?,
        Kind::CharDevice { device } | Kind::BlockDevice { device } => {
            writeln!(out, "Device:  {}, {}", device.major, device.minor)?;
        }
        Kind::Fifo | Kind::Socket => {}
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
