//! `snap fetch`: bring what a store has left elsewhere.

use std::{
    ffi::{OsStr, OsString},
    sync::Arc,
    time::Instant,
};

use serde::Serialize;
use snap_core::{
    ops::absent::{Depth, Wanted},
    repo::Repo,
};
use snap_remote::{
    location::Location,
    transfer::fetch::{self, Outcome, What},
};

use crate::{
    commands::push,
    context::Context,
    remote::{Connection, LimitArgs, StatsJson},
    report::{CliError, Done},
    ui::{size, size::Size},
};

const EXAMPLES: &str = "\
Examples:
  snap fetch                      all that is not here yet
  snap fetch latest               what the last commit needs
  snap fetch origin v1.0:src      what a folder needs, from that remote";

/// Bring what a store has left elsewhere
///
/// A store that was cloned with --depth or --path, or whose clone was
/// interrupted, fetches the rest when it is needed. This brings it at once: all
/// of it, or what some snapshots, folders or files need, so that they can be
/// read without a network.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FetchArgs {
    /// Remote to fetch from, the usual one if not given; then snapshots, or
    /// folders or files in them
    #[arg(value_name = "REV[:PATH]")]
    what: Vec<OsString>,

    #[command(flatten)]
    limits: LimitArgs,
}

pub(crate) fn run(args: &FetchArgs, cx: &Context) -> Result<Done, CliError> {
    let (remote, revs) = divided(&args.what, cx)?;
    let mut connection = cx.connect(cx.remote(remote.into())?, &args.limits)?;
    let repo = cx.open_repo()?.with_distant(Arc::new(connection.packs(cx)?));
    let start = Instant::now();
    let whats = match revs {
        [] => vec![What::Everything],
        revs => revs.iter().map(|rev| wanted(rev, &repo, cx)).collect::<Result<_, _>>()?,
    };
    let mut total = Outcome::default();
    let progress = cx.progress();
    for what in &whats {
        let Connection { store, runtime, .. } = &mut connection;
        let outcome = fetch::run(repo.store(), store, what, (runtime, &progress));
        let outcome = outcome.map_err(|error| cx.remote_error(error))?;
        total.received_bytes += outcome.received_bytes;
        total.completed += outcome.completed;
        total.partial = outcome.partial;
    }
    drop(progress);
    tell(&total, (&connection, start), cx)?;
    Ok(Done::Well)
}

/// The remote that the first argument may name, and what follows.
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

fn wanted(rev: &OsStr, repo: &Repo, cx: &Context) -> Result<What, CliError> {
    let found = cx.resolve(repo, rev)?;
    if let Some(path) = &found.path {
        crate::snapshot::find(repo.store(), found.commit.tree, (&found.rev, path))?;
    }
    let paths = found.path.into_iter().filter(|path| !path.is_empty()).collect();
    Ok(What::Of(Wanted { commit: found.id, paths }, Depth::Commits(1)))
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
    stats: StatsJson,
}

fn tell(
    outcome: &Outcome,
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
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    let ui = cx.ui();
    match outcome.received_bytes {
        0 => ui.status(format_args!("Nothing to fetch: it is all here")),
        bytes => ui.status(format_args!(
            "Received {} from {}{}",
            Size(bytes),
            place.shown(),
            push::pace(bytes, start.elapsed())
        )),
    }
    if outcome.partial > 0 {
        let packs = size::count(outcome.partial, "pack");
        ui.status(format_args!("Of {packs} a part is still elsewhere only"));
    }
    Ok(())
}
