//! Opens a store, and finds the store that a folder belongs to.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    base::{io::PathError, kind::Kind, observe::Observer},
    disk::{Disk, output::folder_of, scratch::unique_name, symlink_guard},
    format::outline,
    repo::{
        config::{self, Config, ConfigError, ConfigFile, SettingLayers, file, layer::ConfigOwner},
        mend::has_no_settings,
        refs::{Lock, RefError, Refs},
    },
    store::{RemoteFrames, Store, StoreError},
};

pub use crate::local::store_folder::STORE_FOLDER;
use crate::local::store_folder::{ends_search, objects_in_store};

/// The branch that `HEAD` names in a new store.
pub const FIRST_BRANCH: &str = "main";

/// An open store with its settings and refs.
#[derive(Debug)]
pub struct Repo {
    store: Arc<Store>,
    config: Config,
    refs: Refs,
    is_absent: bool,
}

/// Why a store could not be created or opened.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Denied)]
#[non_exhaustive]
pub enum RepoError {
    /// The path does not exist.
    #[error("no store found at {}", dir.display())]
    #[kind(NotFound)]
    NoStore { dir: PathBuf },
    /// The path exists, but is not a store.
    #[error("{} is not a store", dir.display())]
    #[kind(NotFound)]
    NotAStore { dir: PathBuf },
    /// The store has commits or refs, but its settings file is missing or empty.
    #[error("{} is damaged: its settings file {} is missing", dir.display(), config::FILE)]
    #[kind(Damaged)]
    SettingsLost { dir: PathBuf },
    /// The store has settings, but no folder of objects.
    #[error("{} has no folder `objects`: it is damaged, or not a store", dir.display())]
    #[kind(Damaged)]
    ObjectsLost { dir: PathBuf },
    /// The store has the layout of a remote.
    #[error("{} is a remote; it does not accept commits", dir.display())]
    #[kind(Invalid)]
    Remote { dir: PathBuf },
    /// A part of the store is a symbolic link, which may lead outside it.
    #[error("{} is a symbolic link; snap does not follow links inside a store", path.display())]
    Link { path: PathBuf },
    /// The user did not name the store: snap found a `.snap` that is a symbolic link.
    #[error(
        "{} is a symbolic link; snap uses the store behind it only if you name the link",
        dir.display()
    )]
    FoundLink { dir: PathBuf },
    /// The link `objects` leads into a store: another one, or the same one.
    #[error("{} leads to {}, which is part of a store", objects.display(), target.display())]
    ObjectsInStore { objects: PathBuf, target: PathBuf },
    /// A store already exists in the folder.
    #[error("a store already exists at {}", dir.display())]
    #[kind(Exists)]
    Exists { dir: PathBuf },
    /// The folder contains other files.
    #[error("{} is not empty", dir.display())]
    #[kind(Exists)]
    NotEmpty { dir: PathBuf },
    /// The settings are invalid, or were written by a newer version.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A ref is damaged or cannot be read.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// The objects cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] PathError),
}

impl RepoError {
    /// Returns true if the settings are lost or damaged. Settings of another version are neither.
    pub fn is_of_settings(&self) -> bool {
        match self {
            Self::SettingsLost { .. } => true,
            Self::Config(error) => !error.is_of_version(),
            _ => false,
        }
    }
}

impl Repo {
    /// Opens the store in `dir`. Writes only to rebuild a lost index, so a read-only file system is
    /// enough.
    ///
    /// # Errors
    /// [`RepoError`] tells apart a missing store, a path that is not a store, a store of another
    /// version, and a damaged store.
    pub fn open(dir: &Path, disk: Disk, observer: &dyn Observer) -> Result<Self, RepoError> {
        let config = read_config(dir)?;
        Self::open_checking(|refs| refs.head().map(drop), dir, config, disk, observer)
    }

    /// Opens the store in `dir`, even if `HEAD` is lost or damaged.
    ///
    /// # Errors
    /// As [`Repo::open`].
    pub fn open_without_head(
        dir: &Path,
        disk: Disk,
        observer: &dyn Observer,
    ) -> Result<Self, RepoError> {
        Self::open_checking(|_| Ok(()), dir, read_config(dir)?, disk, observer)
    }

    /// Opens the store in `dir`, even if `HEAD` or the settings are lost or damaged. Uses the
    /// built-in settings in place of lost ones, without writing them. A server opens stores in this
    /// way and reports the damage to its clients; [`Repo::mend_settings`] writes the settings.
    ///
    /// # Errors
    /// As [`Repo::open`].
    pub fn open_without_settings(
        dir: &Path,
        disk: Disk,
        observer: &dyn Observer,
    ) -> Result<Self, RepoError> {
        let config = match read_config(dir) {
            Err(error) if error.is_of_settings() => Config::default(),
            config => config?,
        };
        Self::open_checking(|_| Ok(()), dir, config, disk, observer)
    }

    fn open_checking(
        check: impl FnOnce(&Refs) -> Result<(), RefError>,
        dir: &Path,
        config: Config,
        disk: Disk,
        observer: &dyn Observer,
    ) -> Result<Self, RepoError> {
        check_links(dir)?;
        let disk = disk.in_store(dir);
        let refs = Refs::new(dir, disk.clone());
        check(&refs)?;
        Ok(Self::of_parts(Store::open(dir, disk, observer)?, config, refs))
    }

    /// Returns an empty, read-only placeholder for a store that does not exist yet. A dry run of a
    /// first commit uses it.
    pub fn absent(dir: &Path, disk: Disk, config: Config) -> Self {
        let store = Store::empty(dir, disk.clone());
        let refs = Refs::new(dir, disk.clone());
        Self { is_absent: true, ..Self::of_parts(store, config, refs) }
    }

    /// Builds a repository from its parts. They may be of different origin, to read a remote store
    /// without a local copy.
    pub fn of_parts(store: Store, config: Config, refs: Refs) -> Self {
        let store = Arc::new(store);
        let refs = refs.with_objects(Arc::downgrade(&store));
        Self { store, config, refs, is_absent: false }
    }

    /// Returns true if the store does not exist yet (see [`Repo::absent`]).
    pub fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// Replaces the settings read from the store's own file by the merged settings of the store,
    /// the user and the environment.
    #[must_use]
    pub fn with_config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Fetches frames that are missing locally from `remote`.
    #[must_use]
    pub fn with_remote_frames(self, remote: Arc<dyn RemoteFrames>) -> Self {
        let Self { store, config, refs, is_absent } = self;
        let Some(store) = Arc::into_inner(store) else {
            unreachable!("only the repository and weak references have the store")
        };
        Self { is_absent, ..Self::of_parts(store.with_remote_frames(remote), config, refs) }
    }

    /// Opens the store in `dir` for a quick look. Writes nothing, even if the index is missing or
    /// damaged: objects that the index does not list are then not found.
    ///
    /// # Errors
    /// As [`Repo::open`].
    pub fn open_read_only(dir: &Path) -> Result<Self, RepoError> {
        let config = read_config(dir)?;
        let disk = Disk::default().in_store(dir);
        let refs = Refs::new(dir, disk.clone());
        Ok(Self::of_parts(Store::open_read_only(dir, disk)?, config, refs))
    }

    /// Returns the store folder that `start` belongs to: `.snap` in `start` or in the nearest
    /// folder above it. The search stops before the first folder of `ceilings`. It skips a `.snap`
    /// that is certainly not a store, and ends at one that may be a damaged store. Paths must be
    /// absolute; the function compares them byte by byte.
    ///
    /// # Errors
    /// [`RepoError::FoundLink`] if that `.snap` is a symbolic link.
    pub fn find(start: &Path, ceilings: &[PathBuf]) -> Result<Option<PathBuf>, RepoError> {
        let found = |folder: &Path| {
            let store = folder.join(STORE_FOLDER);
            ends_search(&store).then_some(store)
        };
        let is_below = |folder: &&Path| !ceilings.iter().any(|ceiling| ceiling == folder);
        let above = start.ancestors().skip(1).take_while(is_below);
        let store = std::iter::once(start).chain(above).find_map(found);
        store.iter().try_for_each(|store| refuse_found_link(store))?;
        Ok(store)
    }

    /// Returns the object store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the settings in effect.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the branches, the tags and `HEAD`.
    pub fn refs(&self) -> &Refs {
        &self.refs
    }

    /// Returns the store folder.
    pub fn dir(&self) -> &Path {
        self.store.dir()
    }

    /// Returns the disk that changes the files of this store.
    pub fn disk(&self) -> &Disk {
        self.store.disk()
    }

    /// Returns the project folder, whose `.snap` this store is; `None` for a bare store.
    pub fn project(&self) -> Option<&Path> {
        self.dir().ends_with(STORE_FOLDER).then(|| folder_of(self.dir()))
    }
}

/// Checks that no part of the store in `dir` is a link, except `objects`, which must not lead into
/// a store.
///
/// # Errors
/// [`RepoError::Link`] and [`RepoError::ObjectsInStore`].
pub fn check_links(dir: &Path) -> Result<(), RepoError> {
    symlink_guard::check_parts(dir).map_err(|PathError { path, .. }| RepoError::Link { path })?;
    match objects_in_store(dir) {
        Some(target) => Err(RepoError::ObjectsInStore { objects: dir.join("objects"), target }),
        None => Ok(()),
    }
}

/// Fails if the store in `dir`, which the user did not name, is a symbolic link. The link may come
/// from a snapshot or an archive of another user, and lead to any store of this user. Links above
/// the store do not matter: they lead to its project, too.
///
/// # Errors
/// [`RepoError::FoundLink`].
pub fn refuse_found_link(dir: &Path) -> Result<(), RepoError> {
    if dir.is_symlink() { Err(RepoError::FoundLink { dir: dir.to_owned() }) } else { Ok(()) }
}

/// Layout of the folder of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLayout {
    /// The layout that `init` creates: each pack in `objects/` is part of the store.
    Local,
    /// The layout that `push` creates in a folder: a pack is part of the store once a file in
    /// `index/` holds its outline.
    Remote,
}

impl StoreLayout {
    /// Determines the layout of the store in `dir` from the names of its parts. A folder without a
    /// sign of either layout, such as an empty one, is local.
    pub fn of(dir: &Path) -> Self {
        let has = |name: &str| dir.join(name).exists();
        if !has("refs") || ["lock", "cache", "logs"].into_iter().any(has) {
            return Self::Local;
        }
        // A copy of a local store may have segments in `index/`, whose names have another suffix.
        let is_outlines = |name: &str| {
            let name = name.trim_end_matches(".part").trim_end_matches(".group");
            name.parse::<outline::Name>().is_ok()
        };
        let mut files = fs_err::read_dir(dir.join("index")).into_iter().flatten().flatten();
        let has_outlines = files.any(|file| file.file_name().to_str().is_some_and(is_outlines));
        if has_outlines { Self::Remote } else { Self::Local }
    }
}

/// Fails if `push` created the store in `dir`. A commit must not go to such a store: its readers
/// would not find the new packs.
///
/// # Errors
/// [`RepoError::Remote`].
pub fn refuse_remote(dir: &Path) -> Result<(), RepoError> {
    match StoreLayout::of(dir) {
        StoreLayout::Local => Ok(()),
        StoreLayout::Remote => Err(RepoError::Remote { dir: dir.to_owned() }),
    }
}

/// Reads and checks the settings of the store in `dir`, without opening it.
///
/// # Errors
/// [`RepoError::NoStore`], [`RepoError::NotAStore`], [`RepoError::SettingsLost`],
/// [`RepoError::ObjectsLost`], [`RepoError::Config`], [`RepoError::Io`].
pub fn read_config(dir: &Path) -> Result<Config, RepoError> {
    Ok(SettingLayers::default().with_store(read_config_file(dir)?.layer).config()?)
}

/// Reads the settings like [`read_config`]. Also returns their text, the position of each value,
/// and who owns the file.
///
/// # Errors
/// As [`read_config`], but the values are not yet checked against each other.
pub fn read_config_file(dir: &Path) -> Result<ConfigFile, RepoError> {
    let path = dir.join(config::FILE);
    let read = ConfigFile::read(&path, ConfigOwner::Store);
    if read.as_ref().map_or(true, |file| has_no_settings(file.text.as_bytes()))
        && Repo::has_lost_settings(dir)
    {
        return Err(RepoError::SettingsLost { dir: dir.to_owned() });
    }
    // A commit saves a folder named `.snap` without objects like any other folder. An archive may
    // contain such a folder, with hooks that its author chose, so do not open it.
    if read.is_ok() && !dir.join("objects").exists() {
        return Err(RepoError::ObjectsLost { dir: dir.to_owned() });
    }
    read.map_err(|error| match error {
        // The cause may be a disk error or a crash, as well as a typing error of the user.
        ConfigError::Syntax { path, line, message } => {
            ConfigError::Damaged { path, line, message }.into()
        }
        ConfigError::Io(_) if !dir.exists() => RepoError::NoStore { dir: dir.to_owned() },
        ConfigError::Io(error) => match error.source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                RepoError::NotAStore { dir: dir.to_owned() }
            }
            _ => error.into(),
        },
        error => error.into(),
    })
}

/// The lock on a store's settings, released on drop.
pub struct ConfigLock {
    _lock: Lock,
}

/// Locks the settings of the store in `dir` for a read-modify-write. This is the same short lock
/// that guards the refs, because a change of a ref may write the settings too. A process that holds
/// it must not change a ref.
///
/// # Errors
/// [`RefError`] if the store cannot be written, or if another process holds the lock for too long.
pub fn lock_config(dir: &Path) -> Result<ConfigLock, RefError> {
    let refs = Refs::new(dir, Disk::default().in_store(dir));
    Ok(ConfigLock { _lock: refs.lock()? })
}

/// Replaces the settings of the store in `dir`. A caller that changes existing settings must take
/// [`lock_config`] before it reads them.
///
/// # Errors
/// [`PathError`] of the first step that failed.
pub fn write_config(dir: &Path, disk: &Disk, text: &str) -> Result<(), PathError> {
    let disk = &disk.in_store(dir);
    file::write(disk, &config_draft(dir), &dir.join(config::FILE), text)
}

/// Returns a unique path for settings that will replace those of the store in `dir`.
pub(super) fn config_draft(dir: &Path) -> PathBuf {
    dir.join("tmp").join(unique_name("config"))
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
    fn a_new_store_is_found_from_a_folder_below() {
        let (project, dir) = make();
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();
        let below = project.path().join("a/b");
        fs_err::create_dir_all(&below).unwrap();
        let found = |ceiling: &str| Repo::find(&below, &[project.path().join(ceiling)]).unwrap();
        assert_eq!(found("a/b"), Some(dir.clone()));
        assert_eq!(found("a"), None);
        let here = Repo::find(project.path(), &[project.path().to_owned()]).unwrap();
        assert_eq!(here, Some(dir.clone()));
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
    fn a_path_that_is_not_a_store_is_reported() {
        let (project, dir) = make();
        assert!(matches!(read_config(&dir), Err(RepoError::NoStore { .. })));
        let file = project.path().join("file");
        fs_err::write(&file, "").unwrap();
        assert!(matches!(read_config(&file), Err(RepoError::NotAStore { .. })));
        let full = Repo::init(project.path(), &Disk::default(), &Config::default()).unwrap_err();
        assert!(matches!(full, RepoError::NotEmpty { .. }));
    }
}
