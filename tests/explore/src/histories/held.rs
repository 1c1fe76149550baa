//! Finds out whether a process waits for a lock of another, which is halted.

use std::{
    collections::BTreeSet,
    os::unix::fs::MetadataExt as _,
    process::{Child, Output},
    thread,
    time::Duration,
};

use fs_err as fs;

/// Interval between looks at a process.
const PAUSE: Duration = Duration::from_millis(2);

/// Looks in a row that must find the locked file open.
///
/// A process that tries a lock and goes on closes the file soon. A shared lock does not keep others
/// out, so time must decide here. A wrong answer only makes the halted command continue earlier.
const LOOKS: u32 = 40;

/// Runs a process to its end. If it waits for a lock of a halted process, calls `go_on` once.
pub(crate) fn finish(mut child: Child, halted: &Child, mut go_on: impl FnMut()) -> Output {
    let (mut seen, mut has_gone_on) = (0, false);
    while !has_gone_on && child.try_wait().unwrap().is_none() {
        let waits = !open_files(child.id()).is_disjoint(&locked_files(halted.id()));
        seen = if waits { seen + 1 } else { 0 };
        if seen == LOOKS {
            go_on();
            has_gone_on = true;
        }
        thread::sleep(PAUSE);
    }
    child.wait_with_output().unwrap()
}

/// Returns device and inode of each file that a process has open.
fn open_files(pid: u32) -> BTreeSet<(u64, u64)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::metadata(entry.path()).ok());
    stats.map(|stat| (stat.dev(), stat.ino())).collect()
}

/// Returns device and inode of each file that a process has locked.
fn locked_files(pid: u32) -> BTreeSet<(u64, u64)> {
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    let lock = |line: &str| {
        // 1: FLOCK  ADVISORY  WRITE 7961 fe:00:6653643 0 EOF
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_its = words.get(4) == Some(&pid.to_string().as_str());
        let inode = words.get(5)?.rsplit(':').next()?.parse().ok()?;
        is_its.then_some(inode)
    };
    let inodes: BTreeSet<u64> = text.lines().filter_map(lock).collect();
    open_files(pid).into_iter().filter(|(_, inode)| inodes.contains(inode)).collect()
}
