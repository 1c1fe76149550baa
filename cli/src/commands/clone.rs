//! `snap clone`: a store and a folder, made from a store elsewhere.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, io::PathError, observe::Observer},
    disk::Disk,
    ops::restore::{self, Outcome as Restored, What},
    repo::{
        Config, Head, RefName, Repo,
        config::{FILE, edit::Edit, key::KeyPath, layer::Whose},
        open::{STORE_FOLDER, read_config_file, write_config},
        path::{PathInTreeError, resolve_path},
        ref_name::RefKind,
    },
};
use snap_remote::{
    store::RemoteError,
    transfer::clone::{self, From, Options, Outcome},
};

use crate::{
    commands::{config, pull::PartArgs, push, remote::option},
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
  snap clone s3://bucket/huge --depth 1 --path src  the rest when it is needed
  snap clone file:///mnt/usb/project . --no-restore
  snap clone ../project copy                        from the project in that folder";

/// Make a store and a folder from a store elsewhere
///
/// DIR must be empty or not there yet. The store in it has all that is there, the
/// remote is called `origin`, and the files of the last commit are restored while
/// the rest still arrives. If it fails before the first commit is there, nothing
/// is left of it; later, what has come is kept, and `snap fetch` brings the rest.
/// With --depth or --path the rest is fetched when it is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CloneArgs {
    /// Location or folder to clone
    url: String,

    /// Folder to make; named as the end of the location if not given
    dir: Option<PathBuf>,

    /// Branch or tag to begin with; the default branch there if not given
    #[arg(long = "ref", value_name = "NAME")]
    name: Option<String>,

    /// Option of the location; may be repeated
    #[arg(short, long, value_name = "OPTION=VALUE", value_parser = option)]
    option: Vec<(String, String)>,

    /// Make the store only, without the files
    #[arg(long)]
    no_restore: bool,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

pub(crate) fn run(args: &CloneArgs, cx: &Context) -> Result<Done, CliError> {
    let place = Place::of_url(&args.url, args.option.iter().cloned().collect())?;
    let dir = dir(args, &place)?;
    let mut made = Made::begin(&dir)?;
    let start = Instant::now();
    let cloned = clone(args, place, (&dir, &mut made), cx);
    let Cloned { connection, outcome, restored } = cloned.map_err(|source| {
        if !made.is_kept {
            return source;
        }
        let folder = text::line(dir.as_os_str().as_encoded_bytes()).to_string();
        CliError::Cloned { folder, source: Box::new(source) }
    })?;
    tell((&dir, &outcome), restored.as_ref(), (&connection, start.elapsed()), cx)?;
    if let Some(error) = &outcome.damaged_head {
        let branch = outcome.default_branch.short();
        cx.ui().warning(format_args!("{error}; `{branch}` is taken for the default branch"));
    }
    for error in &outcome.damaged_refs {
        cx.ui().warning(format_args!("{error}; it was left out"));
    }
    Ok(match restored {
        _ if !outcome.damaged_refs.is_empty() => Done::Damaged,
        Some(restored) if !restored.is_complete() => Done::Skipped,
        _ => Done::Well,
    })
}

/// What came of it.
struct Cloned {
    connection: Connection,
    outcome: Outcome,
    restored: Option<Restored>,
}

fn clone(
    args: &CloneArgs,
    place: Place,
    (dir, made): (&Path, &mut Made),
    cx: &Context,
) -> Result<Cloned, CliError> {
    let store = dir.join(STORE_FOLDER);
    let config = Config { chunk: cx.settings().config()?.chunk, ..Config::default() };
    Repo::init(&store, &Disk::default(), &config)?;
    made.has_store = true;
    remember(&store, &place, cx)?;
    let mut connection = cx.connect(place.in_store(USUAL, &store), &args.limits)?;
    let packs = connection.packs(cx)?;
    let repo = cx.open_at(&store)?.with_distant(Arc::new(packs.clone()));
    let names = match &args.name {
        Some(text) => push::names(text)?.into_iter().map(Some).collect(),
        None => vec![None],
    };
    let (progress, place) = (cx.progress(), connection.place.clone());
    let Connection { store: remote, runtime, .. } = &mut connection;
    let mut missing = None;
    for name in names {
        let options = Options { name, part: args.part.part()? };
        let mut restored = None;
        let restore = |outcome: &Outcome| {
            let tree = repo.store().commit(&outcome.commit)?.tree;
            for path in &options.part.paths {
                if let Err(PathInTreeError::NotFound { .. } | PathInTreeError::NotAFolder { .. }) =
                    resolve_path(repo.store(), tree, path)
                {
                    let path = text::line(path).to_string();
                    let within = outcome.name.short().to_owned();
                    return Err(CliError::NotWithin { path, within });
                }
            }
            point(&repo, outcome, &place, cx)?;
            // From here on it is worth keeping.
            made.is_kept = true;
            repo.set_scope(&options.part.paths)?;
            if !args.no_restore {
                let only = options.part.paths.iter().map(|path| pattern(path)).collect();
                let target = (dir, made.is_new, only);
                restored = Some(restore(&repo, outcome.commit, target, &progress)?);
                repo.set_restored_base(&[outcome.commit])?;
            }
            Ok::<_, CliError>(())
        };
        let from = From { remote, packs: &packs };
        match clone::run(repo.store(), from, &options, restore, (runtime, &progress)) {
            Ok(outcome) => {
                drop(progress);
                return Ok(Cloned { connection, outcome, restored });
            }
            Err(CliError::Remote(error)) if matches!(*error, RemoteError::NoRef { .. }) => {
                missing.get_or_insert(*error);
            }
            Err(CliError::Remote(error)) => return Err(cx.remote_error(*error)),
            Err(error) => return Err(error),
        }
    }
    Err(missing.map_or(CliError::NoBranch, CliError::from))
}

fn dir(args: &CloneArgs, place: &Place) -> Result<PathBuf, CliError> {
    if let Some(dir) = &args.dir {
        return Ok(dir.clone());
    }
    let location = &place.location;
    // The store of a project is called as each is.
    let is_name = |part: &&str| !part.is_empty() && *part != STORE_FOLDER;
    let last = location.path.rsplit('/').find(is_name);
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
    /// True if the store in it is of this clone: another process may have made
    /// one since the folder was found empty.
    has_store: bool,
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
            let disk = Disk::default();
            let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
            above.map_or(Ok(()), |above| disk.create_folders(above))?;
            // Private until the attributes of the root are there.
            let made = DirBuilder::new().mode(0o700).create(dir);
            made.map_err(PathError::when("create folder", dir))?;
            disk.sync_folder(above.unwrap_or(Path::new(".")))?;
        }
        Ok(Self { dir: dir.to_owned(), is_new, has_store: false, is_kept: false })
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // What cannot be removed now can be later, by hand.
        if self.has_store {
            let _ = fs_err::remove_dir_all(self.dir.join(STORE_FOLDER));
        }
        if self.is_new {
            let _ = fs_err::remove_dir(&self.dir);
        }
    }
}

/// Writes where the store came from into its settings.
fn remember(store: &Path, place: &Place, cx: &Context) -> Result<(), CliError> {
    let (path, mut text) = (store.join(FILE), read_config_file(store)?.text);
    let url = place.location.to_string();
    let options = place.options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in std::iter::once(("url", url.as_str())).chain(options) {
        let edit = Edit { text: &text, path: &path, whose: Whose::Store };
        text = edit.set(&KeyPath::new(["remote", USUAL, key]), value)?;
    }
    write_config(store, &Disk::default(), &text).map_err(CliError::Settings)?;
    // The user named the place.
    config::trust_change(store, &text, cx)
}

/// Lets the store stand where the clone begins, on a branch or at a tag, and
/// notes where all else stands.
fn point(repo: &Repo, outcome: &Outcome, place: &Place, cx: &Context) -> Result<(), CliError> {
    let Outcome { name, commit, .. } = outcome;
    for (other, at) in &outcome.refs {
        // One that moved on after the index was read comes with the next pull.
        if repo.store().locate(&at.object())?.is_none() {
            continue;
        }
        tracking::saw((place, repo), other, Some(*at), cx)?;
        if other.kind() == RefKind::Tag && other != name {
            make(repo, (other, *at), place, cx)?;
        }
    }
    make(repo, (name, *commit), place, cx)?;
    let head = repo.refs().head()?;
    let new = match name.kind() {
        RefKind::Branch => Head::Branch(name.clone()),
        _ => Head::Detached(*commit),
    };
    if head != new {
        let reason = reason(place);
        cx.with_change(repo.config(), &reason, |change| repo.refs().set_head(&head, &new, change))?;
    }
    Ok(())
}

fn make(
    repo: &Repo,
    (name, at): (&RefName, CommitId),
    place: &Place,
    cx: &Context,
) -> Result<(), CliError> {
    let reason = reason(place);
    cx.with_change(repo.config(), &reason, |change| {
        repo.refs().update(name, None, Some(at), change)
    })?;
    Ok(())
}

fn reason(place: &Place) -> String {
    format!("clone: {}", place.location)
}

fn restore(
    repo: &Repo,
    commit: CommitId,
    (dir, is_new_target, include): (&Path, bool, Vec<String>),
    observer: &dyn Observer,
) -> Result<Restored, CliError> {
    let commit = repo.store().commit(&commit)?;
    let what = What::Folder { tree: commit.tree, root: commit.root };
    let jobs = repo.config().jobs.unwrap_or(0);
    let options = restore::Options { include, is_new_target, jobs, ..restore::Options::default() };
    Ok(restore::run(repo.store(), &what, dir, &options, observer)?)
}

/// What matches a path and all below it, in the syntax of ignore files.
fn pattern(path: &[u8]) -> String {
    let mut pattern = "/".to_owned();
    for char in String::from_utf8_lossy(path).trim_matches('/').chars() {
        match char {
            // No pattern can name what is not text; this matches more.
            char::REPLACEMENT_CHARACTER => pattern.push('*'),
            '*' | '?' | '[' | ']' | '{' | '}' | '\\' | ' ' => pattern.extend(['\\', char]),
            _ => pattern.push(char),
        }
    }
    pattern
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
    files_written: Option<u64>,
    bytes_written: Option<u64>,
    stats: StatsJson,
}

fn tell(
    (dir, outcome): (&Path, &Outcome),
    restored: Option<&Restored>,
    (connection, took): (&Connection, Duration),
    cx: &Context,
) -> Result<(), CliError> {
    let name = &outcome.name;
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
            files_written: restored.map(|restored| restored.files_written),
            bytes_written: restored.map(|restored| restored.bytes_written),
            stats: cx.stats(),
        })?;
        out.finish()?;
    }
    let shown = text::line(dir.as_os_str().as_encoded_bytes());
    let ui = cx.ui();
    let received = cx.network().traffic().counts().bytes_received;
    ui.status(format_args!(
        "Cloned {} into {shown}: received {}{}",
        connection.place.location,
        Size(received),
        push::pace(received, took),
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
