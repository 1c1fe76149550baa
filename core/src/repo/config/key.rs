//! All settings: the name, type and scope of each.
//!
//! Dots separate the parts of a name: `commit.author`. In this table, a `*` matches any one part:
//! the name of a profile, a remote or a label.

use std::{fmt, str::FromStr};

use crate::{
    base::{
        duration::{AGE_RULE, Age, DURATION_RULE, parse_duration},
        number::{RATE_RULE, SIZE_RULE, parse_rate, parse_size},
        suggestions::similar_names,
    },
    codec::DEFAULT_LEVEL,
};

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
    /// An [`Age`].
    Age,
    /// A time without minutes, such as `7d`.
    Duration,
    /// A number of bytes with a unit.
    Size,
    /// Bytes per second.
    Rate,
    /// Strings.
    List,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A command line for the shell; snap never splits it into words.
    Command,
    /// A command line, or `false` for no command.
    CommandOrNone,
}

/// One row of the table of settings.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name, with `*` for a variable part.
    pub name: &'static str,
    /// Description, the same as in `docs/configuration.md`.
    pub description: &'static str,
    pub kind: ValueType,
    pub scope: SettingScope,
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
    /// For text, words, commands, and all values with units.
    Text(String),
    /// For [`ValueType::List`].
    List(Vec<String>),
}

/// A setting for every layer, without a default.
const fn any(name: &'static str, kind: ValueType, description: &'static str) -> Setting {
    Setting { name, description, kind, scope: SettingScope::Any, default: || None }
}

/// A setting for stores, without a default.
const fn store(name: &'static str, kind: ValueType, description: &'static str) -> Setting {
    Setting { scope: SettingScope::Store, ..any(name, kind, description) }
}

/// A setting that a store cannot set, without a default.
const fn user(name: &'static str, kind: ValueType, description: &'static str) -> Setting {
    Setting { scope: SettingScope::User, ..any(name, kind, description) }
}

impl Setting {
    /// Sets the default.
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

const FLAG: ValueType = ValueType::Flag;
const COUNT: ValueType = ValueType::Number { min: 0, max: i64::MAX };
const AMOUNT: ValueType = ValueType::Amount;
const TEXT: ValueType = ValueType::Text;
const AGE: ValueType = ValueType::Age;
const DURATION: ValueType = ValueType::Duration;
const RATE: ValueType = ValueType::Rate;
const LIST: ValueType = ValueType::List;
const COMMAND: ValueType = ValueType::Command;
const ON_FAILURE: ValueType = ValueType::Choice(&["stop", "report"]);
const KNOWN_HOSTS: ValueType = ValueType::Choice(&["strict", "accept", "add"]);

const OFF: fn() -> Option<Value> = || Some(Value::Flag(false));
const EMPTY: fn() -> Option<Value> = || Some(Value::List(Vec::new()));

/// All settings, in the order of `snap config list`. A test compares them with
/// `docs/configuration.md`.
pub const KEYS: [Setting; 72] = [
    store("version", COUNT, "format version of the store"),
    store(
        "shared",
        FLAG,
        "the group of the store's folder may write to it; `snap init --shared` sets it",
    ),
    user(
        "trust",
        LIST,
        "trusted stores and projects, such as `/srv/project`; never in a store's `config.toml`",
    ),
    user(
        "jobs",
        ValueType::Number { min: 1, max: 256 },
        "threads of a commit or a restore, 1 to 256; else the number of cores decides",
    ),
    any(
        "compression.level",
        ValueType::Number { min: 1, max: 19 },
        "zstd level of new data, 1 (fast) to 19 (small)",
    )
    .or(|| Some(Value::Number(DEFAULT_LEVEL.into()))),
    any("commit.author", TEXT, "author; else the user's name"),
    any("commit.host", TEXT, "name of the machine; else the system's"),
    any(
        "commit.exclude",
        LIST,
        "patterns to exclude, as in `.gitignore`; `--exclude` adds to them",
    )
    .or(EMPTY),
    any(
        "commit.iexclude",
        LIST,
        "patterns that ignore the case of ASCII letters; `--iexclude` adds to them",
    )
    .or(EMPTY),
    any(
        "commit.exclude_if_present",
        LIST,
        "exclude the contents of folders with such a file, `FILE` or `FILE:HEADER`",
    )
    .or(EMPTY),
    any("commit.exclude_caches", FLAG, "exclude folders with a `CACHEDIR.TAG`").or(OFF),
    any("commit.gitignore", FLAG, "read `.gitignore` files besides `.snapignore` files").or(OFF),
    any("commit.git", FLAG, "save a `.git` at the top of the project, as `--include-git`").or(OFF),
    any(
        "pull.update",
        FLAG,
        "`snap pull` also updates the files of the project, as with `--update`",
    )
    .or(OFF),
    any("hooks.pre_commit", COMMAND, "runs before any file is read"),
    any(
        "hooks.post_commit",
        COMMAND,
        "runs after the commit is safe on disk, also when nothing changed",
    ),
    any(
        "hooks.on_failure",
        ON_FAILURE,
        "what to do if a hook fails; default: `pre_commit` stops and `post_commit` reports",
    ),
    user(
        "ui.color",
        ValueType::Choice(&["auto", "always", "never"]),
        "when to use colours; `--color` overrides it",
    )
    .or(|| Some(Value::Text("auto".to_owned()))),
    user("ui.pager", ValueType::CommandOrNone, "pager for long output; `false` for none"),
    any("keep.last", COUNT, "newest commits that `snap forget` keeps"),
    any("keep.hourly", COUNT, "hours of which `snap forget` keeps the newest commit"),
    any("keep.daily", COUNT, "days of which `snap forget` keeps the newest commit"),
    any("keep.weekly", COUNT, "weeks of which `snap forget` keeps the newest commit"),
    any("keep.monthly", COUNT, "months of which `snap forget` keeps the newest commit"),
    any("keep.yearly", COUNT, "years of which `snap forget` keeps the newest commit"),
    any("keep.within", AGE, "age up to which `snap forget` keeps all commits"),
    any("keep.within_hourly", AGE, "age up to which it keeps hourly commits"),
    any("keep.within_daily", AGE, "age up to which it keeps daily commits"),
    any("keep.within_weekly", AGE, "age up to which it keeps weekly commits"),
    any("keep.within_monthly", AGE, "age up to which it keeps monthly commits"),
    any("keep.within_yearly", AGE, "age up to which it keeps yearly commits"),
    any("keep.label", LIST, "labels whose commits it keeps, `KEY` or `KEY=VALUE`").or(EMPTY),
    any(
        "keep.under",
        ValueType::Size,
        "most space of what it keeps, such as `500GB`; the oldest go first",
    ),
    any("gc.undo", DURATION, "time for which `snap gc` keeps what `snap undo` may need")
        .or(|| Some(Value::Text("7d".to_owned()))),
    any("gc.grace", DURATION, "age from which `snap gc` deletes a pack without `--now`")
        .or(|| Some(Value::Text("1d".to_owned()))),
    any("transfer.limit_upload", RATE, "maximum bytes sent in a second, such as `500K` or `2M`"),
    any("transfer.limit_download", RATE, "maximum bytes received in a second"),
    any("price.currency", TEXT, "currency of the prices; the defaults are list prices of S3")
        .or(|| Some(Value::Text("USD".to_owned()))),
    any("price.writes", AMOUNT, "price of 1,000 requests that write or list")
        .or(|| Some(Value::Amount(5_000))),
    any("price.reads", AMOUNT, "price of 1,000 requests that read").or(|| Some(Value::Amount(400))),
    any("price.sent", AMOUNT, "price of a GB (10⁹ bytes) sent").or(|| Some(Value::Amount(0))),
    any("price.received", AMOUNT, "price of a GB received").or(|| Some(Value::Amount(90_000))),
    any("remote.*.url", TEXT, "location, such as `s3://bucket/prefix`"),
    any("remote.*.credentials_file", TEXT, "file with its keys, readable only by its owner"),
    any("remote.*.credentials_command", COMMAND, "command that prints its keys"),
    any("remote.*.endpoint", TEXT, "URL of the service"),
    any("remote.*.region", TEXT, "region of the bucket"),
    any("remote.*.profile", TEXT, "profile in the AWS files"),
    any("remote.*.path-style", FLAG, "the bucket in the path (`true`) or in the host name"),
    any("remote.*.storage-class", TEXT, "storage class of written objects"),
    any("remote.*.anonymous", FLAG, "do not sign requests"),
    any(
        "remote.*.conditional-writes",
        FLAG,
        "`false`: the service ignores conditional requests (`s3`, `gs`, `azblob`)",
    ),
    any("remote.*.checksums", FLAG, "`false`: send no CRC32C with written objects (`s3`)"),
    any("remote.*.credential-path", TEXT, "file with the key of a service account (`gs`)"),
    any("remote.*.account", TEXT, "storage account (`azblob`)"),
    any("remote.*.username", TEXT, "user name (`webdav`, `webdavs`)"),
    any("remote.*.key", TEXT, "file with the private key (`sftp`)"),
    any("remote.*.known-hosts", KNOWN_HOSTS, "how ssh treats unknown hosts (`sftp`)"),
    any("profile.*.paths", LIST, "paths to commit; else the project"),
    any("profile.*.exclude", LIST, "patterns, added to `commit.exclude`"),
    any("profile.*.iexclude", LIST, "patterns, added to `commit.iexclude`"),
    any("profile.*.exclude_if_present", LIST, "markers, added to `commit.exclude_if_present`"),
    any("profile.*.exclude_caches", FLAG, "replaces `commit.exclude_caches`"),
    any("profile.*.gitignore", FLAG, "replaces `commit.gitignore`"),
    any("profile.*.one_file_system", FLAG, "as `--one-file-system`"),
    any("profile.*.labels.*", TEXT, "value of this label"),
    any("profile.*.branch", TEXT, "branch to commit onto; else the current one"),
    any("profile.*.message", TEXT, "message of the commit"),
    user(
        "profile.*.store",
        TEXT,
        "store to commit to, unless `--store` or `SNAP_STORE` names another",
    ),
    any("profile.*.hooks.pre_commit", COMMAND, "replaces `hooks.pre_commit`"),
    any("profile.*.hooks.post_commit", COMMAND, "replaces `hooks.post_commit`"),
    any("profile.*.hooks.on_failure", ON_FAILURE, "replaces `hooks.on_failure`"),
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

    /// Returns true if the parts are the name of a section: the start of the names of settings.
    pub fn is_section(&self) -> bool {
        let begins = |key: &Setting| {
            let mut parts = key.name.split('.');
            let fits = |own: &String| parts.next().is_some_and(|part| part == "*" || part == own);
            self.0.iter().all(fits) && parts.next().is_some()
        };
        KEYS.iter().any(begins)
    }

    /// Returns true if the name is that of the sizes of chunks, which the format fixes.
    pub fn is_of_chunks(&self) -> bool {
        self.0.first().is_some_and(|part| part == "chunk")
    }

    /// Returns true if the name is `section` or a name in that section.
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
            Self::Age => AGE_RULE.to_owned(),
            Self::Duration => DURATION_RULE.to_owned(),
            Self::Size => SIZE_RULE.to_owned(),
            Self::Rate => RATE_RULE.to_owned(),
            Self::List => "a list of strings".to_owned(),
            Self::Choice(words) => format!("`{}`", words.join("` or `")),
            Self::Command => "a command".to_owned(),
            Self::CommandOrNone => "a command or false".to_owned(),
        }
    }

    /// Converts a TOML value; returns `None` if the value breaks the rule.
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
            Self::Age | Self::Duration | Self::Size | Self::Rate => {
                value.as_str().filter(|text| self.is_measure(text)).and(text())
            }
            Self::List => {
                let items = value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned));
                items.collect::<Option<_>>().map(Value::List)
            }
            Self::Choice(words) => value.as_str().filter(|text| words.contains(text)).and(text()),
            Self::CommandOrNone => match value.as_bool() {
                Some(false) => Some(Value::Flag(false)),
                _ => text(),
            },
        }
    }

    /// Returns true if a text is a value with a unit of this type.
    fn is_measure(&self, text: &str) -> bool {
        match self {
            Self::Age => text.parse::<Age>().is_ok(),
            Self::Duration => parse_duration(text).is_ok(),
            Self::Size => parse_size(text).is_ok(),
            Self::Rate => parse_rate(text).is_ok(),
            _ => false,
        }
    }

    /// Parses a value from plain text, as on the command line or in a variable. Returns `None` if
    /// the value breaks the rule.
    ///
    /// A list is a TOML list, or has one member on each line. A text is literal unless it is a
    /// quoted TOML string. A command is always literal.
    pub fn of_text(&self, text: &str) -> Option<Value> {
        let toml = || text.trim().parse::<toml_edit::Value>().ok();
        let plain = || Some(Value::Text(text.to_owned()));
        match self {
            Self::Flag | Self::Number { .. } | Self::Amount => self.of_toml(&toml()?),
            Self::Text => toml().and_then(|value| self.of_toml(&value)).or_else(plain),
            Self::Age | Self::Duration | Self::Size | Self::Rate => toml()
                .and_then(|value| self.of_toml(&value))
                .or_else(|| self.is_measure(text).then(plain).flatten()),
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

/// Maximum amount, which an `f64` represents exactly in millionths.
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
