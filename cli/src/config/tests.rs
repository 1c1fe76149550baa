//! Tests that each setting has its variable and its row in the documentation.

use snap_core::repo::config::key::{KEYS, SettingScope, ValueType};

use super::variables::variable;

const DOC: &str = include_str!("../../../docs/configuration.md");

/// Returns the rows of the tables of settings: name, type, default, variable, file, meaning.
fn rows() -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    // The table of settings has six columns, others have fewer.
    let is_setting = |line: &&str| line.starts_with("| `") && line.matches('|').count() == 7;
    DOC.lines().filter(is_setting).map(cells).collect()
}

fn type_of(kind: ValueType) -> String {
    match kind {
        ValueType::Flag => "flag".to_owned(),
        ValueType::Number { .. } => "number".to_owned(),
        ValueType::Amount => "amount".to_owned(),
        ValueType::Text => "text".to_owned(),
        ValueType::Age => "age".to_owned(),
        ValueType::Duration => "time".to_owned(),
        ValueType::Size => "size".to_owned(),
        ValueType::Rate => "rate".to_owned(),
        ValueType::List => "list".to_owned(),
        ValueType::Choice(words) => words.join(", "),
        ValueType::Command => "command".to_owned(),
        ValueType::CommandOrNone => "command, false".to_owned(),
    }
}

#[test]
fn the_document_has_every_setting_as_the_code_has_it() {
    let expected: Vec<Vec<String>> = KEYS
        .iter()
        .filter(|key| key.name != "version")
        .map(|key| {
            let default = (key.default)().map_or_else(String::new, |value| value.to_string());
            vec![
                key.name.replace('*', "NAME"),
                type_of(key.kind),
                default,
                variable(key).unwrap_or_default(),
                match key.scope {
                    SettingScope::Any => "user, store",
                    SettingScope::Store => "store",
                    SettingScope::User => "user",
                }
                .to_owned(),
                key.description.replace('`', ""),
            ]
        })
        .collect();
    let found = rows();
    for row in &expected {
        let line = row.join(" | ");
        assert!(found.contains(row), "docs/configuration.md lacks: {line}");
    }
    let extra: Vec<_> = found.iter().filter(|row| !expected.contains(row)).collect();
    assert!(extra.is_empty(), "docs/configuration.md has what the code has not: {extra:?}");
}

#[test]
fn the_options_of_remotes_are_those_of_locations() {
    use std::collections::BTreeSet;

    let settings = KEYS.iter().filter_map(|key| key.name.strip_prefix("remote.*."));
    let settings: BTreeSet<&str> = settings.filter(|part| super::remote::is_option(part)).collect();
    let options =
        snap_remote::location::Scheme::ALL.iter().flat_map(|(scheme, _)| scheme.options());
    assert_eq!(settings, options.map(|(name, _)| *name).collect());
}
