//! The manual, generated from clap's definition: pages for `man`, and `docs/cli.md`.
//!
//! Texts about all commands (exit codes, environment, files) are defined next to the code:
//! [`report::EXIT_CODES`], [`env::VARIABLES`], [`FILES`].
//!
//! [`report::EXIT_CODES`]: crate::report::EXIT_CODES
//! [`env::VARIABLES`]: crate::env::VARIABLES

pub(crate) mod man;
pub(crate) mod markdown;

/// Files that users need to know.
pub(crate) const FILES: &[(&str, &str)] = &[
    (".snap/", "store of a project; `docs/format.md` describes it"),
    (".snap/config.toml", "settings of that store"),
    (
        ".snapignore",
        "patterns of files that commits exclude, in the syntax of .gitignore, for its folder and \
         below",
    ),
];

/// A command and the texts about it.
#[derive(Debug)]
pub(crate) struct CommandPage {
    /// The words to type after `snap`.
    pub(crate) words: Vec<String>,
    /// Clap's definition, including the global options.
    pub(crate) definition: clap::Command,
    /// Example lines, without indentation.
    pub(crate) examples: Vec<String>,
    /// The paragraphs after the examples.
    pub(crate) notes: Vec<String>,
}

impl CommandPage {
    /// Returns the name with dashes, such as `snap-config-set`.
    pub(crate) fn dashed(&self) -> String {
        [&["snap".to_owned()], self.words.as_slice()].concat().join("-")
    }

    /// Returns the name with spaces, such as `snap config set`.
    pub(crate) fn spaced(&self) -> String {
        [&["snap".to_owned()], self.words.as_slice()].concat().join(" ")
    }
}

/// Lists all visible commands; snap itself is first.
pub(crate) fn commands(definition: &clap::Command) -> Vec<CommandPage> {
    let mut definition = definition.clone().disable_help_subcommand(true);
    definition.build();
    let mut found = Vec::new();
    collect(&definition, &[], &mut found);
    found
}

fn collect(definition: &clap::Command, words: &[String], found: &mut Vec<CommandPage>) {
    let text = definition.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut command = CommandPage {
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
            // The exit codes have a section of their own.
            None if paragraph.starts_with("Exit codes:") => {}
            None if paragraph.is_empty() => {}
            None => command.notes.push(paragraph.to_owned()),
        }
    }
    found.push(command);
    // Hidden commands get pages too, except those that only programs call.
    let below = definition.get_subcommands().filter(|below| !below.get_name().starts_with("__"));
    for below in below {
        collect(below, &[words, &[below.get_name().to_owned()]].concat(), found);
    }
}
