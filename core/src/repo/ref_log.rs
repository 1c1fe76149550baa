//! The log of a ref: one line for each change, so that a change can be undone.
//!
//! | column | form                                                |
//! |--------|-----------------------------------------------------|
//! | time   | seconds `.` nine digits of nanoseconds, UTC          |
//! | old    | 64 hex digits, `refs/heads/NAME`, or `-` for nothing |
//! | new    | likewise                                            |
//! | who    | text: the user who moved the ref                    |
//! | reason | text: the command, such as `commit: fix the roof`   |
//!
//! Tabs separate the columns, and `\n` ends a line. In texts, `\`, tab, line feed and carriage
//! return have the escapes `\\`, `\t`, `\n` and `\r`. Snap writes and syncs a line before it moves
//! the ref. A crash between the two steps can therefore leave a line about a change that did not
//! happen, but never a change without a line. Readers skip a line that a crash cut off. Times are
//! unique among all log lines of a store, so they order all changes.

use std::{fmt, os::unix::fs::MetadataExt, path::Path};

use crate::{
    base::{
        id::CommitId,
        io::{PathError, if_exists},
        limits,
        time::Time,
    },
    disk::{
        Disk, NewFile,
        output::folder_of,
        regular::{open_regular, read_end},
    },
    repo::{ref_name::RefName, refs::RefLogMessage},
};

/// Number of bytes at the end of a log that a search for the last line reads first.
const LAST_LINE_BYTES: u64 = 4 << 10;

/// The value of a ref before or after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefValue {
    /// The ref did not exist.
    Nothing,
    Commit(CommitId),
    /// A branch; only `HEAD` points at one.
    Branch(RefName),
}

impl From<CommitId> for RefValue {
    fn from(id: CommitId) -> Self {
        Self::Commit(id)
    }
}

impl From<Option<CommitId>> for RefValue {
    fn from(id: Option<CommitId>) -> Self {
        id.map_or(Self::Nothing, Self::Commit)
    }
}

impl fmt::Display for RefValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("-"),
            Self::Commit(id) => id.fmt(f),
            Self::Branch(name) => name.fmt(f),
        }
    }
}

impl RefValue {
    /// Returns the commit; `None` for a branch or nothing.
    pub fn commit(&self) -> Option<CommitId> {
        match self {
            Self::Commit(id) => Some(*id),
            Self::Nothing | Self::Branch(_) => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "-" => Some(Self::Nothing),
            _ if text.starts_with("refs/") => RefName::parse_full(text).map(Self::Branch),
            _ => text.parse().ok().map(Self::Commit),
        }
    }
}

/// One change of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefLogEntry {
    pub time: Time,
    /// The value before the change.
    pub old: RefValue,
    /// The value after the change.
    pub new: RefValue,
    /// The user who moved the ref.
    pub who: String,
    /// The reason, such as "commit: fix the roof".
    pub reason: String,
}

impl RefLogEntry {
    /// Returns true if the change gave a name to an existing commit.
    pub fn names_existing_commit(&self) -> bool {
        self.reason.starts_with("branch:") || self.reason.starts_with("tag:")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut columns = text.split('\t');
        let time = Time::parse_decimal(columns.next()?)?;
        let old = RefValue::parse(columns.next()?)?;
        let new = RefValue::parse(columns.next()?)?;
        let (who, reason) = (unescape(columns.next()?), unescape(columns.next()?));
        columns.next().is_none().then_some(Self { time, old, new, who, reason })
    }
}

/// Reads the lines of a log file, oldest first. A missing file has no lines. Reads at most
/// [`limits::REF_LOG_BYTES`] bytes at the end of the file.
///
/// # Errors
/// [`PathError`] if the file exists but cannot be read.
pub fn read(file: &Path) -> Result<Vec<RefLogEntry>, PathError> {
    read_lines_at_end(file, limits::REF_LOG_BYTES)
}

/// Reads the last line of a log file; `None` if it has no line. Reads only the end of the file,
/// unless the line is very long.
///
/// # Errors
/// As [`read`].
pub(super) fn read_last(file: &Path) -> Result<Option<RefLogEntry>, PathError> {
    match read_lines_at_end(file, LAST_LINE_BYTES)?.pop() {
        None => Ok(read(file)?.pop()),
        last => Ok(last),
    }
}

/// Reads the whole lines in the last `limit` bytes of a log file.
fn read_lines_at_end(file: &Path, limit: u64) -> Result<Vec<RefLogEntry>, PathError> {
    let bytes = if_exists(read_end(file, limit)).map_err(PathError::when("read", file))?;
    let mut bytes = bytes.unwrap_or_default();
    if bytes.len() as u64 == limit {
        // The first line may be cut off.
        let start = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..start);
    }
    let text = String::from_utf8_lossy(&bytes);
    // A crash cut off text after the last line end.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    Ok(whole.lines().filter_map(RefLogEntry::parse).collect())
}

/// Appends a line and syncs it.
pub(super) fn append(
    disk: &Disk,
    file: &Path,
    old: &RefValue,
    new: &RefValue,
    change: &RefLogMessage<'_>,
) -> Result<(), PathError> {
    let is_new = !file.exists();
    append_unsynced(disk, file, old, new, change)?.sync()?;
    if is_new { disk.sync_folder(folder_of(file)) } else { Ok(()) }
}

/// Appends a line. The caller syncs the file, and its folder if the file is new.
pub(super) fn append_unsynced(
    disk: &Disk,
    file: &Path,
    old: &RefValue,
    new: &RefValue,
    change: &RefLogMessage<'_>,
) -> Result<NewFile, PathError> {
    disk.create_folders(folder_of(file))?;
    let time = change.time.decimal();
    let (who, reason) = (escape(change.who), escape(change.reason));
    unshare(disk, file)?;
    let start = if ends_torn(file)? { "\n" } else { "" };
    let line = format!("{start}{time}\t{old}\t{new}\t{who}\t{reason}\n");
    let mut log = disk.append(file)?;
    log.write(line.as_bytes())?;
    Ok(log)
}

/// Removes the last line of a log, whose change did not happen. If the removal fails, the line
/// stays.
pub(super) fn take_back_last(disk: &Disk, file: &Path) {
    let Ok(bytes) = read_end(file, limits::REF_LOG_BYTES) else { return };
    let Some(end) = bytes.strip_suffix(b"\n") else { return };
    let last = end.iter().rev().take_while(|byte| **byte != b'\n').count() as u64 + 1;
    let Ok(meta) = fs_err::symlink_metadata(file) else { return };
    match meta.len().saturating_sub(last) {
        0 => drop(disk.remove(file)),
        left => {
            if let Ok(log) = disk.append(file)
                && log.file().set_len(left).is_ok()
            {
                let _ = log.sync();
            }
        }
    }
}

/// Replaces a hard-linked log by a copy. In a store that was copied by hard links, each change
/// would otherwise get into the logs of both stores.
fn unshare(disk: &Disk, file: &Path) -> Result<(), PathError> {
    let is_shared = fs_err::symlink_metadata(file).is_ok_and(|meta| meta.nlink() > 1);
    if !is_shared {
        return Ok(());
    }
    let bytes = read_end(file, limits::REF_LOG_BYTES).map_err(PathError::when("read", file))?;
    disk.write_whole(folder_of(file), file, &bytes)
}

/// Returns true if the file ends in the middle of a line.
fn ends_torn(file: &Path) -> Result<bool, PathError> {
    use std::os::unix::fs::FileExt;
    let open = if_exists(open_regular(file)).map_err(PathError::when("read", file))?;
    let Some(open) = open else { return Ok(false) };
    let len = open.metadata().map_err(PathError::when("read", file))?.len();
    let mut last = [b'\n'];
    if len > 0 {
        open.file().read_exact_at(&mut last, len - 1).map_err(PathError::when("read", file))?;
    }
    Ok(last != [b'\n'])
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some(other) => out.push(other),
                None => {}
            },
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_of_any_length_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("main.log");
        assert_eq!(read_last(&file).unwrap(), None);
        let (disk, old) = (Disk::default(), RefValue::Nothing);
        let long = "r".repeat(3 * LAST_LINE_BYTES as usize);
        for (secs, reason) in [(1, "first"), (2, &*long), (3, "last"), (4, &*long)] {
            let change = RefLogMessage { time: Time { secs, nanos: 0 }, who: "ann", reason };
            append(&disk, &file, &old, &RefValue::Nothing, &change).unwrap();
            let last = read_last(&file).unwrap();
            assert_eq!(last, read(&file).unwrap().pop());
            assert_eq!(last.map(|line| line.time.secs), Some(secs));
        }
        let torn = fs_err::read_to_string(&file).unwrap() + "5.000000000\t-\t";
        fs_err::write(&file, torn).unwrap();
        assert_eq!(read_last(&file).unwrap().map(|line| line.time.secs), Some(4));
    }

    #[test]
    fn lines_survive_a_round_trip_and_a_torn_line_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("logs/refs/heads/main.log");
        assert_eq!(read(&file).unwrap(), []);
        let disk = Disk::default();
        let change =
            RefLogMessage { time: Time { secs: 5, nanos: 7 }, who: "Ann\tB", reason: "a\nb\\n\rc" };
        let id = CommitId::of(b"x");
        append(&disk, &file, &RefValue::Nothing, &RefValue::Commit(id), &change).unwrap();
        let torn = fs_err::read_to_string(&file).unwrap();
        fs_err::write(&file, torn.clone() + &torn[..torn.len() / 2]).unwrap();
        assert_eq!(read(&file).unwrap().len(), 1);
        let branch = RefValue::Branch(RefName::branch("a/b").unwrap());
        append(&disk, &file, &RefValue::Commit(id), &branch, &change).unwrap();

        let lines = read(&file).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].new, RefValue::Commit(id));
        assert_eq!(lines[1].new, branch);
        assert_eq!((&*lines[1].who, &*lines[1].reason), ("Ann\tB", "a\nb\\n\rc"));
        assert_eq!(lines[1].time, change.time);
    }
}
