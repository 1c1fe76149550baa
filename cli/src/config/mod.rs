//! Merged settings for the commands: built-in < system < user < store < variables < options.
//!
//! Core defines the settings, the syntax of a file, and the merging of layers. This module adds the
//! layers that core cannot read: the user's file, the environment and the command line. It also
//! interprets the settings that core does not need: profiles, hooks, remotes and colours.

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
        error::SettingOrigin,
        key::{KeyPath, Value},
        layer::Layer,
    },
};

pub(crate) use self::{
    hook::{Hook, HookMoment, OnFailure},
    profile::Profile,
    remote::Prices,
    trust::Trust,
};
use crate::{
    args::Global,
    env::Env,
    report::{CliError, SensitiveSetting, UntrustedSettings},
    ui::ColorMode,
};

/// Settings for the terminal. A store's file cannot set them.
#[derive(Clone, Debug)]
pub(crate) struct UiSettings {
    /// When to use colours: `ui.color` or `--color`.
    pub(crate) color: ColorMode,
    /// `ui.pager`: the command that shows long output. Empty if the setting is `false`, which means
    /// no pager; `None` if it is not set.
    pub(crate) pager: Option<String>,
}

impl UiSettings {
    /// Returns the settings of the user and the environment; defaults if they cannot be read.
    pub(crate) fn of(env: &Env, global: &Global) -> Self {
        let read = Settings::load(env, global).map(|settings| settings.ui);
        read.unwrap_or(Self { color: global.color.unwrap_or(ColorMode::Auto), pager: None })
    }
}

/// All settings with their origins.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The merged layers.
    merged: config::SettingLayers,
    /// The settings for the terminal.
    pub(crate) ui: UiSettings,
    /// Path of the user's file, which need not exist.
    user_path: Option<PathBuf>,
    home: Option<PathBuf>,
    trust: Trust,
    /// The store's file, once it has been read.
    store: Option<ConfigFile>,
}

impl Settings {
    /// Reads the user's file and the environment.
    pub(crate) fn load(env: &Env, global: &Global) -> Result<Self, CliError> {
        let (system, user) = (user_file::read_system(env)?, user_file::read(env)?);
        // The two `trust` lists are joined: a user's list does not replace the system's.
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
            options.insert(KeyPath::new(["ui", "color"]), value, SettingOrigin::Option("--color"));
        }
        let merged = config::SettingLayers::new(user, variables, options).with_system(system);
        let color = merged.text(&KeyPath::new(["ui", "color"]));
        let color = color.and_then(|text| ColorMode::from_str(&text, false).ok());
        let pager = match merged.plain("ui.pager") {
            Some((Value::Text(command), _)) => Some(command),
            Some(_) => Some(String::new()),
            None => None,
        };
        let ui = UiSettings { color: color.unwrap_or(ColorMode::Auto), pager };
        let (user_path, home) = (user_file::path(env), env.home.clone());
        Ok(Self { merged, ui, user_path, home, trust, store: None })
    }

    /// Adds the layer of a store's file.
    pub(crate) fn with_store(&self, file: ConfigFile) -> Self {
        let merged = self.merged.with_store(file.layer.clone());
        Self { merged, store: Some(file), ..self.clone() }
    }

    /// Returns the merged layers.
    pub(crate) fn merged(&self) -> &config::SettingLayers {
        &self.merged
    }

    /// Returns the settings that core needs.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        self.merged.config()
    }

    /// Returns the path of the user's file, which need not exist.
    pub(crate) fn user_path(&self) -> Option<&Path> {
        self.user_path.as_deref()
    }

    /// Returns what the user trusts.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Fails if rewriting the store's file would make this user its owner. The file says whether a
    /// store is shared on purpose, and only its owner can say so. Root keeps the owner of the file.
    pub(crate) fn check_takeover(&self) -> Result<(), CliError> {
        let uid = rustix::process::geteuid();
        match &self.store {
            Some(file) if !uid.is_root() && file.uid != uid.as_raw() => {
                Err(CliError::ForeignSettings { path: file.path.clone(), uid: file.uid })
            }
            _ => Ok(()),
        }
    }

    /// Returns true if hooks, profiles and remotes in the store's file are used.
    pub(crate) fn is_store_trusted(&self) -> bool {
        self.store.as_ref().is_none_or(|file| self.trust.counts(file))
    }

    /// Returns true if a value is used. Only a sensitive value from an untrusted store's file is
    /// not.
    pub(crate) fn is_trusted(&self, path: &KeyPath, origin: &SettingOrigin) -> bool {
        !origin.is_of_store() || !trust::is_sensitive(path) || self.is_store_trusted()
    }

    /// Fails if a sensitive value comes from a store's file that the user does not trust.
    fn check_trust(
        &self,
        origin: &SettingOrigin,
        what: impl FnOnce() -> SensitiveSetting,
    ) -> Result<(), CliError> {
        if !origin.is_of_store() || self.is_store_trusted() {
            return Ok(());
        }
        let settings = self.untrusted();
        Err(CliError::Untrusted { origin: origin.to_string(), what: what(), settings })
    }

    /// Describes the settings of the store, for errors about trust.
    pub(crate) fn untrusted(&self) -> UntrustedSettings {
        let store = self.store.as_ref().and_then(|file| file.path.parent());
        let store = store.map_or_else(PathBuf::new, Path::to_owned);
        UntrustedSettings { store, can_record: self.trust.can_remember() }
    }
}
