//! `snap fetch`: fetches objects that are missing locally.

use std::{
    ffi::{OsStr, OsString},
    sync::Arc,
    time::Instant,
};

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    ops::missing_objects::{FetchRequest, HistoryDepth},
    repo::{
        Repo,
        history::{History, Parents},
        roots::{RootChoice, Roots},
    },
};
use snap_remote::{
    location::Location,
    transfer::fetch::{self, FetchOutcome, FetchScope},
};

use crate::{
    commands::push,
    context::Context,
    remote::{Connection, LimitArgs, RemoteStatsJson},
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
/// some snapshots, folders or files. Exits with 3 if the remote lacks some of them, for example because
/// commits were forgotten there.
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
    let forgotten = match revs {
        [] => forgotten_elsewhere(&repo)?,
        _ => 0,
    };
    print_result((&total, forgotten), (&connection, start), cx)?;
    Ok(match revs.is_empty() && (total.partial > 0 || forgotten > 0) {
        true => CommandOutcome::Skipped,
        false => CommandOutcome::Success,
    })
}

/// Counts the commits of branches and tags that were forgotten at a remote and not in this store.
fn forgotten_elsewhere(repo: &Repo) -> Result<u64, CliError> {
    let tips: Vec<CommitId> =
        Roots::read(repo, RootChoice::Shared)?.commits().into_iter().collect();
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
    stats: RemoteStatsJson,
}

fn print_result(
    (outcome, forgotten): (&FetchOutcome, u64),
    (connection, start): (&Connection, Instant),
    cx: &Context,
) -> Result<(), CliError> {
    let place = &connection.place;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&FetchedJson {
            version: 1,
            r#type: "fetched",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            bytes_received: outcome.received_bytes,
            packs_completed: outcome.completed,
            packs_partial: outcome.partial,
            commits_forgotten: forgotten,
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    let ui = cx.ui();
    match outcome.received_bytes {
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
    Ok(())
}
