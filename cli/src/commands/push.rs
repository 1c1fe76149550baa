//! `snap push`: bring commits to a store elsewhere.

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
    service::traffic::Counts,
    store::{INDEX, RemoteError},
    transfer::push::{self, Move, Options, Outcome, Pushed, Update},
};

use crate::{
    commands::{pull, refs},
    context::Context,
    remote::{self, Connection, Cost, LimitArgs, Place, StatsJson, tracking},
    report::{CliError, Done},
    ui::{size, size::Size, text},
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

    /// Branch or tag to remove there; may be repeated
    #[arg(short, long, value_name = "REF", conflicts_with_all = ["refs", "all", "tags", "dry_run"])]
    delete: Vec<String>,

    /// Only tell what would be sent, and what it costs
    #[arg(short = 'n', long)]
    dry_run: bool,

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
    Deleted,
    Refused,
}

/// A ref there, before and after.
struct Moved {
    name: RefName,
    old: Option<CommitId>,
    new: Option<CommitId>,
    action: Action,
    /// Why it did not move.
    error: Option<RemoteError>,
}

pub(crate) fn run(args: &PushArgs, cx: &Context) -> Result<Done, CliError> {
    let repo = cx.open_repo()?;
    let mut connection = cx.connect(cx.remote(args.remote.as_deref().into())?, &args.limits)?;
    cx.check_target(&connection)?;
    if !args.delete.is_empty() {
        return delete(args, (&repo, &connection), cx);
    }
    let update = |Wanted { name, commit }| Update {
        name,
        commit,
        moves: if args.force { Move::Force } else { Move::Forward },
    };
    let refs = wanted(args, &repo)?.into_iter().map(update).collect();
    let options = Options { refs, scratch: cx.scratch() };
    if args.dry_run {
        return dry_run(&options, (&repo, &mut connection), cx);
    }
    let start = Instant::now();
    let outcome = {
        let progress = cx.progress();
        let Connection { store, runtime, .. } = &mut connection;
        push::run(&repo, store, &options, (runtime, &progress))
            .map_err(|error| cx.remote_error(error))?
    };
    let Outcome { refs, objects, sent_again, raw_bytes, sent_bytes, packs, resumed, mended } =
        outcome;
    let mut moved = moved(&repo, refs)?;
    for moved in moved.iter().filter(|moved| moved.error.is_none()) {
        note((&connection.place, &repo), &moved.name, moved.new, cx);
    }
    let sent = Sent { objects, sent_again, raw_bytes, bytes: sent_bytes, packs, resumed, mended };
    tell((&moved, &sent), &connection, start.elapsed(), cx)?;
    ended(&mut moved, cx)
}

/// Notes here where a ref stands there now. That it moved is told in any case.
fn note(place: (&Place, &Repo), name: &RefName, at: Option<CommitId>, cx: &Context) {
    if let Err(error) = tracking::saw(place, name, at, cx) {
        let (place, name) = (place.0.shown(), name.short());
        cx.ui().warning(format_args!("where {name} stands at {place} is not noted here: {error}"));
    }
}

/// How the command ends: the first that was refused says why.
fn ended(moved: &mut [Moved], cx: &Context) -> Result<Done, CliError> {
    match moved.iter_mut().find_map(|moved| moved.error.take()) {
        Some(error) => Err(cx.remote_error(error)),
        None => Ok(Done::Well),
    }
}

/// What became of refs, as it is told.
fn moved(repo: &Repo, refs: Vec<Pushed>) -> Result<Vec<Moved>, CliError> {
    let each = |Pushed { name, before: old, after, result }| {
        let action = match (old, &result) {
            (_, Err(_)) => Action::Refused,
            (None, Ok(())) => Action::Made,
            (Some(old), Ok(())) if old == after => Action::Same,
            (Some(old), Ok(())) if is_forward(repo, old, after)? => Action::Moved,
            (Some(_), Ok(())) => Action::Forced,
        };
        Ok(Moved { name, old, new: Some(after), action, error: result.err() })
    };
    refs.into_iter().map(each).collect()
}

/// Removes refs there; what they stood for stays.
fn delete(
    args: &PushArgs,
    (repo, connection): (&Repo, &Connection),
    cx: &Context,
) -> Result<Done, CliError> {
    let mut all = Vec::new();
    for text in &args.delete {
        let (name, old) = pull::first_of(names(text)?, cx, |name| {
            push::delete(&connection.store, name, None, &connection.runtime)
        })?;
        note((&connection.place, repo), &name, None, cx);
        all.push(Moved { name, old, new: None, action: Action::Deleted, error: None });
    }
    tell((&all, &Sent::default()), connection, Duration::ZERO, cx)?;
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

/// Whether nothing that is there is given up.
fn is_forward(repo: &Repo, old: CommitId, new: CommitId) -> Result<bool, CliError> {
    Ok(repo.store().locate(&old.object())?.is_some() && refs::is_before(repo, old, new)?)
}

/// What was sent for all refs together.
#[derive(Default)]
struct Sent {
    objects: u64,
    /// Objects among them that the remote had lost.
    sent_again: u64,
    raw_bytes: u64,
    bytes: u64,
    packs: u64,
    resumed: u64,
    /// What was lost or damaged besides, and is right again.
    mended: Vec<String>,
}

#[derive(Serialize)]
struct PushedJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    refs: Vec<RefJson<'a>>,
    objects: u64,
    objects_sent_again: u64,
    bytes: u64,
    bytes_sent: u64,
    packs: u64,
    packs_resumed: u64,
    mended: &'a [String],
    stats: StatsJson,
}

#[derive(Serialize)]
struct PlanJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    refs: Vec<RefJson<'a>>,
    objects: u64,
    bytes: u64,
    bytes_to_send: u64,
    packs: u64,
    requests: u64,
    requests_by_kind: serde_json::Map<String, serde_json::Value>,
    cost: f64,
    currency: String,
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
    error: Option<String>,
}

impl<'a> RefJson<'a> {
    fn of(moved: &'a [Moved]) -> Vec<Self> {
        let id = |id: CommitId| id.to_string();
        let each = |moved: &'a Moved| Self {
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

/// Tells what a push would do.
fn dry_run(
    options: &Options<'_>,
    (repo, connection): (&Repo, &mut Connection),
    cx: &Context,
) -> Result<Done, CliError> {
    let plan = {
        let progress = cx.progress();
        let Connection { store, runtime, .. } = connection;
        push::plan(repo, store, options, (runtime, &progress))
            .map_err(|error| cx.remote_error(error))?
    };
    let by_kind = plan.requests_by_kind;
    let counts = Counts { by_kind, bytes_sent: plan.bytes, ..Counts::default() };
    let cost = Cost::of(&counts, &cx.settings_here()?.0.prices());
    let (requests, place) = (plan.requests(), &connection.place);
    let mut moved = moved(repo, plan.refs)?;
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&PlanJson {
            version: 1,
            r#type: "would-push",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            refs: RefJson::of(&moved),
            objects: plan.objects,
            bytes: plan.raw_bytes,
            bytes_to_send: plan.bytes,
            packs: plan.packs,
            requests,
            requests_by_kind: remote::by_kind(&counts),
            cost: cost.amount(),
            currency: cost.currency().to_owned(),
            stats: cx.stats(),
        })?;
    } else {
        for moved in &moved {
            writeln!(out, "{}", line(moved))?;
        }
        writeln!(out, "objects   {}", size::grouped(plan.objects))?;
        writeln!(out, "bytes     {} in {}", Size(plan.bytes), size::count(plan.packs, "pack"))?;
        writeln!(out, "requests  {}", size::grouped(requests))?;
        writeln!(out, "cost      {cost}")?;
    }
    out.finish()?;
    ended(&mut moved, cx)
}

fn tell(
    (moved, sent): (&[Moved], &Sent),
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
            refs: RefJson::of(moved),
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
    let stand = moved.iter().all(|moved| moved.action == Action::Same);
    for key in &sent.mended {
        let key = text::line(key.as_bytes());
        let or_gone = match key.starts_with(INDEX) {
            true => ", or removed if nothing here knows what it named",
            false => "",
        };
        ui.status(format_args!("{key} was lost or damaged there, and is right again{or_gone}"));
    }
    if !moved.is_empty() && stand && sent.objects == 0 && sent.mended.is_empty() {
        ui.status(format_args!("Nothing to push: {} has it all", place.shown()));
    } else if sent.objects > 0 {
        ui.status(format_args!(
            "Sent {}, {}, to {}{}",
            size::count(sent.objects, "object"),
            Size(sent.bytes),
            place.shown(),
            pace(sent.bytes, took),
        ));
    }
    if sent.sent_again > 0 {
        let objects = size::count(sent.sent_again, "object");
        ui.status(format_args!("{objects} of them had been lost there, and were sent again"));
    }
    if sent.resumed > 0 {
        ui.status(format_args!("{} had arrived before", size::count(sent.resumed, "pack")));
    }
    Ok(())
}

/// Such as `main -> main  1234abcd..5678ef01`.
fn line(Moved { name, old, new, action, error }: &Moved) -> String {
    let short = name.short();
    let id = |id: &Option<CommitId>| id.map(|id| format!("{id:.12}")).unwrap_or_default();
    let (old, new) = (id(old), id(new));
    let what = match action {
        Action::Made => format!("new {} at {new}", name.kind().noun()),
        Action::Moved => format!("{old}..{new}"),
        Action::Forced => format!("{old}...{new}, forced"),
        Action::Same => format!("is at {new}"),
        Action::Deleted if old.is_empty() => return format!("{short}  deleted, it was damaged"),
        Action::Deleted => return format!("{short}  deleted, it was at {old}"),
        // A reply may have been lost, or not been waited for.
        Action::Refused if matches!(error, Some(RemoteError::Service(_))) => match old.as_str() {
            "" => format!("it was not there, and may be at {new} now"),
            old => format!("it was at {old}, and may be at {new} now"),
        },
        Action::Refused if matches!(error, Some(RemoteError::Damaged { .. })) => {
            "refused: it is damaged there".to_owned()
        }
        Action::Refused => match old.as_str() {
            "" => format!("refused: it is not there, and not at {new}"),
            old => format!("refused: it is at {old}, not at {new}"),
        },
    };
    format!("{short} -> {short}  {what}")
}

/// What takes less is not worth a word.
const LEAST_SECONDS: f64 = 0.1;

/// How long something took and how fast it was, where that says anything.
pub(crate) fn pace(bytes: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    if bytes == 0 || seconds < LEAST_SECONDS {
        return String::new();
    }
    let rate = Size((bytes as f64 / seconds) as u64);
    format!(", {rate}/s in {seconds:.1} s")
}
