//! The archive as a file: under its name when all of it is there, or not at
//! all.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    base::{io::PathError, observe::Observer},
    disk::{Disk, NewFile, Renamed},
    local::write::temporary_name,
    ops::{
        export::{ExportError, Options, Outcome, run},
        restore::What,
    },
    store::Store,
};

/// Bytes after which the system is asked to begin writing them to the disk.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// What happens to a file that is already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Nothing: the export is refused.
    #[default]
    Refuse,
    /// It is replaced.
    Replace,
}

/// Writes an archive of `what` to the file `path`. It is written beside it,
/// synced and renamed. What is there and no regular file, such as a device or a
/// pipe, is written to as it is.
///
/// # Errors
/// [`ExportError`]; what was at `path` before is then still there.
pub fn to_file(
    store: &Store,
    what: &What,
    (path, existing): (&Path, Existing),
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Outcome, ExportError> {
    if let Ok(stat) = fs_err::metadata(path) {
        if stat.is_dir() {
            return Err(ExportError::IsAFolder { path: path.to_owned() });
        }
        if !stat.is_file() {
            let file = File::options().write(true).open(path);
            let mut file = file.map_err(|e| failed(PathError::when("open", path)(e)))?;
            return run(store, what, &mut file, options, observer);
        }
    }
    if existing == Existing::Refuse && path.symlink_metadata().is_ok() {
        return Err(ExportError::Exists { path: path.to_owned() });
    }
    // Behind a link the file is replaced, not the link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let temporary = folder.join(temporary_name().as_os_str());
    let disk = Disk::default();
    let file = disk.create(&temporary);
    let file = file.map_err(|error| failed(PathError { path: path.clone(), ..error }))?;
    let mut draft = Draft { file, at: 0, told: 0 };
    let outcome = run(store, what, &mut draft, options, observer)?;
    draft.file.sync().map_err(failed)?;
    if observer.cancelled() {
        return Err(ExportError::Interrupted);
    }
    place(&disk, (&temporary, &path), existing)?;
    draft.file.keep();
    disk.sync_folder(folder).map_err(failed)?;
    Ok(outcome)
}

fn place(
    disk: &Disk,
    (temporary, path): (&Path, &PathBuf),
    existing: Existing,
) -> Result<(), ExportError> {
    match existing {
        Existing::Replace => disk.replace(temporary, path).map_err(failed),
        Existing::Refuse => match disk.rename_new(temporary, path).map_err(failed)? {
            Renamed::Done => Ok(()),
            Renamed::Taken => Err(ExportError::Exists { path: path.clone() }),
        },
    }
}

fn failed(error: PathError) -> ExportError {
    ExportError::File(error)
}

/// The archive under its temporary name; gone when dropped.
struct Draft {
    file: NewFile,
    at: u64,
    /// Up to where the system was asked to write.
    told: u64,
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| error.source)?;
        self.at += bytes.len() as u64;
        if self.at - self.told >= WRITEBACK_BYTES {
            self.file.start_writeback(self.told, self.at - self.told);
            self.told = self.at;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
