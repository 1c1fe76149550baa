//! Finds the devices of kernel file systems, whose files are generated when they are read.

use std::collections::HashSet;

/// Names of kernel file systems, as in `/proc/filesystems`.
const KERNEL_TYPES: [&str; 18] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// Returns the devices of mounted kernel file systems; empty if the list of mounts cannot be read.
pub(super) fn kernel_devices() -> HashSet<u64> {
    let mounts = fs_err::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(kernel_device).collect()
}

/// Returns the device in a line of `mountinfo` (see proc_pid_mountinfo(5)), if it is a kernel file
/// system.
fn kernel_device(line: &str) -> Option<u64> {
    let (mount, file_system) = line.split_once(" - ")?;
    if !KERNEL_TYPES.contains(&file_system.split(' ').next()?) {
        return None;
    }
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_file_systems_are_recognised_by_their_types() {
        let proc = "23 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw";
        assert_eq!(kernel_device(proc), Some(rustix::fs::makedev(0, 21)));
        let disk = "28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw";
        assert_eq!(kernel_device(disk), None);
        assert_eq!(kernel_device("23 28 0:21 / /proc rw"), None);
        let here = rustix::fs::stat("/proc").unwrap();
        assert!(kernel_devices().contains(&here.st_dev), "/proc is mounted");
    }
}
