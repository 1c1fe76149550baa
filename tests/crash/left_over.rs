//! Scratch folders that a killed process leaves in the `tmp/` of a store.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Child,
};

use snap_nettest::{S3Options, S3Server};
use snap_testkit::{rng::Rng, wait::until};

use crate::place::{bare, folder, kill, snap, well};

/// Lists the scratch folders of processes below a folder.
fn scratches(below: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs_err::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".snap-scratch") {
            found.insert(path);
        } else if path.is_dir() {
            found.extend(scratches(&path));
        }
    }
    found
}

/// Waits for a scratch folder that is not in `before`.
fn next(below: &Path, before: &BTreeSet<PathBuf>) -> PathBuf {
    let mut new = None;
    until("a process creates a scratch folder", || {
        new = scratches(below).difference(before).next().cloned();
        new.is_some()
    });
    new.unwrap()
}

#[test]
fn what_a_killed_reader_left_goes_with_the_next_one() {
    let (place, bucket) = (folder(), S3Server::start(S3Options::default()));
    let path = |name: &str| place.path().join(name);
    let (store, work, cache) = (path("store"), path("work"), path("cache"));
    let reaching = |mut command: std::process::Command| {
        command.envs(bucket.environment(&bucket.endpoint()));
        command.env("XDG_CACHE_HOME", &cache);
        command
    };
    // Larger than the buffer of a pipe.
    let mut bytes = vec![0; 4 << 20];
    Rng::new(2036).fill(&mut bytes);
    fs_err::create_dir(&work).unwrap();
    fs_err::write(work.join("large"), bytes).unwrap();
    well(snap(&store).arg("init"));
    well(snap(&store).args(["commit", "-m", "large"]).arg(&work));
    well(reaching(snap(&store)).args(["push", "s3://bucket/one"]));

    // The output is not read, so the process does not end.
    let read = || -> Child {
        let mut command = reaching(bare());
        command.args(["cat", "s3://bucket/one#main:large"]).spawn().unwrap()
    };
    let killed = read();
    let left = next(&cache, &BTreeSet::new());
    kill(killed);
    assert!(left.exists(), "the process had removed the folder before the kill");
    let reading = read();
    let used = next(&cache, &[left.clone()].into());
    assert!(!left.exists(), "an abandoned folder was kept");
    well(reaching(bare()).args(["ls", "s3://bucket/one#main"]));
    assert!(used.exists(), "a folder in use was removed");
    kill(reading);
}
