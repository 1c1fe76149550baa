//! `snap pull`: fetches commits from a remote.

mod update;

use std::{
    ffi::OsString,
    iter,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use snap_core::{
    base::{again::until_settled, id::CommitId, limits, name::EntryName, observe::Silent},
    ops::reach::{self, ReachError},
    repo::{Head, Pointer, RefError, RefName, Repo, ref_name::RefKind, seen::Seen},
    store::StoreError,
};
use snap_remote::{
    peer::RemoteError,
    transfer::{
        partial::PartialScope,
        pull::{self, PullOutcome},
    },
};

use crate::{
    commands::{clone::fetch_ignore_files, commit::named, push, refs, remaining::warn_of_returned},
    context::Context,
    remote::{Connection, LimitArgs, RemoteStatsJson, tracking},
    report::{CliError, CommandOutcome, causes::causes},
    ui::{size, size::ByteCount, text},
};

const EXAMPLES: &str = "\
Examples:
  snap pull                       the current branch, from the default remote
  snap pull origin main           the branch main
  snap pull origin v1.0           a tag
  snap pull --path src            only the objects of a folder
  snap pull --update              also update the files of the project
  snap pull --force               overwrite local commits
  snap pull --limit-download 2M --stats
  snap pull s3://bucket/project main

`snap diff` compares the files of the project with the new commit.";

/// Download commits from a remote
///
/// Downloads and verifies the missing objects, then fast-forwards the local branch. If the local
/// branch has commits that the remote lacks, it does not move; --force moves it. REMOTE/BRANCH names
/// the branch of the remote. Files of the project are unchanged, unless --update is given.
///
/// --update also updates the files to the new commit. Files that the pull does not change keep their
/// local changes. If a file was changed on both sides, lists its path, changes nothing, and exits
/// with 3. The next update completes an interrupted one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PullArgs {
    /// Remote or URL to pull from; default: origin, or the only remote
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,

    /// Branch or tag to pull; default: the current branch
    #[arg(value_name = "REF")]
    name: Option<String>,

    /// Move the local branch even if it has commits that the remote lacks
    #[arg(short, long)]
    force: bool,

    /// Also update the files of the project; default: the setting `pull.update`
    #[arg(long)]
    update: bool,

    /// Also update a `.git` at the top of the project
    #[arg(long)]
    include_git: bool,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

/// The part of a ref's history and files that is downloaded.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct PartArgs {
    /// Number of commits to download; older ones are downloaded on demand
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,

    /// Path in the snapshots to download; may be repeated; others are downloaded on demand
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<OsString>,
}

impl PartArgs {
    /// Returns the part of the snapshots to fetch, with normalised paths.
    ///
    /// # Errors
    /// [`CliError::NoPlace`] for a path that cannot be in a snapshot, and for the root.
    pub(crate) fn part(&self) -> Result<PartialScope, CliError> {
        let plain = |path: &OsString| {
            let path = Path::new(path);
            let names = named(path.to_owned(), path)?.inside;
            Ok(names.iter().map(EntryName::as_bytes).collect::<Vec<_>>().join(&b'/'))
        };
        let paths = self.paths.iter().map(plain).collect::<Result<_, CliError>>()?;
        Ok(PartialScope { depth: self.depth, paths })
    }
}

/// The effect of a pull on the local ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum PullAction {
    /// The ref was created.
    Made,
    /// The ref was fast-forwarded.
    Moved,
    /// The ref was moved by `--force`, without a fast-forward.
    Forced,
    /// The ref was up to date.
    Same,
    /// The local ref is ahead of the remote's ref.
    Ahead,
}

/// A local ref before and after.
struct PulledRef {
    name: RefName,
    old: Option<CommitId>,
    new: CommitId,
    action: PullAction,
}

impl PulledRef {
    /// Returns true if the local ref does not stay where it was.
    fn has_moved(&self) -> bool {
        matches!(self.action, PullAction::Made | PullAction::Moved | PullAction::Forced)
    }
}

pub(crate) fn run(args: &PullArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let mut repo = cx.open_repo()?;
    let names = match &args.name {
        Some(text) => push::names(text)?,
        None => match repo.refs().head()? {
            Head::Branch(name) => vec![name],
            Head::Detached(_) => return Err(CliError::NoBranch),
        },
    };
    if args.update {
        check_update(&repo, &names)?;
    }
    let connection = cx.connect(cx.remote(args.remote.as_deref().into())?, &args.limits)?;
    let part = args.part.part()?;
    if !part.is_everything() || !repo.store().partial_packs().is_empty() {
        repo = repo.with_remote_frames(Arc::new(connection.packs(cx)?));
    }
    let done = until_settled(
        &mut (connection, Seen::default()),
        limits::GC_ROUNDS,
        |(connection, _)| attempt(args, (&repo, connection), (names.clone(), &part), cx).map(Some),
        |(_, seen), error| is_overtaken(&repo, seen, error),
    );
    Ok(done?.expect("an attempt ends with a result or an error"))
}

/// Returns true if an error passes: another process has changed the local store, or deleted garbage
/// in it, since the command has looked at it.
pub(super) fn is_overtaken(
    repo: &Repo,
    seen: &mut Seen,
    error: &CliError,
) -> Result<bool, CliError> {
    for cause in causes(error) {
        if let Some(RefError::Collected { .. }) = cause.downcast_ref() {
            return Ok(seen.look_again(repo, &StoreError::Collected)?);
        }
        let missing = match cause.downcast_ref() {
            Some(RemoteError::Incomplete { source, .. }) => match &**source {
                ReachError::Store(error) => Some(error),
                _ => None,
            },
            _ => cause.downcast_ref::<StoreError>(),
        };
        if let Some(error) = missing {
            return Ok(seen.look_again(repo, error)?);
        }
    }
    Ok(false)
}

/// Pulls once.
fn attempt(
    args: &PullArgs,
    (repo, connection): (&Repo, &mut Connection),
    (names, part): (Vec<RefName>, &PartialScope),
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let start = Instant::now();
    let (name, outcome) = fetch(repo, connection, (names, part), cx)?;
    let connection = &*connection;
    fetch_ignore_files(repo, outcome.commit)?;
    let place = &connection.place;
    tracking::record_tracking_branch((place, repo), &name, Some(outcome.commit), cx)?;
    let pulled = decide((repo, connection), (&name, outcome.commit), args.force)?;
    let advance = || {
        advance((repo, connection), &pulled, cx)?;
        print_result(&pulled, (&outcome, connection), start.elapsed(), cx)?;
        match pulled.has_moved() {
            true => warn_of_returned(repo, (Some(&pulled.name), pulled.old, pulled.new), cx),
            false => Ok(()),
        }
    };
    let is_current = matches!(repo.refs().head()?, Head::Branch(current) if current == name);
    let updates = args.update || repo.config().pull_update && is_current;
    match repo.project().filter(|_| updates) {
        Some(_) if !is_current => Err(NOT_CURRENT),
        Some(project) => {
            let new = if pulled.action == PullAction::Ahead { pulled.old } else { None };
            let (old, new) = (pulled.old, new.unwrap_or(pulled.new));
            let include_git = args.include_git;
            let target = update::Target { branch: name.short(), old, new, include_git };
            update::run((repo, project), target, advance, cx)
        }
        None => {
            advance()?;
            suggest_update(repo, &pulled, (is_current, args), cx);
            Ok(CommandOutcome::Success)
        }
    }
}

/// The error of `--update` for a ref that the files of the project do not belong to.
const NOT_CURRENT: CliError = CliError::Usage(
    "--update updates the files only from the current branch; `snap branch --switch NAME` switches",
);

/// Checks before the download that the project's files can be updated from one of these refs.
fn check_update(repo: &Repo, names: &[RefName]) -> Result<(), CliError> {
    if repo.project().is_none() {
        return Err(CliError::Usage("a bare store has no project, so --update has no files"));
    }
    match repo.refs().head()? {
        Head::Branch(current) if names.contains(&current) => Ok(()),
        _ => Err(NOT_CURRENT),
    }
}

/// Fetches the first of these refs that the remote has.
fn fetch(
    repo: &Repo,
    connection: &mut Connection,
    (names, part): (Vec<RefName>, &PartialScope),
    cx: &Context,
) -> Result<(RefName, PullOutcome), CliError> {
    let progress = cx.progress();
    let level = repo.config().compression_level;
    let Connection { store, runtime, .. } = connection;
    first_of(names, cx, |name| {
        let options = pull::PullOptions { name: name.clone(), level, part: part.clone() };
        pull::run(repo.store(), store, &options, runtime, &progress)
    })
}

/// Calls `work` with the first of these refs that the remote has.
pub(super) fn first_of<T>(
    names: Vec<RefName>,
    cx: &Context,
    mut work: impl FnMut(&RefName) -> Result<T, RemoteError>,
) -> Result<(RefName, T), CliError> {
    let mut missing = None;
    for name in names {
        match work(&name) {
            Ok(done) => return Ok((name, done)),
            Err(error @ RemoteError::NoRef { .. }) => {
                missing.get_or_insert(error);
            }
            Err(error) => return Err(cx.remote_error(error)),
        }
    }
    Err(missing.map_or(CliError::NoBranch, CliError::from))
}

/// Decides what happens to the local ref. It moves if that is a fast-forward or forced.
fn decide(
    (repo, connection): (&Repo, &Connection),
    (name, new): (&RefName, CommitId),
    force: bool,
) -> Result<PulledRef, CliError> {
    let old = repo.refs().read(name)?;
    let is_branch = name.kind() == RefKind::Branch;
    let action = match old {
        None => PullAction::Made,
        Some(old) if old == new => PullAction::Same,
        // Its history is unknown.
        Some(old) if reach::is_collected(repo, old, &Silent)? => match force {
            true => PullAction::Forced,
            false => {
                let pointer = Pointer::Ref(name.clone());
                return Err(RefError::AtCollected { pointer, id: old }.into());
            }
        },
        Some(old) if is_branch && refs::is_before(repo, old, new)? => PullAction::Moved,
        Some(old) if is_branch && refs::is_before(repo, new, old)? => PullAction::Ahead,
        Some(_) if force => PullAction::Forced,
        Some(old) => {
            let (noun, name) = (name.kind().noun(), name.short().to_owned());
            let remote = connection.place.shown();
            let (here, there) = refs::count_apart(repo, old, new)?;
            let [here, there] = [here, there].map(|count| size::count(count, "commit"));
            return Err(CliError::Diverged { noun, name, remote, here, there });
        }
    };
    let action = if force && action == PullAction::Ahead { PullAction::Forced } else { action };
    Ok(PulledRef { name: name.clone(), old, new, action })
}

/// Moves the local ref as decided.
fn advance(
    (repo, connection): (&Repo, &Connection),
    pulled: &PulledRef,
    cx: &Context,
) -> Result<(), CliError> {
    if pulled.has_moved() {
        let reason = format!("pull: {}", connection.place.shown());
        cx.with_change(repo.config(), &reason, |change| {
            repo.refs().update(&pulled.name, pulled.old, Some(pulled.new), change)
        })?;
    }
    Ok(())
}

#[derive(Serialize)]
struct PulledJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    name: &'a str,
    kind: &'static str,
    action: PullAction,
    old: Option<String>,
    new: String,
    objects_new: u64,
    bytes_added: u64,
    bytes_stored: u64,
    bytes_received: u64,
    stats: RemoteStatsJson,
}

fn print_result(
    moved: &PulledRef,
    (outcome, connection): (&PullOutcome, &Connection),
    took: Duration,
    cx: &Context,
) -> Result<(), CliError> {
    let place = &connection.place;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&PulledJson {
            version: 1,
            r#type: "pulled",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            name: moved.name.short(),
            kind: moved.name.kind().noun(),
            action: moved.action,
            old: moved.old.map(|id| id.to_string()),
            new: moved.new.to_string(),
            objects_new: outcome.added.objects,
            bytes_added: outcome.added.raw_bytes,
            bytes_stored: outcome.added.stored_bytes,
            bytes_received: outcome.received_bytes,
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    cx.ui().status(format_args!("{}", line(moved)));
    if outcome.received_bytes > 0 {
        cx.ui().status(format_args!(
            "Received {}, {}, from {}{}",
            size::count(outcome.added.objects, "object"),
            ByteCount(outcome.received_bytes),
            place.shown(),
            push::pace(outcome.received_bytes, took),
        ));
    }
    Ok(())
}

/// Names the commands that update the files after the branch moved. In a partial clone, the restore
/// is of a path of the scope: a restore of the whole branch would end the partial clone.
fn suggest_update(
    repo: &Repo,
    moved: &PulledRef,
    (is_current, args): (bool, &PullArgs),
    cx: &Context,
) {
    if !moved.has_moved() || moved.name.kind() != RefKind::Branch {
        return;
    }
    let mut revision = moved.name.short().as_bytes().to_vec();
    // The branch has moved, so an unreadable scope is not an error of the pull.
    let scope = repo.scope().ok().flatten().unwrap_or_default();
    if let Some(path) = scope.first() {
        for (name, separator) in path.iter().zip(iter::once(b':').chain(iter::repeat(b'/'))) {
            revision.push(separator);
            revision.extend_from_slice(name.as_bytes());
        }
    }
    if repo.project().is_none() {
        cx.ui().hint(&format!(
            "`snap restore {} DIR` restores its files to a folder",
            text::word(&revision)
        ));
        return;
    }
    let mut hint = String::new();
    if is_current {
        let words = args.remote.iter().chain(&args.name);
        let words: String = words.map(|word| format!(" {}", text::word(word.as_bytes()))).collect();
        hint = format!("`snap pull --update{words}` updates them and keeps local changes\n");
    }
    hint.push_str(&format!(
        "`snap restore {} --overwrite --delete -n` lists what a restore would change{}",
        text::word(&revision),
        if scope.len() > 1 { "; restore each path of the partial clone" } else { "" }
    ));
    cx.ui().status(format_args!("Files are unchanged"));
    cx.ui().hint(&hint);
}

fn line(PulledRef { name, old, new, action }: &PulledRef) -> String {
    let short = name.short();
    let old = old.map(|id| format!("{id:.12}")).unwrap_or_default();
    let what = match action {
        PullAction::Made => format!("new {} at {new:.12}", name.kind().noun()),
        PullAction::Moved => format!("{old}..{new:.12}"),
        PullAction::Forced => format!("{old}...{new:.12}, forced"),
        PullAction::Same => format!("is at {new:.12}, up to date"),
        PullAction::Ahead => {
            format!("is at {old}, ahead of the remote; `snap push` sends the new commits")
        }
    };
    format!("{short} -> {short}  {what}")
}
