//! `snap gc`: deletes what no branch or tag reaches, here or at a remote.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;
use snap_core::{
    base::id::{CommitId, ObjectId},
    ops::{
        affected::Affected,
        gc::{self, GcOptions, GcOutcome, WaitingCommits},
    },
    repo::{Pointer, RefName},
};
use snap_remote::{
    gc::{OtherClients, RemoteGcOptions, RemoteGcOutcome},
    transfer::discard_received,
};

use crate::{
    commands::remaining::{RemainingPathJson, warn_of_paths},
    context::Context,
    remote::{LimitArgs, RemoteSpec, RemoteStatsJson},
    report::{CliError, CommandOutcome},
    serve_lock::served_around,
    ui::{
        VERSION, measure,
        size::{ByteCount, count},
        text, time,
    },
};

const EXAMPLES: &str = "\
Examples:
  snap gc                   delete what was deleted or undone some time ago
  snap gc -n                show what would be deleted
  snap gc --now             also delete what was stored in the last day or just forgotten
  snap gc --max-repack 5GB  copy at most 5 GB
  snap gc origin            delete what no branch or tag at a remote reaches
  snap gc origin --forgotten
                            also delete there what you forgot here

Keeps everything that a branch, a tag, a remote-tracking branch or HEAD reaches, and
what they reached in the last 7 days (`gc.undo`), so that `snap undo` still works.
Keeps packs of the last day (`gc.grace`), with everything that they refer to, because
a running commit may need them. A commit that runs at the same time is complete in
any case: it stores again what was deleted.

Other commands can run at the same time. A collection that is interrupted or killed
loses nothing; the next one finishes its work.

A pack of which a quarter is garbage is written again without the garbage. This needs
space on the disk until the old pack is deleted, and at a remote it is a download and an
upload; --max-repack limits it.

At a remote, only branches and tags count. Other clients can push, pull and clone at the
same time. WebDAV and SFTP need --exclusive. A snap server cannot be collected yet.

--forgotten deletes at the remote what only commits have that `snap forget` marked in
this store at least 7 days ago (`gc.undo`), or at any time with --now. They go from the
history of all branches there, and `snap undo` does not bring them back. A commit at a
branch or a tag of the remote stays.

Exits with 4 and deletes nothing if a commit, a folder or a content is missing or
damaged: run `snap repair` first. Exits with 1 if contents stay that `snap rewrite`
removed, and names the branches, tags and paths that still have them; also with 1 if
the disk is too full to rewrite packs.

A server serves a store read-only once something was deleted in it. So `snap gc` refuses
a store that `snap serve` has open, unless --yes is given.";

/// Delete what no branch or tag reaches
///
/// Deletes packs of the local store that only deleted branches, undone commits and interrupted
/// commands used, and writes other packs again without such data; with a remote, there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GcArgs {
    /// Remote or URL whose garbage is deleted; default: the local store
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,

    /// Also delete what was stored in the last day, and what was just forgotten
    #[arg(long)]
    now: bool,

    /// Show what would be deleted; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Most bytes of packs to write again, such as 5GB
    #[arg(long, value_name = "SIZE", value_parser = measure::size)]
    max_repack: Option<u64>,

    /// Also delete at the remote the commits that were forgotten in this store
    #[arg(long, requires = "remote")]
    forgotten: bool,

    /// Collect a remote without conditional writes: no other client pushes there meanwhile
    #[arg(long, requires = "remote")]
    exclusive: bool,

    /// Collect a store that `snap serve` serves; the server then serves it read-only
    #[arg(short, long, conflicts_with = "remote")]
    yes: bool,

    #[command(flatten)]
    limits: LimitArgs,
}

pub(crate) fn run(args: &GcArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    if let Some(remote) = &args.remote {
        return run_remote(remote, args, cx);
    }
    let repo = cx.open_repo()?;
    if !args.yes
        && !args.dry_run
        && let Some(place) = served_around(repo.dir())
    {
        return Err(CliError::GcServed { place: text::line(place.as_os_str().as_encoded_bytes()) });
    }
    let settings = cx.settings_of(repo.dir())?;
    let grace = match args.now {
        true => Duration::ZERO,
        false => settings.duration("gc.grace"),
    };
    let undo = settings.duration("gc.undo");
    let options = GcOptions {
        dry_run: args.dry_run,
        undo,
        undo_of_forget: if args.now { Duration::ZERO } else { undo },
        grace,
        max_rewritten_bytes: args.max_repack,
        present: cx.now(),
    };
    let outcome = gc::run(&repo, &options, &cx.progress())?;
    if !args.dry_run && !repo.store().rewrites()?.is_empty() {
        // A pull that was killed may have received what a rewrite has purged.
        discard_received(repo.store())?;
    }
    let waiting = gc::waiting(repo.store(), options.undo_of_forget, options.present)?;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&GcJson::new(&outcome, waiting, args.dry_run))?;
        out.finish()?;
    }
    summarize(&outcome, args, cx);
    if let Some(WaitingCommits { commits, until }) = waiting {
        let wait = if commits == 1 { "waits" } else { "wait" };
        let commits = count(commits, "forgotten commit");
        cx.ui().status(format_args!(
            "{commits} {wait} until {}; `--now` deletes them at once",
            time::local(until)
        ));
    }
    let is_left = outcome.left_purged_objects > 0 || outcome.needed_bytes > 0;
    Ok(match is_left && !args.dry_run || !outcome.remaining.is_empty() {
        true => CommandOutcome::Different,
        false => CommandOutcome::Success,
    })
}

/// Collects the garbage of a remote.
fn run_remote(remote: &str, args: &GcArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let mut connection = cx.connect(cx.remote(Some(remote).into())?, &args.limits)?;
    let settings = cx.settings_here()?.0;
    let grace = match args.now {
        true => Duration::ZERO,
        false => settings.duration("gc.grace"),
    };
    let options = RemoteGcOptions {
        dry_run: args.dry_run,
        others: if args.exclusive { OtherClients::DoNotPush } else { OtherClients::MayPush },
        grace,
        max_rewritten_bytes: args.max_repack,
        purged: removed_here(cx)?,
        forgotten: if args.forgotten { forgotten_here(args, cx)? } else { BTreeSet::new() },
        level: settings.config()?.compression_level,
    };
    let progress = cx.progress();
    let outcome = snap_remote::gc::run(&mut connection.store, &options, &cx.waiting()?, &progress);
    let outcome = outcome.map_err(|error| cx.remote_error(error))?;
    drop(progress);
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&RemoteGcJson {
            version: VERSION,
            r#type: "collected-remote",
            remote: connection.place.name.as_deref(),
            location: connection.place.location.to_string(),
            dry_run: args.dry_run,
            packs: outcome.packs,
            bytes: outcome.bytes,
            deleted_packs: outcome.deleted_packs,
            deleted_bytes: outcome.deleted_bytes,
            rewritten_packs: outcome.rewritten_packs,
            written_bytes: outcome.written_bytes,
            freed_bytes: outcome.freed_bytes(),
            purged_objects: outcome.purged_objects,
            left_purged_objects: outcome.left_purged_objects,
            remaining: outcome.remaining.refs.iter().map(RefName::short).collect(),
            remaining_paths: RemainingPathJson::of(&outcome.remaining.affected),
            forgotten_commits: outcome.forgotten_commits,
            young_packs: outcome.young_packs,
            left_objects: outcome.left_objects,
            left_bytes: outcome.left_bytes,
            early: outcome.is_early,
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    summarize_remote(&outcome, &connection.place, args, cx)?;
    Ok(match outcome.left_purged_objects > 0 && !args.dry_run || !outcome.remaining.is_empty() {
        true => CommandOutcome::Different,
        false => CommandOutcome::Success,
    })
}

fn summarize_remote(
    outcome: &RemoteGcOutcome,
    place: &RemoteSpec,
    args: &GcArgs,
    cx: &Context,
) -> Result<(), CliError> {
    let (ui, shown) = (cx.ui(), place.shown());
    let freed = ByteCount(outcome.freed_bytes());
    let deleted = count(outcome.deleted_packs - outcome.rewritten_packs, "pack");
    let cleaned = cleaned(outcome.rewritten_packs);
    match (outcome.deleted_packs, args.dry_run) {
        (0, _) if outcome.is_early => {
            ui.status(format_args!(
                "Nothing deleted at {shown}: another collection began minutes ago"
            ));
        }
        (0, _) => {
            let (packs, bytes) = (count(outcome.packs, "pack"), ByteCount(outcome.bytes));
            ui.status(format_args!("Nothing to delete at {shown}: {packs} with {bytes} stay"));
        }
        (_, false) => {
            ui.status(format_args!("Freed {freed} at {shown}: {deleted} deleted{cleaned}"));
        }
        (_, true) => {
            ui.status(format_args!(
                "Would free about {freed} at {shown}: {deleted} to delete{cleaned}"
            ));
            ui.status(format_args!("Dry run: nothing was changed"));
        }
    }
    if outcome.forgotten_commits > 0 {
        let verb = if args.dry_run { "Would forget" } else { "Forgot" };
        ui.status(format_args!("{verb} {} there", count(outcome.forgotten_commits, "commit")));
    }
    tell_left(outcome.left_bytes, cx);
    tell_purged(
        PurgedObjects {
            gone: outcome.purged_objects,
            left: outcome.left_purged_objects,
            refs: outcome.remaining.refs.iter().map(RefName::short).collect(),
            affected: &outcome.remaining.affected,
        },
        Some(&shown),
        args,
        cx,
    );
    let cost = cx.cost()?;
    let requests = count(cx.network().traffic().counts().requests(), "request");
    match cost.is_free() {
        true => ui.status(format_args!("{requests}")),
        false => ui.status(format_args!("{requests}, {cost}")),
    }
    if outcome.young_packs > 0 {
        let young = count(outcome.young_packs, "pack");
        ui.status(format_args!(
            "{young} are too new to delete; `--now` deletes them if nothing reaches them"
        ));
    } else if outcome.is_early {
        ui.hint("`--now` collects again");
    }
    Ok(())
}

/// The record of a collection of a remote.
#[derive(Serialize)]
struct RemoteGcJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    dry_run: bool,
    packs: u64,
    bytes: u64,
    deleted_packs: u64,
    deleted_bytes: u64,
    rewritten_packs: u64,
    written_bytes: u64,
    freed_bytes: u64,
    purged_objects: u64,
    left_purged_objects: u64,
    remaining: Vec<&'a str>,
    remaining_paths: Vec<RemainingPathJson>,
    forgotten_commits: u64,
    young_packs: u64,
    left_objects: u64,
    left_bytes: u64,
    early: bool,
    stats: RemoteStatsJson,
}

/// Returns the end of a line: the packs that are written again.
fn cleaned(packs: u64) -> String {
    match packs {
        0 => String::new(),
        packs => format!("; garbage in {}", count(packs, "other pack")),
    }
}

/// Returns the objects that rewrites of the local store have removed. Without a store, there are none.
fn removed_here(cx: &Context) -> Result<BTreeSet<ObjectId>, CliError> {
    match cx.open_repo() {
        Ok(repo) => Ok(repo.store().rewrites()?.removed().copied().collect()),
        Err(CliError::NoStore) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// Returns the commits that were forgotten in the local store, except those that `snap undo` can still
/// bring back.
fn forgotten_here(args: &GcArgs, cx: &Context) -> Result<BTreeSet<CommitId>, CliError> {
    let repo = cx.open_repo()?;
    let undo = match args.now {
        true => Duration::ZERO,
        false => cx.settings_of(repo.dir())?.duration("gc.undo"),
    };
    Ok(gc::forgotten_before(repo.store(), undo, cx.now()))
}

/// What became of the objects that a rewrite removed.
struct PurgedObjects<'a> {
    gone: u64,
    /// Objects that stay, because packs could not be written again.
    left: u64,
    /// The branches and tags that still reach one.
    refs: Vec<&'a str>,
    affected: &'a Affected,
}

/// Reports what a rewrite has removed, and what of it stays.
fn tell_purged(purged: PurgedObjects<'_>, remote: Option<&str>, args: &GcArgs, cx: &Context) {
    let PurgedObjects { gone, left, refs, affected } = purged;
    if gone > 0 && refs.is_empty() {
        let verb = if args.dry_run { "would go" } else { "are gone" };
        let objects = count(gone, "object");
        cx.ui().status(format_args!("{objects} that `snap rewrite` removed {verb}"));
    }
    if left > 0 {
        let place = remote.map_or("on this disk".to_owned(), |remote| format!("at {remote}"));
        cx.ui().warning(format_args!(
            "{} that `snap rewrite` removed are still {place}; run `snap gc` again",
            count(left, "object")
        ));
    }
    if !refs.is_empty() {
        let place = remote.map(|remote| format!(" at {remote}")).unwrap_or_default();
        cx.ui().warning(format_args!(
            "branches or tags{place} still reach what `snap rewrite` removed: {}",
            refs.join(", ")
        ));
        warn_of_paths(affected, remote, cx);
    }
}

/// Returns the name of a ref, as a command takes it.
fn short(pointer: &Pointer) -> &str {
    pointer.name().map_or("HEAD", RefName::short)
}

/// Reports garbage that stays.
fn tell_left(bytes: u64, cx: &Context) {
    if bytes > 0 {
        cx.ui().status(format_args!(
            "{} of garbage stay in packs that are mostly in use",
            ByteCount(bytes)
        ));
    }
}

fn summarize(outcome: &GcOutcome, args: &GcArgs, cx: &Context) {
    let freed = ByteCount(outcome.freed_bytes());
    let deleted = count(outcome.deleted_packs - outcome.rewritten_packs, "pack");
    let cleaned = cleaned(outcome.rewritten_packs);
    match (outcome.deleted_packs, args.dry_run) {
        (0, _) => {
            let (packs, bytes) = (count(outcome.packs, "pack"), ByteCount(outcome.bytes));
            cx.ui().status(format_args!("Nothing to delete: {packs} with {bytes} are in use"));
        }
        (_, false) => {
            cx.ui().status(format_args!("Freed {freed}: {deleted} deleted{cleaned}"));
        }
        (_, true) => {
            cx.ui().status(format_args!("Would free about {freed}: {deleted} to delete{cleaned}"));
            cx.ui().status(format_args!("Dry run: nothing was changed"));
        }
    }
    tell_left(outcome.left_bytes, cx);
    tell_purged(
        PurgedObjects {
            gone: outcome.purged_objects,
            left: outcome.left_purged_objects,
            refs: outcome.remaining.refs.iter().map(short).collect(),
            affected: &outcome.remaining.affected,
        },
        None,
        args,
        cx,
    );
    if outcome.dropped_refs > 0 && !args.dry_run {
        cx.ui().status(format_args!(
            "Removed {} that reached them",
            count(outcome.dropped_refs, "remote-tracking ref")
        ));
    }
    if outcome.needed_bytes > 0 {
        let needed = ByteCount(outcome.needed_bytes);
        cx.ui().warning(format_args!(
            "the disk needs {needed} of free space to remove the garbage from other packs"
        ));
        cx.ui().hint(
            "free that space, or some of it for --max-repack SIZE, and run `snap gc` again\n\
             `snap forget` lets more commits go",
        );
    }
    if outcome.is_busy {
        cx.ui().status(format_args!(
            "Packs that another snap process reads were not written again; run `snap gc` later"
        ));
    }
}

/// The record of a collection.
#[derive(Serialize)]
struct GcJson<'a> {
    version: u32,
    r#type: &'static str,
    dry_run: bool,
    packs: u64,
    bytes: u64,
    deleted_packs: u64,
    deleted_bytes: u64,
    rewritten_packs: u64,
    written_bytes: u64,
    freed_bytes: u64,
    dead_objects: u64,
    left_bytes: u64,
    purged_objects: u64,
    left_purged_objects: u64,
    remaining: Vec<&'a str>,
    remaining_paths: Vec<RemainingPathJson>,
    dropped_refs: u64,
    busy: bool,
    needed_bytes: u64,
    waiting_commits: u64,
    waiting_until: Option<String>,
}

impl<'a> GcJson<'a> {
    fn new(outcome: &'a GcOutcome, waiting: Option<WaitingCommits>, dry_run: bool) -> Self {
        Self {
            version: VERSION,
            r#type: "collected",
            dry_run,
            packs: outcome.packs,
            bytes: outcome.bytes,
            deleted_packs: outcome.deleted_packs,
            deleted_bytes: outcome.deleted_bytes,
            rewritten_packs: outcome.rewritten_packs,
            written_bytes: outcome.written_bytes,
            freed_bytes: outcome.freed_bytes(),
            dead_objects: outcome.dead_objects,
            left_bytes: outcome.left_bytes,
            purged_objects: outcome.purged_objects,
            left_purged_objects: outcome.left_purged_objects,
            remaining: outcome.remaining.refs.iter().map(short).collect(),
            remaining_paths: RemainingPathJson::of(&outcome.remaining.affected),
            dropped_refs: outcome.dropped_refs,
            busy: outcome.is_busy,
            needed_bytes: outcome.needed_bytes,
            waiting_commits: waiting.map_or(0, |waiting| waiting.commits),
            waiting_until: waiting.map(|waiting| waiting.until.rfc3339()),
        }
    }
}
