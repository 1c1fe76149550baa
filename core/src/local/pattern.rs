//! Patterns of ignore files, from git's syntax to that of `globset`.
//!
//! `globset` expands `{a,b}`, which git does not. It knows neither escapes nor
//! names of classes in brackets, and lets a class match `/`. Git reads brackets
//! as `wildmatch` does: <https://git-scm.com/docs/gitignore>.

use std::borrow::Cow;

/// A pattern in the form in which [`GitignoreBuilder`](ignore::gitignore) reads
/// it as git does.
///
/// Git drops trailing spaces that no backslash escapes. The builder drops all
/// trailing white space, so another kind at the end becomes a group of one. (A
/// class would not do: it holds single bytes.)
pub(crate) fn as_git_reads(line: &str) -> Cow<'_, str> {
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
            // An odd one escapes the last character, and the group needs none.
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
            '[' => match Class::read(after) {
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
    // Only a `/` of the user's ties a pattern to the folder of its file.
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

/// The ASCII characters that a class in brackets names.
struct Class {
    is_negated: bool,
    members: u128,
}

/// Whether a character is in a named class.
type IsIn = fn(&u8) -> bool;

/// Names of classes, and what is in them.
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

impl Class {
    /// Reads a class behind its `[`; with what follows its `]`. `None` for what
    /// is no class, or has other characters than those of ASCII.
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

    /// The character at `at`, and where the next one begins.
    fn member(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
        let escaped = usize::from(bytes.get(at) == Some(&b'\\'));
        let byte = *bytes.get(at + escaped)?;
        byte.is_ascii().then_some((byte, at + escaped + 1))
    }

    /// The class as `globset` reads it: without escapes, `]` first, `-` last,
    /// and nothing at the front that would negate it.
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
            // Alone, either would negate a class.
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
    use ignore::gitignore::GitignoreBuilder;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let mut builder = GitignoreBuilder::new("");
        builder.add_line(None, &as_git_reads(pattern)).unwrap();
        builder.build().unwrap().matched(path, false).is_ignore()
    }

    #[test]
    fn braces_and_brackets_mean_what_they_mean_in_git() {
        // Each answer is that of `git check-ignore`, of git 2.39.
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
}
