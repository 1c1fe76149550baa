//! `snap find`: search names over the whole history.

use std::{ffi::OsString, io, io::Write, os::unix::ffi::OsStrExt};

use snap_core::{
    format::tree::Kind,
    ops::{
        find::{self, Case, Found, Options, Range, Stamp, Wanted},
        record::VersionRecord,
    },
};

use crate::{
    commands::log::all_starts,
    context::Context,
    report::{CliError, Done},
    ui::{Out, Ui, Versioned, size, size::Size, text, time},
};

/// Ranges of one version that text lists at most.
const RANGES: usize = 5;

const EXAMPLES: &str = "\
Examples:
  snap find notes.txt             that name in any folder, in any snapshot
  snap find '*.pdf'               a pattern for the name
  snap find 'src/**/main.rs'      with a slash: the path from the top
  snap find -i -t d 'readme*'     folders, whatever the case
  snap find /notes.txt v1.0       at the top, only in what led to v1.0";

/// Search names over the whole history
///
/// Lists each path once and under it each version, with the snapshots in which it
/// lived: how many, from the oldest to the newest. A version that came back,
/// or lives on several branches, has several such ranges. What differs in
/// mtime or owner only is one version, and so is a folder.
///
/// A pattern without a slash is compared with names, one with a slash with the
/// path from the top. `*`, `?`, `[…]` and `{…,…}` stand for parts of one name,
/// `**` for any number of folders. Without them it is the exact name.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FindArgs {
    /// Name or path to look for
    pattern: OsString,

    /// Look only at these snapshots and those before them; everywhere if not given
    #[arg(value_name = "REV")]
    revs: Vec<String>,

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

pub(crate) fn run(args: &FindArgs, cx: &Context) -> Result<Done, CliError> {
    let repo = cx.open_repo()?;
    let starts = match args.revs.is_empty() {
        true => all_starts(&repo)?,
        false => {
            let revs = args.revs.iter().map(|rev| cx.resolve_commit(&repo, rev));
            revs.collect::<Result<_, _>>()?
        }
    };
    let options = Options {
        case: if args.ignore_case { Case::Ignored } else { Case::Exact },
        wanted: args.wanted.map(|wanted| match wanted {
            Type::File => Wanted::File,
            Type::Folder => Wanted::Folder,
            Type::Symlink => Wanted::Symlink,
        }),
        ..Options::new(args.pattern.as_bytes())
    };
    let progress = cx.progress();
    let mut out = cx.ui().out();
    let mut each = |found: &Found| {
        progress.clear();
        match cx.ui().is_json() {
            true => found.versions.iter().try_for_each(|version| {
                let record = VersionRecord::new(&found.path, version);
                Ok(out.json(&Versioned::new(record))?)
            }),
            false => Ok::<_, CliError>(write_one(&mut out, cx.ui(), found)?),
        }
    };
    let outcome = find::run(repo.store(), &starts, &options, &progress, &mut each)?;
    out.finish()?;
    let commits = size::count(outcome.commits, "commit");
    let trees = size::count(outcome.trees, "tree");
    cx.ui().detail(format_args!("Looked through {commits}, reading {trees}"));
    if outcome.commits == 0 {
        cx.ui().status(format_args!("There is no commit yet"));
    } else if outcome.paths == 0 {
        let pattern = text::line(args.pattern.as_bytes());
        cx.ui().status(format_args!("Nothing in {commits} is named {pattern}"));
    }
    Ok(Done::Well)
}

/// Number of a device.
fn device(kind: &Kind) -> Option<[u32; 2]> {
    match kind {
        Kind::CharDevice { device } | Kind::BlockDevice { device } => {
            Some([device.major, device.minor])
        }
        _ => None,
    }
}

fn write_one(out: &mut Out, ui: &Ui, found: &Found) -> io::Result<()> {
    match ui.is_terminal() {
        true => out.write_all(ui.paint().name(&text::line(&found.path)).as_bytes())?,
        // A pipe gets the bytes as they are.
        false => out.write_all(&found.path)?,
    }
    out.write_all(b"\n")?;
    for version in &found.versions {
        let what = match &version.kind {
            Kind::File { size, id } => {
                format!("{} {}", ui.paint().id(&ui.id(id)), Size(*size))
            }
            Kind::Symlink { target } => format!("symlink -> {}", text::line(target)),
            kind => match device(kind) {
                Some([major, minor]) => format!("{} {major}, {minor}", kind.noun()),
                None => kind.noun().to_owned(),
            },
        };
        let mtime = match (&version.kind, version.mtime) {
            (Kind::File { .. }, Some(mtime)) => format!(", {}", time::local(mtime)),
            _ => String::new(),
        };
        let commits = size::count(version.commits(), "commit");
        writeln!(out, "  {what}{mtime}: in {commits}{}", ranges(ui, &version.ranges))?;
    }
    Ok(())
}

/// Where a version lived: on the same line if that is one range, else on lines
/// of their own.
fn ranges(ui: &Ui, ranges: &[Range]) -> String {
    let stamp = |stamp: &Stamp| {
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
