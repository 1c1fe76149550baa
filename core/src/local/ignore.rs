//! Rules that exclude files and folders from a snapshot.
//!
//! Patterns have the full gitignore syntax and git's meaning.
//! There are two sources. Patterns from the caller act like an ignore file at the root, but take
//! precedence over all files. If several ignore files apply, the nearest one decides. The walk
//! does not enter an excluded folder, so a `!` pattern cannot include anything in it again, as in
//! git.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    io::{self, Read},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
    sync::{Arc, OnceLock},
};

use rustix::fs::{Mode, OFlags, openat};

use crate::{
    base::{kind::ErrorKind, limits, name::EntryName},
    local::{
        kernel_files::kernel_devices,
        mount::is_mount_point,
        pattern::{PatternCost, PatternProblem, PatternSet, Verdict, excerpt, wildcards},
        scan::{FileKind, FileStat, ScannedFolder},
        store_folder::{STORE_FOLDER, holds_store},
        wildmatch::Letters,
    },
};

pub use crate::format::selection::{FolderMarker, IgnoreOptions as Options};

/// Name of snap's own ignore files.
pub const SNAPIGNORE: &str = ".snapignore";

/// Name of git's ignore files.
pub const GITIGNORE: &str = ".gitignore";

/// Name of a git repository, or of the file that names it, at the top of a git work tree.
pub const GIT: &str = ".git";

/// Name of the file that marks a cache folder.
const CACHEDIR_TAG: &str = "CACHEDIR.TAG";

/// First bytes of a valid tag, see <https://bford.info/cachedir/>.
const CACHEDIR_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// A pattern that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a valid pattern")]
pub struct PatternError {
    /// The start of the pattern.
    pub pattern: String,
    pub source: PatternProblem,
}

impl PatternError {
    /// Returns what the caller can do about the error.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// Contents of ignore files by the path of their folder. Each folder's list has file names and
/// contents, lowest precedence first.
pub type IgnoreFiles = HashMap<Vec<u8>, Vec<(&'static str, Vec<u8>)>>;

/// The exclude rules of one snapshot.
#[derive(Debug)]
pub struct IgnoreRules {
    /// Ignore files outside the scope of a partial clone, which are not on disk but still apply.
    unfetched: IgnoreFiles,
    options: Options,
    /// True if `.git` at the root is excluded. The patterns in `own` lack it, because matching a
    /// pattern costs time for each entry of the snapshot.
    excludes_git: bool,
    own: PatternSet,
    markers: Vec<FolderMarker>,
    /// The store folder, which is never part of a snapshot, whatever its name is.
    store: Option<FileStat>,
    /// Devices of kernel file systems such as `/proc`. Read when the walk first meets another
    /// device.
    kernel_devices: OnceLock<HashSet<u64>>,
}

/// The ignore files of a folder and of the folders above it.
#[derive(Clone, Debug, Default)]
pub struct IgnoreScope(Option<Arc<IgnoreLevel>>);

#[derive(Debug)]
struct IgnoreLevel {
    above: IgnoreScope,
    patterns: PatternSet,
    /// Length in bytes of the folder's own path, including the slash after it.
    prefix_bytes: usize,
}

impl IgnoreRules {
    /// Makes rules from options, for snapshots without a store of their own.
    ///
    /// # Errors
    /// [`PatternError`] names the first invalid pattern.
    pub fn new(options: Options) -> Result<Self, PatternError> {
        let excludes_git = options.leaves_out_git();
        let patterns = &options.patterns[..options.patterns.len() - usize::from(excludes_git)];
        let mut own = PatternSet::default();
        for (patterns, letters) in
            [(patterns, Letters::Exact), (&options.ignore_case_patterns[..], Letters::IgnoreCase)]
        {
            for pattern in patterns {
                let named = |source| PatternError { pattern: excerpt(pattern), source };
                own.add(pattern, letters).map_err(named)?;
            }
        }
        let (unfetched, kernel_devices) = (IgnoreFiles::new(), OnceLock::new());
        let mut markers = options.markers.clone();
        if options.cache_folders
            && let Ok(name) = EntryName::new(CACHEDIR_TAG.as_bytes())
        {
            markers.push(FolderMarker { name, header: CACHEDIR_SIGNATURE.into() });
        }
        Ok(Self { unfetched, options, excludes_git, own, markers, store: None, kernel_devices })
    }

    /// Makes rules from options, for snapshots in the store at `store`.
    ///
    /// # Errors
    /// As [`IgnoreRules::new`].
    pub fn beside(options: Options, store: &Path) -> Result<Self, PatternError> {
        let store = rustix::fs::stat(store).ok().and_then(|stat| FileStat::from_raw(&stat));
        Ok(Self { store, ..Self::new(options)? })
    }

    /// Adds ignore files that a partial clone did not fetch.
    #[must_use]
    pub fn with_unfetched(self, unfetched: IgnoreFiles) -> Self {
        Self { unfetched, ..self }
    }

    /// Returns the scope inside the folder `fd` with this listing and path.
    ///
    /// Also returns an error for each ignore file that is unreadable or has a line that is too
    /// costly to apply, for the caller to report. Skips invalid patterns in the files, as git does.
    pub fn enter(
        &self,
        above: &IgnoreScope,
        fd: impl AsFd,
        listing: &ScannedFolder,
        path: &[u8],
    ) -> (IgnoreScope, Vec<(&'static str, io::Error)>) {
        let mut scope = above.clone();
        let mut errors = Vec::new();
        let files =
            if self.options.gitignore { &[GITIGNORE, SNAPIGNORE][..] } else { &[SNAPIGNORE] };
        for name in files {
            let text = match listing.find(name.as_bytes()).map(|entry| entry.stat.kind) {
                None => {
                    let mut texts = self.unfetched.get(path).into_iter().flatten();
                    let Some((_, text)) = texts.find(|(other, _)| other == name) else { continue };
                    Ok(text.clone())
                }
                Some(FileKind::File) => read_small(&fd, name.as_bytes()).and_then(whole),
                Some(FileKind::Folder) => continue,
                // Report the entry, because its rules do not apply. Like git, do not follow a link:
                // it may lead out of the project.
                Some(_) => Err(io::Error::other("only regular files are read as ignore files")),
            };
            let error = match text {
                Ok(text) => {
                    let error;
                    (scope, error) = scope.with_file(&text, path);
                    error
                }
                Err(error) => Some(error),
            };
            errors.extend(error.map(|error| (*name, error)));
        }
        (scope, errors)
    }

    /// Returns the markers of folders, including the tag of cache folders.
    pub fn markers(&self) -> &[FolderMarker] {
        &self.markers
    }

    /// Returns the names of the markers that mark the folder with this listing. A snapshot contains
    /// only the markers of a marked folder.
    pub fn markers_in(&self, fd: impl AsFd, listing: &ScannedFolder) -> Vec<&EntryName> {
        let marks = |marker: &&FolderMarker| {
            let name = marker.name.as_bytes();
            let kind = listing.find(name).map(|entry| entry.stat.kind);
            let starts = || {
                let text = read_small(&fd, name);
                kind == Some(FileKind::File) && text.is_ok_and(|text| marker.is_start_of(&text))
            };
            kind.is_some() && (marker.header.is_empty() || starts())
        };
        self.markers.iter().filter(marks).map(|marker| &marker.name).collect()
    }

    /// Returns true if the walk enters a folder. `root_device` is the device of the committed
    /// folder. The walk does not enter kernel file systems below it, such as `/proc` and `/sys`:
    /// their files are not the user's, and to read them may have side effects.
    pub fn descends(&self, stat: &FileStat, root_device: u64) -> bool {
        stat.device == root_device
            || !self.options.one_file_system
                && !self.kernel_devices.get_or_init(kernel_devices).contains(&stat.device)
    }

    /// As [`IgnoreRules::descends`], for an entry of the open folder `fd`. A walk that stays on one
    /// file system does not enter a bind mount either, which has the same device.
    pub fn enters(&self, fd: impl AsFd, name: &[u8], stat: &FileStat, root_device: u64) -> bool {
        self.descends(stat, root_device)
            && !(self.options.one_file_system && is_mount_point(fd, OsStr::from_bytes(name)))
    }

    /// Returns true if an entry of the open folder `fd` is excluded. `path` is relative to the
    /// root.
    pub fn excludes(
        &self,
        scope: &IgnoreScope,
        fd: impl AsFd,
        name: &[u8],
        path: &[u8],
        stat: &FileStat,
    ) -> bool {
        let is_folder = stat.kind == FileKind::Folder;
        let is_it = |store: &FileStat| (store.device, store.inode) == (stat.device, stat.inode);
        if is_folder && self.store.as_ref().is_some_and(is_it) {
            return true;
        }
        // If the folder cannot be read, the walk skips and reports it.
        let leads_to_folder = is_folder || stat.kind == FileKind::Symlink;
        let may_be_store = leads_to_folder && name == STORE_FOLDER.as_bytes();
        if may_be_store && holds_store(fd, name).unwrap_or(false) {
            return true;
        }
        self.excludes_size(stat) || self.excludes_path(scope, path, is_folder)
    }

    /// Returns true if the size limit excludes a file.
    pub fn excludes_size(&self, stat: &FileStat) -> bool {
        let too_large = self.options.larger_than_bytes.is_some_and(|limit| stat.size > limit);
        stat.kind == FileKind::File && too_large
    }

    /// Returns true if a pattern excludes the entry at `path`.
    pub fn excludes_path(&self, scope: &IgnoreScope, path: &[u8], is_folder: bool) -> bool {
        if self.excludes_git_at(path) {
            return true;
        }
        if !self.own.is_empty() {
            match self.own.matched(path, is_folder) {
                Some(Verdict::Excluded) => return true,
                Some(Verdict::Included) => return false,
                None => {}
            }
        }
        scope.excludes(path, is_folder)
    }

    /// Returns true if `path` is the `.git` at the root, and the rules exclude it as such.
    pub fn excludes_git_at(&self, path: &[u8]) -> bool {
        self.excludes_git && path == GIT.as_bytes()
    }

    /// Returns the options, for comparing two sets of rules. The options, the name and the stat of
    /// an entry decide whether it is excluded.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

impl FolderMarker {
    /// Returns true if a file with this content has the header.
    pub fn is_start_of(&self, text: &[u8]) -> bool {
        text.starts_with(&self.header)
    }
}

impl IgnoreScope {
    /// Adds the ignore file `text` of the folder at `path`, which is below the folders of this
    /// scope. Also returns an error that names the lines that are too costly to apply.
    #[must_use]
    pub fn with_file(self, text: &[u8], path: &[u8]) -> (Self, Option<io::Error>) {
        let mut patterns = PatternSet::default();
        let (mut costly, mut count) = (Vec::new(), 0);
        for (number, line) in numbered_lines(text) {
            let more = if line.starts_with('#') { 0 } else { wildcards(line.as_bytes()) };
            if more <= limits::PATTERN_WILDCARDS {
                count += more;
            }
            if more > 0 && count > limits::IGNORE_FILE_WILDCARDS {
                costly.push((number, PatternCost::File));
                continue;
            }
            if let Err(PatternProblem::Cost(cost)) = patterns.add(line, Letters::Exact) {
                costly.push((number, cost));
            }
        }
        let error = costly.first().map(|(number, cost)| {
            let more = match costly.len() - 1 {
                0 => String::new(),
                1 => " (and another line)".to_owned(),
                more => format!(" (and {more} more lines)"),
            };
            io::Error::other(format!("line {number}{more} is not applied: {cost}"))
        });
        if patterns.is_empty() {
            return (self, error);
        }
        let prefix_bytes = if path.is_empty() { 0 } else { path.len() + 1 };
        let level = IgnoreLevel { above: self, patterns, prefix_bytes };
        (Self(Some(Arc::new(level))), error)
    }

    fn excludes(&self, path: &[u8], is_folder: bool) -> bool {
        let mut scope = self;
        while let Some(level) = &scope.0 {
            let inside = path.get(level.prefix_bytes..).unwrap_or_default();
            match level.patterns.matched(inside, is_folder) {
                Some(Verdict::Excluded) => return true,
                Some(Verdict::Included) => return false,
                None => scope = &level.above,
            }
        }
        false
    }
}

/// Splits an ignore file into lines as git does: it skips a byte order mark, and `\n` or `\r\n`
/// ends a line. Leaves out lines that are not UTF-8, because the patterns of a commit are texts.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &str> {
    numbered_lines(text).map(|(_, line)| line)
}

/// Returns the same lines as [`lines`], with their numbers in the file from 1.
fn numbered_lines(text: &[u8]) -> impl Iterator<Item = (usize, &str)> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    (1..).zip(text.split(|byte| *byte == b'\n')).filter_map(|(number, line)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Some((number, std::str::from_utf8(line).ok()?))
    })
}

/// Fails if [`read_small`] has read only the start of an ignore file: a truncated pattern would
/// match other files.
pub(crate) fn whole(text: Vec<u8>) -> io::Result<Vec<u8>> {
    let limit = limits::IGNORE_FILE_BYTES;
    match text.len() as u64 > limit {
        true => {
            Err(io::Error::other(format!("the ignore file exceeds the limit of {limit} bytes")))
        }
        false => Ok(text),
    }
}

/// Reads a file, but at most one byte more than [`limits::IGNORE_FILE_BYTES`].
pub(crate) fn read_small(folder: &impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
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

    fn rules(patterns: &[&str]) -> IgnoreRules {
        let patterns = patterns.iter().map(ToString::to_string).collect();
        IgnoreRules::new(Options { patterns, ..Options::default() }).unwrap()
    }

    #[test]
    fn the_nearest_ignore_file_takes_precedence() {
        let rules = rules(&[]);
        let file = stat(FileKind::File, 1);
        let top = IgnoreScope::default().with_file(b"*.log\n/build\n# comment\n\n", b"").0;
        let sub = top.clone().with_file(b"!keep.log\n", b"sub").0;
        let excluded = |scope: &IgnoreScope, path: &str| {
            rules.excludes_size(&file) || rules.excludes_path(scope, path.as_bytes(), false)
        };
        assert!(excluded(&top, "a.log"));
        assert!(excluded(&sub, "sub/a.log"));
        assert!(!excluded(&sub, "sub/keep.log"));
        assert!(excluded(&top, "build"));
        assert!(!excluded(&sub, "sub/build"));
    }

    #[test]
    fn case_is_ignored_only_by_ignore_case_patterns() {
        let options = Options {
            patterns: vec!["*.o".into()],
            ignore_case_patterns: vec!["*.JPG".into(), "!Keep.jpg".into()],
            ..Options::default()
        };
        let rules = IgnoreRules::new(options).unwrap();
        let excluded =
            |name: &str| rules.excludes_path(&IgnoreScope::default(), name.as_bytes(), false);
        assert!(excluded("a.o") && !excluded("a.O"));
        assert!(excluded("a.jpg") && excluded("a.JpG"));
        assert!(!excluded("KEEP.JPG"));
    }

    #[test]
    fn only_trailing_spaces_are_trimmed_as_in_git() {
        // Each pattern excludes the first name and keeps the second.
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
                |name: &str| rules.excludes_path(&IgnoreScope::default(), name.as_bytes(), false);
            assert!(left_out(out), "{pattern:?} should leave out {out:?}");
            assert!(!left_out(kept), "{pattern:?} should keep {kept:?}");
        }
    }

    #[test]
    fn lines_end_as_in_git_and_lines_that_are_not_utf_8_are_skipped() {
        let text = b"\xef\xbb\xbfa\r\nb\t\n\xff.log\nc\r";
        assert_eq!(lines(text).collect::<Vec<_>>(), ["a", "b\t", "c"]);
    }

    #[test]
    fn an_ignore_file_above_the_size_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#".repeat(limits::IGNORE_FILE_BYTES as usize);
        fs_err::write(dir.path().join("whole"), &text).unwrap();
        fs_err::write(dir.path().join("long"), text + "\n").unwrap();
        let fd = fs_err::File::open(dir.path()).unwrap();
        assert!(read_small(&fd, b"whole").and_then(whole).is_ok());
        assert!(read_small(&fd, b"long").and_then(whole).is_err());
    }

    #[test]
    fn costly_ignore_lines_are_reported_and_the_others_apply() {
        let text =
            ["\u{feff}*.log", "[z-a]", &"[".repeat(1_000_000), "*.tmp", &"**/".repeat(20_000)]
                .join("\n");
        let (scope, error) = IgnoreScope::default().with_file(text.as_bytes(), b"");
        let error = error.unwrap().to_string();
        assert_eq!(error, "line 3 (and another line) is not applied: it is longer than 4096 bytes");
        let rules = rules(&[]);
        let excluded = |path: &str| rules.excludes_path(&scope, path.as_bytes(), false);
        assert!(excluded("a.log") && excluded("a.tmp"));
        assert!(!excluded("a"));
    }

    #[test]
    fn ignore_lines_above_the_wildcard_limit_are_reported() {
        let count = limits::IGNORE_FILE_WILDCARDS + 10;
        let text = (1..=count).map(|n| format!("*.e{n}\n")).collect::<String>() + "plain\n";
        let (scope, error) = IgnoreScope::default().with_file(text.as_bytes(), b"");
        let wanted =
            "line 8193 (and 9 more lines) is not applied: its file has more than 8192 wildcards";
        assert_eq!(error.unwrap().to_string(), wanted);
        let excluded = |path: &str| rules(&[]).excludes_path(&scope, path.as_bytes(), false);
        assert!(excluded("a.e1") && excluded("a.e8192") && excluded("plain"));
        assert!(!excluded("a.e8193"));
    }

    #[test]
    fn a_costly_pattern_of_an_option_is_refused() {
        let options = Options { patterns: vec!["[".repeat(10_000)], ..Options::default() };
        let error = IgnoreRules::new(options).unwrap_err();
        assert!(error.to_string().len() < 300);
        assert_eq!(error.source.to_string(), "it is longer than 4096 bytes");
    }

    #[test]
    fn patterns_of_options_override_ignore_files() {
        let rules = rules(&["!important.log", "*.tmp"]);
        let scope = IgnoreScope::default().with_file(b"*.log\n!x.tmp\n", b"").0;
        assert!(!rules.excludes_path(&scope, b"important.log", false));
        assert!(rules.excludes_path(&scope, b"x.tmp", false));
        assert!(rules.excludes_path(&scope, b"other.log", false));
    }

    #[test]
    fn only_a_real_store_is_left_out_of_a_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let fd = fs_err::File::open(dir.path()).unwrap();
        let excluded = |kind| {
            let rules = rules(&["!.snap"]);
            rules.excludes(&IgnoreScope::default(), fd.file(), b".snap", b"a/.snap", &stat(kind, 0))
        };
        let store = dir.path().join(".snap");
        fs_err::create_dir(&store).unwrap();
        fs_err::write(store.join("notes"), "").unwrap();
        assert!(!excluded(FileKind::Folder));
        fs_err::remove_file(store.join("notes")).unwrap();
        fs_err::write(store.join("lock"), "").unwrap();
        assert!(excluded(FileKind::Folder), "a store that is being created");
        assert!(!excluded(FileKind::File));
    }

    #[test]
    fn an_error_of_an_invalid_pattern_names_it() {
        let options = Options { patterns: vec!["ok".into(), "[z".into()], ..Options::default() };
        let error = IgnoreRules::new(options).unwrap_err();
        assert_eq!(error.to_string(), "`[z` is not a valid pattern");
    }
}
