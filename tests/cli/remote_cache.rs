//! Damaged files in the cache of a remote. They never count as damage of the remote.

use std::path::{Path, PathBuf};

use crate::{
    base_sequences::copy,
    env::TestEnv,
    remote::{env, folder},
};

/// Changes one file of a cache.
type Change = fn(&Path);

/// What may happen to a file of a cache.
const CHANGES: [(&str, Change); 5] = [
    ("removed", |path| {
        let _ = fs_err::remove_file(path);
    }),
    ("empty", |path| fs_err::write(path, "").unwrap()),
    ("cut", |path| {
        let bytes = fs_err::read(path).unwrap_or_else(|_| b"abcd".to_vec());
        fs_err::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }),
    ("garbled", |path| {
        let bytes = fs_err::read(path).unwrap_or_default();
        let garbled: Vec<u8> = bytes.iter().map(|byte| byte ^ 0x5a).collect();
        fs_err::write(path, if garbled.is_empty() { b"\0\xff".to_vec() } else { garbled }).unwrap();
    }),
    ("a folder", |path| {
        let _ = fs_err::remove_file(path);
        fs_err::create_dir(path).unwrap();
        fs_err::write(path.join("file"), "x").unwrap();
    }),
];

/// Returns the folder of the only cache of a remote in the project.
fn cache(env: &TestEnv) -> PathBuf {
    let mut caches = fs_err::read_dir(env.path("work/.snap/cache/remotes")).unwrap();
    caches.next().unwrap().unwrap().path()
}

/// Adds the paths of all files below a folder, relative to `cache`.
fn add_files(folder: &Path, cache: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => add_files(&path, cache, files),
            false => files.push(path.strip_prefix(cache).unwrap().to_owned()),
        }
    }
}

/// Makes the files in `to` equal to those in `from`. Its folders stay: snap clears a copied cache.
fn replace(to: &Path, from: &Path) {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    if to.is_dir() {
        add_files(to, to, &mut old);
    }
    add_files(from, from, &mut new);
    old.iter().for_each(|file| fs_err::remove_file(to.join(file)).unwrap());
    for file in new.iter().map(|file| to.join(file)).filter(|file| file.is_dir()) {
        fs_err::remove_dir(file).unwrap();
    }
    copy(from, to);
}

#[test]
fn a_damaged_file_of_the_cache_is_never_damage_of_the_remote() {
    let env = env();
    let url = folder(&env, "there");
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.write("work/new.txt", "second\n");
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.snap_in("work", ["verify", "origin"]).succeeds();
    env.write("work/newer.txt", "third\n");
    env.snap_in("work", ["commit", "-qm", "three"]).succeeds();

    let cache = cache(&env);
    let good = env.path("good");
    replace(&good, &cache);
    let good_there = env.path("good-there");
    replace(&good_there, &env.path("there"));
    let mut files = Vec::new();
    add_files(&cache, &cache, &mut files);
    assert!(files.iter().any(|file| file.starts_with("partial")), "{files:?}");
    assert!(files.iter().any(|file| file.starts_with("index")), "{files:?}");
    // This exists only if the remote was damaged.
    files.push(PathBuf::from("shadow"));
    // The folders of the cache, in the place of which a file may lie.
    let folders = ["objects", "partial", "index", "tmp"].map(PathBuf::from);

    let commands: [&[&str]; 5] = [
        &["verify", "origin"],
        &["repair", "origin"],
        &["push"],
        &["pull"],
        &["ls", "-R", "origin#main"],
    ];
    for command in commands {
        for file in files.iter().chain(&folders) {
            for (what, change) in CHANGES {
                replace(&cache, &good);
                replace(&env.path("there"), &good_there);
                let path = cache.join(file);
                if path.is_dir() {
                    fs_err::remove_dir_all(&path).unwrap();
                }
                change(&path);
                // Only a push writes something that it may have taken from the cache.
                let check: &[&[&str]] = match command {
                    ["push"] => &[command, &["verify", "origin"]],
                    _ => &[command],
                };
                for args in check {
                    let ran = env.snap_in("work", *args);
                    assert_eq!(
                        ran.code,
                        Some(0),
                        "{args:?}, {} is {what}: {}",
                        file.display(),
                        ran.stderr
                    );
                }
            }
        }
    }
}
