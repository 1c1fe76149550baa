//! Merges layers of settings: the highest layer that has a setting decides.
//!
//! | layer    | source                     |
//! |----------|----------------------------|
//! | built-in | [`KEYS`]                   |
//! | system   | the system's file          |
//! | user     | the user's file            |
//! | store    | the store's file           |
//! | variable | the environment            |
//! | option   | the command line           |
//!
//! Only the file of a store sets its format (`version`). A value of a higher layer replaces the whole
//! value of a lower one, even for lists.

use std::collections::BTreeMap;

use crate::repo::config::{
    CommitDefaults, Config,
    error::{ConfigError, SettingOrigin},
    key::{KEYS, KeyPath, SettingScope, Value},
    layer::Layer,
};

/// Layers of settings.
#[derive(Clone, Debug, Default)]
pub struct SettingLayers {
    system: Layer,
    user: Layer,
    store: Option<Layer>,
    variables: Layer,
    options: Layer,
}

impl SettingLayers {
    /// Combines the layers that do not depend on a store.
    pub fn new(user: Layer, variables: Layer, options: Layer) -> Self {
        Self { user, variables, options, ..Self::default() }
    }

    /// Adds the layer of the system's file.
    #[must_use]
    pub fn with_system(self, system: Layer) -> Self {
        Self { system, ..self }
    }

    /// Adds the layer of a store's file.
    #[must_use]
    pub fn with_store(&self, store: Layer) -> Self {
        Self { store: Some(store), ..self.clone() }
    }

    /// Returns the merged value and its origin; `None` if no layer sets it and it has no default.
    pub fn get(&self, path: &KeyPath) -> Option<(Value, SettingOrigin)> {
        let key = path.key()?;
        let store = self.store.as_ref();
        let of_store = key.scope == SettingScope::Store;
        let layers = [
            Some(&self.options).filter(|_| !of_store),
            Some(&self.variables).filter(|_| !of_store),
            store,
            Some(&self.user).filter(|_| !of_store || store.is_none()),
            Some(&self.system).filter(|_| !of_store || store.is_none()),
        ];
        let found = layers.into_iter().flatten().find_map(|layer| layer.get(path)).cloned();
        found.or_else(|| (key.default)().map(|value| (value, SettingOrigin::BuiltIn)))
    }

    /// Calls [`SettingLayers::get`] for a name without a `*`.
    pub fn plain(&self, name: &'static str) -> Option<(Value, SettingOrigin)> {
        self.get(&KeyPath::new(name.split('.')))
    }

    /// Returns a text setting; `None` if it is not set.
    pub fn text(&self, path: &KeyPath) -> Option<String> {
        if let Value::Text(text) = self.get(path)?.0 { Some(text) } else { None }
    }

    /// Returns a list setting; empty if it is not set.
    pub fn list(&self, path: &KeyPath) -> Vec<String> {
        if let Some((Value::List(items), _)) = self.get(path) { items } else { Vec::new() }
    }

    /// Returns a flag; `None` if it is not set.
    pub fn flag(&self, path: &KeyPath) -> Option<bool> {
        if let Value::Flag(flag) = self.get(path)?.0 { Some(flag) } else { None }
    }

    /// Lists all settings with their merged values: the fixed names in the order of [`KEYS`], then
    /// the names with a variable part, such as the name of a remote.
    pub fn all(&self) -> Vec<(KeyPath, Option<(Value, SettingOrigin)>)> {
        let plain = KEYS.iter().filter(|key| key.is_plain());
        let plain = plain.map(|key| KeyPath::new(key.name.split('.')));
        let starred = |path: &&KeyPath| path.key().is_some_and(|key| !key.is_plain());
        let mut others: Vec<KeyPath> =
            self.layers().flat_map(Layer::values).map(|v| v.0).filter(starred).cloned().collect();
        others.sort();
        others.dedup();
        plain.chain(others).map(|path| (path.clone(), self.get(&path))).collect()
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        let fixed = [Some(&self.system), Some(&self.user), self.store.as_ref()];
        fixed.into_iter().chain([Some(&self.variables), Some(&self.options)]).flatten()
    }

    /// Returns the names of all profiles, each with its origin in the highest layer that has it.
    pub fn profiles(&self) -> BTreeMap<&str, &SettingOrigin> {
        self.layers().flat_map(Layer::profiles).collect()
    }

    /// Returns the settings that core needs.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if the version is out of range.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let path = |name: &str| KeyPath::new(name.split('.'));
        Ok(Config {
            // The parser of the layer has checked the range.
            compression_level: i32::try_from(self.number("compression.level")).unwrap_or(1),
            commit: CommitDefaults {
                author: self.text(&path("commit.author")),
                host: self.text(&path("commit.host")),
                exclude: self.list(&path("commit.exclude")),
                iexclude: self.list(&path("commit.iexclude")),
                exclude_if_present: self.list(&path("commit.exclude_if_present")),
                exclude_caches: self.flag(&path("commit.exclude_caches")).unwrap_or(false),
                gitignore: self.flag(&path("commit.gitignore")).unwrap_or(false),
                git: self.flag(&path("commit.git")).unwrap_or(false),
            },
            pull_update: self.flag(&path("pull.update")).unwrap_or(false),
            jobs: self.plain("jobs").and_then(|_| usize::try_from(self.number("jobs")).ok()),
        })
    }

    /// Returns a number; 0 if it is not set.
    fn number(&self, name: &'static str) -> u64 {
        match self.plain(name) {
            Some((Value::Number(number), _)) => u64::try_from(number).unwrap_or(0),
            _ => 0,
        }
    }
}
