//! Settings as a command sees them: built-in < user < store < variables <
//! options.
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
    /// What can be told about the store's file, once that is known.
    store: Option<ConfigFile>,
}

impl Settings {
    /// Reads the user's file and the environment.
    pub(crate) fn load(env: &Env, global: &Global) -> Result<Self, CliError> {
        let (user, variables) = (user_file::read(env)?, variables::layer(&env.snap)?);
        let mut options = Layer::default();
        if let Some(value) = global.color.and_then(|when| when.to_possible_value()) {
            let value = Value::Text(value.get_name().to_owned());
            options.insert(KeyPath::new(["ui", "color"]), value, Origin::Option("--color"));
        }
        let merged = config::Settings::new(user, variables, options);
        let color = merged.text(&KeyPath::new(["ui", "color"]));
        let color = color.and_then(|text| When::from_str(&text, false).ok());
        let pager = match merged.plain("ui.pager") {
            Some((Value::Text(command), _)) => Some(command),
            Some(_) => Some(String::new()),
            None => None,
        };
        let ui = UiSettings { color: color.unwrap_or(When::Auto), pager };
        let (user_path, home) = (user_file::path(env), env.home.clone());
        Ok(Self { merged, ui, user_path, home, store: None })
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

    /// Whether the store's file may be written anew by this user, to whom it
    /// would then belong, with all the commands that somebody else put there.
    pub(crate) fn check_takeover(&self) -> Result<(), CliError> {
        let uid = rustix::process::geteuid();
        let Some(file) = &self.store else { return Ok(()) };
        // Root gives it back to its owner.
        if uid.is_root() || file.is_of(uid.as_raw()) {
            return Ok(());
        }
        let needs_trust = |path: &KeyPath| {
            let section = path.parts().first().map_or("", String::as_str);
            ["hooks", "profile", "remote"].contains(&section)
        };
        match file.layer.values().find(|(path, _)| needs_trust(path)) {
            Some((path, (_, origin))) => {
                self.check_trust(origin, &format!("a change that makes `{path}` yours"))
            }
            None => Ok(()),
        }
    }

    /// Whether nobody but the user can have written the store's file, from
    /// which `what` comes.
    fn check_trust(&self, origin: &Origin, what: &str) -> Result<(), CliError> {
        let Some(file) = &self.store else { return Ok(()) };
        let uid = rustix::process::geteuid().as_raw();
        if file.is_written_by(uid) {
            return Ok(());
        }
        let why = match file.is_of(uid) {
            true if file.is_link => "it is a link".to_owned(),
            true => format!("others may write to it (mode {:04o})", file.mode & 0o7777),
            false => format!("it belongs to the user with id {}", file.uid),
        };
        Err(CliError::Untrusted { origin: origin.to_string(), what: what.to_owned(), why })
    }
}
