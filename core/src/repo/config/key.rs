//! All settings: the name, type and scope of each.
//!
//! A name is written with dots, `commit.author`. In this table a `*` matches any one part: the name
//! of a profile, a remote or a label.

use std::{fmt, str::FromStr};

use crate::{base::suggestions::similar_names, chunk::Params, codec::DEFAULT_LEVEL};

/// The files in which a setting is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingScope {
    /// Allowed in every layer.
    Any,
    /// For the store's file. In the user's file, chunk sizes apply to new stores.
    Store,
    /// Allowed everywhere except in a store's file, which another user may have written.
    User,
}

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `true` or `false`.
    Flag,
    /// An integer in a range, both ends included.
    Number {
        /// The minimum.
        min: i64,
        /// The maximum.
        max: i64,
    },
    /// A number from 0 on, with up to six decimal places.
    Amount,
    /// A string.
    Text,
    /// A list of strings.
    List,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A command line for the shell; snap never splits it into words.
    Command,
    /// A command line, or `false` for no command.
    CommandOrNone,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name, with `*` for a variable part.
    pub name: &'static str,
    /// The type of its value.
    pub kind: ValueType,
    /// The files in which it is allowed.
    pub scope: SettingScope,
    /// Returns its default.
    pub default: fn() -> Option<Value>,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// For [`ValueType::Flag`], and for [`ValueType::CommandOrNone`] without a command.
    Flag(bool),
    /// For [`ValueType::Number`].
    Number(i64),
    /// For [`ValueType::Amount`], in millionths.
    Amount(u64),
    /// For [`ValueType::Text`], [`ValueType::Choice`] and commands.
    Text(String),
    /// For [`ValueType::List`].
    List(Vec<String>),
}

const fn key(name: &'static str, kind: ValueType, scope: SettingScope) -> Setting {
    Setting { name, kind, scope, default: || None }
}

impl Setting {
    const fn or(self, default: fn() -> Option<Value>) -> Self {
        Self { default, ..self }
    }

    fn matches(&self, path: &KeyPath) -> bool {
        let mut parts = path.0.iter();
        let fits = |part: &str| parts.next().is_some_and(|own| part == "*" || part == own);
        self.name.split('.').all(fits) && parts.next().is_none()
    }

    /// Returns true if the name has no `*`.
    pub fn is_plain(&self) -> bool {
        !self.name.contains('*')
    }
}

const BYTES: ValueType = ValueType::Number { min: 0, max: i64::MAX };
const ON_FAILURE: ValueType = ValueType::Choice(&["stop", "report"]);
const OFF: fn() -> Option<Value> = || Some(Value::Flag(false));

fn bytes(size: usize) -> Option<Value> {
    i64::try_from(size).ok().map(Value::Number)
}

const TEXT: ValueType = ValueType::Text;
const KNOWN_HOSTS: ValueType = ValueType::Choice(&["strict", "accept", "add"]);

/// All settings, in the order in which they are listed. `docs/configuration.md` documents each; a
/// test compares.
pub const KEYS: [Setting; 58] = [
    key("version", BYTES, SettingScope::Store),
    key("shared", ValueType::Flag, SettingScope::Store),
    key("trust", ValueType::List, SettingScope::User),
    key("jobs", ValueType::Number { min: 1, max: 256 }, SettingScope::User),
    key("chunk.min", BYTES, SettingScope::Store).or(|| bytes(Params::DEFAULT.min())),
    key("chunk.average", BYTES, SettingScope::Store).or(|| bytes(Params::DEFAULT.average())),
    key("chunk.max", BYTES, SettingScope::Store).or(|| bytes(Params::DEFAULT.max())),
    key("compression.level", ValueType::Number { min: 1, max: 19 }, SettingScope::Any)
        .or(|| Some(Value::Number(DEFAULT_LEVEL.into()))),
    key("commit.author", ValueType::Text, SettingScope::Any),
    key("commit.host", ValueType::Text, SettingScope::Any),
    key("commit.exclude", ValueType::List, SettingScope::Any).or(|| Some(Value::List(Vec::new()))),
    key("commit.iexclude", ValueType::List, SettingScope::Any).or(|| Some(Value::List(Vec::new()))),
    key("commit.exclude_if_present", ValueType::List, SettingScope::Any)
        .or(|| Some(Value::List(Vec::new()))),
    key("commit.exclude_caches", ValueType::Flag, SettingScope::Any).or(OFF),
    key("commit.gitignore", ValueType::Flag, SettingScope::Any).or(OFF),
    key("pull.update", ValueType::Flag, SettingScope::Any).or(OFF),
    key("hooks.pre_commit", ValueType::Command, SettingScope::Any),
    key("hooks.post_commit", ValueType::Command, SettingScope::Any),
    key("hooks.on_failure", ON_FAILURE, SettingScope::Any),
    key("ui.color", ValueType::Choice(&["auto", "always", "never"]), SettingScope::User)
        .or(|| Some(Value::Text("auto".to_owned()))),
    key("ui.pager", ValueType::CommandOrNone, SettingScope::User),
    key("transfer.limit_upload", ValueType::Text, SettingScope::Any),
    key("transfer.limit_download", ValueType::Text, SettingScope::Any),
    key("price.currency", ValueType::Text, SettingScope::Any)
        .or(|| Some(Value::Text("USD".to_owned()))),
    key("price.writes", ValueType::Amount, SettingScope::Any).or(|| Some(Value::Amount(5_000))),
    key("price.reads", ValueType::Amount, SettingScope::Any).or(|| Some(Value::Amount(400))),
    key("price.sent", ValueType::Amount, SettingScope::Any).or(|| Some(Value::Amount(0))),
    key("price.received", ValueType::Amount, SettingScope::Any).or(|| Some(Value::Amount(90_000))),
    key("remote.*.url", TEXT, SettingScope::Any),
    key("remote.*.credentials_file", TEXT, SettingScope::Any),
    key("remote.*.credentials_command", ValueType::Command, SettingScope::Any),
    key("remote.*.endpoint", TEXT, SettingScope::Any),
    key("remote.*.region", TEXT, SettingScope::Any),
    key("remote.*.profile", TEXT, SettingScope::Any),
    key("remote.*.path-style", ValueType::Flag, SettingScope::Any),
    key("remote.*.storage-class", TEXT, SettingScope::Any),
    key("remote.*.anonymous", ValueType::Flag, SettingScope::Any),
    key("remote.*.conditional-writes", ValueType::Flag, SettingScope::Any),
    key("remote.*.checksums", ValueType::Flag, SettingScope::Any),
    key("remote.*.credential-path", TEXT, SettingScope::Any),
    key("remote.*.account", TEXT, SettingScope::Any),
    key("remote.*.username", TEXT, SettingScope::Any),
    key("remote.*.key", TEXT, SettingScope::Any),
    key("remote.*.known-hosts", KNOWN_HOSTS, SettingScope::Any),
    key("profile.*.paths", ValueType::List, SettingScope::Any),
    key("profile.*.exclude", ValueType::List, SettingScope::Any),
    key("profile.*.iexclude", ValueType::List, SettingScope::Any),
    key("profile.*.exclude_if_present", ValueType::List, SettingScope::Any),
    key("profile.*.exclude_caches", ValueType::Flag, SettingScope::Any),
    key("profile.*.gitignore", ValueType::Flag, SettingScope::Any),
    key("profile.*.one_file_system", ValueType::Flag, SettingScope::Any),
    key("profile.*.labels.*", ValueType::Text, SettingScope::Any),
    key("profile.*.branch", ValueType::Text, SettingScope::Any),
    key("profile.*.message", ValueType::Text, SettingScope::Any),
    key("profile.*.store", ValueType::Text, SettingScope::User),
    key("profile.*.hooks.pre_commit", ValueType::Command, SettingScope::Any),
    key("profile.*.hooks.post_commit", ValueType::Command, SettingScope::Any),
    key("profile.*.hooks.on_failure", ON_FAILURE, SettingScope::Any),
];

/// The name of one setting, in parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// Makes a name of its parts.
    pub fn new<S: Into<String>>(parts: impl IntoIterator<Item = S>) -> Self {
        Self(parts.into_iter().map(Into::into).collect())
    }

    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// Returns the setting with this name.
    pub fn key(&self) -> Option<&'static Setting> {
        KEYS.iter().find(|key| key.matches(self))
    }

    /// Returns true if this is the name of a section: if names of settings start with it.
    pub fn is_section(&self) -> bool {
        let begins = |key: &Setting| {
            let mut parts = key.name.split('.');
            let fits = |own: &String| parts.next().is_some_and(|part| part == "*" || part == own);
            self.0.iter().all(fits) && parts.next().is_some()
        };
        KEYS.iter().any(begins)
    }

    /// Returns true if this is `section` or a name in it.
    pub fn is_in(&self, section: &Self) -> bool {
        self.0.starts_with(&section.0)
    }

    /// Returns similar names of settings.
    pub fn close(&self) -> Vec<String> {
        // `profile.*.labels` becomes `profile.home.labels`, with the name that the user wrote.
        let filled = |key: &Setting| {
            let own = self.0.iter().map(Some).chain(std::iter::repeat(None));
            let parts = key.name.split('.').zip(own);
            Self::new(parts.map(|(part, own)| match (part, own) {
                ("*", Some(own)) => own.as_str(),
                (part, _) => part,
            }))
        };
        let names: Vec<String> = KEYS.iter().map(|key| filled(key).to_string()).collect();
        similar_names(&self.to_string(), names.iter().map(String::as_str))
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        for (at, part) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            if !part.is_empty() && part.chars().all(is_bare) {
                f.write_str(part)?;
            } else {
                quoted(f, part)?;
            }
        }
        Ok(())
    }
}

impl FromStr for KeyPath {
    type Err = toml_edit::TomlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(toml_edit::Key::parse(text)?.iter().map(toml_edit::Key::get)))
    }
}

impl ValueType {
    /// Returns the rule for values, as text after "must be".
    pub fn rule(&self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Number { min, max: i64::MAX } => format!("a number of at least {min}"),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
            Self::Amount => "a number of at least 0, such as 0.005".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::List => "a list of strings".to_owned(),
            Self::Choice(words) => format!("`{}`", words.join("` or `")),
            Self::Command => "a command".to_owned(),
            Self::CommandOrNone => "a command or false".to_owned(),
        }
    }

    /// Converts a TOML value; returns `None` if it breaks the rule.
    pub(super) fn of_toml(&self, value: &toml_edit::Value) -> Option<Value> {
        let text = || value.as_str().map(|text| Value::Text(text.to_owned()));
        match self {
            Self::Flag => value.as_bool().map(Value::Flag),
            Self::Number { min, max } => {
                let fits = |number: &i64| (min..=max).contains(&number);
                value.as_integer().filter(fits).map(Value::Number)
            }
            Self::Amount => amount(value),
            Self::Text | Self::Command => text(),
            Self::List => {
                let items = value.as_array()?.iter();
                items
                    .map(|item| item.as_str().map(str::to_owned))
                    .collect::<Option<_>>()
                    .map(Value::List)
            }
            Self::Choice(words) => value.as_str().filter(|text| words.contains(text)).and(text()),
            Self::CommandOrNone => match value.as_bool() {
                Some(false) => Some(Value::Flag(false)),
                _ => text(),
            },
        }
    }

    /// Parses a value from plain text, as on the command line or in a variable. Returns `None` if
    /// it breaks the rule.
    ///
    /// A list is a TOML list, or else has one member on each line. A text is taken literally,
    /// unless it is quoted as in TOML. A command is always taken literally.
    pub fn of_text(&self, text: &str) -> Option<Value> {
        let toml = || text.trim().parse::<toml_edit::Value>().ok();
        let plain = || Some(Value::Text(text.to_owned()));
        match self {
            Self::Flag | Self::Number { .. } | Self::Amount => self.of_toml(&toml()?),
            Self::Text => toml().and_then(|value| self.of_toml(&value)).or_else(plain),
            Self::List => match toml() {
                Some(value) if value.is_array() => self.of_toml(&value),
                Some(value) if value.is_str() => {
                    Some(Value::List(value.as_str().map(str::to_owned).into_iter().collect()))
                }
                _ => Some(Value::List(text.lines().map(str::to_owned).collect())),
            },
            Self::Choice(words) => words.contains(&text).then(plain).flatten(),
            Self::Command => plain(),
            Self::CommandOrNone if text == "false" => Some(Value::Flag(false)),
            Self::CommandOrNone => plain(),
        }
    }
}

const MILLION: u64 = 1_000_000;

/// The largest amount; an `f64` holds it with all decimal places.
const LARGEST_AMOUNT: f64 = 1e9;

fn amount(value: &toml_edit::Value) -> Option<Value> {
    let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))?;
    let fits = (0.0..=LARGEST_AMOUNT).contains(&number);
    fits.then(|| Value::Amount((number * MILLION as f64).round() as u64))
}

/// The TOML form, on one line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Amount(millionths) => {
                let text = format!("{}.{:06}", millionths / MILLION, millionths % MILLION);
                // TOML requires a digit after the point.
                let short = text.trim_end_matches('0');
                f.write_str(if short.ends_with('.') { &text[..=short.len()] } else { short })
            }
            Self::Text(text) => quoted(f, text),
            Self::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    quoted(f, item)?;
                }
                f.write_str("]")
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{:04X}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}
