//! Which repositories there are: the store itself, or the stores in a folder,
//! each named by its path there; or those of an upstream.
//!
//! One that is asked for is opened and stays open. Of those with which nothing is
//! done only so many stay: those that were asked for last. There are never two of
//! one store: what is on its way into it is kept in one place.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use snap_core::repo::{
    RepoError, config,
    open::{STORE_FOLDER, refuse_remote},
};
use snap_remote::service::snap_server::ONLY;

use crate::{
    problem::{Code, Problem},
    repository::{Landmarks, Repository},
    settings::OPEN_REPOSITORIES,
    upstream::{Upstream, behind::Freshness, contact::Away},
};

/// Levels of folders in which stores are looked for.
const LEVELS: usize = 4;

/// File of tokens beside the repositories.
pub const TOKENS: &str = "tokens.toml";

/// Longest name of a repository.
const NAME_BYTES: usize = 200;

/// The repositories of a server.
#[derive(Debug)]
pub struct Hub {
    place: Place,
    open: Mutex<Open>,
    /// Each repository is opened once, whatever becomes of others.
    opening: Mutex<HashMap<String, Arc<Mutex<()>>>>,
    /// One is made at a time, so that none comes to lie in another.
    making: Mutex<()>,
    /// What is served, as it was found; nothing before an upstream.
    landmarks: Landmarks,
}

/// Those that are open, each with when it was last asked for.
#[derive(Debug)]
struct Open {
    all: HashMap<String, (Arc<Repository>, u64)>,
    /// So many stay open though nothing is done with them.
    most: usize,
    asked: u64,
}

/// How one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// By somebody who is likely to come again.
    ToUse,
    /// In passing, with many others: it stays open no longer for that.
    ToGlance,
}

impl Open {
    fn get(&mut self, name: &str, asked: Asked) -> Option<Arc<Repository>> {
        let (repository, last) = self.all.get_mut(name)?;
        if asked == Asked::ToUse {
            self.asked += 1;
            *last = self.asked;
        }
        Some(Arc::clone(repository))
    }

    /// One whose folders are gone is opened anew by whoever asks next.
    fn forget(&mut self, gone: &Arc<Repository>) {
        let is_it = |(open, _): &(Arc<Repository>, u64)| Arc::ptr_eq(open, gone);
        if self.all.get(gone.name()).is_some_and(is_it) {
            tracing::warn!(repository = gone.name(), "its folders are gone");
            self.all.remove(gone.name());
        }
    }

    /// Takes note of one that was opened. Of the others those are to be closed that
    /// this returns.
    fn put(
        &mut self,
        name: &str,
        repository: &Arc<Repository>,
        asked: Asked,
    ) -> Vec<Arc<Repository>> {
        self.all.insert(name.to_owned(), (Arc::clone(repository), 0));
        self.get(name, asked);
        let mut closed = Vec::new();
        // In passing none of those is closed that are used.
        let most = self.most + usize::from(asked == Asked::ToGlance);
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
enum Place {
    /// One store.
    Store(PathBuf),
    /// A folder of stores.
    Folder(PathBuf),
    /// Stores elsewhere.
    Upstream(Arc<Upstream>),
}

impl Hub {
    /// Serves the store at `path`, the one in `.snap` there, or those in the
    /// folder `path`.
    ///
    /// # Errors
    /// [`RepoError::NoStore`] when there is nothing there, [`RepoError::Remote`] when a
    /// store there is a folder that `push` made, and whatever keeps a single store from
    /// being opened.
    pub fn open(path: &Path) -> Result<Self, RepoError> {
        let place = match store_in(path) {
            Some(dir) => Place::Store(dir),
            None if path.is_dir() => Place::Folder(path.to_owned()),
            None => return Err(RepoError::NoStore { dir: path.to_owned() }),
        };
        let only = match &place {
            Place::Store(dir) => Some(Arc::new(Repository::open(ONLY, dir)?)),
            Place::Folder(_) | Place::Upstream(_) => None,
        };
        let hub = Self::of(place);
        for name in hub.names() {
            hub.dir(&name).map_or(Ok(()), |dir| refuse_remote(&dir))?;
        }
        only.iter().for_each(|only| drop(hub.lock().put(ONLY, only, Asked::ToUse)));
        Ok(hub)
    }

    fn of(place: Place) -> Self {
        let open = Open { all: HashMap::new(), most: OPEN_REPOSITORIES, asked: 0 };
        let (opening, making) = (Mutex::default(), Mutex::default());
        let landmarks = match &place {
            Place::Store(dir) => Landmarks::of([dir.clone()], [dir.join(config::FILE)]),
            Place::Folder(folder) => Landmarks::of([folder.clone()], []),
            Place::Upstream(_) => Landmarks::default(),
        };
        Self { place, open: Mutex::new(open), opening, making, landmarks }
    }

    /// Serves what lies upstream.
    pub fn behind(upstream: Upstream) -> Self {
        Self::of(Place::Upstream(Arc::new(upstream)))
    }

    /// The same, of which so many repositories stay open with which nothing is
    /// done; one at least.
    #[must_use]
    pub fn keeping_open(self, most: usize) -> Self {
        self.lock().most = most.max(1);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many repositories are open.
    pub fn open_count(&self) -> usize {
        self.lock().all.len()
    }

    /// What lies behind the server, if anything does.
    pub fn upstream(&self) -> Option<&Upstream> {
        match &self.place {
            Place::Upstream(upstream) => Some(upstream),
            Place::Store(_) | Place::Folder(_) => None,
        }
    }

    /// Whether what is served is still where it was when the server started.
    pub fn is_there(&self) -> bool {
        self.landmarks.are_there()
    }

    /// What is told of a problem once room was made, where the disk of a cache is
    /// full: then it goes well another time. May block.
    pub fn relieve(&self, problem: Problem) -> Problem {
        let relieved = |upstream: &Upstream| upstream.cache().relieve();
        match problem.is_own_disk_full() && self.upstream().is_some_and(relieved) {
            true => Problem {
                retry_after_secs: Some(1),
                ..Problem::new(Code::Unavailable, "the disk of this server was full")
            },
            false => problem,
        }
    }

    /// A folder of the server's own, for files that are about all repositories.
    pub fn home(&self) -> Option<&Path> {
        match &self.place {
            Place::Store(dir) | Place::Folder(dir) => Some(dir),
            Place::Upstream(_) => None,
        }
    }

    /// Folders of which another server may hold the lock: those in which what is served
    /// lies, as far as one looks for stores below a folder, and folders and stores in it. May
    /// block.
    pub fn others(&self) -> Vec<PathBuf> {
        let Some(home) = self.home() else { return Vec::new() };
        let real = fs_err::canonicalize(home).unwrap_or_else(|_| home.to_owned());
        // The folder `.snap` is one more.
        let above = real.ancestors().skip(1).take(LEVELS + 1).map(Path::to_owned);
        let mut others: Vec<PathBuf> = above.collect();
        if let Place::Folder(folder) = &self.place {
            add_folders(folder, LEVELS, &mut others);
        }
        others
    }

    /// Names of the repositories, sorted. May block.
    pub fn names(&self) -> Vec<String> {
        let folder = match &self.place {
            Place::Store(_) => return vec![ONLY.to_owned()],
            Place::Folder(folder) => folder,
            Place::Upstream(upstream) => return upstream.names(),
        };
        let mut names = Vec::new();
        find(folder, "", LEVELS, &mut names);
        names.sort_unstable();
        names
    }

    /// A repository that is open already; does not block.
    pub fn get_open(&self, name: &str) -> Option<Arc<Repository>> {
        self.lock().get(name, Asked::ToUse)
    }

    /// The same, for those who look at many in turn.
    pub fn glance_open(&self, name: &str) -> Option<Arc<Repository>> {
        self.lock().get(name, Asked::ToGlance)
    }

    /// A repository. May block.
    ///
    /// # Errors
    /// [`Code::NoRepository`].
    pub fn get(&self, name: &str) -> Result<Arc<Repository>, Problem> {
        self.open_one(name, Asked::ToUse)
    }

    /// The same, for those who look at many in turn: others are not closed for
    /// that, as far as nobody does more with it. May block.
    ///
    /// # Errors
    /// [`Code::NoRepository`].
    pub fn glance(&self, name: &str) -> Result<Arc<Repository>, Problem> {
        self.open_one(name, Asked::ToGlance)
    }

    fn open_one(&self, name: &str, asked: Asked) -> Result<Arc<Repository>, Problem> {
        // The lock is not held while one of them does something.
        let known = || self.lock().get(name, asked);
        if let Some(repository) = known() {
            repository.catch_up(Freshness::Lately);
            // Seeing how it stands upstream may show that what is here is not whole.
            if repository.is_there() {
                return Ok(repository);
            }
            self.lock().forget(&repository);
        }
        let opening = || self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = Arc::clone(opening().entry(name.to_owned()).or_default());
        let one_at_a_time = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = known().map_or_else(
            || {
                let new = Arc::new(self.opened(name)?);
                new.catch_up(Freshness::Lately);
                let closed = self.lock().put(name, &new, asked);
                drop(closed);
                Ok(new)
            },
            Ok,
        );
        drop(one_at_a_time);
        // Whoever waits has it, too: then they are the last.
        opening().retain(|other, turn| other != name || Arc::strong_count(turn) > 2);
        opened
    }

    /// Since when what is told of a repository, or of all, may not be as it is
    /// upstream, if so. Does not block.
    pub fn away(&self, name: Option<&str>) -> Option<Away> {
        let upstream = self.upstream()?;
        match name {
            Some(name) if let Some(open) = self.lock().get(name, Asked::ToGlance) => open.away(),
            Some(_) => upstream.contact().away(),
            None => upstream.away(),
        }
    }

    fn opened(&self, name: &str) -> Result<Repository, Problem> {
        let none = || Problem::new(Code::NoRepository, no_repository(name));
        if let Place::Upstream(upstream) = &self.place {
            if !is_name(name) || !upstream.may_have(name)? {
                return Err(none());
            }
            return Repository::open_behind(name, upstream);
        }
        let dir = self.dir(name).and_then(|dir| match &self.place {
            Place::Folder(_) => served_in(&dir),
            Place::Store(_) | Place::Upstream(_) => store_in(&dir),
        });
        // A disk that is not mounted is not a repository that was never made.
        let dir = dir.ok_or_else(|| match (self.is_there(), &self.place) {
            (true, _) | (false, Place::Upstream(_)) => none(),
            (false, _) => Problem::new(Code::Unavailable, "what is served is not where it was"),
        })?;
        Ok(Repository::open(name, &dir)?)
    }

    /// Makes a repository with the settings that a client sent: in no other one,
    /// and around none. May block. **Not** checked: what other processes make in
    /// the same folder at the same time.
    ///
    /// # Errors
    /// [`Code::Conflict`] when there is one, [`Code::Rejected`] when others lie
    /// below.
    pub fn create(&self, name: &str, config: &str) -> Result<(), Problem> {
        let none = || Problem::new(Code::NoRepository, no_repository(name));
        if let Place::Upstream(upstream) = &self.place {
            return match is_name(name) && upstream.may_have(name)? {
                true => upstream.create(name, config),
                false => Err(none()),
            };
        }
        let _one_at_a_time = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = self.dir(name).ok_or_else(none)?;
        if store_in(&dir).is_some() {
            return Err(Problem::new(Code::Conflict, format!("there is already `{name}`")));
        }
        // Folders of a store are called so, too: `logs`, `index`, `tmp`.
        let mut below = Vec::new();
        find(&dir, &format!("{name}/"), LEVELS, &mut below);
        match below.is_empty() {
            true => Repository::create(&dir, config),
            // Which ones is not for everybody to know. Nobody was faster: a client
            // must not go on as if it were there.
            false => {
                let why = format!("there are repositories below `{name}`");
                Err(Problem::new(Code::Rejected, why))
            }
        }
    }

    /// Where a repository lies, or would: in no other one, and behind no symbolic
    /// link, which may lead out of what is served.
    fn dir(&self, name: &str) -> Option<PathBuf> {
        match &self.place {
            Place::Store(dir) => (name == ONLY).then(|| dir.clone()),
            Place::Folder(folder) if is_name(name) => {
                let above = name.match_indices('/').map(|(end, _)| folder.join(&name[..end]));
                let dir = folder.join(name);
                let is_elsewhere =
                    above.into_iter().any(|dir| dir.is_symlink() || store_in(&dir).is_some());
                (!is_elsewhere && !dir.is_symlink()).then_some(dir)
            }
            Place::Folder(_) | Place::Upstream(_) => None,
        }
    }
}

/// Words for a repository that is not there, or not for whoever asks.
pub(crate) fn no_repository(name: &str) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(NAME_BYTES).collect();
    format!("there is no repository `{shown}`")
}

/// The folder of its own that a server of what lies at `path` has.
///
/// # Errors
/// [`RepoError::NoStore`] when there is nothing there.
pub fn home(path: &Path) -> Result<PathBuf, RepoError> {
    let folder = || path.is_dir().then(|| path.to_owned());
    let missing = || RepoError::NoStore { dir: path.to_owned() };
    store_in(path).or_else(folder).ok_or_else(missing)
}

/// The store that a folder is, or has in its `.snap`.
fn store_in(dir: &Path) -> Option<PathBuf> {
    let inside = dir.join(STORE_FOLDER);
    [dir.to_owned(), inside].into_iter().find(|dir| dir.join(config::FILE).is_file())
}

/// The same in a folder that is served: neither the folder nor the store is a
/// symbolic link.
fn served_in(dir: &Path) -> Option<PathBuf> {
    store_in(dir).filter(|store| !dir.is_symlink() && !store.is_symlink())
}

/// Whether a name is one for a repository: parts of letters, digits, `.`, `_` and
/// `-`, with `/` between them, none of which begins with a dot. What the server
/// keeps of its own beside them is none.
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

/// Adds the folders below one in which stores are looked for, and the stores.
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
    fn a_name_leads_to_no_other_place() {
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
    fn a_symbolic_link_is_neither_listed_nor_opened_nor_a_place_for_a_repository() {
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
        // What is served may itself be named by a link.
        link(outside.path(), "served");
        assert_eq!(Hub::open(&folder.path().join("served")).unwrap().names(), ["secret"]);
    }

    #[test]
    fn no_repository_lies_in_another() {
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
    fn no_repository_is_made_around_others() {
        let config = snap_core::repo::Config::default().to_text();
        for inside in ["logs", "index", "cache", "tmp", "refs", "tmp/a", "objects/b/c", "other"] {
            let folder = tempfile::tempdir().unwrap();
            let hub = Hub::open(folder.path()).unwrap();
            let name = format!("team/{inside}");
            hub.create(&name, &config).unwrap();
            let problem = hub.create("team", &config).unwrap_err();
            assert_eq!(problem.code, Code::Rejected, "{inside}");
            assert_eq!(problem.detail, "there are repositories below `team`");
            assert_eq!(hub.names(), [name.as_str()]);
            assert_eq!(hub.get(&name).unwrap().name(), name);
            // What lies beside them is in nobody's way.
            hub.create("tea", &config).unwrap();
        }
    }

    #[test]
    fn of_two_that_would_lie_in_each_other_one_is_made() {
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
    fn those_stay_open_with_which_something_is_done_and_that_were_asked_for_last() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::open(folder.path()).unwrap().keeping_open(3);
        let config = snap_core::repo::Config::default().to_text();
        let names = ["a", "b", "c", "d", "e", "f"];
        names.iter().for_each(|name| hub.create(name, &config).unwrap());
        let first = hub.get("a").unwrap();
        for name in names {
            assert_eq!(hub.get(name).unwrap().name(), name);
            assert!(hub.open_count() <= 3);
        }
        assert!(Arc::ptr_eq(&first, &hub.get("a").unwrap()), "nobody opens it twice");
        let of = |name| hub.get_open(name).map(|open| open.number());
        assert!(of("e").is_some() && of("f").is_some() && of("b").is_none());
        // Whoever looks at all of them keeps them from nobody.
        let before = ["a", "e", "f"].map(of);
        names.iter().for_each(|name| drop(hub.glance(name).unwrap()));
        assert_eq!(["a", "e", "f"].map(of), before);
        assert_eq!(hub.open_count(), 4);
        drop(first);
        names.iter().for_each(|name| drop(hub.get(name).unwrap()));
        assert_eq!((of("a"), hub.open_count()), (None, 3));
    }
}
