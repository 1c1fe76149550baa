//! Names and contents as they are shown: markup that cannot be taken for
//! anything else than text, whatever the bytes are.
//!
//! What a browser would not show, or would let change what stands around it, is
//! escaped visibly: control characters, marks that turn the direction of
//! writing, characters without a width, and bytes that are not UTF-8.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

/// A name, apart from the direction of writing around it.
pub(super) fn name(bytes: &[u8]) -> Markup {
    html! { bdi { (text(bytes)) } }
}

/// Bytes as text; tabs stay.
pub(super) fn text(bytes: &[u8]) -> Markup {
    let mut shown = String::with_capacity(bytes.len() + 16);
    push_text(&mut shown, bytes);
    PreEscaped(shown)
}

/// Adds bytes as text to HTML; tabs stay.
pub(super) fn push_text(html: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '<' => html.push_str("&lt;"),
                '>' => html.push_str("&gt;"),
                '&' => html.push_str("&amp;"),
                '"' => html.push_str("&quot;"),
                '\'' => html.push_str("&#39;"),
                '\t' => html.push('\t'),
                c if is_hidden(c) => {
                    // Writing to a string does not fail.
                    let _ = write!(html, "<span class=\"esc\">{}</span>", c.escape_default());
                }
                c => html.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(html, "<span class=\"esc\">\\x{byte:02x}</span>");
        }
    }
}

/// Bytes as plain text in one line, for titles and labels.
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

/// Several lines of text that a person wrote.
pub(super) fn lines(text: &str) -> Markup {
    let mut shown = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            shown.push('\n');
        }
        push_text(&mut shown, line.trim_end_matches('\r').as_bytes());
    }
    PreEscaped(shown)
}

/// Whether a character would not be seen, or turns the direction of others.
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
    fn nothing_in_a_name_is_markup_or_hidden() {
        let shown = text(b"<script>\"'&\n\x1b\xff\xe2\x80\xae.txt").into_string();
        let esc = |code: &str| format!("<span class=\"esc\">{code}</span>");
        let wanted = [
            "&lt;script&gt;&quot;&#39;&amp;",
            &esc("\\n"),
            &esc("\\u{1b}"),
            &esc("\\xff"),
            &esc("\\u{202e}"),
            ".txt",
        ];
        assert_eq!(shown, wanted.concat());
        assert_eq!(plain("a\u{202e}b\n日本".as_bytes()), "a\\u{202e}b\\n日本");
        assert_eq!(lines("a\r\n\tb<").into_string(), "a\n\tb&lt;");
    }
}
