//! What can be said on the command line; what a command takes is in its file.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::{commands, ui::When};

/// The commands as the help of `snap` shows them. One that is not here is
/// shown behind the others.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Make snapshots", &["init", "commit", "status", "archive"]),
    ("Look at them", &["log", "show", "ls", "cat", "diff", "find", "stats"]),
    ("Get files back", &["restore", "undo"]),
    (
        "Carry them elsewhere",
        &["push", "pull", "clone", "fetch", "remote", "serve", "pack", "unpack", "export"],
    ),
    ("Keep order", &["branch", "tag", "verify", "repair", "config"]),
    ("Learn", &["help", "completions"]),
];

const EXAMPLES: &str = "\
Examples:
  snap commit -m 'before the upgrade'   snapshot the project you stand in
  snap status                           what is new or changed since
  snap log                              list its snapshots
  snap ls latest:src                    look into one
  snap restore --overwrite latest~1:notes.txt
                                        get a file back as it was
  snap restore 4f2a /tmp/then           write a whole snapshot elsewhere

A snapshot is named by an id, the start of one (4 digits or more), a branch, a
tag, `latest` (or HEAD), `latest~2` (two before) or `latest@2026-11-01` (the
newest of that day or before).

Exit codes: 0 done, 1 failed, 2 usage, 3 done but files were skipped,
4 damage found, 130 interrupted.";

/// Snapshots of your files: fast, durable, small
#[derive(Debug, Parser)]
#[command(name = "snap", version, after_help = EXAMPLES)]
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

    /// Tell what was asked of remotes: requests, bytes, retries
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) stats: bool,

    /// Print what is longer than the screen without a pager
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) no_pager: bool,
}

impl Global {
    /// What can be told from a command line that is wrong, or asks for help.
    pub(crate) fn guess(words: impl Iterator<Item = OsString>) -> Self {
        let mut global = Self {
            store: None,
            json: false,
            quiet: false,
            verbose: false,
            color: None,
            stats: false,
            no_pager: false,
        };
        let mut words = words.skip(1).take_while(|word| word != "--");
        while let Some(word) = words.next() {
            let color = match word.to_str() {
                Some("--json") => {
                    global.json = true;
                    continue;
                }
                Some("--no-pager") => {
                    global.no_pager = true;
                    continue;
                }
                Some("--color") => words.next(),
                Some(word) => word.strip_prefix("--color=").map(OsString::from),
                None => None,
            };
            let color = color.as_deref().and_then(|color| color.to_str());
            if let Some(Ok(color)) = color.map(|color| When::from_str(color, false)) {
                global.color = Some(color);
            }
        }
        global
    }
}

impl Args {
    /// Reads the command line.
    ///
    /// # Errors
    /// What is wrong with it, or the help or version that it asks for.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut definition = definition();
        let matches = definition.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))
    }
}

/// All that can be said, with the commands in groups.
pub(crate) fn definition() -> clap::Command {
    let definition = Args::command();
    let mut built = definition.clone();
    built.build();
    let header = *definition.get_styles().get_header();
    let literal = *definition.get_styles().get_literal();
    let title = |title: &str| format!("{header}{title}:{header:#}\n");
    let line = |command: &clap::Command| {
        let (name, about) = (command.get_name(), command.get_about());
        let about = match name {
            "help" => "Print the help of a command".to_owned(),
            _ => about.map(ToString::to_string).unwrap_or_default(),
        };
        format!("  {literal}{name:<12}{literal:#}{about}\n")
    };
    let mut groups = String::new();
    for (name, members) in GROUPS {
        let lines = members.iter().filter_map(|name| built.find_subcommand(name)).map(line);
        groups
            .extend(lines.reduce(|all, line| all + &line).map(|lines| title(name) + &lines + "\n"));
    }
    let others = built.get_subcommands().filter(|command| {
        let name = command.get_name();
        !command.is_hide_set() && !GROUPS.iter().any(|(_, members)| members.contains(&name))
    });
    let others: String = others.map(line).collect();
    if !others.is_empty() {
        groups.push_str(&format!("{}{others}\n", title("More")));
    }
    let options = title("Global options");
    definition.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{options}{{options}}{{after-help}}"
    ))
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
    Push(commands::push::PushArgs),
    Pull(commands::pull::PullArgs),
    Clone(commands::clone::CloneArgs),
    Fetch(commands::fetch::FetchArgs),
    Remote(commands::remote::RemoteArgs),
    Serve(commands::serve::ServeArgs),
    Pack(commands::pack::PackArgs),
    Unpack(commands::unpack::UnpackArgs),
    Undo(commands::undo::UndoArgs),
    Verify(commands::verify::VerifyArgs),
    Repair(commands::repair::RepairArgs),
    Config(commands::config::ConfigArgs),
    Completions(commands::completions::CompletionsArgs),
    #[command(hide = true)]
    Man(commands::man::ManArgs),
    #[command(name = "__tab", hide = true)]
    Complete(commands::complete::CompleteArgs),
    #[command(name = "__docs", hide = true)]
    Docs(commands::docs::DocsArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn what_is_wrong_still_tells_how_to_talk() {
        let guess = |line: &str| Global::guess(line.split(' ').map(OsString::from));
        assert!(guess("snap --json lgo").json);
        assert!(!guess("snap lgo -- --json").json);
        assert_eq!(guess("snap --color never -h").color, Some(When::Never));
        assert_eq!(guess("snap --color=always -h").color, Some(When::Always));
        assert_eq!(guess("snap --color").color, None);
        assert!(guess("snap log --no-pager --help").no_pager);
    }
}
