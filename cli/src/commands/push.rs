//! `snap push`: sends commits to a remote.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    repo::{Head, RefError, RefName, Repo, ref_name::RefKind},
};
use snap_remote::{
    peer::{INDEX, RemoteError, open},
    transfer::push::{self, AllowedMove, PushOptions, PushOutcome, PushedRef, RefUpdate},
};

use crate::{
    commands::{pull, refs, remaining::warn_of_returned},
    context::Context,
    remote::{Connection, LimitArgs, RemoteSpec, RemoteStatsJson, tracking},
    report::{CliError, CommandOutcome},
    ui::{size, size::ByteCount, text},
};

const EXAMPLES: &str = "\
Examples:
  snap push                        the current branch, to the default remote
  snap push origin main v1.0       a branch and a tag
  snap push --all --tags           all branches and tags
  snap push --dry-run              what would be sent
  snap push --force                overwrite newer commits of the remote
  snap push --delete old           delete a branch of the remote
  snap push --limit-upload 500K --stats
  snap push s3://bucket/project    a URL instead of a remote";

/// Send commits to a remote
///
/// Sends the missing objects, then moves the branch of the remote. Without --force, the branch is
/// only fast-forwarded, so commits of others are not lost. A missing store is created. To continue
/// an interrupted push, run it again; uploaded objects are not sent again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PushArgs {
    /// Remote or URL to push to; default: origin, or the only remote
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,

    /// Branches and tags to push; default: the current branch
    #[arg(value_name = "REF")]
    refs: Vec<String>,

    /// Push all branches
    #[arg(long)]
    all: bool,

    /// Push all tags
    #[arg(long)]
    tags: bool,

    /// Overwrite branches and tags on the remote
    #[arg(short, long)]
    force: bool,

    /// Branch or tag to delete on the remote; may be repeated
    #[arg(short, long, value_name = "REF", conflicts_with_all = ["refs", "all", "tags", "dry_run"])]
    delete: Vec<String>,

    /// Show what would be sent
    #[arg(short = 'n', long)]
    dry_run: bool,

    #[command(flatten)]
    limits: LimitArgs,
}

/// A ref of the remote that will be moved, with its new commit.
struct RefToPush {
    name: RefName,
    commit: CommitId,
}

/// The effect of a push on a ref of the remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum PushAction {
    Made,
    Moved,
    Forced,
    Same,
    Deleted,
    Rejected,
}

/// A ref of the remote before and after.
struct RefMove {
    name: RefName,
    old: Option<CommitId>,
    new: Option<CommitId>,
    action: PushAction,
    /// The reason why it did not move.
    error: Option<RemoteError>,
}

pub(crate) fn run(args: &PushArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    if !args.delete.is_empty() {
        return delete(args, cx);
    }
    let repo = cx.open_repo()?;
    let mut connection = cx.connect(cx.remote(args.remote.as_deref().into())?, &args.limits)?;
    cx.check_target(&connection)?;
    let update = |RefToPush { name, commit }| RefUpdate {
        name,
        commit,
        moves: if args.force { AllowedMove::Force } else { AllowedMove::Forward },
    };
    let refs = wanted(args, &repo)?.into_iter().map(update).collect();
    let options = PushOptions { refs, scratch: cx.scratch() };
    if args.dry_run {
        return dry_run(&options, (&repo, &mut connection), cx);
    }
    let start = Instant::now();
    let outcome = {
        let progress = cx.progress();
        let Connection { store, runtime, .. } = &mut connection;
        push::run(&repo, store, &options, runtime, &progress)
            .map_err(|error| cx.remote_error(error))?
    };
    let PushOutcome { refs, objects, sent_again, raw_bytes, sent_bytes, packs, resumed, mended } =
        outcome;
    let mut moved = moved(&repo, refs)?;
    for moved in moved.iter().filter(|moved| moved.error.is_none()) {
        note((&connection.place, &repo), &moved.name, moved.new, cx);
    }
    // A project whose `HEAD` is damaged cannot be opened. The push has succeeded all the same.
    if let Some(dir) = open::local_store(&connection.place.location)?
        && let Ok(there) = cx.open_at(&dir)
    {
        for RefMove { name, old, new, .. } in moved.iter().filter(|moved| moved.error.is_none()) {
            if let Some(new) = new.filter(|new| *old != Some(*new)) {
                warn_of_returned(&there, (Some(name), *old, new), cx)?;
            }
        }
    }
    let sent = Sent { objects, sent_again, raw_bytes, bytes: sent_bytes, packs, resumed, mended };
    print_result((&moved, &sent), &connection, start.elapsed(), cx)?;
    ended(&mut moved, cx)
}

/// Records the new value of a remote's ref here. If that fails, the push still succeeds, with a
/// warning.
fn note(place: (&RemoteSpec, &Repo), name: &RefName, at: Option<CommitId>, cx: &Context) {
    if let Err(error) = tracking::record_tracking_branch(place, name, at, cx) {
        let (place, name) = (place.0.shown(), name.short());
        cx.ui().warning(format_args!(
            "the tracking branch of {name} at {place} was not updated: {error}"
        ));
    }
}

/// Returns the result of the command: the first refused ref decides.
fn ended(moved: &mut [RefMove], cx: &Context) -> Result<CommandOutcome, CliError> {
    match moved.iter_mut().find_map(|moved| moved.error.take()) {
        Some(error) => Err(cx.remote_error(error)),
        None => Ok(CommandOutcome::Success),
    }
}

/// Converts the results of a push for the output.
fn moved(repo: &Repo, refs: Vec<PushedRef>) -> Result<Vec<RefMove>, CliError> {
    let each = |PushedRef { name, before: old, after, result }| {
        let action = match (old, &result) {
            (_, Err(_)) => PushAction::Rejected,
            (None, Ok(())) => PushAction::Made,
            (Some(old), Ok(())) if old == after => PushAction::Same,
            (Some(old), Ok(())) if is_forward(repo, old, after)? => PushAction::Moved,
            (Some(_), Ok(())) => PushAction::Forced,
        };
        Ok(RefMove { name, old, new: Some(after), action, error: result.err() })
    };
    refs.into_iter().map(each).collect()
}

/// Deletes refs of the remote; their objects stay. A URL needs no store here.
fn delete(args: &PushArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let repo = match cx.open_repo() {
        Err(CliError::NoStore | CliError::FolderDeleted) if args.remote.is_some() => None,
        repo => Some(repo?),
    };
    let connection = cx.connect(cx.remote(args.remote.as_deref().into())?, &args.limits)?;
    cx.check_target(&connection)?;
    let mut all = Vec::new();
    for text in &args.delete {
        let (name, old) = pull::first_of(names(text)?, cx, |name| {
            push::delete(&connection.store, name, None, &connection.runtime)
        })?;
        if let Some(repo) = &repo {
            note((&connection.place, repo), &name, None, cx);
        }
        all.push(RefMove { name, old, new: None, action: PushAction::Deleted, error: None });
    }
    print_result((&all, &Sent::default()), &connection, Duration::ZERO, cx)?;
    // The deletion succeeded, so errors of reading HEAD are ignored.
    if let Ok(head) = connection.runtime.block_on(connection.store.place().default_branch())
        && all.iter().any(|moved| moved.name == head)
    {
        let branch = head.short();
        cx.ui().warning(format_args!(
            "`{branch}` was the default branch there; new clones start with another one"
        ));
    }
    Ok(CommandOutcome::Success)
}

/// Lists the refs to push, with their local commits.
fn wanted(args: &PushArgs, repo: &Repo) -> Result<Vec<RefToPush>, CliError> {
    let mut wanted = Vec::new();
    for (asked, kind) in [(args.all, RefKind::Branch), (args.tags, RefKind::Tag)] {
        if asked {
            let all = repo.refs().list(kind)?.into_iter();
            wanted.extend(all.map(|(name, commit)| RefToPush { name, commit }));
        }
    }
    for text in &args.refs {
        wanted.push(named(text, repo)?);
    }
    if args.refs.is_empty() && !args.all && !args.tags {
        wanted.push(current(repo)?);
    }
    wanted.sort_by(|one, other| one.name.cmp(&other.name));
    wanted.dedup_by(|one, other| one.name == other.name);
    Ok(wanted)
}

/// Returns the current branch.
fn current(repo: &Repo) -> Result<RefToPush, CliError> {
    let Head::Branch(name) = repo.refs().head()? else { return Err(CliError::NoBranch) };
    match repo.refs().read(&name)? {
        Some(commit) => Ok(RefToPush { name, commit }),
        None => Err(snap_core::repo::SpecError::Unborn { branch: name }.into()),
    }
}

/// Lists the refs that a text may name, in order of precedence.
pub(crate) fn names(text: &str) -> Result<Vec<RefName>, CliError> {
    let short = text.strip_prefix("refs/").unwrap_or(text);
    Ok(match short.split_once('/') {
        Some(("heads", name)) => vec![RefName::branch(name)?],
        Some(("tags", name)) => vec![RefName::tag(name)?],
        _ => vec![RefName::branch(text)?, RefName::tag(text)?],
    })
}

fn named(text: &str, repo: &Repo) -> Result<RefToPush, CliError> {
    let names = names(text)?;
    for name in &names {
        if let Some(commit) = repo.refs().read(name)? {
            return Ok(RefToPush { name: name.clone(), commit });
        }
    }
    let [name, ..] = names.as_slice() else { return Err(CliError::NoBranch) };
    Err(RefError::Unknown { name: name.clone() }.into())
}

/// Returns true if the move is a fast-forward, which loses no commits.
fn is_forward(repo: &Repo, old: CommitId, new: CommitId) -> Result<bool, CliError> {
    Ok(repo.store().knows(&old)? && refs::is_before(repo, old, new)?)
}

/// The totals of a push of all refs.
#[derive(Default)]
struct Sent {
    objects: u64,
    /// Objects that the remote had before and lost.
    sent_again: u64,
    raw_bytes: u64,
    bytes: u64,
    packs: u64,
    resumed: u64,
    /// Other files of the remote that were lost or damaged, and were repaired.
    mended: Vec<String>,
}

#[derive(Serialize)]
struct PushedJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    refs: Vec<PushedRefJson<'a>>,
    objects: u64,
    objects_sent_again: u64,
    bytes: u64,
    bytes_sent: u64,
    packs: u64,
    packs_resumed: u64,
    mended: &'a [String],
    stats: RemoteStatsJson,
}

#[derive(Serialize)]
struct PlanJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    refs: Vec<PushedRefJson<'a>>,
    objects: u64,
    bytes: u64,
    bytes_to_send: u64,
    packs: u64,
    stats: RemoteStatsJson,
}

/// A ref of the remote before and after.
#[derive(Serialize)]
struct PushedRefJson<'a> {
    name: &'a str,
    kind: &'static str,
    action: PushAction,
    old: Option<String>,
    new: Option<String>,
    error: Option<String>,
}

impl<'a> PushedRefJson<'a> {
    fn of(moved: &'a [RefMove]) -> Vec<Self> {
        let id = |id: CommitId| id.to_string();
        let each = |moved: &'a RefMove| Self {
            name: moved.name.short(),
            kind: moved.name.kind().noun(),
            action: moved.action,
            old: moved.old.map(id),
            new: moved.new.map(id),
            error: moved.error.as_ref().map(ToString::to_string),
        };
        moved.iter().map(each).collect()
    }
}

/// Reports what a push would do.
fn dry_run(
    options: &PushOptions<'_>,
    (repo, connection): (&Repo, &mut Connection),
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let plan = {
        let progress = cx.progress();
        let Connection { store, runtime, .. } = connection;
        push::plan(repo, store, options, runtime, &progress)
            .map_err(|error| cx.remote_error(error))?
    };
    let place = &connection.place;
    let mut moved = moved(repo, plan.refs)?;
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&PlanJson {
            version: 1,
            r#type: "would-push",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            refs: PushedRefJson::of(&moved),
            objects: plan.objects,
            bytes: plan.raw_bytes,
            bytes_to_send: plan.bytes,
            packs: plan.packs,
            stats: cx.stats(),
        })?;
    } else {
        for moved in &moved {
            writeln!(out, "{}", line(moved))?;
        }
        writeln!(out, "objects   {}", size::grouped(plan.objects))?;
        writeln!(
            out,
            "bytes     {} in {}",
            ByteCount(plan.bytes),
            size::count(plan.packs, "pack")
        )?;
    }
    out.finish()?;
    ended(&mut moved, cx)
}

fn print_result(
    (moved, sent): (&[RefMove], &Sent),
    connection: &Connection,
    took: Duration,
    cx: &Context,
) -> Result<(), CliError> {
    let place = &connection.place;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&PushedJson {
            version: 1,
            r#type: "pushed",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            refs: PushedRefJson::of(moved),
            objects: sent.objects,
            objects_sent_again: sent.sent_again,
            bytes: sent.raw_bytes,
            bytes_sent: sent.bytes,
            packs: sent.packs,
            packs_resumed: sent.resumed,
            mended: &sent.mended,
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    let ui = cx.ui();
    moved.iter().for_each(|moved| ui.status(format_args!("{}", line(moved))));
    let stand = moved.iter().all(|moved| moved.action == PushAction::Same);
    report_repaired_files(&sent.mended, cx);
    if !moved.is_empty() && stand && sent.objects == 0 && sent.mended.is_empty() {
        ui.status(format_args!("Nothing to push: {} is up to date", place.shown()));
    } else if sent.objects > 0 {
        ui.status(format_args!(
            "Sent {}, {}, to {}{}",
            size::count(sent.objects, "object"),
            ByteCount(sent.bytes),
            place.shown(),
            pace(sent.bytes, took),
        ));
    }
    if sent.sent_again > 0 {
        let objects = size::count(sent.sent_again, "object");
        ui.status(format_args!("Sent {objects} again that had been lost there"));
    }
    if sent.resumed > 0 {
        ui.status(format_args!("Already uploaded: {}", size::count(sent.resumed, "pack")));
    }
    Ok(())
}

/// Formats a ref, such as `main -> main 1234abcd..5678ef01`.
fn line(RefMove { name, old, new, action, error }: &RefMove) -> String {
    let short = text::line(name.short().as_bytes());
    let id = |id: &Option<CommitId>| id.map(|id| format!("{id:.12}")).unwrap_or_default();
    let (old, new) = (id(old), id(new));
    let what = match action {
        PushAction::Made => format!("new {} at {new}", name.kind().noun()),
        PushAction::Moved => format!("{old}..{new}"),
        PushAction::Forced => format!("{old}...{new}, forced"),
        PushAction::Same => format!("is at {new}"),
        PushAction::Deleted if old.is_empty() => {
            return format!("{short}  deleted; it was damaged");
        }
        PushAction::Deleted => return format!("{short}  deleted; it was at {old}"),
        PushAction::Rejected => match (error, old.as_str()) {
            (Some(RemoteError::Service(error)), _) if error.reason.is_settled() => {
                format!("rejected: {}", text::line(error.why().as_bytes()))
            }
            // The server may have moved the ref although its response was lost or cancelled.
            (Some(RemoteError::Service(_)), "") => {
                format!(
                    "may have been created at {new}: the connection broke before the server \
                         replied"
                )
            }
            (Some(RemoteError::Service(_)), old) => {
                format!(
                    "may have moved from {old} to {new}: the connection broke before the \
                         server replied"
                )
            }
            (Some(RemoteError::Damaged { .. }), _) => "rejected: it is damaged there".to_owned(),
            (_, "") => "rejected: it does not exist there".to_owned(),
            (_, old) => {
                format!("rejected: the remote has commits that you do not have (it is at {old})")
            }
        },
    };
    format!("{short} -> {short}  {what}")
}

/// Shorter durations are not shown.
const LEAST_SECONDS: f64 = 0.1;

/// Formats a duration and a rate; empty if they mean nothing.
pub(crate) fn pace(bytes: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    if bytes == 0 || seconds < LEAST_SECONDS {
        return String::new();
    }
    let rate = ByteCount((bytes as f64 / seconds) as u64);
    format!(", {rate}/s in {seconds:.1} s")
}

/// Reports the files of a remote, other than packs, that were repaired.
pub(super) fn report_repaired_files(keys: &[String], cx: &Context) {
    for key in keys {
        let key = text::line(key.as_bytes());
        let or_gone = match key.starts_with(INDEX) {
            true => ", or removed after its packs were listed again",
            false => "",
        };
        cx.ui().status(format_args!("{key} was lost or damaged there, and was repaired{or_gone}"));
    }
}
