//! Settings in the environment: `commit.exclude` is `SNAP_COMMIT_EXCLUDE`.
//!
//! Other programs have variables that start with `SNAP_`, too: snapd sets
//! `SNAP_VERSION` and a dozen others, Kubernetes sets `SNAP_REMOTE_SERVICE_HOST`
//! for a service called `snap-remote`. So only the documented names count.

use std::ffi::{OsStr, OsString};

use snap_core::repo::config::{
    ConfigError,
    error::Origin,
    key::{KEYS, Key, KeyPath, Scope},
    layer::Layer,
};

/// Variables that are older than the rule, and win over those it gives.
const SHORT: [(&str, &str); 2] = [("SNAP_AUTHOR", "commit.author"), ("SNAP_HOST", "commit.host")];

/// A list of paths in the form of `PATH`, not of a setting: `env.rs` reads it.
const TRUST: &str = "SNAP_TRUST";

/// The variable of a setting; `None` for those that have none.
pub(crate) fn variable(key: &Key) -> Option<String> {
    let has_one = key.is_plain() && key.scope != Scope::Store;
    has_one.then(|| format!("SNAP_{}", key.name.replace('.', "_").to_uppercase()))
}

/// What the variables say.
pub(super) fn layer(variables: &[(String, OsString)]) -> Result<Layer, ConfigError> {
    let mut layer = Layer::default();
    for (name, value) in variables.iter().filter(|(name, _)| name != TRUST) {
        let named = |key: &&Key| variable(key).as_deref() == Some(name.as_str());
        if let Some(key) = KEYS.iter().find(named) {
            insert(&mut layer, key, name, value)?;
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
