//! Recognises a store by what its folder holds.
//!
//! A commit leaves stores out, and a restore never deletes one. Both decide by
//! the entries of the folder, because a folder may be called `.snap` without
//! being a store, and a bare store may have any name.
//!
//! A folder is a store when it holds the folder `objects` or `partial`, and
//!
//! 1. the file `config.toml` with `HEAD` or `refs`, or
//! 2. at least three of `config.toml`, `index`, `cache`, `tmp` and `lock`, so
//!    that a store that lost its settings is still recognised.
//!
//! A store that is being made counts as well: it holds the file `lock`, nothing
//! but parts of a store, and is called `.snap` or holds `objects`. A Git
//! repository has `objects`, `HEAD` and `refs`, but none of the five names of
//! rule 2, so it is not taken for a store.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, OFlags, openat};

use crate::{base::id::PackId, local::contain::Listing};

/// Name of the store folder in a project.
pub const STORE_FOLDER: &str = ".snap";

/// The settings of a store.
const CONFIG: &[u8] = b"config.toml";

/// Parts of a store that a Git repository does not have.
const OWN_PARTS: [(&[u8], FileType); 5] = [
    (CONFIG, FileType::RegularFile),
    (b"index", FileType::Directory),
    (b"cache", FileType::Directory),
    (b"tmp", FileType::Directory),
    (b"lock", FileType::RegularFile),
];

/// Own parts that are enough without settings and refs.
const ENOUGH_PARTS: usize = 3;

/// The parts of a store that were met in a folder, entry by entry.
#[derive(Debug, Default)]
pub struct StoreSigns {
    has_objects: bool,
    has_refs: bool,
    own: [bool; OWN_PARTS.len()],
    has_others: bool,
}

impl StoreSigns {
    fn of(listing: &Listing) -> Self {
        let mut signs = Self::default();
        for (name, kind) in listing.iter() {
            signs.add(name, kind);
        }
        signs
    }

    /// Takes in an entry of the folder. A file system that does not say what an
    /// entry is gives `Unknown`, which passes for what a store has.
    pub fn add(&mut self, name: &[u8], kind: FileType) {
        let is = |wanted| kind == wanted || kind == FileType::Unknown;
        if let Some(part) = OWN_PARTS.iter().position(|(own, _)| *own == name) {
            let fits = is(OWN_PARTS[part].1);
            self.own[part] = fits;
            self.has_others |= !fits;
            return;
        }
        match name {
            b"objects" | b"partial" if is(FileType::Directory) => self.has_objects = true,
            b"HEAD" if is(FileType::RegularFile) => self.has_refs = true,
            b"refs" if is(FileType::Directory) => self.has_refs = true,
            b"logs" | b"base" | b"scope" | b"compact.lock" | b"shadow" | b"shadow.lock"
            | b"serve.lock" => {}
            _ => self.has_others = true,
        }
    }

    /// Returns whether the folder is a store; `name` is the folder's own name.
    pub fn is_store(&self, name: &[u8]) -> bool {
        let [has_config, .., has_lock] = self.own;
        let parts = self.own.iter().filter(|part| **part).count();
        let is_made = has_config && self.has_refs || parts >= ENOUGH_PARTS;
        let is_begun = has_lock && !self.has_others;
        self.has_objects && (is_made || is_begun) || is_begun && name == STORE_FOLDER.as_bytes()
    }
}

/// Returns whether the folder with this name and these entries is a store.
pub fn is_store(name: &[u8], listing: &Listing) -> bool {
    StoreSigns::of(listing).is_store(name)
}

/// Returns whether the entry `name` of an open folder is a folder that is a store, or
/// a symbolic link called `.snap` that leads to one: commands find the store of a
/// project through such a link, so it is the project's way to its history.
///
/// # Errors
/// As the system says; the folder must be readable to be recognised.
pub fn holds_store(folder: impl AsFd, name: &[u8]) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let nofollow = match name == STORE_FOLDER.as_bytes() {
        true => OFlags::empty(),
        false => OFlags::NOFOLLOW,
    };
    let fd: OwnedFd = openat(folder, name, flags | nofollow, Mode::empty())?;
    Ok(is_store(name, &Listing::read(&fd)?))
}

/// Returns the store that a path, which need not exist yet, lies in.
pub fn store_above(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let there = path.ancestors().find_map(|above| {
        let real = fs_err::canonicalize(above).ok()?;
        // What exists of the path itself does not lie in itself.
        let is_path = above == path;
        Some(real.ancestors().skip(usize::from(is_path)).map(Path::to_owned).collect::<Vec<_>>())
    });
    there?.into_iter().find(|above| is_store_at(above))
}

/// Returns whether a folder holds what makes it a store, by a look at the names
/// of its parts.
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

/// Returns whether an open folder that is none by its own parts was a store: its
/// `objects` holds packs.
pub fn holds_packs(folder: impl AsFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let listing = openat(folder, c"objects", flags, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|fd| Listing::read(&fd));
    let is_pack =
        |name: &[u8]| str::from_utf8(name).is_ok_and(|name| name.parse::<PackId>().is_ok());
    listing.is_ok_and(|listing| listing.iter().any(|(name, _)| is_pack(name)))
}

/// Returns whether a search for the store of a project ends at this folder,
/// which is called `.snap`. It goes on above only if the folder surely holds
/// something else: a damaged store must not be passed over for another one.
pub fn ends_search(folder: &Path) -> bool {
    let listing =
        openat(CWD, folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|fd| Listing::read(&fd));
    match listing {
        Ok(listing) => {
            let signs = StoreSigns::of(&listing);
            // Without entries of other kinds it is empty, or what an
            // interrupted `init` left.
            !signs.has_others || listing.has(CONFIG) || signs.is_store(STORE_FOLDER.as_bytes())
        }
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
    fn a_store_is_recognised_under_any_name_also_when_parts_are_lost() {
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
    fn a_store_that_is_being_made_is_recognised() {
        assert!(check(".snap", &[("lock", FILE)]));
        assert!(check("bare", &[("lock", FILE), ("objects", FOLDER)]));
        assert!(!check(".snap", &[]), "an empty folder is nothing yet");
        assert!(!check("bare", &[("lock", FILE)]));
    }

    #[test]
    fn other_folders_are_not_taken_for_stores() {
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
    fn a_search_passes_over_other_folders_and_over_no_damaged_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join(STORE_FOLDER);
        assert!(!ends_search(&store), "there is none");
        fs_err::create_dir(&store).unwrap();
        assert!(ends_search(&store), "an empty one is made by the next command");
        fs_err::write(store.join("notes"), "").unwrap();
        assert!(!ends_search(&store));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&store, &link).unwrap();
        assert!(!ends_search(&link));
        fs_err::write(store.join("config.toml"), "").unwrap();
        assert!(ends_search(&store) && ends_search(&link), "its objects are lost");
    }
}
