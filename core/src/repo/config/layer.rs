//! Parses the text of one settings file into settings, each with its line.

use std::{collections::BTreeMap, path::Path};

use toml_edit::{Document, Item, TableLike};

use crate::repo::config::{
    VERSION,
    error::{ConfigError, PlacementRule, SettingOrigin},
    key::{KeyPath, SettingScope, Value},
};

/// Maximum length of a value in an error, in characters.
const SHOWN_CHARS: usize = 60;

/// The owner of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOwner {
    Store,
    User,
    /// The administrator, for all users.
    System,
}

/// The settings of one source, each with its origin.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    values: BTreeMap<KeyPath, (Value, SettingOrigin)>,
    /// All profiles, including those without settings.
    profiles: BTreeMap<String, SettingOrigin>,
}

impl Layer {
    /// Parses the text of the file at `path`, which only errors use.
    ///
    /// # Errors
    /// [`ConfigError`] names the file and the line; it names no line if the version is missing or
    /// another one.
    pub fn parse(text: &str, path: &Path, owner: ConfigOwner) -> Result<Self, ConfigError> {
        let document = Document::parse(text).map_err(|error| syntax(&error, text, path))?;
        if owner == ConfigOwner::Store {
            check_version(&document, path)?;
        }
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        let mut file = SettingsFile { text, path, owner, ends, layer: Self::default() };
        file.read(document.as_table(), &mut Vec::new())?;
        Ok(file.layer)
    }

    /// Adds a value, or replaces the existing one.
    pub fn insert(&mut self, path: KeyPath, value: Value, origin: SettingOrigin) {
        self.values.insert(path, (value, origin));
    }

    /// Returns the value of a setting and its origin.
    pub fn get(&self, path: &KeyPath) -> Option<&(Value, SettingOrigin)> {
        self.values.get(path)
    }

    /// Iterates over all settings.
    pub fn values(&self) -> impl Iterator<Item = (&KeyPath, &(Value, SettingOrigin))> {
        self.values.iter()
    }

    /// Iterates over the names of the profiles, each with its origin.
    pub fn profiles(&self) -> impl Iterator<Item = (&str, &SettingOrigin)> {
        self.profiles.iter().map(|(name, origin)| (name.as_str(), origin))
    }
}

pub(super) fn syntax(error: &toml_edit::TomlError, text: &str, path: &Path) -> ConfigError {
    ConfigError::Syntax {
        path: path.to_owned(),
        line: line_of(text.as_bytes(), error.span().map_or(0, |span| span.start)),
        message: error.message().replace('\n', ", "),
    }
}

/// Returns the line of the byte `at`, from 1.
pub(super) fn line_of(text: &[u8], at: usize) -> usize {
    text.iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Checks the version before anything else, because a newer store may have settings that are
/// unknown here.
fn check_version(document: &Document<&str>, path: &Path) -> Result<(), ConfigError> {
    let path = || path.to_owned();
    let Some(version) = document.as_table().get("version") else {
        return Err(ConfigError::NoVersion { path: path() });
    };
    match version.as_integer() {
        Some(found) if found > i64::from(VERSION) => {
            Err(ConfigError::Newer { path: path(), found, known: VERSION })
        }
        Some(found) if found < i64::from(VERSION) => {
            Err(ConfigError::Older { path: path(), found, known: VERSION })
        }
        _ => Ok(()),
    }
}

struct SettingsFile<'t> {
    text: &'t str,
    path: &'t Path,
    owner: ConfigOwner,
    /// Offsets of the line ends. To count lines again for each setting would take quadratic time,
    /// and a hostile file could exploit that.
    ends: Vec<usize>,
    layer: Layer,
}

impl SettingsFile<'_> {
    fn origin(&self, at: usize) -> SettingOrigin {
        let line = self.ends.partition_point(|end| *end < at) + 1;
        SettingOrigin::File { owner: self.owner, path: self.path.to_owned(), line }
    }

    /// Reads a section. The parser limits the depth of nested sections.
    fn read(&mut self, table: &dyn TableLike, parts: &mut Vec<String>) -> Result<(), ConfigError> {
        for (name, item) in table.iter() {
            let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            let origin = self.origin(span.map_or(0, |span| span.start));
            parts.push(name.to_owned());
            self.read_item(item, parts, origin)?;
            parts.pop();
        }
        Ok(())
    }

    fn read_item(
        &mut self,
        item: &Item,
        parts: &mut Vec<String>,
        origin: SettingOrigin,
    ) -> Result<(), ConfigError> {
        let path = KeyPath::new(parts.iter().cloned());
        let wrong = |origin, rule: String| {
            let (key, found) = (path.to_string(), shown(item, self.text));
            let origin = Box::new(origin);
            Err(ConfigError::Value { origin, key, found, rule })
        };
        let Some(key) = path.key() else {
            if !path.is_section() {
                let (origin, key) = (Box::new(origin), path.to_string());
                return Err(match path.is_of_chunks() {
                    true => ConfigError::FixedChunks { origin, key },
                    false => ConfigError::Unknown { origin, key, close: path.close() },
                });
            }
            let Some(table) = item.as_table_like() else {
                return wrong(origin, format!("a section, `[{path}]`"));
            };
            if let [profile, name] = parts.as_slice()
                && profile == "profile"
            {
                self.layer.profiles.insert(name.clone(), origin);
            }
            return self.read(table, parts);
        };
        if let Some(rule) = misplaced(&path, key.scope, self.owner) {
            let (origin, key) = (Box::new(origin), path.to_string());
            return Err(ConfigError::Misplaced { origin, key, rule });
        }
        match item.as_value().and_then(|value| key.kind.of_toml(value)) {
            Some(value) => self.layer.insert(path, value, origin),
            None => return wrong(origin, key.kind.rule()),
        }
        Ok(())
    }
}

/// Returns the rule that a setting breaks in a file of `owner`; `None` if the file may have it.
pub(super) fn misplaced(
    path: &KeyPath,
    scope: SettingScope,
    owner: ConfigOwner,
) -> Option<PlacementRule> {
    let is_of_one = ["version", "shared"].iter().any(|key| path.parts() == [*key]);
    match (scope, owner) {
        (SettingScope::User, ConfigOwner::Store) => Some(PlacementRule::UserFile),
        (SettingScope::Store, ConfigOwner::User | ConfigOwner::System) if is_of_one => {
            Some(PlacementRule::StoreFile)
        }
        _ => None,
    }
}

/// Formats a value as it was written, on one line.
fn shown(item: &Item, text: &str) -> String {
    if item.is_array_of_tables() {
        return "a list of sections".to_owned();
    }
    if item.is_table_like() {
        return "a section".to_owned();
    }
    let written = item.span().and_then(|span| text.get(span)).unwrap_or_default();
    let line = written.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
