//! Trees that are derived from a text: the message of a commit determines its content, so that a
//! restore can be checked.
//!
//! The message `main 17` means version 17 of the line `main`. From one version to the next, a few
//! of many files change.

use std::{collections::BTreeMap, path::Path};

use snap_testkit::{
    bytes::Corpus,
    rng::{Rng, mix},
};

/// Number of small files in a version.
const SMALL_FILES: u64 = 24;

/// Number of versions after which a small file changes.
const SMALL_EVERY: u64 = 7;

/// Number of versions after which the large file changes.
const LARGE_EVERY: u64 = 12;

/// Larger than one chunk.
const LARGE_BYTES: usize = 1_500_000;

/// Returns the files of a version, by path.
pub fn files(message: &str) -> BTreeMap<String, Vec<u8>> {
    let (line, number) = message.split_once(' ').expect("LINE NUMBER");
    let number: u64 = number.parse().expect("a number");
    let line = line.bytes().fold(0, |seed, byte| mix(seed, u64::from(byte)));
    let mut files = BTreeMap::new();
    for file in 0..SMALL_FILES {
        let seed = mix(mix(line, file), (number + file) / SMALL_EVERY);
        let len = Rng::new(seed).below(6000) as usize;
        let content = Corpus::Text.make_seeded(len, seed);
        files.insert(format!("folder{}/file{file}.txt", file % 4), content);
    }
    let seed = mix(mix(line, u64::MAX), number / LARGE_EVERY);
    files.insert("large".to_owned(), Corpus::Random.make_seeded(LARGE_BYTES, seed));
    files
}

/// Updates `folder` to a version; writes only the files that differ.
pub fn write(folder: &Path, message: &str) {
    for (path, content) in files(message) {
        let path = folder.join(path);
        if fs_err::read(&path).is_ok_and(|there| there == content) {
            continue;
        }
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content).unwrap();
    }
}

/// Checks that `folder` contains that version and nothing else.
#[track_caller]
pub fn check(folder: &Path, message: &str) {
    let mut expected = files(message);
    let mut folders = vec![folder.to_owned()];
    while let Some(inside) = folders.pop() {
        for entry in fs_err::read_dir(inside).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
            let content = expected.remove(name);
            let same = content.is_some_and(|content| content == fs_err::read(&path).unwrap());
            assert!(same, "{name} is not that of `{message}`");
        }
    }
    assert!(expected.is_empty(), "`{message}` lacks {:?}", expected.keys());
}
