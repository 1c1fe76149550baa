//! What is left out of a snapshot.
//!
//! Patterns have full gitignore syntax, read as git does and matched by the
//! `ignore` crate. They come from the caller (as if from an ignore file at the
//! root, and stronger than any file) and from ignore files in the folders
//! themselves, where the nearest one decides. A folder that is left out is not
//! looked into, so nothing in it can be taken back in by a `!` pattern, as in
//! git.

use std::{
    ffi::OsStr,
    io::{self, Read},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
    sync::Arc,
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::fs::{Mode, OFlags, openat};

use crate::{
    base::limits,
    local::{
        pattern::as_git_reads,
        scan::{FileKind, FileStat, Listing},
        store_folder::{STORE_FOLDER, holds_store},
    },
};

pub use crate::format::selection::IgnoreOptions as Options;

/// Name of snap's own ignore files.
pub const SNAPIGNORE: &str = ".snapignore";

/// Name of git's ignore files.
pub const GITIGNORE: &str = ".gitignore";

/// Name of the file that marks a cache folder.
pub const CACHEDIR_TAG: &str = "CACHEDIR.TAG";

/// First bytes of a valid tag: see <https://bford.info/cachedir/>.
const CACHEDIR_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// A pattern that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a valid pattern")]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub source: ignore::Error,
}

/// Decides what is left out of one snapshot.
#[derive(Debug)]
pub struct Rules {
    options: Options,
    own: Gitignore,
    store: Option<(u64, u64)>,
}

/// Ignore files of a folder and of those above it.
#[derive(Clone, Debug, Default)]
pub struct Scope(Option<Arc<Level>>);

#[derive(Debug)]
struct Level {
    above: Scope,
    matcher: Gitignore,
    /// Bytes of the folder's own path, with the slash behind it.
    prefix_bytes: usize,
}

impl Rules {
    /// Makes rules of options. `store` is device and inode of the store's
    /// folder, which is never part of a snapshot, whatever its name.
    ///
    /// # Errors
    /// [`PatternError`] names the first pattern that cannot be parsed.
    pub fn new(options: Options, store: Option<(u64, u64)>) -> Result<Self, PatternError> {
        let mut builder = GitignoreBuilder::new("");
        for pattern in &options.patterns {
            let named = |source| PatternError { pattern: pattern.clone(), source };
            builder.add_line(None, &as_git_reads(pattern)).map_err(named)?;
        }
        let named = |source| PatternError { pattern: options.patterns.join(" "), source };
        let own = builder.build().map_err(named)?;
        Ok(Self { options, own, store })
    }

    /// Makes rules of options for snapshots in the store whose folder is `store`.
    ///
    /// # Errors
    /// As [`Rules::new`].
    pub fn beside(options: Options, store: &Path) -> Result<Self, PatternError> {
        let place = rustix::fs::stat(store).ok().map(|stat| (stat.st_dev, stat.st_ino));
        Self::new(options, place)
    }

    /// The scope inside the folder `fd` whose listing and path are given.
    ///
    /// Unreadable ignore files are returned as errors beside it, so that they
    /// can be told; lines that are no patterns are passed over, as git does.
    pub fn enter(
        &self,
        above: &Scope,
        fd: impl AsFd,
        listing: &Listing,
        path: &[u8],
    ) -> (Scope, Vec<(&'static str, io::Error)>) {
        let mut scope = above.clone();
        let mut errors = Vec::new();
        let files =
            if self.options.gitignore { &[GITIGNORE, SNAPIGNORE][..] } else { &[SNAPIGNORE] };
        for name in files {
            let found = listing.entries.binary_search_by(|e| listing.name(e).cmp(name.as_bytes()));
            let Ok(at) = found else { continue };
            if listing.entries[at].stat.kind != FileKind::File {
                continue;
            }
            match read_small(&fd, name).and_then(whole) {
                Ok(text) => scope = scope.with_file(&text, path),
                Err(error) => errors.push((*name, error)),
            }
        }
        (scope, errors)
    }

    /// Whether the folder with this listing holds nothing but its cache tag
    /// as far as a snapshot is concerned.
    pub fn is_cache_folder(&self, fd: impl AsFd, listing: &Listing) -> bool {
        self.options.cache_folders
            && listing
                .entries
                .binary_search_by(|e| listing.name(e).cmp(CACHEDIR_TAG.as_bytes()))
                .is_ok()
            && read_small(&fd, CACHEDIR_TAG).is_ok_and(|text| self.honours_cache_tag(&text))
    }

    /// Returns whether a tag with this text makes its folder a cache folder.
    pub fn honours_cache_tag(&self, text: &[u8]) -> bool {
        self.options.cache_folders && text.starts_with(CACHEDIR_SIGNATURE)
    }

    /// Whether an entry is a cache folder's tag.
    pub fn is_cache_tag(name: &[u8]) -> bool {
        name == CACHEDIR_TAG.as_bytes()
    }

    /// Whether a folder is looked into; `root` is the device of the root.
    pub fn descends(&self, stat: &FileStat, root_device: u64) -> bool {
        !self.options.one_file_system || stat.device == root_device
    }

    /// Returns whether an entry of the open folder `fd` is left out. `path` is relative
    /// to the root.
    pub fn excludes(
        &self,
        scope: &Scope,
        (fd, name): (impl AsFd, &[u8]),
        path: &[u8],
        stat: &FileStat,
    ) -> bool {
        let is_folder = stat.kind == FileKind::Folder;
        if is_folder && self.store == Some((stat.device, stat.inode)) {
            return true;
        }
        // A folder that cannot be read is skipped by the walk, which tells so.
        let leads_to_folder = is_folder || stat.kind == FileKind::Symlink;
        let may_be_store = leads_to_folder && name == STORE_FOLDER.as_bytes();
        if may_be_store && holds_store(fd, name).unwrap_or(false) {
            return true;
        }
        self.excludes_size(stat) || self.excludes_path(scope, path, is_folder)
    }

    /// Returns whether the size limit leaves out a file.
    pub fn excludes_size(&self, stat: &FileStat) -> bool {
        let too_large = self.options.larger_than_bytes.is_some_and(|limit| stat.size > limit);
        stat.kind == FileKind::File && too_large
    }

    /// Returns whether a pattern leaves out the entry at `path`.
    pub fn excludes_path(&self, scope: &Scope, path: &[u8], is_folder: bool) -> bool {
        if !self.own.is_empty() {
            match self.own.matched(as_path(path), is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        scope.excludes(path, is_folder)
    }

    /// Everything in the options that decides over an entry beside its own
    /// name and stat, for telling one set of rules from another.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

impl Scope {
    /// With the ignore file `text` of the folder at `path`, which is below
    /// those of the present scope.
    #[must_use]
    pub fn with_file(self, text: &[u8], path: &[u8]) -> Self {
        let mut builder = GitignoreBuilder::new("");
        for line in lines(text) {
            // A line that is no pattern matches nothing.
            let _ = builder.add_line(None, &as_git_reads(line));
        }
        match builder.build() {
            Ok(matcher) if !matcher.is_empty() => {
                let prefix_bytes = if path.is_empty() { 0 } else { path.len() + 1 };
                Self(Some(Arc::new(Level { above: self, matcher, prefix_bytes })))
            }
            _ => self,
        }
    }

    fn excludes(&self, path: &[u8], is_folder: bool) -> bool {
        let mut scope = self;
        while let Some(level) = &scope.0 {
            let inside = path.get(level.prefix_bytes..).unwrap_or_default();
            match level.matcher.matched(as_path(inside), is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => scope = &level.above,
            }
        }
        false
    }
}

/// The lines of an ignore file as git splits it: a byte order mark is passed
/// over, and `\n` or `\r\n` ends a line. A line that is not UTF-8 is left out,
/// since the matcher has no form for it.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).ok())
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Refuses an ignore file of which [`read_small`] has read the beginning only:
/// a pattern that is cut off matches other files.
pub(crate) fn whole(text: Vec<u8>) -> io::Result<Vec<u8>> {
    let limit = limits::IGNORE_FILE_BYTES;
    match text.len() as u64 > limit {
        true => Err(io::Error::other(format!("an ignore file has at most {limit} bytes"))),
        false => Ok(text),
    }
}

/// Reads a file, of a large one [`limits::IGNORE_FILE_BYTES`] and one byte.
pub(crate) fn read_small(folder: &impl AsFd, name: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(openat(folder, name, flags, Mode::empty())?);
    let mut text = Vec::new();
    file.take(limits::IGNORE_FILE_BYTES + 1).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(kind: FileKind, size: u64) -> FileStat {
        let dir = tempfile::tempdir().unwrap();
        let mut stat = FileStat::of_fd(fs_err::File::open(dir.path()).unwrap().as_fd()).unwrap();
        (stat.kind, stat.size) = (kind, size);
        stat
    }

    fn rules(patterns: &[&str]) -> Rules {
        let patterns = patterns.iter().map(ToString::to_string).collect();
        Rules::new(Options { patterns, ..Options::default() }, None).unwrap()
    }

    #[test]
    fn the_nearest_ignore_file_decides() {
        let rules = rules(&[]);
        let file = stat(FileKind::File, 1);
        let top = Scope::default().with_file(b"*.log\n/build\n# comment\n\n", b"");
        let sub = top.clone().with_file(b"!keep.log\n", b"sub");
        let excluded = |scope: &Scope, path: &str| {
            rules.excludes_size(&file) || rules.excludes_path(scope, path.as_bytes(), false)
        };
        assert!(excluded(&top, "a.log"));
        assert!(excluded(&sub, "sub/a.log"));
        assert!(!excluded(&sub, "sub/keep.log"));
        assert!(excluded(&top, "build"));
        assert!(!excluded(&sub, "sub/build"));
    }

    #[test]
    fn only_spaces_are_dropped_from_the_end_of_a_pattern_as_git_does() {
        // Each pattern leaves out the first name and keeps the second.
        for (pattern, out, kept) in [
            ("a ", "a", "a "),
            ("a  \\ ", "a   ", "a  "),
            ("a\\  ", "a ", "a"),
            ("a\\\\ ", "a\\", "a\\ "),
            ("a\t", "a\t", "a"),
            ("a\\\t", "a\t", "a\\"),
            ("a\\\\\t", "a\\\t", "a\\"),
            ("a\t ", "a\t", "a"),
            ("\t", "\t", "a"),
            ("a\u{a0}", "a\u{a0}", "a"),
            ("a\u{3000}", "a\u{3000}", "a"),
            ("a\r", "a\r", "a"),
        ] {
            let rules = rules(&[pattern]);
            let left_out =
                |name: &str| rules.excludes_path(&Scope::default(), name.as_bytes(), false);
            assert!(left_out(out), "{pattern:?} should leave out {out:?}");
            assert!(!left_out(kept), "{pattern:?} should keep {kept:?}");
        }
    }

    #[test]
    fn lines_end_as_in_git_and_those_that_are_no_text_are_left_out() {
        let text = b"\xef\xbb\xbfa\r\nb\t\n\xff.log\nc\r";
        assert_eq!(lines(text).collect::<Vec<_>>(), ["a", "b\t", "c"]);
    }

    #[test]
    fn an_ignore_file_that_is_too_long_is_refused_whole() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#".repeat(limits::IGNORE_FILE_BYTES as usize);
        fs_err::write(dir.path().join("whole"), &text).unwrap();
        fs_err::write(dir.path().join("long"), text + "\n").unwrap();
        let fd = fs_err::File::open(dir.path()).unwrap();
        assert!(read_small(&fd, "whole").and_then(whole).is_ok());
        assert!(read_small(&fd, "long").and_then(whole).is_err());
    }

    #[test]
    fn own_patterns_are_stronger_than_files() {
        let rules = rules(&["!important.log", "*.tmp"]);
        let scope = Scope::default().with_file(b"*.log\n!x.tmp\n", b"");
        assert!(!rules.excludes_path(&scope, b"important.log", false));
        assert!(rules.excludes_path(&scope, b"x.tmp", false));
        assert!(rules.excludes_path(&scope, b"other.log", false));
    }

    #[test]
    fn a_store_is_never_part_of_a_snapshot_and_another_folder_of_its_name_is() {
        let dir = tempfile::tempdir().unwrap();
        let fd = fs_err::File::open(dir.path()).unwrap();
        let excluded = |kind| {
            let rules = rules(&["!.snap"]);
            rules.excludes(&Scope::default(), (fd.file(), b".snap"), b"a/.snap", &stat(kind, 0))
        };
        let store = dir.path().join(".snap");
        fs_err::create_dir(&store).unwrap();
        fs_err::write(store.join("notes"), "").unwrap();
        assert!(!excluded(FileKind::Folder));
        fs_err::remove_file(store.join("notes")).unwrap();
        fs_err::write(store.join("lock"), "").unwrap();
        assert!(excluded(FileKind::Folder), "one that is being made");
        assert!(!excluded(FileKind::File));
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let options = Options { patterns: vec!["ok".into(), "[z-a]".into()], ..Options::default() };
        let error = Rules::new(options, None).unwrap_err();
        assert_eq!(error.to_string(), "`[z-a]` is not a valid pattern");
    }
}
