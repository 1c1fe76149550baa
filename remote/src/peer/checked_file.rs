//! Small text files of a cache, with a checksum in the last line: a file that ends between two
//! lines would look complete.

use std::path::Path;

use snap_core::{
    base::{io::PathError, limits},
    disk::{Disk, regular::read_at_most},
};

/// The content of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CheckedText {
    /// The file does not exist.
    Missing,
    /// The file is cut, changed, too long or unreadable.
    Damaged,
    /// The lines without the checksum.
    Lines(String),
}

/// Reads a file and checks its checksum.
pub(super) fn read(path: &Path) -> CheckedText {
    if !path.exists() {
        return CheckedText::Missing;
    }
    let checked = || {
        let bytes = read_at_most(path, limits::MIRROR_FILE_BYTES).ok()?;
        let mut text = String::from_utf8(bytes).ok()?;
        let end = text.len().checked_sub(checksum("").len())?;
        if checksum(text.get(..end)?) != text[end..] {
            return None;
        }
        text.truncate(end);
        Some(text)
    };
    checked().map_or(CheckedText::Damaged, CheckedText::Lines)
}

/// Replaces a file by `lines`, each of which ends with a line feed, and their checksum. The
/// temporary file is in the folder `tmp`.
///
/// # Errors
/// [`PathError`] if the file cannot be written; it is unchanged then.
pub(super) fn write(
    disk: &Disk,
    tmp: &Path,
    path: &Path,
    mut lines: String,
) -> Result<(), PathError> {
    lines.push_str(&checksum(&lines));
    disk.write_whole(tmp, path, lines.as_bytes())
}

fn checksum(lines: &str) -> String {
    format!("end {}\n", blake3::hash(lines.as_bytes()).to_hex())
}
