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
    Number { min: i64, max: i64 },
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
    /// Its meaning, as in `docs/configuration.md`.
    pub description: &'static str,
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

const fn key(
    name: &'static str,
    description: &'static str,
    kind: ValueType,
    scope: SettingScope,
) -> Setting {
    Setting { name, description, kind, scope, default: || None }
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
    key("version", "format version of the store", BYTES, SettingScope::Store),
    key(
        "shared",
        "the group of the store's folder may write to it; `snap init --shared` sets it",
        ValueType::Flag,
        SettingScope::Store,
    ),
    key(
        "trust",
        "trusted stores and projects, such as `/srv/project`; never in a store's `config.toml`",
        ValueType::List,
        SettingScope::User,
    ),
    key(
        "jobs",
        "threads of a commit or a restore, 1 to 256; else the number of cores decides",
        ValueType::Number { min: 1, max: 256 },
        SettingScope::User,
    ),
    key(
        "chunk.min",
        "smallest chunk in bytes, at least 4096; files of up to 1 MiB are not cut",
        BYTES,
        SettingScope::Store,
    )
    .or(|| bytes(Params::DEFAULT.min())),
    key("chunk.average", "average chunk in bytes, a power of two", BYTES, SettingScope::Store)
        .or(|| bytes(Params::DEFAULT.average())),
    key("chunk.max", "largest chunk in bytes, at most 8388608", BYTES, SettingScope::Store)
        .or(|| bytes(Params::DEFAULT.max())),
    key(
        "compression.level",
        "zstd level of new data, 1 (fast) to 19 (small)",
        ValueType::Number { min: 1, max: 19 },
        SettingScope::Any,
    )
    .or(|| Some(Value::Number(DEFAULT_LEVEL.into()))),
    key("commit.author", "author; else the user's name", ValueType::Text, SettingScope::Any),
    key(
        "commit.host",
        "name of the machine; else the system's",
        ValueType::Text,
        SettingScope::Any,
    ),
    key(
        "commit.exclude",
        "patterns to exclude, as in `.gitignore`; `--exclude` adds to them",
        ValueType::List,
        SettingScope::Any,
    )
    .or(|| Some(Value::List(Vec::new()))),
    key(
        "commit.iexclude",
        "patterns that ignore the case of ASCII letters; `--iexclude` adds to them",
        ValueType::List,
        SettingScope::Any,
    )
    .or(|| Some(Value::List(Vec::new()))),
    key(
        "commit.exclude_if_present",
        "exclude the contents of folders with such a file, `FILE` or `FILE:HEADER`",
        ValueType::List,
        SettingScope::Any,
    )
    .or(|| Some(Value::List(Vec::new()))),
    key(
        "commit.exclude_caches",
        "exclude folders with a `CACHEDIR.TAG`",
        ValueType::Flag,
        SettingScope::Any,
    )
    .or(OFF),
    key(
        "commit.gitignore",
        "read `.gitignore` files besides `.snapignore` files",
        ValueType::Flag,
        SettingScope::Any,
    )
    .or(OFF),
    key(
        "pull.update",
        "`snap pull` also updates the files of the project, as with `--update`",
        ValueType::Flag,
        SettingScope::Any,
    )
    .or(OFF),
    key("hooks.pre_commit", "runs before any file is read", ValueType::Command, SettingScope::Any),
    key(
        "hooks.post_commit",
        "runs after the commit is safe on disk, also when nothing changed",
        ValueType::Command,
        SettingScope::Any,
    ),
    key(
        "hooks.on_failure",
        "what to do if a hook fails; default: `pre_commit` stops and `post_commit` reports",
        ON_FAILURE,
        SettingScope::Any,
    ),
    key(
        "ui.color",
        "when to use colours; `--color` overrides it",
        ValueType::Choice(&["auto", "always", "never"]),
        SettingScope::User,
    )
    .or(|| Some(Value::Text("auto".to_owned()))),
    key(
        "ui.pager",
        "pager for long output; `false` for none",
        ValueType::CommandOrNone,
        SettingScope::User,
    ),
    key(
        "transfer.limit_upload",
        "maximum bytes sent in a second, such as `500K` or `2M`",
        ValueType::Text,
        SettingScope::Any,
    ),
    key(
        "transfer.limit_download",
        "maximum bytes received in a second",
        ValueType::Text,
        SettingScope::Any,
    ),
    key(
        "price.currency",
        "currency of the prices; the defaults are list prices of S3",
        ValueType::Text,
        SettingScope::Any,
    )
    .or(|| Some(Value::Text("USD".to_owned()))),
    key(
        "price.writes",
        "price of 1,000 requests that write or list",
        ValueType::Amount,
        SettingScope::Any,
    )
    .or(|| Some(Value::Amount(5_000))),
    key("price.reads", "price of 1,000 requests that read", ValueType::Amount, SettingScope::Any)
        .or(|| Some(Value::Amount(400))),
    key("price.sent", "price of a GB (10⁹ bytes) sent", ValueType::Amount, SettingScope::Any)
        .or(|| Some(Value::Amount(0))),
    key("price.received", "price of a GB received", ValueType::Amount, SettingScope::Any)
        .or(|| Some(Value::Amount(90_000))),
    key("remote.*.url", "location, such as `s3://bucket/prefix`", TEXT, SettingScope::Any),
    key(
        "remote.*.credentials_file",
        "file with its keys, readable only by its owner",
        TEXT,
        SettingScope::Any,
    ),
    key(
        "remote.*.credentials_command",
        "command that prints its keys",
        ValueType::Command,
        SettingScope::Any,
    ),
    key("remote.*.endpoint", "URL of the service", TEXT, SettingScope::Any),
    key("remote.*.region", "region of the bucket", TEXT, SettingScope::Any),
    key("remote.*.profile", "profile in the AWS files", TEXT, SettingScope::Any),
    key(
        "remote.*.path-style",
        "the bucket in the path (`true`) or in the host name",
        ValueType::Flag,
        SettingScope::Any,
    ),
    key("remote.*.storage-class", "storage class of written objects", TEXT, SettingScope::Any),
    key("remote.*.anonymous", "do not sign requests", ValueType::Flag, SettingScope::Any),
    key(
        "remote.*.conditional-writes",
        "`false`: the service ignores conditional requests (`s3`, `gs`, `azblob`)",
        ValueType::Flag,
        SettingScope::Any,
    ),
    key(
        "remote.*.checksums",
        "`false`: send no CRC32C with written objects (`s3`)",
        ValueType::Flag,
        SettingScope::Any,
    ),
    key(
        "remote.*.credential-path",
        "file with the key of a service account (`gs`)",
        TEXT,
        SettingScope::Any,
    ),
    key("remote.*.account", "storage account (`azblob`)", TEXT, SettingScope::Any),
    key("remote.*.username", "user name (`webdav`, `webdavs`)", TEXT, SettingScope::Any),
    key("remote.*.key", "file with the private key (`sftp`)", TEXT, SettingScope::Any),
    key(
        "remote.*.known-hosts",
        "how ssh treats unknown hosts (`sftp`)",
        KNOWN_HOSTS,
        SettingScope::Any,
    ),
    key("profile.*.paths", "paths to commit; else the project", ValueType::List, SettingScope::Any),
    key(
        "profile.*.exclude",
        "patterns, added to `commit.exclude`",
        ValueType::List,
        SettingScope::Any,
    ),
    key(
        "profile.*.iexclude",
        "patterns, added to `commit.iexclude`",
        ValueType::List,
        SettingScope::Any,
    ),
    key(
        "profile.*.exclude_if_present",
        "markers, added to `commit.exclude_if_present`",
        ValueType::List,
        SettingScope::Any,
    ),
    key(
        "profile.*.exclude_caches",
        "replaces `commit.exclude_caches`",
        ValueType::Flag,
        SettingScope::Any,
    ),
    key("profile.*.gitignore", "replaces `commit.gitignore`", ValueType::Flag, SettingScope::Any),
    key("profile.*.one_file_system", "as `--one-file-system`", ValueType::Flag, SettingScope::Any),
    key("profile.*.labels.*", "value of this label", ValueType::Text, SettingScope::Any),
    key(
        "profile.*.branch",
        "branch to commit onto; else the current one",
        ValueType::Text,
        SettingScope::Any,
    ),
    key("profile.*.message", "message of the commit", ValueType::Text, SettingScope::Any),
    key(
        "profile.*.store",
        "store to commit to, unless `--store` or `SNAP_STORE` names another",
        ValueType::Text,
        SettingScope::User,
    ),
    key(
        "profile.*.hooks.pre_commit",
        "replaces `hooks.pre_commit`",
        ValueType::Command,
        SettingScope::Any,
    ),
    key(
        "profile.*.hooks.post_commit",
        "replaces `hooks.post_commit`",
        ValueType::Command,
        SettingScope::Any,
    ),
    key("profile.*.hooks.on_failure", "replaces `hooks.on_failure`", ON_FAILURE, SettingScope::Any),
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
