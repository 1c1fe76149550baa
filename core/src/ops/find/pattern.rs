//! Matches paths against a pattern, one name at a time.
//!
//! A pattern is split at its slashes, and each part is compared with one name on the way
//! down. The parts that may match the next name form a set with one bit for each part. If
//! the set is empty, nothing in the folder can match. The matches below a tree depend
//! only on the tree and on this set.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use globset::{GlobBuilder, GlobMatcher};

use crate::{
    base::limits,
    local::ignore::PatternError,
    local::pattern::{PatternProblem, check_cost, excerpt},
    ops::find::Case,
};

/// Maximum number of parts, since [`PartSet`] has one bit for each.
const PARTS: usize = 64;

/// The set of parts that may match the next name.
pub(super) type PartSet = u64;

/// A parsed pattern.
#[derive(Debug)]
pub(super) struct NamePattern {
    parts: Vec<PatternPart>,
    /// True if the pattern ended in a slash.
    folders_only: bool,
}

#[derive(Debug)]
enum PatternPart {
    /// `**`: any number of folders.
    Deep,
    /// `*`: any name.
    Any,
    /// Exactly this name.
    Name(Vec<u8>),
    /// This name, in either case of ASCII letters.
    NameOfAnyCase(Vec<u8>),
    /// A name that starts with this.
    Starts(Vec<u8>),
    /// A name that ends with this.
    Ends(Vec<u8>),
    Glob(Box<GlobMatcher>),
}

/// The result of matching one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatchStep {
    /// True if the name is the last one of a matching path.
    pub(super) matches: bool,
    /// The parts that may match inside the folder; 0 if nothing can.
    pub(super) below: PartSet,
}

impl NamePattern {
    pub(super) fn new(text: &[u8], case: Case) -> Result<Self, PatternError> {
        let problem =
            |source| PatternError { pattern: excerpt(&String::from_utf8_lossy(text)), source };
        check_cost(text).map_err(|cost| problem(cost.into()))?;
        let folders_only = text.ends_with(b"/");
        let inner = text.strip_suffix(b"/").unwrap_or(text);
        let is_path = inner.contains(&b'/');
        let names = inner.split(|b| *b == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let mut parts = if is_path { Vec::new() } else { vec![PatternPart::Deep] };
        let mut count = 0;
        for name in names {
            count += 1;
            match PatternPart::new(name, case).map_err(problem)? {
                PatternPart::Deep if matches!(parts.last(), Some(PatternPart::Deep)) => {}
                part => parts.push(part),
            }
        }
        if count == 0 {
            return Err(problem(PatternProblem::Empty));
        }
        // A trailing `**` matches everything below a folder, but not the folder itself.
        if matches!(parts.last(), Some(PatternPart::Deep)) {
            parts.push(PatternPart::Any);
        }
        if parts.len() > PARTS {
            return Err(problem(PatternProblem::TooLong { limit: PARTS }));
        }
        Ok(Self { parts, folders_only })
    }

    /// Returns true if only folders can match.
    pub(super) fn folders_only(&self) -> bool {
        self.folders_only
    }

    /// Returns the parts that may match a name in the root folder.
    pub(super) fn start(&self) -> PartSet {
        self.from(0)
    }

    /// Matches one name against the parts in `ways`.
    pub(super) fn step(&self, ways: PartSet, name: &[u8]) -> MatchStep {
        let mut step = MatchStep { matches: false, below: 0 };
        let mut left = ways;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            match &self.parts[at] {
                PatternPart::Deep => step.below |= self.from(at),
                part if !part.matches(name) => {}
                _ if at + 1 == self.parts.len() => step.matches = true,
                _ => step.below |= self.from(at + 1),
            }
        }
        step
    }

    /// Returns the part `at`. If it is `**`, which may match nothing, also returns the
    /// part after it.
    fn from(&self, at: usize) -> PartSet {
        let deep =
            self.parts[at..].iter().take_while(|part| matches!(part, PatternPart::Deep)).count();
        let last = at + deep.min(self.parts.len() - 1 - at);
        (at..=last).fold(0, |ways, part| ways | (1 << part))
    }
}

fn is_plain(text: &[u8]) -> bool {
    !text.iter().any(|b| b"*?[{\\".contains(b))
}

/// Returns the maximum level of nested braces. Braces in brackets and escaped braces do not count.
fn brace_levels(text: &str) -> usize {
    let (mut level, mut most) = (0_usize, 0);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'[' => {
                // The first character in brackets may be `]`.
                if let Some(b'!' | b'^') = bytes.next() {
                    bytes.next();
                }
                bytes.by_ref().find(|byte| *byte == b']');
            }
            b'{' => level += 1,
            b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        most = most.max(level);
    }
    most
}

impl PatternPart {
    fn new(text: &[u8], case: Case) -> Result<Self, PatternProblem> {
        match (text, case) {
            (b"**", _) => return Ok(Self::Deep),
            (b"*", _) => return Ok(Self::Any),
            (b"..", _) => return Err(PatternProblem::Climbs),
            (name, Case::Exact) if is_plain(name) => return Ok(Self::Name(name.to_vec())),
            (name, Case::Ignored) if is_plain(name) => {
                return Ok(Self::NameOfAnyCase(name.to_vec()));
            }
            _ => {}
        }
        // Handles the most common patterns without the cost of a regular expression.
        if case == Case::Exact {
            if let Some(end) = text.strip_prefix(b"*").filter(|end| is_plain(end)) {
                return Ok(Self::Ends(end.to_vec()));
            }
            if let Some(start) = text.strip_suffix(b"*").filter(|start| is_plain(start)) {
                return Ok(Self::Starts(start.to_vec()));
            }
        }
        let text = std::str::from_utf8(text).map_err(|_| PatternProblem::NotText)?;
        if brace_levels(text) > limits::PATTERN_BRACES {
            return Err(PatternProblem::Braces);
        }
        let mut builder = GlobBuilder::new(text);
        builder.case_insensitive(case == Case::Ignored).backslash_escape(true);
        Ok(Self::Glob(Box::new(builder.build()?.compile_matcher())))
    }

    fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Deep | Self::Any => true,
            Self::Name(wanted) => wanted == name,
            Self::NameOfAnyCase(wanted) => wanted.eq_ignore_ascii_case(name),
            Self::Starts(start) => name.starts_with(start),
            Self::Ends(end) => name.ends_with(end),
            Self::Glob(glob) => glob.is_match(Path::new(OsStr::from_bytes(name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(pattern: &str, case: Case, path: &str) -> bool {
        let pattern = NamePattern::new(pattern.as_bytes(), case).unwrap();
        let mut step = MatchStep { matches: false, below: pattern.start() };
        for name in path.split('/') {
            step = pattern.step(step.below, name.as_bytes());
        }
        step.matches
    }

    #[test]
    fn names_match_at_any_depth_and_paths_from_the_root() {
        for (pattern, path, wanted) in [
            ("main.rs", "main.rs", true),
            ("main.rs", "src/main.rs", true),
            ("main.rs", "src/xmain.rs", false),
            ("*.rs", "a/b/c.rs", true),
            ("*.rs", "a/b/c.rsx", false),
            ("READ*", "docs/README.md", true),
            ("?.[ch]", "src/a.h", true),
            ("{a,b}.txt", "b.txt", true),
            ("src/main.rs", "src/main.rs", true),
            ("src/main.rs", "x/src/main.rs", false),
            ("**/src/main.rs", "x/src/main.rs", true),
            ("src/**/main.rs", "src/main.rs", true),
            ("src/**/main.rs", "src/a/b/main.rs", true),
            ("src/**/main.rs", "lib/a/main.rs", false),
            ("/main.rs", "main.rs", true),
            ("/main.rs", "src/main.rs", false),
            ("./src/*", "src/a", true),
            ("src/*", "src/a/b", false),
            ("src/**", "src", false),
            ("src/**", "src/a/b", true),
            ("**", "a", true),
            ("a/**/**/b", "a/b", true),
            ("**/a/**/b/*", "x/a/y/a/b/c", true),
            ("\\*", "*", true),
            ("a}]", "a}]", true),
            ("src/", "src", true),
        ] {
            assert_eq!(hits(pattern, Case::Exact, path), wanted, "{pattern} {path}");
        }
    }

    #[test]
    fn case_is_ignored_on_request() {
        for (pattern, path) in [("readme", "README"), ("*.RS", "a/b.rs"), ("SRC/*", "src/x")] {
            assert!(!hits(pattern, Case::Exact, path), "{pattern}");
            assert!(hits(pattern, Case::Ignored, path), "{pattern}");
        }
    }

    #[test]
    fn folders_that_cannot_contain_a_match_are_pruned() {
        let pattern = NamePattern::new(b"src/*.rs", Case::Exact).unwrap();
        assert_eq!(pattern.step(pattern.start(), b"docs").below, 0);
        let inside = pattern.step(pattern.start(), b"src").below;
        assert_eq!(pattern.step(inside, b"deeper"), MatchStep { matches: false, below: 0 });
    }

    #[test]
    fn invalid_patterns_are_refused() {
        let long = ["a"; PARTS + 1].join("/");
        for text in ["", "/", ".", "a/../b", "{a", "[", "a/{b/c}", &long] {
            assert!(NamePattern::new(text.as_bytes(), Case::Exact).is_err(), "{text}");
        }
        assert!(NamePattern::new(b"\xff*", Case::Exact).is_ok());
        assert!(NamePattern::new(b"\xff", Case::Ignored).is_ok());
        assert!(NamePattern::new(b"\xff?", Case::Exact).is_err());
    }

    #[test]
    fn nested_braces_neither_panic_nor_overflow_the_stack() {
        let nested = |levels: usize| format!("{}z{}", "{".repeat(levels), "}".repeat(levels));
        assert!(hits(&nested(limits::PATTERN_BRACES), Case::Exact, "z"));
        for levels in [limits::PATTERN_BRACES + 1, 250, 1_000, 15_000, 1_000_000] {
            for case in [Case::Exact, Case::Ignored] {
                let error = NamePattern::new(nested(levels).as_bytes(), case).unwrap_err();
                assert_eq!(error.kind(), crate::base::kind::ErrorKind::Invalid);
                assert!(error.to_string().len() < 300, "the message is short");
            }
        }
        // Braces that are escaped or in brackets neither open nor close a level.
        for literal in ["[}]", "[!}]", "[]}]", "[^]}]", "\\}"] {
            let nested =
                |levels: usize| format!("{{{literal}").repeat(levels) + &"}".repeat(levels);
            let is_valid =
                |levels| NamePattern::new(nested(levels).as_bytes(), Case::Exact).is_ok();
            assert!(is_valid(limits::PATTERN_BRACES), "{literal}");
            assert!(!is_valid(limits::PATTERN_BRACES + 1), "{literal}");
        }
        let escaped = "\\{[{]".repeat(limits::PATTERN_BRACES + 1);
        assert!(NamePattern::new(escaped.as_bytes(), Case::Exact).is_ok());
    }

    #[test]
    fn the_largest_patterns_compile() {
        let full = |part: &str| part.repeat(limits::PATTERN_BYTES / part.len());
        let wide = |part: &str| part.repeat(limits::PATTERN_WILDCARDS);
        let brackets =
            format!("[{}]", (b'0'..=b'z').map(char::from).step_by(2).collect::<String>());
        let alternatives = format!("{{{}}}", "ab,".repeat(1_300));
        for pattern in [
            full("é"),
            wide("?"),
            wide("*a"),
            wide("[a]"),
            wide("{a,b}"),
            brackets.repeat(100),
            alternatives,
        ] {
            for case in [Case::Exact, Case::Ignored] {
                let made = NamePattern::new(pattern.as_bytes(), case).unwrap();
                // Matching must not panic, either.
                made.step(made.start(), &[b'a'; 255]);
            }
        }
    }
}
