//! Translates patterns of ignore files from git's syntax to that of `globset`.
//!
//! The two differ in braces and brackets. `globset` expands `{a,b}`, which git does not. In
//! brackets, `globset` supports neither escapes nor named classes, and lets a class match `/`. Git
//! reads brackets as `wildmatch` does: <https://git-scm.com/docs/gitignore>.
//!
//! Patterns come from outside, also from other users of a repository. [`check_cost`] refuses
//! patterns that would take long to parse or to match.

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

/// Returns the first characters of a pattern, for error messages.
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
    /// The pattern matches no path in git.
    MatchesNothing,
}

impl From<AddError> for ignore::Error {
    fn from(error: AddError) -> Self {
        match error {
            AddError::Cost(cost) => Self::Glob { glob: None, err: cost.to_string() },
            AddError::Invalid(error) => error,
            AddError::MatchesNothing => {
                Self::Glob { glob: None, err: "it can match no path".to_owned() }
            }
        }
    }
}

/// Adds a line of an ignore file, or a pattern of an option, as git reads it. Comments may have any
/// length.
///
/// # Errors
/// [`AddError`] when the pattern is too costly or invalid, or matches no path.
pub(crate) fn add_line(builder: &mut GitignoreBuilder, line: &str) -> Result<(), AddError> {
    if line.starts_with('#') {
        return Ok(());
    }
    check_cost(line.as_bytes()).map_err(AddError::Cost)?;
    let line = as_git_reads(line).ok_or(AddError::MatchesNothing)?;
    builder.add_line(None, &line).map(drop).map_err(AddError::Invalid)
}

/// Translates a pattern so that [`GitignoreBuilder`](ignore::gitignore) reads it as git does.
/// Returns `None` if the pattern matches no path in git.
///
/// Git drops trailing spaces that are not escaped by a backslash. The builder drops all trailing
/// white space, so the translation puts any other white space at the end into a group of one
/// member. (A class does not work: it holds single bytes.)
fn as_git_reads(line: &str) -> Option<Cow<'_, str>> {
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
    let inner = line.strip_suffix('/').unwrap_or(line);
    // No path has an empty name.
    let before_brackets = inner.split('[').next().unwrap_or_default();
    let has_empty_name = before_brackets.contains("//") || inner.ends_with('/');
    // For git, a pattern with an unescaped backslash at its end matches nothing. The builder would
    // drop the backslash before a `/`.
    let is_cut = (inner.len() - inner.trim_end_matches('\\').len()) % 2 == 1;
    if matches!(inner, "" | "!") && !line.is_empty() || has_empty_name || is_cut {
        return None;
    }
    match line.char_indices().next_back() {
        Some((at, last)) if last != ' ' && last.is_whitespace() => {
            let before = &line[..at];
            let backslashes = at - before.trim_end_matches('\\').len();
            // An unpaired backslash escapes the last character, which needs no escape inside the
            // group.
            let before = translate(&before[..at - backslashes % 2])?;
            Some(Cow::Owned(format!("{before}{{{last}}}")))
        }
        _ => match double_asterisk_after_name(line) {
            Some(SplitPattern { start, name, rest, end }) => {
                let (name, rest) = (translate(name)?, translate(rest)?);
                let shorter = rest.strip_prefix('/').unwrap_or("*");
                Some(Cow::Owned(format!("{start}/{{{name}{shorter},{name}*/**{rest}}}{end}")))
            }
            None => translate(line),
        },
    }
}

/// A pattern that [`double_asterisk_after_name`] has split.
struct SplitPattern<'p> {
    /// `!` for a negated pattern, else empty.
    start: &'p str,
    /// The name before the asterisks.
    name: &'p str,
    /// The text after the asterisks.
    rest: &'p str,
    /// `/` for a pattern that matches only folders, else empty.
    end: &'p str,
}

/// Splits a pattern at the first `**` if a name without wildcards stands right before it, and the
/// end or a `/` after it.
///
/// The manual of git calls such asterisks regular ones. But git compares a name without wildcards
/// on its own and reads what follows as a new pattern, at whose start a `**` also matches `/`.
fn double_asterisk_after_name(line: &str) -> Option<SplitPattern<'_>> {
    let (start, pattern) = line.split_at(usize::from(line.starts_with('!')));
    let (pattern, end) = pattern.split_at(pattern.strip_suffix('/').unwrap_or(pattern).len());
    let (name, asterisks) = pattern.split_at(pattern.find(['*', '?', '[', '\\'])?);
    let rest = asterisks.trim_start_matches('*');
    let is_split = asterisks.starts_with("**") && (rest.is_empty() || rest.starts_with('/'));
    let is_name = !name.is_empty() && !name.ends_with('/') && !line.starts_with('#');
    // Without a `/`, git compares names, which have none.
    let has_slash = pattern.contains('/');
    let name = name.strip_prefix('/').unwrap_or(name);
    (is_split && is_name && has_slash).then_some(SplitPattern { start, name, rest, end })
}

/// Translates asterisks, braces and brackets. Returns `None` if a bracket expression matches nothing.
fn translate(line: &str) -> Option<Cow<'_, str>> {
    if line.starts_with('#') || !(line.contains(['{', '}', '[']) || line.contains("***")) {
        return Some(Cow::Borrowed(line));
    }
    let (mut text, mut rest) = (String::new(), line);
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
            '*' if after.starts_with('*') => {
                text.push_str("**");
                rest = after.trim_start_matches('*');
            }
            '[' => match BracketClass::read(after) {
                ReadClass::Class(class, after) => {
                    text.push_str(&class.text());
                    rest = after;
                }
                ReadClass::NotAscii => text.push(char),
                ReadClass::MatchesNothing => return None,
            },
            _ => text.push(char),
        }
    }
    // A `/` anchors a pattern to the folder of its file, even a `/` in brackets. The translation of
    // a class drops that `/`, and adds one to a negated class, so restore what the user wrote.
    let mark = if line.starts_with('!') { "!" } else { "" };
    let is_anchored = |pattern: &str| pattern.strip_suffix('/').unwrap_or(pattern).contains('/');
    match (is_anchored(&line[mark.len()..]), is_anchored(&text[mark.len()..])) {
        (true, false) => text.insert(mark.len(), '/'),
        (false, true) => text.insert_str(mark.len(), "**/"),
        _ => {}
    }
    Some(Cow::Owned(text))
}

/// The result of reading a bracket expression.
enum ReadClass<'t> {
    /// The class, and the text after its `]`.
    Class(BracketClass, &'t str),
    /// The expression has characters outside ASCII, which [`BracketClass`] cannot represent.
    NotAscii,
    /// The expression matches nothing in git: it has no end, no member, or an unknown named class.
    MatchesNothing,
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
    /// Parses a class after its `[`.
    fn read(text: &str) -> ReadClass<'_> {
        Self::parse(text).unwrap_or(ReadClass::MatchesNothing)
    }

    /// Returns `None` if git matches nothing with the class.
    fn parse(text: &str) -> Option<ReadClass<'_>> {
        let is_negated = text.starts_with(['!', '^']);
        let bytes = text.as_bytes();
        let start = usize::from(is_negated);
        let (mut at, mut members, mut is_ascii) = (start, 0_u128, true);
        loop {
            let byte = *bytes.get(at)?;
            if byte == b']' && at > start {
                break;
            }
            if let Some(named) = text.get(at..).and_then(|rest| rest.strip_prefix("[:")) {
                let (name, _) = named.split_once(']')?;
                // Without `:]`, the `[` is a member.
                if let Some(name) = name.strip_suffix(':') {
                    let (_, is_in) = NAMED.iter().find(|(known, _)| *known == name)?;
                    (0..128_u8).filter(is_in).for_each(|byte| members |= 1 << byte);
                    at += name.len() + 4;
                    continue;
                }
            }
            let (first, next) = Self::member(bytes, at)?;
            let is_range = bytes.get(next) == Some(&b'-') && bytes.get(next + 1)? != &b']';
            let (last, next) =
                if is_range { Self::member(bytes, next + 1)? } else { (first, next) };
            is_ascii &= first.is_ascii() && last.is_ascii();
            // The first character of a range is a member even if the range is empty.
            let range = first..=last.max(first);
            range.filter(u8::is_ascii).for_each(|byte| members |= 1 << byte);
            at = next;
        }
        if !is_ascii {
            return Some(ReadClass::NotAscii);
        }
        let class = Self { is_negated, members: members & !(1 << b'/') };
        let has_members = class.members != 0 || is_negated;
        has_members.then(|| ReadClass::Class(class, &text[at + 1..]))
    }

    /// Returns the member at `at`, without its escape, and the position after it.
    fn member(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
        let escaped = usize::from(bytes.get(at) == Some(&b'\\'));
        Some((*bytes.get(at + escaped)?, at + escaped + 1))
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
        match add_line(&mut builder, pattern) {
            Ok(()) | Err(AddError::MatchesNothing) => {}
            Err(error) => panic!("{pattern}: {error:?}"),
        }
        builder.build().unwrap().matched(path, false).is_ignore()
    }

    #[test]
    fn braces_and_brackets_match_as_in_git() {
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
            // These match nothing, or less than they seem to.
            ("[", "[", false),
            ("/[", "[", false),
            ("*[", "[", false),
            ("[a", "[a", false),
            ("[a\\]", "a", false),
            ("[[:x:]]", "x]", false),
            ("[[:]", ":", true),
            ("[[:]", "[", true),
            ("[/]", "a", false),
            ("[b-a]", "b", true),
            ("[b-a]", "a", false),
            ("[!b-a]", "a", true),
            ("[x/]", "x", true),
            ("[x/]", "sub/x", false),
            ("a\\/", "a", false),
            ("\\/", "a", false),
            ("[a\u{fc}", "a", false),
            ("[\\\\]", "\\", true),
            ("!", "a", false),
            ("/", "a", false),
            ("**//", "a", false),
            ("a//b", "a/b", false),
            ("a[//b]", "ab", true),
            // Two or more asterisks.
            ("***/bar", "bar", true),
            ("a/***/b", "a/b", true),
            ("\\***/b", "*x/b", true),
            ("\\***/b", "*/x/b", false),
            ("foo**/bar", "foobar", true),
            ("foo**/bar", "foo/bar", true),
            ("foo**/bar", "foox/y/bar", true),
            ("foo**/bar", "x/foo/bar", false),
            ("/foo***/bar", "foo/y/bar", true),
            ("a/{b}**", "a/{b}c/d", true),
            ("a/b**", "a/b", true),
            ("?a/b**/c", "xa/b/d/c", false),
            ("foo**", "x/foobar", true),
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
