//! The context of a command: the store, the user, the time, the settings and the output.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use snap_core::{
    base::{
        id::{CommitId, PackId},
        time::Time,
    },
    disk::{Disk, DiskStep, FaultDecision, FaultInjector},
    format::pack::ObjectKind,
    local::owners::Owners,
    repo::{
        Config, RefName, Repo,
        open::{read_config_file, refuse_remote},
        refs::{RefError, RefLogMessage},
        spec::{DatedCommit, OtherMeaning, Resolved, Revisions, base_texts},
    },
};

use snap_remote::peer::open;
use tokio::runtime::Runtime;

use crate::{
    args::Global,
    complete::CompletionContext,
    config::Settings,
    env::{Env, RemoteEnv},
    remote::{self, Connection, Network},
    report::{CliError, INTERRUPTED, Role, UntrustedStore},
    stream::Stream,
    typed_path,
    ui::{Progress, Ui, text, time},
};

/// The context of a command.
#[derive(Debug)]
pub(crate) struct Context {
    ui: Ui,
    env: Env,
    settings: Settings,
    store: Option<PathBuf>,
    named: StoreChoice,
    now: Option<Time>,
    stop: Arc<AtomicBool>,
    network: Arc<Network>,
    /// The runtime for the network, created on first use.
    runtime: OnceLock<Runtime>,
    wants_stats: bool,
    /// True if a JSON record already contains the statistics of remotes.
    in_record: AtomicBool,
    /// The bundle that the command reads, if any.
    bundle: OnceLock<String>,
    /// The commits that the command reads, each with the store in which revisions named them.
    read: Mutex<BTreeSet<(PathBuf, CommitId)>>,
}

/// How the store was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreChoice {
    /// By `--store`.
    ByOption,
    /// By `SNAP_STORE`.
    ByEnvironment,
    /// The store was not named; the search finds it.
    Nowhere,
}

/// A gate that blocks each change of a store, for a dry run.
#[derive(Debug)]
struct DryRunGate;

impl FaultInjector for DryRunGate {
    fn decide(&self, _: DiskStep, _: &Path) -> FaultDecision {
        FaultDecision::Fail(io::Error::new(io::ErrorKind::PermissionDenied, "this is a dry run"))
    }
}

/// A gate that blocks each change of an untrusted store.
#[derive(Debug)]
struct UntrustedStoreGate(UntrustedStore);

impl FaultInjector for UntrustedStoreGate {
    fn decide(&self, _: DiskStep, _: &Path) -> FaultDecision {
        FaultDecision::Fail(io::Error::new(io::ErrorKind::PermissionDenied, self.0.clone()))
    }
}

/// Fails if the name of a store is the location of a remote. The error contains only its scheme,
/// because a user may have written a password into it.
pub(crate) fn check_is_folder(store: &Path) -> Result<(), CliError> {
    let text = store.as_os_str().to_string_lossy();
    match text.split_once("://").filter(|_| remote::is_location(store.as_os_str().as_bytes())) {
        Some((scheme, _)) => Err(CliError::StoreIsRemote { scheme: scheme.to_owned() }),
        None => Ok(()),
    }
}

/// Replaces an error about a missing commit that a collection may have deleted.
fn explain_missing_commit(repo: &Repo, error: CliError) -> CliError {
    let Some((object, ObjectKind::Commit)) = error.missing_object() else { return error };
    let id = CommitId::from_object(object);
    match repo.may_be_collected(&id) {
        Ok(true) => RefError::Collected { id }.into(),
        _ => error,
    }
}

impl Context {
    /// Reads the environment and the user's settings, and installs the handlers for Ctrl-C and
    /// SIGTERM.
    pub(crate) fn new(global: &Global) -> Result<Self, CliError> {
        let env = Env::read();
        #[cfg(debug_assertions)]
        crate::step_counter::install(&env.steps);
        let settings = Settings::load(&env, global)?;
        let now = env.time.as_deref().map(|text| {
            let bad = || CliError::BadTime { name: "SNAP_TIME", text: text.to_owned() };
            time::parse_exact(text).ok_or_else(bad)
        });
        let stop = Arc::new(AtomicBool::new(false));
        let mut ui = Ui::new(global, &settings.ui, &env);
        for signal in [SIGINT, SIGTERM] {
            // The first signal sets `stop`; the second one ends the process.
            let second =
                flag::register_conditional_shutdown(signal, INTERRUPTED.into(), stop.clone());
            let second = second.map_err(CliError::Signal)?;
            if signal == SIGINT {
                ui.leave_to_pager(second);
            }
            flag::register(signal, stop.clone()).map_err(CliError::Signal)?;
        }
        let now = now.transpose()?;
        ui.set_now(now.unwrap_or_else(Time::now));
        let (store, named) = match (&global.store, &env.store) {
            (Some(store), _) => (Some(store.clone()), StoreChoice::ByOption),
            (None, Some(store)) => (Some(store.clone()), StoreChoice::ByEnvironment),
            (None, None) => (None, StoreChoice::Nowhere),
        };
        store.as_deref().map_or(Ok(()), check_is_folder)?;
        let network = Arc::new(Network::new(stop.clone()));
        Ok(Self {
            ui,
            env,
            settings,
            store,
            named,
            now,
            network,
            stop,
            runtime: OnceLock::new(),
            wants_stats: global.stats,
            in_record: AtomicBool::new(false),
            bundle: OnceLock::new(),
            read: Mutex::default(),
        })
    }

    /// Returns the user interface.
    pub(crate) fn ui(&self) -> &Ui {
        &self.ui
    }

    /// Returns the folder for temporary files.
    pub(crate) fn scratch(&self) -> &Path {
        &self.env.temp
    }

    /// Returns the user's home folder.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.env.home.as_deref()
    }

    /// Returns the folders in which, and above which, no store is searched for.
    pub(crate) fn ceilings(&self) -> &[PathBuf] {
        &self.env.ceilings
    }

    /// Returns the user's cache folder.
    pub(crate) fn cache_home(&self) -> Option<&Path> {
        self.env.cache_home.as_deref()
    }

    /// Returns the variables that start with `SNAP_` and are valid UTF-8.
    #[cfg(feature = "serve")]
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let of_text = |(name, value): &(String, std::ffi::OsString)| {
            Some((name.clone(), value.to_str()?.to_owned()))
        };
        self.env.snap.iter().filter_map(of_text).collect()
    }

    /// Returns the environment variables about remotes.
    pub(crate) fn remote_env(&self) -> &RemoteEnv {
        &self.env.remote
    }

    /// Returns the counters of requests in progress.
    pub(crate) fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// Returns the runtime for the network.
    pub(crate) fn runtime(&self) -> Result<&Runtime, CliError> {
        match self.runtime.get() {
            Some(runtime) => Ok(runtime),
            None => {
                let runtime = remote::runtime()?;
                Ok(self.runtime.get_or_init(|| runtime))
            }
        }
    }

    /// Shuts the runtime down. Threads that write to a disk get a moment to finish; after that
    /// nothing is waited for.
    pub(crate) fn close(self) {
        if let Some(runtime) = self.runtime.into_inner() {
            runtime.shutdown_timeout(remote::LAST_MOMENT);
        }
    }

    /// Returns true if `--stats` was given.
    pub(crate) fn wants_stats(&self) -> bool {
        self.wants_stats
    }

    /// Notes that a JSON record contains the statistics of remotes.
    pub(crate) fn in_record(&self) {
        self.in_record.store(true, Ordering::Relaxed);
    }

    /// Returns true if a JSON record contains the statistics of remotes.
    pub(crate) fn is_in_record(&self) -> bool {
        self.in_record.load(Ordering::Relaxed)
    }

    /// Returns the settings of the user and the environment, without those of a store.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the merged settings for the store at `dir`.
    pub(crate) fn settings_of(&self, dir: &Path) -> Result<Settings, CliError> {
        Ok(self.settings.with_store(read_config_file(dir)?))
    }

    /// Returns true if a hook runs this command.
    pub(crate) fn is_in_hook(&self) -> bool {
        self.env.in_hook
    }

    /// Notes that the command reads a bundle.
    pub(crate) fn reads_bundle(&self, file: String) {
        // A command reads one bundle; only the first call has an effect.
        let _ = self.bundle.set(file);
    }

    /// Returns the bundle that the command reads, if any.
    pub(crate) fn bundle(&self) -> Option<&str> {
        self.bundle.get().map(String::as_str)
    }

    /// Returns true if the user requested to stop.
    pub(crate) fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns how the store was named.
    pub(crate) fn named(&self) -> StoreChoice {
        self.named
    }

    /// Returns the named store, or else the store in `start` or above it. There is no store around a
    /// current folder that was removed.
    pub(crate) fn find_store(&self, start: &Path) -> Result<Option<PathBuf>, CliError> {
        match &self.store {
            Some(store) => Ok(Some(store.clone())),
            None => match std::path::absolute(start) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(CliError::Folder { source }),
                Ok(start) => Ok(Repo::find(&start, &self.env.ceilings)?),
            },
        }
    }

    /// Returns the store of the current folder.
    pub(crate) fn store_dir(&self) -> Result<PathBuf, CliError> {
        let found = self.find_store(Path::new("."))?;
        found.ok_or_else(|| Self::check_here().err().unwrap_or(CliError::NoStore))
    }

    /// Fails if the current folder was deleted. Without a store, some commands could take its
    /// absence for a folder without a store.
    pub(crate) fn check_here() -> Result<(), CliError> {
        match std::path::absolute(".") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CliError::FolderDeleted),
            Err(source) => Err(CliError::Folder { source }),
            Ok(_) => Ok(()),
        }
    }

    /// Opens the store of the current folder.
    pub(crate) fn open_repo(&self) -> Result<Repo, CliError> {
        self.open_found(&self.store_dir()?)
    }

    /// Fails if the store was found by the search and another user may have put it there. Commands
    /// call this before they write to it.
    pub(crate) fn check_found(&self, dir: &Path) -> Result<(), CliError> {
        Ok(self.distrust(dir).map_or(Ok(()), Err)?)
    }

    fn distrust(&self, dir: &Path) -> Option<UntrustedStore> {
        if self.named != StoreChoice::Nowhere {
            return None;
        }
        self.distrust_as(Role::Here, dir)
    }

    fn distrust_as(&self, role: Role, dir: &Path) -> Option<UntrustedStore> {
        let why = self.settings.trust().distrust(dir)?;
        Some(UntrustedStore { store: dir.to_owned(), why: Arc::new(why), role })
    }

    /// Fails if the push target is a local store that another user owns or may have put there. A
    /// push would leave files in it that its owner cannot change.
    pub(crate) fn check_target(&self, target: &Connection) -> Result<(), CliError> {
        let dir = open::local_store(&target.place.location)?;
        Ok(dir.and_then(|dir| self.distrust_as(Role::Target, &dir)).map_or(Ok(()), Err)?)
    }

    /// Opens the store at `dir`. If the search found it and another user may have put it there, it
    /// is opened read-only, and no remote is contacted.
    pub(crate) fn open_found(&self, dir: &Path) -> Result<Repo, CliError> {
        let Some(untrusted) = self.distrust(dir) else { return self.open_at(dir) };
        refuse_remote(dir)?;
        let config = self.settings_of(dir)?.config()?;
        let disk = Disk::with_fault_injector(Arc::new(UntrustedStoreGate(untrusted)));
        Ok(Repo::open(dir, disk, &self.progress())?.with_config(config))
    }

    /// Opens the store at `dir` with its merged settings.
    pub(crate) fn open_at(&self, dir: &Path) -> Result<Repo, CliError> {
        self.open_on(dir, Disk::default())
    }

    /// Opens the store at `dir` for a dry run: nothing in it is written, not even derived files.
    pub(crate) fn open_for_dry_run(&self, dir: &Path) -> Result<Repo, CliError> {
        self.open_on(dir, Disk::with_fault_injector(Arc::new(DryRunGate)))
    }

    fn open_on(&self, dir: &Path, disk: Disk) -> Result<Repo, CliError> {
        let config = self.settings_of(dir)?.config()?;
        refuse_remote(dir)?;
        let repo = Repo::open(dir, disk, &self.progress())?.with_config(config);
        if repo.store().partial_packs().is_empty() {
            return Ok(repo);
        }
        // Objects that are missing locally are fetched from the default remote on demand.
        match self.default_remote_source(dir)? {
            Some(distant) => Ok(repo.with_remote_frames(distant)),
            None => Ok(repo),
        }
    }

    /// Returns an observer that draws a progress bar and prints notes.
    pub(crate) fn progress(&self) -> Progress<'_> {
        Progress::new(&self.ui, self.stop.clone(), &self.network)
    }

    /// Returns stdin as a stream that Ctrl-C interrupts.
    pub(crate) fn stdin(&self) -> Stream<io::Stdin> {
        Stream::new(io::stdin(), self.stop.clone())
    }

    /// Returns the flag that Ctrl-C sets.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Opens a file or pipe as a stream that Ctrl-C interrupts.
    pub(crate) fn open_input(&self, path: &Path) -> io::Result<Stream<File>> {
        Stream::open(path, self.stop.clone())
    }

    /// Opens an existing pipe or device for writing; Ctrl-C interrupts the stream.
    pub(crate) fn open_output(&self, path: &Path) -> io::Result<Stream<File>> {
        Stream::create(path, self.stop.clone())
    }

    /// Returns stdout for bytes, as a stream that Ctrl-C interrupts.
    pub(crate) fn raw_out(&self) -> io::Result<Stream<File>> {
        Ok(Stream::new(self.ui.raw_out()?, self.stop.clone()))
    }

    /// Returns the data that shell completion needs.
    pub(crate) fn place(&self) -> CompletionContext {
        CompletionContext {
            store: self.store.clone(),
            ceilings: self.env.ceilings.clone(),
            home: self.env.home.clone(),
            now: self.now(),
            settings: self.settings.clone(),
        }
    }

    /// Returns the current time, or the time in `SNAP_TIME`.
    pub(crate) fn now(&self) -> Time {
        self.now.unwrap_or_else(Time::now)
    }

    /// Returns the time in `SNAP_TIME`, if it is set.
    pub(crate) fn fixed_time(&self) -> Option<Time> {
        self.now
    }

    /// Returns the author: from the settings, or else the name of the user in `USER` or in the user
    /// database.
    pub(crate) fn author(&self, config: &Config) -> String {
        let configured = config.commit.author.clone();
        configured.or_else(|| self.env.user.clone()).unwrap_or_else(|| {
            let uid = rustix::process::getuid().as_raw();
            Owners::user_name(uid).unwrap_or_else(|| format!("uid {uid}"))
        })
    }

    /// Returns the host: from the settings, or else the system's name.
    pub(crate) fn host(&self, config: &Config) -> String {
        let configured = config.commit.host.clone();
        configured
            .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
    }

    /// Resolves `spec` to a commit and, after a `:`, a path from the top of the snapshot.
    pub(crate) fn resolve(&self, repo: &Repo, spec: &OsStr) -> Result<Resolved, CliError> {
        let found = self.with_revisions(repo, |revisions| revisions.resolve(spec.as_bytes()));
        let found = found.map_err(|error| explain_missing_commit(repo, error.into()))?;
        self.read.lock().insert((repo.dir().to_owned(), found.id));
        let path = found.path.as_deref().map(|path| typed_path::in_revision(repo, path));
        Ok(Resolved { path: path.transpose()?, ..found })
    }

    /// Lists the texts that may name the commit that `spec` starts from, in the order in which they
    /// are looked up.
    pub(crate) fn base_texts<'s>(&self, spec: &'s OsStr) -> Vec<&'s str> {
        base_texts(spec.as_bytes(), &|text| time::parse(text, self.now()))
    }

    /// Resolves `rev` to a commit.
    pub(crate) fn resolve_commit(&self, repo: &Repo, rev: &str) -> Result<CommitId, CliError> {
        let id = self.with_revisions(repo, |revisions| revisions.commit(rev));
        let id = id.map_err(|error| explain_missing_commit(repo, error.into()))?;
        self.read.lock().insert((repo.dir().to_owned(), id));
        Ok(id)
    }

    /// Replaces an error about a missing object if a collection may have deleted a commit that the
    /// command reads: before it began, or beside it.
    pub(crate) fn explain_missing(&self, error: CliError) -> CliError {
        let (missing, unfetched) = (error.missing_object(), error.unfetched_pack());
        if missing.is_none() && unfetched.is_none() {
            return error;
        }
        let Ok(repo) = self.open_repo() else { return error };
        let read = || {
            let read = self.read.lock().clone();
            read.into_iter().filter(|(dir, _)| dir == repo.dir()).map(|(_, id)| id)
        };
        let Some((object, _)) = missing else {
            // The remote no longer has the pack of a part of the commit.
            let is_deleted = |pack: PackId| repo.store().is_deleted_elsewhere(&pack);
            let collected = read().next().filter(|_| unfetched.is_some_and(is_deleted));
            return collected.map_or(error, |id| RefError::Collected { id }.into());
        };
        let id = CommitId::from_object(object);
        if repo.is_found_dead(&id).unwrap_or(false) {
            return RefError::Collected { id }.into();
        }
        let collected = read().find(|id| repo.may_be_collected(id).unwrap_or(false));
        collected.map_or(error, |id| RefError::Collected { id }.into())
    }

    /// Calls `resolve` with a resolver that reports to the user.
    fn with_revisions<T>(&self, repo: &Repo, resolve: impl FnOnce(Revisions<'_>) -> T) -> T {
        let date = |text: &str| time::parse(text, self.now());
        let warn = |used: &RefName, other: &OtherMeaning| self.warn_ambiguous(used, other);
        let name = |found: &DatedCommit<'_>| self.name_dated(found);
        resolve(Revisions::new(repo, &date).on_ambiguous(&warn).on_date(&name))
    }

    /// Prints the commit of a revision with a date: the date alone does not identify it.
    fn name_dated(&self, DatedCommit { rev, id, time, forgotten }: &DatedCommit<'_>) {
        let rev = text::line(rev.as_bytes());
        let named = |id: &CommitId, at: &Time| format!("{id:.12} of {}", time::local(*at));
        let forgotten = forgotten
            .map(|(time, id)| format!("; the newer commit {} was forgotten", named(&id, &time)));
        let forgotten = forgotten.unwrap_or_default();
        self.ui.status_once(&format!("`{rev}` is commit {}{forgotten}", named(id, time)));
    }

    fn warn_ambiguous(&self, used: &RefName, other: &OtherMeaning) {
        let full = |name: &RefName| {
            let full = name.to_string();
            text::line(full.strip_prefix("refs/").unwrap_or(&full).as_bytes())
        };
        let other = match other {
            OtherMeaning::Ref(other) => {
                format!("{} refers to the {}", full(other), other.kind().noun())
            }
            OtherMeaning::Commit(id) => format!("the commit is {id:.12}"),
        };
        let short = text::line(used.short().as_bytes());
        self.ui.warning_once(&format!("`{short}` is ambiguous; using {}; {other}", full(used)));
    }

    /// Calls `work` with the log entry of a change.
    pub(crate) fn with_change<T>(
        &self,
        config: &Config,
        reason: &str,
        work: impl FnOnce(&RefLogMessage<'_>) -> T,
    ) -> T {
        let who = format!("{} on {}", self.author(config), self.host(config));
        work(&RefLogMessage { time: self.now(), who: &who, reason })
    }
}
