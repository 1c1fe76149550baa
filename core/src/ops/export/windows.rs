//! Names in a zip archive that mean the same on Windows as here.
//!
//! Windows resolves `..\x`, `C:\x` and `x:stream`, opens a device for `CON.txt`,
//! and drops dots and spaces from the end of a name. So an entry could leave the
//! folder that the archive is unpacked into, or take the place of another one.
//!
//! Such a name is written with `%` and two hex digits for each byte that
//! matters, and for each `%`. A name is rewritten as well when it looks like
//! the result of that. So no two names become one: results of rewriting hold a
//! sequence that other names do not, and rewriting can be undone.
//!
//! Names that differ in case only stay as they are: on Unix they are two files.

use std::borrow::Cow;

/// Bytes that are rewritten wherever they stand.
const RESOLVED: [u8; 3] = [b'\\', b':', b'%'];

/// Names of devices; those with a digit behind `COM` and `LPT` are in
/// [`is_device`].
const DEVICES: [&[u8]; 7] = [b"CON", b"PRN", b"AUX", b"NUL", b"CONIN$", b"CONOUT$", b"CLOCK$"];

/// A path with each of its names rewritten where Windows would resolve it.
pub(super) fn path(path: &[u8]) -> Cow<'_, [u8]> {
    if path.split(|byte| *byte == b'/').all(|name| !needs_rewriting(name)) {
        return Cow::Borrowed(path);
    }
    let mut written = Vec::with_capacity(path.len() + 16);
    for (at, name) in path.split(|byte| *byte == b'/').enumerate() {
        if at > 0 {
            written.push(b'/');
        }
        match needs_rewriting(name) {
            true => rewrite(name, &mut written),
            false => written.extend_from_slice(name),
        }
    }
    Cow::Owned(written)
}

/// Whether the last name of a path is rewritten.
pub(super) fn renames(path: &[u8]) -> bool {
    needs_rewriting(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path))
}

fn needs_rewriting(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'\\' | b':'))
        || ends_badly(name)
        || is_device(name)
        || looks_rewritten(name)
}

/// Whether Windows drops the last byte.
fn ends_badly(name: &[u8]) -> bool {
    matches!(name.last(), Some(b'.' | b' '))
}

/// Whether a name opens a device, with whatever follows a dot.
fn is_device(name: &[u8]) -> bool {
    let stem = name.split(|byte| *byte == b'.').next().unwrap_or(name).trim_ascii_end();
    let numbered = |device: &[u8]| {
        let rest = stem.get(..3).filter(|start| start.eq_ignore_ascii_case(device));
        // Windows takes superscript digits, too.
        let digits = [&b"\xc2\xb9"[..], b"\xc2\xb2", b"\xc2\xb3"];
        rest.is_some_and(|_| matches!(&stem[3..], [b'0'..=b'9']) || digits.contains(&&stem[3..]))
    };
    DEVICES.iter().any(|device| stem.eq_ignore_ascii_case(device))
        || numbered(b"COM")
        || numbered(b"LPT")
}

/// Whether a name holds `%` and two capital hex digits.
fn looks_rewritten(name: &[u8]) -> bool {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
    name.windows(3).any(|three| three[0] == b'%' && three[1..].iter().all(is_hex))
}

fn rewrite(name: &[u8], written: &mut Vec<u8>) {
    let last = name.len() - 1;
    let device = is_device(name);
    for (at, byte) in name.iter().enumerate() {
        let is_resolved =
            RESOLVED.contains(byte) || (at == last && ends_badly(name)) || (at == 0 && device);
        match is_resolved {
            true => written.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            false => written.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn shown(path: &[u8]) -> String {
        String::from_utf8(super::path(path).into_owned()).unwrap()
    }

    #[test]
    fn what_windows_would_resolve_is_rewritten() {
        for (name, written) in [
            ("..\\..\\evil.txt", "..%5C..%5Cevil.txt"),
            ("C:\\x", "C%3A%5Cx"),
            ("file.txt:stream", "file.txt%3Astream"),
            ("a/con", "a/%63on"),
            ("a/NUL.tar.gz", "a/%4EUL.tar.gz"),
            ("aux .c", "%61ux .c"),
            ("COM1", "%43OM1"),
            ("lpt\u{b2}.x", "%6Cpt\u{b2}.x"),
            ("CONOUT$", "%43ONOUT$"),
            ("evil.exe.", "evil.exe%2E"),
            ("dots...", "dots..%2E"),
            ("folder /x", "folder%20/x"),
            ("a%5Cb", "a%255Cb"),
            ("50%:", "50%25%3A"),
        ] {
            assert_eq!(shown(name.as_bytes()), written);
        }
        for kept in ["a/b.txt", ".hidden", "console", "COM", "COM10", "100% sure", "%zz", "a b"] {
            assert_eq!(shown(kept.as_bytes()), kept);
            assert!(!renames(kept.as_bytes()));
        }
        assert!(renames(b"a/con") && !renames(b"con/a"));
    }

    #[test]
    fn rewritten_names_are_not_rewritten_into_each_other() {
        let names = ["a:b", "a%3Ab", "a%253Ab", "a%25253Ab", "a.", "a%2E", "con", "%63on", "CON"];
        let written: BTreeSet<String> = names.iter().map(|name| shown(name.as_bytes())).collect();
        assert_eq!(written.len(), names.len(), "{written:?}");
    }

    proptest! {
        #[test]
        fn no_two_names_become_one_and_none_is_resolved(
            a in "[ab.: %\\\\2E5C3con]{1,8}",
            b in "[ab.: %\\\\2E5C3con]{1,8}",
        ) {
            let (x, y) = (shown(a.as_bytes()), shown(b.as_bytes()));
            prop_assert_eq!(a == b, x == y);
            prop_assert!(!x.contains(['\\', ':']) && !x.ends_with(['.', ' ']));
            prop_assert!(!is_device(x.as_bytes()));
        }
    }
}
