//! `snap remote`: the places that snapshots are pushed to and pulled from.

mod check;
mod show;

use std::{collections::BTreeMap, io::Write};

use clap::Subcommand;
use serde::Serialize;
use snap_core::repo::{RefName, config::key::KeyPath};
use snap_remote::location::Location;

use crate::{
    commands::config::{Target, whose},
    context::Context,
    remote::{Place, tracking},
    report::{CliError, Done},
    ui::text,
};

const EXAMPLES: &str = "\
Examples:
  snap remote add origin s3://bucket/project
  snap remote add nas webdavs://nas.example/snap --option username=ada
  snap remote add disk file:///mnt/usb/project
  snap remote check origin                can it be used, and how far away is it?
  snap remote list

Locations, their options and where keys come from: docs/remotes.md.";

const ADD_EXAMPLES: &str = "\
Examples:
  snap remote add origin s3://bucket/project
  snap remote add minio s3://bucket/project --option endpoint=https://minio.example
  snap remote add gcs gs://bucket --option credential-path=~/keys/gcs.json
  snap remote add nas sftp://ada@nas.example/srv/snap --option key=~/.ssh/backup
  snap remote add --user archive s3://archive/ada     for all stores
  snap config set remote.origin.credentials_command 'pass show bucket'

Keys are not kept in settings: they come from variables, from a file or from a
command. See docs/remotes.md.";

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
  snap remote check                       the usual one
  snap remote check s3://bucket/project   before it is added
  snap --json remote check origin | jq .possible";

/// List, add, remove and check remotes
///
/// A remote is a store elsewhere: a bucket, a share, a folder. Its name and
/// location stand in the settings; `snap push` and `snap pull` use the one that
/// is called `origin`, or the only one, unless another is named.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RemoteArgs {
    /// What to do; list them if not given
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Give a location a name
    #[command(after_help = ADD_EXAMPLES)]
    Add(AddArgs),
    /// List all remotes
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// Forget a remote; what it holds stays
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove {
        /// Remote to forget
        #[arg(value_name = "REMOTE")]
        name: String,

        /// Change the user's file, not the store's
        #[arg(long)]
        user: bool,
    },
    /// Show what is known of a remote, without asking it
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Remote to show; the usual one if not given
        #[arg(value_name = "REMOTE")]
        name: Option<String>,
    },
    /// Try what can be done at a remote, and how long it takes
    ///
    /// Lists, reads, writes, writes on a condition and removes, and leaves
    /// nothing behind. The exit code is 1 if something that snap needs is not
    /// possible.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Remote or location to check; the usual one if not given
        #[arg(value_name = "REMOTE|URL")]
        remote: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// What to call it
    name: String,

    /// Where it is, such as s3://bucket/prefix
    url: String,

    /// Option of the location; may be repeated
    #[arg(short, long, value_name = "OPTION=VALUE", value_parser = option)]
    option: Vec<(String, String)>,

    /// Write the user's file, not the store's: for all stores
    #[arg(long)]
    user: bool,
}

/// Parses `K=V`.
pub(crate) fn option(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected OPTION=VALUE, such as region=eu-central-1"),
    }
}

pub(crate) fn run(args: &RemoteArgs, cx: &Context) -> Result<Done, CliError> {
    match &args.action {
        None | Some(Action::List) => list(cx)?,
        Some(Action::Add(args)) => add(args, cx)?,
        Some(Action::Remove { name, user }) => remove(name, *user, cx)?,
        Some(Action::Show { name }) => show::run(name.as_deref(), cx)?,
        Some(Action::Check { remote }) => return check::run(remote.as_deref(), cx),
    }
    Ok(Done::Well)
}

/// A remote that was added or removed.
#[derive(Serialize)]
struct ChangeJson<'a> {
    version: u32,
    action: &'static str,
    remote: &'a str,
    url: Option<String>,
    path: String,
}

fn check_name(name: &str) -> Result<(), CliError> {
    let bad = |why| CliError::RemoteName { name: name.to_owned(), why };
    if name.contains(['/', ':', '#', '=']) {
        return Err(bad("it contains one of / : # ="));
    }
    // Its branches are refs with its name in front.
    RefName::remote(name, "main").map(drop).map_err(|error| bad(error.rule))
}

fn add(args: &AddArgs, cx: &Context) -> Result<(), CliError> {
    let name = &args.name;
    check_name(name)?;
    let options: BTreeMap<_, _> = args.option.iter().cloned().collect();
    let place = Place::of_url(&args.url, options)?;
    let (settings, _) = cx.settings_here()?;
    if let Some(url) = settings.remote_url(name) {
        return Err(CliError::RemoteExists { name: name.clone(), url: shown_url(&url) });
    }
    let mut target = Target::find(whose(args.user), cx)?;
    let url = place.location.to_string();
    let values = [("url", url.as_str())].into_iter();
    let options = place.options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in values.chain(options) {
        target.text = target.edit().set(&KeyPath::new(["remote", name, key]), value)?;
    }
    target.write(&target.text, cx)?;
    cx.ui().status(format_args!("Added remote {name} at {url}"));
    tell("added", name, Some(url), (&target, cx))
}

fn remove(name: &str, user: bool, cx: &Context) -> Result<(), CliError> {
    let mut target = Target::find(whose(user), cx)?;
    let section = KeyPath::new(["remote", name]);
    let Some(text) = target.edit().unset(&section)? else {
        let known = cx.settings_here()?.0.remotes();
        return Err(CliError::NoRemote { name: name.to_owned(), known });
    };
    target.write(&text, cx)?;
    target.text = text;
    if !user {
        tracking::forget(&cx.open_repo()?, name, cx)?;
    }
    cx.ui().status(format_args!("Removed remote {name}; what it holds stays"));
    tell("removed", name, None, (&target, cx))
}

fn tell(
    action: &'static str,
    remote: &str,
    url: Option<String>,
    (target, cx): (&Target, &Context),
) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        let path = target.path.to_string_lossy().into_owned();
        out.json(&ChangeJson { version: 1, action, remote, url, path })?;
    }
    Ok(out.finish()?)
}

#[derive(Serialize)]
struct RemoteJson<'a> {
    version: u32,
    remote: &'a str,
    url: &'a str,
}

fn list(cx: &Context) -> Result<(), CliError> {
    let (settings, _) = cx.settings_here()?;
    let names = settings.remotes();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let mut out = cx.ui().out();
    for name in &names {
        let url = shown_url(&settings.remote_url(name).unwrap_or_default());
        match cx.ui().is_json() {
            true => out.json(&RemoteJson { version: 1, remote: name, url: &url })?,
            false => {
                let name = cx.ui().paint().name(&format!("{name:<width$}"));
                writeln!(out, "{}  {}", text::line(name.as_bytes()), text::line(url.as_bytes()))?;
            }
        }
    }
    out.finish()?;
    if names.is_empty() {
        cx.ui().status(format_args!("There is no remote; `snap remote add` makes one"));
    }
    Ok(())
}

/// A location as it may be shown: a password that somebody wrote into a file
/// by hand is left out.
fn shown_url(url: &str) -> String {
    match url.parse::<Location>() {
        Ok(location) => location.to_string(),
        Err(error) => format!("({error})"),
    }
}
