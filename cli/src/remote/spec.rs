//! Chooses the remote: by its name in the settings, or by a location.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{Access as Right, access};
use snap_core::{
    base::{id::BlobId, io::PathError, kind::ErrorKind},
    disk::{
        CreateMode, Disk,
        scratch::Scratch,
        symlink_guard::{check_no_links_between, check_owned_by_user},
    },
};
use snap_remote::{
    location::{Location, Scheme},
    peer::{CONDITIONS, ConditionProofs, Mirror},
};

use super::credentials::Credentials;
use crate::{config::Settings, context::Context, report::CliError, ui::text::chain};

/// The default remote.
pub(crate) const DEFAULT_REMOTE: &str = "origin";

/// A remote and how to reach it.
#[derive(Clone, Debug)]
pub(crate) struct RemoteSpec {
    /// Its name in the settings, if it has one.
    pub(crate) name: Option<String>,
    /// Its location.
    pub(crate) location: Location,
    /// Options of the location.
    pub(crate) options: BTreeMap<String, String>,
    /// The sources of its credentials.
    pub(super) credentials: Credentials,
    /// The store whose settings define this remote.
    store: Option<PathBuf>,
}

/// Selects whether the cache of a remote is kept after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachePolicy {
    /// The next command can use it.
    Kept,
    /// The cache is removed at the end of the command, which leaves no trace. Recorded damage is
    /// copied into it first.
    Forgotten,
}

/// How the user named a remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteChoice<'a> {
    /// Not named: the default.
    Default,
    /// By name or location.
    Named(&'a str),
}

impl<'a> From<Option<&'a str>> for RemoteChoice<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Default, Self::Named)
    }
}

impl RemoteSpec {
    /// Makes the place of a folder.
    fn of_folder(folder: &Path) -> Result<Self, CliError> {
        let location = Location::of_folder(folder)?;
        let (options, credentials) = (BTreeMap::new(), Credentials::default());
        Ok(Self { name: None, location, options, credentials, store: None })
    }

    /// Makes a place from a location that the user typed, or from the path of a folder. A `~` at
    /// the start of a path is the home folder, also where no shell replaces it.
    pub(crate) fn of_url(
        url: &str,
        options: BTreeMap<String, String>,
        settings: &Settings,
    ) -> Result<Self, CliError> {
        let is_path = Location::is_path(url);
        let location: Location = match is_path || !url.contains("://") && Path::new(url).is_dir() {
            true => Location::of_folder(&settings.expand(url)?)?,
            false => url.parse()?,
        };
        location.check(&options)?;
        let credentials = Credentials::default();
        Ok(Self { name: None, location, options, credentials, store: None })
    }

    fn of_settings(
        name: &str,
        settings: &Settings,
        store: Option<PathBuf>,
    ) -> Result<Option<Self>, CliError> {
        let Some(remote) = settings.find_remote(name)? else { return Ok(None) };
        let mut place = Self::of_url(&remote.url, remote.options, settings)?;
        let withheld = (!remote.is_trusted).then(|| settings.untrusted());
        let file = remote.credentials_file.as_deref().map(|file| settings.expand(file));
        place.credentials =
            Credentials { file: file.transpose()?, command: remote.credentials_command, withheld };
        Ok(Some(Self { name: Some(name.to_owned()), store, ..place }))
    }

    /// Adds the name of the remote and the store whose settings have it.
    pub(crate) fn in_store(self, name: &str, store: &Path) -> Self {
        Self { name: Some(name.to_owned()), store: Some(store.to_owned()), ..self }
    }

    /// Returns the form for messages: the name, or else the location.
    pub(crate) fn shown(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.location.to_string())
    }

    /// Returns true if the user named the location, or trusts the settings that name it.
    pub(crate) fn is_trusted(&self) -> bool {
        self.credentials.withheld.is_none()
    }

    /// Returns the file with its credentials.
    pub(crate) fn credentials_file(&self) -> Option<&Path> {
        self.credentials.file.as_deref()
    }

    /// Returns the command that prints its credentials.
    pub(crate) fn credentials_command(&self) -> Option<&str> {
        self.credentials.command.as_deref()
    }

    /// Returns its options, with defaults from the environment for this kind of location.
    pub(super) fn all_options(&self, cx: &Context) -> BTreeMap<String, String> {
        let mut options = self.options.clone();
        if self.location.scheme == Scheme::S3 {
            let env = cx.remote_env();
            for (name, value) in [("endpoint", &env.s3_endpoint), ("region", &env.s3_region)] {
                if let Some(value) = value {
                    options.entry(name.to_owned()).or_insert_with(|| value.clone());
                }
            }
        }
        options
    }

    /// Returns the proofs that buckets honour conditional writes: those in the user's cache, which
    /// all stores share, or else those in `cache`.
    pub(crate) fn condition_proofs(
        &self,
        memory: CachePolicy,
        cache: &Path,
        cx: &Context,
    ) -> ConditionProofs {
        let shared = || {
            let kept = cx.cache_home()?.join("snap");
            check_owned_by_user(&kept, &kept).ok()?;
            create_private(&kept).ok()?;
            Some(kept)
        };
        let is_shared = memory == CachePolicy::Kept && self.location.scheme.is_bucket();
        let dir = is_shared.then(shared).flatten().unwrap_or_else(|| cache.to_owned());
        ConditionProofs::at(dir.join(CONDITIONS))
    }

    /// Returns the folder for the cache of this remote: in the store that has it by name, or else
    /// in the user's cache. If neither exists or can be written, or the user's cache is that of
    /// another user, returns a scratch folder for this command.
    ///
    /// # Errors
    /// [`CliError::File`] if a folder of the cache in the store is a link.
    pub(crate) fn cache(
        &self,
        memory: CachePolicy,
        cx: &Context,
    ) -> Result<(PathBuf, Option<Arc<Scratch>>), CliError> {
        let mut hash = hash_of(&self.location.to_string());
        let options = self.all_options(cx);
        for name in ["endpoint", "account"] {
            // The same bucket name at another endpoint is another bucket.
            hash.push_str(options.get(name).map_or("", String::as_str));
            hash = hash_of(&hash);
        }
        let folder = |above: PathBuf| above.join("remotes").join(&hash[..SHOWN_DIGITS]);
        let in_store = self.store.as_ref().map(|store| store.join("cache"));
        let of_user = cx.cache_home().map(|home| home.join("snap"));
        let mut failure = None;
        // If `HOME` belongs to another user, as with sudo, that user controls the links in this
        // cache.
        let of_user = of_user.filter(|kept| {
            let checked = check_owned_by_user(kept, &folder(kept.clone()));
            let is_own = checked.is_ok();
            let is_of_other = |error: &PathError| error.kind() == ErrorKind::Denied;
            failure = checked.err().filter(|error| !is_of_other(error));
            is_own
        });
        if let Some(cache) = &in_store {
            let above = cache.parent().unwrap_or(cache);
            check_no_links_between(above, &folder(cache.clone()))?;
        }
        if memory == CachePolicy::Forgotten {
            let scratch = Scratch::create(cx.scratch())?;
            let forgotten = folder(scratch.path().to_owned());
            // Prefers the cache that other commands use.
            let kept: Vec<PathBuf> = in_store.into_iter().chain(of_user).collect();
            let in_order = kept.iter().filter(|kept| may_write(kept)).chain(&kept);
            let mut folders = in_order.map(|kept| folder(kept.clone()));
            if let Some(known) = folders.find(|folder| folder.exists()) {
                Mirror::copy_damage(&known, &forgotten)?;
            }
            return Ok((forgotten, Some(Arc::new(scratch))));
        }
        if let Some(kept) = in_store {
            let made = folder(kept);
            match create_writable(&Disk::cache(&made), &made) {
                Ok(()) => return Ok((made, None)),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(kept) = of_user {
            let made = folder(kept.clone());
            match create_private(&kept).and_then(|disk| create_writable(&disk, &made)) {
                Ok(()) => return Ok((made, None)),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            cx.ui().warning(format_args!("no cache of the remote is kept: {}", chain(&error)));
        }
        let scratch = Scratch::create(cx.scratch())?;
        Ok((folder(scratch.path().to_owned()), Some(Arc::new(scratch))))
    }
}

/// Returns true if a folder can be written or created.
fn may_write(folder: &Path) -> bool {
    let existing = folder.ancestors().find(|folder| folder.exists());
    existing.is_some_and(|existing| access(existing, Right::WRITE_OK | Right::EXEC_OK).is_ok())
}

/// Creates the user's cache. It lists the contents of private stores.
fn create_private(kept: &Path) -> Result<Disk, PathError> {
    let disk = Disk::scratch().with_access(CreateMode::PRIVATE);
    disk.create_folders(kept)?;
    disk.apply_access(kept)?;
    Ok(disk)
}

/// Creates a folder in which this user can create files.
fn create_writable(disk: &Disk, folder: &Path) -> Result<(), PathError> {
    disk.create_folders(folder)?;
    let result = access(folder, Right::WRITE_OK | Right::EXEC_OK);
    result.map_err(PathError::when("write to", folder))
}

/// Number of hex digits of a hash that name a folder.
const SHOWN_DIGITS: usize = 32;

fn hash_of(text: &str) -> String {
    BlobId::of(text.as_bytes()).to_string()
}

impl Context {
    /// Returns the place that a path, a URL or the name of a remote means. A folder need not be
    /// written as a path.
    pub(crate) fn source(&self, from: &Path) -> Result<RemoteSpec, CliError> {
        let Some(text) = from.to_str() else {
            return RemoteSpec::of_folder(from);
        };
        let is_remote = || -> Result<bool, CliError> {
            Ok(self.settings_here()?.0.remotes().iter().any(|name| name == text))
        };
        match from.is_dir() && !is_remote()? {
            true => RemoteSpec::of_folder(from),
            false => self.remote(RemoteChoice::Named(text)),
        }
    }

    /// Returns the settings for the current folder: those of its store, or those of the user if
    /// there is no store.
    pub(crate) fn settings_here(&self) -> Result<(Settings, Option<PathBuf>), CliError> {
        match self.find_store(Path::new("."))? {
            Some(store) => Ok((self.settings_of(&store)?, Some(store))),
            None => Ok((self.settings().clone(), None)),
        }
    }

    /// Returns the requested remote. A default remote that only an untrusted store names is refused:
    /// its author chose the location, and a push would send the files there.
    pub(crate) fn remote(&self, which: RemoteChoice<'_>) -> Result<RemoteSpec, CliError> {
        if let RemoteChoice::Named(text) = which
            && (text.contains("://") || Location::is_path(text))
        {
            return RemoteSpec::of_url(text, BTreeMap::new(), self.settings());
        }
        let (settings, store) = self.settings_here()?;
        let spec = resolve_remote(which, &settings, store)?;
        match (which, &spec.credentials.withheld) {
            (RemoteChoice::Default, Some(settings)) => {
                let (remote, settings) = (spec.shown(), settings.clone());
                Err(CliError::UntrustedDefault { remote, settings })
            }
            _ => Ok(spec),
        }
    }
}

/// Returns the default remote of the store at `dir`.
pub(super) fn usual(settings: &Settings, dir: &Path) -> Result<RemoteSpec, CliError> {
    resolve_remote(RemoteChoice::Default, settings, Some(dir.to_owned()))
}

fn resolve_remote(
    which: RemoteChoice<'_>,
    settings: &Settings,
    store: Option<PathBuf>,
) -> Result<RemoteSpec, CliError> {
    let known = settings.remotes();
    let name = match (which, known.as_slice()) {
        (RemoteChoice::Named(name), _) => name,
        (RemoteChoice::Default, _) if known.iter().any(|name| name == DEFAULT_REMOTE) => {
            DEFAULT_REMOTE
        }
        (RemoteChoice::Default, [only]) => &only.clone(),
        (RemoteChoice::Default, []) => return Err(CliError::NoRemotes),
        (RemoteChoice::Default, _) => return Err(CliError::WhichRemote { known }),
    };
    let found = RemoteSpec::of_settings(name, settings, store)?;
    let name = name.to_owned();
    found.ok_or(CliError::NoRemote { name, known })
}

/// Returns true if a text could be the name of a remote.
pub(super) fn is_name(text: &str) -> bool {
    !text.contains(['/', ':', '=', '#'])
}
