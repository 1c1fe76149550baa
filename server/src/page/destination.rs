//! Where the links and images of a Markdown document lead.
//!
//! A document may link to web sites, to its own headings, and to paths in its commit. Other
//! destinations get no link: `javascript:` and other schemes, `//host`, and paths that leave the
//! commit.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use snap_remote::wire::routes::encode_segment;

/// Prefixes of web addresses that a document may link to.
const SCHEMES: [&str; 2] = ["http://", "https://"];

/// Bytes of a web address that are percent-encoded.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'\'').add(b'<').add(b'>').add(b'\\').add(b'`');

/// Maximum length of the id of a heading, in characters, without the prefix.
const ANCHOR_CHARS: usize = 100;

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// A web address, encoded.
    Web(String),
    /// A heading of the document, as an encoded URL fragment.
    Heading(String),
    /// A path in the commit, and an encoded URL fragment, which may be empty.
    Path(Vec<u8>, String),
}

impl Destination {
    /// Resolves the destination of a link in a document that lies in `folder`. Returns `None` if a
    /// link must not lead there.
    pub(super) fn parse(text: &str, folder: &[u8]) -> Option<Self> {
        let is_web = |scheme: &&str| {
            text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        if SCHEMES.iter().any(is_web) {
            return Some(Self::Web(utf8_percent_encode(text, ESCAPED).to_string()));
        }
        let (address, fragment) = text.split_once('#').unwrap_or((text, ""));
        if address.is_empty() {
            return Some(Self::Heading(encoded_anchor(fragment)));
        }
        let path = address.split('?').next().unwrap_or_default();
        let has_scheme = path.split('/').next().is_some_and(|first| first.contains(':'));
        if has_scheme || address.starts_with("//") {
            return None;
        }
        let path = resolve(path, folder)?;
        let fragment = match fragment {
            "" => String::new(),
            fragment if is_markdown(&path) => encoded_anchor(fragment),
            fragment => encode_segment(&percent_decode_str(fragment).collect::<Vec<u8>>()),
        };
        Some(Self::Path(path, fragment))
    }
}

/// Resolves a path in a document that lies in `folder`. A leading slash means the top folder of the
/// commit. Returns `None` if the path leaves the commit.
fn resolve(path: &str, folder: &[u8]) -> Option<Vec<u8>> {
    let base = if path.starts_with('/') { b"" } else { folder };
    let mut parts: Vec<Vec<u8>> =
        base.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(Vec::from).collect();
    for part in path.split('/') {
        match percent_decode_str(part).collect::<Vec<u8>>() {
            part if part.is_empty() || part == b"." => {}
            part if part == b".." => drop(parts.pop()?),
            part if part.contains(&b'/') => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

/// Returns true if files of this name are rendered as Markdown.
pub(super) fn is_markdown(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(b".md") || name.ends_with(b".markdown")
}

/// Returns the id of a heading with this text. The prefix avoids collisions with ids of the page.
pub(super) fn anchor(text: &str) -> String {
    let kept = text.trim().chars().take(ANCHOR_CHARS).filter_map(|c| match c {
        c if c.is_whitespace() => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    });
    format!("text-{}", kept.flat_map(char::to_lowercase).collect::<String>())
}

/// Returns the encoded id of the heading that a URL fragment names.
fn encoded_anchor(fragment: &str) -> String {
    encode_segment(anchor(&percent_decode_str(fragment).decode_utf8_lossy()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Destination> {
        Destination::parse(text, b"docs/guide")
    }

    fn path(path: &str) -> Option<Destination> {
        Some(Destination::Path(path.into(), String::new()))
    }

    #[test]
    fn paths_are_resolved_in_the_commit() {
        for (text, wanted) in [
            ("a.png", "docs/guide/a.png"),
            ("./a%20b.md", "docs/guide/a b.md"),
            ("../x/./y//z", "docs/x/y/z"),
            ("../..", ""),
            ("/LICENSE", "LICENSE"),
            ("a.png?raw=true", "docs/guide/a.png"),
            ("a\\b", "docs/guide/a\\b"),
            ("%2e%2e/a", "docs/a"),
            ("sub/a:b", "docs/guide/sub/a:b"),
        ] {
            assert_eq!(parse(text), path(wanted), "{text}");
        }
        for text in
            ["../../..", "../../../etc/passwd", "/..", "/a/../../b", "%2e%2e/../..", "a%2Fb"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn other_schemes_and_hosts_are_refused() {
        for text in [
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "java\tscript:alert(1)",
            "\u{1}javascript:alert(1)",
            " javascript:alert(1)",
            "data:text/html,x",
            "vbscript:x",
            "file:///etc/passwd",
            "mailto:ada@example.org",
            "http:evil.example",
            "https:/evil.example",
            "https:\\\\evil.example",
            "//evil.example",
            "//evil.example/a#b",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        // A browser would read the backslash as a slash. Here it is a part of a name.
        assert_eq!(parse("/\\evil.example"), path("\\evil.example"));
        let web = |address: &str| Some(Destination::Web(address.to_owned()));
        assert_eq!(parse("HTTPS://a.example/?b#c"), web("HTTPS://a.example/?b#c"));
        assert_eq!(parse("http://a\" x='\u{202e}"), web("http://a%22%20x=%27%E2%80%AE"));
    }

    #[test]
    fn fragments_name_headings_and_lines() {
        let heading = |id: &str| Some(Destination::Heading(id.to_owned()));
        assert_eq!(anchor(" What's new? (v2_1) "), "text-whats-new-v2_1");
        assert_eq!(parse("#whats-new-v2_1"), heading("text-whats-new-v2_1"));
        assert_eq!(parse("#\u{fc}ber"), heading("text-%C3%BCber"));
        assert_eq!(parse("#\"><script>"), heading("text-script"));
        let at = |path: &str, id: &str| Some(Destination::Path(path.into(), id.to_owned()));
        assert_eq!(parse("b.md#Limits"), at("docs/guide/b.md", "text-limits"));
        assert_eq!(parse("a.rs#L10"), at("docs/guide/a.rs", "L10"));
        assert_eq!(anchor(&"\u{e9}".repeat(500)).chars().count(), ANCHOR_CHARS + 5);
    }
}
