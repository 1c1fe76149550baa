//! The message, author and labels of a commit.

use std::collections::BTreeMap;

use snap_core::{
    base::time::Time,
    ops::commit::{self, MetadataLevel},
    repo::Config,
};

use crate::{context::Context, report::CliError, ui::time};

/// The description of a commit: message, labels, author, host and time.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Describe {
    /// Message of the commit; if repeated, each adds a paragraph
    #[arg(short, long, value_name = "TEXT")]
    message: Vec<String>,

    /// Label of the commit; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    /// Omit owners and times of files; equal files then have the same tree id. The commit id also
    /// depends on the time, author, host and message
    #[arg(long)]
    reproducible: bool,

    /// Author of the commit; default: the setting `commit.author`, else your user name
    #[arg(long, value_name = "NAME")]
    author: Option<String>,

    /// Name of the machine; default: the setting `commit.host`, else that of the system
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Time of the commit, such as 2026-11-21T08:00:00Z; for imports
    #[arg(long, alias = "date", value_name = "TIME")]
    time: Option<String>,
}

impl Describe {
    /// Returns the message, if there is one.
    pub(super) fn message(&self) -> Option<String> {
        (!self.message.is_empty()).then(|| self.message.join("\n\n"))
    }

    /// Returns the options given here, with defaults for the rest.
    pub(crate) fn options(
        &self,
        config: &Config,
        cx: &Context,
    ) -> Result<commit::CommitOptions, CliError> {
        let mut labels = BTreeMap::new();
        for (key, value) in &self.labels {
            if labels.insert(key.clone(), value.clone()).is_some() {
                return Err(CliError::LabelTwice { key: key.clone() });
            }
        }
        Ok(commit::CommitOptions {
            message: self.message().unwrap_or_default(),
            labels,
            author: self.author.clone().unwrap_or_else(|| cx.author(config)),
            host: self.host.clone().unwrap_or_else(|| cx.host(config)),
            time: self.parsed_time()?,
            now: Some(cx.now()),
            present: cx.fixed_time(),
            content: if self.reproducible {
                MetadataLevel::Reproducible
            } else {
                MetadataLevel::Complete
            },
            ..commit::CommitOptions::default()
        })
    }

    fn parsed_time(&self) -> Result<Option<Time>, CliError> {
        let parse = |text: &str| {
            let bad = || CliError::BadTime { name: "--time", text: text.to_owned() };
            time::parse_exact(text).ok_or_else(bad)
        };
        self.time.as_deref().map(parse).transpose()
    }
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE"),
    }
}
