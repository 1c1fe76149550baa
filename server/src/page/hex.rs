//! A hex dump of the first bytes of a binary file.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use snap_core::base::number::ByteCount;

use super::show;

/// Number of bytes that are shown.
const SHOWN_BYTES: usize = 1024;

/// Number of bytes in a row.
const ROW: usize = 16;

pub(super) fn view(start: &[u8], size: u64) -> Markup {
    let shown = &start[..start.len().min(SHOWN_BYTES)];
    html! {
        div.scroll tabindex="0" role="region" aria-label="The first bytes" {
            pre.hex { (PreEscaped(dump(shown))) }
        }
        @if (shown.len() as u64) < size {
            p.none { "The first " (ByteCount(shown.len() as u64)) " of " (ByteCount(size)) "." }
        }
    }
}

fn dump(bytes: &[u8]) -> String {
    let mut html = String::new();
    for (at, row) in bytes.chunks(ROW).enumerate() {
        // Writing to a string does not fail.
        let _ = write!(html, "<span class=\"at\">{:08x}</span>  ", at * ROW);
        for place in 0..ROW {
            let _ = match row.get(place) {
                Some(byte) => write!(html, "{byte:02x} "),
                None => write!(html, "   "),
            };
            if place == ROW / 2 - 1 {
                html.push(' ');
            }
        }
        html.push_str(" <span class=\"ascii\">");
        let dots = |byte: &u8| if matches!(byte, b' '..=b'~') { *byte } else { b'.' };
        show::push_text(&mut html, &row.iter().map(dots).collect::<Vec<u8>>(), usize::MAX);
        html.push_str("</span>\n");
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_hex_dump_have_equal_length() {
        let html = dump(b"0123456789abcdef<\0");
        let rows: Vec<&str> = html.lines().collect();
        assert!(rows[0].contains("30 31 32 33 34 35 36 37  38 39"), "{html}");
        assert!(rows[1].starts_with("<span class=\"at\">00000010</span>  3c 00   "), "{html}");
        assert!(rows[1].ends_with("<span class=\"ascii\">&lt;.</span>"), "{html}");
    }
}
