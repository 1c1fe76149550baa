//! Where a ref stood before: one line for each change, so that it can be
//! undone.
//!
//! | column | form                                                |
//! |--------|-----------------------------------------------------|
//! | time   | seconds `.` nine digits of nanoseconds, UTC          |
//! | old    | 64 hex digits, `refs/heads/NAME`, or `-` for nothing |
//! | new    | likewise                                            |
//! | who    | text                                                |
//! | reason | text                                                |
//!
//! Columns are divided by tabs and lines by `\n`; in texts `\`, tab and line
//! ends are written `\\`, `\t`, `\n`, `\r`. A line is written and synced before the
//! ref moves, so a crash in between leaves a line about a change that did not
//! happen, never a change without a line. A line torn by a crash is skipped.
//! No two lines of a store, in whatever log, have the same time: it tells the
//! order of changes.

use std::{fmt, io, os::unix::fs::MetadataExt, path::Path};

use crate::{
    base::{id::CommitId, io::PathError, limits, time::Time},
    disk::{
        Disk,
        regular::{open_regular, read_end},
        scratch::unique_name,
    },
    repo::{ref_name::RefName, refs::Change},
};

/// What a ref pointed at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing: it did not exist.
    Nothing,
    /// A commit.
    Commit(CommitId),
    /// `HEAD` only: a branch.
    Branch(RefName),
}

impl From<CommitId> for Target {
    fn from(id: CommitId) -> Self {
        Self::Commit(id)
    }
}

impl From<Option<CommitId>> for Target {
    fn from(id: Option<CommitId>) -> Self {
        id.map_or(Self::Nothing, Self::Commit)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("-"),
            Self::Commit(id) => id.fmt(f),
            Self::Branch(name) => name.fmt(f),
        }
    }
}

impl Target {
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
pub struct Line {
    /// When.
    pub time: Time,
    /// Where it pointed before.
    pub old: Target,
    /// Where it points since.
    pub new: Target,
    /// Who moved it.
    pub who: String,
    /// What for, such as "commit: fix the roof".
    pub reason: String,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut columns = text.split('\t');
        let time = Time::parse_decimal(columns.next()?)?;
        let old = Target::parse(columns.next()?)?;
        let new = Target::parse(columns.next()?)?;
        let (who, reason) = (unescape(columns.next()?), unescape(columns.next()?));
        columns.next().is_none().then_some(Self { time, old, new, who, reason })
    }
}

/// Reads the lines of a log file, oldest first; none when the file is missing.
/// Reads only the last [`limits::REF_LOG_BYTES`] of a longer log.
///
/// # Errors
/// [`PathError`] when the file is there and cannot be read.
pub fn read(file: &Path) -> Result<Vec<Line>, PathError> {
    let mut bytes = match read_end(file, limits::REF_LOG_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(PathError::when("read", file))?,
    };
    if bytes.len() as u64 == limits::REF_LOG_BYTES {
        // The first line may be cut off.
        let start = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..start);
    }
    let text = String::from_utf8_lossy(&bytes);
    // What follows the last line end is a torn line.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    Ok(whole.lines().filter_map(Line::parse).collect())
}

/// Adds a line and makes it durable.
pub(super) fn append(
    disk: &Disk,
    file: &Path,
    (old, new): (&Target, &Target),
    change: &Change<'_>,
) -> Result<(), PathError> {
    let folder = file.parent().unwrap_or(Path::new("."));
    disk.create_folders(folder)?;
    let fresh = !file.exists();
    let time = change.time.decimal();
    let (who, reason) = (escape(change.who), escape(change.reason));
    unshare(disk, file)?;
    let start = if ends_torn(file)? { "\n" } else { "" };
    let line = format!("{start}{time}\t{old}\t{new}\t{who}\t{reason}\n");
    let mut log = disk.append(file)?;
    log.write(line.as_bytes())?;
    log.sync()?;
    if fresh { disk.sync_folder(folder) } else { Ok(()) }
}

/// Length of a log in bytes; 0 when it is missing.
pub(super) fn length(file: &Path) -> u64 {
    fs_err::symlink_metadata(file).map_or(0, |meta| meta.len())
}

/// Takes back the line that was [appended](append) when the log had so many bytes:
/// the change that it tells of did not come about. What fails leaves the line.
pub(super) fn take_back(disk: &Disk, file: &Path, bytes: u64) {
    if bytes == 0 {
        let _ = disk.remove(file);
    } else if let Ok(log) = disk.append(file)
        && log.file().set_len(bytes).is_ok()
    {
        let _ = log.sync();
    }
}

/// Replaces a log that has several names by a copy: in a copy of the store made of
/// hard links, each store would otherwise log its changes in both.
fn unshare(disk: &Disk, file: &Path) -> Result<(), PathError> {
    let is_shared = fs_err::symlink_metadata(file).is_ok_and(|meta| meta.nlink() > 1);
    if !is_shared {
        return Ok(());
    }
    let bytes = read_end(file, limits::REF_LOG_BYTES).map_err(PathError::when("read", file))?;
    let name = unique_name("log");
    disk.write_whole(&file.with_file_name(name), file, &bytes)
}

/// Whether the file ends in the middle of a line.
fn ends_torn(file: &Path) -> Result<bool, PathError> {
    use std::os::unix::fs::FileExt;
    let open = match open_regular(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(PathError::when("read", file))?,
    };
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
    fn lines_come_back_and_a_torn_one_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("logs/refs/heads/main.log");
        assert_eq!(read(&file).unwrap(), []);
        let disk = Disk::default();
        let change =
            Change { time: Time { secs: 5, nanos: 7 }, who: "Ann\tB", reason: "a\nb\\n\rc" };
        let id = CommitId::of(b"x");
        append(&disk, &file, (&Target::Nothing, &Target::Commit(id)), &change).unwrap();
        let torn = fs_err::read_to_string(&file).unwrap();
        fs_err::write(&file, torn.clone() + &torn[..torn.len() / 2]).unwrap();
        assert_eq!(read(&file).unwrap().len(), 1);
        let branch = Target::Branch(RefName::branch("a/b").unwrap());
        append(&disk, &file, (&Target::Commit(id), &branch), &change).unwrap();

        let lines = read(&file).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].new, Target::Commit(id));
        assert_eq!(lines[1].new, branch);
        assert_eq!((&*lines[1].who, &*lines[1].reason), ("Ann\tB", "a\nb\\n\rc"));
        assert_eq!(lines[1].time, change.time);
    }
}
