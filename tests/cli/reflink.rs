//! Restores that share blocks, on file systems with reflinks: btrfs and xfs, each in its own image.
//! Needs root, loop devices and the mkfs programs; otherwise the test reports that it is skipped.

use snap_testkit::skip::skip;

use crate::env::TestEnv;

/// Further exit codes of [`SCRIPT`] for missing requirements; 97: `mkfs.$FS` is not installed.
const MISSING: [(i32, &str); 2] =
    [(98, "no image could be made"), (99, "such an image cannot be mounted here")];

/// Mounts an image at `m`, in a mount namespace that ends with the script; commits and restores
/// `m/p`. `ok` reports a successful step.
const SCRIPT: &str = r#"
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
command -v mkfs.$FS >/dev/null || exit 97
truncate -s 512M image && mkfs.$FS -q image >/dev/null 2>&1 || exit 98
mkdir m && mount -o loop image m 2>/dev/null || exit 99
set -e
mkdir -p m/p/sub
head -c 3000000 /dev/urandom > m/p/large
head -c 300000 /dev/urandom > m/p/medium
head -c 3000 /dev/urandom > m/p/small
cp --reflink=never m/p/medium m/p/large m/p/sub
# A project on another file system, and one whose originals will rot.
mkdir -p q m/r
cp -r m/p/medium m/p/sub q
numbers() { seq $1 $2 | tr '\n' ' '; }
numbers 1 60000 > m/r/medium
numbers 700000 900000 > m/r/large
# The stat cache does not keep a file that has just changed.
commit() {
    for _ in $(seq 5000); do
        said=$(snap commit --json -q) || return
        case $said in *'"bytes_read":0,'*) return ;; esac
    done
    return 1
}
(cd q && commit && echo elsewhere $(snap restore latest ../m/three --json -q))
diff -r --exclude .snap q m/three && echo same

(cd m/r && commit)
sync
for text in '54320 54321 54322 54323' '800000 800001 800002 800003'; do
    at=$(tr '\0' '\n' < image | LC_ALL=C grep -abo "$text" | cut -d: -f1)
    printf x | dd of=image bs=1 seek=$at conv=notrunc 2>/dev/null
done
(cd m/r && echo rotten $(snap restore latest ../four --json -q))
numbers 1 60000 | cmp - m/four/medium && numbers 700000 900000 | cmp - m/four/large && echo same
cp --reflink=always m/r/medium m/shared
cat m/shared > /dev/null 2>&1 && echo readable || echo unreadable

cd m/p
commit

echo originals $(snap restore latest ../one --json -q)
diff -r --exclude .snap . ../one && echo same
sync
filefrag -v ../one/large ../one/medium ../one/sub/medium || true

# No original is what it was, so only the first copy can be shared with.
printf x >> large
printf x >> medium
rm sub/medium sub/large
cp -r --reflink=never ../one ../expected
echo duplicates $(snap restore latest ../two --json -q)
diff -r ../expected ../two && echo same
sync
filefrag -v ../two/medium ../two/sub/medium ../two/large ../two/sub/large || true
"#;

/// Runs the script on a file system of this kind, and returns its output.
fn said_on(file_system: &str) -> Option<String> {
    let env = TestEnv::new();
    let skipped = |reason: &str| {
        skip(&format!("reflinks on {file_system}"), reason);
        None
    };
    if !rustix::process::geteuid().is_root() {
        return skipped("needs root");
    }
    let snap = env!("CARGO_BIN_EXE_snap");
    let script = format!("FS={file_system}; snap() {{ {snap} \"$@\"; }}\n{SCRIPT}");
    let mut unshare = env.command_of("", "unshare");
    unshare.args(["--mount", "sh", "-c", &script]);
    unshare.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let Ok(output) = unshare.output() else { return skipped("`unshare` is not here") };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("unshare failed") {
        return skipped("cannot create a mount namespace");
    }
    if output.status.code() == Some(97) {
        return skipped(&format!("mkfs.{file_system} is not installed"));
    }
    if let Some((_, why)) = MISSING.iter().find(|(code, _)| output.status.code() == Some(*code)) {
        return skipped(why);
    }
    assert!(output.status.success(), "{out}\n{err}");
    Some(out.into_owned())
}

/// Returns the number of files that a step cloned.
fn cloned(said: &str, step: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(step)).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(line).unwrap();
    outcome["files_cloned"].as_u64().unwrap()
}

fn check(said: &str) {
    // The originals are on another file system, but the second medium file shares blocks with the
    // first.
    assert_eq!(cloned(said, "elsewhere "), 1, "{said}");
    // Blocks of damaged originals are not shared.
    assert_eq!(cloned(said, "rotten "), 0, "{said}");
    // Both files of at least 128 KiB, and their copies.
    assert_eq!(cloned(said, "originals "), 4, "{said}");
    // Of each pair of equal files, the second one shares blocks with the first.
    assert_eq!(cloned(said, "duplicates "), 2, "{said}");
    assert_eq!(said.lines().filter(|line| *line == "same").count(), 4, "{said}");
    if said.contains("Filesystem type is") {
        // `filefrag` was called for seven files.
        assert_eq!(said.matches(",shared").count(), 7, "{said}");
    }
}

#[test]
fn btrfs_shares_blocks() {
    if let Some(said) = said_on("btrfs") {
        check(&said);
        // btrfs has checksums, so a damaged block gives a read error instead of other bytes.
        assert!(said.lines().any(|line| line == "unreadable"), "{said}");
    }
}

#[test]
fn xfs_shares_blocks() {
    if let Some(said) = said_on("xfs") {
        check(&said);
    }
}
