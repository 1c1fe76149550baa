//! Measures a restore against `cp -a` in the same run. Prints figures and asserts
//! nothing. Run it in release mode, with `SPEED_DIR` on the file system to measure:
//! `cargo test --release -p snap-core --test core speed -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "figures for a person to read")]

use std::{path::Path, process::Command, time::Instant};

use snap_testkit::trees;

use crate::restore_fixture::Snapshot;

const RUNS: usize = 7;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(label: &str, source: &Path, dir: &Path) {
    let snapshot = Snapshot::of(source);
    let (mut copy, mut restore) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let target = dir.join("cp");
        let start = Instant::now();
        let done = Command::new("cp").arg("-a").args([source, &target]).status().unwrap();
        copy.push(start.elapsed().as_secs_f64());
        assert!(done.success());
        fs_err::remove_dir_all(&target).unwrap();
        let target = dir.join("restored");
        let start = Instant::now();
        let outcome = snapshot.restore(&target).unwrap();
        restore.push(start.elapsed().as_secs_f64());
        assert!(outcome.files_written > 0);
        if restore.len() == RUNS {
            let start = Instant::now();
            snapshot.restore(&target).unwrap();
            println!("{label}: again {:.3} s", start.elapsed().as_secs_f64());
        }
        fs_err::remove_dir_all(&target).unwrap();
    }
    let (copy, restore) = (median(copy), median(restore));
    println!("{label}: cp -a {copy:.3} s, restore {restore:.3} s, ratio {:.2}", restore / copy);
}

#[test]
#[ignore = "a measurement"]
fn speed_of_small_files() {
    let base = std::env::var("SPEED_DIR").unwrap_or_else(|_| "/tmp".to_owned());
    let dir = tempfile::tempdir_in(base).unwrap();
    let source = dir.path().join("source");
    trees::text_files(&source, 10_000, 4096).unwrap();
    measure("10,000 x 4 KiB", &source, dir.path());
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_large_file() {
    let base = std::env::var("SPEED_DIR").unwrap_or_else(|_| "/tmp".to_owned());
    let dir = tempfile::tempdir_in(base).unwrap();
    let source = dir.path().join("source");
    fs_err::create_dir(&source).unwrap();
    trees::large_file(&source.join("f"), 700 << 20).unwrap();
    measure("one of 700 MiB", &source, dir.path());
}

/// Returns the peak memory of this process in KiB, since the counter was last reset.
fn peak_kib() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "a measurement"]
fn memory_of_many_files() {
    let base = std::env::var("SPEED_DIR").unwrap_or_else(|_| "/tmp".to_owned());
    let count = std::env::var("SPEED_FILES").map_or(100_000, |n| n.parse().unwrap());
    let dir = tempfile::tempdir_in(base).unwrap();
    let source = dir.path().join("source");
    trees::million(&source, count).unwrap();
    let snapshot = Snapshot::of(&source);
    for run in ["restored", "restored again"] {
        fs_err::write("/proc/self/clear_refs", "5").unwrap();
        let before = peak_kib();
        let start = Instant::now();
        snapshot.restore(&dir.path().join("target")).unwrap();
        let (secs, peak) = (start.elapsed().as_secs_f64(), peak_kib());
        println!("{count} files {run}: {secs:.1} s, peak {peak} KiB, {before} KiB before");
    }
}
