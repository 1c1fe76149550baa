//! `snap clone`: makes a store and a folder from a remote.

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
    base::{blocked::Blocked, id::CommitId, io::PathError, observe::Observer},
    disk::Disk,
    ops::{
        restore::{self, RestoreOutcome as Restored, RestoreSource},
        unfetched_ignores::ignore_files,
    },
    repo::{
        Config, Head, NewStore, RefName, Repo,
        base_state::CLONE,
        config::{FILE, edit::Edit, key::KeyPath, layer::ConfigOwner},
        open::{STORE_FOLDER, lock_config, read_config_file, write_config},
        path::{PathInTreeError, resolve_path},
        ref_name::RefKind,
        refs::REFS_AT_ONCE,
    },
};
use snap_remote::{
    peer::RemoteError,
    transfer::clone::{self, CloneOptions, CloneOutcome, CloneSource},
};

use crate::{
    commands::{config, init, init::refuse_in_store, pull::PartArgs, push, remote::option},
    context::Context,
    remote::{Connection, DEFAULT_REMOTE, LimitArgs, RemoteSpec, RemoteStatsJson, tracking},
    report::{CliError, CommandOutcome},
    ui::{size, size::ByteCount, text},
};

const EXAMPLES: &str = "\
Examples:
  snap clone s3://bucket/project                    into ./project
  snap clone s3://bucket/project work --ref v1.0    the files of a tag
  snap clone s3://bucket/project --option endpoint=https://minio.example
  snap clone s3://bucket/huge --depth 1 --path src  the rest on demand
  snap clone file:///mnt/usb/project . --no-restore
  snap clone ../project copy                        a project in another folder";

/// Clone a remote into a new folder
///
/// DIR must be empty or not exist. The clone contains all branches and tags, calls the remote
/// `origin`, and restores the files of the last commit. If it fails before the first commit has
/// arrived, nothing is left. After that, `snap fetch` downloads the rest. With --depth or --path,
/// the rest is downloaded on demand.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CloneArgs {
    /// URL or folder to clone
    url: String,

    /// Folder to create; default: the last part of the URL
    dir: Option<PathBuf>,

    /// Branch or tag to restore; default: the default branch of the remote
    #[arg(short = 'b', long = "ref", alias = "branch", value_name = "NAME")]
    name: Option<String>,

    /// Option of the remote; may be repeated
    #[arg(short, long, value_name = "OPTION=VALUE", value_parser = option)]
    option: Vec<(String, String)>,

    /// Create only the store, without the files
    #[arg(long, alias = "no-checkout")]
    no_restore: bool,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

pub(crate) fn run(args: &CloneArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let options = args.option.iter().cloned().collect();
    let place = RemoteSpec::of_url(&args.url, options, cx.settings())?;
    let dir = dir(args, &place)?;
    refuse_in_store(&dir.join(STORE_FOLDER))?;
    let mut made = CloneInProgress::begin(&dir)?;
    let start = Instant::now();
    let cloned = clone(args, place, (&dir, &mut made), cx);
    let Cloned { connection, outcome, restored } = cloned.map_err(|source| {
        if !made.is_kept {
            made.discard(cx);
            return source;
        }
        let folder = text::line(dir.as_os_str().as_encoded_bytes()).to_string();
        CliError::Cloned { folder, source: Box::new(source) }
    })?;
    print_result((&dir, &outcome), restored.as_ref(), (&connection, start.elapsed()), cx)?;
    if let Some(error) = &outcome.damaged_head {
        let branch = outcome.default_branch.short();
        cx.ui().warning(format_args!("{error}; using `{branch}` as the default branch"));
    }
    for error in &outcome.damaged_refs {
        cx.ui().warning(format_args!("{error}; it was skipped"));
        if let RemoteError::RefBlocked { name, .. } = error {
            let name = text::word(name.to_string().as_bytes()).to_string();
            let origin = DEFAULT_REMOTE;
            cx.ui().status(format_args!("`snap push {origin} --delete {name}` removes it there"));
        }
    }
    Ok(match restored {
        _ if !outcome.damaged_refs.is_empty() => CommandOutcome::Damaged,
        Some(restored) if !restored.is_complete() => CommandOutcome::Skipped,
        _ => CommandOutcome::Success,
    })
}

/// The result of a clone.
struct Cloned {
    connection: Connection,
    outcome: CloneOutcome,
    restored: Option<Restored>,
}

fn clone(
    args: &CloneArgs,
    place: RemoteSpec,
    (dir, made): (&Path, &mut CloneInProgress),
    cx: &Context,
) -> Result<Cloned, CliError> {
    let store = dir.join(STORE_FOLDER);
    Repo::init(&store, &Disk::default(), &Config::default())?;
    made.store = Some(NewStore::at(&store)?);
    remember(&store, &place, cx)?;
    let mut connection = cx.connect(place.in_store(DEFAULT_REMOTE, &store), &args.limits)?;
    let packs = connection.packs(cx)?;
    let repo = cx.open_at(&store)?.with_remote_frames(Arc::new(packs.clone()));
    let names = match &args.name {
        Some(text) => push::names(text)?.into_iter().map(Some).collect(),
        None => vec![None],
    };
    let (progress, place) = (cx.progress(), connection.place.clone());
    let Connection { store: remote, runtime, .. } = &mut connection;
    let mut missing = None;
    for name in names {
        let options = CloneOptions { name, part: args.part.part()? };
        let mut restored = None;
        let restore = |outcome: &CloneOutcome| {
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
            // From here on the clone is kept, even after an error.
            made.is_kept = true;
            repo.set_scope(&options.part.paths)?;
            fetch_ignore_files(&repo, outcome.commit)?;
            if !args.no_restore {
                let only = options.part.paths.iter().map(|path| pattern(path)).collect();
                let target = (dir, made.is_new, only);
                let done = restore(&repo, outcome.commit, target, &progress)?;
                // Files that lack an entry must not count as those of the commit: the next commit
                // would remove it.
                if done.not_made == 0 {
                    repo.set_restored_base(outcome.commit)?;
                }
                restored = Some(done);
            }
            Ok::<_, CliError>(())
        };
        let from = CloneSource { remote, packs: &packs };
        match clone::run(repo.store(), from, &options, restore, runtime, &progress) {
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

fn dir(args: &CloneArgs, place: &RemoteSpec) -> Result<PathBuf, CliError> {
    if let Some(dir) = &args.dir {
        return Ok(dir.clone());
    }
    let location = &place.location;
    // The name `.snap` would be the same for every project, so it is skipped.
    let is_name = |part: &&str| !part.is_empty() && *part != STORE_FOLDER;
    let last = location.path.rsplit('/').find(is_name);
    let last = last.unwrap_or(&location.authority);
    match last {
        "" | "." | ".." => {
            Err(CliError::Usage("cannot infer a folder name from the URL; pass a folder"))
        }
        last => Ok(PathBuf::from(last)),
    }
}

/// The folder and the store that a running clone has created.
struct CloneInProgress {
    dir: PathBuf,
    /// True if this clone created the folder.
    is_new: bool,
    /// The store that this clone created. Another process may have created one after the folder was
    /// found empty.
    store: Option<NewStore>,
    /// True if both stay, even after an error.
    is_kept: bool,
}

impl CloneInProgress {
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
            // The folder is private until the attributes of the root are set.
            let made = DirBuilder::new().mode(0o700).create(dir);
            made.map_err(PathError::when("create folder", dir))?;
            disk.sync_folder(above.unwrap_or(Path::new(".")))?;
        }
        Ok(Self { dir: dir.to_owned(), is_new, store: None, is_kept: false })
    }

    /// Removes the store and the folder, if this clone created them. A store that other commands
    /// have changed meanwhile is kept, and a folder that is not empty, too.
    fn discard(&self, cx: &Context) {
        let store = self.dir.join(STORE_FOLDER);
        if let Some(new) = self.store
            && store.exists()
        {
            init::discard(new, &store, cx);
        }
        if self.is_new {
            let _ = fs_err::remove_dir(&self.dir);
        }
    }
}

/// Writes the location of the remote into the settings of the store.
fn remember(store: &Path, place: &RemoteSpec, cx: &Context) -> Result<(), CliError> {
    let _lock = lock_config(store)?;
    let (path, mut text) = (store.join(FILE), read_config_file(store)?.text);
    let url = place.location.to_string();
    let options = place.options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in std::iter::once(("url", url.as_str())).chain(options) {
        let edit = Edit { text: &text, path: &path, owner: ConfigOwner::Store };
        text = edit.set(&KeyPath::new(["remote", DEFAULT_REMOTE, key]), value)?;
    }
    write_config(store, &Disk::default(), &text).map_err(CliError::Settings)?;
    // The user named the location, so its settings are trusted.
    config::trust_change(store, &text, cx)
}

/// Sets `HEAD` to the branch or tag of the clone, and records the other refs of the remote.
fn point(
    repo: &Repo,
    outcome: &CloneOutcome,
    place: &RemoteSpec,
    cx: &Context,
) -> Result<(), CliError> {
    let CloneOutcome { name, commit, .. } = outcome;
    let (mut tracking, mut own) = (Vec::new(), Vec::new());
    for (other, at) in &outcome.refs {
        // The ref moved after the index was read, so its commit is missing locally. The next pull
        // fetches it.
        if repo.store().locate(&at.object())?.is_none() {
            continue;
        }
        match (other.kind(), place.name.as_deref()) {
            (RefKind::Branch, Some(remote)) => {
                tracking.push((RefName::remote(remote, other.short())?, *at));
            }
            (RefKind::Tag, _) if other != name => own.push((other.clone(), *at)),
            _ => {}
        }
    }
    own.push((name.clone(), *commit));
    for (refs, reason) in [(tracking, tracking::REASON.to_owned()), (own, reason(place))] {
        for some in refs.chunks(REFS_AT_ONCE) {
            if cx.cancelled() {
                return Err(RemoteError::Blocked(Blocked::Interrupted).into());
            }
            cx.with_change(repo.config(), &reason, |change| repo.refs().create_all(some, change))?;
        }
    }
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

/// Fetches the ignore files above the paths of a partial clone, so that commits find them while the
/// remote is unreachable.
pub(super) fn fetch_ignore_files(repo: &Repo, commit: CommitId) -> Result<(), CliError> {
    let Some(scope) = repo.scope()? else { return Ok(()) };
    let tree = repo.store().commit(&commit)?.tree;
    ignore_files(repo.store(), tree, &scope, repo.config().commit.gitignore)?;
    Ok(())
}

fn reason(place: &RemoteSpec) -> String {
    format!("{CLONE}: {}", place.location)
}

fn restore(
    repo: &Repo,
    commit: CommitId,
    (dir, is_new_target, include): (&Path, bool, Vec<String>),
    observer: &dyn Observer,
) -> Result<Restored, CliError> {
    let commit = repo.store().commit(&commit)?;
    let what = RestoreSource::Folder { tree: commit.tree, root: commit.root };
    let jobs = repo.config().jobs.unwrap_or(0);
    let options = restore::RestoreOptions {
        include,
        is_new_target,
        jobs,
        ..restore::RestoreOptions::default()
    };
    Ok(restore::run(repo.store(), &what, dir, &options, observer)?)
}

/// Returns a pattern in the syntax of ignore files that matches a path and everything below it.
fn pattern(path: &[u8]) -> String {
    let mut pattern = "/".to_owned();
    for char in String::from_utf8_lossy(path).trim_matches('/').chars() {
        match char {
            // A pattern must be UTF-8, so this matches any text in the place of other bytes.
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
    stats: RemoteStatsJson,
}

fn print_result(
    (dir, outcome): (&Path, &CloneOutcome),
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
        ByteCount(received),
        push::pace(received, took),
    ));
    if let Some(restored) = restored {
        let files = size::count(restored.files_written, "file");
        ui.status(format_args!("Restored {files}, {}", ByteCount(restored.bytes_written)));
        if restored.not_made > 0 {
            let what = size::count(restored.not_made, "entry");
            ui.warning(format_args!("{what} could not be restored"));
        }
        for (what, count) in &restored.not_applied {
            let entries = size::count(*count, "entry");
            ui.warning(format_args!("{what} of {entries} could not be set"));
        }
    }
    let (short, commit) = (name.short(), outcome.commit);
    match name.kind() {
        RefKind::Branch => ui.status(format_args!("On branch {short} at {commit:.12}")),
        _ => ui.status(format_args!("At tag {short}, {commit:.12}; HEAD is detached")),
    }
    Ok(())
}
