//! `snap remote`: manages the remotes that snapshots are pushed to and pulled from.

mod check;
mod show;

use std::{collections::BTreeMap, io::Write};

use clap::Subcommand;
use serde::Serialize;
use snap_core::repo::{
    RefName,
    config::{
        edit::Edit,
        key::{KeyPath, Value},
        layer::Layer,
    },
};
use snap_remote::location::Location;

use crate::{
    commands::config::{ConfigFileEdit, owner},
    context::Context,
    remote::{RemoteSpec, tracking},
    report::{CliError, CommandOutcome},
    ui::text,
};

const EXAMPLES: &str = "\
Examples:
  snap remote add origin s3://bucket/project
  snap remote add nas webdavs://nas.example/snap --option username=ada
  snap remote add disk file:///mnt/usb/project
  snap remote check origin                test permissions and latency
  snap remote list

docs/remotes.md describes URLs, their options and credentials.";

const ADD_EXAMPLES: &str = "\
Examples:
  snap remote add origin s3://bucket/project
  snap remote add minio s3://bucket/project --option endpoint=https://minio.example
  snap remote add gcs gs://bucket --option credential-path=~/keys/gcs.json
  snap remote add nas sftp://ada@nas.example/srv/snap --option key=~/.ssh/backup
  snap remote add --user archive s3://archive/ada     for all stores
  snap config set remote.origin.credentials_command 'pass show bucket'

Credentials are not settings: they come from variables, a file or a command. See
docs/remotes.md.";

const LIST_EXAMPLES: &str = "\
Examples:
  snap remote list
  snap --json remote list";

const REMOVE_EXAMPLES: &str = "\
Examples:
  snap remote remove nas";

const SHOW_EXAMPLES: &str = "\
Examples:
  snap remote show origin";

const CHECK_EXAMPLES: &str = "\
Examples:
  snap remote check                       the default remote
  snap remote check s3://bucket/project   a URL, before it is added
  snap --json remote check origin | jq .possible";

/// List, add, remove and check remotes
///
/// A remote is a store at another location: a bucket, a server or a folder. Its name and URL are
/// settings. The default remote is `origin`, or the only one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RemoteArgs {
    /// What to do; default: list
    #[command(subcommand)]
    action: Option<RemoteAction>,
}

#[derive(Debug, Subcommand)]
enum RemoteAction {
    /// Add a remote
    #[command(after_help = ADD_EXAMPLES)]
    Add(RemoteAddArgs),
    /// List all remotes
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// Remove a remote from the settings; its data is unchanged
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove {
        /// Remote to remove
        #[arg(value_name = "REMOTE")]
        name: String,

        /// Change the settings of the user, not of the store
        #[arg(long)]
        user: bool,
    },
    /// Show a remote and its last known state, without a connection
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Remote to show; default: origin, or the only remote
        #[arg(value_name = "REMOTE")]
        name: Option<String>,
    },
    /// Test a remote: permissions, conditional writes, latency
    ///
    /// Lists, reads, writes, writes conditionally and removes a test object, and leaves nothing
    /// behind. The exit code is 1 if an operation that snap needs fails.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Remote or URL to check; default: origin, or the only remote
        #[arg(value_name = "REMOTE|URL")]
        remote: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct RemoteAddArgs {
    /// Name of the remote
    name: String,

    /// URL, such as s3://bucket/prefix
    url: String,

    /// Option of the remote; may be repeated
    #[arg(short, long, value_name = "OPTION=VALUE", value_parser = option)]
    option: Vec<(String, String)>,

    /// Change the settings of the user, not of the store: for all stores
    #[arg(long)]
    user: bool,
}

/// Parses `KEY=VALUE`.
pub(crate) fn option(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected OPTION=VALUE, such as region=eu-central-1"),
    }
}

pub(crate) fn run(args: &RemoteArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    match &args.action {
        None | Some(RemoteAction::List) => list(cx)?,
        Some(RemoteAction::Add(args)) => add(args, cx)?,
        Some(RemoteAction::Remove { name, user }) => remove(name, *user, cx)?,
        Some(RemoteAction::Show { name }) => show::run(name.as_deref(), cx)?,
        Some(RemoteAction::Check { remote }) => return check::run(remote.as_deref(), cx),
    }
    Ok(CommandOutcome::Success)
}

/// A remote that was added or removed.
#[derive(Serialize)]
struct RemoteChangeJson<'a> {
    version: u32,
    r#type: &'static str,
    action: &'static str,
    remote: &'a str,
    url: Option<String>,
    path: String,
}

fn check_name(name: &str) -> Result<(), CliError> {
    let bad = |why| CliError::RemoteName { name: name.to_owned(), why };
    if name.contains(['/', ':', '#', '=']) {
        return Err(bad("it contains `/`, `:`, `#` or `=`"));
    }
    // The names of its remote-tracking branches start with its name.
    RefName::remote(name, "main").map(drop).map_err(|error| bad(error.rule))
}

fn add(args: &RemoteAddArgs, cx: &Context) -> Result<(), CliError> {
    let name = &args.name;
    check_name(name)?;
    let options: BTreeMap<_, _> = args.option.iter().cloned().collect();
    let place = RemoteSpec::of_url(&args.url, options, cx.settings())?;
    let (settings, _) = cx.settings_here()?;
    if let Some(url) = settings.remote_url(name) {
        return Err(CliError::RemoteExists { name: name.clone(), url: shown_url(&url) });
    }
    let mut target = ConfigFileEdit::find(owner(args.user), cx)?;
    let url = place.location.to_string();
    target.change(cx, &|edit| {
        // Another process may have added it since the settings were read.
        let layer = Layer::parse(edit.text, edit.path, edit.owner)?;
        if let Some((Value::Text(url), _)) = layer.get(&KeyPath::new(["remote", name, "url"])) {
            let url = shown_url(url);
            return Err(CliError::RemoteExists { name: name.clone(), url });
        }
        let values = [("url", url.as_str())].into_iter();
        let options = place.options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut text = edit.text.to_owned();
        for (key, value) in values.chain(options) {
            let key = KeyPath::new(["remote", name, key]);
            text = Edit { text: &text, ..*edit }.set(&key, value)?;
        }
        Ok(Some(text))
    })?;
    cx.ui().status(format_args!("Added remote {name} at {url}"));
    print_result("added", name, Some(url), (&target, cx))
}

fn remove(name: &str, user: bool, cx: &Context) -> Result<(), CliError> {
    let mut target = ConfigFileEdit::find(owner(user), cx)?;
    let section = KeyPath::new(["remote", name]);
    if !target.change(cx, &|edit| Ok(edit.unset(&section)?))? {
        let known = cx.settings_here()?.0.remotes();
        return Err(CliError::NoRemote { name: name.to_owned(), known });
    }
    if !user {
        tracking::forget(&cx.open_repo()?, name, cx)?;
    }
    cx.ui().status(format_args!("Removed remote {name}; its data is unchanged"));
    print_result("removed", name, None, (&target, cx))
}

fn print_result(
    action: &'static str,
    remote: &str,
    url: Option<String>,
    (target, cx): (&ConfigFileEdit, &Context),
) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        let path = target.path.to_string_lossy().into_owned();
        out.json(&RemoteChangeJson {
            version: 1,
            r#type: "remote-changed",
            action,
            remote,
            url,
            path,
        })?;
    }
    Ok(out.finish()?)
}

#[derive(Serialize)]
struct RemoteJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: &'a str,
    url: &'a str,
}

fn list(cx: &Context) -> Result<(), CliError> {
    let (settings, store) = cx.settings_here()?;
    if store.is_none() {
        Context::check_here()?;
    }
    let names = settings.remotes();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let mut out = cx.ui().out();
    for name in &names {
        let url = shown_url(&settings.remote_url(name).unwrap_or_default());
        match cx.ui().is_json() {
            true => {
                out.json(&RemoteJson { version: 1, r#type: "remote", remote: name, url: &url })?
            }
            false => {
                let name = cx.ui().paint().name(&format!("{name:<width$}"));
                writeln!(out, "{}  {}", text::line(name.as_bytes()), text::line(url.as_bytes()))?;
            }
        }
    }
    out.finish()?;
    if names.is_empty() {
        cx.ui().status(format_args!("The store has no remote; `snap remote add` adds one"));
    }
    Ok(())
}

/// Formats a location for output. Leaves out a password that the user wrote into the file by hand.
fn shown_url(url: &str) -> String {
    if Location::is_path(url) {
        return url.to_owned();
    }
    match url.parse::<Location>() {
        Ok(location) => location.to_string(),
        Err(error) => format!("({error})"),
    }
}
