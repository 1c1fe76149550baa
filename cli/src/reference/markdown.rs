//! Generates `docs/cli.md`: all commands on one page.

use clap::Arg;

use super::{CommandPage, FILES};
use crate::{
    env,
    report::{self, ErrorCode},
};

const HEAD: &str = "\
# Commands

<!-- Generated from the definition of the command line. To change it, change the definition and run
     SNAP_UPDATE_DOCS=1 cargo test -p snap-cli --test cli docs:: -->

`snap COMMAND --help` prints the same text, `snap man` prints manual pages. With `--json`
commands print [records](schema/README.md), one a line.
";

const ERROR_CODES_HEAD: &str = "
## Error codes

With `--json`, an [error](schema/error.json) has a `code`, which never changes its meaning; later versions may add codes. If `retry` is true, the
same command may succeed later.

| code | retry | |
|---|---|---|
";

/// Returns the whole page.
pub(crate) fn page(commands: &[CommandPage]) -> String {
    let mut page = HEAD.to_owned();
    for command in commands {
        section(&mut page, command);
    }
    table(&mut page, "Exit codes", report::EXIT_CODES);
    error_codes(&mut page);
    table(&mut page, "Environment", env::VARIABLES);
    table(&mut page, "Files", FILES);
    page
}

fn table(page: &mut String, title: &str, items: &[(&str, &str)]) {
    page.push_str(&format!("\n## {title}\n\n| | |\n|---|---|\n"));
    for (item, text) in items {
        let items: Vec<_> = item.split(", ").map(|item| format!("`{item}`")).collect();
        page.push_str(&format!("| {} | {} |\n", items.join(", "), cell(text)));
    }
}

/// Lists the codes of errors in `--json`.
fn error_codes(page: &mut String) {
    page.push_str(ERROR_CODES_HEAD);
    for ErrorCode { name, retry, meaning } in report::ERROR_CODES {
        let retry = if *retry { "yes" } else { "" };
        page.push_str(&format!("| `{name}` | {retry} | {} |\n", cell(meaning)));
    }
}

fn section(page: &mut String, command: &CommandPage) {
    let CommandPage { definition, words, examples, notes } = command;
    let is_top = words.is_empty();
    page.push_str(&format!("\n## `{}`\n\n", command.spaced()));
    let about = definition.get_long_about().or_else(|| definition.get_about());
    page.push_str(&format!("{}\n", about.map(ToString::to_string).unwrap_or_default().trim()));
    let usage = definition.clone().render_usage().to_string();
    let usage = usage.trim().trim_start_matches("Usage:").lines().map(str::trim);
    let usage: Vec<&str> = usage.collect();
    page.push_str(&format!("\n```text\n{}\n```\n", usage.join("\n")));
    if !examples.is_empty() {
        page.push_str(&format!("\nExamples:\n\n```console\n{}\n```\n", examples.join("\n")));
    }
    for note in notes {
        page.push_str(&format!("\n{note}\n"));
    }
    let shown = definition.get_arguments().filter(|arg| !arg.is_hide_set());
    // Global options are listed once, with snap itself.
    let shown = shown.filter(|arg| is_top || !arg.is_global_set());
    let shown = shown.filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"));
    let shown: Vec<&Arg> = shown.collect();
    if !shown.is_empty() {
        page.push_str("\n| | |\n|---|---|\n");
    }
    for argument in shown {
        page.push_str(&format!("| `{}` | {} |\n", cell(&name(argument)), cell(&help(argument))));
    }
    if is_top {
        page.push_str("\n| command | |\n|---|---|\n");
        let below = definition.get_subcommands().filter(|below| !below.is_hide_set());
        for below in below {
            let (name, about) = (below.get_name(), below.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            page.push_str(&format!("| [`snap {name}`](#snap-{name}) | {} |\n", cell(&about)));
        }
    }
}

fn name(argument: &Arg) -> String {
    let values: Vec<String> = match argument.get_value_names() {
        _ if !argument.get_action().takes_values() => Vec::new(),
        Some(names) => names.iter().map(ToString::to_string).collect(),
        None => vec![argument.get_id().as_str().to_uppercase()],
    };
    let range = argument.get_num_args().unwrap_or_default();
    let optional = range.min_values() == 0;
    let more = if range.max_values() > 1 { "..." } else { "" };
    if argument.is_positional() {
        let name = values.join(" ");
        let required = argument.is_required_set();
        return if required { format!("<{name}>{more}") } else { format!("[{name}]{more}") };
    }
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let values = match (values.is_empty(), optional) {
        (true, _) => String::new(),
        (false, true) => format!(" [<{}>]", values.join("> <")),
        (false, false) => format!(" <{}>{more}", values.join("> <")),
    };
    format!("{}{values}", names.join(", "))
}

fn help(argument: &Arg) -> String {
    let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let possible = argument.get_possible_values();
    let possible: Vec<_> = possible
        .iter()
        .filter(|v| !v.is_hide_set())
        .map(|v| format!("`{}`", v.get_name()))
        .collect();
    if argument.get_action().takes_values() && !possible.is_empty() {
        help.push_str(&format!("; one of {}", possible.join(", ")));
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if argument.get_action().takes_values() && !defaults.is_empty() {
        help.push_str(&format!("; default: `{}`", defaults.join(" ")));
    }
    help
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
