//! Lists of paths in files, in addition to the paths of the command line.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use snap_core::base::io::PathError;

use crate::{context::Context, report::CliError, ui::text};

/// The options that name lists of paths.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PathLists {
    /// File with further paths, one per line, or `-` for stdin; lines that start with `#` are
    /// comments
    #[arg(long, value_name = "FILE")]
    files_from: Vec<PathBuf>,

    /// File with further paths, each ended by NUL, or `-` for stdin
    #[arg(long, value_name = "FILE")]
    files_from_raw: Vec<PathBuf>,
}

impl PathLists {
    /// Returns true if no list is named.
    pub(super) fn is_empty(&self) -> bool {
        self.files_from.is_empty() && self.files_from_raw.is_empty()
    }

    /// Returns `paths` and those of all lists. Fails if the command line names a list, but
    /// no path at all: an empty list must not select everything.
    pub(crate) fn join<P: Clone + From<OsString>>(
        &self,
        paths: &[P],
        cx: &Context,
    ) -> Result<Vec<P>, CliError> {
        let mut all = paths.to_vec();
        for file in &self.files_from {
            let text = read(file, cx)?;
            let lines = text.split(|byte| *byte == b'\n');
            let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
            all.extend(lines.filter(|line| !line.starts_with(b"#")).filter_map(path));
        }
        for file in &self.files_from_raw {
            all.extend(read(file, cx)?.split(|byte| *byte == 0).filter_map(path));
        }
        if all.is_empty() && !self.is_empty() {
            let first = self.files_from.iter().chain(&self.files_from_raw).next();
            let file = first
                .map_or_else(String::new, |file| text::line(file.as_os_str().as_encoded_bytes()));
            return Err(CliError::EmptyList { file });
        }
        Ok(all)
    }
}

fn path<P: From<OsString>>(bytes: &[u8]) -> Option<P> {
    (!bytes.is_empty()).then(|| OsStr::from_bytes(bytes).to_owned().into())
}

fn read(file: &Path, cx: &Context) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => cx.stdin().read_to_end(&mut bytes),
        false => cx.open_input(file).and_then(|mut input| input.read_to_end(&mut bytes)),
    };
    let failed = |error: io::Error| CliError::Source(PathError::when("read", file)(error));
    read.map(|_| bytes).map_err(failed)
}
