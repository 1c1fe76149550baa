//! From the text of one file to settings, each with the line it stands on.

use std::{collections::BTreeMap, path::Path};

use toml_edit::{Document, Item, TableLike};

use crate::repo::config::{
    VERSION,
    error::{ConfigError, Origin},
    key::{KeyPath, Scope, Value},
};

/// Longest value that an error shows, in characters.
const SHOWN_CHARS: usize = 60;

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A store's.
    Store,
    /// The user's.
    User,
    /// The administrator's, for all users.
    System,
}

/// What one source says, each value with where it stands.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    values: BTreeMap<KeyPath, (Value, Origin)>,
    /// Also those that say nothing.
    profiles: BTreeMap<String, Origin>,
}

impl Layer {
    /// Parses the text of the file at `path`, which is only named in errors.
    ///
    /// # Errors
    /// [`ConfigError`] names the file, and the line but for a version that is
    /// missing or newer.
    pub fn parse(text: &str, path: &Path, whose: Whose) -> Result<Self, ConfigError> {
        let document = Document::parse(text).map_err(|error| syntax(&error, text, path))?;
        if whose == Whose::Store {
            check_version(&document, path)?;
        }
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        let mut file = File { text, path, whose, ends, layer: Self::default() };
        file.read(document.as_table(), &mut Vec::new())?;
        Ok(file.layer)
    }

    /// Adds a value, in place of one that is there.
    pub fn insert(&mut self, path: KeyPath, value: Value, origin: Origin) {
        self.values.insert(path, (value, origin));
    }

    /// What it says about a setting.
    pub fn get(&self, path: &KeyPath) -> Option<&(Value, Origin)> {
        self.values.get(path)
    }

    /// All that it says.
    pub fn values(&self) -> impl Iterator<Item = (&KeyPath, &(Value, Origin))> {
        self.values.iter()
    }

    /// Names of its profiles, and where each begins.
    pub fn profiles(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.profiles.iter().map(|(name, origin)| (name.as_str(), origin))
    }
}

pub(super) fn syntax(error: &toml_edit::TomlError, text: &str, path: &Path) -> ConfigError {
    ConfigError::Syntax {
        path: path.to_owned(),
        line: line(text, error.span().map_or(0, |span| span.start)),
        message: error.message().replace('\n', ", "),
    }
}

fn line(text: &str, at: usize) -> usize {
    line_of(text.as_bytes(), at)
}

/// The line that byte `at` stands on, from 1.
pub(super) fn line_of(text: &[u8], at: usize) -> usize {
    text.iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Looks at the version before anything else: the other settings of a newer
/// store may be unknown for good reason.
fn check_version(document: &Document<&str>, path: &Path) -> Result<(), ConfigError> {
    match document.as_table().get("version") {
        None => Err(ConfigError::NoVersion { path: path.to_owned() }),
        Some(item) => match item.as_integer() {
            Some(found) if found > i64::from(VERSION) => {
                Err(ConfigError::Newer { path: path.to_owned(), found, known: VERSION })
            }
            _ => Ok(()),
        },
    }
}

struct File<'t> {
    text: &'t str,
    path: &'t Path,
    whose: Whose,
    /// Where lines end: counting anew for each setting would take as long as a
    /// hostile file likes.
    ends: Vec<usize>,
    layer: Layer,
}

impl File<'_> {
    fn origin(&self, at: usize) -> Origin {
        let line = self.ends.partition_point(|end| *end < at) + 1;
        let path = self.path.to_owned();
        match self.whose {
            Whose::Store => Origin::Store { path, line },
            Whose::User => Origin::User { path, line },
            Whose::System => Origin::System { path, line },
        }
    }

    /// The parser bounds how deep sections are nested.
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
        origin: Origin,
    ) -> Result<(), ConfigError> {
        let path = KeyPath::new(parts.iter().cloned());
        let wrong = |origin, rule: String| {
            let (key, found) = (path.to_string(), shown(item, self.text));
            let origin = Box::new(origin);
            Err(ConfigError::Value { origin, key, found, rule })
        };
        let Some(key) = path.key() else {
            if !path.is_section() {
                let (key, close) = (path.to_string(), path.close());
                return Err(ConfigError::Unknown { origin: Box::new(origin), key, close });
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
        if let Some(rule) = misplaced(&path, key.scope, self.whose) {
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

/// Where a setting belongs that may not stand in this file.
pub(super) fn misplaced(path: &KeyPath, scope: Scope, whose: Whose) -> Option<&'static str> {
    let is_of_one = ["version", "shared"].iter().any(|key| path.parts() == [*key]);
    match (scope, whose) {
        (Scope::User, Whose::Store) => Some("it belongs in the user's file"),
        (Scope::Store, Whose::User | Whose::System) if is_of_one => {
            Some("it belongs in a store's file")
        }
        _ => None,
    }
}

/// A value as it was written, on one line.
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
