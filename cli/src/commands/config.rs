//! `snap config`: shows and changes the settings of a store and of its user.

mod trust;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use clap::Subcommand;
use serde::Serialize;
use snap_core::{
    disk::Disk,
    repo::{
        config::{
            ConfigError, FILE,
            edit::{Edit, unknown},
            error::SettingOrigin,
            key::{KEYS, KeyPath, Value},
            layer::{ConfigOwner, Layer},
        },
        open::{ConfigLock, lock_config, read_config_file, write_config},
    },
};
use snap_remote::location::{ENDPOINT, Location, LocationError, check_endpoint};

use crate::{
    config::{Settings, user_file},
    context::{Context, StoreChoice},
    report::{CliError, CommandOutcome},
    ui::{Out, text},
};

const EXAMPLES: &str = "\
Examples:
  snap config list --origin               values and their origins
  snap config set compression.level 9     for this store
  snap config set --user ui.color never   for all stores
  snap config set commit.exclude '[\"*.o\", \"/target\"]'
  snap config set --user profile.home.paths '[\"~/docs\", \"/etc\"]'
  snap config trust                       trust the hooks and remotes of this store

The highest layer that sets a value wins; lists are not merged. From the lowest to
the highest: built-in value, system's file, user's file, store's file, environment
variable, option. docs/configuration.md describes all settings.";

const LIST_EXAMPLES: &str = "\
Examples:
  snap config list
  snap config list --origin
  snap config list --all       also the settings without a value
  snap --json config list";

const GET_EXAMPLES: &str = "\
Examples:
  snap config get compression.level
  snap config get commit.author --origin";

const SET_EXAMPLES: &str = "\
Examples:
  snap config set commit.author 'Ann Lee'
  snap config set commit.gitignore true
  snap config set commit.exclude '[\"*.o\", \"/target\"]'
  snap config set --user ui.pager 'less -FRX'";

const TRUST_EXAMPLES: &str = "\
Examples:
  snap config trust                       the store here
  snap config trust /srv/shared/project
  snap config trust --forget

In a pipeline or a container, without a home folder:
  SNAP_TRUST=\"$PWD\" snap commit
  SNAP_TRUST='/builds/*' snap commit      all stores below a folder";

const UNSET_EXAMPLES: &str = "\
Examples:
  snap config unset commit.author
  snap config unset --user ui.pager
  snap config unset profile.home          a whole section";

/// List, read or change settings
///
/// Settings are in `config.toml` in the store, and in the user's file: ~/.config/snap/config.toml,
/// or the file named by SNAP_CONFIG. Changes keep the comments and the order of the file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigArgs {
    /// What to do; default: list
    #[command(subcommand)]
    action: Option<ConfigAction>,
}

#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// List all settings that have a value
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Show the origin of each value
        #[arg(long)]
        origin: bool,

        /// Also list the settings without a value, as comments; --json always lists them
        #[arg(short, long)]
        all: bool,
    },
    /// Print one setting
    #[command(after_help = GET_EXAMPLES)]
    Get {
        /// Setting, such as `commit.author`
        key: String,

        /// Show the origin of the value
        #[arg(long)]
        origin: bool,
    },
    /// Change one setting
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// Setting, such as `commit.author`
        key: String,

        /// New value, in TOML or as plain text
        #[arg(allow_hyphen_values = true)]
        value: String,

        /// Change the settings of the user, not of the store
        #[arg(long)]
        user: bool,
    },
    /// Trust a store and the hooks, profiles and remotes in its settings
    ///
    /// Shows these settings first. They are used until one of them changes or the store is moved.
    /// Trust also permits writing to a store of another user. It is recorded in
    /// ~/.local/state/snap; SNAP_TRUST and the setting `trust` also name trusted stores.
    #[command(after_help = TRUST_EXAMPLES)]
    Trust {
        /// Store, or its project; default: the current one
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,

        /// Withdraw the trust in the store
        #[arg(long)]
        forget: bool,
    },
    /// Remove a setting or a section from the file
    #[command(after_help = UNSET_EXAMPLES)]
    Unset {
        /// Setting, such as `commit.author`, or section
        key: String,

        /// Change the settings of the user, not of the store
        #[arg(long)]
        user: bool,
    },
}

/// The columns of a listed setting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    /// The value.
    Value,
    /// The value and its origin.
    Origin,
}

/// The settings that are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// Those with a value. JSON records also have the other ones with a plain name.
    Set,
    /// All.
    All,
}

impl From<bool> for Show {
    fn from(origin: bool) -> Self {
        if origin { Self::Origin } else { Self::Value }
    }
}

/// Returns the owner of the file to change.
pub(crate) fn owner(user: bool) -> ConfigOwner {
    if user { ConfigOwner::User } else { ConfigOwner::Store }
}

pub(crate) use trust::trust_change;

pub(crate) fn run(args: &ConfigArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    match &args.action {
        None => list(Show::Value, Listed::Set, cx)?,
        Some(ConfigAction::List { origin, all }) => {
            list((*origin).into(), if *all { Listed::All } else { Listed::Set }, cx)?;
        }
        Some(ConfigAction::Get { key, origin }) => get(&name(key)?, (*origin).into(), cx)?,
        Some(ConfigAction::Set { key, value, user }) => set(&name(key)?, value, owner(*user), cx)?,
        Some(ConfigAction::Trust { dir, forget }) => trust::run(dir.as_deref(), *forget, cx)?,
        Some(ConfigAction::Unset { key, user }) => unset(&name(key)?, owner(*user), cx)?,
    }
    Ok(CommandOutcome::Success)
}

fn name(text: &str) -> Result<KeyPath, CliError> {
    let none = |_| ConfigError::UnknownKey { key: text.to_owned(), close: Vec::new() };
    Ok(text.parse::<KeyPath>().map_err(none)?)
}

/// Returns the settings for the current folder: those of its store, or those of the user if there
/// is no store.
fn settings(cx: &Context) -> Result<Settings, CliError> {
    let settings = match (cx.find_store(Path::new("."))?, cx.named()) {
        (Some(store), _) => cx.settings_of(&store)?,
        (None, StoreChoice::Nowhere) => cx.settings().clone(),
        (None, _) => return Err(CliError::NoStore),
    };
    settings.config()?;
    Ok(settings)
}

/// A setting and the origin of its value.
#[derive(Serialize)]
struct SettingJson<'a> {
    version: u32,
    r#type: &'static str,
    key: String,
    description: &'static str,
    value: serde_json::Value,
    origin: Option<OriginJson<'a>>,
}

#[derive(Serialize)]
struct OriginJson<'a> {
    layer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// Name of the variable or option.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// True if the value is used; set only for hooks, profiles and remotes in a store's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    trusted: Option<bool>,
}

/// A change of a settings file.
#[derive(Serialize)]
struct SettingChangeJson {
    version: u32,
    r#type: &'static str,
    action: &'static str,
    key: String,
    value: serde_json::Value,
    path: String,
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Flag(flag) => (*flag).into(),
        Value::Number(number) => (*number).into(),
        Value::Amount(millionths) => (*millionths as f64 / 1e6).into(),
        Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.as_slice().into(),
    }
}

fn origin_json(origin: &SettingOrigin, trusted: Option<bool>) -> OriginJson<'_> {
    let file = origin.file();
    OriginJson {
        layer: origin.layer(),
        path: file.map(|(path, _)| path.to_string_lossy().into_owned()),
        line: file.map(|(_, line)| line),
        name: match origin {
            SettingOrigin::Variable(name) => Some(name),
            SettingOrigin::Option(name) => Some(name),
            _ => None,
        },
        trusted,
    }
}

fn write_json(
    out: &mut Out,
    path: &KeyPath,
    setting: Option<&(Value, SettingOrigin)>,
    trusted: Option<bool>,
) -> Result<(), CliError> {
    Ok(out.json(&SettingJson {
        version: 1,
        r#type: "setting",
        key: path.to_string(),
        description: path.key().map_or("", |key| key.description),
        value: setting.map_or(serde_json::Value::Null, |(value, _)| json(value)),
        origin: setting.map(|(_, origin)| origin_json(origin, trusted)),
    })?)
}

/// Checks the URL of a remote or of its service, which other users may read in the settings.
fn check_url(key: &KeyPath, value: &str) -> Result<(), LocationError> {
    match key.parts() {
        // A relative path would lead elsewhere in each folder.
        [remote, _, url]
            if (remote.as_str(), url.as_str()) == ("remote", "url")
                && !value.starts_with(['/', '~']) =>
        {
            value.parse::<Location>().map(drop)
        }
        [remote, _, url] if (remote.as_str(), url.as_str()) == ("remote", ENDPOINT) => {
            check_endpoint(value)
        }
        _ => Ok(()),
    }
}

/// Returns a value for output. A URL that contains a secret, which the user wrote into the file by
/// hand, is replaced by the reason for which snap refuses it.
pub(super) fn shown_value(key: &KeyPath, value: Value) -> Value {
    let Value::Text(text) = &value else { return value };
    match check_url(key, text) {
        Err(error @ (LocationError::ContainsSecret { .. } | LocationError::Revealing { .. })) => {
            Value::Text(format!("({error})"))
        }
        _ => value,
    }
}

fn list(show: Show, listed: Listed, cx: &Context) -> Result<(), CliError> {
    let settings = settings(cx)?;
    let mut out = cx.ui().out();
    let is_trusted = settings.is_store_trusted();
    for (path, setting) in settings.merged().all() {
        let setting = setting.map(|(value, origin)| (shown_value(&path, value), origin));
        let trusted = setting.as_ref().and_then(|(_, origin)| trust::of(&path, origin, is_trusted));
        if cx.ui().is_json() {
            write_json(&mut out, &path, setting.as_ref(), trusted)?;
        } else if let Some((value, origin)) = setting {
            let shown = text::line(format!("{path} = {value}").as_bytes());
            match show {
                Show::Value => writeln!(out, "{shown}")?,
                Show::Origin => writeln!(out, "{shown}  # {}", shown_origin(&origin, trusted))?,
            }
        }
    }
    if listed == Listed::All && !cx.ui().is_json() {
        write_unset(&mut out, &settings)?;
    }
    Ok(out.finish()?)
}

/// Writes the settings without a value, as comments, each with its description. The name of a
/// remote, a profile or a label is `NAME`.
fn write_unset(out: &mut Out, settings: &Settings) -> Result<(), CliError> {
    for setting in &KEYS {
        let path = KeyPath::new(setting.name.split('.'));
        if !setting.is_plain() || settings.merged().get(&path).is_none() {
            let name = setting.name.replace('*', "NAME");
            writeln!(out, "# {name} is not set; expected: {}", setting.kind.rule())?;
            writeln!(out, "#   {}", setting.description)?;
        }
    }
    Ok(())
}

fn shown_origin(origin: &SettingOrigin, trusted: Option<bool>) -> String {
    let trusted = match trusted {
        Some(true) => " (trusted)",
        Some(false) => " (not trusted)",
        None => "",
    };
    format!("{}{trusted}", text::line(origin.to_string().as_bytes()))
}

fn get(path: &KeyPath, show: Show, cx: &Context) -> Result<(), CliError> {
    if path.key().is_none() {
        return Err(unknown(path).into());
    }
    let settings = settings(cx)?;
    let setting = settings.merged().get(path);
    let setting = setting.map(|(value, origin)| (shown_value(path, value), origin));
    let is_trusted = settings.is_store_trusted();
    let trusted = setting.as_ref().and_then(|(_, origin)| trust::of(path, origin, is_trusted));
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        write_json(&mut out, path, setting.as_ref(), trusted)?;
    } else if let Some((value, origin)) = setting {
        let shown = match &value {
            Value::Text(plain) if cx.ui().is_terminal() => text::lines(plain),
            Value::Text(plain) => plain.clone(),
            value => value.to_string(),
        };
        match show {
            Show::Value => writeln!(out, "{shown}")?,
            Show::Origin => writeln!(out, "{shown}  # {}", shown_origin(&origin, trusted))?,
        }
    }
    Ok(out.finish()?)
}

/// The lock on a settings file, released on drop.
struct FileLock {
    _store: Option<ConfigLock>,
    _user: Option<File>,
}

/// A settings file to change, with its text.
pub(crate) struct ConfigFileEdit {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    owner: ConfigOwner,
    /// The store of the file, and whether its settings were trusted.
    store: Option<(PathBuf, bool)>,
}

impl ConfigFileEdit {
    /// Finds and reads the file.
    pub(crate) fn find(owner: ConfigOwner, cx: &Context) -> Result<Self, CliError> {
        match owner {
            ConfigOwner::User | ConfigOwner::System => {
                let path = cx.settings().user_path().ok_or(CliError::NoUserFile)?.to_owned();
                Ok(Self { text: user_file::text(&path)?, path, owner, store: None })
            }
            ConfigOwner::Store => {
                let store = cx.store_dir()?;
                cx.check_found(&store)?;
                let file = read_config_file(&store)?;
                let text = file.text.clone();
                let settings = cx.settings().with_store(file);
                settings.check_takeover()?;
                let is_trusted = settings.is_store_trusted();
                let path = store.join(FILE);
                Ok(Self { path, text, owner, store: Some((store, is_trusted)) })
            }
        }
    }

    /// Changes the file under its lock. `change` returns the new text, or `None` if no change is
    /// needed. It is called twice: without the lock, and again under the lock, because another
    /// process may have changed the file in between. Returns true if the file was written.
    pub(crate) fn change(
        &mut self,
        cx: &Context,
        change: &dyn Fn(&Edit<'_>) -> Result<Option<String>, CliError>,
    ) -> Result<bool, CliError> {
        if change(&self.edit())?.is_none() {
            return Ok(false);
        }
        let _lock = self.lock()?;
        *self = Self::find(self.owner, cx)?;
        let Some(text) = change(&self.edit())? else { return Ok(false) };
        self.write(&text, cx)?;
        self.text = text;
        Ok(true)
    }

    fn edit(&self) -> Edit<'_> {
        Edit { text: &self.text, path: &self.path, owner: self.owner }
    }

    /// Locks the file against changes by other processes. The lock of a store also blocks changes
    /// of its refs.
    fn lock(&self) -> Result<FileLock, CliError> {
        Ok(match &self.store {
            Some((store, _)) => FileLock { _store: Some(lock_config(store)?), _user: None },
            None => FileLock { _store: None, _user: user_file::lock(&self.path)? },
        })
    }

    /// Writes the new text. Settings that were trusted stay trusted, including the user's change; a
    /// change does not make other settings trusted.
    fn write(&self, text: &str, cx: &Context) -> Result<(), CliError> {
        let Some((store, was_trusted)) = &self.store else {
            return user_file::write(&self.path, text);
        };
        write_config(store, &Disk::default(), text).map_err(CliError::Settings)?;
        if *was_trusted { trust_change(store, text, cx) } else { Ok(()) }
    }

    fn print_result(
        &self,
        action: &'static str,
        key: &KeyPath,
        cx: &Context,
    ) -> Result<(), CliError> {
        let mut out = cx.ui().out();
        if cx.ui().is_json() {
            let layer = Layer::parse(&self.text, &self.path, self.owner)?;
            let value = layer.get(key).map(|(value, _)| json(&shown_value(key, value.clone())));
            let value = value.unwrap_or(serde_json::Value::Null);
            let path = self.path.to_string_lossy().into_owned();
            out.json(&SettingChangeJson {
                version: 1,
                r#type: "setting-changed",
                action,
                key: key.to_string(),
                value,
                path,
            })?;
        }
        Ok(out.finish()?)
    }
}

fn set(key: &KeyPath, value: &str, owner: ConfigOwner, cx: &Context) -> Result<(), CliError> {
    check_url(key, value)?;
    let mut target = ConfigFileEdit::find(owner, cx)?;
    target.change(cx, &|edit| Ok(Some(edit.set(key, value)?)))?;
    cx.ui().status(format_args!("Set {key} in {}", target.path.display()));
    target.print_result("set", key, cx)
}

fn unset(key: &KeyPath, owner: ConfigOwner, cx: &Context) -> Result<(), CliError> {
    let mut target = ConfigFileEdit::find(owner, cx)?;
    match target.change(cx, &|edit| Ok(edit.unset(key)?))? {
        false => cx.ui().status(format_args!("{} does not set {key}", target.path.display())),
        true => cx.ui().status(format_args!("Unset {key} in {}", target.path.display())),
    }
    target.print_result("unset", key, cx)
}
