//! Splits and quotes words as shells do, and formats the output for the completion scripts.
//!
//! The output consists of lines. The first line names the files that the shell should offer if
//! there are no candidates: `:files`, `:folders` or `:nothing`. Each other line is a candidate: `=`
//! if a space follows the word, `+` if the word may continue; then the word; then, if there is one,
//! a tab and a short description.
//!
//! bash needs more help. It splits words at `:`, `=` and other characters, and replaces only the
//! part after the last of them. It does not support descriptions, and it inserts the output
//! unchanged. So its script passes the whole line. Each word comes back quoted, without the part
//! that stays on the line, and with its space.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::{CompletionCandidate, Completions, FileCompletion};

/// The kind of quote that is still open at the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// A command line up to the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedLine {
    /// Complete words before the cursor, without quotes.
    pub(crate) before: Vec<OsString>,
    /// The word at the cursor, without quotes.
    pub(crate) current: OsString,
    /// The offset of that word in the line.
    start: usize,
    quote: Quote,
    /// The offset of the open quote.
    quote_at: usize,
}

impl ParsedLine {
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

    /// Returns the offset of the part of the line that bash replaces.
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
                // bash replaces a closed quote together with its text.
                (None, b'\'' | b'"') => (open, from) = (Some(*byte), at),
                (None, byte) if breaks.contains(byte) => from = at + 1,
                _ => {}
            }
            at += 1;
        }
        from.min(line.len())
    }
}

/// Formats the output for zsh or fish.
pub(crate) fn lines(answer: &Completions) -> Vec<u8> {
    let mut shown = Vec::new();
    shown.extend_from_slice(match answer.files {
        FileCompletion::All => b":files\n",
        FileCompletion::Folders => b":folders\n",
        FileCompletion::None => b":nothing\n",
    });
    for CompletionCandidate { value, about, continues } in &answer.candidates {
        shown.push(if *continues { b'+' } else { b'=' });
        shown.extend_from_slice(value);
        if !about.is_empty() {
            shown.push(b'\t');
            shown.extend_from_slice(about.as_bytes());
        }
        shown.push(b'\n');
    }
    shown
}

/// The data that bash passes about a completion.
#[derive(Debug)]
pub(crate) struct Bash<'a> {
    /// The line up to the cursor.
    pub(crate) line: &'a OsStr,
    /// `COMP_WORDBREAKS`
    pub(crate) breaks: &'a OsStr,
    /// True for `COMP_TYPE` 9, 33, 63 and 64, with which bash lists words before one is inserted.
    pub(crate) lists: bool,
}

impl Bash<'_> {
    /// Formats the output for bash.
    pub(crate) fn lines(&self, at: &ParsedLine, answer: &Completions) -> Vec<u8> {
        let from = at.replaced_from(self.line.as_bytes(), self.breaks.as_bytes());
        // The part of the word that stays on the line, without its quotes.
        let stays = ParsedLine::split(&self.line.as_bytes()[at.start..from]);
        let stays = stays.current.as_bytes().len();
        let describe = self.lists && answer.candidates.len() > 1;
        let shorter = answer.candidates.iter().map(|c| {
            let rest = c.value.get(stays..).unwrap_or_default();
            let mut value = at.quoted(rest, from == at.start);
            if describe && !c.about.is_empty() {
                value.extend_from_slice(b"  (");
                value.extend_from_slice(c.about.as_bytes());
                value.push(b')');
            } else if !c.continues && at.quote == Quote::None {
                value.push(b' ');
            }
            CompletionCandidate { value, about: String::new(), continues: c.continues }
        });
        lines(&Completions { candidates: shorter.collect(), files: answer.files })
    }
}

impl ParsedLine {
    /// Quotes `text` for a line of bash; `first` is true if it starts a word.
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
        let ParsedLine { before, current, .. } = ParsedLine::split(line.as_bytes());
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
        let answer = Completions {
            candidates: vec![CompletionCandidate::new(value, "")],
            files: FileCompletion::None,
        };
        let lines = bash.lines(&ParsedLine::split(line.as_bytes()), &answer);
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
