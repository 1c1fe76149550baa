//! Generates pages for `man`. `clap_mangen` renders the first sections; this module adds the rest.

use std::io;

use clap_mangen::Man;

use super::{CommandPage, FILES};
use crate::{env, report};

/// Returns the page of a command, in roff.
pub(crate) fn page(command: &CommandPage) -> io::Result<Vec<u8>> {
    let name = command.dashed();
    let usage = command.definition.clone().render_usage().to_string();
    // Without this, the usage would list all options, including the global ones.
    let usage = usage.trim_start_matches("Usage: ").trim().to_owned();
    let definition = command.definition.clone().display_name(name.clone());
    let man = Man::new(definition.override_usage(usage)).section("1");
    // The date is empty, so that equal sources produce equal pages. It must be quoted, because
    // `clap_mangen` would use the next argument as the date.
    let title = name.to_uppercase();
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(".TH \"{title}\" 1 \"\" \"snap {version}\" \"snap\"\n").into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.definition.get_subcommands().next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend_from_slice(rest(command).as_bytes());
    Ok(ascii(&String::from_utf8_lossy(&page)).into_bytes())
}

/// Escapes a page as ASCII, which every groff reads without options.
fn ascii(page: &str) -> String {
    let mut shown = String::with_capacity(page.len());
    for c in page.chars() {
        match c {
            c if c.is_ascii() => shown.push(c),
            c => shown.push_str(&format!("\\[u{:04X}]", u32::from(c))),
        }
    }
    shown
}

fn rest(command: &CommandPage) -> String {
    let mut page = String::new();
    if !command.examples.is_empty() {
        page.push_str(".SH EXAMPLES\n.nf\n.RS 2\n");
        command.examples.iter().for_each(|line| page.push_str(&format!("{}\n", escaped(line))));
        page.push_str(".RE\n.fi\n");
    }
    if !command.notes.is_empty() {
        page.push_str(".SH NOTES\n");
        for note in &command.notes {
            page.push_str(".PP\n");
            note.lines().for_each(|line| page.push_str(&format!("{}\n", escaped(line))));
        }
    }
    for (title, items) in
        [("EXIT STATUS", report::EXIT_CODES), ("ENVIRONMENT", env::VARIABLES), ("FILES", FILES)]
    {
        page.push_str(&format!(".SH {title}\n"));
        for (item, text) in items {
            page.push_str(&format!(".TP\n.B {}\n{}\n", escaped(item), escaped(text)));
        }
    }
    let see = if command.words.is_empty() {
        String::from("the pages of the commands, such as\n.BR snap\\-commit (1)\n")
    } else {
        String::from(".BR snap (1)\n")
    };
    page + ".SH SEE ALSO\n" + &see
}

/// Escapes text, so that roff does not read it as a request.
fn escaped(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    if line.starts_with(['.', '\'']) {
        shown.push_str("\\&");
    }
    for c in line.chars() {
        match c {
            '\\' => shown.push_str("\\e"),
            '-' => shown.push_str("\\-"),
            '\'' => shown.push_str("\\(aq"),
            '`' => shown.push_str("\\(ga"),
            '^' => shown.push_str("\\(ha"),
            '~' => shown.push_str("\\(ti"),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_is_no_request() {
        assert_eq!(super::ascii("a–b"), "a\\[u2013]b");
        assert_eq!(super::escaped(".snapignore"), "\\&.snapignore");
        assert_eq!(super::escaped("'it\\s' --x~1"), "\\&\\(aqit\\es\\(aq \\-\\-x\\(ti1");
    }
}
