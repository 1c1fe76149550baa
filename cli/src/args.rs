//! The command line: its global options and groups of commands. The arguments of a command are in
//! its own file.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    builder::StyledStr,
};

use crate::{commands, foreign, report::EXIT_CODES, ui::ColorMode};

/// The groups of commands in the help of `snap`. A command that is in no group is shown at the end.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Make snapshots", &["init", "commit", "status", "archive"]),
    ("Inspect snapshots", &["log", "show", "ls", "cat", "diff", "find", "stats"]),
    ("Restore files", &["restore", "undo"]),
    (
        "Share",
        &[
            "push",
            "pull",
            "clone",
            "fetch",
            "remote",
            "ls-remote",
            "serve",
            "pack",
            "unpack",
            "export",
        ],
    ),
    ("Manage", &["branch", "tag", "verify", "repair", "forget", "gc", "rewrite", "config"]),
    ("Help", &["help", "completions"]),
];

const EXAMPLES: &str = "\
Examples:
  snap commit -m 'before the upgrade'   save the current project
  snap status                           list added, modified and deleted files
  snap log                              list the snapshots
  snap ls latest:src                    list the files of one
  snap restore --overwrite latest~1:notes.txt
                                        restore an older version of a file
  snap restore 4f2a /tmp/then           restore a snapshot to another folder

A snapshot is named by its id, by a branch or by a tag. The first 4 or more digits
of an id are enough. `latest` (or HEAD) is the newest one, `latest~2` two commits
earlier.
`latest@2026-11-01` is the newest one on or before that day.
A path after it starts at the top of the snapshot (`latest:src/x`), or at the current
folder (`latest:./x`).";

/// Returns the text after the list of commands: examples and exit codes.
fn after_help() -> String {
    let codes = EXIT_CODES.iter().map(|(code, meaning)| format!("\n  {code:<5}{meaning}"));
    format!("{EXAMPLES}\n\nExit codes:{}", codes.collect::<String>())
}

/// Heading of the global options.
const GLOBAL: &str = "Global options";

/// Snapshots of your files: fast, durable, small
#[derive(Debug, Parser)]
#[command(name = "snap", version, after_help = after_help())]
pub(crate) struct Args {
    /// Global options
    #[command(flatten)]
    pub(crate) global: Global,

    /// The command to run
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options of every command.
#[derive(Debug, ClapArgs)]
pub(crate) struct Global {
    /// Store folder; default: SNAP_STORE, else `.snap` here or above
    #[arg(short = 'r', long, alias = "repo", global = true, value_name = "STORE")]
    #[arg(help_heading = GLOBAL)]
    pub(crate) store: Option<PathBuf>,

    /// Print JSON records on stdout, one per line; notes, hints and errors are records on stderr
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,

    /// Print only warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = GLOBAL)]
    pub(crate) quiet: bool,

    /// Print more details
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) verbose: bool,

    /// When to use colours; default: the setting `ui.color`
    #[arg(long, global = true, value_enum, value_name = "WHEN", help_heading = GLOBAL)]
    pub(crate) color: Option<ColorMode>,

    /// Report remote traffic: requests, bytes, retries, cost
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) stats: bool,

    /// Print long output without a pager
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) no_pager: bool,
}

impl Global {
    /// Extracts the global options from a command line that is invalid or requests help.
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
            if let Some(Ok(color)) = color.map(|color| ColorMode::from_str(color, false)) {
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
    /// The error in the command line, or the help or version text that it requests.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut definition = Self::command();
        let words = foreign::translate(&definition, std::env::args_os().collect());
        let matches = match definition.try_get_matches_from_mut(words.clone()) {
            Ok(matches) => matches,
            // Only help texts and errors need the texts of all commands. Building them takes
            // longer than many commands.
            Err(_) => {
                definition = with_short_help(self::definition());
                definition.try_get_matches_from_mut(words)?
            }
        };
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))
    }
}

/// Returns the definition of the whole command line, with the commands in groups.
pub(crate) fn definition() -> clap::Command {
    let definition = Args::command();
    let header = *definition.get_styles().get_header();
    let literal = *definition.get_styles().get_literal();
    let title = |title: &str| format!("{header}{title}:{header:#}\n");
    let line = |command: &clap::Command| {
        let (name, about) = (command.get_name(), command.get_about());
        let about = about.map(ToString::to_string).unwrap_or_default();
        format!("  {literal}{name:<12}{literal:#}{about}\n")
    };
    // Clap adds this command when it parses.
    let help = clap::Command::new("help").about("Print the help of a command");
    let mut groups = String::new();
    for (name, members) in GROUPS {
        let lines = members.iter().filter_map(|name| match *name {
            "help" => Some(&help),
            name => definition.find_subcommand(name),
        });
        let lines = lines.map(line);
        groups
            .extend(lines.reduce(|all, line| all + &line).map(|lines| title(name) + &lines + "\n"));
    }
    let others = definition.get_subcommands().filter(|command| {
        let name = command.get_name();
        !command.is_hide_set() && !GROUPS.iter().any(|(_, members)| members.contains(&name))
    });
    let others: String = others.map(line).collect();
    if !others.is_empty() {
        groups.push_str(&format!("{}{others}\n", title("More")));
    }
    let options = title(GLOBAL);
    definition.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{options}{{options}}{{after-help}}"
    ))
}

/// The line in the help of a command that replaces the list of global options.
const SEE_GLOBAL: &str = "Global options: see `snap --help`";

/// The width of help texts.
const HELP_COLUMNS: usize = 80;

/// Joins the lines of each paragraph, as clap does with doc comments, so that only clap wraps them.
/// Examples and lists are indented, and stay as they are.
fn join_paragraphs(text: &str) -> String {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut joined = String::new();
    let mut was_prose = false;
    for line in text.lines() {
        let is_next = was_prose && is_prose(line);
        joined.push_str(match is_next {
            true => " ",
            false if joined.is_empty() => "",
            false => "\n",
        });
        joined.push_str(line);
        was_prose = is_prose(line);
    }
    joined
}

/// Builds the definition for help texts, and hides the global options in the help of the commands.
/// They remain valid there.
fn with_short_help(mut definition: clap::Command) -> clap::Command {
    fn shorten(command: &mut clap::Command) {
        for below in command.get_subcommands_mut() {
            let is_global = |arg: &clap::Arg| arg.get_help_heading() == Some(GLOBAL);
            let see = |text: Option<&StyledStr>| match text {
                Some(text) => format!("{SEE_GLOBAL}\n\n{}", join_paragraphs(&text.to_string())),
                None => SEE_GLOBAL.to_owned(),
            };
            let (short, long) = (see(below.get_after_help()), below.get_after_long_help());
            let long = long.map(|long| see(Some(long)));
            let taken = std::mem::take(below).after_help(short);
            let taken = match long {
                Some(long) => taken.after_long_help(long),
                None => taken,
            };
            *below = taken.mut_args(|arg| match is_global(&arg) {
                true => arg.hide_short_help(true).hide_long_help(true),
                false => arg,
            });
            shorten(below);
        }
    }
    definition = definition.term_width(HELP_COLUMNS).after_help(join_paragraphs(&after_help()));
    definition.build();
    shorten(&mut definition);
    definition
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
    LsRemote(commands::ls_remote::LsRemoteArgs),
    #[cfg(feature = "serve")]
    Serve(commands::serve::ServeArgs),
    Pack(commands::pack::PackArgs),
    Unpack(commands::unpack::UnpackArgs),
    Undo(commands::undo::UndoArgs),
    Verify(commands::verify::VerifyArgs),
    Repair(commands::repair::RepairArgs),
    Forget(commands::forget::ForgetArgs),
    Gc(commands::gc::GcArgs),
    Rewrite(commands::rewrite::RewriteArgs),
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
        assert_eq!(guess("snap --color never -h").color, Some(ColorMode::Never));
        assert_eq!(guess("snap --color=always -h").color, Some(ColorMode::Always));
        assert_eq!(guess("snap --color").color, None);
        assert!(guess("snap log --no-pager --help").no_pager);
    }
}
