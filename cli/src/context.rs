//! What every command works with: where the store is, who asks, what time it
//! is, and how to talk.

use std::{
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

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use snap_core::{
    base::{id::CommitId, time::Time},
    disk::{Disk, Gate, Step, Verdict},
    repo::{
        Config, Repo,
        open::{read_config_file, refuse_remote},
        refs::Change,
        spec::{Resolved, Revisions},
    },
};

use tokio::runtime::Runtime;

use crate::{
    args::Global,
    complete::Place,
    config::Settings,
    env::{Env, RemoteEnv},
    remote::{self, Connection, Network},
    report::{CliError, INTERRUPTED, Role, UntrustedStore},
    stream::Stream,
    ui::{Progress, Ui, time},
};

/// What every command works with.
#[derive(Debug)]
pub(crate) struct Context {
    ui: Ui,
    env: Env,
    settings: Settings,
    store: Option<PathBuf>,
    named: Named,
    now: Option<Time>,
    stop: Arc<AtomicBool>,
    network: Arc<Network>,
    /// Where the network is waited for, once it is.
    runtime: OnceLock<Runtime>,
    wants_stats: bool,
    /// Whether a record has said what was asked of remotes.
    in_record: AtomicBool,
    /// The bundle that is read, if one is.
    bundle: OnceLock<String>,
}

/// Where the store was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// By `--store`.
    ByOption,
    /// By `SNAP_STORE`.
    ByEnvironment,
    /// Not at all: it is looked for.
    Nowhere,
}

/// Refuses each step that would change a store in a dry run.
#[derive(Debug)]
struct Untouched;

impl Gate for Untouched {
    fn pass(&self, _: Step, _: &Path) -> Verdict {
        Verdict::Fail(io::Error::new(io::ErrorKind::PermissionDenied, "this is a dry run"))
    }
}

/// Refuses each step that would change an untrusted store.
#[derive(Debug)]
struct ReadOnly(UntrustedStore);

impl Gate for ReadOnly {
    fn pass(&self, _: Step, _: &Path) -> Verdict {
        Verdict::Fail(io::Error::new(io::ErrorKind::PermissionDenied, self.0.clone()))
    }
}

impl Context {
    /// Reads the environment and the user's file, and catches Ctrl-C.
    pub(crate) fn new(global: &Global) -> Result<Self, CliError> {
        let env = Env::read();
        let settings = Settings::load(&env, global)?;
        let now = env.time.as_deref().map(|text| {
            let bad = || CliError::BadTime { name: "SNAP_TIME", text: text.to_owned() };
            time::parse_exact(text).ok_or_else(bad)
        });
        let stop = Arc::new(AtomicBool::new(false));
        let mut ui = Ui::new(global, &settings.ui, &env);
        for signal in [SIGINT, SIGTERM] {
            // The first one asks to stop, the second one does not ask.
            let second = flag::register_conditional_shutdown(signal, INTERRUPTED, stop.clone());
            let second = second.map_err(CliError::Signal)?;
            if signal == SIGINT {
                ui.leave_to_pager(second);
            }
            flag::register(signal, stop.clone()).map_err(CliError::Signal)?;
        }
        let now = now.transpose()?;
        ui.set_now(now.unwrap_or_else(Time::now));
        let (store, named) = match (&global.store, &env.store) {
            (Some(store), _) => (Some(store.clone()), Named::ByOption),
            (None, Some(store)) => (Some(store.clone()), Named::ByEnvironment),
            (None, None) => (None, Named::Nowhere),
        };
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
        })
    }

    /// How to talk.
    pub(crate) fn ui(&self) -> &Ui {
        &self.ui
    }

    /// Folder for what need not survive the command.
    pub(crate) fn scratch(&self) -> &Path {
        &self.env.temp
    }

    /// Folder of the user for what can be had again.
    pub(crate) fn cache_home(&self) -> Option<&Path> {
        self.env.cache_home.as_deref()
    }

    /// Variables that begin with `SNAP_`, as far as they are text.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let of_text = |(name, value): &(String, std::ffi::OsString)| {
            Some((name.clone(), value.to_str()?.to_owned()))
        };
        self.env.snap.iter().filter_map(of_text).collect()
    }

    /// What the environment says about remotes.
    pub(crate) fn remote_env(&self) -> &RemoteEnv {
        &self.env.remote
    }

    /// What is under way with remotes.
    pub(crate) fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// Where the network is waited for.
    pub(crate) fn runtime(&self) -> Result<&Runtime, CliError> {
        match self.runtime.get() {
            Some(runtime) => Ok(runtime),
            None => {
                let runtime = remote::runtime()?;
                Ok(self.runtime.get_or_init(|| runtime))
            }
        }
    }

    /// Ends what is still under way: threads that write to a disk have a moment
    /// for it, and nothing is waited for longer.
    pub(crate) fn close(self) {
        if let Some(runtime) = self.runtime.into_inner() {
            runtime.shutdown_timeout(remote::LAST_MOMENT);
        }
    }

    /// Whether `--stats` was given.
    pub(crate) fn wants_stats(&self) -> bool {
        self.wants_stats
    }

    /// A record says what was asked of remotes.
    pub(crate) fn in_record(&self) {
        self.in_record.store(true, Ordering::Relaxed);
    }

    /// Whether one does.
    pub(crate) fn is_in_record(&self) -> bool {
        self.in_record.load(Ordering::Relaxed)
    }

    /// The settings of the user and the environment, without those of a store.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All settings that hold for the store at `dir`.
    pub(crate) fn settings_of(&self, dir: &Path) -> Result<Settings, CliError> {
        Ok(self.settings.with_store(read_config_file(dir)?))
    }

    /// Whether a hook runs this command.
    pub(crate) fn is_in_hook(&self) -> bool {
        self.env.in_hook
    }

    /// Says that a bundle is read.
    pub(crate) fn reads_bundle(&self, file: String) {
        // The first one counts; a command reads one.
        let _ = self.bundle.set(file);
    }

    /// The bundle that is read, if one is.
    pub(crate) fn bundle(&self) -> Option<&str> {
        self.bundle.get().map(String::as_str)
    }

    /// Whether the user asked to stop.
    pub(crate) fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// How the store was named.
    pub(crate) fn named(&self) -> Named {
        self.named
    }

    /// The store that was named, else the one in `start` or above it.
    pub(crate) fn find_store(&self, start: &Path) -> Result<Option<PathBuf>, CliError> {
        match &self.store {
            Some(store) => Ok(Some(store.clone())),
            None => {
                let start = std::path::absolute(start);
                let start = start.map_err(|source| CliError::Folder { source })?;
                Ok(Repo::find(&start, &self.env.ceilings))
            }
        }
    }

    /// The store of the folder one stands in.
    pub(crate) fn store_dir(&self) -> Result<PathBuf, CliError> {
        self.find_store(Path::new("."))?.ok_or(CliError::NoStore)
    }

    /// Opens the store of the folder one stands in.
    pub(crate) fn open_repo(&self) -> Result<Repo, CliError> {
        self.open_found(&self.store_dir()?)
    }

    /// Fails if a store that was found, not named, may have been put there by
    /// another user. Asked before a command writes to it.
    pub(crate) fn check_found(&self, dir: &Path) -> Result<(), CliError> {
        Ok(self.distrust(dir).map_or(Ok(()), Err)?)
    }

    fn distrust(&self, dir: &Path) -> Option<UntrustedStore> {
        if self.named != Named::Nowhere {
            return None;
        }
        self.distrust_as(Role::Here, dir)
    }

    fn distrust_as(&self, role: Role, dir: &Path) -> Option<UntrustedStore> {
        let why = self.settings.trust().distrust(dir)?;
        Some(UntrustedStore { store: dir.to_owned(), why: Arc::new(why), role })
    }

    /// Fails if the store that is to be pushed into is one on this machine that
    /// another user may have put there, or owns: who writes to it would leave files in
    /// it that its owner cannot change.
    pub(crate) fn check_target(&self, target: &Connection) -> Result<(), CliError> {
        let dir = target.store.client().local_store();
        Ok(dir.and_then(|dir| self.distrust_as(Role::Target, dir)).map_or(Ok(()), Err)?)
    }

    /// Opens a store that was found, not named. Where another user may have put
    /// it there, nothing is written to it, and no remote is contacted.
    pub(crate) fn open_found(&self, dir: &Path) -> Result<Repo, CliError> {
        let Some(untrusted) = self.distrust(dir) else { return self.open_at(dir) };
        refuse_remote(dir)?;
        let config = self.settings_of(dir)?.config()?;
        let disk = Disk::with_gate(Arc::new(ReadOnly(untrusted)));
        Ok(Repo::open(dir, disk, &self.progress())?.with_config(config))
    }

    /// Opens the store at `dir`, with all settings that hold for it.
    pub(crate) fn open_at(&self, dir: &Path) -> Result<Repo, CliError> {
        self.open_on(dir, Disk::default())
    }

    /// The same for a dry run: nothing in the store is written, not even what is
    /// derived.
    pub(crate) fn open_untouched(&self, dir: &Path) -> Result<Repo, CliError> {
        self.open_on(dir, Disk::with_gate(Arc::new(Untouched)))
    }

    fn open_on(&self, dir: &Path, disk: Disk) -> Result<Repo, CliError> {
        let config = self.settings_of(dir)?.config()?;
        refuse_remote(dir)?;
        let repo = Repo::open(dir, disk, &self.progress())?.with_config(config);
        if repo.store().partial_packs().is_empty() {
            return Ok(repo);
        }
        // What is absent comes from the usual remote when it is needed.
        match self.usual_distant(dir)? {
            Some(distant) => Ok(repo.with_distant(distant)),
            None => Ok(repo),
        }
    }

    /// An observer that draws a bar and tells notes.
    pub(crate) fn progress(&self) -> Progress<'_> {
        Progress::new(&self.ui, self.stop.clone(), &self.network)
    }

    /// What comes from stdin, until Ctrl-C.
    pub(crate) fn stdin(&self) -> Stream<io::Stdin> {
        Stream::new(io::stdin(), self.stop.clone())
    }

    /// What comes from a file or pipe, until Ctrl-C.
    pub(crate) fn open_input(&self, path: &Path) -> io::Result<Stream<File>> {
        Stream::open(path, self.stop.clone())
    }

    /// A pipe or device that is there, to be written to until Ctrl-C.
    pub(crate) fn open_output(&self, path: &Path) -> io::Result<Stream<File>> {
        Stream::create(path, self.stop.clone())
    }

    /// Stdout for bytes, until Ctrl-C.
    pub(crate) fn raw_out(&self) -> io::Result<Stream<File>> {
        Ok(Stream::new(self.ui.raw_out()?, self.stop.clone()))
    }

    /// Where one is, for completion.
    pub(crate) fn place(&self) -> Place {
        Place {
            store: self.store.clone(),
            ceilings: self.env.ceilings.clone(),
            home: self.env.home.clone(),
            now: self.now(),
            settings: self.settings.clone(),
        }
    }

    /// The present, or what `SNAP_TIME` says it is.
    pub(crate) fn now(&self) -> Time {
        self.now.unwrap_or_else(Time::now)
    }

    /// Who asks: the setting, else the user's name.
    pub(crate) fn author(&self, config: &Config) -> String {
        let said = config.commit.author.clone();
        said.or_else(|| self.env.user.clone()).unwrap_or_else(|| {
            let uid = rustix::process::getuid().as_raw();
            if uid == 0 { "root".to_owned() } else { format!("uid {uid}") }
        })
    }

    /// Which machine: the setting, else the system's name.
    pub(crate) fn host(&self, config: &Config) -> String {
        let said = config.commit.host.clone();
        said.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
    }

    /// The commit, and the path in it, that `spec` names.
    pub(crate) fn resolve(&self, repo: &Repo, spec: &OsStr) -> Result<Resolved, CliError> {
        let date = |text: &str| time::parse(text, self.now());
        Ok(Revisions::new(repo, &date).resolve(spec.as_bytes())?)
    }

    /// The commit that `rev` names.
    pub(crate) fn resolve_commit(&self, repo: &Repo, rev: &str) -> Result<CommitId, CliError> {
        let date = |text: &str| time::parse(text, self.now());
        Ok(Revisions::new(repo, &date).commit(rev)?)
    }

    /// Calls `work` with a change for the log of a ref.
    pub(crate) fn with_change<T>(
        &self,
        config: &Config,
        reason: &str,
        work: impl FnOnce(&Change<'_>) -> T,
    ) -> T {
        let who = format!("{} on {}", self.author(config), self.host(config));
        work(&Change { time: self.now(), who: &who, reason })
    }
}
