//! Rewrites names in a zip archive that Windows would interpret.
//!
//! Windows resolves `..\x`, `C:\x` and `x:stream`, opens a device for `CON.txt`, and
//! drops dots and spaces at the end of a name. An entry could therefore leave the folder
//! into which the archive is unpacked, or replace another entry.
//!
//! In such a name, each critical byte and each `%` is written as `%` and two hex digits.
//! A name that already looks like the result is rewritten as well. The mapping is
//! therefore injective and reversible: rewritten names contain a sequence that other
//! names do not contain.
//!
//! Names that differ only in case stay as they are, since they are two files on Unix.

use std::borrow::Cow;

/// Bytes that are rewritten at any position.
const RESOLVED: [u8; 3] = [b'\\', b':', b'%'];

/// Names of devices, except `COM` and `LPT` with a digit, which [`is_device`] handles.
const DEVICES: [&[u8]; 7] = [b"CON", b"PRN", b"AUX", b"NUL", b"CONIN$", b"CONOUT$", b"CLOCK$"];

/// Returns a path in which each name that Windows would interpret is rewritten.
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

/// Returns true if the last name of a path is rewritten.
pub(super) fn renames(path: &[u8]) -> bool {
    needs_rewriting(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path))
}

fn needs_rewriting(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'\\' | b':'))
        || ends_badly(name)
        || is_device(name)
        || looks_rewritten(name)
}

/// Returns true if Windows drops the last byte of a name.
fn ends_badly(name: &[u8]) -> bool {
    matches!(name.last(), Some(b'.' | b' '))
}

/// Returns true if the name opens a device. Everything after the first dot is ignored.
fn is_device(name: &[u8]) -> bool {
    let stem = name.split(|byte| *byte == b'.').next().unwrap_or(name).trim_ascii_end();
    let numbered = |device: &[u8]| {
        let rest = stem.get(..3).filter(|start| start.eq_ignore_ascii_case(device));
        // Windows accepts superscript digits, too.
        let digits = [&b"\xc2\xb9"[..], b"\xc2\xb2", b"\xc2\xb3"];
        rest.is_some_and(|_| matches!(&stem[3..], [b'0'..=b'9']) || digits.contains(&&stem[3..]))
    };
    DEVICES.iter().any(|device| stem.eq_ignore_ascii_case(device))
        || numbered(b"COM")
        || numbered(b"LPT")
}

/// Returns true if a name contains `%` and two upper-case hex digits.
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
    fn names_special_on_windows_are_escaped() {
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
    fn escaped_names_stay_distinct() {
        let names = ["a:b", "a%3Ab", "a%253Ab", "a%25253Ab", "a.", "a%2E", "con", "%63on", "CON"];
        let written: BTreeSet<String> = names.iter().map(|name| shown(name.as_bytes())).collect();
        assert_eq!(written.len(), names.len(), "{written:?}");
    }

    proptest! {
        #![proptest_config(snap_testkit::property::cases(256))]

        #[test]
        fn escaping_is_injective_and_leaves_no_special_name(
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
