//! What to look for: a path, part by part.
//!
//! A pattern is cut at its slashes, and each part is compared with one name on
//! the way down. Which parts may come next is a set, one bit each, so a folder
//! below which nothing can match is told from its path alone, and one tree in
//! the same set of parts always has the same matches.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use globset::{GlobBuilder, GlobMatcher};

use crate::{
    ops::find::Case,
    repo::past::{PastError, PatternProblem},
};

/// Parts of a pattern: one bit each.
const PARTS: usize = 64;

/// The parts that may match the next name.
pub(super) type Ways = u64;

/// A path that is looked for.
#[derive(Debug)]
pub(super) struct Pattern {
    parts: Vec<Part>,
    /// Whether it ended in a slash.
    folders_only: bool,
}

#[derive(Debug)]
enum Part {
    /// `**`: any number of folders.
    Deep,
    /// Any name.
    Any,
    /// Exactly this.
    Name(Vec<u8>),
    /// This, whatever the case of its ASCII letters.
    NameOfAnyCase(Vec<u8>),
    /// Starts or ends so.
    Starts(Vec<u8>),
    Ends(Vec<u8>),
    Glob(Box<GlobMatcher>),
}

/// What a pattern says about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Whether the name is at the end of a path that matches.
    pub(super) matches: bool,
    /// What may match inside; 0 when nothing can.
    pub(super) below: Ways,
}

impl Pattern {
    pub(super) fn new(text: &[u8], case: Case) -> Result<Self, PastError> {
        let problem = |source| {
            let pattern = String::from_utf8_lossy(text).into_owned();
            PastError::Pattern { pattern, source }
        };
        let folders_only = text.ends_with(b"/");
        let inner = text.strip_suffix(b"/").unwrap_or(text);
        let is_path = inner.contains(&b'/');
        let names = inner.split(|b| *b == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let mut parts = if is_path { Vec::new() } else { vec![Part::Deep] };
        let mut count = 0;
        for name in names {
            count += 1;
            match Part::new(name, case).map_err(problem)? {
                Part::Deep if matches!(parts.last(), Some(Part::Deep)) => {}
                part => parts.push(part),
            }
        }
        if count == 0 {
            return Err(problem(PatternProblem::Empty));
        }
        // All that is below, but not the folder itself.
        if matches!(parts.last(), Some(Part::Deep)) {
            parts.push(Part::Any);
        }
        if parts.len() > PARTS {
            return Err(problem(PatternProblem::TooLong { limit: PARTS }));
        }
        Ok(Self { parts, folders_only })
    }

    /// Whether only folders can match.
    pub(super) fn folders_only(&self) -> bool {
        self.folders_only
    }

    /// The parts that may match a name in the top folder.
    pub(super) fn start(&self) -> Ways {
        self.from(0)
    }

    /// Compares one name.
    pub(super) fn step(&self, ways: Ways, name: &[u8]) -> Step {
        let mut step = Step { matches: false, below: 0 };
        let mut left = ways;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            match &self.parts[at] {
                Part::Deep => step.below |= self.from(at),
                part if !part.matches(name) => {}
                _ if at + 1 == self.parts.len() => step.matches = true,
                _ => step.below |= self.from(at + 1),
            }
        }
        step
    }

    /// The part `at`, and those behind it if it may stand for nothing.
    fn from(&self, at: usize) -> Ways {
        let deep = self.parts[at..].iter().take_while(|part| matches!(part, Part::Deep)).count();
        let last = at + deep.min(self.parts.len() - 1 - at);
        (at..=last).fold(0, |ways, part| ways | (1 << part))
    }
}

fn is_plain(text: &[u8]) -> bool {
    !text.iter().any(|b| b"*?[{\\".contains(b))
}

impl Part {
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
        // What most patterns are, without the cost of a regular expression.
        if case == Case::Exact {
            if let Some(end) = text.strip_prefix(b"*").filter(|end| is_plain(end)) {
                return Ok(Self::Ends(end.to_vec()));
            }
            if let Some(start) = text.strip_suffix(b"*").filter(|start| is_plain(start)) {
                return Ok(Self::Starts(start.to_vec()));
            }
        }
        let text = std::str::from_utf8(text).map_err(|_| PatternProblem::NotText)?;
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
        let pattern = Pattern::new(pattern.as_bytes(), case).unwrap();
        let mut step = Step { matches: false, below: pattern.start() };
        for name in path.split('/') {
            step = pattern.step(step.below, name.as_bytes());
        }
        step.matches
    }

    #[test]
    fn names_match_anywhere_and_paths_from_the_top() {
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
    fn case_is_ignored_when_asked() {
        for (pattern, path) in [("readme", "README"), ("*.RS", "a/b.rs"), ("SRC/*", "src/x")] {
            assert!(!hits(pattern, Case::Exact, path), "{pattern}");
            assert!(hits(pattern, Case::Ignored, path), "{pattern}");
        }
    }

    #[test]
    fn a_folder_that_cannot_hold_a_match_is_known() {
        let pattern = Pattern::new(b"src/*.rs", Case::Exact).unwrap();
        assert_eq!(pattern.step(pattern.start(), b"docs").below, 0);
        let inside = pattern.step(pattern.start(), b"src").below;
        assert_eq!(pattern.step(inside, b"deeper"), Step { matches: false, below: 0 });
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let long = ["a"; PARTS + 1].join("/");
        for text in ["", "/", ".", "a/../b", "{a", "[", "a/{b/c}", &long] {
            assert!(Pattern::new(text.as_bytes(), Case::Exact).is_err(), "{text}");
        }
        assert!(Pattern::new(b"\xff*", Case::Exact).is_ok());
        assert!(Pattern::new(b"\xff", Case::Ignored).is_ok());
        assert!(Pattern::new(b"\xff?", Case::Exact).is_err());
    }
}
