//! What is left out of a snapshot.
//!
//! Patterns have full gitignore syntax, matched by the `ignore` crate. They
//! come from the caller (as if from an ignore file at the root, and stronger
//! than any file) and from ignore files in the folders themselves, where the
//! nearest one decides. A folder that is left out is not looked into, so
//! nothing in it can be taken back in by a `!` pattern, as in git.

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
    local::scan::{FileKind, FileStat, Listing},
};

/// Name of snap's own ignore files.
pub const SNAPIGNORE: &str = ".snapignore";

/// Name of git's ignore files.
pub const GITIGNORE: &str = ".gitignore";

/// Folders of this name are stores and never part of a snapshot.
const STORE: &[u8] = b".snap";

const CACHEDIR_TAG: &[u8] = b"CACHEDIR.TAG";

/// First bytes of a valid tag: see <https://bford.info/cachedir/>.
const CACHEDIR_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// What the caller wants left out.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Patterns in gitignore syntax, relative to the root.
    pub patterns: Vec<String>,
    /// Honour `.gitignore` files, too.
    pub gitignore: bool,
    /// Leave out what is in folders with a `CACHEDIR.TAG`, but for the tag.
    pub cache_folders: bool,
    /// Leave out larger files.
    pub larger_than_bytes: Option<u64>,
    /// Do not look into folders on other file systems.
    pub one_file_system: bool,
}

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
            builder.add_line(None, pattern).map_err(named)?;
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
            match read_small(&fd, name) {
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
            && listing.entries.binary_search_by(|e| listing.name(e).cmp(CACHEDIR_TAG)).is_ok()
            && read_small(&fd, "CACHEDIR.TAG")
                .is_ok_and(|text| text.starts_with(CACHEDIR_SIGNATURE))
    }

    /// Whether an entry is a cache folder's tag.
    pub fn is_cache_tag(name: &[u8]) -> bool {
        name == CACHEDIR_TAG
    }

    /// Whether a folder is looked into; `root` is the device of the root.
    pub fn descends(&self, stat: &FileStat, root_device: u64) -> bool {
        !self.options.one_file_system || stat.device == root_device
    }

    /// Whether an entry is left out. `path` is relative to the root.
    pub fn excludes(&self, scope: &Scope, path: &[u8], name: &[u8], stat: &FileStat) -> bool {
        let is_folder = stat.kind == FileKind::Folder;
        if is_folder && (name == STORE || self.store == Some((stat.device, stat.inode))) {
            return true;
        }
        let too_large = self.options.larger_than_bytes.is_some_and(|limit| stat.size > limit);
        if stat.kind == FileKind::File && too_large {
            return true;
        }
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
    fn with_file(self, text: &[u8], path: &[u8]) -> Self {
        let mut builder = GitignoreBuilder::new("");
        for line in String::from_utf8_lossy(text).lines() {
            // A line that is no pattern matches nothing.
            let _ = builder.add_line(None, line);
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

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn read_small(folder: &impl AsFd, name: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(openat(folder, name, flags, Mode::empty())?);
    let mut text = Vec::new();
    file.take(limits::IGNORE_FILE_BYTES).read_to_end(&mut text)?;
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
            rules.excludes(
                scope,
                path.as_bytes(),
                path.rsplit('/').next().unwrap().as_bytes(),
                &file,
            )
        };
        assert!(excluded(&top, "a.log"));
        assert!(excluded(&sub, "sub/a.log"));
        assert!(!excluded(&sub, "sub/keep.log"));
        assert!(excluded(&top, "build"));
        assert!(!excluded(&sub, "sub/build"));
    }

    #[test]
    fn own_patterns_are_stronger_than_files() {
        let rules = rules(&["!important.log", "*.tmp"]);
        let file = stat(FileKind::File, 1);
        let scope = Scope::default().with_file(b"*.log\n!x.tmp\n", b"");
        assert!(!rules.excludes(&scope, b"important.log", b"important.log", &file));
        assert!(rules.excludes(&scope, b"x.tmp", b"x.tmp", &file));
        assert!(rules.excludes(&scope, b"other.log", b"other.log", &file));
    }

    #[test]
    fn a_store_is_never_part_of_a_snapshot() {
        let folder = stat(FileKind::Folder, 0);
        assert!(rules(&["!.snap"]).excludes(&Scope::default(), b"a/.snap", b".snap", &folder));
        let file = stat(FileKind::File, 0);
        assert!(!rules(&[]).excludes(&Scope::default(), b".snap", b".snap", &file));
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let options = Options { patterns: vec!["ok".into(), "[z-a]".into()], ..Options::default() };
        let error = Rules::new(options, None).unwrap_err();
        assert_eq!(error.to_string(), "`[z-a]` is not a valid pattern");
    }
}
