//! What a browser may do with bytes that came from a snapshot, which may be
//! anything: whether it shows or saves them, under which name, and as what.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Longest name that is told.
const NAME_BYTES: usize = 255;

/// Characters of a name in the extended form of RFC 8187 that stand for
/// themselves.
const EXTENDED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Text that a program may understand as more than text, so it is called plain.
const TEXT: [&str; 2] = ["application/json", "application/toml"];

/// Pictures that are nothing but pictures. SVG is not among them.
const PICTURES: [&str; 6] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];

/// Whether a browser shows or saves something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It shows it.
    Inline,
    /// It saves it.
    Attachment,
}

/// What a file is, by its name; with the charset where its content, if known,
/// is UTF-8.
pub(super) fn content_type(name: &[u8], content: Option<&[u8]>) -> (HeaderValue, Manner) {
    let name = String::from_utf8_lossy(name);
    let guessed = mime_guess::from_path(name.as_ref()).first();
    let is_text = content
        .is_some_and(|content| !content.contains(&0) && std::str::from_utf8(content).is_ok());
    let essence = match &guessed {
        Some(kind) => kind.essence_str().to_owned(),
        // Most files without an ending that is known are sources of something.
        None if is_text => "text/plain".to_owned(),
        None => "application/octet-stream".to_owned(),
    };
    let takes_charset = essence.starts_with("text/") || TEXT.contains(&essence.as_str());
    let manner = match essence.as_str() {
        "text/plain" => Manner::Inline,
        picture if PICTURES.contains(&picture) => Manner::Inline,
        _ => Manner::Attachment,
    };
    let text = match takes_charset && is_text {
        true => format!("{essence}; charset=utf-8"),
        false => essence,
    };
    let kind = HeaderValue::from_str(&text);
    (kind.unwrap_or(HeaderValue::from_static("application/octet-stream")), manner)
}

/// `Content-Disposition` with the name of a file: RFC 6266 and 8187.
pub(super) fn disposition(manner: Manner, name: &[u8]) -> HeaderValue {
    let word = match manner {
        Manner::Inline => "inline",
        Manner::Attachment => "attachment",
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
        let of = |name: &[u8]| disposition(Manner::Attachment, name).to_str().unwrap().to_owned();
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
    fn only_what_is_harmless_is_shown() {
        let of = |name: &str, content: &[u8]| {
            let (kind, manner) = content_type(name.as_bytes(), Some(content));
            (kind.to_str().unwrap().to_owned(), manner)
        };
        let inline = |kind: &str| (kind.to_owned(), Manner::Inline);
        let saved = |kind: &str| (kind.to_owned(), Manner::Attachment);
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
