//! Programs of this machine that tests call.

use std::{env, path::PathBuf};

use crate::skip::skip_without_program;

/// Folders that the `PATH` of a user may lack.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the path of a program in a folder of `PATH` or in an sbin folder.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(SBIN.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Like [`find`]. If the program is missing, reports that `test` is skipped.
pub fn find_or_skip(test: &str, name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip_without_program(test, name);
    }
    found
}
