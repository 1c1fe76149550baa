//! The manual, made from clap's definition: pages for `man`, and `docs/cli.md`.
//!
//! What holds for all commands (exit codes, environment, files) has its text
//! where it is decided: [`report::EXIT_CODES`], [`env::VARIABLES`], [`FILES`].
//!
//! [`report::EXIT_CODES`]: crate::report::EXIT_CODES
//! [`env::VARIABLES`]: crate::env::VARIABLES

pub(crate) mod man;
pub(crate) mod markdown;

/// Files that concern users.
pub(crate) const FILES: &[(&str, &str)] = &[
    (".snap/", "the store of a project; `docs/format.md` describes it"),
    (".snap/config.toml", "the settings of that store"),
    (
        ".snapignore",
        "what commits leave out, in the syntax of .gitignore, for its folder and below",
    ),
];

/// A command and what is said about it.
#[derive(Debug)]
pub(crate) struct Command {
    /// What to type behind `snap`.
    pub(crate) words: Vec<String>,
    /// Clap's definition, with the global options.
    pub(crate) definition: clap::Command,
    /// Example lines, without the indent.
    pub(crate) examples: Vec<String>,
    /// Paragraphs that follow them.
    pub(crate) notes: Vec<String>,
}

impl Command {
    /// Such as `snap-config-set`.
    pub(crate) fn dashed(&self) -> String {
        [&["snap".to_owned()], self.words.as_slice()].concat().join("-")
    }

    /// Such as `snap config set`.
    pub(crate) fn spaced(&self) -> String {
        [&["snap".to_owned()], self.words.as_slice()].concat().join(" ")
    }
}

/// All commands that are shown, snap itself first.
pub(crate) fn commands(definition: &clap::Command) -> Vec<Command> {
    let mut definition = definition.clone().disable_help_subcommand(true);
    definition.build();
    let mut found = Vec::new();
    collect(&definition, &[], &mut found);
    found
}

fn collect(definition: &clap::Command, words: &[String], found: &mut Vec<Command>) {
    let text = definition.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut command = Command {
        words: words.to_vec(),
        definition: definition.clone(),
        examples: Vec::new(),
        notes: Vec::new(),
    };
    for paragraph in text.split("\n\n") {
        match paragraph.strip_prefix("Examples:\n") {
            Some(lines) => {
                let lines = lines.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
                command.examples.extend(lines.map(str::to_owned));
            }
            // They have a section of their own.
            None if paragraph.starts_with("Exit codes:") => {}
            None if paragraph.is_empty() => {}
            None => command.notes.push(paragraph.to_owned()),
        }
    }
    found.push(command);
    // Pages of hidden commands are of use, too, unless they are for programs.
    let below = definition.get_subcommands().filter(|below| !below.get_name().starts_with("__"));
    for below in below {
        collect(below, &[words, &[below.get_name().to_owned()]].concat(), found);
    }
}
