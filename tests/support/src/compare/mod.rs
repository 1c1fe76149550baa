//! Lists every difference between two folders.
//!
//! Both folders are walked in the same order, side by side, so two trees of a million files take no
//! more memory than two small ones. Links are never followed, and only regular files are opened.
//!
//! Compared: kind, content, the 12 mode bits, owner, modification time in nanoseconds, symlink
//! targets, extended attributes (including ACLs), hard links, device numbers, and whether a sparse
//! file is still sparse. Not compared: access, change and birth times, inode flags.

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

/// What [`compare`] compares; the default is everything, skipping nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Compare modification times, of files and of folders.
    pub times: bool,
    /// Compare user and group ids.
    pub owner: bool,
    /// Compare the 12 mode bits. Without it, only the owner's execute bit of files is compared, as
    /// in git.
    pub modes: bool,
    /// Compare extended attributes.
    pub attributes: bool,
    /// Compare hard links.
    pub hard_links: bool,
    /// Compare whether sparse files of the first folder are sparse in the second one.
    pub sparse: bool,
    /// Compare mode, owner, times and attributes of the two folders themselves.
    pub root: bool,
    /// Report a folder without files that one side lacks.
    pub empty_folders: bool,
    /// Names that are skipped at any depth, such as `.snap`.
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
    /// Compares only kinds, contents, symlink targets and execute bits.
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

/// Lists the differences between the expected folder `a` and the folder `b`, one line for each with
/// its path. The list is empty if they are equal.
///
/// An unreadable entry is a difference too.
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

/// One of the two folders, with the state of its walk.
struct Side {
    root: PathBuf,
    entries: Peekable<Walk>,
    /// The first name of each file with several names.
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

    /// Returns the first name of the file at `path`. That is `path` itself if the file has one
    /// name, or if this is the first of its names.
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
