//! The selection of a commit: the files that the commit could have contained.
//!
//! By the selection, a restore distinguishes files that the commit left out from files that did not
//! exist. The next commit detects by the selection that its own sources differ.
//!
//! | field       | form                  | meaning                                   |
//! |-------------|-----------------------|-------------------------------------------|
//! | rule sets   | varint count, each    | in the order given, none twice            |
//! | sources     | varint count, bytes each | strictly increasing, none empty        |
//! | unread      | varint count, bytes each | strictly increasing, none empty        |
//! | more unread | u8                    | 1 if further paths were unread, else 0    |
//!
//! A rule set is
//!
//! | field       | form                  | meaning                                   |
//! |-------------|-----------------------|-------------------------------------------|
//! | flags       | u8                    | 1 use `.gitignore` files, 2 leave out the contents of cache folders, 4 one file system, 8 a size limit follows, 16 patterns that ignore case follow, 32 markers follow |
//! | size limit  | varint                | with flag 8: larger files are left out    |
//! | patterns    | varint count, text each | in gitignore syntax, in order           |
//! | more patterns | as patterns         | with flag 16: not empty, ignore the case of ASCII letters |
//! | markers     | varint count, each name and header as bytes | with flag 32: not empty; see [`FolderMarker`] |
//!
//! A selection has no rule set that excludes nothing. A commit that updates only some paths keeps
//! the rule sets of its parent in addition to its own. The commit leaves out a path if any of its
//! rule sets excludes the path. Ignore files are part of the tree and not stored here.
//!
//! If the last pattern of a rule set is `/.git`, the commit left out the `.git` of a project that is
//! also a git work tree ([`GIT_AT_TOP`]).
//!
//! Sources are absolute paths, or names of streams, which do not start with `/`. Unread paths are
//! relative to the root of the snapshot, and each includes everything below it. If *more unread* is
//! 1, any path that sorts after the last recorded unread path may have been unread, too. The commit
//! read all other paths.

use std::collections::BTreeSet;

use crate::{
    base::{limits, name::EntryName},
    format::wire::{FormatError, WireReader, WireWriter},
};

const GITIGNORE: u8 = 1;
const CACHE_FOLDERS: u8 = 2;
const ONE_FILE_SYSTEM: u8 = 4;
const SIZE_LIMIT: u8 = 8;
const IGNORE_CASE: u8 = 16;
const MARKERS: u8 = 32;
const ALL_FLAGS: u8 =
    GITIGNORE | CACHE_FOLDERS | ONE_FILE_SYSTEM | SIZE_LIMIT | IGNORE_CASE | MARKERS;

/// The pattern of a `.git` at the top of a project. As the last pattern of a rule set, it takes
/// precedence over all other rules. The `.git` then belongs to git alone: comparisons do not report
/// it, and a commit without other changes is unchanged.
pub const GIT_AT_TOP: &str = "/.git";

/// The options that decide which files a snapshot leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoreOptions {
    /// Patterns in gitignore syntax, relative to the root.
    pub patterns: Vec<String>,
    /// Further patterns, which ignore the case of ASCII letters.
    pub ignore_case_patterns: Vec<String>,
    /// Entries that mark a folder. A snapshot contains only the markers of such a folder.
    pub markers: Vec<FolderMarker>,
    /// True to apply `.gitignore` files, too.
    pub gitignore: bool,
    /// True to leave out the contents of folders with a `CACHEDIR.TAG`, except the tag.
    pub cache_folders: bool,
    /// Maximum size in bytes. Larger files are left out.
    pub larger_than_bytes: Option<u64>,
    /// True to leave out the contents of folders on other file systems.
    pub one_file_system: bool,
}

/// An entry that marks its folder: a snapshot contains nothing else of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderMarker {
    pub name: EntryName,
    /// Required first bytes of the file. If empty, an entry of any kind marks the folder.
    pub header: Box<[u8]>,
}

/// The files that a commit could have contained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Rule sets, each of which excludes paths. No rule set is empty or occurs twice.
    pub rules: Vec<IgnoreOptions>,
    /// Committed absolute paths and names of streams, sorted. Empty if the project folder itself
    /// was committed.
    pub sources: Vec<Box<[u8]>>,
    /// Paths below the root that could not be read.
    pub unread: UnreadPaths,
}

/// Paths below the root of a snapshot that could not be read, up to the number that a
/// commit records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadPaths {
    /// At most [`limits::UNREAD_PATHS`] paths with a total length of
    /// [`limits::UNREAD_BYTES`].
    paths: BTreeSet<Box<[u8]>>,
    bytes: usize,
    has_more: bool,
}

impl UnreadPaths {
    /// Adds a path. Above the limits, drops the last paths by name, and then [`Self::has_more`]
    /// returns true. So every dropped path sorts after the last recorded one.
    pub fn insert(&mut self, path: &[u8]) {
        if self.may_be_dropped(path) || !self.paths.insert(path.into()) {
            return;
        }
        self.bytes += path.len();
        while self.paths.len() > limits::UNREAD_PATHS || self.bytes > limits::UNREAD_BYTES {
            self.bytes -= self.paths.pop_last().map_or(0, |path| path.len());
            self.has_more = true;
        }
    }

    /// Adds the paths of another list.
    pub fn extend(&mut self, other: &Self) {
        let own = std::mem::take(self);
        // Every path that one of the lists may have dropped sorts after the recorded ones.
        let is_complete = |path: &&[u8]| !own.may_be_dropped(path) && !other.may_be_dropped(path);
        own.iter().chain(other.iter()).filter(is_complete).for_each(|path| self.insert(path));
        self.has_more |= own.has_more || other.has_more;
    }

    /// Returns true if a path may be one of the dropped paths.
    fn may_be_dropped(&self, path: &[u8]) -> bool {
        self.has_more && self.paths.last().is_none_or(|last| path > &**last)
    }

    /// Returns true if the entry at `path`, or a folder above it, could not be read, or
    /// may be one of the dropped paths.
    pub fn covers(&self, path: &[u8]) -> bool {
        let mut above = (0..path.len()).filter(|at| path[*at] == b'/').map(|at| &path[..at]);
        self.paths.contains(path)
            || above.any(|above| self.paths.contains(above))
            || self.may_be_dropped(path)
    }

    /// Returns the recorded paths, sorted.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.paths.iter().map(|path| &**path)
    }

    /// Returns true if paths were dropped.
    pub fn has_more(&self) -> bool {
        self.has_more
    }
}

impl Selection {
    /// Returns true if the commit selected and read everything below one project folder.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds a rule set, unless it excludes nothing or is already present.
    pub fn add_rules(&mut self, rules: &IgnoreOptions) {
        if *rules != IgnoreOptions::default() && !self.rules.contains(rules) {
            self.rules.push(rules.clone());
        }
    }

    /// Returns true if each rule set of `other` is one of these, or differs only in
    /// [`GIT_AT_TOP`].
    pub fn has_rules_of(&self, other: &Self) -> bool {
        let has = |rules: &IgnoreOptions| {
            let wanted = rules.beside_git();
            wanted == IgnoreOptions::default()
                || self.rules.iter().any(|rules| rules.beside_git() == wanted)
        };
        other.rules.iter().all(|rules| self.rules.contains(rules) || has(rules))
    }

    pub(super) fn encode(&self, w: &mut WireWriter) {
        w.varint(self.rules.len() as u64);
        for rules in &self.rules {
            rules.encode(w);
        }
        encode_paths(w, self.sources.iter().map(|path| &**path));
        encode_paths(w, self.unread.iter());
        w.u8(u8::from(self.unread.has_more));
    }

    pub(super) fn decode(r: &mut WireReader<'_>) -> Result<Self, FormatError> {
        let count = r.count("rule sets", limits::RULE_SETS)?;
        let mut rules = Vec::new();
        for _ in 0..count {
            let at = r.at();
            let set = IgnoreOptions::decode(r)?;
            if set == IgnoreOptions::default() || rules.contains(&set) {
                return Err(FormatError::Invalid { what: "rule set (empty or twice)", at });
            }
            rules.push(set);
        }
        let sources = decode_paths(r, "sources", limits::SOURCES, limits::COMMIT_BYTES)?;
        let paths = decode_paths(r, "unread paths", limits::UNREAD_PATHS, limits::UNREAD_BYTES)?;
        let bytes = paths.iter().map(|path| path.len()).sum();
        let has_more = r.one_of("more unread", &[(0, false), (1, true)])?;
        let unread = UnreadPaths { paths: paths.into_iter().collect(), bytes, has_more };
        Ok(Self { rules, sources, unread })
    }
}

impl IgnoreOptions {
    /// Adds the rules of another set, so that this one excludes what either of them excludes. A `!`
    /// pattern of `other` also applies to the patterns before it.
    pub fn add(&mut self, other: &Self) {
        let both = |own: &mut Vec<String>, other: &[String]| {
            // Commits of the same sources usually have the same patterns.
            if !own.ends_with(other) {
                own.extend_from_slice(other);
            }
        };
        both(&mut self.patterns, &other.patterns);
        both(&mut self.ignore_case_patterns, &other.ignore_case_patterns);
        let new = other.markers.iter().filter(|marker| !self.markers.contains(marker));
        let new: Vec<_> = new.cloned().collect();
        self.markers.extend(new);
        self.gitignore |= other.gitignore;
        self.cache_folders |= other.cache_folders;
        self.one_file_system |= other.one_file_system;
        let limits = [self.larger_than_bytes, other.larger_than_bytes];
        self.larger_than_bytes = limits.into_iter().flatten().min();
    }

    /// Leaves out a `.git` at the top.
    pub fn leave_out_git(&mut self) {
        if !self.leaves_out_git() {
            self.patterns.push(GIT_AT_TOP.to_owned());
        }
    }

    /// Returns true after [`IgnoreOptions::leave_out_git`].
    pub fn leaves_out_git(&self) -> bool {
        self.patterns.last().is_some_and(|pattern| pattern == GIT_AT_TOP)
    }

    /// Returns the options without [`GIT_AT_TOP`].
    #[must_use]
    pub fn beside_git(&self) -> Self {
        let mut rules = self.clone();
        rules.patterns.truncate(self.patterns.len() - usize::from(self.leaves_out_git()));
        rules
    }

    fn encode(&self, w: &mut WireWriter) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        w.u8(flag(self.gitignore, GITIGNORE)
            | flag(self.cache_folders, CACHE_FOLDERS)
            | flag(self.one_file_system, ONE_FILE_SYSTEM)
            | flag(self.larger_than_bytes.is_some(), SIZE_LIMIT)
            | flag(!self.ignore_case_patterns.is_empty(), IGNORE_CASE)
            | flag(!self.markers.is_empty(), MARKERS));
        if let Some(limit) = self.larger_than_bytes {
            w.varint(limit);
        }
        encode_patterns(w, &self.patterns);
        if !self.ignore_case_patterns.is_empty() {
            encode_patterns(w, &self.ignore_case_patterns);
        }
        if !self.markers.is_empty() {
            w.varint(self.markers.len() as u64);
        }
        for marker in &self.markers {
            w.bytes(marker.name.as_bytes());
            w.bytes(&marker.header);
        }
    }

    fn decode(r: &mut WireReader<'_>) -> Result<Self, FormatError> {
        let at = r.at();
        let flags = r.u8("rule set flags")?;
        if flags & !ALL_FLAGS != 0 {
            return Err(FormatError::Invalid { what: "rule set flags", at });
        }
        let has = |flag: u8| flags & flag != 0;
        let larger_than_bytes = if has(SIZE_LIMIT) { Some(r.varint("size limit")?) } else { None };
        let patterns = decode_patterns(r)?;
        let at = r.at();
        let ignore_case_patterns = if has(IGNORE_CASE) { decode_patterns(r)? } else { Vec::new() };
        let markers = if has(MARKERS) { decode_markers(r)? } else { Vec::new() };
        if has(IGNORE_CASE) == ignore_case_patterns.is_empty() || has(MARKERS) == markers.is_empty()
        {
            return Err(FormatError::Invalid { what: "rule set (an empty list)", at });
        }
        Ok(Self {
            patterns,
            ignore_case_patterns,
            markers,
            gitignore: has(GITIGNORE),
            cache_folders: has(CACHE_FOLDERS),
            larger_than_bytes,
            one_file_system: has(ONE_FILE_SYSTEM),
        })
    }
}

fn encode_patterns(w: &mut WireWriter, patterns: &[String]) {
    w.varint(patterns.len() as u64);
    patterns.iter().for_each(|pattern| w.bytes(pattern.as_bytes()));
}

fn decode_patterns(r: &mut WireReader<'_>) -> Result<Vec<String>, FormatError> {
    let count = r.count("patterns", limits::PATTERNS)?;
    (0..count).map(|_| Ok(r.text("pattern", limits::COMMIT_BYTES)?.to_owned())).collect()
}

fn decode_markers(r: &mut WireReader<'_>) -> Result<Vec<FolderMarker>, FormatError> {
    let count = r.count("markers", limits::PATTERNS)?;
    let mut markers = Vec::new();
    for _ in 0..count {
        let at = r.at();
        let name = EntryName::new(r.bytes("marker", limits::COMMIT_BYTES)?);
        let name = name.map_err(|_| FormatError::Invalid { what: "name of a marker", at })?;
        let header = r.bytes("header of a marker", limits::COMMIT_BYTES)?.into();
        markers.push(FolderMarker { name, header });
    }
    Ok(markers)
}

fn encode_paths<'p>(w: &mut WireWriter, paths: impl ExactSizeIterator<Item = &'p [u8]>) {
    w.varint(paths.len() as u64);
    for path in paths {
        w.bytes(path);
    }
}

/// Reads sorted paths: at most `most`, with a total length of at most `most_bytes`.
fn decode_paths(
    r: &mut WireReader<'_>,
    what: &'static str,
    most: usize,
    most_bytes: usize,
) -> Result<Vec<Box<[u8]>>, FormatError> {
    let count = r.count(what, most)?;
    let mut paths: Vec<Box<[u8]>> = Vec::new();
    let mut left = most_bytes;
    for _ in 0..count {
        let at = r.at();
        let path = r.bytes(what, left)?;
        left -= path.len();
        if path.is_empty() {
            return Err(FormatError::Invalid { what, at });
        }
        if paths.last().is_some_and(|last| **last >= *path) {
            return Err(FormatError::Order { what, at });
        }
        paths.push(path.into());
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_unread_paths_set_a_flag() {
        let name = |at: usize| format!("{at:06}").into_bytes();
        let mut unread = UnreadPaths::default();
        (0..limits::UNREAD_PATHS).for_each(|at| unread.insert(&name(at)));
        unread.insert(&name(0));
        assert_eq!((unread.iter().len(), unread.has_more()), (limits::UNREAD_PATHS, false));
        unread.insert(&name(limits::UNREAD_PATHS));
        assert_eq!((unread.iter().len(), unread.has_more()), (limits::UNREAD_PATHS, true));
        assert_eq!(unread.iter().next(), Some(&name(0)[..]));

        let mut unread = UnreadPaths::default();
        unread.insert(&vec![b'b'; limits::UNREAD_BYTES / 2 + 1]);
        unread.insert(&vec![b'a'; limits::UNREAD_BYTES / 2]);
        assert_eq!((unread.iter().len(), unread.has_more()), (1, true));
        let mut w = WireWriter::new();
        let selection = Selection { unread, ..Selection::default() };
        selection.encode(&mut w);
        assert_eq!(Selection::decode(&mut WireReader::new(&w.finish())), Ok(selection));
    }

    /// Every inserted path is covered, for any order of insertions and merges. The recorded paths
    /// are the first ones, about as many as the limit allows.
    #[test]
    fn dropped_unread_paths_are_covered() {
        let paths: Vec<Vec<u8>> = (0..400_usize)
            .map(|at| {
                let mixed = at.wrapping_mul(0x9E37_79B9) % 997;
                format!("{mixed:03}{}", "x".repeat(mixed * 7 % 4_000)).into_bytes()
            })
            .collect();
        let total: usize = paths.iter().map(Vec::len).sum();
        assert!(total > 3 * limits::UNREAD_BYTES);
        let sorted: BTreeSet<&[u8]> = paths.iter().map(|path| &path[..]).collect();
        for parts in [1, 2, 3, 7, 400] {
            let mut all = UnreadPaths::default();
            for part in paths.chunks(paths.len().div_ceil(parts)) {
                let mut own = UnreadPaths::default();
                part.iter().for_each(|path| own.insert(path));
                assert!(part.iter().all(|path| own.covers(path)));
                all.extend(&own);
            }
            assert!(all.has_more() && all.bytes <= limits::UNREAD_BYTES);
            assert!(all.bytes > limits::UNREAD_BYTES / 2, "{parts} parts: {} bytes", all.bytes);
            assert!(all.iter().eq(sorted.iter().take(all.paths.len()).copied()), "{parts} parts");
            let mut copy = UnreadPaths::default();
            copy.extend(&all);
            assert_eq!(copy, all);
            assert!(paths.iter().all(|path| all.covers(path)), "{parts} parts");
            assert!(paths.iter().all(|path| all.covers(&[path, &b"/below"[..]].concat())));
        }
        let mut few = UnreadPaths::default();
        few.insert(b"b/c");
        assert!(few.covers(b"b/c") && few.covers(b"b/c/d/e"));
        assert!(!few.covers(b"b") && !few.covers(b"b/cd") && !few.covers(b"c"));
    }

    #[test]
    fn encodings_that_are_not_canonical_are_refused() {
        let rules = |pattern: &str| IgnoreOptions {
            patterns: vec![pattern.to_owned()],
            ..IgnoreOptions::default()
        };
        let sources = |paths: &[&[u8]]| Selection {
            sources: paths.iter().map(|path| Box::from(*path)).collect(),
            ..Selection::default()
        };
        let of_rules = |rules| Selection { rules, ..Selection::default() };
        let bad = [
            of_rules(vec![rules("a"), rules("a")]),
            of_rules(vec![IgnoreOptions::default()]),
            sources(&[b"/b", b"/a"]),
            sources(&[b"/a", b"/a"]),
            sources(&[b""]),
        ];
        for bad in bad {
            let mut w = WireWriter::new();
            bad.encode(&mut w);
            assert!(Selection::decode(&mut WireReader::new(&w.finish())).is_err(), "{bad:?}");
        }
    }
}
