//! Text from a store or a file system, made safe for a terminal.

use std::fmt::Write;

/// One line: control characters and line ends are written as escapes, bytes
/// that are not UTF-8 as `\xNN`.
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

/// Several lines: line ends and tabs stay.
pub(crate) fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') { shown.push(c) } else { push(&mut shown, c) }
    }
    shown
}

/// One line in which tabs stay, without its end.
pub(crate) fn row(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.split(|byte| *byte == b'\t').map(line).collect();
    parts.join("\t")
}

fn push(shown: &mut String, c: char) {
    // Direction marks can make a name read as another one.
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || turns { shown.extend(c.escape_default()) } else { shown.push(c) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_escaped() {
        assert_eq!(line(b"a\x1b[31m\nb\xff"), "a\\u{1b}[31m\\nb\\xff");
        assert_eq!(lines("a\x1b\n\tb"), "a\\u{1b}\n\tb");
        assert_eq!(line("naïve 日本".as_bytes()), "naïve 日本");
        assert_eq!(line("a\u{202e}b".as_bytes()), "a\\u{202e}b");
    }
}
