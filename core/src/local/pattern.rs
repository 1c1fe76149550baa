//! Translates patterns of ignore files from git's syntax to that of `globset`.
//!
//! The two differ in braces and brackets. `globset` expands `{a,b}`, which git does not. In
//! brackets, `globset` supports neither escapes nor named classes, and lets a class match `/`. Git
//! reads brackets as `wildmatch` does: <https://git-scm.com/docs/gitignore>.
//!
//! Patterns come from outside, also from other users of a repository. [`check_cost`] refuses those
//! that would take long to parse or to match.

use std::borrow::Cow;

use ignore::gitignore::GitignoreBuilder;

use crate::base::limits;

/// Why a pattern is too costly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternCost {
    /// The pattern is longer than [`limits::PATTERN_BYTES`].
    #[error("it is longer than {} bytes", limits::PATTERN_BYTES)]
    Bytes,
    /// The pattern has more than [`limits::PATTERN_WILDCARDS`] wildcards.
    #[error("it has more than {} wildcards", limits::PATTERN_WILDCARDS)]
    Wildcards,
    /// The pattern and those before it in its file have more than
    /// [`limits::IGNORE_FILE_WILDCARDS`] wildcards.
    #[error("its file has more than {} wildcards", limits::IGNORE_FILE_WILDCARDS)]
    File,
}

/// Checks the length of a pattern and the number of its wildcards.
///
/// # Errors
/// [`PatternCost`] names the limit that the pattern exceeds.
pub(crate) fn check_cost(pattern: &[u8]) -> Result<(), PatternCost> {
    if pattern.len() > limits::PATTERN_BYTES {
        return Err(PatternCost::Bytes);
    }
    match wildcards(pattern) > limits::PATTERN_WILDCARDS {
        true => Err(PatternCost::Wildcards),
        false => Ok(()),
    }
}

/// Returns the number of wildcards of a pattern, including escaped ones.
pub(crate) fn wildcards(pattern: &[u8]) -> usize {
    let is_wildcard = |at: &usize| match pattern[*at] {
        b'*' => *at == 0 || pattern[*at - 1] != b'*',
        byte => matches!(byte, b'?' | b'[' | b'{'),
    };
    (0..pattern.len()).filter(is_wildcard).count()
}

/// Returns the part of a pattern that an error message shows.
pub(crate) fn excerpt(pattern: &str) -> String {
    const CHARS: usize = 60;
    match pattern.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

/// Why a line was not added.
#[derive(Debug)]
pub(crate) enum AddError {
    /// The pattern is too costly.
    Cost(PatternCost),
    /// The pattern has a syntax error.
    Invalid(ignore::Error),
}

impl From<AddError> for ignore::Error {
    fn from(error: AddError) -> Self {
        match error {
            AddError::Cost(cost) => Self::Glob { glob: None, err: cost.to_string() },
            AddError::Invalid(error) => error,
        }
    }
}

/// Adds a line of an ignore file, or a pattern of an option, as git reads it. Comments may have any
/// length.
///
/// # Errors
/// [`AddError`] when the pattern is too costly or invalid.
pub(crate) fn add_line(builder: &mut GitignoreBuilder, line: &str) -> Result<(), AddError> {
    if line.starts_with('#') {
        return Ok(());
    }
    check_cost(line.as_bytes()).map_err(AddError::Cost)?;
    builder.add_line(None, &as_git_reads(line)).map(drop).map_err(AddError::Invalid)
}

/// Translates a pattern so that [`GitignoreBuilder`](ignore::gitignore) reads it as git does.
///
/// Git drops trailing spaces that are not escaped by a backslash. The builder drops all trailing
/// white space, so any other white space at the end is put into a group of one member. (A class
/// does not work: it holds single bytes.)
fn as_git_reads(line: &str) -> Cow<'_, str> {
    let mut end = 0;
    let mut chars = line.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            ' ' => {}
            '\\' => end = chars.next().map_or(line.len(), |(at, char)| at + char.len_utf8()),
            _ => end = at + char.len_utf8(),
        }
    }
    let line = &line[..end];
    match line.char_indices().next_back() {
        Some((at, last)) if last != ' ' && last.is_whitespace() => {
            let before = &line[..at];
            let backslashes = at - before.trim_end_matches('\\').len();
            // An odd backslash escapes the last character; inside the group no escape is needed.
            let before = translate(&before[..at - backslashes % 2]);
            Cow::Owned(format!("{before}{{{last}}}"))
        }
        _ => translate(line),
    }
}

/// Translates braces and brackets.
fn translate(line: &str) -> Cow<'_, str> {
    if line.starts_with('#') || !line.contains(['{', '}', '[']) {
        return Cow::Borrowed(line);
    }
    let (mut text, mut rest, mut has_slash) = (String::new(), line, false);
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        rest = after;
        match char {
            '\\' => {
                text.push(char);
                text.extend(after.chars().next());
                rest = &after[after.chars().next().map_or(0, char::len_utf8)..];
            }
            '{' | '}' => text.extend(['\\', char]),
            '[' => match BracketClass::read(after) {
                Some((class, after)) => {
                    has_slash |= class.is_negated;
                    text.push_str(&class.text());
                    rest = after;
                }
                None => text.push(char),
            },
            _ => text.push(char),
        }
    }
    // Only a `/` that the user wrote anchors a pattern to the folder of its file.
    let (mark, own) = match line.strip_prefix('!') {
        Some(own) => ("!", own),
        None => ("", line),
    };
    let is_free = !own.strip_suffix('/').unwrap_or(own).contains('/');
    if has_slash && is_free {
        text.insert_str(mark.len(), "**/");
    }
    Cow::Owned(text)
}

/// The ASCII characters in a bracket expression.
struct BracketClass {
    is_negated: bool,
    members: u128,
}

/// A function that tests if a character is in a named class.
type IsIn = fn(&u8) -> bool;

/// Named classes and their members.
const NAMED: [(&str, IsIn); 12] = [
    ("alnum", u8::is_ascii_alphanumeric),
    ("alpha", u8::is_ascii_alphabetic),
    ("blank", |byte| matches!(byte, b' ' | b'\t')),
    ("cntrl", u8::is_ascii_control),
    ("digit", u8::is_ascii_digit),
    ("graph", u8::is_ascii_graphic),
    ("lower", u8::is_ascii_lowercase),
    ("print", |byte| byte.is_ascii_graphic() || *byte == b' '),
    ("punct", u8::is_ascii_punctuation),
    ("space", |byte| byte.is_ascii_whitespace() || *byte == 0x0b),
    ("upper", u8::is_ascii_uppercase),
    ("xdigit", u8::is_ascii_hexdigit),
];

impl BracketClass {
    /// Parses a class after its `[`. Returns the class and the text after its `]`. Returns `None`
    /// if the text is not a class, or contains characters outside ASCII.
    fn read(text: &str) -> Option<(Self, &str)> {
        let is_negated = text.starts_with(['!', '^']);
        let bytes = text.as_bytes();
        let (mut at, mut members) = (usize::from(is_negated), 0_u128);
        let start = at;
        loop {
            let byte = *bytes.get(at)?;
            if byte == b']' && at > start {
                break;
            }
            if let Some(named) = text.get(at..).and_then(|rest| rest.strip_prefix("[:")) {
                let (name, _) = named.split_once(":]")?;
                let (_, is_in) = NAMED.iter().find(|(known, _)| *known == name)?;
                (0..128_u8).filter(is_in).for_each(|byte| members |= 1 << byte);
                at += name.len() + 4;
                continue;
            }
            let (first, next) = Self::member(bytes, at)?;
            let is_range = bytes.get(next) == Some(&b'-') && bytes.get(next + 1)? != &b']';
            let (last, next) =
                if is_range { Self::member(bytes, next + 1)? } else { (first, next) };
            if first > last {
                return None;
            }
            (first..=last).for_each(|byte| members |= 1 << byte);
            at = next;
        }
        let class = Self { is_negated, members: members & !(1 << b'/') };
        (class.members != 0 || is_negated).then_some((class, &text[at + 1..]))
    }

    /// Returns the character at `at`, and the position of the next one.
    fn member(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
        let escaped = usize::from(bytes.get(at) == Some(&b'\\'));
        let byte = *bytes.get(at + escaped)?;
        byte.is_ascii().then_some((byte, at + escaped + 1))
    }

    /// Formats the class for `globset`: without escapes, with `]` first and `-` last, and without a
    /// negating character at the front.
    fn text(&self) -> String {
        let has = |byte: u8| self.members & 1 << byte != 0;
        let mut text = String::new();
        if has(b']') {
            text.push(']');
        }
        let special = |byte: u8| matches!(byte, b']' | b'-' | b'!' | b'^');
        let mut byte = 0;
        while byte < 128 {
            let first = byte;
            while byte < 128 && has(byte) && !special(byte) {
                byte += 1;
            }
            match byte - first {
                0 => byte += 1,
                1 => text.push(char::from(first)),
                _ => text.extend([char::from(first), '-', char::from(byte - 1)]),
            }
        }
        if self.is_negated {
            text.push('/');
        }
        if text.is_empty() && has(b'-') {
            text.push('-');
        }
        match (text.is_empty(), has(b'!'), has(b'^')) {
            // As the first character, either of them would negate the class.
            (true, true, false) => return "\\!".to_owned(),
            (true, false, true) => return "\\^".to_owned(),
            (true, true, true) => return "{\\!,\\^}".to_owned(),
            (false, has_mark, has_caret) => {
                text.extend(has_mark.then_some('!'));
                text.extend(has_caret.then_some('^'));
            }
            (true, false, false) => {}
        }
        if has(b'-') && !text.starts_with('-') {
            text.push('-');
        }
        format!("[{}{text}]", if self.is_negated { "!" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let mut builder = GitignoreBuilder::new("");
        add_line(&mut builder, pattern).unwrap();
        builder.build().unwrap().matched(path, false).is_ignore()
    }

    #[test]
    fn braces_and_brackets_mean_what_they_mean_in_git() {
        // The expected answers come from `git check-ignore` of git 2.39.
        for (pattern, path, ignored) in [
            ("*.{jpg,png}", "a.jpg", false),
            ("*.{jpg,png}", "a.{jpg,png}", true),
            ("x{1,2}", "x1", false),
            ("a{b", "a{b", true),
            ("\\{a}", "{a}", true),
            ("[{}]", "{", true),
            ("[a\\]]", "a", true),
            ("[a\\]]", "]", true),
            ("[a\\]]", "a]", false),
            ("[a\\]]", "\\]", false),
            ("[]a]", "]", true),
            ("[!]a]", "b", true),
            ("[!]a]", "]", false),
            ("[[:alpha:]]x", "qx", true),
            ("[[:alpha:]]x", "1x", false),
            ("[![:digit:]_]", "_", false),
            ("[![:digit:]_]", "a", true),
            ("[a-c-]", "-", true),
            ("[a-c-]", "b", true),
            ("[!!]", "!", false),
            ("[!!]", "a", true),
            ("[\\!]", "!", true),
            ("[\\!^]", "^", true),
            ("[^^]", "^", false),
            ("[-!]", "-", true),
            ("[+-9]", "5", true),
            ("a[!x]b", "a/b", false),
            ("a[!x]b", "sub/ayb", true),
            ("sub/a[!x]b", "sub/ayb", true),
            ("sub/a[!x]b", "other/sub/ayb", false),
            ("[[-\\]]", "\\", true),
            ("[\\\\]", "\\", true),
        ] {
            assert_eq!(matches(pattern, path), ignored, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_that_are_costly_to_match_are_refused() {
        let add = |line: &str| {
            let added = add_line(&mut GitignoreBuilder::new(""), line);
            added.map_err(|error| ignore::Error::from(error).to_string())
        };
        for line in ["a".repeat(4096), "*".repeat(4096), "[a]".repeat(256), "**/".repeat(256)] {
            assert_eq!(add(&line), Ok(()), "{}", excerpt(&line));
        }
        let too_long = Err("it is longer than 4096 bytes".to_owned());
        assert_eq!(add(&"a".repeat(4097)), too_long);
        assert_eq!(add(&"**/".repeat(20_000)), too_long);
        let too_many = Err("it has more than 256 wildcards".to_owned());
        for wildcard in ["[", "[a]", "**/", "*a", "?", "{a}"] {
            assert_eq!(add(&wildcard.repeat(257)), too_many, "{wildcard}");
        }
        assert_eq!(add(&format!("#{}", "[".repeat(1_000_000))), Ok(()), "a comment");
    }
}
