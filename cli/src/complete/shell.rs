//! How shells split and quote words, and what their scripts are told.
//!
//! An answer is lines. The first says what else the shell is to offer when there is
//! nothing below it: `:files`, `:folders` or `:nothing`. Each other line is a
//! candidate: `=` when a space follows it, `+` when the word may go on, then
//! the word, then a tab and a few words about it where there are any.
//!
//! bash is told more, because it understands less. It splits words at `:`,
//! `=` and others and replaces what is behind the last of them only, knows
//! nothing of descriptions, and inserts what it gets as it is. So the script
//! passes the line, and each word comes back quoted, without the front that
//! stays, with its space.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::{Answer, Candidate, Files};

/// A quote that is still open at the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// A line of a shell, up to the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Whole words, without quotes.
    pub(crate) before: Vec<OsString>,
    /// The word at the cursor, without quotes.
    pub(crate) current: OsString,
    /// Where that word starts in the line.
    start: usize,
    quote: Quote,
    /// Where the open quote is.
    quote_at: usize,
}

impl Line {
    /// Splits a line of bash or fish.
    pub(crate) fn split(line: &[u8]) -> Self {
        let mut words: Vec<OsString> = Vec::new();
        let mut word: Option<(usize, Vec<u8>)> = None;
        let (mut quote, mut quote_at) = (Quote::None, 0);
        let mut bytes = line.iter().copied().enumerate().peekable();
        while let Some((at, byte)) = bytes.next() {
            if quote == Quote::None && byte.is_ascii_whitespace() {
                words.extend(word.take().map(|(_, word)| OsString::from_vec(word)));
                continue;
            }
            let (_, word) = word.get_or_insert_with(|| (at, Vec::new()));
            match (quote, byte) {
                (Quote::None, b'\'') => (quote, quote_at) = (Quote::Single, at),
                (Quote::None, b'"') => (quote, quote_at) = (Quote::Double, at),
                (Quote::Single, b'\'') | (Quote::Double, b'"') => quote = Quote::None,
                (Quote::None, b'\\') => word.extend(bytes.next().map(|(_, byte)| byte)),
                (Quote::Double, b'\\') => match bytes.peek() {
                    Some((_, b'"' | b'\\' | b'$' | b'`')) => {
                        word.extend(bytes.next().map(|(_, byte)| byte));
                    }
                    _ => word.push(byte),
                },
                (_, byte) => word.push(byte),
            }
        }
        let (start, current) = word.unwrap_or((line.len(), Vec::new()));
        Self { before: words, current: OsString::from_vec(current), start, quote, quote_at }
    }

    /// Where the part of the line starts that bash replaces.
    fn replaced_from(&self, line: &[u8], breaks: &[u8]) -> usize {
        if self.quote != Quote::None {
            return self.quote_at + 1;
        }
        let mut from = self.start;
        let mut at = self.start;
        let mut open = None;
        while let Some(byte) = line.get(at) {
            match (open, byte) {
                (Some(quote), byte) if quote == *byte => open = None,
                (None | Some(b'"'), b'\\') => at += 1,
                // With its quote, once that is closed.
                (None, b'\'' | b'"') => (open, from) = (Some(*byte), at),
                (None, byte) if breaks.contains(byte) => from = at + 1,
                _ => {}
            }
            at += 1;
        }
        from.min(line.len())
    }
}

/// What the script of zsh or fish is told.
pub(crate) fn lines(answer: &Answer) -> Vec<u8> {
    let mut shown = Vec::new();
    shown.extend_from_slice(match answer.files {
        Files::All => b":files\n",
        Files::Folders => b":folders\n",
        Files::None => b":nothing\n",
    });
    for Candidate { value, about, goes_on } in &answer.candidates {
        shown.push(if *goes_on { b'+' } else { b'=' });
        shown.extend_from_slice(value);
        if !about.is_empty() {
            shown.push(b'\t');
            shown.extend_from_slice(about.as_bytes());
        }
        shown.push(b'\n');
    }
    shown
}

/// What bash says about a completion.
#[derive(Debug)]
pub(crate) struct Bash<'a> {
    /// The line up to the cursor.
    pub(crate) line: &'a OsStr,
    /// `COMP_WORDBREAKS`
    pub(crate) breaks: &'a OsStr,
    /// `COMP_TYPE`: 9, 33, 63 and 64 where words are listed before one is taken.
    pub(crate) lists: bool,
}

impl Bash<'_> {
    /// What the script of bash is told.
    pub(crate) fn lines(&self, at: &Line, answer: &Answer) -> Vec<u8> {
        let from = at.replaced_from(self.line.as_bytes(), self.breaks.as_bytes());
        // The part of the word that stays on the line, without its quotes.
        let stays = Line::split(&self.line.as_bytes()[at.start..from]);
        let stays = stays.current.as_bytes().len();
        let describe = self.lists && answer.candidates.len() > 1;
        let shorter = answer.candidates.iter().map(|c| {
            let rest = c.value.get(stays..).unwrap_or_default();
            let mut value = at.quoted(rest, from == at.start);
            if describe && !c.about.is_empty() {
                value.extend_from_slice(b"  (");
                value.extend_from_slice(c.about.as_bytes());
                value.push(b')');
            } else if !c.goes_on && at.quote == Quote::None {
                value.push(b' ');
            }
            Candidate { value, about: String::new(), goes_on: c.goes_on }
        });
        lines(&Answer { candidates: shorter.collect(), files: answer.files })
    }
}

impl Line {
    /// `text` as it must stand on the line of bash; `first` if it starts a word.
    fn quoted(&self, text: &[u8], first: bool) -> Vec<u8> {
        let mut quoted = Vec::with_capacity(text.len());
        for (at, &byte) in text.iter().enumerate() {
            let escape: &[u8] = match self.quote {
                Quote::Single if byte == b'\'' => b"'\\'",
                Quote::Double if b"\"\\$`".contains(&byte) => b"\\",
                Quote::None if b" \"'\\$`&|;<>()[]{}*?!".contains(&byte) => b"\\",
                Quote::None if first && at == 0 && b"~#".contains(&byte) => b"\\",
                _ => b"",
            };
            quoted.extend_from_slice(escape);
            quoted.push(byte);
        }
        quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> (Vec<String>, String) {
        let Line { before, current, .. } = Line::split(line.as_bytes());
        let text = |word: OsString| word.into_string().unwrap();
        (before.into_iter().map(text).collect(), text(current))
    }

    #[test]
    fn words_lose_their_quotes() {
        for (line, before, current) in [
            ("snap ", vec!["snap"], ""),
            ("snap ls la", vec!["snap", "ls"], "la"),
            (r"snap ls latest:my\ d", vec!["snap", "ls"], "latest:my d"),
            (r#"snap ls "latest:my d"#, vec!["snap", "ls"], "latest:my d"),
            (r#"snap ls 'it'\''s "x"' "a\"$\x"#, vec!["snap", "ls", "it's \"x\""], "a\"$\\x"),
            (r"snap ls \", vec!["snap", "ls"], ""),
            ("snap ls ''", vec!["snap", "ls"], ""),
        ] {
            let before = before.into_iter().map(str::to_owned).collect();
            assert_eq!(words(line), (before, current.to_owned()), "{line}");
        }
    }

    fn told(line: &str, value: &str) -> String {
        let bash =
            Bash { line: OsStr::new(line), breaks: OsStr::new(" \t\n\"'><=;|&(:"), lists: true };
        let answer = Answer { candidates: vec![Candidate::new(value, "")], files: Files::None };
        let lines = bash.lines(&Line::split(line.as_bytes()), &answer);
        let lines = String::from_utf8(lines).unwrap();
        lines.strip_prefix(":nothing\n=").unwrap().trim_end_matches('\n').to_owned()
    }

    #[test]
    fn bash_gets_what_it_replaces_and_no_more() {
        for (line, value, insert) in [
            ("snap ls la", "latest", "latest "),
            ("snap ls latest:my", "latest:my file", "my\\ file "),
            (r"snap ls latest:my\ f", "latest:my file", "my\\ file "),
            (r#"snap ls "latest:my f"#, "latest:my file", "latest:my file"),
            (r#"snap ls latest:"my f"#, "latest:my file", "my file"),
            (r#"snap ls "latest:my d/"fi"#, "latest:my d/file", "latest:my\\ d/file "),
            (r#"snap ls latest:"my d"/fi"#, "latest:my d/file", "my\\ d/file "),
            (r"snap ls 'latest:it", "latest:it's", r"latest:it'\''s"),
            ("snap ls --store=/x", "--store=/xy", "/xy "),
            ("snap ls latest:a:", "latest:a:b", "b "),
            ("snap ls ", "~x", "\\~x "),
            ("snap ls latest:", "latest:~x$(y)", "~x\\$\\(y\\) "),
        ] {
            assert_eq!(told(line, value), insert, "{line}");
        }
    }
}
