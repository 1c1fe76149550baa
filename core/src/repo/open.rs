//! Opening a store, and finding the one above a folder.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    base::{io::PathError, kind::ErrorKind, observe::Observer},
    disk::{Disk, inside},
    format::outline,
    repo::{
        config::{
            self, Config, ConfigError, ConfigFile, Settings,
            file::{self, FileError},
            layer::Whose,
        },
        refs::{RefError, Refs, temporary},
    },
    store::{Distant, Store, StoreError},
};

pub use crate::local::store_folder::STORE_FOLDER;
use crate::local::store_folder::ends_search;

/// Branch that `HEAD` names in a new store.
pub const FIRST_BRANCH: &str = "main";

/// An open store with its settings and refs.
#[derive(Debug)]
pub struct Repo {
    store: Store,
    config: Config,
    refs: Refs,
    dir: PathBuf,
    disk: Disk,
    is_absent: bool,
}

/// Why a store could not be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepoError {
    /// There is nothing at this path.
    #[error("there is no store at {}", dir.display())]
    NoStore {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// There is something else.
    #[error("{} is not a store", dir.display())]
    NotAStore {
        /// What was taken for one.
        dir: PathBuf,
    },
    /// It is laid out as a remote is.
    #[error("{} is a remote, not a store that is committed to", dir.display())]
    Remote {
        /// The folder of the remote.
        dir: PathBuf,
    },
    /// A part of it is a symbolic link, which leads elsewhere.
    #[error("{} is a symbolic link, and snap follows none inside a store", path.display())]
    Link {
        /// The part.
        path: PathBuf,
    },
    /// A store is already there.
    #[error("there is already a store at {}", dir.display())]
    Exists {
        /// Where.
        dir: PathBuf,
    },
    /// The folder holds something else.
    #[error("{} is not empty", dir.display())]
    NotEmpty {
        /// Which.
        dir: PathBuf,
    },
    /// Its configuration is unusable, or that of a newer version.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A ref is damaged or cannot be read.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// Objects cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] PathError),
}

impl RepoError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoStore { .. } | Self::NotAStore { .. } => ErrorKind::NotFound,
            Self::Remote { .. } => ErrorKind::Invalid,
            Self::Link { .. } => ErrorKind::Denied,
            Self::Exists { .. } | Self::NotEmpty { .. } => ErrorKind::Exists,
            Self::Config(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Io(error) => error.kind(),
        }
    }
}

impl Repo {
    /// Opens the store in `dir`. Nothing is written unless the index has to be
    /// rebuilt, so a read-only medium will do.
    ///
    /// # Errors
    /// [`RepoError`] says whether there is none, something else, a newer one,
    /// or a damaged one.
    pub fn open(dir: &Path, disk: Disk, observer: &dyn Observer) -> Result<Self, RepoError> {
        let config = read_config(dir)?;
        inside::check_parts(dir).map_err(|PathError { path, .. }| RepoError::Link { path })?;
        let disk = disk.in_store(dir);
        let refs = Refs::new(dir, disk.clone());
        refs.head()?;
        let store = Store::open(dir, disk.clone(), observer)?;
        Ok(Self { store, config, refs, dir: dir.to_owned(), disk, is_absent: false })
    }

    /// A store that is not made yet: it holds nothing, and nothing can be
    /// written to it. For asking what a first commit would come to.
    pub fn absent(dir: &Path, disk: Disk, config: Config) -> Self {
        let store = Store::absent(dir, disk.clone());
        let refs = Refs::new(dir, disk.clone());
        Self { store, config, refs, dir: dir.to_owned(), disk, is_absent: true }
    }

    /// A store whose parts come from different places: one that lies elsewhere
    /// and is read without a copy.
    pub fn of_parts(store: Store, config: Config, refs: Refs) -> Self {
        let (dir, disk) = (store.dir().to_owned(), store.disk().clone());
        Self { store, config, refs, dir, disk, is_absent: false }
    }

    /// Whether it is not made yet.
    pub fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// With other settings than those of the store's file alone: those that
    /// it, its user and the environment amount to.
    #[must_use]
    pub fn with_config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// With frames that are not here taken from `distant`.
    #[must_use]
    pub fn with_distant(self, distant: Arc<dyn Distant>) -> Self {
        Self { store: self.store.with_distant(distant), ..self }
    }

    /// Opens the store in `dir` for a quick look: nothing is written, even if
    /// the index is missing or damaged; what it does not know is not found.
    ///
    /// # Errors
    /// As [`Repo::open`].
    pub fn open_as_it_is(dir: &Path) -> Result<Self, RepoError> {
        let config = read_config(dir)?;
        let disk = Disk::default().in_store(dir);
        let refs = Refs::new(dir, disk.clone());
        let store = Store::open_as_it_is(dir, disk.clone())?;
        Ok(Self { store, config, refs, dir: dir.to_owned(), disk, is_absent: false })
    }

    /// The store folder that belongs to `start`: `.snap` in it or in the
    /// nearest folder above, short of the first of `ceilings`. A folder of that
    /// name that surely holds something else is passed over; one that may be a
    /// damaged store is not. Paths are absolute and compared as they are.
    pub fn find(start: &Path, ceilings: &[PathBuf]) -> Option<PathBuf> {
        let found = |folder: &Path| {
            let store = folder.join(STORE_FOLDER);
            ends_search(&store).then_some(store)
        };
        let is_below = |folder: &&Path| !ceilings.iter().any(|ceiling| ceiling == folder);
        let above = start.ancestors().skip(1).take_while(is_below);
        std::iter::once(start).chain(above).find_map(found)
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Branches, tags and `HEAD`.
    pub fn refs(&self) -> &Refs {
        &self.refs
    }

    /// The store folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What changes files.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The folder whose `.snap` this is; `None` for a bare store.
    pub fn project(&self) -> Option<&Path> {
        let parent = self.dir.parent().filter(|_| self.dir.ends_with(STORE_FOLDER))?;
        Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
    }
}

/// How the folder of a store is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As `init` makes it: each pack in `objects/` counts.
    Local,
    /// As `push` makes it in a folder: a pack counts once a file in `index/`
    /// has its outline.
    Remote,
}

impl Layout {
    /// The layout of the store in `dir`, by a look at the names of its parts.
    /// What says nothing of itself, such as an empty folder, is local.
    pub fn of(dir: &Path) -> Self {
        let has = |name: &str| dir.join(name).exists();
        if !has("refs") || ["lock", "cache", "logs"].into_iter().any(has) {
            return Self::Local;
        }
        // Segments, which a copy of a local store may have, end otherwise.
        let is_outlines = |name: &str| {
            let name = name.trim_end_matches(".part").trim_end_matches(".group");
            name.parse::<outline::Name>().is_ok()
        };
        let mut files = fs_err::read_dir(dir.join("index")).into_iter().flatten().flatten();
        match files.any(|file| file.file_name().to_str().is_some_and(is_outlines)) {
            true => Self::Remote,
            false => Self::Local,
        }
    }
}

/// Fails if the folder of a store is one that `push` made: no commits may be
/// added to it, since whoever reads it would not learn of their packs.
///
/// # Errors
/// [`RepoError::Remote`].
pub fn refuse_remote(dir: &Path) -> Result<(), RepoError> {
    match Layout::of(dir) {
        Layout::Local => Ok(()),
        Layout::Remote => Err(RepoError::Remote { dir: dir.to_owned() }),
    }
}

/// Reads and checks the settings of the store in `dir`, without opening it.
///
/// # Errors
/// [`RepoError::NoStore`], [`RepoError::NotAStore`], [`RepoError::Config`],
/// [`RepoError::Io`].
pub fn read_config(dir: &Path) -> Result<Config, RepoError> {
    Ok(Settings::default().with_store(read_config_file(dir)?.layer).config()?)
}

/// [`read_config`], with the text, where each value stands, and whose it is.
///
/// # Errors
/// As [`read_config`], but values are not yet checked against each other.
pub fn read_config_file(dir: &Path) -> Result<ConfigFile, RepoError> {
    let path = dir.join(config::FILE);
    ConfigFile::read(&path, Whose::Store).map_err(|error| match error {
        FileError::Config(error) => error.into(),
        FileError::Io(_) if !dir.exists() => RepoError::NoStore { dir: dir.to_owned() },
        FileError::Io(error)
            if matches!(
                error.source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            RepoError::NotAStore { dir: dir.to_owned() }
        }
        FileError::Io(error) => error.into(),
    })
}

/// Writes the settings of the store in `dir` in place of those it has.
///
/// # Errors
/// [`PathError`] of the first step that failed.
pub fn write_config(dir: &Path, disk: &Disk, text: &str) -> Result<(), PathError> {
    let disk = &disk.in_store(dir);
    file::write(disk, &temporary(dir, "config"), &dir.join(config::FILE), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make() -> (tempfile::TempDir, PathBuf) {
        let project = tempfile::tempdir().unwrap();
        let dir = project.path().join(STORE_FOLDER);
        (project, dir)
    }

    #[test]
    fn a_new_store_is_found_from_below_and_read() {
        let (project, dir) = make();
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();
        let below = project.path().join("a/b");
        fs_err::create_dir_all(&below).unwrap();
        let found = |ceiling: &str| Repo::find(&below, &[project.path().join(ceiling)]);
        assert_eq!(found("a/b"), Some(dir.clone()));
        assert_eq!(found("a"), None);
        assert_eq!(Repo::find(project.path(), &[project.path().to_owned()]), Some(dir.clone()));
        assert_eq!(read_config(&dir).unwrap(), Config::default());
        let again = Repo::init(&dir, &Disk::default(), &Config::default()).unwrap_err();
        assert!(matches!(again, RepoError::Exists { .. }));
    }

    #[test]
    fn an_interrupted_init_can_be_run_again() {
        let (_project, dir) = make();
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();
        fs_err::remove_file(dir.join(config::FILE)).unwrap();
        assert!(matches!(read_config(&dir), Err(RepoError::NotAStore { .. })));
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();

        fs_err::remove_file(dir.join(config::FILE)).unwrap();
        fs_err::write(dir.join("objects/x"), "a pack").unwrap();
        let lost = Repo::init(&dir, &Disk::default(), &Config::default()).unwrap_err();
        assert!(matches!(lost, RepoError::NotEmpty { .. }));
    }

    #[test]
    fn what_is_no_store_is_said_so() {
        let (project, dir) = make();
        assert!(matches!(read_config(&dir), Err(RepoError::NoStore { .. })));
        let file = project.path().join("file");
        fs_err::write(&file, "").unwrap();
        assert!(matches!(read_config(&file), Err(RepoError::NotAStore { .. })));
        let full = Repo::init(project.path(), &Disk::default(), &Config::default()).unwrap_err();
        assert!(matches!(full, RepoError::NotEmpty { .. }));
    }
}
