//! Mistyped commands, options and values: the most similar one that exists.

use std::ffi::OsString;

use clap::{Arg, Command};
use snap_core::base::suggestions::similar_names;

use crate::foreign::Advice;

/// Returns the answer to an unknown command below `path`.
pub(super) fn command(definition: &Command, path: &[&str], typed: &str) -> Advice {
    let known = below(definition, path).get_subcommands().filter(|command| !command.is_hide_set());
    let close = best(typed, known.map(Command::get_name));
    Advice {
        message: format!("{} has no command `{typed}`", line(path, &[])),
        hint: match close {
            Some(name) => format!("did you mean `{}`?", line(path, &[&name])),
            None => format!("`{}` lists the commands", line(path, &["--help"])),
        },
    }
}

/// Returns the answer to an argument that the command `path` does not take.
pub(super) fn option(
    definition: &Command,
    (path, words): (&[&str], &[OsString]),
    typed: &str,
) -> Advice {
    let Some(name) = typed.strip_prefix("--") else {
        let what = if typed.starts_with('-') { "option" } else { "argument" };
        return Advice {
            message: format!("{} has no {what} `{typed}`", line(path, &[])),
            hint: format!("`{}` lists the {what}s", line(path, &["--help"])),
        };
    };
    let own = options(below(definition, path));
    let global = options(definition).filter(|(arg, _)| arg.is_global_set());
    let close = best(name, own.chain(global).map(|(_, long)| long).chain(["help"]));
    let misplaced = words.iter().find_map(|word| {
        let command = definition.find_subcommand(word).filter(|_| path.is_empty())?;
        options(command).any(|(_, long)| long == name).then(|| command.get_name())
    });
    let hint = match (misplaced, close) {
        (Some(command), _) => format!("did you mean `{}`?", line(&[command], &[typed])),
        (None, Some(name)) => format!("did you mean `--{name}`?"),
        (None, None) => format!("`{}` lists the options", line(path, &["--help"])),
    };
    Advice { message: format!("{} has no option `{typed}`", line(path, &[])), hint }
}

/// Returns the answer to a value that is not among those of an argument, such as `--color <WHEN>`.
pub(super) fn value(argument: &str, typed: &str, choices: &[String]) -> Advice {
    let name = argument.split([' ', '=', '[']).next().filter(|name| !name.is_empty());
    let hint = match (best(typed, choices.iter().map(String::as_str)), choices) {
        (Some(choice), _) => format!("did you mean `{choice}`?"),
        (None, [first @ .., last]) if !first.is_empty() => {
            format!("use `{}` or `{last}`", first.join("`, `"))
        }
        (None, _) => format!("use `{}`", choices.concat()),
    };
    Advice { message: format!("`{}` has no value `{typed}`", name.unwrap_or(argument)), hint }
}

/// Returns the most similar name, if one is similar.
fn best<'n>(typed: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    similar_names(typed, names).into_iter().next()
}

/// Returns the command with this path.
fn below<'d>(definition: &'d Command, path: &[&str]) -> &'d Command {
    path.iter().fold(definition, |command, name| command.find_subcommand(name).unwrap_or(command))
}

/// Iterates over the long names of the options of a command.
fn options(command: &Command) -> impl Iterator<Item = (&Arg, &str)> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.flat_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases).map(move |long| (arg, long))
    })
}

/// Returns a command line of snap.
fn line(path: &[&str], words: &[&str]) -> String {
    [&["snap"], path, words].concat().join(" ")
}
