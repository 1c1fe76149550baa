//! Settings in environment variables: `limits.stop_secs` is `SNAP_SERVE_LIMITS_STOP_SECS`. A value
//! has the form that it has in the file. Text that is not a TOML value counts as a string, so
//! quotes can be left out.

use toml_edit::{DocumentMut, Item, Value};

use super::SettingsError;

/// Prefix of the names of all variables.
pub(super) const PREFIX: &str = "SNAP_SERVE_";

/// All keys of the settings.
const KEYS: &[&str] = &[
    "listen",
    "upstream",
    "cache",
    "cache_bytes",
    "tokens",
    "without_tokens_anyone_may_read_and_write",
    "proxies",
    "metrics_without_token",
    "public_url",
    "tls.cert",
    "tls.key",
    "oidc.issuer",
    "oidc.audience",
    "oidc.name_claim",
    "oidc.scopes",
    "log.format",
    "log.level",
    "log.audit",
    "limits.stop_secs",
    "limits.header_secs",
    "limits.stall_secs",
    "limits.upload_bytes",
    "limits.bundle_bytes",
    "limits.content_bytes",
    "limits.missing_ids",
    "limits.archive_bytes",
    "limits.refs",
    "limits.cache_bytes",
    "limits.upstream_secs",
    "limits.upstream_bytes",
    "limits.open_repositories",
    "limits.connections",
    "limits.address_connections",
    "limits.requests_per_sec",
    "limits.uploads",
    "limits.upload_bytes_per_sec",
    "quota.default_bytes",
    "quota.repositories",
];

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// Sets the key that a variable names to the value of the variable.
///
/// # Errors
/// [`SettingsError::Variable`] when there is no such key.
pub(super) fn put(document: &mut DocumentMut, name: &str, text: &str) -> Result<(), SettingsError> {
    let key = KEYS.iter().find(|key| variable(key) == name);
    let key = key.ok_or_else(|| SettingsError::Variable { name: name.to_owned() })?;
    let value: Value = text.parse().unwrap_or_else(|_| text.into());
    let mut place: &mut Item = document.as_item_mut();
    for part in key.split('.') {
        place = &mut place[part];
    }
    *place = Item::Value(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{super::ServerSettings, *};

    /// Collects the keys of a table. Keys of nested tables are joined with dots. A table whose keys
    /// are chosen by users counts as one key.
    fn keys(table: &toml_edit::Table, above: &str, found: &mut BTreeSet<String>) {
        for (key, item) in table {
            let name = format!("{above}{key}");
            match item {
                Item::Table(inner) if name != "quota.repositories" => {
                    keys(inner, &format!("{name}."), found);
                }
                _ => drop(found.insert(name)),
            }
        }
    }

    /// The example file in the header of the settings module.
    fn example() -> String {
        let text = include_str!("../settings.rs");
        let lines = text.lines().skip_while(|line| *line != "//! ```toml").skip(1);
        let lines = lines.take_while(|line| *line != "//! ```");
        lines.map(|line| line.trim_start_matches("//!").trim_start().to_owned() + "\n").collect()
    }

    #[test]
    fn the_example_file_shows_every_setting_and_its_default() {
        let read: ServerSettings = toml_edit::de::from_str(&example()).unwrap();
        assert_eq!(read, ServerSettings::default());
        let all = example().replace("# ", "");
        assert!(all.contains("[[oidc.scopes]]"), "{all}");
        let document: DocumentMut = all.parse().unwrap();
        let mut found = BTreeSet::new();
        keys(document.as_table(), "", &mut found);
        assert_eq!(found, KEYS.iter().map(|key| (*key).to_owned()).collect());
        toml_edit::de::from_str::<ServerSettings>(&all).unwrap();
    }

    /// The default of each key, as the manual documents it.
    fn told() -> BTreeMap<String, String> {
        let manual = include_str!("../../../docs/server.md");
        let rows = manual.lines().skip_while(|line| !line.starts_with("| key | default |")).skip(2);
        let mut found = BTreeMap::new();
        for row in rows.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            // Keys are between backquotes. The part of a key that users choose is cut off.
            for name in cells[1].split('`').skip(1).step_by(2) {
                let name = name.trim_matches(['[', ']']).trim_end_matches(".\"NAME\"");
                assert_eq!(found.insert(name.to_owned(), cells[2].to_owned()), None, "{name}");
            }
        }
        found
    }

    /// The default of each key that has one, in TOML.
    fn defaults() -> BTreeMap<String, String> {
        let text = toml_edit::ser::to_string(&ServerSettings::default()).unwrap();
        let document: DocumentMut = text.parse().unwrap();
        let value = |key: &&str| {
            let mut item = document.as_item();
            for part in key.split('.') {
                item = item.get(part)?;
            }
            let value = item.as_value().filter(|value| !value.is_inline_table())?;
            Some(((*key).to_owned(), value.to_string().trim().to_owned()))
        };
        let mut found: BTreeMap<String, String> = KEYS.iter().filter_map(value).collect();
        // `oidc` is absent by default, so the default of its key is taken from a minimal
        // one.
        let oidc = "[oidc]\nissuer = \"\"\naudience = \"\"";
        let oidc = toml_edit::de::from_str::<ServerSettings>(oidc).unwrap().oidc.unwrap();
        found.insert("oidc.name_claim".to_owned(), format!("{:?}", oidc.name_claim));
        found
    }

    #[test]
    fn the_manual_has_every_key_with_its_default() {
        let mut told = told();
        // The defaults of these depend on the environment, and the manual describes them.
        for (key, place) in [
            ("cache", "`$XDG_CACHE_HOME/snap/serve`"),
            ("tokens", "`tokens.toml` in what is served"),
        ] {
            assert_eq!(told.insert(key.to_owned(), "none".to_owned()).as_deref(), Some(place));
        }
        let defaults = defaults();
        assert!(defaults.len() > 20, "{defaults:?}");
        let none = || "none".to_owned();
        let code = |value: &String| format!("`{value}`");
        let wanted = |key: &str| (key.to_owned(), defaults.get(key).map_or_else(none, code));
        assert_eq!(told, KEYS.iter().map(|key| wanted(key)).collect());
    }
}
