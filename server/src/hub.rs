//! The repositories of a server: the served store itself, the stores in a folder (each
//! named by its path there), or the stores of an upstream.
//!
//! A repository is opened on first use and stays open. Idle repositories above a limit are
//! closed, least recently used first. A store never has two open [`Repository`] values,
//! because each holds the state of publications to it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use snap_core::{
    base::single_flight::SingleFlight,
    repo::{
        Repo, RepoError, config,
        open::{STORE_FOLDER, refuse_found_link, refuse_remote},
    },
};
use snap_remote::wire::routes::ONLY;

use crate::{
    clock::Clock,
    problem::{Code, HttpProblem},
    repository::{FolderWatch, Repository, RepositoryResources},
    settings::OPEN_REPOSITORIES,
    upstream::{Upstream, health::UpstreamOutage, repository::Freshness},
};

/// Number of folder levels that are searched for stores.
const LEVELS: usize = 4;

/// Name of the token file, which lies beside the repositories.
pub const TOKENS: &str = "tokens.toml";

/// Longest name of a repository, in bytes.
const NAME_BYTES: usize = 200;

/// The repositories of a server.
#[derive(Debug)]
pub struct Hub {
    place: ServedSource,
    open: Mutex<OpenRepositories>,
    /// The repositories that are being opened, by name. Each is opened once, and opening one
    /// does not hold up others.
    opening: SingleFlight<String, ()>,
    /// Serializes creation, so that no repository is created inside another one.
    making: Mutex<()>,
    /// The served folder and its settings file, as found at the start. Empty for an
    /// upstream.
    landmarks: FolderWatch,
    shared: RepositoryResources,
}

/// The open repositories, each with the logical time of its last use.
#[derive(Debug)]
struct OpenRepositories {
    all: HashMap<String, (Arc<Repository>, u64)>,
    /// Number of open repositories above which idle ones are closed.
    most: usize,
    /// The logical clock: counts uses.
    clock: u64,
}

/// Why a repository is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupPurpose {
    /// A client uses it and is likely to use it again.
    Request,
    /// A scan over many repositories: it does not count as a use.
    Scan,
}

impl OpenRepositories {
    fn get(&mut self, name: &str, purpose: LookupPurpose) -> Option<Arc<Repository>> {
        let (repository, last) = self.all.get_mut(name)?;
        if purpose == LookupPurpose::Request {
            self.clock += 1;
            *last = self.clock;
        }
        Some(Arc::clone(repository))
    }

    /// Drops a repository whose folders are gone. The next request opens it anew.
    fn forget(&mut self, gone: &Arc<Repository>) {
        let is_it = |(open, _): &(Arc<Repository>, u64)| Arc::ptr_eq(open, gone);
        if self.all.get(gone.name()).is_some_and(is_it) {
            tracing::warn!(repository = gone.name(), "the folders of a repository are gone");
            self.all.remove(gone.name());
        }
    }

    /// Adds a repository that was just opened. Removes idle repositories above the limit
    /// and returns them, so that the caller closes them without holding the lock.
    fn put(
        &mut self,
        name: &str,
        repository: &Arc<Repository>,
        purpose: LookupPurpose,
    ) -> Vec<Arc<Repository>> {
        self.all.insert(name.to_owned(), (Arc::clone(repository), 0));
        self.get(name, purpose);
        let mut closed = Vec::new();
        // A scan may exceed the limit by one, so that it does not close repositories that
        // clients use.
        let most = self.most + usize::from(purpose == LookupPurpose::Scan);
        while self.all.len() > most {
            let idle = self.all.iter().filter(|(_, (idle, _))| Repository::is_idle(idle));
            let oldest = idle.min_by_key(|(_, (_, last))| *last).map(|(name, _)| name.clone());
            let Some((oldest, _)) = oldest.and_then(|name| self.all.remove(&name)) else { break };
            closed.push(oldest);
        }
        closed
    }
}

#[derive(Debug)]
enum ServedSource {
    /// A single store.
    Store(PathBuf),
    /// A folder of stores.
    Folder(PathBuf),
    /// The stores of an upstream.
    Upstream(Arc<Upstream>),
}

impl Hub {
    /// Serves the store at `path` or in `path/.snap`; if there is none, the stores in the
    /// folder `path`.
    ///
    /// # Errors
    /// [`RepoError::NoStore`] when there is nothing at `path`, [`RepoError::FoundLink`] when
    /// `path/.snap` is a symbolic link to a store, [`RepoError::Remote`] when a
    /// store there is a folder that `snap push` made, and any error of opening a single
    /// store.
    pub fn open(path: &Path) -> Result<Self, RepoError> {
        Self::open_with_clock(path, Clock::default())
    }

    /// Like [`open`](Self::open), for a server with this clock.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_clock(path: &Path, clock: Clock) -> Result<Self, RepoError> {
        let shared = RepositoryResources::new(clock);
        let place = match named_store(path)? {
            Some(dir) => ServedSource::Store(dir),
            None if path.is_dir() => ServedSource::Folder(path.to_owned()),
            None => return Err(RepoError::NoStore { dir: path.to_owned() }),
        };
        let only = match &place {
            ServedSource::Store(dir) => Some(Arc::new(Repository::open(ONLY, dir, &shared)?)),
            ServedSource::Folder(_) | ServedSource::Upstream(_) => None,
        };
        let hub = Self::of(place, shared);
        for name in hub.names() {
            hub.dir(&name).map_or(Ok(()), |dir| refuse_remote(&dir))?;
        }
        only.iter().for_each(|only| drop(hub.open.lock().put(ONLY, only, LookupPurpose::Request)));
        Ok(hub)
    }

    fn of(place: ServedSource, shared: RepositoryResources) -> Self {
        let open = OpenRepositories { all: HashMap::new(), most: OPEN_REPOSITORIES, clock: 0 };
        let (opening, making) = (SingleFlight::default(), Mutex::default());
        let landmarks = match &place {
            ServedSource::Store(dir) => {
                let settings = Some(dir.join(config::FILE)).filter(|file| file.exists());
                FolderWatch::of([dir.clone()], settings)
            }
            ServedSource::Folder(folder) => FolderWatch::of([folder.clone()], []),
            ServedSource::Upstream(_) => FolderWatch::default(),
        };
        Self { place, open: Mutex::new(open), opening, making, landmarks, shared }
    }

    /// Serves the stores of an upstream.
    pub fn for_upstream(upstream: Upstream) -> Self {
        let shared = RepositoryResources::new(upstream.clock().clone());
        Self::of(ServedSource::Upstream(Arc::new(upstream)), shared)
    }

    /// Returns the clock of the server.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Sets the number of open repositories above which idle ones are closed; at least one.
    #[must_use]
    pub fn with_open_limit(self, most: usize) -> Self {
        self.open.lock().most = most.max(1);
        self
    }

    /// Returns how many repositories are open.
    pub fn open_count(&self) -> usize {
        self.open.lock().all.len()
    }

    /// Returns the upstream, if there is one.
    pub fn upstream(&self) -> Option<&Upstream> {
        match &self.place {
            ServedSource::Upstream(upstream) => Some(upstream),
            ServedSource::Store(_) | ServedSource::Folder(_) => None,
        }
    }

    /// Returns true if the served folder is still the one found when the server started.
    pub fn is_there(&self) -> bool {
        self.landmarks.are_unchanged()
    }

    /// Frees space in the cache of the upstream if `problem` says that its disk is full. Returns
    /// the problem for the client: a retry if space was freed, or else `problem`. May block.
    pub fn make_room_for(&self, problem: HttpProblem) -> HttpProblem {
        let relieved = |upstream: &Upstream| upstream.cache().relieve();
        match problem.is_own_disk_full && self.upstream().is_some_and(relieved) {
            true => HttpProblem {
                retry_after_secs: Some(1),
                ..HttpProblem::new(
                    Code::Unavailable,
                    "the disk of this server was full; space was freed, so a retry may succeed",
                )
            },
            false => problem,
        }
    }

    /// Returns the server's own folder, for files that concern all repositories.
    pub fn home(&self) -> Option<&Path> {
        match &self.place {
            ServedSource::Store(dir) | ServedSource::Folder(dir) => Some(dir),
            ServedSource::Upstream(_) => None,
        }
    }

    /// Returns the folders whose lock another server may hold: the parents of the served
    /// folder, as many levels up as a server searches down for stores; and the folders and
    /// stores inside it. May block.
    pub fn lock_candidates(&self) -> Vec<PathBuf> {
        let Some(home) = self.home() else { return Vec::new() };
        let real = fs_err::canonicalize(home).unwrap_or_else(|_| home.to_owned());
        // One level more, since a store may be the folder `.snap`.
        let above = real.ancestors().skip(1).take(LEVELS + 1).map(Path::to_owned);
        let mut others: Vec<PathBuf> = above.collect();
        if let ServedSource::Folder(folder) = &self.place {
            add_folders(folder, LEVELS, &mut others);
        }
        others
    }

    /// Returns the names of the repositories, sorted. May block.
    pub fn names(&self) -> Vec<String> {
        let folder = match &self.place {
            ServedSource::Store(_) => return vec![ONLY.to_owned()],
            ServedSource::Folder(folder) => folder,
            ServedSource::Upstream(upstream) => return upstream.names(),
        };
        let mut names = Vec::new();
        find(folder, "", LEVELS, &mut names);
        names.sort_unstable();
        names
    }

    /// Returns a repository if it is open already. Does not block.
    pub fn get_open(&self, name: &str) -> Option<Arc<Repository>> {
        self.open.lock().get(name, LookupPurpose::Request)
    }

    /// Like [`get_open`](Self::get_open), for a scan over many repositories: does not count
    /// as a use.
    pub fn get_open_for_scan(&self, name: &str) -> Option<Arc<Repository>> {
        self.open.lock().get(name, LookupPurpose::Scan)
    }

    /// Returns a repository, and opens it if needed. May block.
    ///
    /// # Errors
    /// [`Code::NoRepository`] when no repository has this name; errors of opening it.
    pub fn get(&self, name: &str) -> Result<Arc<Repository>, HttpProblem> {
        self.open_one(name, LookupPurpose::Request)
    }

    /// Like [`get`](Self::get), for a scan over many repositories. It does not count as a
    /// use, so a scan does not close the repositories that clients use. May block.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_for_scan(&self, name: &str) -> Result<Arc<Repository>, HttpProblem> {
        self.open_one(name, LookupPurpose::Scan)
    }

    fn open_one(&self, name: &str, purpose: LookupPurpose) -> Result<Arc<Repository>, HttpProblem> {
        // The lock is not held while a repository does work.
        let known = || self.open.lock().get(name, purpose);
        if let Some(repository) = known() {
            repository.catch_up(Freshness::Lately);
            // `catch_up` may find that the cached copy is incomplete, and discard it.
            if repository.is_there() {
                return Ok(repository);
            }
            self.open.lock().forget(&repository);
        }
        let _opening = self.opening.lead(name.to_owned());
        // Another thread may have opened it meanwhile.
        if let Some(repository) = known() {
            return Ok(repository);
        }
        let new = Arc::new(self.opened(name)?);
        new.catch_up(Freshness::Lately);
        let closed = self.open.lock().put(name, &new, purpose);
        drop(closed);
        Ok(new)
    }

    /// Returns the upstream outage because of which a repository may be outdated; for `None`,
    /// because of which any repository may be. Returns `None` if the data is current. Does not
    /// block.
    pub fn outage(&self, name: Option<&str>) -> Option<UpstreamOutage> {
        let upstream = self.upstream()?;
        match name {
            Some(name) => {
                let open = self.open.lock().get(name, LookupPurpose::Scan);
                open.map_or_else(|| upstream.contact().outage(), |open| open.outage())
            }
            None => upstream.outage(),
        }
    }

    fn opened(&self, name: &str) -> Result<Repository, HttpProblem> {
        let none = || HttpProblem::new(Code::NoRepository, no_repository(name));
        if let ServedSource::Upstream(upstream) = &self.place {
            if !is_name(name) || !upstream.may_have(name)? {
                return Err(none());
            }
            return Repository::open_behind(name, upstream, &self.shared);
        }
        let dir = self.dir(name).and_then(|dir| match &self.place {
            ServedSource::Folder(_) => served_in(&dir),
            ServedSource::Store(_) | ServedSource::Upstream(_) => store_in(&dir),
        });
        // While the disk is not mounted, the repository may exist: do not say that there is
        // none.
        let dir = dir.ok_or_else(|| match (self.is_there(), &self.place) {
            (true, _) | (false, ServedSource::Upstream(_)) => none(),
            (false, _) => {
                HttpProblem::new(Code::Unavailable, "the served folder was moved or is not mounted")
            }
        })?;
        Ok(Repository::open(name, &dir, &self.shared)?)
    }

    /// Creates a repository with the settings that a client sent. The repository must not lie
    /// inside another one, nor contain one. May block. **Not** checked: changes that other
    /// processes make in the same folder at the same time.
    ///
    /// # Errors
    /// [`Code::Conflict`] when the repository exists, [`Code::Rejected`] when others lie below it,
    /// [`Code::NoRepository`] when the name is invalid or lies inside another repository.
    pub fn create(&self, name: &str, config: &str) -> Result<(), HttpProblem> {
        let none = || HttpProblem::new(Code::NoRepository, no_repository(name));
        if let ServedSource::Upstream(upstream) = &self.place {
            return match is_name(name) && upstream.may_have(name)? {
                true => upstream.create(name, config),
                false => Err(none()),
            };
        }
        let _one_at_a_time = self.making.lock();
        let dir = self.dir(name).ok_or_else(none)?;
        if store_in(&dir).is_some() {
            return Err(HttpProblem::new(
                Code::Conflict,
                format!("repository `{name}` already exists"),
            ));
        }
        // Names of repositories may equal those of a store's own folders: `logs`, `index`,
        // `tmp`.
        let mut below = Vec::new();
        find(&dir, &format!("{name}/"), LEVELS, &mut below);
        match below.is_empty() {
            true => Repository::create(&dir, config),
            // Do not name the repositories below: the client may not be allowed to see them.
            // `Conflict` would tell the client that another client has just created this
            // repository.
            false => {
                let why = format!("other repositories lie below `{name}`");
                Err(HttpProblem::new(Code::Rejected, why))
            }
        }
    }

    /// Returns the folder of a repository, which may not exist yet. Returns `None` if the name is
    /// invalid, or if the folder lies inside another repository or behind a symbolic link, which
    /// may lead out of the served folder.
    fn dir(&self, name: &str) -> Option<PathBuf> {
        match &self.place {
            ServedSource::Store(dir) => (name == ONLY).then(|| dir.clone()),
            ServedSource::Folder(folder) if is_name(name) => {
                let above = name.match_indices('/').map(|(end, _)| folder.join(&name[..end]));
                let dir = folder.join(name);
                let is_remote =
                    above.into_iter().any(|dir| dir.is_symlink() || store_in(&dir).is_some());
                (!is_remote && !dir.is_symlink()).then_some(dir)
            }
            ServedSource::Folder(_) | ServedSource::Upstream(_) => None,
        }
    }
}

/// Formats the message for a repository that does not exist or that the client may not
/// read.
pub(crate) fn no_repository(name: &str) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(NAME_BYTES).collect();
    format!("repository `{shown}` does not exist")
}

/// Returns the folder in which a server of `path` keeps its own files.
///
/// # Errors
/// [`RepoError::NoStore`] when there is nothing at `path`, [`RepoError::FoundLink`] when the store
/// in it is a symbolic link.
pub fn home(path: &Path) -> Result<PathBuf, RepoError> {
    let folder = || path.is_dir().then(|| path.to_owned());
    let missing = || RepoError::NoStore { dir: path.to_owned() };
    named_store(path)?.or_else(folder).ok_or_else(missing)
}

/// Like [`store_in`], for the folder to serve: `path` itself may be a symbolic link, since the
/// user named it; the store in it may not.
fn named_store(path: &Path) -> Result<Option<PathBuf>, RepoError> {
    let store = store_in(path);
    if let Some(inside) = store.as_ref().filter(|store| *store != path) {
        refuse_found_link(inside)?;
    }
    Ok(store)
}

/// Returns `dir` if it is a store, or else the store in `dir/.snap`. A store that has lost its
/// settings counts, too.
fn store_in(dir: &Path) -> Option<PathBuf> {
    let inside = dir.join(STORE_FOLDER);
    let is_store = |dir: &PathBuf| dir.join(config::FILE).is_file() || Repo::has_lost_settings(dir);
    [dir.to_owned(), inside].into_iter().find(is_store)
}

/// Like [`store_in`], for a folder inside the served one: neither the folder nor the store
/// may be a symbolic link.
fn served_in(dir: &Path) -> Option<PathBuf> {
    store_in(dir).filter(|store| !dir.is_symlink() && !store.is_symlink())
}

/// Returns true if a name is valid for a repository. It has at most four parts, separated
/// by `/`. A part consists of ASCII letters, digits, `.`, `_` and `-`, and does not begin
/// with a dot. The name of the server's own token file is not valid.
pub fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
    };
    let is_own = name.split('/').next() == Some(TOKENS);
    !is_own
        && name.len() <= NAME_BYTES
        && name.split('/').count() <= LEVELS
        && name.split('/').all(is_part)
}

/// Collects the folders below `folder` that are searched for stores, and the stores.
fn add_folders(folder: &Path, levels: usize, folders: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_named = entry.file_name().to_str().is_some_and(is_name);
        if !is_named || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        match store_in(&path) {
            Some(store) => folders.push(store),
            None if levels > 1 => add_folders(&path, levels - 1, folders),
            None => {}
        }
        folders.push(path);
    }
}

/// Collects the names of the stores below `folder`, without following symbolic links.
fn find(folder: &Path, prefix: &str, levels: usize, names: &mut Vec<String>) {
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        let Some(part) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let name = format!("{prefix}{part}");
        if !is_name(&name) || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if served_in(&entry.path()).is_some() {
            names.push(name);
        } else if levels > 1 {
            find(&entry.path(), &format!("{name}/"), levels - 1, names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_names_cannot_leave_the_served_folder() {
        for name in ["a", "team/project", "v1.0", "a_b-c/d"] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "/",
            "a/",
            "/a",
            "..",
            "a/../b",
            ".snap",
            "a/.b",
            "a//b",
            "a\\b",
            "a\0",
            "ä",
            "tokens.toml",
        ] {
            assert!(!is_name(name), "{name}");
        }
        assert!(!is_name(&"a".repeat(NAME_BYTES + 1)));
        assert!(!is_name("a/b/c/d/e"));
    }

    #[test]
    fn symlinks_in_the_served_folder_are_not_followed() {
        let (outside, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = snap_core::repo::Config::default().to_text();
        let there = Hub::open(outside.path()).unwrap();
        there.create("secret", &config).unwrap();
        let link = |from: &Path, to: &str| {
            std::os::unix::fs::symlink(from, folder.path().join(to)).unwrap();
        };
        link(&outside.path().join("secret"), "link");
        link(outside.path(), "team");
        fs_err::create_dir(folder.path().join("project")).unwrap();
        link(&outside.path().join("secret"), "project/.snap");
        let hub = Hub::open(folder.path()).unwrap();
        for name in ["link", "team/secret", "project"] {
            assert_eq!(hub.get(name).unwrap_err().code, Code::NoRepository, "{name}");
        }
        for name in ["link", "team/new", "link/new"] {
            assert_eq!(hub.create(name, &config).unwrap_err().code, Code::NoRepository, "{name}");
        }
        assert!(hub.names().is_empty());
        assert_eq!(there.names(), ["secret"]);
        // The served folder itself may be named by a link.
        link(outside.path(), "served");
        assert_eq!(Hub::open(&folder.path().join("served")).unwrap().names(), ["secret"]);
    }

    #[test]
    fn a_served_folder_with_a_symlink_as_store_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let config = snap_core::repo::Config::default().to_text();
        Hub::open(folder.path()).unwrap().create("store", &config).unwrap();
        let project = folder.path().join("project");
        fs_err::create_dir(&project).unwrap();
        std::os::unix::fs::symlink("../store", project.join(STORE_FOLDER)).unwrap();
        for opened in [Hub::open(&project).map(drop), home(&project).map(drop)] {
            assert!(matches!(opened, Err(RepoError::FoundLink { .. })));
        }
        // A link that the user names is followed.
        assert_eq!(Hub::open(&project.join(STORE_FOLDER)).unwrap().names(), [ONLY]);
    }

    #[test]
    fn no_repository_is_created_inside_another() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::open(folder.path()).unwrap();
        let config = snap_core::repo::Config::default().to_text();
        hub.create("team/a", &config).unwrap();
        hub.create("team/b", &config).unwrap();
        for inside in ["team/a/b", "team/a/refs/tags"] {
            let problem = hub.create(inside, &config).unwrap_err();
            assert_eq!(problem.code, Code::NoRepository, "{inside}");
        }
        assert_eq!(hub.names(), ["team/a", "team/b"]);
    }

    #[test]
    fn no_repository_is_created_above_others() {
        let config = snap_core::repo::Config::default().to_text();
        for inside in ["logs", "index", "cache", "tmp", "refs", "tmp/a", "objects/b/c", "other"] {
            let folder = tempfile::tempdir().unwrap();
            let hub = Hub::open(folder.path()).unwrap();
            let name = format!("team/{inside}");
            hub.create(&name, &config).unwrap();
            let problem = hub.create("team", &config).unwrap_err();
            assert_eq!(problem.code, Code::Rejected, "{inside}");
            assert_eq!(problem.detail, "other repositories lie below `team`");
            assert_eq!(hub.names(), [name.as_str()]);
            assert_eq!(hub.get(&name).unwrap().name(), name);
            // A repository beside them can be created.
            hub.create("tea", &config).unwrap();
        }
    }

    #[test]
    fn of_two_nested_repositories_only_one_is_created() {
        let config = snap_core::repo::Config::default().to_text();
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let hub = Hub::open(folder.path()).unwrap();
            let made = std::thread::scope(|scope| {
                let make = |name| hub.create(name, &config).is_ok();
                let outer = scope.spawn(move || make("team"));
                let inner = scope.spawn(move || make("team/logs"));
                [outer.join().unwrap(), inner.join().unwrap()]
            });
            assert_ne!(made[0], made[1], "{made:?}");
            assert_eq!(hub.names(), [if made[0] { "team" } else { "team/logs" }]);
        }
    }

    #[test]
    fn repositories_in_use_and_recently_used_stay_open() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::open(folder.path()).unwrap().with_open_limit(3);
        let config = snap_core::repo::Config::default().to_text();
        let names = ["a", "b", "c", "d", "e", "f"];
        names.iter().for_each(|name| hub.create(name, &config).unwrap());
        let first = hub.get("a").unwrap();
        for name in names {
            assert_eq!(hub.get(name).unwrap().name(), name);
            assert!(hub.open_count() <= 3);
        }
        assert!(
            Arc::ptr_eq(&first, &hub.get("a").unwrap()),
            "a repository in use is not opened again"
        );
        let of = |name| hub.get_open(name).map(|open| open.number());
        assert!(of("e").is_some() && of("f").is_some() && of("b").is_none());
        // A scan over all repositories closes none that clients use.
        let before = ["a", "e", "f"].map(of);
        names.iter().for_each(|name| drop(hub.get_for_scan(name).unwrap()));
        assert_eq!(["a", "e", "f"].map(of), before);
        assert_eq!(hub.open_count(), 4);
        drop(first);
        names.iter().for_each(|name| drop(hub.get(name).unwrap()));
        assert_eq!((of("a"), hub.open_count()), (None, 3));
    }
}
