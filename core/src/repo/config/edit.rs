//! Changes one setting in the text of a settings file, and keeps the rest: comments, order and
//! white space.

use std::path::Path;

use toml_edit::{Document, DocumentMut, InlineTable, Item, Key, Table, TableLike};

use crate::{
    base::limits,
    repo::config::{
        error::{ConfigError, SettingOrigin},
        key::{KeyPath, Value},
        layer::{ConfigOwner, Layer, misplaced, syntax},
        settings::SettingLayers,
    },
};

/// A settings file to edit.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'t> {
    /// The present text.
    pub text: &'t str,
    /// The path, for errors.
    pub path: &'t Path,
    /// The owner of the file: a store, a user or the system.
    pub owner: ConfigOwner,
}

impl Edit<'_> {
    /// Returns the text with a setting changed or added. Replaces a commented-out setting of this
    /// name, such as those in the file of a new store.
    ///
    /// # Errors
    /// [`ConfigError`] if the setting does not exist, does not belong in this file, or makes the
    /// settings invalid.
    pub fn set(&self, key: &KeyPath, value: &str) -> Result<String, ConfigError> {
        let value = self.check(key, value)?;
        let mut document = self.document()?;
        let holds = |text: &String| {
            let layer = Layer::parse(text, self.path, self.owner).ok();
            layer.is_some_and(|layer| layer.get(key).is_some_and(|(found, _)| *found == value))
        };
        let in_place = replace(&mut document, key, &value).then(|| document.to_string());
        let changed = in_place
            .or_else(|| uncomment(self.text, key, &value).filter(holds))
            .or_else(|| add(self.text, &mut document, key, &value));
        let text = changed.ok_or_else(|| self.not_editable(key))?;
        self.reread(&text).map_err(|error| self.of_change(error))?;
        if holds(&text) { Ok(text) } else { Err(self.not_editable(key)) }
    }

    /// Returns the text without a setting or a whole section; `None` if the file does not contain
    /// it. Comments above a setting stay.
    ///
    /// # Errors
    /// [`ConfigError`] if the setting does not exist, or if the settings are invalid without it.
    pub fn unset(&self, key: &KeyPath) -> Result<Option<String>, ConfigError> {
        if key.key().is_none() && !key.is_section() {
            return Err(unknown(key));
        }
        if key.key().is_some_and(|key| key.name == "version") {
            return Err(ConfigError::FixedVersion);
        }
        let spans = Document::parse(self.text).map_err(|e| syntax(&e, self.text, self.path))?;
        let Some((found, item, is_table)) = find(spans.as_table(), key) else { return Ok(None) };
        let leaf = key.parts().last().map_or("", String::as_str);
        let text = match (item.as_value(), found.span()) {
            (Some(value), Some(span)) if is_table && !value.is_inline_table() => {
                let end = value.span().map_or(span.end, |span| span.end);
                without_lines(self.text, span.start, end)
            }
            _ => {
                let mut document = self.document()?;
                let removed = parent_of(&mut document, key).and_then(|table| table.remove(leaf));
                removed.ok_or_else(|| self.not_editable(key))?;
                document.to_string()
            }
        };
        let left = self.reread(&text).map_err(|error| self.of_change(error))?;
        if left.values().any(|(path, _)| path.is_in(key)) {
            return Err(self.not_editable(key));
        }
        Ok(Some(text))
    }

    /// Parses the value, and checks that the setting belongs in this file.
    fn check(&self, path: &KeyPath, text: &str) -> Result<Value, ConfigError> {
        let key = path.key().ok_or_else(|| unknown(path))?;
        if key.name == "version" {
            return Err(ConfigError::FixedVersion);
        }
        let origin = Box::new(SettingOrigin::Argument);
        if let Some(rule) = misplaced(path, key.scope, self.owner) {
            return Err(ConfigError::Misplaced { origin, key: path.to_string(), rule });
        }
        key.kind.of_text(text).ok_or_else(|| ConfigError::Value {
            origin,
            key: path.to_string(),
            found: if text.is_empty() { "empty".to_owned() } else { text.to_owned() },
            rule: key.kind.rule(),
        })
    }

    fn document(&self) -> Result<DocumentMut, ConfigError> {
        self.text.parse().map_err(|error| syntax(&error, self.text, self.path))
    }

    /// Parses a changed text, and checks all its settings together.
    fn reread(&self, text: &str) -> Result<Layer, ConfigError> {
        if text.len() as u64 > limits::CONFIG_BYTES {
            let (path, limit) = (self.path.to_owned(), limits::CONFIG_BYTES);
            return Err(ConfigError::TooLarge { path, limit });
        }
        let layer = Layer::parse(text, self.path, self.owner)?;
        let settings = match self.owner {
            ConfigOwner::Store => SettingLayers::default().with_store(layer.clone()),
            ConfigOwner::User | ConfigOwner::System => {
                SettingLayers::new(layer.clone(), Layer::default(), Layer::default())
            }
        };
        settings.config()?;
        Ok(layer)
    }

    /// Attributes an error in a changed text: to its line if the unchanged text has an error too,
    /// otherwise to the argument of the command.
    fn of_change(&self, error: ConfigError) -> ConfigError {
        match error {
            ConfigError::Value { key, found, rule, .. } if self.reread(self.text).is_ok() => {
                ConfigError::Value { origin: Box::new(SettingOrigin::Argument), key, found, rule }
            }
            error => error,
        }
    }

    fn not_editable(&self, key: &KeyPath) -> ConfigError {
        ConfigError::NotEditable { path: self.path.to_owned(), key: key.to_string() }
    }
}

/// Returns the error for an unknown setting.
pub fn unknown(key: &KeyPath) -> ConfigError {
    let name = key.to_string();
    match key.is_of_chunks() {
        true => ConfigError::FixedChunks { origin: Box::new(SettingOrigin::Argument), key: name },
        false => ConfigError::UnknownKey { key: name, close: key.close() },
    }
}

/// Returns the key and the value of a setting, and true if its section has a line for each setting.
fn find<'d>(top: &'d Table, key: &KeyPath) -> Option<(&'d Key, &'d Item, bool)> {
    let (leaf, sections) = key.parts().split_last()?;
    let (mut table, mut is_table): (&dyn TableLike, _) = (top, true);
    for section in sections {
        let item = table.get(section)?;
        table = item.as_table_like()?;
        is_table &= item.is_table();
    }
    let (key, item) = table.get_key_value(leaf)?;
    Some((key, item, is_table))
}

fn parent_of<'d>(document: &'d mut DocumentMut, key: &KeyPath) -> Option<&'d mut dyn TableLike> {
    let (_, sections) = key.parts().split_last()?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for section in sections {
        table = table.get_mut(section)?.as_table_like_mut()?;
    }
    Some(table)
}

fn toml(value: &Value) -> Option<toml_edit::Value> {
    value.to_string().parse().ok()
}

/// Changes an existing value. Returns true if the setting exists.
fn replace(document: &mut DocumentMut, key: &KeyPath, value: &Value) -> bool {
    let leaf = key.parts().last().map_or("", String::as_str);
    let found = parent_of(document, key).and_then(|table| table.get_mut(leaf));
    let (Some(found), Some(mut new)) = (found.and_then(Item::as_value_mut), toml(value)) else {
        return false;
    };
    *new.decor_mut() = found.decor().clone();
    *found = new;
    true
}

/// Replaces a commented-out setting such as `# level = 3`.
fn uncomment(text: &str, key: &KeyPath, value: &Value) -> Option<String> {
    let (leaf, sections) = key.parts().split_last()?;
    let leaf = KeyPath::new([leaf]);
    let header = format!("[{}]", KeyPath::new(sections));
    let wanted = format!("# {leaf} = ");
    let mut inside = sections.is_empty();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        if line.starts_with('[') {
            inside = line.trim_end() == header;
        } else if inside && line.starts_with(&wanted) {
            return Some(format!("{}{leaf} = {value}\n{}", &text[..start], &text[end..]));
        }
        start = end;
    }
    None
}

/// Adds a missing setting: to its section if that exists, otherwise to a new section at the end.
fn add(text: &str, document: &mut DocumentMut, key: &KeyPath, value: &Value) -> Option<String> {
    let (leaf, sections) = key.parts().split_last()?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let (mut is_inline, mut is_implicit) = (false, false);
    for section in sections {
        if table.get(section).is_none() && !is_inline {
            return Some(append(text, sections, leaf, value));
        }
        if table.get(section).is_none() {
            table.insert(section, Item::Value(InlineTable::new().into()));
        }
        let item = table.get_mut(section)?;
        is_inline = item.is_inline_table();
        is_implicit = item.as_table().is_some_and(|own| own.is_implicit() && !own.is_dotted());
        table = item.as_table_like_mut()?;
    }
    // An implicit section: for example, the file has `[profile.home.hooks]` but not
    // `[profile.home]`.
    if is_implicit {
        return Some(append(text, sections, leaf, value));
    }
    table.insert(leaf, Item::Value(toml(value)?));
    Some(document.to_string())
}

/// Appends a section with one setting. It goes after everything else, including comments, because
/// comments at the end may belong to the section above.
fn append(text: &str, sections: &[String], leaf: &str, value: &Value) -> String {
    let before = match text.trim_end() {
        "" => String::new(),
        before => format!("{before}\n\n"),
    };
    format!("{before}[{}]\n{} = {value}\n", KeyPath::new(sections), KeyPath::new([leaf]))
}

/// Removes the lines from the byte `start` to the byte `end`.
fn without_lines(text: &str, start: usize, end: usize) -> String {
    let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let last = text[end..].find('\n').map_or(text.len(), |at| end + at + 1);
    format!("{}{}", &text[..first], &text[last..])
}
