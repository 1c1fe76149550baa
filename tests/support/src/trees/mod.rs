//! Recipes that write seeded trees into a folder.
//!
//! A recipe creates its folder if it is missing, and expects it to be empty. It does not set times,
//! except for [`odd`], which tests unusual times. [`crate::compare`] compares two trees.

mod odd;

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use fs_err as fs;

pub use self::odd::{Odd, odd};
use crate::{
    bytes::Corpus,
    rng::{Rng, mix},
};

/// Files in each folder of [`text_files`].
const TEXT_FILES_A_FOLDER: usize = 100;

/// Files in each folder of [`million`].
const TINY_FILES_A_FOLDER: usize = 1_000;

/// Copies the folders and files in `from` to `to`, which may exist.
///
/// # Errors
/// The error of the first folder or file that cannot be copied.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry?;
        let inside = entry.path().strip_prefix(from).map_err(io::Error::other)?;
        match entry.file_type().is_dir() {
            true => fs::create_dir_all(to.join(inside))?,
            false => drop(fs::copy(entry.path(), to.join(inside))?),
        }
    }
    Ok(())
}

/// Writes `count` text files of `bytes_each` bytes, in folders of 100 files.
///
/// # Errors
/// Any error of the file system, with the path.
pub fn text_files(dir: &Path, count: usize, bytes_each: usize) -> io::Result<()> {
    for number in 0..count {
        let path = text_file_path(dir, number);
        if number % TEXT_FILES_A_FOLDER == 0
            && let Some(folder) = path.parent()
        {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, Corpus::Text.make_seeded(bytes_each, number as u64))?;
    }
    Ok(())
}

/// Changes the content of every `every`-th file that [`text_files`] wrote.
///
/// The same `version` always gives the same files the same content, which differs from all other
/// versions. Sizes do not change.
///
/// # Errors
/// Any error of the file system, with the path.
pub fn change_text_files(dir: &Path, count: usize, every: usize, version: u64) -> io::Result<()> {
    for number in (0..count).step_by(every) {
        let path = text_file_path(dir, number);
        let len = fs::metadata(&path)?.len() as usize;
        let seed = mix(version.wrapping_add(1), number as u64);
        fs::write(path, Corpus::Text.make_seeded(len, seed))?;
    }
    Ok(())
}

/// Returns the path of file `number` of [`text_files`] in `dir`.
pub fn text_file_path(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("folder-{:04}", number / TEXT_FILES_A_FOLDER))
        .join(format!("file-{number:06}.txt"))
}

/// Writes `count` files of a few dozen bytes, in folders of 1,000 files.
///
/// # Errors
/// Any error of the file system, with the path.
pub fn million(dir: &Path, count: usize) -> io::Result<()> {
    let mut content = String::new();
    let mut folder = dir.to_owned();
    for number in 0..count {
        if number % TINY_FILES_A_FOLDER == 0 {
            folder = dir.join(format!("{:04}", number / TINY_FILES_A_FOLDER));
            fs::create_dir_all(&folder)?;
        }
        content.clear();
        let value = mix(1, number as u64);
        let width = 8 + number % 24;
        writeln!(content, "item {number} = {value:width$x}").map_err(io::Error::other)?;
        fs::write(folder.join(format!("{number:07}.item")), &content)?;
    }
    Ok(())
}

/// Writes one large file of mixed content: blocks of text, of program text and of random bytes, 1
/// to 8 MiB each. A quarter of them repeat an earlier block.
///
/// # Errors
/// Any error of the file system, with the path.
pub fn large_file(path: &Path, len: u64) -> io::Result<()> {
    /// Number of earlier blocks that are kept in memory for repetition.
    const KEPT: usize = 6;
    let mut rng = Rng::new(0x1a46e);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut out = fs::File::create(path)?;
    let mut left = len;
    while left > 0 {
        let bytes = (1 << 20) + rng.index(7 << 20);
        let seed = rng.next_u64();
        let corpus = match rng.below(4) {
            0 => Corpus::Random,
            1 => Corpus::Text,
            2 => Corpus::Source,
            _ if kept.is_empty() => Corpus::Text,
            _ => {
                let again = &kept[rng.index(kept.len())];
                let take = left.min(again.len() as u64);
                out.write_all(&again[..take as usize])?;
                left -= take;
                continue;
            }
        };
        let take = left.min(bytes as u64);
        let stretch = corpus.make_seeded(take as usize, seed);
        out.write_all(&stretch)?;
        left -= take;
        if kept.len() < KEPT {
            kept.push(stretch);
        } else {
            kept[rng.index(KEPT)] = stretch;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Options, compare};

    #[test]
    fn text_files_are_deterministic_and_in_folders_of_100() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&a, &b] {
            text_files(dir.path(), 250, 64).unwrap();
        }
        assert_eq!(fs::read_dir(a.path()).unwrap().count(), 3);
        assert_eq!(fs::read_dir(a.path().join("folder-0002")).unwrap().count(), 50);
        let options = Options { times: false, ..Options::default() };
        assert_eq!(compare(a.path(), b.path(), &options), Vec::<String>::new());
    }

    #[test]
    fn a_change_modifies_every_nth_file_by_version() {
        let dir = tempfile::tempdir().unwrap();
        text_files(dir.path(), 10, 64).unwrap();
        let read = |number| fs::read(text_file_path(dir.path(), number)).unwrap();
        let (changed, kept) = (read(5), read(1));
        change_text_files(dir.path(), 10, 5, 0).unwrap();
        let first = read(5);
        change_text_files(dir.path(), 10, 5, 1).unwrap();
        assert_ne!(changed, first);
        assert_ne!(first, read(5));
        assert_eq!(kept, read(1));
    }

    #[test]
    fn a_large_file_has_its_length_and_is_deterministic() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for path in [&a, &b] {
            large_file(path, 20_000_001).unwrap();
        }
        assert_eq!(fs::metadata(&a).unwrap().len(), 20_000_001);
        assert!(fs::read(a).unwrap() == fs::read(b).unwrap());
    }

    #[test]
    fn tiny_files_are_in_folders_of_1000() {
        let dir = tempfile::tempdir().unwrap();
        million(dir.path(), 1_500).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("0001")).unwrap().count(), 500);
        assert!(fs::metadata(dir.path().join("0001/0001499.item")).unwrap().len() < 60);
    }
}
