//! `snap man`: prints or writes manual pages.

use std::{io::Write, path::PathBuf};

use snap_core::{base::io::PathError, disk::Disk, local::store_folder::store_above};

use crate::{
    args::definition,
    context::Context,
    reference::{self, man},
    report::{CliError, CommandOutcome},
    ui::size,
};

const EXAMPLES: &str = "\
Examples:
  snap man commit | man -l -                 read one
  snap man --out ~/.local/share/man/man1     install all";

/// Print a manual page, or write all pages to a folder
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Command of the page, such as `config set`; default: the page of snap
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Folder to write all pages to, created if missing
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let definition = definition();
    let commands = reference::commands(&definition);
    let Some(folder) = &args.out else {
        let wanted = args.command.join(" ");
        let found = commands.iter().find(|command| command.words.join(" ") == wanted);
        let Some(found) = found else { return Err(CliError::NoCommand { name: wanted }) };
        let mut out = cx.ui().out();
        out.write_all(&man::page(found)?)?;
        out.finish()?;
        return Ok(CommandOutcome::Success);
    };
    // The folder itself may be a store.
    if store_above(&folder.join("snap.1")).is_some() {
        return Err(CliError::Usage(
            "the output folder would be inside a store; pass another folder",
        ));
    }
    Disk::default().create_folders(folder)?;
    for command in &commands {
        let path = folder.join(format!("{}.1", command.dashed()));
        fs_err::write(&path, man::page(command)?).map_err(PathError::when("write", &path))?;
    }
    let pages = size::count(commands.len() as u64, "page");
    cx.ui().status(format_args!("Wrote {pages} to {}", folder.display()));
    Ok(CommandOutcome::Success)
}
