//! Every setting there is: its name, what its value may be, and where it may
//! stand.
//!
//! A name is written with dots, `commit.author`. In the names of this table a
//! `*` stands for any one part: the name of a profile, or of a label.

use std::{fmt, str::FromStr};

use crate::{base::close::close_names, chunk::Params, codec::DEFAULT_LEVEL};

/// Where a setting may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In each layer.
    Any,
    /// In the store's file. In the user's, chunk sizes are those of new stores.
    Store,
    /// Anywhere but in a store's file, which somebody else may have written.
    User,
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number, both ends included.
    Number {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// A number from 0 on, with up to six digits behind the point.
    Amount,
    /// A text.
    Text,
    /// A list of texts.
    List,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A line for the shell; never taken apart.
    Command,
    /// The same, or `false` for none.
    CommandOrNone,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Where it may stand.
    pub scope: Scope,
    /// What holds where nothing is said.
    pub default: fn() -> Option<Value>,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of [`Kind::Flag`], and no command.
    Flag(bool),
    /// Of [`Kind::Number`].
    Number(i64),
    /// Of [`Kind::Amount`], in millionths.
    Amount(u64),
    /// Of [`Kind::Text`], [`Kind::Choice`] and of commands.
    Text(String),
    /// Of [`Kind::List`].
    List(Vec<String>),
}

const fn key(name: &'static str, kind: Kind, scope: Scope) -> Key {
    Key { name, kind, scope, default: || None }
}

impl Key {
    const fn or(self, default: fn() -> Option<Value>) -> Self {
        Self { default, ..self }
    }

    fn matches(&self, path: &KeyPath) -> bool {
        let mut parts = path.0.iter();
        let fits = |part: &str| parts.next().is_some_and(|own| part == "*" || part == own);
        self.name.split('.').all(fits) && parts.next().is_none()
    }

    /// Whether its name has no `*`.
    pub fn is_plain(&self) -> bool {
        !self.name.contains('*')
    }
}

const BYTES: Kind = Kind::Number { min: 0, max: i64::MAX };
const ON_FAILURE: Kind = Kind::Choice(&["stop", "report"]);
const OFF: fn() -> Option<Value> = || Some(Value::Flag(false));

fn bytes(size: usize) -> Option<Value> {
    i64::try_from(size).ok().map(Value::Number)
}

const TEXT: Kind = Kind::Text;
const KNOWN_HOSTS: Kind = Kind::Choice(&["strict", "accept", "add"]);

/// All settings, in the order in which they are listed. What each means is
/// said in `docs/configuration.md`; a test compares.
pub const KEYS: [Key; 53] = [
    key("version", BYTES, Scope::Store),
    key("shared", Kind::Flag, Scope::Store),
    key("trust", Kind::List, Scope::User),
    key("jobs", Kind::Number { min: 1, max: 256 }, Scope::User),
    key("chunk.min", BYTES, Scope::Store).or(|| bytes(Params::DEFAULT.min())),
    key("chunk.average", BYTES, Scope::Store).or(|| bytes(Params::DEFAULT.average())),
    key("chunk.max", BYTES, Scope::Store).or(|| bytes(Params::DEFAULT.max())),
    key("compression.level", Kind::Number { min: 1, max: 19 }, Scope::Any)
        .or(|| Some(Value::Number(DEFAULT_LEVEL.into()))),
    key("commit.author", Kind::Text, Scope::Any),
    key("commit.host", Kind::Text, Scope::Any),
    key("commit.exclude", Kind::List, Scope::Any).or(|| Some(Value::List(Vec::new()))),
    key("commit.exclude_caches", Kind::Flag, Scope::Any).or(OFF),
    key("commit.gitignore", Kind::Flag, Scope::Any).or(OFF),
    key("hooks.pre_commit", Kind::Command, Scope::Any),
    key("hooks.post_commit", Kind::Command, Scope::Any),
    key("hooks.on_failure", ON_FAILURE, Scope::Any),
    key("ui.color", Kind::Choice(&["auto", "always", "never"]), Scope::User)
        .or(|| Some(Value::Text("auto".to_owned()))),
    key("ui.pager", Kind::CommandOrNone, Scope::User),
    key("transfer.limit_upload", Kind::Text, Scope::Any),
    key("transfer.limit_download", Kind::Text, Scope::Any),
    key("price.currency", Kind::Text, Scope::Any).or(|| Some(Value::Text("USD".to_owned()))),
    key("price.writes", Kind::Amount, Scope::Any).or(|| Some(Value::Amount(5_000))),
    key("price.reads", Kind::Amount, Scope::Any).or(|| Some(Value::Amount(400))),
    key("price.sent", Kind::Amount, Scope::Any).or(|| Some(Value::Amount(0))),
    key("price.received", Kind::Amount, Scope::Any).or(|| Some(Value::Amount(90_000))),
    key("remote.*.url", TEXT, Scope::Any),
    key("remote.*.credentials_file", TEXT, Scope::Any),
    key("remote.*.credentials_command", Kind::Command, Scope::Any),
    key("remote.*.endpoint", TEXT, Scope::Any),
    key("remote.*.region", TEXT, Scope::Any),
    key("remote.*.profile", TEXT, Scope::Any),
    key("remote.*.path-style", Kind::Flag, Scope::Any),
    key("remote.*.storage-class", TEXT, Scope::Any),
    key("remote.*.anonymous", Kind::Flag, Scope::Any),
    key("remote.*.conditional-writes", Kind::Flag, Scope::Any),
    key("remote.*.checksums", Kind::Flag, Scope::Any),
    key("remote.*.credential-path", TEXT, Scope::Any),
    key("remote.*.account", TEXT, Scope::Any),
    key("remote.*.username", TEXT, Scope::Any),
    key("remote.*.key", TEXT, Scope::Any),
    key("remote.*.known-hosts", KNOWN_HOSTS, Scope::Any),
    key("profile.*.paths", Kind::List, Scope::Any),
    key("profile.*.exclude", Kind::List, Scope::Any),
    key("profile.*.exclude_caches", Kind::Flag, Scope::Any),
    key("profile.*.gitignore", Kind::Flag, Scope::Any),
    key("profile.*.one_file_system", Kind::Flag, Scope::Any),
    key("profile.*.labels.*", Kind::Text, Scope::Any),
    key("profile.*.branch", Kind::Text, Scope::Any),
    key("profile.*.message", Kind::Text, Scope::Any),
    key("profile.*.store", Kind::Text, Scope::User),
    key("profile.*.hooks.pre_commit", Kind::Command, Scope::Any),
    key("profile.*.hooks.post_commit", Kind::Command, Scope::Any),
    key("profile.*.hooks.on_failure", ON_FAILURE, Scope::Any),
];

/// Name of one setting, in parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// Of the parts themselves.
    pub fn new<S: Into<String>>(parts: impl IntoIterator<Item = S>) -> Self {
        Self(parts.into_iter().map(Into::into).collect())
    }

    /// The parts.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// The setting of this name.
    pub fn key(&self) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.matches(self))
    }

    /// Whether settings have names that begin so.
    pub fn is_section(&self) -> bool {
        let begins = |key: &Key| {
            let mut parts = key.name.split('.');
            let fits = |own: &String| parts.next().is_some_and(|part| part == "*" || part == own);
            self.0.iter().all(fits) && parts.next().is_some()
        };
        KEYS.iter().any(begins)
    }

    /// Whether this is `section` or stands in it.
    pub fn is_in(&self, section: &Self) -> bool {
        self.0.starts_with(&section.0)
    }

    /// Names of settings that this one may have been meant to be.
    pub fn close(&self) -> Vec<String> {
        // `profile.*.labels` becomes `profile.home.labels`, as it was written.
        let filled = |key: &Key| {
            let own = self.0.iter().map(Some).chain(std::iter::repeat(None));
            let parts = key.name.split('.').zip(own);
            Self::new(parts.map(|(part, own)| match (part, own) {
                ("*", Some(own)) => own.as_str(),
                (part, _) => part,
            }))
        };
        let names: Vec<String> = KEYS.iter().map(|key| filled(key).to_string()).collect();
        close_names(&self.to_string(), names.iter().map(String::as_str))
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

impl Kind {
    /// What a value must be, to follow "must be".
    pub fn rule(&self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Number { min, max: i64::MAX } => format!("a number from {min} on"),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
            Self::Amount => "a number from 0 on, such as 0.005".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::List => "a list of texts".to_owned(),
            Self::Choice(words) => format!("`{}`", words.join("` or `")),
            Self::Command => "a command".to_owned(),
            Self::CommandOrNone => "a command or false".to_owned(),
        }
    }

    /// The value that TOML says; `None` when it does not fit.
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

    /// The value that plain text stands for, as on the command line or in a
    /// variable; `None` when it does not fit.
    ///
    /// A list is one of TOML, else each line is a member. A text is taken as it
    /// is, unless it is in the quotes of TOML; a command even then.
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

/// Largest amount, which an `f64` has to the last digit.
const LARGEST_AMOUNT: f64 = 1e9;

fn amount(value: &toml_edit::Value) -> Option<Value> {
    let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))?;
    let fits = (0.0..=LARGEST_AMOUNT).contains(&number);
    fits.then(|| Value::Amount((number * MILLION as f64).round() as u64))
}

/// As TOML has it, on one line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Amount(millionths) => {
                let text = format!("{}.{:06}", millionths / MILLION, millionths % MILLION);
                // TOML wants a digit behind the point.
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
