//! `snap __docs`: prints `docs/cli.md`, which a test compares with the file.

use std::io::Write;

use crate::{
    args::definition,
    context::Context,
    reference::{self, markdown},
    report::{CliError, CommandOutcome},
};

/// Print docs/cli.md
#[derive(Debug, clap::Args)]
pub(crate) struct DocsArgs {}

pub(crate) fn run(_: &DocsArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let definition = definition();
    let mut out = cx.ui().plain_out();
    out.write_all(markdown::page(&reference::commands(&definition)).as_bytes())?;
    out.finish()?;
    Ok(CommandOutcome::Success)
}
