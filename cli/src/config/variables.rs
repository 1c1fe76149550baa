//! Settings in environment variables: `commit.exclude` is `SNAP_COMMIT_EXCLUDE`.
//!
//! Other programs use variables that start with `SNAP_` too. snapd sets `SNAP_VERSION` and a dozen
//! others; Kubernetes sets `SNAP_REMOTE_SERVICE_HOST` for a service called `snap-remote`. So
//! unknown names are ignored.

use std::ffi::{OsStr, OsString};

use snap_core::repo::config::{
    ConfigError,
    error::SettingOrigin,
    key::{KEYS, KeyPath, Setting, SettingScope},
    layer::Layer,
};

/// Variables that are older than this rule. They take precedence over the variables named by the
/// rule.
const SHORT: [(&str, &str); 2] = [("SNAP_AUTHOR", "commit.author"), ("SNAP_HOST", "commit.host")];

/// This variable is a list of paths in the form of `PATH`, not a setting: `env.rs` reads it.
const TRUST: &str = "SNAP_TRUST";

/// Returns the variable of a setting; `None` if it has none.
pub(crate) fn variable(key: &Setting) -> Option<String> {
    let has_one = key.is_plain() && key.scope != SettingScope::Store;
    has_one.then(|| format!("SNAP_{}", key.name.replace('.', "_").to_uppercase()))
}

/// Reads the layer of the variables.
pub(super) fn layer(variables: &[(String, OsString)]) -> Result<Layer, ConfigError> {
    let mut layer = Layer::default();
    for (name, value) in variables.iter().filter(|(name, _)| name != TRUST) {
        let named = |key: &&Setting| variable(key).as_deref() == Some(name.as_str());
        if let Some(key) = KEYS.iter().find(named) {
            insert(&mut layer, key, name, value)?;
        }
    }
    for (short, key) in SHORT {
        let variable = variables.iter().find(|(name, _)| name == short);
        if let (Some((name, value)), Some(key)) = (variable, KEYS.iter().find(|k| k.name == key)) {
            insert(&mut layer, key, name, value)?;
        }
    }
    Ok(layer)
}

fn insert(layer: &mut Layer, key: &Setting, name: &str, value: &OsStr) -> Result<(), ConfigError> {
    let origin = SettingOrigin::Variable(name.to_owned());
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
