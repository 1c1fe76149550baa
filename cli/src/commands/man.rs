//! `snap man`: manual pages.

use std::{io::Write, path::PathBuf};

use snap_core::{base::io::PathError, disk::Disk};

use crate::{
    args::definition,
    context::Context,
    reference::{self, man},
    report::{CliError, Done},
    ui::size,
};

const EXAMPLES: &str = "\
Examples:
  snap man commit | man -l -                 read one
  snap man --out ~/.local/share/man/man1     install all";

/// Print a manual page, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Command whose page to print, such as `config set`; else that of snap
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Folder to write all pages into; made when it is missing
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, cx: &Context) -> Result<Done, CliError> {
    let definition = definition();
    let commands = reference::commands(&definition);
    let Some(folder) = &args.out else {
        let wanted = args.command.join(" ");
        let found = commands.iter().find(|command| command.words.join(" ") == wanted);
        let Some(found) = found else { return Err(CliError::NoCommand { name: wanted }) };
        let mut out = cx.ui().out();
        out.write_all(&man::page(found)?)?;
        out.finish()?;
        return Ok(Done::Well);
    };
    Disk::default().create_folders(folder)?;
    for command in &commands {
        let path = folder.join(format!("{}.1", command.dashed()));
        fs_err::write(&path, man::page(command)?).map_err(PathError::when("write", &path))?;
    }
    let pages = size::count(commands.len() as u64, "page");
    cx.ui().status(format_args!("Wrote {pages} to {}", folder.display()));
    Ok(Done::Well)
}
