//! Searches every file of a folder for bytes, also in what the file compresses.
//!
//! The search knows nothing of snap's formats: it tries to decompress a Zstandard frame at each place
//! that begins like one.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use walkdir::WalkDir;

/// The first bytes of a Zstandard frame, see RFC 8878, section 3.1.1.
const FRAME: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Number of bytes of a frame to decompress.
const FRAME_BYTES: u64 = 256 << 20;

/// Returns the files below `folder` with these bytes, compressed or not.
///
/// # Panics
/// If a file cannot be read.
pub fn files_with(folder: &Path, wanted: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.expect("a folder can be listed");
        if entry.file_type().is_file() {
            let bytes = fs_err::read(entry.path()).expect("a file can be read");
            if has(&bytes, wanted) {
                found.push(entry.into_path());
            }
        }
    }
    found
}

/// Returns true if `bytes`, or a frame in them, contain `wanted`.
pub fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    let contains = |bytes: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
    let starts = bytes.windows(FRAME.len()).enumerate().filter(|(_, start)| **start == FRAME);
    contains(bytes) || starts.into_iter().any(|(at, _)| contains(&expand(&bytes[at..])))
}

/// Decompresses one frame, or as much of it as is valid.
fn expand(frame: &[u8]) -> Vec<u8> {
    let mut expanded = Vec::new();
    if let Ok(decoder) = zstd::stream::read::Decoder::new(frame) {
        let _ = decoder.single_frame().take(FRAME_BYTES).read_to_end(&mut expanded);
    }
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_compressed_bytes_are_found_and_others_are_not() {
        let text = "a password: correct horse battery staple\n".repeat(9);
        let compressed = zstd::encode_all(text.as_bytes(), 3).unwrap();
        let file = [b"header", &compressed[..], b"trailer"].concat();
        assert!(has(text.as_bytes(), b"correct horse") && has(&file, b"correct horse"));
        assert!(!has(&file, b"wrong horse") && has(&file, b"trailer"));
        assert!(!has(&FRAME, b"x") && !has(b"", b"x"));
    }
}
