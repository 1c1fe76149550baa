//! Names and contents as HTML text. The result is always text, never markup, whatever
//! the bytes are.
//!
//! Characters that are invisible, or that affect the text around them, are escaped
//! visibly: control characters, bidirectional controls, zero-width characters, and
//! bytes that are not UTF-8.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

/// Approximate limit for the HTML of a name or a line, in bytes.
const NAME_HTML: usize = 16 << 10;

/// Approximate limit for the HTML of a text with several lines, in bytes.
const LINES_HTML: usize = 2 << 20;

/// Number of characters that are shown of an author or a message in a list.
const BRIEF_CHARS: usize = 200;

/// Renders a name, isolated from the writing direction around it.
pub(super) fn name(bytes: &[u8]) -> Markup {
    html! { bdi { (text(bytes)) } }
}

/// Renders bytes as text. Keeps tabs and truncates a long text.
pub(super) fn text(bytes: &[u8]) -> Markup {
    let mut shown = String::with_capacity(bytes.len().min(NAME_HTML) + 16);
    if !push_text(&mut shown, bytes, NAME_HTML) {
        shown.push('…');
    }
    PreEscaped(shown)
}

/// Renders the beginning of a text that a person wrote.
pub(super) fn brief(whole: &str) -> Markup {
    let end = whole.char_indices().nth(BRIEF_CHARS).map_or(whole.len(), |(at, _)| at);
    html! { (text(&whole.as_bytes()[..end])) @if end < whole.len() { "…" } }
}

/// Appends bytes as text to `html`, until `html` has about `most` bytes. Keeps tabs. Returns true
/// if all bytes were appended.
pub(super) fn push_text(html: &mut String, bytes: &[u8], most: usize) -> bool {
    let mut is_escaped = false;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(Ok);
        for c in valid.chain(chunk.invalid().iter().map(|byte| Err(*byte))) {
            if html.len() >= most {
                turn(html, &mut is_escaped, false);
                return false;
            }
            push(html, &mut is_escaped, c);
        }
    }
    turn(html, &mut is_escaped, false);
    true
}

fn push(html: &mut String, is_escaped: &mut bool, c: Result<char, u8>) {
    turn(html, is_escaped, c.is_ok_and(is_hidden) || c.is_err());
    match c {
        Ok('<') => html.push_str("&lt;"),
        Ok('>') => html.push_str("&gt;"),
        Ok('&') => html.push_str("&amp;"),
        Ok('"') => html.push_str("&quot;"),
        Ok('\'') => html.push_str("&#39;"),
        Ok(c) if is_hidden(c) => html.extend(c.escape_default()),
        Ok(c) => html.push(c),
        Err(byte) => {
            // Writing to a string does not fail.
            let _ = write!(html, "\\x{byte:02x}");
        }
    }
}

/// Opens or closes the element around escaped characters, if the state changes.
fn turn(html: &mut String, is_escaped: &mut bool, wanted: bool) {
    match (*is_escaped, wanted) {
        (false, true) => html.push_str("<span class=\"esc\">"),
        (true, false) => html.push_str("</span>"),
        _ => {}
    }
    *is_escaped = wanted;
}

/// Returns bytes as plain text in one line, for titles and labels.
pub(super) fn plain(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Returns true if the text needs no visible escapes.
pub(super) fn is_plain(text: &str) -> bool {
    !text.chars().any(is_hidden)
}

/// Renders several lines that a person wrote. Truncates a long text.
pub(super) fn lines(text: &str) -> Markup {
    let mut shown = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            shown.push('\n');
        }
        if !push_text(&mut shown, line.trim_end_matches('\r').as_bytes(), LINES_HTML) {
            shown.push('…');
            break;
        }
    }
    PreEscaped(shown)
}

/// Returns true if the character is invisible or changes the writing direction.
fn is_hidden(c: char) -> bool {
    let ranges = [
        '\u{ad}'..='\u{ad}',
        '\u{61c}'..='\u{61c}',
        '\u{180e}'..='\u{180e}',
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{fff9}'..='\u{fffb}',
        '\u{feff}'..='\u{feff}',
        '\u{e0000}'..='\u{e007f}',
    ];
    (c.is_control() && c != '\t') || ranges.iter().any(|range| range.contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_in_names_are_escaped() {
        let shown = text(b"<script>\"'&\n\x1b\xff\xe2\x80\xae.txt").into_string();
        let wanted = [
            "&lt;script&gt;&quot;&#39;&amp;",
            "<span class=\"esc\">\\n\\u{1b}\\xff\\u{202e}</span>",
            ".txt",
        ];
        assert_eq!(shown, wanted.concat());
        assert_eq!(plain("a\u{202e}b\n日本".as_bytes()), "a\\u{202e}b\\n日本");
        assert_eq!(lines("a\r\n\tb<").into_string(), "a\n\tb&lt;");
    }

    #[test]
    fn the_html_size_is_bounded_for_any_content() {
        let odd = "\u{1}a".repeat(1 << 20);
        for shown in [text(odd.as_bytes()), name(odd.as_bytes()), brief(&odd)] {
            let shown = shown.into_string();
            assert!(shown.len() < NAME_HTML + 100 && shown.contains('…'), "{}", shown.len());
        }
        assert!(lines(&odd).into_string().len() < LINES_HTML + 100);
        assert_eq!(brief("short").into_string(), "short");
        assert!(text(&[0xff; 1 << 20]).into_string().len() < NAME_HTML + 100);
        let mut html = String::new();
        assert!(push_text(&mut html, &[1; 1000], 1 << 20) && html.len() < 5100, "{}", html.len());
    }
}
