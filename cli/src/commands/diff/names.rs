//! Formats paths in lists and headers of a comparison.

use std::io::{self, Write};

use snap_core::ops::diff::{Change, Status};

use crate::ui::{Out, Ui, text};

/// Returns the letter of a status, as in git.
pub(crate) fn letter(status: Status) -> char {
    match status {
        Status::Added => 'A',
        Status::Deleted => 'D',
        Status::Ignored => 'I',
        Status::Modified | Status::Metadata => 'M',
        Status::Kind => 'T',
        Status::Renamed => 'R',
    }
}

/// Returns the word for a status, as `snap status` prints it.
pub(crate) fn word(status: Status) -> &'static str {
    match status {
        Status::Added => "added",
        Status::Deleted => "deleted",
        Status::Ignored => "now ignored",
        Status::Modified => "modified",
        Status::Metadata => "metadata",
        Status::Kind => "typechange",
        Status::Renamed => "renamed",
    }
}

/// The separators between the parts of a line and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Line,
    Nul,
}

/// Writes the paths of a change on one line, with the letter of its status if requested.
pub(crate) fn write_line(
    out: &mut Out,
    ui: &Ui,
    change: &Change,
    (with_letter, ends): (Option<char>, Ends),
) -> io::Result<()> {
    let (between, end) = match ends {
        Ends::Line => (b"\t", b"\n"),
        Ends::Nul => (b"\0", b"\0"),
    };
    if let Some(letter) = with_letter {
        let letter = letter.to_string();
        out.write_all(ui.paint().change(change.status(), &letter).as_bytes())?;
        out.write_all(between)?;
        if let Some(old) = &change.old_path {
            out.write_all(&shown(ui, old))?;
            out.write_all(between)?;
        }
    }
    out.write_all(&shown(ui, &change.path))?;
    if change.item().what.is_folder() {
        out.write_all(b"/")?;
    }
    out.write_all(end)
}

/// Formats a path for a list; a pipe gets the bytes unchanged.
pub(crate) fn shown(ui: &Ui, path: &[u8]) -> Vec<u8> {
    if ui.is_terminal() { text::line(path).into_bytes() } else { path.to_vec() }
}

/// Formats a path for a header that `patch` and git read. Quotes and escapes it if it has bytes
/// that would confuse them or a terminal. A space confuses `patch`.
pub(crate) fn quoted(side: &str, path: &[u8]) -> String {
    let whole = [side.as_bytes(), path].concat();
    match std::str::from_utf8(&whole) {
        Ok(plain) if text::line(&whole) == plain && !plain.contains(['"', '\\', ' ']) => {
            plain.to_owned()
        }
        _ => {
            let mut quoted = String::from("\"");
            for byte in whole {
                match byte {
                    b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
                    b'\n' => quoted.push_str("\\n"),
                    b'\t' => quoted.push_str("\\t"),
                    0x20..0x7f => quoted.push(char::from(byte)),
                    _ => quoted.push_str(&format!("\\{byte:03o}")),
                }
            }
            quoted.push('"');
            quoted
        }
    }
}

/// Formats `old => new` with common parts written once: `src/{a => b}/x`.
pub(crate) fn format_rename(old: &[u8], new: &[u8]) -> Vec<u8> {
    let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let front = old[..front].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    // The slash at the end of the front may also be the start of the back.
    let floor = front.saturating_sub(1);
    let (rest_old, rest_new) = (&old[floor..], &new[floor..]);
    let same = rest_old.iter().rev().zip(rest_new.iter().rev()).take_while(|(a, b)| a == b).count();
    let tail = &old[old.len() - same..];
    let back = tail.iter().position(|b| *b == b'/').map_or(0, |at| same - at);
    if front == 0 && back == 0 {
        return [old, b" => ", new].concat();
    }
    let middle = |path: &[u8]| path[front..(path.len() - back).max(front)].to_vec();
    let (a, b) = (middle(old), middle(new));
    [&old[..front], b"{", &a, b" => ", &b, b"}", &old[old.len() - back..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_headers_are_quoted_as_git_does() {
        assert_eq!(quoted("a/", "dir/naïve-file".as_bytes()), "a/dir/naïve-file");
        assert_eq!(quoted("a/", "naïve file".as_bytes()), r#""a/na\303\257ve file""#);
        assert_eq!(quoted("b/", b"a\nb\"c\\"), r#""b/a\nb\"c\\""#);
        assert_eq!(quoted("", b"\xff\x1b[m"), r#""\377\033[m""#);
        assert_eq!(quoted("", "a\u{202e}b".as_bytes()), r#""a\342\200\256b""#);
    }

    #[test]
    fn what_both_paths_share_is_said_once() {
        let arrow = |old: &str, new: &str| {
            String::from_utf8(super::format_rename(old.as_bytes(), new.as_bytes())).unwrap()
        };
        assert_eq!(arrow("a", "b"), "a => b");
        assert_eq!(arrow("src/a.rs", "src/b.rs"), "src/{a.rs => b.rs}");
        assert_eq!(arrow("old/x/f", "new/x/f"), "{old => new}/x/f");
        assert_eq!(arrow("a/b/c", "a/c"), "a/{b => }/c");
        assert_eq!(arrow("a/c", "a/b/c"), "a/{ => b}/c");
        assert_eq!(arrow("f", "a/f"), "f => a/f");
    }
}
