//! Which repositories there are: the store itself, or the stores in a folder,
//! each named by its path there; or those of an upstream.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use snap_core::repo::{RepoError, config, open::STORE_FOLDER};
use snap_remote::service::snap_server::ONLY;

use crate::{
    problem::{Code, Problem},
    repository::Repository,
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
    open: Mutex<HashMap<String, Arc<Repository>>>,
    /// Of an upstream, each repository is opened once, whatever becomes of others.
    opening: Mutex<HashMap<String, Arc<Mutex<()>>>>,
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
    /// [`RepoError::NoStore`] when there is nothing there, and whatever keeps a
    /// single store from being opened.
    pub fn open(path: &Path) -> Result<Self, RepoError> {
        let place = match store_in(path) {
            Some(dir) => Place::Store(dir),
            None if path.is_dir() => Place::Folder(path.to_owned()),
            None => return Err(RepoError::NoStore { dir: path.to_owned() }),
        };
        let mut open = HashMap::new();
        if let Place::Store(dir) = &place {
            open.insert(ONLY.to_owned(), Arc::new(Repository::open(ONLY, dir)?));
        }
        Ok(Self { place, open: Mutex::new(open), opening: Mutex::default() })
    }

    /// Serves what lies upstream.
    pub fn behind(upstream: Upstream) -> Self {
        let place = Place::Upstream(Arc::new(upstream));
        Self { place, open: Mutex::default(), opening: Mutex::default() }
    }

    /// What lies behind the server, if anything does.
    pub fn upstream(&self) -> Option<&Upstream> {
        match &self.place {
            Place::Upstream(upstream) => Some(upstream),
            Place::Store(_) | Place::Folder(_) => None,
        }
    }

    /// A folder of the server's own, for files that are about all repositories.
    pub fn home(&self) -> Option<&Path> {
        match &self.place {
            Place::Store(dir) | Place::Folder(dir) => Some(dir),
            Place::Upstream(_) => None,
        }
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
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// A repository. May block.
    ///
    /// # Errors
    /// [`Code::NoRepository`].
    pub fn get(&self, name: &str) -> Result<Arc<Repository>, Problem> {
        let open = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open().get(name).map(Arc::clone);
        if let Some(repository) = known {
            repository.catch_up(Freshness::Lately);
            return Ok(repository);
        }
        let Place::Upstream(_) = &self.place else {
            let opened = Arc::new(self.opened(name)?);
            // Somebody may have been faster; what is on its way is kept in one place.
            return Ok(Arc::clone(open().entry(name.to_owned()).or_insert(opened)));
        };
        let opening = || self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = Arc::clone(opening().entry(name.to_owned()).or_default());
        let one_at_a_time = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open().get(name).map(Arc::clone);
        let opened = match known {
            Some(known) => Ok(known),
            None => self.opened(name).map(|new| {
                let new = Arc::new(new);
                new.catch_up(Freshness::Lately);
                Arc::clone(open().entry(name.to_owned()).or_insert(new))
            }),
        };
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
            Some(name) => self.get_open(name)?.away(),
            None => upstream.contact().away(),
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
        let dir = self.dir(name).and_then(|dir| store_in(&dir)).ok_or_else(none)?;
        Ok(Repository::open(name, &dir)?)
    }

    /// Makes a repository with the settings that a client sent. May block.
    ///
    /// # Errors
    /// [`Code::Conflict`] when there is one.
    pub fn create(&self, name: &str, config: &str) -> Result<(), Problem> {
        let none = || Problem::new(Code::NoRepository, no_repository(name));
        if let Place::Upstream(upstream) = &self.place {
            return match is_name(name) && upstream.may_have(name)? {
                true => upstream.create(name, config),
                false => Err(none()),
            };
        }
        let dir = self.dir(name).ok_or_else(none)?;
        match store_in(&dir) {
            None => Repository::create(&dir, config),
            Some(_) => Err(Problem::new(Code::Conflict, format!("there is already `{name}`"))),
        }
    }

    /// Where a repository lies, or would: in no other one.
    fn dir(&self, name: &str) -> Option<PathBuf> {
        match &self.place {
            Place::Store(dir) => (name == ONLY).then(|| dir.clone()),
            Place::Folder(folder) if is_name(name) => {
                let above = name.match_indices('/').map(|(end, _)| folder.join(&name[..end]));
                let is_inside = above.into_iter().any(|dir| store_in(&dir).is_some());
                (!is_inside).then(|| folder.join(name))
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

fn find(folder: &Path, prefix: &str, levels: usize, names: &mut Vec<String>) {
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        let Some(part) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let name = format!("{prefix}{part}");
        if !is_name(&name) || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if store_in(&entry.path()).is_some() {
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
}
