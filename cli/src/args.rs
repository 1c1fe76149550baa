//! What can be said on the command line; what a command takes is in its file.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::{commands, ui::When};

const EXAMPLES: &str = "\
Examples:
  snap commit -m 'before the upgrade'   snapshot the project you stand in
  snap status                           what is new or changed since
  snap log                              list its snapshots
  snap ls latest:src                    look into one
  snap restore latest~1:notes.txt       get a file back as it was
  snap restore 4f2a /tmp/then           write a whole snapshot elsewhere

A snapshot is named by an id, the start of one (4 digits or more), a branch, a
tag, `latest` (or HEAD), `latest~2` (two before) or `latest@2026-11-01` (the
newest of that day or before).

Exit codes: 0 done, 1 failed, 2 usage, 3 done but files were skipped,
4 damage found, 130 interrupted.";

/// Snapshots of your files: fast, durable, small
#[derive(Debug, Parser)]
#[command(name = "snap", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// What holds for every command
    #[command(flatten)]
    pub(crate) global: Global,

    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What holds for every command.
#[derive(Debug, ClapArgs)]
pub(crate) struct Global {
    /// Store folder; else SNAP_STORE, else `.snap` here or above
    #[arg(long, global = true, value_name = "STORE", help_heading = "Global options")]
    pub(crate) store: Option<PathBuf>,

    /// Print JSON on stdout, one object a line
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    /// Say nothing but warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    pub(crate) quiet: bool,

    /// Say more
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,

    /// When to use colours; else the setting `ui.color`
    #[arg(long, global = true, value_enum, value_name = "WHEN", help_heading = "Global options")]
    pub(crate) color: Option<When>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(commands::init::InitArgs),
    Commit(commands::commit::CommitArgs),
    Status(commands::status::StatusArgs),
    Diff(commands::diff::DiffArgs),
    Log(commands::log::LogArgs),
    Show(commands::show::ShowArgs),
    Find(commands::find::FindArgs),
    Stats(commands::stats::StatsArgs),
    Ls(commands::ls::LsArgs),
    Cat(commands::cat::CatArgs),
    Restore(commands::restore::RestoreArgs),
    Export(commands::export::ExportArgs),
    Branch(commands::branch::BranchArgs),
    Tag(commands::tag::TagArgs),
    Archive(commands::archive::ArchiveArgs),
    Pack(commands::pack::PackArgs),
    Unpack(commands::unpack::UnpackArgs),
    Undo(commands::undo::UndoArgs),
    Verify(commands::verify::VerifyArgs),
    Config(commands::config::ConfigArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Args::command().debug_assert();
    }
}
