//! Patterns of ignore files, with git's meaning: <https://git-scm.com/docs/gitignore>.
//!
//! A [`PatternSet`] finds the last pattern that matches a path. It groups the patterns by the bytes
//! that each match has, so it compares a path with few of them: a set of 100,000 names costs as much
//! as one of ten.
//!
//! Patterns come from outside, also from other users of a repository. [`check_cost`] refuses
//! patterns that would take long to match.

use std::collections::HashMap;

use crate::{
    base::limits,
    local::wildmatch::{self, Letters, Literals},
};

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

/// Why a pattern is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternProblem {
    /// The pattern has too many bytes or wildcards.
    #[error(transparent)]
    Cost(#[from] PatternCost),
    /// The pattern matches no path in git.
    #[error("it can match no path")]
    MatchesNothing,
    /// The pattern is empty.
    #[error("it is empty")]
    Empty,
    /// The pattern contains `..`, so it matches no path in a snapshot.
    #[error("it contains `..`")]
    Climbs,
    /// The pattern has more components than one search supports.
    #[error("it has more than {limit} parts")]
    TooLong { limit: usize },
    /// The braces of the pattern are nested deeper than [`limits::PATTERN_BRACES`].
    #[error("its braces are nested deeper than {} levels", limits::PATTERN_BRACES)]
    Braces,
    /// The glob is not UTF-8.
    #[error("it contains a wildcard or backslash and is not UTF-8")]
    NotText,
    /// The glob has a syntax error.
    #[error(transparent)]
    Glob(#[from] globset::Error),
}

/// What the last pattern that matches a path says about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The path is excluded.
    Excluded,
    /// A `!` includes the path again.
    Included,
}

/// A pattern, without the marks for its other fields.
#[derive(Debug)]
struct Pattern {
    text: Box<[u8]>,
    letters: Letters,
    /// Length of the start without wildcards.
    start_bytes: usize,
    /// True if the pattern is compared with the whole path, and not with the name.
    is_path: bool,
    is_negated: bool,
    only_folders: bool,
}

/// Patterns in order. The last one that matches decides.
#[derive(Debug, Default)]
pub(crate) struct PatternSet {
    patterns: Vec<Pattern>,
    exact: PatternIndex,
    /// Patterns that ignore the case of ASCII letters. The keys are in lower case.
    folded: PatternIndex,
    /// True if there is such a pattern.
    ignores_case: bool,
}

/// Number of patterns with wildcards at both ends up to which it is faster to compare each of them
/// than to look for their literals at each place of a path.
const DIRECT: usize = 64;

/// Numbers of patterns, by the bytes that a path must have.
#[derive(Debug, Default)]
struct PatternIndex {
    names: LiteralIndexes,
    paths: LiteralIndexes,
    /// The first [`DIRECT`] patterns with wildcards at both ends, and those without a literal.
    others: Vec<u32>,
}

/// Numbers of the patterns that are compared with the same text.
#[derive(Debug, Default)]
struct LiteralIndexes {
    whole: LiteralIndex,
    starts: LiteralIndex,
    ends: LiteralIndex,
    /// Patterns with wildcards at both ends, by a literal between them.
    parts: LiteralIndex,
}

/// Numbers of patterns by a literal.
#[derive(Debug, Default)]
struct LiteralIndex {
    numbers: HashMap<Box<[u8]>, Vec<u32>>,
    /// The lengths of the literals, sorted.
    lengths: Vec<usize>,
}

impl LiteralIndex {
    fn insert(&mut self, literal: Box<[u8]>, number: u32) {
        if let Err(at) = self.lengths.binary_search(&literal.len()) {
            self.lengths.insert(at, literal.len());
        }
        self.numbers.entry(literal).or_default().push(number);
    }

    fn get(&self, literal: &[u8]) -> &[u32] {
        match self.numbers.is_empty() {
            true => &[],
            false => self.numbers.get(literal).map(Vec::as_slice).unwrap_or_default(),
        }
    }

    /// Returns the lengths of literals that a text can have.
    fn lengths(&self, text: &[u8]) -> impl Iterator<Item = usize> {
        self.lengths.iter().copied().take_while(|length| *length <= text.len())
    }
}

impl PatternIndex {
    fn insert(
        &mut self,
        pattern: &Pattern,
        Literals { start_bytes, end_bytes, inner }: Literals,
        number: u32,
    ) {
        let text = match pattern.letters {
            Letters::Exact => pattern.text.to_vec(),
            Letters::IgnoreCase => pattern.text.to_ascii_lowercase(),
        };
        let (start, end) = (&text[..start_bytes], &text[text.len() - end_bytes..]);
        let indexes = if pattern.is_path { &mut self.paths } else { &mut self.names };
        if start_bytes == text.len() {
            indexes.whole.insert(start.into(), number);
        } else if start_bytes.max(end_bytes) == 0 {
            match self.others.len() < DIRECT || inner.is_empty() {
                true => self.others.push(number),
                false => indexes.parts.insert(text[inner].into(), number),
            }
        } else if start_bytes >= end_bytes {
            indexes.starts.insert(start.into(), number);
        } else {
            indexes.ends.insert(end.into(), number);
        }
    }

    /// Calls `each` with all groups of patterns that may match. The numbers of a group ascend.
    fn visit(&self, path: &[u8], name: &[u8], mut each: impl FnMut(&[u32])) {
        for (indexes, text) in [(&self.names, name), (&self.paths, path)] {
            let LiteralIndexes { whole, starts, ends, parts } = indexes;
            each(whole.get(text));
            starts.lengths(text).for_each(|length| each(starts.get(&text[..length])));
            ends.lengths(text).for_each(|length| each(ends.get(&text[text.len() - length..])));
            for length in parts.lengths(text) {
                text.windows(length).for_each(|part| each(parts.get(part)));
            }
        }
        each(&self.others);
    }
}

impl PatternSet {
    /// Adds a line of an ignore file, or a pattern of an option, as git reads it. Skips empty lines
    /// and comments, which may have any length.
    ///
    /// # Errors
    /// [`PatternProblem`] when the pattern is too costly, or matches no path.
    pub(crate) fn add(&mut self, line: &str, letters: Letters) -> Result<(), PatternProblem> {
        if line.starts_with('#') {
            return Ok(());
        }
        check_cost(line.as_bytes()).map_err(PatternProblem::Cost)?;
        let line = without_trailing_spaces(line).as_bytes();
        if line.is_empty() {
            return Ok(());
        }
        let (is_negated, line) = (line[0] == b'!', line.strip_prefix(b"!").unwrap_or(line));
        let (only_folders, line) = (line.ends_with(b"/"), line.strip_suffix(b"/").unwrap_or(line));
        // No path has an empty name. A `/` in brackets is not a separator.
        let before_brackets = line.split(|byte| *byte == b'[').next().unwrap_or_default();
        let has_empty_name =
            before_brackets.windows(2).any(|pair| pair == b"//") || line.ends_with(b"/");
        if line.is_empty() || has_empty_name {
            return Err(PatternProblem::MatchesNothing);
        }
        let is_path = line.contains(&b'/');
        let line = line.strip_prefix(b"/").unwrap_or(line);
        let literals = wildmatch::literals(line).ok_or(PatternProblem::MatchesNothing)?;
        let Literals { start_bytes, .. } = literals;
        let text = line.into();
        self.ignores_case |= letters == Letters::IgnoreCase;
        let pattern = Pattern { text, letters, start_bytes, is_path, is_negated, only_folders };
        let index = match letters {
            Letters::Exact => &mut self.exact,
            Letters::IgnoreCase => &mut self.folded,
        };
        // A file or an option has fewer patterns than a `u32` counts.
        index.insert(&pattern, literals, u32::try_from(self.patterns.len()).unwrap_or(u32::MAX));
        self.patterns.push(pattern);
        Ok(())
    }

    /// Returns true if the set has no pattern.
    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns what the last pattern that matches a path says; `None` if none matches. The path is
    /// relative to the folder of the patterns.
    pub(crate) fn matched(&self, path: &[u8], is_folder: bool) -> Option<Verdict> {
        let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let name = &path[name_at..];
        let mut best: Option<u32> = None;
        let mut each = |numbers: &[u32]| {
            let later =
                numbers.iter().rev().take_while(|number| best.is_none_or(|best| **number > best));
            let hit = later.copied().find(|number| {
                let pattern = self.patterns.get(*number as usize);
                pattern.is_some_and(|pattern| pattern.matches(path, name, is_folder))
            });
            best = hit.or(best);
        };
        self.exact.visit(path, name, &mut each);
        if self.ignores_case {
            let lower = path.to_ascii_lowercase();
            self.folded.visit(&lower, &lower[name_at..], &mut each);
        }
        let pattern = self.patterns.get(best? as usize)?;
        Some(if pattern.is_negated { Verdict::Included } else { Verdict::Excluded })
    }
}

impl Pattern {
    fn matches(&self, path: &[u8], name: &[u8], is_folder: bool) -> bool {
        if self.only_folders && !is_folder {
            return false;
        }
        if !self.is_path {
            return wildmatch::matches(&self.text, name, self.letters);
        }
        // Git compares the start without wildcards on its own, and reads what follows as a new
        // pattern, at whose start `**` also matches `/`: `foo**` in `a/foo**` matches `foo/bar`.
        let (start, rest) = self.text.split_at(self.start_bytes);
        let Some((own, path)) = path.split_at_checked(self.start_bytes) else { return false };
        self.letters.agree(start, own) && wildmatch::matches(rest, path, self.letters)
    }
}

/// Returns a line without the spaces at its end, as git does: not those that a backslash escapes,
/// and no other white space.
fn without_trailing_spaces(line: &str) -> &str {
    let mut end = 0;
    let mut chars = line.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            ' ' => {}
            '\\' => end = chars.next().map_or(line.len(), |(at, char)| at + char.len_utf8()),
            _ => end = at + char.len_utf8(),
        }
    }
    &line[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let mut set = PatternSet::default();
        match set.add(pattern, Letters::Exact) {
            Ok(()) | Err(PatternProblem::MatchesNothing) => {}
            Err(error) => panic!("{pattern}: {error:?}"),
        }
        set.matched(path.as_bytes(), false) == Some(Verdict::Excluded)
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
            let added = PatternSet::default().add(line, Letters::Exact);
            added.map_err(|error| error.to_string())
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

    fn set(patterns: &[String]) -> PatternSet {
        let mut set = PatternSet::default();
        for (at, pattern) in patterns.iter().enumerate() {
            let letters = if at % 4 == 3 { Letters::IgnoreCase } else { Letters::Exact };
            // Patterns that match nothing are left out.
            let _ = set.add(pattern, letters);
        }
        set
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_set_finds_the_last_pattern_that_matches(
            patterns in proptest::collection::vec(
                r"!?/?(a|B|ab|\*|\*\*/|/\*\*|/|\?|\[ab\]|\.c){1,5}/?", 1..12,
            ),
            path in "(a|ab|B|b|x\\.c)(/(a|ab|B|a\\.c)){0,3}",
            is_folder: bool,
        ) {
            let set = set(&patterns);
            let name = path.rsplit('/').next().unwrap_or_default();
            let all = set.patterns.iter().rev();
            let last = all.into_iter().find(|p| p.matches(path.as_bytes(), name.as_bytes(), is_folder));
            let expected = last.map(|pattern| match pattern.is_negated {
                true => Verdict::Included,
                false => Verdict::Excluded,
            });
            prop_assert_eq!(set.matched(path.as_bytes(), is_folder), expected);
        }
    }

    #[test]
    fn a_hundred_thousand_patterns_of_each_form_are_found() {
        type Form = fn(u32) -> String;
        let forms: [(Form, &str); 9] = [
            (|n| format!("*-{n:06}-*"), "a/b-077777-c"),
            (|n| format!("name-{n:06}.dat"), "x/name-077777.dat"),
            (|n| format!("/dir{}/name-{n:06}", n % 100), "dir77/name-077777"),
            (|n| format!("**/d/name-{n:06}"), "a/b/d/name-077777"),
            (|n| format!("*.e{n:06}"), "a/b.e077777"),
            (|n| format!("pre{n:06}*"), "a/pre077777x"),
            (|n| format!("na?e{n:06}"), "naXe077777"),
            (|n| format!("f{n:06}/*.x"), "f077777/a.x"),
            (|n| format!("[ab]{n:06}/**"), "b077777/x/y"),
        ];
        for (form, path) in forms {
            let mut set = PatternSet::default();
            (0..100_000).for_each(|number| set.add(&form(number), Letters::Exact).unwrap());
            assert_eq!(set.matched(path.as_bytes(), false), Some(Verdict::Excluded), "{path}");
            assert_eq!(set.matched(path.replace('7', "x").as_bytes(), false), None, "{path}");
            let (exact, groups) = (&set.exact, std::cell::Cell::new(0));
            let name = path.rsplit('/').next().unwrap();
            exact.visit(path.as_bytes(), name.as_bytes(), |numbers| {
                groups.set(groups.get() + numbers.len())
            });
            assert!(
                groups.get() <= 2 + DIRECT,
                "{path} is compared with {} patterns",
                groups.get()
            );
        }
    }
}
