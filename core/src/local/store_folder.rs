//! Recognises a store by the entries of its folder.
//!
//! A commit excludes stores, and a restore never deletes one. Both look at the entries of the
//! folder: a folder called `.snap` need not be a store, and a bare store may have any name.
//!
//! A folder is a store if it contains the folder `objects` or `partial`, or a symbolic link of that
//! name, and
//!
//! 1. the file `config.toml` with `HEAD` or `refs`, or
//! 2. at least three of `config.toml`, `index`, `cache`, `tmp` and `lock`, so that a store that
//!    lost its settings is still recognised.
//!
//! A store that is being created counts too: it contains the file `lock` and only parts of a store,
//! and it is called `.snap` or contains `objects`. A Git repository has `objects`, `HEAD` and
//! `refs`, but none of the five names of rule 2, so it does not count as a store.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, openat},
    path::Arg,
};

use crate::{base::id::PackId, local::contain::FolderNames};

/// Name of the store folder in a project.
pub const STORE_FOLDER: &str = ".snap";

/// Returns true for the name of the store folder in a project, also on file systems that do not
/// distinguish upper and lower case. Some of these take `\u{17f}` (long s) for `s`.
pub fn is_store_name(name: &[u8]) -> bool {
    let after_long_s = name.strip_prefix(".\u{17f}".as_bytes());
    name.eq_ignore_ascii_case(STORE_FOLDER.as_bytes())
        || after_long_s.is_some_and(|end| end.eq_ignore_ascii_case(b"nap"))
}

/// The settings file of a store.
const CONFIG: &[u8] = b"config.toml";

/// Parts of a store that a Git repository does not have.
const OWN_PARTS: [(&[u8], FileType); 5] = [
    (CONFIG, FileType::RegularFile),
    (b"index", FileType::Directory),
    (b"cache", FileType::Directory),
    (b"tmp", FileType::Directory),
    (b"lock", FileType::RegularFile),
];

/// Sufficient number of parts for rule 2.
const ENOUGH_PARTS: usize = 3;

/// The parts of a store that were found among the entries of a folder.
#[derive(Debug, Default)]
pub struct StoreSigns {
    /// True if there is an entry `config.toml`, of any kind.
    has_settings: bool,
    has_objects: bool,
    has_refs: bool,
    own: [bool; OWN_PARTS.len()],
    has_others: bool,
}

impl StoreSigns {
    fn of(listing: &FolderNames) -> Self {
        let mut signs = Self::default();
        for (name, kind) in listing.iter() {
            signs.add(name, kind);
        }
        signs
    }

    /// Adds an entry of the folder. If the file system does not report the kind of an entry
    /// (`Unknown`), the entry counts as the expected kind.
    pub fn add(&mut self, name: &[u8], kind: FileType) {
        let is = |wanted| kind == wanted || kind == FileType::Unknown;
        self.has_settings |= name == CONFIG;
        if let Some(part) = OWN_PARTS.iter().position(|(own, _)| *own == name) {
            let fits = is(OWN_PARTS[part].1);
            self.own[part] = fits;
            self.has_others |= !fits;
            return;
        }
        match name {
            // A user may have moved the packs to another disk and put a link here.
            b"objects" | b"partial" if is(FileType::Directory) || is(FileType::Symlink) => {
                self.has_objects = true;
            }
            b"HEAD" if is(FileType::RegularFile) => self.has_refs = true,
            b"refs" if is(FileType::Directory) => self.has_refs = true,
            b"logs" | b"base" | b"scope" | b"compact.lock" | b"shadow" | b"shadow.lock" | b"gc"
            | b"gc.lock" | b"forgotten" | b"rewrites" | b"staged.lock" | b"serve.lock"
            | b".gitignore" => {}
            _ => self.has_others = true,
        }
    }

    /// Returns true if commands take the folder, which is called `.snap`, for a store, although it
    /// may be a damaged or unfinished one. Without other entries, the folder is empty, or an
    /// interrupted `init` left it.
    pub fn may_be_store(&self) -> bool {
        self.has_settings || !self.has_others || self.is_store(STORE_FOLDER.as_bytes())
    }

    /// Returns true if the folder is a store; `name` is the folder's own name.
    pub fn is_store(&self, name: &[u8]) -> bool {
        let [has_config, .., has_lock] = self.own;
        let parts = self.own.iter().filter(|part| **part).count();
        let is_made = has_config && self.has_refs || parts >= ENOUGH_PARTS;
        let is_begun = has_lock && !self.has_others;
        self.has_objects && (is_made || is_begun) || is_begun && name == STORE_FOLDER.as_bytes()
    }
}

/// Returns true if the folder with this name and these entries is a store.
pub fn is_store(name: &[u8], listing: &FolderNames) -> bool {
    StoreSigns::of(listing).is_store(name)
}

/// Returns true if the entry `name` of an open folder is a store, or is a symbolic link called
/// `.snap` to one. Commands find the store of a project through such a link, so it counts as the
/// store.
///
/// # Errors
/// Returns the error of the system call; the folder must be readable to be recognised.
pub fn holds_store(folder: impl AsFd, name: &[u8]) -> io::Result<bool> {
    let nofollow = if name == STORE_FOLDER.as_bytes() { OFlags::empty() } else { OFlags::NOFOLLOW };
    Ok(is_store(name, &list(folder, name, nofollow)?))
}

/// Lists the entry `name` of an open folder, or the folder at a path.
fn list(folder: impl AsFd, name: impl Arg, flags: OFlags) -> io::Result<FolderNames> {
    let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    FolderNames::read(&openat(folder, name, flags, Mode::empty())?)
}

/// Returns the store that contains a path; the path need not exist yet.
pub fn store_above(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let candidates = path.ancestors().find_map(|above| {
        let real = fs_err::canonicalize(above).ok()?;
        // A path that exists is not inside itself.
        let is_path = above == path;
        Some(real.ancestors().skip(usize::from(is_path)).map(Path::to_owned).collect::<Vec<_>>())
    });
    candidates?.into_iter().find(|above| is_store_at(above))
}

/// Returns the target of the link `objects` of the store in `dir`, if the target lies in another
/// store or in the same one. The commands of one store would remove packs of the other.
pub fn objects_in_store(dir: &Path) -> Option<PathBuf> {
    let objects = dir.join("objects");
    let target = objects.is_symlink().then(|| fs_err::canonicalize(&objects).ok()).flatten()?;
    target.ancestors().any(is_store_at).then_some(target)
}

/// Returns true if a folder is a store, by checking the names of parts one by one.
fn is_store_at(folder: &Path) -> bool {
    let mut signs = StoreSigns { has_others: true, ..StoreSigns::default() };
    let names = OWN_PARTS.iter().map(|(name, _)| *name);
    for name in names.chain([&b"objects"[..], b"partial", b"HEAD", b"refs"]) {
        let path = folder.join(OsStr::from_bytes(name));
        if let Ok(meta) = path.symlink_metadata() {
            signs.add(name, FileType::from_raw_mode(meta.mode()));
        }
    }
    signs.is_store(folder.file_name().unwrap_or_default().as_bytes())
}

/// Returns true if `objects` in an open folder contains packs. Such a folder was a store, even if
/// [`is_store`] does not recognise it.
pub fn holds_packs(folder: impl AsFd) -> bool {
    let listing = list(folder, c"objects", OFlags::NOFOLLOW);
    let is_pack =
        |name: &[u8]| str::from_utf8(name).is_ok_and(|name| name.parse::<PackId>().is_ok());
    listing.is_ok_and(|listing| listing.iter().any(|(name, _)| is_pack(name)))
}

/// Returns true if the search for a project's store ends at this folder, which is called `.snap`.
/// The search continues above only if the folder is certainly not a store: a damaged store must not
/// be skipped in favour of another one.
pub fn ends_search(folder: &Path) -> bool {
    match list(CWD, folder, OFlags::empty()) {
        Ok(listing) => StoreSigns::of(&listing).may_be_store(),
        Err(_) => folder.is_dir(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: FileType = FileType::Directory;
    const FILE: FileType = FileType::RegularFile;

    fn check(name: &str, entries: &[(&str, FileType)]) -> bool {
        let mut signs = StoreSigns::default();
        entries.iter().for_each(|(name, kind)| signs.add(name.as_bytes(), *kind));
        signs.is_store(name.as_bytes())
    }

    #[test]
    fn a_store_name_is_recognised_in_any_case() {
        for name in [".snap", ".SNAP", ".sNaP", ".\u{17f}nap", ".\u{17f}NAP"] {
            assert!(is_store_name(name.as_bytes()), "{name}");
        }
        for name in ["", "snap", ".snaps", ".\u{17f}\u{17f}nap", ".\u{17f}snap", ".snapignore"] {
            assert!(!is_store_name(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_damaged_store_is_recognised_under_any_name() {
        let whole = [
            ("HEAD", FILE),
            ("cache", FOLDER),
            ("config.toml", FILE),
            ("index", FOLDER),
            ("lock", FILE),
            ("logs", FOLDER),
            ("objects", FOLDER),
            ("refs", FOLDER),
            ("tmp", FOLDER),
        ];
        for name in [".snap", "backup"] {
            assert!(check(name, &whole));
            let moved = whole.map(|(part, kind)| {
                (part, if part == "objects" { FileType::Symlink } else { kind })
            });
            assert!(check(name, &moved));
            for lost in whole.iter().filter(|(part, _)| *part != "objects") {
                let rest: Vec<_> = whole.iter().filter(|part| *part != lost).copied().collect();
                assert!(check(name, &rest), "without {lost:?}");
            }
        }
        let minimal = [("HEAD", FILE), ("config.toml", FILE), ("objects", FOLDER)];
        assert!(check("copied-without-caches", &minimal));
        assert!(check(
            "partly-cloned",
            &[("config.toml", FILE), ("partial", FOLDER), ("refs", FOLDER)]
        ));
    }

    #[test]
    fn a_store_under_construction_is_recognised() {
        assert!(check(".snap", &[("lock", FILE)]));
        assert!(check(".snap", &[(".gitignore", FILE), ("lock", FILE)]));
        assert!(check("bare", &[("lock", FILE), ("objects", FOLDER)]));
        assert!(!check(".snap", &[]), "an empty folder is not a store");
        assert!(!check("bare", &[("lock", FILE)]));
    }

    #[test]
    fn other_folders_do_not_count_as_stores() {
        assert!(!check(".snap", &[("notes.txt", FILE), ("objects", FOLDER)]));
        assert!(!check(".snap", &[("lock", FILE), ("notes.txt", FILE)]));
        let git = [
            ("HEAD", FILE),
            ("config", FILE),
            ("index", FILE),
            ("objects", FOLDER),
            ("refs", FOLDER),
        ];
        assert!(!check(".git", &git));
        assert!(!check(".git", &[&git[..], &[("cache", FOLDER), ("tmp", FOLDER)]].concat()));
    }

    #[test]
    fn a_search_skips_folders_but_not_damaged_stores() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join(STORE_FOLDER);
        assert!(!ends_search(&store), "there is none");
        fs_err::create_dir(&store).unwrap();
        assert!(ends_search(&store), "the next command recreates an empty folder");
        fs_err::write(store.join(".gitignore"), "*\n").unwrap();
        assert!(ends_search(&store), "an interrupted `init` left it");
        fs_err::write(store.join("notes"), "").unwrap();
        assert!(!ends_search(&store));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&store, &link).unwrap();
        assert!(!ends_search(&link));
        fs_err::write(store.join("config.toml"), "").unwrap();
        assert!(ends_search(&store) && ends_search(&link), "its objects are lost");
    }
}
