//! `snap config`: the settings of a store.

use std::io::Write;

use clap::Subcommand;
use snap_core::{
    disk::Disk,
    repo::{
        config::{ConfigError, FILE},
        open::{read_config, write_config},
    },
};

use crate::{
    context::Context,
    report::{CliError, Done},
};

const EXAMPLES: &str = "\
Examples:
  snap config list
  snap config set compression.level 9
  snap config set commit.exclude '[\"*.o\", \"/target\"]'";

const SET_EXAMPLES: &str = "\
Examples:
  snap config set commit.author 'Ann Lee'
  snap config set commit.gitignore true
  snap config set commit.exclude '[\"*.o\", \"/target\"]'";

/// List, read or change the settings of the store
///
/// They stand in `config.toml` in the store, with comments that explain them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigArgs {
    /// What to do; list them if not given
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all settings
    #[command(after_help = "Examples:\n  snap config list\n  snap --json config list")]
    List,
    /// Print one setting
    #[command(after_help = "Examples:\n  snap config get compression.level")]
    Get {
        /// Setting, such as `chunk.average`
        key: String,
    },
    /// Change one setting
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// Setting, such as `chunk.average`
        key: String,
        /// New value, in TOML or as plain text
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
}

pub(crate) fn run(args: &ConfigArgs, cx: &Context) -> Result<Done, CliError> {
    let dir = cx.store_dir()?;
    let config = read_config(&dir)?;
    let wanted = match &args.action {
        None | Some(Action::List) => None,
        Some(Action::Get { key }) => Some(key),
        Some(Action::Set { key, value }) => {
            let changed = config.with(key, value, &dir.join(FILE))?;
            write_config(&dir, &Disk::default(), &changed)?;
            cx.ui().status(format_args!("Set {key}"));
            return Ok(Done::Well);
        }
    };
    let entries = config.entries();
    if let Some(key) = wanted.filter(|key| entries.iter().all(|(known, _)| known != key)) {
        return Err(ConfigError::UnknownKey { key: key.clone() }.into());
    }
    let mut out = cx.ui().out();
    for (key, value) in entries {
        if wanted.is_some_and(|wanted| wanted != key) {
            continue;
        }
        match (cx.ui().is_json(), wanted, value) {
            (true, _, value) => {
                out.json(&serde_json::json!({ "version": 1, "key": key, "value": value }))?;
            }
            (false, _, None) => {}
            (false, Some(_), Some(value)) => match value.as_str() {
                Some(text) => writeln!(out, "{text}")?,
                None => writeln!(out, "{value}")?,
            },
            (false, None, Some(value)) => writeln!(out, "{key} = {value}")?,
        }
    }
    out.finish()?;
    Ok(Done::Well)
}
