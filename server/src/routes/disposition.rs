//! Response headers for files from a snapshot, which are untrusted: the content type,
//! and whether a browser shows or saves the file, and under which name.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Maximum length of a file name in a header, in bytes. Longer names are truncated.
const NAME_BYTES: usize = 255;

/// Characters that need no percent-encoding in an extended parameter (RFC 8187).
const EXTENDED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Types outside `text/` that are text and get a `charset`.
const TEXT: [&str; 2] = ["application/json", "application/toml"];

/// Image types that cannot contain scripts. SVG can.
const PICTURES: [&str; 6] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];

/// What a browser does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DispositionKind {
    /// The browser shows the file.
    Inline,
    /// The browser saves the file.
    Attachment,
}

/// Guesses the content type from the file name. Adds a charset if `content` is given and is valid
/// UTF-8.
pub(super) fn content_type(name: &[u8], content: Option<&[u8]>) -> (HeaderValue, DispositionKind) {
    let name = String::from_utf8_lossy(name);
    let guessed = mime_guess::from_path(name.as_ref()).first();
    let is_text = content
        .is_some_and(|content| !content.contains(&0) && std::str::from_utf8(content).is_ok());
    let essence = match &guessed {
        Some(kind) => kind.essence_str().to_owned(),
        // Most text files without a known extension are source code.
        None if is_text => "text/plain".to_owned(),
        None => "application/octet-stream".to_owned(),
    };
    let takes_charset = essence.starts_with("text/") || TEXT.contains(&essence.as_str());
    let shown_as = match essence.as_str() {
        "text/plain" => DispositionKind::Inline,
        picture if PICTURES.contains(&picture) => DispositionKind::Inline,
        _ => DispositionKind::Attachment,
    };
    let text = match takes_charset && is_text {
        true => format!("{essence}; charset=utf-8"),
        false => essence,
    };
    let kind = HeaderValue::from_str(&text);
    (kind.unwrap_or(HeaderValue::from_static("application/octet-stream")), shown_as)
}

/// Builds a `Content-Disposition` header with the file's name (RFC 6266, RFC 8187).
pub(super) fn disposition(shown_as: DispositionKind, name: &[u8]) -> HeaderValue {
    let word = match shown_as {
        DispositionKind::Inline => "inline",
        DispositionKind::Attachment => "attachment",
    };
    let name = &name[..name.len().min(NAME_BYTES)];
    let plain = |byte: u8| match byte {
        b'"' | b'\\' | b'/' | b'%' => '_',
        b' '..=b'~' => char::from(byte),
        _ => '_',
    };
    let ascii: String = name.iter().map(|byte| plain(*byte)).collect();
    let mut text = format!("{word}; filename=\"{ascii}\"");
    if ascii.as_bytes() != name {
        let lossy = String::from_utf8_lossy(name);
        let encoded = percent_encode(lossy.as_bytes(), EXTENDED);
        text.push_str(&format!("; filename*=UTF-8''{encoded}"));
    }
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let of = |name: &[u8]| {
            disposition(DispositionKind::Attachment, name).to_str().unwrap().to_owned()
        };
        assert_eq!(of(b"a.txt"), "attachment; filename=\"a.txt\"");
        assert_eq!(
            of(b"a\"; x=\"\r\nb: c"),
            "attachment; filename=\"a_; x=___b: c\"; filename*=UTF-8''a%22%3B%20x%3D%22%0D%0Ab%3A%20c"
        );
        assert_eq!(
            of("ä.txt".as_bytes()),
            "attachment; filename=\"__.txt\"; filename*=UTF-8''%C3%A4.txt"
        );
        assert!(of(&[0xff; 300]).len() < 3000);
    }

    #[test]
    fn only_harmless_content_types_are_shown_inline() {
        let of = |name: &str, content: &[u8]| {
            let (kind, shown_as) = content_type(name.as_bytes(), Some(content));
            (kind.to_str().unwrap().to_owned(), shown_as)
        };
        let inline = |kind: &str| (kind.to_owned(), DispositionKind::Inline);
        let saved = |kind: &str| (kind.to_owned(), DispositionKind::Attachment);
        assert_eq!(of("a.txt", b"text"), inline("text/plain; charset=utf-8"));
        assert_eq!(of("a.txt", b"\xff"), inline("text/plain"));
        assert_eq!(of("Makefile", b"all:"), inline("text/plain; charset=utf-8"));
        assert_eq!(of("core", b"\0"), saved("application/octet-stream"));
        assert_eq!(of("a.html", b"<p>"), saved("text/html; charset=utf-8"));
        assert_eq!(of("a.svg", b"<svg>"), saved("image/svg+xml"));
        assert_eq!(of("a.png", b"\x89PNG"), inline("image/png"));
        assert_eq!(of("a.js", b"x"), saved("text/javascript; charset=utf-8"));
    }
}
