//! `snap find`: searches names in the whole history.

use std::{ffi::OsString, io, io::Write, os::unix::ffi::OsStrExt};

use snap_core::{
    format::tree::EntryKind,
    ops::{
        find::{self, Case, CommitStamp, FindOptions, FoundPath, KindFilter, Range},
        record::VersionRecord,
    },
    repo::Repo,
};
use snap_remote::reader::RefSelection;

use crate::{
    commands::log::all_starts,
    context::Context,
    remote::RemoteRevision,
    report::{CliError, CommandOutcome},
    typed_path,
    ui::{Out, Ui, Versioned, size, size::ByteCount, text, time},
};

/// Why revisions of several stores are refused.
const ONE_PLACE: &str = "one search reads one store: name revisions of one remote, or of none";

/// Maximum number of ranges printed for one version.
const RANGES: usize = 5;

const EXAMPLES: &str = "\
Examples:
  snap find notes.txt             the name in any folder of any snapshot
  snap find '*.pdf'               names that match a pattern
  snap find 'src/**/main.rs'      with a slash: paths from the top
  snap find -i -t d 'readme*'     folders, ignoring case
  snap find /notes.txt v1.0       at the top, only in the history of v1.0
  snap find '*.pdf' URL           in all branches and tags of a remote
  snap find '*.pdf' URL#main      in the history of its branch main";

/// Search the whole history for names
///
/// Lists each matching path with its versions. For each version, shows how many commits contain it,
/// and the oldest and newest of them. A version that was restored later, or is on several branches,
/// has several such ranges. A new mtime or owner alone is not a new version. A folder has only one
/// version.
///
/// A pattern without a slash matches names. A pattern with a slash matches paths from the top.
/// With `./` or `../` in front, it matches paths from the current folder. `*`, `?`, `[…]` and `{…,…}` match
/// parts of a name, `**` any number of folders.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FindArgs {
    /// Name or path to search for
    pattern: OsString,

    /// Search only the history of these commits, here or in one remote; default: all branches and
    /// tags
    #[arg(value_name = "REV|URL[#REV]")]
    revs: Vec<OsString>,

    /// Ignore the case of ASCII letters
    #[arg(short, long)]
    ignore_case: bool,

    /// Find only files (f), folders (d) or symlinks (l)
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    wanted: Option<Type>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Type {
    /// Files
    #[value(name = "f", alias = "file")]
    File,
    /// Folders
    #[value(name = "d", alias = "folder")]
    Folder,
    /// Symbolic links
    #[value(name = "l", alias = "symlink")]
    Symlink,
}

pub(crate) fn run(args: &FindArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let remotes = args.revs.iter().map(|rev| cx.split_remote(rev));
    let remotes = remotes.collect::<Result<Vec<Option<RemoteRevision>>, CliError>>()?;
    let Some(Some(RemoteRevision { remote, .. })) = remotes.first() else {
        if remotes.iter().any(Option::is_some) {
            return Err(CliError::Usage(ONE_PLACE));
        }
        return search(args, &cx.open_repo()?, &args.revs, cx);
    };
    let mut revs = Vec::new();
    for found in &remotes {
        match found {
            Some(found) if found.remote == *remote => revs.push(found.rev.clone()),
            _ => return Err(CliError::Usage(ONE_PLACE)),
        }
    }
    if args.revs.iter().any(|rev| rev.as_bytes() == remote.as_bytes()) {
        revs.clear();
    }
    let texts: Vec<_> = revs.iter().map(|rev| cx.base_texts(rev)).collect();
    let which = match texts.is_empty() {
        true => RefSelection::All,
        false => RefSelection::Revisions(&texts),
    };
    search(args, cx.open_elsewhere(remote, which)?.repo(), &revs, cx)
}

/// Searches the history of `revs` in one store; that of all branches and tags if there are none.
fn search(
    args: &FindArgs,
    repo: &Repo,
    revs: &[OsString],
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let starts = match revs.is_empty() {
        true => all_starts(repo, cx)?,
        false => {
            let revs = revs.iter().map(|rev| Ok(cx.resolve(repo, rev)?.id));
            revs.collect::<Result<_, CliError>>()?
        }
    };
    let pattern = typed_path::in_pattern(repo, &args.pattern)?;
    let options = FindOptions {
        case: if args.ignore_case { Case::Ignored } else { Case::Exact },
        wanted: args.wanted.map(|wanted| match wanted {
            Type::File => KindFilter::File,
            Type::Folder => KindFilter::Folder,
            Type::Symlink => KindFilter::Symlink,
        }),
        ..FindOptions::new(&pattern)
    };
    let progress = cx.progress();
    let mut out = cx.ui().out();
    let mut each = |found: &FoundPath| {
        progress.clear();
        match cx.ui().is_json() {
            true => found.versions.iter().try_for_each(|version| {
                let record = VersionRecord::new(&found.path, version);
                Ok(out.json(&Versioned::of_type("version", record))?)
            }),
            false => Ok::<_, CliError>(write_one(&mut out, cx.ui(), found)?),
        }
    };
    let outcome = find::run(repo.store(), &starts, &options, &progress, &mut each)?;
    out.finish()?;
    let commits = size::count(outcome.commits, "commit");
    let trees = size::count(outcome.trees, "tree");
    cx.ui().detail(format_args!("Searched {commits}; read {trees}"));
    if outcome.commits == 0 {
        cx.ui().status(format_args!("The store has no commits"));
    } else if outcome.paths == 0 {
        let pattern = text::line(args.pattern.as_bytes());
        cx.ui().status(format_args!("No path in {commits} matches {pattern}"));
    }
    Ok(CommandOutcome::Success)
}

/// Returns the numbers of a device.
fn device(kind: &EntryKind) -> Option<[u32; 2]> {
    match kind {
        EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => {
            Some([device.major, device.minor])
        }
        _ => None,
    }
}

fn write_one(out: &mut Out, ui: &Ui, found: &FoundPath) -> io::Result<()> {
    match ui.is_terminal() {
        true => out.write_all(ui.paint().name(&text::line(&found.path)).as_bytes())?,
        // A pipe gets the bytes unchanged.
        false => out.write_all(&found.path)?,
    }
    out.write_all(b"\n")?;
    for version in &found.versions {
        let what = match &version.kind {
            EntryKind::File { size, id } => {
                format!("{} {}", ui.paint().id(&ui.id(&id.object())), ByteCount(*size))
            }
            EntryKind::Symlink { target } => format!("symlink -> {}", text::line(target)),
            kind => match device(kind) {
                Some([major, minor]) => format!("{} {major}, {minor}", kind.noun()),
                None => kind.noun().to_owned(),
            },
        };
        let mtime = match (&version.kind, version.mtime) {
            (EntryKind::File { .. }, Some(mtime)) => format!(", {}", time::local(mtime)),
            _ => String::new(),
        };
        let commits = size::count(version.commits(), "commit");
        writeln!(out, "  {what}{mtime}: in {commits}{}", ranges(ui, &version.ranges))?;
    }
    Ok(())
}

/// Formats the commits that contained a version: one range on the same line, several on separate
/// lines.
fn ranges(ui: &Ui, ranges: &[Range]) -> String {
    let stamp = |stamp: &CommitStamp| {
        format!("{} ({})", ui.paint().id(&format!("{:.12}", stamp.id)), time::local(stamp.time))
    };
    let range = |range: &Range| match range.commits {
        1 => stamp(&range.last),
        _ => format!("from {} to {}", stamp(&range.first), stamp(&range.last)),
    };
    if let [one] = ranges {
        return format!(", {}", range(one));
    }
    let mut shown = String::new();
    for one in ranges.iter().take(RANGES) {
        shown.push_str(&format!("\n    {}: {}", size::count(one.commits, "commit"), range(one)));
    }
    if let Some(more) = ranges.len().checked_sub(RANGES).filter(|more| *more > 0) {
        let more = size::count(more as u64, "range");
        shown.push_str(&format!("\n    and {more} more, which --json lists"));
    }
    shown
}
