//! `snap unpack`: adds a bundle to a store.

use std::{
    ffi::OsString,
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use snap_core::{
    base::{again::until_settled, io::PathError, limits},
    ops::{
        bundle::{
            Error,
            unpack::{self, UnpackOptions, UnpackOutcome},
        },
        inbox::Adoption,
    },
    repo::{Head, RefError, RefName, Repo, open::STORE_FOLDER, seen::Seen},
    store::{BundleReader, read_outline},
};

use crate::{
    commands::{init, log, pull::is_overtaken, refs, remaining::warn_of_returned},
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{size, size::ByteCount, text},
};

const EXAMPLES: &str = "\
Examples:
  snap unpack project.snap                   import, create a store if there is none
  snap unpack update.snap --branch main      and fast-forward branch main to it
  ssh host snap pack latest -o - | snap unpack -
  snap restore $(snap unpack project.snap) /tmp/look";

/// Import a bundle into the store
///
/// Verifies all objects before it adds them to the store. A bundle that is damaged, or builds on
/// missing commits, is rejected, and the store is unchanged. Prints the id of the commit. In a
/// store without commits, the current branch moves to that commit. Otherwise, only the branch given
/// with --branch moves.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UnpackArgs {
    /// Bundle to unpack; `-` is stdin
    #[arg(value_name = "FILE")]
    file: OsString,

    /// Branch to set to the commit: created if missing, otherwise fast-forwarded
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,

    /// Move the branch even if its commits are not in the bundle
    #[arg(short, long, requires = "branch")]
    force: bool,
}

pub(crate) fn run(args: &UnpackArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let branch = args.branch.as_deref().map(RefName::branch).transpose()?;
    let found = cx.find_store(Path::new("."))?;
    if let Some(store) = &found {
        cx.check_found(store)?;
    }
    let opened = open(args, cx)?;
    let is_missing = found.as_ref().is_none_or(|store| Repo::is_unfinished(store));
    // No store is created for a bundle that cannot be unpacked.
    let missing = &opened.1.prerequisites;
    if is_missing && !missing.is_empty() {
        return Err(failed(args, Error::Prerequisites { missing: missing.clone() }));
    }
    let store = found.unwrap_or_else(|| PathBuf::from(STORE_FOLDER));
    let new = if is_missing { init::make_for_use(cx, &store)? } else { None };
    let unpacked = unpack((args, branch.as_ref()), opened, &store, cx);
    let (outcome, moved) = unpacked.inspect_err(|_| {
        if let Some(new) = new
            && init::discard(new, &store, cx)
        {
            let shown = text::line(store.as_os_str().as_encoded_bytes());
            cx.ui().status(format_args!("Removed the new store at {shown}"));
        }
    })?;
    print_result(&outcome, &shown(args), moved.as_ref(), cx)?;
    Ok(CommandOutcome::Success)
}

type OpenedBundle = unpack::OpenedBundle<Box<dyn Read>>;

/// Opens the bundle. Checks the lengths in a file before anything is written.
fn open(args: &UnpackArgs, cx: &Context) -> Result<OpenedBundle, CliError> {
    let path = Path::new(&args.file);
    let opened = match can_be_read_again(args) {
        true => read_outline(path).and_then(|_| BundleReader::of_file(path)),
        false if args.file == "-" => BundleReader::new(Box::new(cx.stdin()) as Box<dyn Read>),
        false => {
            let input = cx.open_input(path).map_err(PathError::when("open", path))?;
            BundleReader::new(Box::new(input) as Box<dyn Read>)
        }
    };
    opened.map_err(|error| failed(args, error.into()))
}

/// Returns false for stdin, and for a pipe or device.
fn can_be_read_again(args: &UnpackArgs) -> bool {
    let is_special = |there: std::fs::Metadata| !there.is_file();
    args.file != "-" && !fs_err::metadata(&args.file).is_ok_and(is_special)
}

fn failed(args: &UnpackArgs, source: Error) -> CliError {
    CliError::Unpack { file: shown(args), source: Box::new(source) }
}

/// Unpacks the bundle into the store at `dir` and moves a branch. Returns the branch that was moved.
/// If another process has deleted garbage meanwhile, reads the bundle again.
fn unpack(
    (args, branch): (&UnpackArgs, Option<&RefName>),
    opened: OpenedBundle,
    dir: &Path,
    cx: &Context,
) -> Result<(UnpackOutcome, Option<RefName>), CliError> {
    let repo = cx.open_at(dir)?;
    let done = until_settled(
        &mut (Some(opened), Seen::of(&repo)?),
        if can_be_read_again(args) { limits::GC_ROUNDS } else { 1 },
        |(opened, _)| {
            let opened = opened.take().map_or_else(|| open(args, cx), Ok)?;
            attempt((args, branch), opened, &repo, cx).map(Some)
        },
        |(_, seen), error| is_overtaken(&repo, seen, error),
    );
    Ok(done?.expect("an attempt ends with a result or an error"))
}

fn attempt(
    (args, branch): (&UnpackArgs, Option<&RefName>),
    opened: OpenedBundle,
    repo: &Repo,
    cx: &Context,
) -> Result<(UnpackOutcome, Option<RefName>), CliError> {
    let (tips, level) = (log::all_starts(repo, cx)?, repo.config().compression_level);
    let options = UnpackOptions { tips, most_bytes: u64::MAX };
    let progress = cx.progress();
    let prepared = unpack::prepare(repo.store(), opened, &options, &progress);
    let how = Adoption::NewObjects(level);
    let outcome = prepared.and_then(|bundle| bundle.adopt(how, &progress));
    let outcome = outcome.map_err(|source| failed(args, source))?;
    drop(progress);
    let old = match branch {
        Some(name) => repo.refs().read(name)?,
        None => None,
    };
    let moved = move_branch(args, branch.cloned(), &outcome, repo, cx)?;
    warn_of_returned(repo, (moved.as_ref(), old, outcome.commit), cx)?;
    Ok((outcome, moved))
}

fn shown(args: &UnpackArgs) -> String {
    match args.file == "-" {
        true => "stdin".to_owned(),
        false => text::line(args.file.as_bytes()),
    }
}

/// Points a branch at the commit: the named one, or else the current one if it has no commit yet.
/// Otherwise records the commit, so that `gc` keeps it for some time. Returns the branch that was
/// moved.
fn move_branch(
    args: &UnpackArgs,
    named: Option<RefName>,
    outcome: &UnpackOutcome,
    repo: &Repo,
    cx: &Context,
) -> Result<Option<RefName>, CliError> {
    let commit = outcome.commit;
    let is_named = named.is_some();
    let reason = format!("unpack: {}", shown(args));
    let record = |repo: &Repo| -> Result<(), CliError> {
        Ok(cx.with_change(repo.config(), &reason, |change| {
            repo.refs().record_unpacked(commit, change)
        })?)
    };
    let name = match (named, repo.refs().head()?) {
        (Some(name), _) => name,
        (None, Head::Branch(current)) if repo.refs().read(&current)?.is_none() => current,
        _ => return record(repo).map(|()| None),
    };
    let old = repo.refs().read(&name)?;
    if old.is_none() {
        refs::check_new(&name, repo, cx)?;
    }
    if let Some(old) = old.filter(|old| *old != commit && !args.force)
        && !refs::is_before(repo, old, commit)?
    {
        return Err(CliError::NotForward { name: name.short().to_owned(), commit });
    }
    if old != Some(commit) {
        let moved = cx.with_change(repo.config(), &reason, |change| {
            repo.refs().update(&name, old, Some(commit), change)
        });
        match moved {
            // Another process made the first commit on this branch, and the user did not name the
            // branch.
            Err(RefError::Exists { .. }) if !is_named => return record(repo).map(|()| None),
            moved => moved?,
        }
    }
    Ok(Some(name))
}

#[derive(Serialize)]
struct UnpackedJson {
    version: u32,
    r#type: &'static str,
    commit: String,
    prerequisites: Vec<String>,
    objects: u64,
    bytes: u64,
    commits_new: u64,
    objects_new: u64,
    bytes_added: u64,
    bytes_stored: u64,
    branch: Option<String>,
}

fn print_result(
    outcome: &UnpackOutcome,
    file: &str,
    branch: Option<&RefName>,
    cx: &Context,
) -> Result<(), CliError> {
    let UnpackOutcome { commit, added, .. } = outcome;
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&UnpackedJson {
            version: 1,
            r#type: "unpacked",
            commit: commit.to_string(),
            prerequisites: outcome.prerequisites.iter().map(ToString::to_string).collect(),
            objects: outcome.objects,
            bytes: outcome.raw_bytes,
            commits_new: outcome.commits,
            objects_new: added.objects,
            bytes_added: added.raw_bytes,
            bytes_stored: added.stored_bytes,
            branch: branch.map(|name| name.short().to_owned()),
        })?;
    } else if !cx.ui().is_quiet() {
        writeln!(out, "{commit}")?;
    }
    let ui = cx.ui();
    if added.objects == 0 && outcome.commits == 0 {
        ui.status(format_args!("{file} was checked; the store already has all of it"));
    } else {
        ui.status(format_args!(
            "Unpacked {file}: {} and {} new, of {} checked; {} of contents, stored in {}",
            size::count(outcome.commits, "commit"),
            size::count(added.objects, "object"),
            size::grouped(outcome.objects),
            ByteCount(added.raw_bytes),
            ByteCount(added.stored_bytes),
        ));
    }
    match branch {
        Some(name) => ui.status(format_args!("Branch {} is at {commit:.12}", name.short())),
        None => ui.status(format_args!(
            "No branch was moved; `snap branch NAME {commit:.12}` or --branch creates one"
        )),
    }
    Ok(out.finish()?)
}
