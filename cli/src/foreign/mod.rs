//! Words that snap does not have: those of git, restic, borg and tar, and mistyped ones; and missing
//! commands.
//!
//! [`translate`] rewrites a spelling that clap cannot define. [`advice`] replaces clap's message
//! about an unknown word by what to write instead: from the tables in [`commands`] and [`options`],
//! or a similar word ([`typos`]).

mod commands;
mod options;
mod typos;

use std::ffi::{OsStr, OsString};

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// The answer to a word that snap does not have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    /// The error message.
    pub(crate) message: String,
    /// What to write instead, one choice a line.
    pub(crate) hint: String,
}

/// Returns the answer to an invalid command line with a word that snap does not have.
pub(crate) fn advice(
    error: &clap::Error,
    definition: &Command,
    words: &[OsString],
) -> Option<Advice> {
    let (path, _) = command_path(definition, words);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        // clap's message would list hidden commands as well.
        ErrorKind::MissingSubcommand => {
            let typed = [&["snap"], &path[..]].concat().join(" ");
            Some(Advice {
                message: format!("{typed} needs a command"),
                hint: format!("`{typed} --help` lists the commands"),
            })
        }
        ErrorKind::InvalidSubcommand => {
            let typed = text(ContextKind::InvalidSubcommand)?;
            Some(match commands::instead(&path, typed) {
                Some(instead) => Advice {
                    message: format!("snap has no `{}`", [&path, &[typed][..]].concat().join(" ")),
                    hint: instead.join("\n"),
                },
                None => typos::command(definition, &path, typed),
            })
        }
        ErrorKind::UnknownArgument => {
            let typed = text(ContextKind::InvalidArg)?;
            Some(match options::instead(&path, typed) {
                Some(instead) => Advice {
                    message: format!(
                        "{} has no `{typed}`",
                        [&["snap"], &path[..]].concat().join(" ")
                    ),
                    hint: instead.join("\n"),
                },
                None => typos::option(definition, (&path, words), typed),
            })
        }
        ErrorKind::InvalidValue => {
            let Some(ContextValue::Strings(choices)) = error.get(ContextKind::ValidValue) else {
                return None;
            };
            let (argument, typed) =
                (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
            // Without a value, clap's message says that it is missing.
            (!typed.is_empty() && !choices.is_empty())
                .then(|| typos::value(argument, typed, choices))
        }
        _ => None,
    }
}

/// Rewrites `snap log -5`, as in git, to `snap log -n5`: clap has no options that are numbers.
pub(crate) fn translate(definition: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let (path, after) = command_path(definition, &words);
    if path == ["log"] {
        for word in words[after..].iter_mut().take_while(|word| *word != "--") {
            let number = word.to_str().and_then(|word| word.strip_prefix('-'));
            if let Some(number) = number.filter(|number| is_number(number)) {
                *word = format!("-n{number}").into();
            }
        }
    }
    words
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the commands that a command line names, and the index of the word after them.
fn command_path<'d>(definition: &'d Command, words: &[OsString]) -> (Vec<&'d str>, usize) {
    let (mut path, mut after) = (Vec::new(), 1);
    let mut command = definition;
    let mut at = 1;
    while let Some(word) = words.get(at).filter(|word| *word != "--") {
        at += 1;
        if word.as_encoded_bytes().starts_with(b"-") {
            let takes_next =
                |command: &Command| command.get_arguments().any(|arg| names(arg, word));
            at += usize::from(takes_next(command) || takes_next(definition));
            continue;
        }
        match command.find_subcommand(word) {
            Some(below) => {
                path.push(below.get_name());
                (command, after) = (below, at);
            }
            // Clap adds this command when it parses.
            None if path.is_empty() && word == "help" => {}
            None => break,
        }
    }
    (path, after)
}

/// Returns true if `word` is the name of an option, and its value is the next word.
fn names(option: &clap::Arg, word: &OsStr) -> bool {
    let Some(word) = word.to_str().filter(|_| option.get_action().takes_values()) else {
        return false;
    };
    let aliases = option.get_all_aliases().unwrap_or_default();
    let is_long = |name: &str| option.get_long() == Some(name) || aliases.contains(&name);
    match word.strip_prefix("--") {
        Some(name) => is_long(name),
        None => option.get_short().is_some_and(|short| word == format!("-{short}")),
    }
}

/// Checks that each hint names commands and options that exist.
#[cfg(test)]
fn check_hint(definition: &Command, hint: &str) {
    for quoted in hint.split('`').skip(1).step_by(2) {
        let words: Vec<&str> = quoted.split(' ').collect();
        let ["snap", words @ ..] = words.as_slice() else { continue };
        let mut command = definition;
        for word in words.iter().take_while(|word| **word != "--") {
            let name = word.trim_start_matches('-');
            if let Some(below) = command.find_subcommand(word) {
                command = below;
            } else if command.get_name() == "snap" && !word.starts_with('-') {
                panic!("{hint}: there is no {word}");
            } else if word.starts_with("--") {
                let has = |command: &Command| {
                    command.get_arguments().any(|option| option.get_long() == Some(name))
                };
                let known = has(command) || has(definition) || name == "version";
                assert!(known, "{hint}: there is no {word}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_commands_of_a_line_are_found_between_options() {
        let definition = crate::args::definition();
        for (line, path, after) in [
            ("snap", &[][..], 1),
            ("snap -q --store log", &[], 1),
            ("snap -r log --color=never log log", &["log"], 5),
            ("snap help remote rm", &["remote"], 3),
            ("snap remote --store x add y", &["remote", "add"], 5),
            ("snap log -- show", &["log"], 2),
        ] {
            let found = command_path(&definition, &words(line));
            assert_eq!(found, (path.to_vec(), after), "{line}");
        }
    }

    #[test]
    fn a_number_is_a_count_in_log_only() {
        let definition = crate::args::definition();
        for (line, expected) in [
            ("snap -q log -5 main", "snap -q log -n5 main"),
            ("snap log -1 -- -2", "snap log -n1 -- -2"),
            ("snap config set jobs -5", "snap config set jobs -5"),
            ("snap log - -5a", "snap log - -5a"),
        ] {
            assert_eq!(translate(&definition, words(line)), words(expected));
        }
    }
}
