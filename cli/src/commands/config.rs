//! `snap config`: the settings of a store and of its user.

mod trust;

use std::{
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
            error::Origin,
            key::{KeyPath, Value},
            layer::{Layer, Whose},
        },
        open::{read_config_file, write_config},
    },
};
use snap_remote::location::Location;

use crate::{
    config::{Settings, user_file},
    context::{Context, Named},
    report::{CliError, Done},
    ui::{Out, text},
};

const EXAMPLES: &str = "\
Examples:
  snap config list --origin               what holds, and who says so
  snap config set compression.level 9     for this store
  snap config set --user ui.color never   for all that you do
  snap config set commit.exclude '[\"*.o\", \"/target\"]'
  snap config set --user profile.home.paths '[\"~/docs\", \"/etc\"]'
  snap config trust                       let hooks and remotes of this store count

Each setting has a value that is built in. The user's file changes it, the
store's file that, a variable of the environment that, an option that. Names,
values and variables: docs/configuration.md.";

const LIST_EXAMPLES: &str = "\
Examples:
  snap config list
  snap config list --origin
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
/// They stand in `config.toml` in the store and in the user's file, which is
/// ~/.config/snap/config.toml unless SNAP_CONFIG names another. Comments and
/// order of both files stay as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigArgs {
    /// What to do; list them if not given
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all settings that have a value
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print one setting
    #[command(after_help = GET_EXAMPLES)]
    Get {
        /// Setting, such as `chunk.average`
        key: String,

        /// Say where the value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Change one setting
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// Setting, such as `chunk.average`
        key: String,

        /// New value, in TOML or as plain text
        #[arg(allow_hyphen_values = true)]
        value: String,

        /// Change the user's file, not the store's
        #[arg(long)]
        user: bool,
    },
    /// Trust a store, and the hooks, profiles and remotes in its file
    ///
    /// Shows those settings first, all of them. They count until one of them
    /// changes or the store is moved. A store of another user can then be written
    /// to. The record is kept in ~/.local/state/snap; SNAP_TRUST and the setting `trust`
    /// name trusted stores, too.
    #[command(after_help = TRUST_EXAMPLES)]
    Trust {
        /// Store, or the project it is in; the one here if not given
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,

        /// Forget that the store is trusted
        #[arg(long)]
        forget: bool,
    },
    /// Take a setting or a section out of the file
    #[command(after_help = UNSET_EXAMPLES)]
    Unset {
        /// Setting, such as `commit.author`, or section
        key: String,

        /// Change the user's file, not the store's
        #[arg(long)]
        user: bool,
    },
}

/// What is shown of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    /// The value.
    Value,
    /// The value, and where it comes from.
    Origin,
}

impl From<bool> for Show {
    fn from(origin: bool) -> Self {
        if origin { Self::Origin } else { Self::Value }
    }
}

/// Whose file is changed.
pub(crate) fn whose(user: bool) -> Whose {
    if user { Whose::User } else { Whose::Store }
}

pub(crate) use trust::trust_change;

pub(crate) fn run(args: &ConfigArgs, cx: &Context) -> Result<Done, CliError> {
    match &args.action {
        None => list(Show::Value, cx)?,
        Some(Action::List { origin }) => list((*origin).into(), cx)?,
        Some(Action::Get { key, origin }) => get(&name(key)?, (*origin).into(), cx)?,
        Some(Action::Set { key, value, user }) => set(&name(key)?, value, whose(*user), cx)?,
        Some(Action::Trust { dir, forget }) => trust::run(dir.as_deref(), *forget, cx)?,
        Some(Action::Unset { key, user }) => unset(&name(key)?, whose(*user), cx)?,
    }
    Ok(Done::Well)
}

fn name(text: &str) -> Result<KeyPath, CliError> {
    let none = |_| ConfigError::UnknownKey { key: text.to_owned(), close: Vec::new() };
    Ok(text.parse::<KeyPath>().map_err(none)?)
}

/// Those that hold here: without a store, those of the user.
fn settings(cx: &Context) -> Result<Settings, CliError> {
    let settings = match (cx.find_store(Path::new("."))?, cx.named()) {
        (Some(store), _) => cx.settings_of(&store)?,
        (None, Named::Nowhere) => cx.settings().clone(),
        (None, _) => return Err(CliError::NoStore),
    };
    settings.config()?;
    Ok(settings)
}

/// A setting and where its value comes from.
#[derive(Serialize)]
struct SettingJson<'a> {
    version: u32,
    key: String,
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
    /// Of a variable or an option.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// Of hooks, profiles and remotes in a store's file: whether they count.
    #[serde(skip_serializing_if = "Option::is_none")]
    trusted: Option<bool>,
}

/// A change that was made to a file.
#[derive(Serialize)]
struct ChangeJson {
    version: u32,
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

fn origin_json(origin: &Origin, trusted: Option<bool>) -> OriginJson<'_> {
    let file = origin.file();
    OriginJson {
        layer: origin.layer(),
        path: file.map(|(path, _)| path.to_string_lossy().into_owned()),
        line: file.map(|(_, line)| line),
        name: match origin {
            Origin::Variable(name) => Some(name),
            Origin::Option(name) => Some(name),
            _ => None,
        },
        trusted,
    }
}

fn write_json(
    out: &mut Out,
    path: &KeyPath,
    said: Option<&(Value, Origin)>,
    trusted: Option<bool>,
) -> Result<(), CliError> {
    Ok(out.json(&SettingJson {
        version: 1,
        key: path.to_string(),
        value: said.map_or(serde_json::Value::Null, |(value, _)| json(value)),
        origin: said.map(|(_, origin)| origin_json(origin, trusted)),
    })?)
}

fn list(show: Show, cx: &Context) -> Result<(), CliError> {
    let settings = settings(cx)?;
    let mut out = cx.ui().out();
    let is_trusted = settings.is_store_trusted();
    for (path, said) in settings.merged().all() {
        let trusted = said.as_ref().and_then(|(_, origin)| trust::of(&path, origin, is_trusted));
        if cx.ui().is_json() {
            write_json(&mut out, &path, said.as_ref(), trusted)?;
        } else if let Some((value, origin)) = said {
            let shown = text::line(format!("{path} = {value}").as_bytes());
            match show {
                Show::Value => writeln!(out, "{shown}")?,
                Show::Origin => writeln!(out, "{shown}  # {}", shown_origin(&origin, trusted))?,
            }
        }
    }
    Ok(out.finish()?)
}

fn shown_origin(origin: &Origin, trusted: Option<bool>) -> String {
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
    let said = settings.merged().get(path);
    let is_trusted = settings.is_store_trusted();
    let trusted = said.as_ref().and_then(|(_, origin)| trust::of(path, origin, is_trusted));
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        write_json(&mut out, path, said.as_ref(), trusted)?;
    } else if let Some((value, origin)) = said {
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

/// A file that is to be changed, with what it says.
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    whose: Whose,
    /// The store whose file it is, and whether its settings were trusted.
    store: Option<(PathBuf, bool)>,
}

impl Target {
    /// Reads it.
    pub(crate) fn find(whose: Whose, cx: &Context) -> Result<Self, CliError> {
        match whose {
            Whose::User | Whose::System => {
                let path = cx.settings().user_path().ok_or(CliError::NoUserFile)?.to_owned();
                Ok(Self { text: user_file::text(&path)?, path, whose, store: None })
            }
            Whose::Store => {
                let store = cx.store_dir()?;
                cx.check_found(&store)?;
                let file = read_config_file(&store)?;
                let text = file.text.clone();
                let settings = cx.settings().with_store(file);
                settings.check_takeover()?;
                let is_trusted = settings.is_store_trusted();
                let path = store.join(FILE);
                Ok(Self { path, text, whose, store: Some((store, is_trusted)) })
            }
        }
    }

    /// To be changed.
    pub(crate) fn edit(&self) -> Edit<'_> {
        Edit { text: &self.text, path: &self.path, whose: self.whose }
    }

    /// Writes it anew, with this text. Settings that were trusted stay so, with
    /// the change that the user makes; others are not trusted by a change.
    pub(crate) fn write(&self, text: &str, cx: &Context) -> Result<(), CliError> {
        let Some((store, was_trusted)) = &self.store else {
            return user_file::write(&self.path, text);
        };
        write_config(store, &Disk::default(), text).map_err(CliError::Settings)?;
        if *was_trusted { trust_change(store, text, cx) } else { Ok(()) }
    }

    fn tell(&self, action: &'static str, key: &KeyPath, cx: &Context) -> Result<(), CliError> {
        let mut out = cx.ui().out();
        if cx.ui().is_json() {
            let layer = Layer::parse(&self.text, &self.path, self.whose)?;
            let value = layer.get(key).map_or(serde_json::Value::Null, |(value, _)| json(value));
            let path = self.path.to_string_lossy().into_owned();
            out.json(&ChangeJson { version: 1, action, key: key.to_string(), value, path })?;
        }
        Ok(out.finish()?)
    }
}

fn set(key: &KeyPath, value: &str, whose: Whose, cx: &Context) -> Result<(), CliError> {
    if let [remote, _, url] = key.parts()
        && (remote.as_str(), url.as_str()) == ("remote", "url")
    {
        // A password in it would stand there for everybody to read.
        value.parse::<Location>()?;
    }
    let mut target = Target::find(whose, cx)?;
    let text = target.edit().set(key, value)?;
    target.write(&text, cx)?;
    target.text = text;
    cx.ui().status(format_args!("Set {key} in {}", target.path.display()));
    target.tell("set", key, cx)
}

fn unset(key: &KeyPath, whose: Whose, cx: &Context) -> Result<(), CliError> {
    let mut target = Target::find(whose, cx)?;
    match target.edit().unset(key)? {
        None => cx.ui().status(format_args!("{} says nothing about {key}", target.path.display())),
        Some(text) => {
            target.write(&text, cx)?;
            target.text = text;
            cx.ui().status(format_args!("Unset {key} in {}", target.path.display()));
        }
    }
    target.tell("unset", key, cx)
}
