//! Which remote is meant: one with a name in the settings, or a location.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{Access as Right, access};
use snap_core::{
    base::id::BlobId,
    disk::{Access, Disk, scratch::Scratch},
};
use snap_remote::{
    location::{Location, Scheme},
    store::Mirror,
};

use super::credentials::Credentials;
use crate::{config::Settings, context::Context, report::CliError};

/// Remote that is meant when none is named.
pub(crate) const USUAL: &str = "origin";

/// A remote, and how it is reached.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its name in the settings.
    pub(crate) name: Option<String>,
    /// Where it is.
    pub(crate) location: Location,
    /// Options of the location.
    pub(crate) options: BTreeMap<String, String>,
    /// Where its keys are.
    pub(super) credentials: Credentials,
    /// The store that knows it by name.
    store: Option<PathBuf>,
}

/// What becomes of what is learnt of a remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The next command knows it, too.
    Kept,
    /// It is forgotten with the command, which leaves no trace. Known damage is known
    /// to the command.
    Forgotten,
}

/// How a remote was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    /// Not at all.
    Usual,
    /// By name or location.
    Named(&'a str),
}

impl<'a> From<Option<&'a str>> for Which<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Usual, Self::Named)
    }
}

impl Place {
    /// A folder.
    fn of_folder(folder: &Path) -> Result<Self, CliError> {
        let location = Location::of_folder(folder)?;
        let (options, credentials) = (BTreeMap::new(), Credentials::default());
        Ok(Self { name: None, location, options, credentials, store: None })
    }

    /// A location that was typed, or the path of a folder.
    pub(crate) fn of_url(url: &str, options: BTreeMap<String, String>) -> Result<Self, CliError> {
        let is_folder = !url.contains("://") && Path::new(url).is_dir();
        let location: Location = match is_folder || Location::is_path(url) {
            true => Location::of_folder(Path::new(url))?,
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
        let Some(said) = settings.find_remote(name)? else { return Ok(None) };
        let mut place = Self::of_url(&said.url, said.options)?;
        let are_withheld = !said.is_trusted;
        let file = said.credentials_file.as_deref().map(|file| settings.expand(file));
        place.credentials = Credentials {
            file: file.transpose()?,
            command: said.credentials_command,
            are_withheld,
        };
        Ok(Some(Self { name: Some(name.to_owned()), store, ..place }))
    }

    /// The same, as the settings of a store have it.
    pub(crate) fn in_store(self, name: &str, store: &Path) -> Self {
        Self { name: Some(name.to_owned()), store: Some(store.to_owned()), ..self }
    }

    /// As it is called in messages: by its name, else where it is.
    pub(crate) fn shown(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.location.to_string())
    }

    /// Whether the user named it or trusts the settings that do.
    pub(crate) fn is_trusted(&self) -> bool {
        !self.credentials.are_withheld
    }

    /// File with its keys.
    pub(crate) fn credentials_file(&self) -> Option<&Path> {
        self.credentials.file.as_deref()
    }

    /// Command that prints its keys.
    pub(crate) fn credentials_command(&self) -> Option<&str> {
        self.credentials.command.as_deref()
    }

    /// Options, with those that the environment says for all of its kind.
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

    /// Folder for what is known of it: in the store that has it by name, else
    /// in the user's cache. Where neither is, or neither can be written, one for
    /// this command.
    pub(crate) fn cache(
        &self,
        memory: Memory,
        cx: &Context,
    ) -> Result<(PathBuf, Option<Arc<Scratch>>), CliError> {
        let mut hash = hash_of(&self.location.to_string());
        let options = self.all_options(cx);
        for name in ["endpoint", "account"] {
            // The same name elsewhere is another bucket.
            hash.push_str(options.get(name).map_or("", String::as_str));
            hash = hash_of(&hash);
        }
        let folder = |above: PathBuf| above.join("remotes").join(&hash[..SHOWN_DIGITS]);
        let in_store = self.store.as_ref().map(|store| store.join("cache"));
        let of_user = cx.cache_home().map(|home| home.join("snap"));
        if memory == Memory::Forgotten {
            let scratch = Scratch::create(cx.scratch())?;
            let forgotten = folder(scratch.path().to_owned());
            for kept in in_store.into_iter().chain(of_user) {
                Mirror::copy_damage(&folder(kept), &forgotten)?;
            }
            return Ok((forgotten, Some(Arc::new(scratch))));
        }
        if let Some(kept) = in_store.into_iter().find(|kept| may_write(kept)) {
            return Ok((folder(kept), None));
        }
        if let Some(kept) = of_user.filter(|kept| may_write(kept)) {
            // These files list what private stores hold.
            let disk = Disk::scratch().with_access(Access::PRIVATE);
            disk.create_folders(&kept)?;
            disk.apply_access(&kept)?;
            return Ok((folder(kept), None));
        }
        let scratch = Scratch::create(cx.scratch())?;
        Ok((folder(scratch.path().to_owned()), Some(Arc::new(scratch))))
    }
}

/// Whether a folder can be written, or made.
fn may_write(folder: &Path) -> bool {
    let there = folder.ancestors().find(|folder| folder.exists());
    there.is_some_and(|there| access(there, Right::WRITE_OK | Right::EXEC_OK).is_ok())
}

/// Digits of a hash that name a folder.
const SHOWN_DIGITS: usize = 32;

fn hash_of(text: &str) -> String {
    BlobId::of(text.as_bytes()).to_string()
}

impl Context {
    /// The place that a path, a URL or the name of a remote means. A folder need not be
    /// written as a path.
    pub(crate) fn source(&self, from: &Path) -> Result<Place, CliError> {
        let Some(text) = from.to_str() else {
            return Place::of_folder(from);
        };
        let is_remote = || -> Result<bool, CliError> {
            Ok(self.settings_here()?.0.remotes().iter().any(|name| name == text))
        };
        match from.is_dir() && !is_remote()? {
            true => Place::of_folder(from),
            false => self.remote(Which::Named(text)),
        }
    }

    /// All settings that hold here: without a store, those of the user.
    pub(crate) fn settings_here(&self) -> Result<(Settings, Option<PathBuf>), CliError> {
        match self.find_store(Path::new("."))? {
            Some(store) => Ok((self.settings_of(&store)?, Some(store))),
            None => Ok((self.settings().clone(), None)),
        }
    }

    /// The remote that is meant.
    pub(crate) fn remote(&self, which: Which<'_>) -> Result<Place, CliError> {
        if let Which::Named(text) = which
            && (text.contains("://") || Location::is_path(text))
        {
            return Place::of_url(text, BTreeMap::new());
        }
        let (settings, store) = self.settings_here()?;
        chosen(which, &settings, store)
    }
}

/// The remote that the store at `dir` uses when none is named.
pub(super) fn usual(settings: &Settings, dir: &Path) -> Result<Place, CliError> {
    chosen(Which::Usual, settings, Some(dir.to_owned()))
}

fn chosen(
    which: Which<'_>,
    settings: &Settings,
    store: Option<PathBuf>,
) -> Result<Place, CliError> {
    let known = settings.remotes();
    let name = match (which, known.as_slice()) {
        (Which::Named(name), _) => name,
        (Which::Usual, _) if known.iter().any(|name| name == USUAL) => USUAL,
        (Which::Usual, [only]) => &only.clone(),
        (Which::Usual, []) => return Err(CliError::NoRemotes),
        (Which::Usual, _) => return Err(CliError::WhichRemote { known }),
    };
    let found = Place::of_settings(name, settings, store)?;
    let name = name.to_owned();
    found.ok_or(CliError::NoRemote { name, known })
}

/// Whether a text could be the name of a remote.
pub(super) fn is_name(text: &str) -> bool {
    !text.contains(['/', ':', '=', '#'])
}
