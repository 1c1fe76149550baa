//! `snap pull`: bring commits from a store elsewhere.

use std::{
    ffi::OsString,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, name::EntryName},
    repo::{Head, RefName, Repo, ref_name::RefKind},
};
use snap_remote::{
    store::RemoteError,
    transfer::{
        partly::Part,
        pull::{self, Outcome},
    },
};

use crate::{
    commands::{commit::named, push, refs},
    context::Context,
    remote::{Connection, LimitArgs, StatsJson, tracking},
    report::{CliError, Done},
    ui::{size, size::Size},
};

const EXAMPLES: &str = "\
Examples:
  snap pull                       the current branch, from the usual remote
  snap pull origin main           the branch main
  snap pull origin v1.0           a tag
  snap pull --path src            only what a folder needs
  snap pull --force               give up what the branch here has more
  snap pull --limit-download 2M --stats
  snap pull s3://bucket/project main

No file of the project is touched. `snap diff` shows what is different from
them now, `snap restore latest --overwrite` brings them there.";

/// Bring commits from a store elsewhere
///
/// Fetches what is missing here, checks it, and moves the branch here forward.
/// A branch that has commits of its own stays where it is, unless --force is
/// given; the other's are then to be found as REMOTE/BRANCH. Files of the
/// project are not touched.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PullArgs {
    /// Remote or location to pull from; the usual one if not given
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,

    /// Branch or tag to pull; the current branch if not given
    #[arg(value_name = "REF")]
    name: Option<String>,

    /// Move the branch here even if it has commits that are not there
    #[arg(short, long)]
    force: bool,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

/// What of a ref is wanted.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct PartArgs {
    /// Commits to bring, the last one included; the rest comes when it is needed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,

    /// Path in the snapshots to bring, from their top; may be repeated, and the
    /// rest comes when it is needed
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<OsString>,
}

impl PartArgs {
    /// Returns the part to bring, its paths without `.` and empty names.
    ///
    /// # Errors
    /// [`CliError::NoPlace`] for a path that no snapshot has, and for the root.
    pub(crate) fn part(&self) -> Result<Part, CliError> {
        let plain = |path: &OsString| {
            let path = Path::new(path);
            let names = named(path.to_owned(), path)?.inside;
            Ok(names.iter().map(EntryName::as_bytes).collect::<Vec<_>>().join(&b'/'))
        };
        let paths = self.paths.iter().map(plain).collect::<Result<_, CliError>>()?;
        Ok(Part { depth: self.depth, paths })
    }
}

/// What became of the ref here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// It was not there.
    Made,
    /// It went forward.
    Moved,
    /// It went elsewhere, as was asked.
    Forced,
    /// It stands there already.
    Same,
    /// It has more than the one there.
    Ahead,
}

/// A ref here, before and after.
struct Moved {
    name: RefName,
    old: Option<CommitId>,
    new: CommitId,
    action: Action,
}

pub(crate) fn run(args: &PullArgs, cx: &Context) -> Result<Done, CliError> {
    let mut repo = cx.open_repo()?;
    let names = match &args.name {
        Some(text) => push::names(text)?,
        None => match repo.refs().head()? {
            Head::Branch(name) => vec![name],
            Head::Detached(_) => return Err(CliError::NoBranch),
        },
    };
    let mut connection = cx.connect(cx.remote(args.remote.as_deref().into())?, &args.limits)?;
    let start = Instant::now();
    let part = args.part.part()?;
    if !part.is_everything() || !repo.store().partial_packs().is_empty() {
        repo = repo.with_distant(Arc::new(connection.packs(cx)?));
    }
    let (name, outcome) = fetch(&repo, &mut connection, (names, &part), cx)?;
    let place = &connection.place;
    tracking::saw((place, &repo), &name, Some(outcome.commit), cx)?;
    let moved = advance((&repo, &connection), (&name, outcome.commit), args.force, cx)?;
    tell(&moved, (&outcome, &connection), start.elapsed(), cx)?;
    Ok(Done::Well)
}

/// Fetches the first of these refs that is there.
fn fetch(
    repo: &Repo,
    connection: &mut Connection,
    (names, part): (Vec<RefName>, &Part),
    cx: &Context,
) -> Result<(RefName, Outcome), CliError> {
    let progress = cx.progress();
    let level = repo.config().compression.level;
    let Connection { store, runtime, .. } = connection;
    first_of(names, cx, |name| {
        let options = pull::Options { name: name.clone(), level, part: part.clone() };
        pull::run(repo.store(), store, &options, (runtime, &progress))
    })
}

/// Does `work` with the first of these refs that is there.
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

/// Moves the ref here to where it stands there, if that goes forward.
fn advance(
    (repo, connection): (&Repo, &Connection),
    (name, new): (&RefName, CommitId),
    force: bool,
    cx: &Context,
) -> Result<Moved, CliError> {
    let old = repo.refs().read(name)?;
    let is_branch = name.kind() == RefKind::Branch;
    let action = match old {
        None => Action::Made,
        Some(old) if old == new => Action::Same,
        Some(old) if is_branch && refs::is_before(repo, old, new)? => Action::Moved,
        Some(old) if is_branch && refs::is_before(repo, new, old)? => Action::Ahead,
        Some(_) if force => Action::Forced,
        Some(_) => {
            let (noun, name) = (name.kind().noun(), name.short().to_owned());
            let remote = connection.place.shown();
            return Err(CliError::Diverged { noun, name, remote });
        }
    };
    let action = if force && action == Action::Ahead { Action::Forced } else { action };
    if matches!(action, Action::Made | Action::Moved | Action::Forced) {
        let reason = format!("pull: {}", connection.place.shown());
        cx.with_change(repo.config(), &reason, |change| {
            repo.refs().update(name, old, Some(new), change)
        })?;
    }
    Ok(Moved { name: name.clone(), old, new, action })
}

#[derive(Serialize)]
struct PulledJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    name: &'a str,
    kind: &'static str,
    action: Action,
    old: Option<String>,
    new: String,
    objects_new: u64,
    bytes_added: u64,
    bytes_stored: u64,
    bytes_received: u64,
    stats: StatsJson,
}

fn tell(
    moved: &Moved,
    (outcome, connection): (&Outcome, &Connection),
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
            Size(outcome.received_bytes),
            place.shown(),
            push::pace(outcome.received_bytes, took),
        ));
    }
    let is_here = matches!(moved.action, Action::Made | Action::Moved | Action::Forced);
    if is_here && moved.name.kind() == RefKind::Branch {
        cx.ui().status(format_args!(
            "No file was touched; `snap restore {} --overwrite --delete -n` lists what a restore \
             would change",
            crate::ui::text::word(moved.name.short().as_bytes())
        ));
    }
    Ok(())
}

fn line(Moved { name, old, new, action }: &Moved) -> String {
    let short = name.short();
    let old = old.map(|id| format!("{id:.12}")).unwrap_or_default();
    let what = match action {
        Action::Made => format!("new {} at {new:.12}", name.kind().noun()),
        Action::Moved => format!("{old}..{new:.12}"),
        Action::Forced => format!("{old}...{new:.12}, forced"),
        Action::Same => format!("is at {new:.12}, nothing is new"),
        Action::Ahead => format!("is at {old} and has more than there; `snap push` sends it"),
    };
    format!("{short} -> {short}  {what}")
}
