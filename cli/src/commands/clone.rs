//! `snap clone`: a store and a folder, made from a store elsewhere.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, io::PathError},
    disk::Disk,
    ops::restore::{self, Outcome as Restored, What},
    repo::{
        Config, Head, RefName, Repo,
        config::{
            FILE,
            edit::Edit,
            key::KeyPath,
            layer::Whose,
        },
        open::{STORE_FOLDER, read_config_file, write_config},
        ref_name::RefKind,
    },
};
use snap_remote::{
    store::RemoteError,
    transfer::pull::{self, Outcome},
};

use crate::{
    commands::{push, remote::option},
    context::Context,
    remote::{Connection, LimitArgs, Place, StatsJson, USUAL, tracking},
    report::{CliError, Done},
    ui::{size, size::Size, text},
};

const EXAMPLES: &str = "\
Examples:
  snap clone s3://bucket/project                    into ./project
  snap clone s3://bucket/project work --ref v1.0    as it was at a tag
  snap clone s3://bucket/project --option endpoint=https://minio.example
  snap clone file:///mnt/usb/project . --no-restore";

/// Make a store and a folder from a store elsewhere
///
/// DIR must be empty or not there yet. The store in it has the whole history of
/// a branch, the remote is called `origin`, and the files of the last commit are
/// restored. If it fails before the history is there, nothing is left of it;
/// later the store is whole, and `snap restore` brings the files.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CloneArgs {
    /// Location to clone
    url: String,

    /// Folder to make; named as the end of the location if not given
    dir: Option<PathBuf>,

    /// Branch or tag to clone; `main`, else the only branch, if not given
    #[arg(long = "ref", value_name = "NAME")]
    name: Option<String>,

    /// Option of the location; may be repeated
    #[arg(short, long, value_name = "OPTION=VALUE", value_parser = option)]
    option: Vec<(String, String)>,

    /// Make the store only, without the files
    #[arg(long)]
    no_restore: bool,

    #[command(flatten)]
    limits: LimitArgs,
}

pub(crate) fn run(args: &CloneArgs, cx: &Context) -> Result<Done, CliError> {
    let place = Place::of_url(&args.url, args.option.iter().cloned().collect())?;
    let dir = dir(args, &place)?;
    let made = Made::begin(&dir)?;
    let start = Instant::now();
    let store = dir.join(STORE_FOLDER);
    let config = Config { chunk: cx.settings().config()?.chunk, ..Config::default() };
    Repo::init(&store, &Disk::default(), &config)?;
    remember(&store, &place)?;
    let repo = cx.open_at(&store)?;
    let place = place.in_store(USUAL, &store);
    let mut connection = cx.connect(place, &args.limits)?;
    let (name, outcome) = fetch(args, &repo, &mut connection, cx)?;
    tracking::saw((&connection.place, &repo), &name, Some(outcome.commit), cx)?;
    point(&repo, &name, outcome.commit, &connection, cx)?;
    // From here on it is worth keeping.
    made.keep();
    let took = start.elapsed();
    let restored = match args.no_restore {
        true => None,
        false => Some(restore(&repo, outcome.commit, &dir, cx)?),
    };
    tell((&dir, &name), (&outcome, restored.as_ref()), (&connection, took), cx)?;
    Ok(match restored {
        Some(restored) if restored.not_made > 0 => Done::Skipped,
        _ => Done::Well,
    })
}

fn dir(args: &CloneArgs, place: &Place) -> Result<PathBuf, CliError> {
    if let Some(dir) = &args.dir {
        return Ok(dir.clone());
    }
    let location = &place.location;
    let last = location.path.rsplit('/').find(|part| !part.is_empty());
    let last = last.unwrap_or(&location.authority);
    match last {
        "" | "." | ".." => Err(CliError::Usage("the location gives no name: name a folder")),
        last => Ok(PathBuf::from(last)),
    }
}

/// What was made so far; taken away again unless it is kept.
struct Made {
    dir: PathBuf,
    /// Whether the folder itself is new.
    is_new: bool,
    is_kept: bool,
}

impl Made {
    fn begin(dir: &Path) -> Result<Self, CliError> {
        let first = fs_err::read_dir(dir).map(|mut entries| entries.next());
        let is_new = match first {
            Ok(None) => false,
            Ok(Some(_)) => return Err(CliError::NotEmpty { path: dir.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(CliError::NotEmpty { path: dir.to_owned() });
            }
            Err(error) => return Err(PathError::when("read", dir)(error).into()),
        };
        if is_new {
            Disk::default().create_folders(dir)?;
        }
        Ok(Self { dir: dir.to_owned(), is_new, is_kept: false })
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // What cannot be removed now can be later, by hand.
        let _ = fs_err::remove_dir_all(self.dir.join(STORE_FOLDER));
        if self.is_new {
            let _ = fs_err::remove_dir(&self.dir);
        }
    }
}

/// Writes where the store came from into its settings.
fn remember(store: &Path, place: &Place) -> Result<(), CliError> {
    let (path, mut text) = (store.join(FILE), read_config_file(store)?.text);
    let url = place.location.to_string();
    let options = place.options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in std::iter::once(("url", url.as_str())).chain(options) {
        let edit = Edit { text: &text, path: &path, whose: Whose::Store };
        text = edit.set(&KeyPath::new(["remote", USUAL, key]), value)?;
    }
    write_config(store, &Disk::default(), &text).map_err(CliError::Settings)
}

/// Fetches the ref that was named, else the branch that is meant.
fn fetch(
    args: &CloneArgs,
    repo: &Repo,
    connection: &mut Connection,
    cx: &Context,
) -> Result<(RefName, Outcome), CliError> {
    let names = match &args.name {
        Some(text) => push::names(text)?,
        None => vec![usual_branch(connection, cx)?],
    };
    let progress = cx.progress();
    let (remote, runtime) = connection.parts();
    let level = repo.config().compression.level;
    let mut missing = None;
    for name in names {
        match pull::run(repo.store(), remote, (&name, level), (&runtime, &progress)) {
            Ok(outcome) => return Ok((name, outcome)),
            Err(error @ RemoteError::NoRef { .. }) => {
                missing.get_or_insert(error);
            }
            Err(error) => return Err(cx.remote_error(error)),
        }
    }
    Err(missing.map_or(CliError::NoBranch, CliError::from))
}

/// `main`, else the only branch that is there.
fn usual_branch(connection: &mut Connection, cx: &Context) -> Result<RefName, CliError> {
    let (remote, runtime) = connection.parts();
    let prefix = format!("refs/{}/", RefKind::Branch.folder());
    let listed = runtime.block_on(remote.client().list(&prefix));
    let listed = listed.map_err(|error| cx.remote_error(error.into()))?;
    let names = listed.iter().filter_map(|object| RefName::parse_full(&object.key));
    let names: Vec<_> = names.collect();
    let main = RefName::branch(snap_core::repo::open::FIRST_BRANCH)?;
    match names.as_slice() {
        [only] => Ok(only.clone()),
        names if names.is_empty() || names.contains(&main) => Ok(main),
        names => {
            let known = names.iter().map(|name| name.short().to_owned()).collect();
            Err(CliError::WhichBranch { known })
        }
    }
}

/// Lets the store stand where the clone begins: on a branch, or at a tag.
fn point(
    repo: &Repo,
    name: &RefName,
    commit: CommitId,
    connection: &Connection,
    cx: &Context,
) -> Result<(), CliError> {
    let head = repo.refs().head()?;
    let new = match name.kind() {
        RefKind::Branch => Head::Branch(name.clone()),
        _ => Head::Detached(commit),
    };
    let reason = format!("clone: {}", connection.place.location);
    cx.with_change(repo.config(), &reason, |change| {
        repo.refs().update(name, None, Some(commit), change)?;
        if head == new { Ok(()) } else { repo.refs().set_head(&head, &new, change) }
    })?;
    Ok(())
}

fn restore(
    repo: &Repo,
    commit: CommitId,
    dir: &Path,
    cx: &Context,
) -> Result<Restored, CliError> {
    let commit = repo.store().commit(&commit)?;
    let what = What::Folder { tree: commit.tree, root: commit.root };
    let options = restore::Options::default();
    Ok(restore::run(repo.store(), &what, dir, &options, &cx.progress())?)
}

#[derive(Serialize)]
struct ClonedJson<'a> {
    version: u32,
    r#type: &'static str,
    location: String,
    folder: String,
    name: &'a str,
    kind: &'static str,
    commit: String,
    objects: u64,
    bytes: u64,
    bytes_received: u64,
    files_written: Option<u64>,
    bytes_written: Option<u64>,
    stats: StatsJson,
}

fn tell(
    (dir, name): (&Path, &RefName),
    (outcome, restored): (&Outcome, Option<&Restored>),
    (connection, took): (&Connection, Duration),
    cx: &Context,
) -> Result<(), CliError> {
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&ClonedJson {
            version: 1,
            r#type: "cloned",
            location: connection.place.location.to_string(),
            folder: dir.to_string_lossy().into_owned(),
            name: name.short(),
            kind: name.kind().noun(),
            commit: outcome.commit.to_string(),
            objects: outcome.added.objects,
            bytes: outcome.added.raw_bytes,
            bytes_received: outcome.received_bytes,
            files_written: restored.map(|restored| restored.files_written),
            bytes_written: restored.map(|restored| restored.bytes_written),
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    let shown = text::line(dir.as_os_str().as_encoded_bytes());
    let ui = cx.ui();
    ui.status(format_args!(
        "Cloned {} into {shown}: {}, {}{}",
        connection.place.location,
        size::count(outcome.added.objects, "object"),
        Size(outcome.received_bytes),
        push::pace(outcome.received_bytes, took),
    ));
    if let Some(restored) = restored {
        let files = size::count(restored.files_written, "file");
        ui.status(format_args!("Restored {files}, {}", Size(restored.bytes_written)));
        if restored.not_made > 0 {
            let what = size::count(restored.not_made, "entry");
            ui.warning(format_args!("left out {what} that could not be made"));
        }
        for (what, count) in &restored.not_applied {
            let entries = size::count(*count, "entry");
            ui.warning(format_args!("could not set the {what} of {entries}"));
        }
    }
    let (short, commit) = (name.short(), outcome.commit);
    match name.kind() {
        RefKind::Branch => ui.status(format_args!("On branch {short} at {commit:.12}")),
        _ => ui.status(format_args!("At tag {short}, {commit:.12}; on no branch")),
    }
    Ok(())
}
