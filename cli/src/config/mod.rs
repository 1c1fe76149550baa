//! Settings as a command sees them: built-in < system < user < store <
//! variables < options.
//!
//! What settings there are, what a file may say and how layers are merged is
//! core's; here are the layers that core cannot know: the user's file, the
//! environment and the command line. Also what the settings mean that no part
//! of core needs: profiles, hooks, remotes, colours.

mod hook;
mod profile;
mod remote;
#[cfg(test)]
mod tests;
pub(crate) mod trust;
pub(crate) mod user_file;
mod variables;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use snap_core::repo::{
    Config,
    config::{
        self, ConfigError, ConfigFile,
        error::Origin,
        key::{KeyPath, Value},
        layer::Layer,
    },
};

pub(crate) use self::{
    hook::{Hook, Moment, OnFailure},
    profile::Profile,
    remote::Prices,
    trust::Trust,
};
use crate::{args::Global, env::Env, report::CliError, ui::When};

/// Settings for the terminal. A store has no say in them.
#[derive(Clone, Debug)]
pub(crate) struct UiSettings {
    /// When to use colours: `ui.color` or `--color`.
    pub(crate) color: When,
    /// `ui.pager`: the command that long output is shown with; empty when the
    /// setting is `false`, so none is wanted; `None` when nobody says anything.
    pub(crate) pager: Option<String>,
}

impl UiSettings {
    /// Those of the user and the environment, as far as they can be read.
    pub(crate) fn of(env: &Env, global: &Global) -> Self {
        let read = Settings::load(env, global).map(|settings| settings.ui);
        read.unwrap_or(Self { color: global.color.unwrap_or(When::Auto), pager: None })
    }
}

/// All settings, with where each comes from.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Those of all layers.
    merged: config::Settings,
    /// Those for the terminal.
    pub(crate) ui: UiSettings,
    /// Where the user's file is, whether or not there is one.
    user_path: Option<PathBuf>,
    home: Option<PathBuf>,
    trust: Trust,
    /// What can be told about the store's file, once that is known.
    store: Option<ConfigFile>,
}

impl Settings {
    /// Reads the user's file and the environment.
    pub(crate) fn load(env: &Env, global: &Global) -> Result<Self, CliError> {
        let (system, user) = (user_file::read_system(env)?, user_file::read(env)?);
        // What the system trusts, the user does not take back by trusting more.
        let trusted = [&system, &user].map(|layer| layer.get(&KeyPath::new(["trust"])).cloned());
        let trusted = trusted.into_iter().flatten().filter_map(|(value, _)| match value {
            Value::List(paths) => Some(paths),
            _ => None,
        });
        let trust = Trust::read(env, &trusted.flatten().collect::<Vec<_>>())?;
        let variables = variables::layer(&env.snap)?;
        let mut options = Layer::default();
        if let Some(value) = global.color.and_then(|when| when.to_possible_value()) {
            let value = Value::Text(value.get_name().to_owned());
            options.insert(KeyPath::new(["ui", "color"]), value, Origin::Option("--color"));
        }
        let merged = config::Settings::new(user, variables, options).with_system(system);
        let color = merged.text(&KeyPath::new(["ui", "color"]));
        let color = color.and_then(|text| When::from_str(&text, false).ok());
        let pager = match merged.plain("ui.pager") {
            Some((Value::Text(command), _)) => Some(command),
            Some(_) => Some(String::new()),
            None => None,
        };
        let ui = UiSettings { color: color.unwrap_or(When::Auto), pager };
        let (user_path, home) = (user_file::path(env), env.home.clone());
        Ok(Self { merged, ui, user_path, home, trust, store: None })
    }

    /// With those of a store's file.
    pub(crate) fn with_store(&self, file: ConfigFile) -> Self {
        let merged = self.merged.with_store(file.layer.clone());
        Self { merged, store: Some(file), ..self.clone() }
    }

    /// All layers, merged.
    pub(crate) fn merged(&self) -> &config::Settings {
        &self.merged
    }

    /// What core needs to know.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        self.merged.config()
    }

    /// Where the user's file is, whether or not there is one.
    pub(crate) fn user_path(&self) -> Option<&Path> {
        self.user_path.as_deref()
    }

    /// What the user trusts.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Fails where this user would take over the store's file by writing it
    /// anew: it says whether a shared store is meant to be shared, and only its
    /// owner can say so. Root gives the file back to its owner.
    pub(crate) fn check_takeover(&self) -> Result<(), CliError> {
        let uid = rustix::process::geteuid();
        match &self.store {
            Some(file) if !uid.is_root() && file.uid != uid.as_raw() => {
                Err(CliError::ForeignSettings { path: file.path.clone(), uid: file.uid })
            }
            _ => Ok(()),
        }
    }

    /// Whether hooks, profiles and remotes in the store's file count.
    pub(crate) fn is_store_trusted(&self) -> bool {
        self.store.as_ref().is_none_or(|file| self.trust.counts(file))
    }

    /// Whether a value counts: only a sensitive one from a store's file may not.
    pub(crate) fn is_trusted(&self, path: &KeyPath, origin: &Origin) -> bool {
        let is_of_store = matches!(origin, Origin::Store { .. });
        !is_of_store || !trust::is_sensitive(path) || self.is_store_trusted()
    }

    /// Fails if a sensitive value comes from a store's file that the user has
    /// not trusted.
    fn check_trust(&self, origin: &Origin, what: &str) -> Result<(), CliError> {
        if !matches!(origin, Origin::Store { .. }) || self.is_store_trusted() {
            return Ok(());
        }
        let store = self.store.as_ref().and_then(|file| file.path.parent());
        let store = store.map_or_else(PathBuf::new, Path::to_owned);
        Err(CliError::Untrusted { origin: origin.to_string(), what: what.to_owned(), store })
    }
}
