//! Settings in the environment: `commit.exclude` is `SNAP_COMMIT_EXCLUDE`.
//!
//! Other programs have variables that start with `SNAP_`, too. So one that is
//! unknown is an error only where it starts as those of a section here do.

use std::ffi::{OsStr, OsString};

use snap_core::{
    base::close::close_names,
    repo::config::{
        ConfigError,
        error::Origin,
        key::{KEYS, Key, KeyPath, Scope},
        layer::Layer,
    },
};

/// Variables that are older than the rule, and win over those it gives.
const SHORT: [(&str, &str); 2] = [("SNAP_AUTHOR", "commit.author"), ("SNAP_HOST", "commit.host")];

/// Variables that start as settings do and are none: secrets do not belong
/// there.
const NO_SETTINGS: [&str; 3] = ["SNAP_REMOTE_USER", "SNAP_REMOTE_SECRET", "SNAP_REMOTE_SESSION"];

/// The variable of a setting; `None` for those that have none.
pub(crate) fn variable(key: &Key) -> Option<String> {
    let has_one = key.is_plain() && key.scope != Scope::Store;
    has_one.then(|| mechanical(key.name))
}

fn mechanical(name: &str) -> String {
    format!("SNAP_{}", name.replace('.', "_").to_uppercase())
}

/// What the variables say.
pub(super) fn layer(variables: &[(String, OsString)]) -> Result<Layer, ConfigError> {
    let mut layer = Layer::default();
    for (name, value) in variables {
        let named = |key: &&Key| key.is_plain() && mechanical(key.name) == *name;
        if let Some(key) = KEYS.iter().find(named) {
            insert(&mut layer, key, name, value)?;
        } else if is_like_ours(name) && !NO_SETTINGS.contains(&&**name) {
            return Err(unknown(name));
        }
    }
    for (short, key) in SHORT {
        let said = variables.iter().find(|(name, _)| name == short);
        if let (Some((name, value)), Some(key)) = (said, KEYS.iter().find(|k| k.name == key)) {
            insert(&mut layer, key, name, value)?;
        }
    }
    Ok(layer)
}

fn insert(layer: &mut Layer, key: &Key, name: &str, value: &OsStr) -> Result<(), ConfigError> {
    let origin = Origin::Variable(name.to_owned());
    if key.scope == Scope::Store {
        let rule = "it belongs in a store's file";
        let (origin, key) = (Box::new(origin), key.name.to_owned());
        return Err(ConfigError::Misplaced { origin, key, rule });
    }
    let wrong = |rule: String| {
        let found = value.to_string_lossy().into_owned();
        let (origin, key) = (Box::new(origin.clone()), key.name.to_owned());
        ConfigError::Value { origin, key, found, rule }
    };
    let text = value.to_str().ok_or_else(|| wrong("UTF-8".to_owned()))?;
    let value = key.kind.of_text(text).ok_or_else(|| wrong(key.kind.rule()))?;
    layer.insert(KeyPath::new(key.name.split('.')), value, origin);
    Ok(())
}

/// Whether a variable starts as those of a section do.
fn is_like_ours(name: &str) -> bool {
    let sections = KEYS.iter().filter_map(|key| key.name.split_once('.'));
    sections.map(|(section, _)| mechanical(section)).any(|section| {
        name.strip_prefix(&section).is_some_and(|rest| rest.starts_with('_') && rest.len() > 1)
    })
}

fn unknown(name: &str) -> ConfigError {
    let known: Vec<String> = KEYS.iter().filter_map(variable).collect();
    let key = name.trim_start_matches("SNAP_").to_lowercase().replacen('_', ".", 1);
    let close = close_names(name, known.iter().map(String::as_str));
    let origin = Box::new(Origin::Variable(name.to_owned()));
    ConfigError::Unknown { origin, key, close }
}
