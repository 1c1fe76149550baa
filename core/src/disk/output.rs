//! An output file for the user: it appears complete and durable, or not at all.
//!
//! The bytes go to a temporary file in the same folder, which is synced and renamed at the end.
//! Dropping an unfinished [`OutputFile`] removes the temporary file.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::{
    base::io::PathError,
    disk::{
        CreateMode, Disk, NewFile, Renamed,
        scratch::{PART_PREFIX, unique_name},
    },
};

/// Selects what happens if a file has the name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExists {
    /// Keep that file and fail.
    #[default]
    Refuse,
    /// Replace that file.
    Replace,
}

/// An output file that is being written.
#[derive(Debug)]
pub struct OutputFile {
    file: NewFile,
    path: PathBuf,
    taken: IfExists,
}

impl OutputFile {
    /// Starts a file that will be at `path`. The new file gets the mode of the file that it
    /// replaces.
    ///
    /// # Errors
    /// [`PathError`] when `path` exists and may not be replaced, when it is a folder,
    /// or when no file can be created beside it.
    pub fn create(disk: &Disk, path: &Path, taken: IfExists) -> Result<Self, PathError> {
        let refuse = |errno| Err(PathError::when("write", path)(errno));
        let replaced = match fs_err::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => return refuse(Errno::ISDIR),
            Ok(_) if taken == IfExists::Refuse => return refuse(Errno::EXIST),
            Ok(meta) if meta.is_file() => Some(meta.permissions()),
            _ => None,
        };
        if path.file_name().is_none() {
            return refuse(Errno::INVAL);
        }
        let temporary = folder_of(path).join(unique_name(PART_PREFIX));
        // If the replaced file is private, the new one must not be readable by others
        // at any time.
        let created = match &replaced {
            Some(_) => disk.with_access(CreateMode::PRIVATE).create(&temporary),
            None => disk.create(&temporary),
        };
        let file = created.map_err(|error| PathError {
            action: "create a file beside",
            path: path.to_owned(),
            ..error
        })?;
        if let Some(mode) = replaced {
            let set = file.file().set_permissions(mode);
            set.map_err(PathError::when("set the mode of", file.path()))?;
        }
        Ok(Self { file, path: path.to_owned(), taken })
    }

    /// Makes the file durable and renames it to its path.
    ///
    /// # Errors
    /// [`PathError`]; the file is removed then, unless only the last step failed, the
    /// sync of the folder.
    pub fn finish(self) -> Result<(), PathError> {
        self.file.sync()?;
        let disk = self.file.disk();
        let from = self.file.path();
        match self.taken {
            IfExists::Replace => disk.replace(from, &self.path)?,
            IfExists::Refuse => {
                if disk.rename_new(from, &self.path)? == Renamed::Taken {
                    return Err(PathError::when("write", &self.path)(Errno::EXIST));
                }
            }
        }
        self.file.keep();
        disk.sync_folder(folder_of(&self.path))
    }
}

/// Returns the folder that a path is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The caller has the path and adds it to its error message.
        self.file.write(bytes).map_err(|error| error.source)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_file_appears_complete_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut file = OutputFile::create(&Disk::default(), &path, IfExists::Refuse).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);

        let mut file = OutputFile::create(&Disk::default(), &path, IfExists::Refuse).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(fs_err::read(&path).unwrap(), b"whole");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_existing_file_is_replaced_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut late = OutputFile::create(&Disk::default(), &path, IfExists::Refuse).unwrap();
        late.write_all(b"late").unwrap();
        fs_err::write(&path, "first").unwrap();
        assert_eq!(late.finish().unwrap_err().source.kind(), io::ErrorKind::AlreadyExists);
        assert!(OutputFile::create(&Disk::default(), &path, IfExists::Refuse).is_err());
        assert_eq!(fs_err::read(&path).unwrap(), b"first");

        OutputFile::create(&Disk::default(), &path, IfExists::Replace).unwrap().finish().unwrap();
        assert_eq!(fs_err::read(&path).unwrap(), b"");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }
}
