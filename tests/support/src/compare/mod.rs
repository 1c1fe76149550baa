//! Lists every difference between two folders.
//!
//! Both are walked in the same order, side by side, so two trees of a million
//! files take no more memory than two small ones. Links are never followed and
//! nothing but regular files is opened.
//!
//! Looked at: kind, content, the 12 mode bits, owner, modification time in
//! nanoseconds, symlink targets, extended attributes (ACLs among them), which
//! names are one file, device numbers, and whether a sparse file still is one.
//! Not looked at: access, change and birth times, inode flags.

mod entry;

use std::{
    cmp::Ordering,
    collections::HashMap,
    ffi::OsString,
    fs::Metadata,
    iter::Peekable,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use walkdir::{DirEntry, WalkDir};

/// What [`compare`] looks at; the default is everything, skipping nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Compare modification times, of files and of folders.
    pub times: bool,
    /// Compare user and group ids.
    pub owner: bool,
    /// Compare the 12 mode bits. Without it only "may be executed by its
    /// owner" of files is compared, which is what git keeps.
    pub modes: bool,
    /// Compare extended attributes.
    pub attributes: bool,
    /// Compare which names are one file.
    pub hard_links: bool,
    /// Compare whether files of the first folder that are sparse are so in the
    /// second one.
    pub sparse: bool,
    /// Compare mode, owner, times and attributes of the two folders themselves.
    pub root: bool,
    /// Notice a folder without files that one side lacks.
    pub empty_folders: bool,
    /// Names that are passed over wherever they stand, such as `.snap`.
    pub skip: Vec<OsString>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            times: true,
            owner: true,
            modes: true,
            attributes: true,
            hard_links: true,
            sparse: true,
            root: true,
            empty_folders: true,
            skip: Vec::new(),
        }
    }
}

impl Options {
    /// Only kinds, contents, symlink targets and executable bits.
    pub fn content_only() -> Self {
        Self {
            times: false,
            owner: false,
            modes: false,
            attributes: false,
            hard_links: false,
            sparse: false,
            root: false,
            empty_folders: false,
            skip: Vec::new(),
        }
    }
}

/// Lists the differences between the folders `a`, as it should be, and `b`, one
/// a line with its path; none when they are equal.
///
/// What cannot be read is a difference, too.
pub fn compare(a: &Path, b: &Path, options: &Options) -> Vec<String> {
    let mut comparison = Comparison { options, differences: Vec::new() };
    let (mut left, mut right) = (Side::new(a, options), Side::new(b, options));
    loop {
        match (left.peek(), right.peek()) {
            (None, None) => return comparison.differences,
            (Some(Err(error)), _) | (_, Some(Err(error))) => {
                let line = format!("cannot be walked: {error}");
                comparison.differences.push(line);
                return comparison.differences;
            }
            (Some(Ok(_)), None) => comparison.only(&mut left, "missing"),
            (None, Some(Ok(_))) => comparison.only(&mut right, "should not be there"),
            (Some(Ok(x)), Some(Ok(y))) => match left.name(&x).cmp(right.name(&y)) {
                Ordering::Less => comparison.only(&mut left, "missing"),
                Ordering::Greater => comparison.only(&mut right, "should not be there"),
                Ordering::Equal => comparison.both(&mut left, &mut right),
            },
        }
    }
}

type Walk = Box<dyn Iterator<Item = walkdir::Result<DirEntry>>>;

/// One of the two folders, as far as it has been walked.
struct Side {
    root: PathBuf,
    entries: Peekable<Walk>,
    /// First name of each file that has several.
    first_names: HashMap<(u64, u64), PathBuf>,
}

impl Side {
    fn new(root: &Path, options: &Options) -> Self {
        let skip = options.skip.clone();
        let walk = WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(move |entry| {
            entry.depth() == 0 || !skip.iter().any(|name| name == entry.file_name())
        });
        Self {
            root: root.to_owned(),
            entries: (Box::new(walk) as Walk).peekable(),
            first_names: HashMap::new(),
        }
    }

    fn peek(&mut self) -> Option<Result<PathBuf, String>> {
        match self.entries.peek()? {
            Ok(entry) => Some(Ok(entry.path().to_owned())),
            Err(error) => Some(Err(error.to_string())),
        }
    }

    fn name<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }

    fn take(&mut self) -> Option<PathBuf> {
        self.entries.next()?.ok().map(DirEntry::into_path)
    }

    /// First name of the file that `path` is a name of; `path` itself for the
    /// first one met and for everything that has only one.
    fn first_name(&mut self, path: &Path, stat: &Metadata) -> PathBuf {
        let name = self.name(path).to_owned();
        if stat.is_dir() || stat.nlink() < 2 {
            return name;
        }
        self.first_names.entry((stat.dev(), stat.ino())).or_insert(name).clone()
    }
}

struct Comparison<'o> {
    options: &'o Options,
    differences: Vec<String>,
}

impl Comparison<'_> {
    fn only(&mut self, side: &mut Side, what: &str) {
        let Some(path) = side.take() else { return };
        if !self.options.empty_folders && entry::holds_no_file(&path) {
            return;
        }
        self.note(side.name(&path), what);
    }

    fn both(&mut self, left: &mut Side, right: &mut Side) {
        let (Some(a), Some(b)) = (left.take(), right.take()) else { return };
        let name = left.name(&a).to_owned();
        let (stat_a, stat_b) = match (fs_err::symlink_metadata(&a), fs_err::symlink_metadata(&b)) {
            (Ok(stat_a), Ok(stat_b)) => (stat_a, stat_b),
            (Err(error), _) | (_, Err(error)) => {
                return self.note(&name, &format!("cannot be read: {error}"));
            }
        };
        if !name.as_os_str().is_empty() || self.options.root {
            for difference in entry::differences((&a, &stat_a), (&b, &stat_b), self.options) {
                self.note(&name, &difference);
            }
        }
        if self.options.hard_links {
            let first_a = left.first_name(&a, &stat_a);
            let first_b = right.first_name(&b, &stat_b);
            if first_a != first_b {
                let line = format!("hard link: one with {first_a:?}, got one with {first_b:?}");
                self.note(&name, &line);
            }
        }
    }

    fn note(&mut self, name: &Path, what: &str) {
        self.differences.push(format!("{name:?}: {what}"));
    }
}

#[cfg(test)]
mod tests;
