//! Escapes text from a store or a file system, so that it is safe for a terminal.

use std::{borrow::Cow, fmt::Write};

/// Formats bytes as one line: escapes control characters and line ends, and writes bytes that are
/// not UTF-8 as `\xNN`.
pub(crate) fn line(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut shown, c));
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Formats a word of a command that a user can paste into a shell, with quotes if needed.
pub(crate) fn word(bytes: &[u8]) -> String {
    let shown = line(bytes);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,#".contains(c);
    match shown.chars().all(is_plain) && !shown.starts_with('#') && !shown.is_empty() {
        true => shown,
        false => format!("'{}'", shown.replace('\'', "'\\''")),
    }
}

/// Formats several lines: keeps line ends and tabs.
pub(crate) fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') { shown.push(c) } else { push(&mut shown, c) }
    }
    shown
}

/// Formats one line without its end, and keeps tabs.
pub(crate) fn row(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.split(|byte| *byte == b'\t').map(line).collect();
    parts.join("\t")
}

/// Escapes characters in JSON that control a terminal. JSON itself only escapes the control
/// characters of ASCII.
pub(crate) fn json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(steers) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match steers(c) {
            // Writing to a string does not fail.
            true => drop(write!(shown, "\\u{:04x}", u32::from(c))),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

fn push(shown: &mut String, c: char) {
    if steers(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
}

/// Returns true if a character changes how a terminal shows other characters.
fn steers(c: char) -> bool {
    // Direction marks can make a name look like another one. Some terminals treat two of the
    // separators as line ends.
    let misleads = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || misleads
}

/// Formats an error and its causes, without causes that the message before ends with.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut shown = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !shown.ends_with(&message) {
            shown.push_str(": ");
            shown.push_str(&message);
        }
        cause = error.source();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_is_text_alone() {
        for text in ["plain", "ünï", "a\u{9b}2J", "\u{202e}x\u{7f}", "\u{1b}[2J\n"] {
            let plain = serde_json::to_string(text).unwrap();
            let escaped = json(&plain);
            assert!(!escaped.chars().any(steers), "{escaped}");
            assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
    }

    #[test]
    fn words_of_commands_are_quoted_where_a_shell_would_read_more_into_them() {
        assert_eq!(word(b"feature/x-1"), "feature/x-1");
        assert_eq!(word(b"a b"), "'a b'");
        assert_eq!(word(b"x;id>y"), "'x;id>y'");
        assert_eq!(word(b"it's $(id)"), "'it'\\''s $(id)'");
    }

    #[test]
    fn what_could_steer_a_terminal_is_escaped() {
        assert_eq!(line(b"a\x1b[31m\nb\xff"), "a\\u{1b}[31m\\nb\\xff");
        assert_eq!(lines("a\x1b\n\tb"), "a\\u{1b}\n\tb");
        assert_eq!(line("naïve 日本".as_bytes()), "naïve 日本");
        assert_eq!(line("a\u{202e}b\u{2028}".as_bytes()), "a\\u{202e}b\\u{2028}");
    }
}
