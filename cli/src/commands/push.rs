//! `snap push`: bring commits to a store elsewhere.

use std::time::{Duration, Instant};

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    repo::{Head, RefError, RefName, Repo, ref_name::RefKind},
};
use snap_remote::transfer::push;

use crate::{
    commands::refs,
    context::Context,
    remote::{Connection, LimitArgs, StatsJson, tracking},
    report::{CliError, Done},
    ui::{size, size::Size},
};

const EXAMPLES: &str = "\
Examples:
  snap push                        the current branch, to the usual remote
  snap push origin main v1.0       a branch and a tag
  snap push --all --tags           all of them
  snap push --dry-run              what would be sent, and what it costs
  snap push --force                give up what the branch there has more
  snap push --delete old           remove a branch there
  snap push --limit-upload 500K --stats
  snap push s3://bucket/project    without a name for it";

/// Bring commits to a store elsewhere
///
/// Sends what is missing there, then moves the branch. A branch there goes
/// forward only, unless --force is given; what somebody else pushed meanwhile
/// is never lost silently. Where there is no store yet, one is made. Interrupted
/// and run again, it goes on: what has arrived is not sent again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PushArgs {
    /// Remote or location to push to; the usual one if not given
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,

    /// Branches and tags to push; the current branch if not given
    #[arg(value_name = "REF")]
    refs: Vec<String>,

    /// Push all branches
    #[arg(long)]
    all: bool,

    /// Push all tags
    #[arg(long)]
    tags: bool,

    /// Move branches and tags there wherever they stand here
    #[arg(short, long)]
    force: bool,

    #[command(flatten)]
    limits: LimitArgs,
}

/// A ref that is to stand somewhere else there.
struct Wanted {
    name: RefName,
    commit: CommitId,
}

/// What became of a ref there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Made,
    Moved,
    Forced,
    Same,
}

/// A ref there, before and after.
struct Moved {
    name: RefName,
    old: Option<CommitId>,
    new: Option<CommitId>,
    action: Action,
}

/// What was sent for all refs together.
#[derive(Default)]
struct Sent {
    objects: u64,
    raw_bytes: u64,
    bytes: u64,
    packs: u64,
    resumed: u64,
    moved: Vec<Moved>,
}

pub(crate) fn run(args: &PushArgs, cx: &Context) -> Result<Done, CliError> {
    let repo = cx.open_repo()?;
    let wanted = wanted(args, &repo)?;
    let mut connection = cx.connect(cx.remote(args.remote.as_deref().into())?, &args.limits)?;
    let start = Instant::now();
    let mut sent = Sent::default();
    let result = send(args, (&repo, &mut connection), wanted, &mut sent, cx);
    // What has moved has moved, whatever came after it.
    for moved in &sent.moved {
        tracking::saw((&connection.place, &repo), &moved.name, moved.new, cx)?;
    }
    result?;
    tell(&sent, &connection, start.elapsed(), cx)?;
    Ok(Done::Well)
}

/// The refs that are to be pushed, and where they stand here.
fn wanted(args: &PushArgs, repo: &Repo) -> Result<Vec<Wanted>, CliError> {
    let mut wanted = Vec::new();
    for (asked, kind) in [(args.all, RefKind::Branch), (args.tags, RefKind::Tag)] {
        if asked {
            let all = repo.refs().list(kind)?.into_iter();
            wanted.extend(all.map(|(name, commit)| Wanted { name, commit }));
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

/// The branch that commits go to.
fn current(repo: &Repo) -> Result<Wanted, CliError> {
    let Head::Branch(name) = repo.refs().head()? else { return Err(CliError::NoBranch) };
    match repo.refs().read(&name)? {
        Some(commit) => Ok(Wanted { name, commit }),
        None => Err(snap_core::repo::SpecError::Unborn { branch: name }.into()),
    }
}

/// The names that a text may be meant to be, in order of preference.
pub(crate) fn names(text: &str) -> Result<Vec<RefName>, CliError> {
    let short = text.strip_prefix("refs/").unwrap_or(text);
    Ok(match short.split_once('/') {
        Some(("heads", name)) => vec![RefName::branch(name)?],
        Some(("tags", name)) => vec![RefName::tag(name)?],
        _ => vec![RefName::branch(text)?, RefName::tag(text)?],
    })
}

fn named(text: &str, repo: &Repo) -> Result<Wanted, CliError> {
    let names = names(text)?;
    for name in &names {
        if let Some(commit) = repo.refs().read(name)? {
            return Ok(Wanted { name: name.clone(), commit });
        }
    }
    let [name, ..] = names.as_slice() else { return Err(CliError::NoBranch) };
    Err(RefError::Unknown { name: name.clone() }.into())
}

fn send(
    args: &PushArgs,
    (repo, connection): (&Repo, &mut Connection),
    wanted: Vec<Wanted>,
    sent: &mut Sent,
    cx: &Context,
) -> Result<(), CliError> {
    let progress = cx.progress();
    let Connection { store: remote, runtime, .. } = connection;
    for Wanted { name, commit } in wanted {
        let options = push::Options {
            name: name.clone(),
            commit,
            moves: if args.force { push::Move::Force } else { push::Move::Forward },
            scratch: cx.scratch(),
        };
        let outcome = push::run(repo, remote, &options, (runtime, &progress))
            .map_err(|error| cx.remote_error(error))?;
        sent.objects += outcome.objects;
        sent.raw_bytes += outcome.raw_bytes;
        sent.bytes += outcome.sent_bytes;
        sent.packs += outcome.packs;
        sent.resumed += outcome.resumed;
        let action = match outcome.before {
            None => Action::Made,
            Some(old) if old == commit => Action::Same,
            Some(old) if is_forward(repo, old, commit)? => Action::Moved,
            Some(_) => Action::Forced,
        };
        sent.moved.push(Moved { name, old: outcome.before, new: Some(commit), action });
    }
    Ok(())
}

/// Whether nothing that is there is given up.
fn is_forward(repo: &Repo, old: CommitId, new: CommitId) -> Result<bool, CliError> {
    Ok(repo.store().locate(&old.object())?.is_some() && refs::is_before(repo, old, new)?)
}

#[derive(Serialize)]
struct PushedJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    refs: Vec<RefJson<'a>>,
    objects: u64,
    bytes: u64,
    bytes_sent: u64,
    packs: u64,
    packs_resumed: u64,
    stats: StatsJson,
}

/// A ref there, before and after.
#[derive(Serialize)]
struct RefJson<'a> {
    name: &'a str,
    kind: &'static str,
    action: Action,
    old: Option<String>,
    new: Option<String>,
}

fn tell(
    sent: &Sent,
    connection: &Connection,
    took: Duration,
    cx: &Context,
) -> Result<(), CliError> {
    let place = &connection.place;
    if cx.ui().is_json() {
        let id = |id: CommitId| id.to_string();
        let refs = sent.moved.iter().map(|moved| RefJson {
            name: moved.name.short(),
            kind: moved.name.kind().noun(),
            action: moved.action,
            old: moved.old.map(id),
            new: moved.new.map(id),
        });
        let mut out = cx.ui().out();
        out.json(&PushedJson {
            version: 1,
            r#type: "pushed",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            refs: refs.collect(),
            objects: sent.objects,
            bytes: sent.raw_bytes,
            bytes_sent: sent.bytes,
            packs: sent.packs,
            packs_resumed: sent.resumed,
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    for moved in &sent.moved {
        cx.ui().status(format_args!("{}", line(moved)));
    }
    if sent.moved.iter().all(|moved| moved.action == Action::Same) {
        cx.ui().status(format_args!("Nothing to push: {} has it all", place.shown()));
        return Ok(());
    }
    let objects = size::count(sent.objects, "object");
    match sent.objects {
        0 => cx.ui().status(format_args!("All objects were there already")),
        _ => cx.ui().status(format_args!(
            "Sent {objects}, {}, to {}{}",
            Size(sent.bytes),
            place.shown(),
            pace(sent.bytes, took),
        )),
    }
    if sent.resumed > 0 {
        let packs = size::count(sent.resumed, "pack");
        cx.ui().status(format_args!("{packs} had arrived before"));
    }
    Ok(())
}

/// Such as `main -> main  1234abcd..5678ef01`.
fn line(Moved { name, old, new, action }: &Moved) -> String {
    let short = name.short();
    let id = |id: &Option<CommitId>| id.map(|id| format!("{id:.12}")).unwrap_or_default();
    let (old, new) = (id(old), id(new));
    let what = match action {
        Action::Made => format!("new {} at {new}", name.kind().noun()),
        Action::Moved => format!("{old}..{new}"),
        Action::Forced => format!("{old}...{new}, forced"),
        Action::Same => format!("is at {new}"),
    };
    format!("{short} -> {short}  {what}")
}

/// How long something took and how fast it was, where that says anything.
pub(crate) fn pace(bytes: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    if bytes == 0 || seconds <= 0.0 {
        return String::new();
    }
    let rate = Size((bytes as f64 / seconds) as u64);
    format!(", {rate}/s in {seconds:.1} s")
}
