//! Differences between two corresponding files, folders or links.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, OsString},
    fmt::{Debug, Display},
    fs::Metadata,
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    buffer::spare_capacity,
    fs::{lgetxattr, llistxattr},
    io::Errno,
};

use super::Options;

/// Maximum extra space of a copy of a sparse file. File systems have different block sizes, and
/// smaller holes are not worth keeping.
const SPARSE_SLACK_BYTES: u64 = 128 << 10;

/// Lists the differences between the expected entry `a` and the entry `b`.
pub(super) fn differences(
    (a, stat_a): (&Path, &Metadata),
    (b, stat_b): (&Path, &Metadata),
    options: &Options,
) -> Vec<String> {
    let mut found = Vec::new();
    let (kind_a, kind_b) = (kind(stat_a), kind(stat_b));
    if kind_a != kind_b {
        return vec![format!("kind: {kind_a}, got {kind_b}")];
    }
    match kind_a {
        "file" => found.extend(content((a, stat_a), (b, stat_b))),
        "symlink" => differ(&mut found, "target", target(a), target(b)),
        "character device" | "block device" => {
            found.extend(unequal("device", stat_a.rdev(), stat_b.rdev()));
        }
        _ => {}
    }
    if options.sparse && kind_a == "file" {
        found.extend(lost_holes(stat_a, stat_b));
    }
    // The mode of a symlink has no meaning and cannot be set.
    if kind_a != "symlink" {
        let mask = match (options.modes, kind_a) {
            (true, _) => 0o7777,
            (false, "file") => 0o100,
            (false, _) => 0,
        };
        let (mode_a, mode_b) = (stat_a.mode() & mask, stat_b.mode() & mask);
        if mode_a != mode_b {
            found.push(format!("mode: {mode_a:04o}, got {mode_b:04o}"));
        }
    }
    if options.owner {
        found.extend(unequal("user", stat_a.uid(), stat_b.uid()));
        found.extend(unequal("group", stat_a.gid(), stat_b.gid()));
    }
    if options.times {
        found.extend(unequal("time", time(stat_a), time(stat_b)));
    }
    if options.attributes {
        differ(&mut found, "attributes", attributes(a), attributes(b));
    }
    found
}

/// Returns true if `path` is a folder that contains only folders.
pub(super) fn holds_no_file(path: &Path) -> bool {
    walkdir::WalkDir::new(path)
        .into_iter()
        .all(|entry| entry.is_ok_and(|entry| entry.file_type().is_dir()))
}

fn kind(stat: &Metadata) -> &'static str {
    let kind = stat.file_type();
    match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "folder",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () if kind.is_block_device() => "block device",
        () => "of a kind unknown here",
    }
}

/// Returns the target as bytes; two different paths to the same file are not equal here.
fn target(link: &Path) -> io::Result<OsString> {
    fs_err::read_link(link).map(PathBuf::into_os_string)
}

fn time(stat: &Metadata) -> String {
    format!("{}+{:09}ns", stat.mtime(), stat.mtime_nsec())
}

fn unequal<T: PartialEq + Display>(what: &str, a: T, b: T) -> Option<String> {
    (a != b).then(|| format!("{what}: {a}, got {b}"))
}

fn differ<T: PartialEq + Debug>(
    found: &mut Vec<String>,
    what: &str,
    a: io::Result<T>,
    b: io::Result<T>,
) {
    match (a, b) {
        (Ok(a), Ok(b)) if a == b => {}
        (Ok(a), Ok(b)) => found.push(format!("{what}: {a:?}, got {b:?}")),
        (Err(error), _) | (_, Err(error)) => {
            found.push(format!("{what}: cannot be read: {error}"));
        }
    }
}

fn lost_holes(a: &Metadata, b: &Metadata) -> Option<String> {
    let (allocated_a, allocated_b) = (a.blocks() * 512, b.blocks() * 512);
    let lost = allocated_a < a.size() && allocated_b > allocated_a + SPARSE_SLACK_BYTES;
    lost.then(|| format!("holes: occupies {allocated_a} bytes, got {allocated_b}"))
}

fn content((a, stat_a): (&Path, &Metadata), (b, stat_b): (&Path, &Metadata)) -> Option<String> {
    if stat_a.size() != stat_b.size() {
        return unequal("size", stat_a.size(), stat_b.size());
    }
    match first_difference(a, b) {
        Ok(None) => None,
        Ok(Some(offset)) => Some(format!("content: differs at byte {offset}")),
        Err(error) => Some(format!("content: cannot be read: {error}")),
    }
}

fn first_difference(a: &Path, b: &Path) -> io::Result<Option<u64>> {
    const PIECE_BYTES: u64 = 256 << 10;
    let (mut a, mut b) = (fs_err::File::open(a)?, fs_err::File::open(b)?);
    let (mut piece_a, mut piece_b) = (Vec::new(), Vec::new());
    let mut offset = 0;
    loop {
        piece_a.clear();
        piece_b.clear();
        a.by_ref().take(PIECE_BYTES).read_to_end(&mut piece_a)?;
        b.by_ref().take(PIECE_BYTES).read_to_end(&mut piece_b)?;
        if piece_a != piece_b {
            let equal = piece_a.iter().zip(&piece_b).take_while(|(x, y)| x == y).count();
            return Ok(Some(offset + equal as u64));
        }
        if piece_a.is_empty() {
            return Ok(None);
        }
        offset += piece_a.len() as u64;
    }
}

fn attributes(path: &Path) -> io::Result<BTreeMap<CString, Vec<u8>>> {
    /// Linux has no longer list and no longer value.
    const LONGEST_BYTES: usize = 64 << 10;
    let mut list = Vec::with_capacity(LONGEST_BYTES);
    match llistxattr(path, spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    }
    let names = list.split_inclusive(|&byte| byte == 0);
    let names = names.filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    names
        .map(|name| {
            let mut value = Vec::with_capacity(LONGEST_BYTES);
            lgetxattr(path, name, spare_capacity(&mut value))?;
            Ok((name.to_owned(), value))
        })
        .collect()
}
