//! `snap archive`: makes a bundle of a folder, without a store.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::Serialize;
use snap_core::{
    base::io::PathError,
    disk::output::folder_of,
    ops::{
        bundle::archive::{self, ArchiveOutcome},
        commit::{CommitSource, NamedPath, Unchanged},
    },
};

use crate::{
    commands::{
        commit::{Describe, LeaveOut, PathLists, followed, unmatched},
        pack::OutputArgs,
    },
    config::Profile,
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{size, size::ByteCount},
};

const EXAMPLES: &str = "\
Examples:
  snap archive ~/photos -o photos.snap      the content of a folder
  snap archive src docs -o both.snap        several folders, each under its own path
  snap restore photos.snap /tmp/photos      restore it
  snap archive build -o - --reproducible | ssh host snap unpack -";

/// Save a folder in one file, without a store
///
/// The file is a bundle with one commit, as written by `snap pack`. `restore`, `ls`, `cat`, `show`
/// and `export` read it; `unpack` imports it into a store. If the file is in the folder, it is
/// skipped.
///
/// Two archives of the same snapshot can differ in their bytes. `snap export` always writes the
/// same bytes.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ArchiveArgs {
    /// Folder whose content to save; or several paths
    #[arg(value_name = "DIR", required_unless_present_any = ["files_from", "files_from_raw"])]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    lists: PathLists,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    describe: Describe,

    /// Profile whose excludes are added to those given here
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    #[command(flatten)]
    leave_out: LeaveOut,
}

pub(crate) fn run(args: &ArchiveArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let start = Instant::now();
    let args = &ArchiveArgs { paths: args.lists.join(&args.paths, cx)?, ..args.clone() };
    for path in &args.paths {
        path.metadata().map_err(|error| CliError::Source(PathError::when("read", path)(error)))?;
    }
    let config = cx.settings().config()?;
    let mut options = args.describe.options(&config, cx)?;
    options.unchanged = Unchanged::Commit;
    let profile = match &args.profile {
        Some(name) => cx.settings_here()?.0.profile(name)?,
        None => Profile::default(),
    };
    options.ignore = args.leave_out.join(&profile, &config, cx)?;
    let source = source(args)?;
    unmatched::warn(&source, &options.ignore, cx)?;
    options.ignore.patterns.extend(own_files(args));
    let (mut output, scratch) = args.output.open(cx)?;
    let progress = cx.progress();
    let outcome = archive::run(source, &options, &config, scratch, &mut output, &progress)
        .map_err(|source| CliError::Pack { file: args.output.shown(), source: Box::new(source) })?;
    output.finish()?;
    drop(progress);
    print_result(args, &outcome, start, cx)?;
    Ok(if outcome.commit.skipped > 0 { CommandOutcome::Skipped } else { CommandOutcome::Success })
}

fn source(args: &ArchiveArgs) -> Result<CommitSource<'static>, CliError> {
    match args.paths.as_slice() {
        [one] if one.is_dir() => Ok(CommitSource::Folder(one.clone())),
        several => {
            let named = several.iter().map(|path| followed(path, path));
            Ok(CommitSource::Paths(named.collect::<Result<Vec<NamedPath>, _>>()?))
        }
    }
}

/// Returns patterns that exclude the output file. A snapshot never has its temporary files.
fn own_files(args: &ArchiveArgs) -> Vec<String> {
    let mut patterns = Vec::new();
    if args.output.is_stdout() {
        return patterns;
    }
    let output = args.output.path();
    let real = |path: &Path| fs_err::canonicalize(path).ok();
    let (Some(folder), Some(name)) = (real(folder_of(output)), output.file_name()) else {
        return patterns;
    };
    let is_one = args.paths.len() == 1;
    for path in &args.paths {
        let Some(below) =
            real(path).and_then(|root| Some(folder.strip_prefix(root).ok()?.join(name)))
        else {
            continue;
        };
        // A single folder becomes the root; several folders are entries of the root.
        let inside = if is_one && path.is_dir() { below } else { path.join(below) };
        patterns.extend(pattern(inside.as_os_str()));
    }
    patterns
}

/// Returns a pattern that matches exactly this path; `None` if the path is not UTF-8, which
/// patterns must be.
fn pattern(path: &OsStr) -> Option<String> {
    let path = std::str::from_utf8(path.as_bytes()).ok()?.trim_start_matches(['.', '/']);
    let mut pattern = String::from("/");
    for letter in path.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | ' ') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    Some(pattern)
}

#[derive(Serialize)]
struct ArchivedJson {
    version: u32,
    r#type: &'static str,
    file: String,
    commit: String,
    files: u64,
    folders: u64,
    others: u64,
    bytes: u64,
    skipped: u64,
    objects: u64,
    file_bytes: u64,
}

fn print_result(
    args: &ArchiveArgs,
    outcome: &ArchiveOutcome,
    start: Instant,
    cx: &Context,
) -> Result<(), CliError> {
    let Some(id) = &outcome.commit.id else { return Ok(()) };
    let totals = &outcome.commit.totals;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&ArchivedJson {
            version: 1,
            r#type: "archived",
            file: args.output.shown(),
            commit: id.to_string(),
            files: totals.files,
            folders: totals.folders,
            others: totals.others,
            bytes: totals.bytes,
            skipped: outcome.commit.skipped,
            objects: outcome.commit.added.objects,
            file_bytes: outcome.file_bytes,
        })?;
        out.finish()?;
    }
    cx.ui().status(format_args!(
        "Archived {}, {} into {}, {}, in {:.2} s",
        size::count(totals.files, "file"),
        ByteCount(totals.bytes),
        args.output.shown(),
        ByteCount(outcome.file_bytes),
        start.elapsed().as_secs_f64(),
    ));
    if outcome.commit.skipped > 0 {
        let entries = size::count(outcome.commit.skipped, "entry");
        cx.ui().warning(format_args!("skipped {entries} that could not be read"));
    }
    Ok(())
}
