//! `snap fetch`: fetches objects that are missing locally.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    sync::Arc,
    time::Instant,
};

use serde::Serialize;
use snap_core::{
    base::{blocked::Blocked, id::CommitId},
    ops::{
        missing_objects::{FetchRequest, HistoryDepth},
        reach,
    },
    repo::{
        Pointer, RefName, Repo,
        history::{History, Parents},
        roots::{RootChoice, Roots},
    },
    store::Store,
};
use snap_remote::{
    location::Location,
    peer::RemoteError,
    transfer::fetch::{self, FetchOutcome, FetchScope},
    verify::{CollectedRef, SeenRefs, collected_refs},
};

use crate::{
    commands::{
        push,
        verify::{collected_json, tell_at_collected, tell_collected},
    },
    context::Context,
    remote::{Connection, LimitArgs, RemoteStatsJson, tracking},
    report::{CliError, CommandOutcome},
    ui::{size, size::ByteCount},
};

const EXAMPLES: &str = "\
Examples:
  snap fetch                      everything that is missing
  snap fetch latest               the objects of the last commit
  snap fetch origin v1.0:src      the objects of a folder, from that remote";

/// Download what a partial clone lacks
///
/// A clone with --depth or --path, or an interrupted one, downloads missing objects on demand. This
/// command downloads them now, so that they can be read offline. `REV[:PATH]` selects the objects of
/// some snapshots, folders or files. Exits with 3 if the remote lacks some of them, and names commits
/// that were forgotten and branches that were deleted there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FetchArgs {
    /// Snapshots, folders or files to fetch; default: all. The first may name the remote; default:
    /// origin, or the only remote
    #[arg(value_name = "REV[:PATH]")]
    what: Vec<OsString>,

    #[command(flatten)]
    limits: LimitArgs,
}

pub(crate) fn run(args: &FetchArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let (remote, revs) = divided(&args.what, cx)?;
    let mut connection = cx.connect(cx.remote(remote.into())?, &args.limits)?;
    let repo = cx.open_repo()?.with_remote_frames(Arc::new(connection.packs(cx)?));
    let start = Instant::now();
    let scopes = match revs {
        [] => vec![FetchScope::Everything],
        revs => revs.iter().map(|rev| wanted(rev, &repo, cx)).collect::<Result<_, _>>()?,
    };
    let mut total = FetchOutcome::default();
    let progress = cx.progress();
    for what in &scopes {
        let Connection { store, runtime, .. } = &mut connection;
        let outcome = fetch::run(repo.store(), store, what, runtime, &progress);
        let outcome = outcome.map_err(|error| cx.remote_error(error))?;
        total.received_bytes += outcome.received_bytes;
        total.completed += outcome.completed;
        total.partial = outcome.partial;
    }
    drop(progress);
    let gaps = match revs {
        [] => Gaps::find(&total, &repo, &mut connection, cx)?,
        _ => Gaps::default(),
    };
    print_result((&total, &gaps), (&connection, start), cx)?;
    Ok(match gaps.is_any {
        true => CommandOutcome::Skipped,
        false => CommandOutcome::Success,
    })
}

/// What a fetch of everything could not fetch.
#[derive(Debug, Default)]
struct Gaps {
    is_any: bool,
    /// Number of commits of branches and tags that were forgotten at the remote.
    forgotten: u64,
    /// Branches that others deleted or moved, and whose commits a collection deleted at the remote.
    collected: Vec<CollectedRef>,
    /// Other refs of this store whose commits a collection at a remote has deleted.
    refs: Vec<(Pointer, CommitId)>,
    /// Other branches of the remote that are not complete here, by their names there.
    incomplete: Vec<String>,
}

impl Gaps {
    fn find(
        outcome: &FetchOutcome,
        repo: &Repo,
        connection: &mut Connection,
        cx: &Context,
    ) -> Result<Self, CliError> {
        let mut gaps = Self::default();
        gaps.add_branches(connection, cx)?;
        let mut gone: BTreeSet<CommitId> = gaps.collected.iter().map(|found| found.seen).collect();
        let roots = Roots::read(repo, RootChoice::Movable)?.complete()?;
        for (pointer, id) in roots.pointers().filter(|(_, id)| !gone.contains(id)) {
            if reach::is_collected(repo, id, &cx.progress())? {
                gaps.refs.push((pointer.clone(), id));
            }
        }
        gone.extend(gaps.refs.iter().map(|(_, id)| *id));
        gaps.forgotten = forgotten_elsewhere(repo, &gone)?;
        gaps.is_any = outcome.partial > 0
            || gaps.forgotten > 0
            || !gaps.collected.is_empty()
            || !gaps.refs.is_empty()
            || !gaps.incomplete.is_empty();
        Ok(gaps)
    }

    /// Adds the remote-tracking branches that are not complete. Removes those of deleted branches, so
    /// that no other command takes them for damage. Later fetches name them from their logs.
    fn add_branches(&mut self, connection: &mut Connection, cx: &Context) -> Result<(), CliError> {
        let Some(remote) = connection.place.name.clone() else { return Ok(()) };
        // Without a source of remote objects.
        let repo = cx.open_repo()?;
        let mut incomplete = Vec::new();
        for (branch, at) in tracking::branches(&repo, &remote)? {
            if !is_complete(repo.store(), at, cx)? {
                incomplete.push((branch, at));
            }
        }
        let deleted = tracking::deleted(&repo, &remote)?;
        let named = incomplete.iter().chain(&deleted);
        let refs = named.map(|(branch, at)| Ok((RefName::branch(branch)?, *at)));
        let refs = refs.collect::<Result<Vec<_>, CliError>>()?;
        if refs.is_empty() {
            return Ok(());
        }
        let Connection { store, runtime, .. } = connection;
        let seen = SeenRefs { refs: &refs, history: Some(repo.store()) };
        let collected = runtime.block_on(collected_refs(store, seen));
        self.collected = collected.map_err(|error| cx.remote_error(error))?;
        for (branch, at) in incomplete {
            match self.collected.iter().any(|found| found.name.short() == branch) {
                true => tracking::forget_deleted((&repo, &remote), (&branch, at), cx)?,
                false => self.incomplete.push(branch),
            }
        }
        Ok(())
    }
}

/// Returns true if the store has everything that a commit refers to.
fn is_complete(store: &Store, commit: CommitId, cx: &Context) -> Result<bool, CliError> {
    if !store.is_alive(&commit.object())? {
        return Ok(false);
    }
    if !store.has_partial() && !store.shadows().has_any_dead() {
        return Ok(true);
    }
    reach::is_here(store, commit, &cx.progress())
        .map_err(|_| RemoteError::Blocked(Blocked::Interrupted).into())
}

/// Counts the commits of branches and tags that were forgotten at a remote and not in this store.
/// Leaves out branches at the commits `gone`, which neither the store nor the remote has.
fn forgotten_elsewhere(repo: &Repo, gone: &BTreeSet<CommitId>) -> Result<u64, CliError> {
    let tips = Roots::read(repo, RootChoice::Shared)?.commits();
    let tips: Vec<CommitId> = tips.difference(gone).copied().collect();
    let (store, known) = (repo.store(), repo.store().forgotten());
    let mut count = 0;
    for step in History::new(store, &tips, Parents::All)? {
        let step = step?;
        count += u64::from(step.is_forgotten && !known.contains(&step.id));
    }
    Ok(count)
}

/// Splits the arguments into the remote, if the first one names one, and the rest.
fn divided<'a>(
    what: &'a [OsString],
    cx: &Context,
) -> Result<(Option<&'a str>, &'a [OsString]), CliError> {
    let Some((first, rest)) = what.split_first() else { return Ok((None, what)) };
    let known = cx.settings_here()?.0.remotes();
    let is_place = |text: &str| text.contains("://") || Location::is_path(text);
    let is_remote = |text: &&str| is_place(text) || known.iter().any(|name| name == text);
    match first.to_str().filter(is_remote) {
        Some(remote) => Ok((Some(remote), rest)),
        None => Ok((None, what)),
    }
}

fn wanted(rev: &OsStr, repo: &Repo, cx: &Context) -> Result<FetchScope, CliError> {
    let found = cx.resolve(repo, rev)?;
    if let Some(path) = &found.path {
        crate::snapshot::find(repo.store(), found.commit.tree, (&found.rev, path))?;
    }
    let paths = found.path.into_iter().filter(|path| !path.is_empty()).collect();
    Ok(FetchScope::Commits(FetchRequest { commit: found.id, paths }, HistoryDepth::Commits(1)))
}

#[derive(Serialize)]
struct FetchedJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    bytes_received: u64,
    packs_completed: u64,
    packs_partial: u64,
    commits_forgotten: u64,
    branches_incomplete: Vec<&'a str>,
    stats: RemoteStatsJson,
}

fn print_result(
    (outcome, gaps): (&FetchOutcome, &Gaps),
    (connection, start): (&Connection, Instant),
    cx: &Context,
) -> Result<(), CliError> {
    let (place, forgotten) = (&connection.place, gaps.forgotten);
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        for found in &gaps.collected {
            out.json(&collected_json(found))?;
        }
        out.json(&FetchedJson {
            version: 1,
            r#type: "fetched",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            bytes_received: outcome.received_bytes,
            packs_completed: outcome.completed,
            packs_partial: outcome.partial,
            commits_forgotten: forgotten,
            branches_incomplete: gaps.incomplete.iter().map(String::as_str).collect(),
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    let ui = cx.ui();
    match outcome.received_bytes {
        0 if gaps.is_any => {
            ui.status(format_args!("Nothing that {} has is missing", place.shown()))
        }
        0 => {
            ui.status(format_args!("Nothing to fetch: no object of the local commits is missing"));
            ui.hint("`snap pull` downloads new commits");
        }
        bytes => ui.status(format_args!(
            "Received {} from {}{}",
            ByteCount(bytes),
            place.shown(),
            push::pace(bytes, start.elapsed())
        )),
    }
    if outcome.partial > 0 {
        let packs = size::count(outcome.partial, "pack");
        ui.status(format_args!("Still incomplete here: {packs}"));
    }
    if forgotten > 0 {
        let commits = size::count(forgotten, "commit");
        let were = if forgotten == 1 { "was" } else { "were" };
        ui.status(format_args!(
            "{commits} {were} forgotten at {}, and cannot be fetched",
            place.shown()
        ));
    }
    let at = format!(" at {}", place.shown());
    gaps.collected.iter().for_each(|found| tell_collected(found, &at, cx));
    for (pointer, id) in &gaps.refs {
        tell_at_collected(pointer.clone(), *id, cx);
    }
    for branch in &gaps.incomplete {
        ui.status(format_args!("Branch {branch}{at} is incomplete here, and cannot be fetched"));
    }
    Ok(())
}
