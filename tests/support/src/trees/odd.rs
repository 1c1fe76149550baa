//! A tree with everything that backup tools have failed on.
//!
//! Besides unusual names, kinds, links, modes and times it contains a file of mode 000. Only root
//! can read that file, so a commit by any other user must report it. Entries that the machine or
//! the user cannot create are listed in [`Odd::left_out`], so that a test can report them.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Seek as _, SeekFrom, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt},
    path::Path,
};

use fs_err as fs;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat,
    utimensat,
};

use crate::bytes::Corpus;

/// The result of [`odd`], as far as it depends on machine and user.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Odd {
    /// The entries that could not be created, with the reason.
    pub left_out: Vec<String>,
}

/// Writes the odd tree into `dir`: about 3,200 entries and 10 MiB on disk.
///
/// # Errors
/// Any error of the file system for operations that every Unix supports.
pub fn odd(dir: &Path) -> io::Result<Odd> {
    let mut made = Odd::default();
    fs::create_dir_all(dir)?;
    names(&dir.join("names"))?;
    empty(&dir.join("empty"))?;
    symlinks(&dir.join("symlinks"))?;
    hard_links(&dir.join("hard-links"))?;
    special(&dir.join("special"), &mut made)?;
    sparse(&dir.join("sparse"))?;
    large(&dir.join("large"))?;
    modes(&dir.join("modes"))?;
    attributes(&dir.join("attributes"), &mut made)?;
    // The last step, because writing into a folder changes its time.
    times(&dir.join("times"), &mut made)?;
    Ok(made)
}

fn names(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let longest = vec![b'n'; 255];
    // 127 two-byte letters and one single-byte letter: the limit counts bytes, not letters.
    let longest_letters = format!("{}x", "ä".repeat(127));
    let names: [&[u8]; 24] = [
        b"latin1-\xe9",
        b"\xff\xfe\x80",
        b"cut-utf8-\xe2\x82",
        b"two\nlines",
        b"\n",
        b"tab\there",
        b"carriage\rreturn",
        b"\x1b[31mred",
        b"bell\x07",
        b" leading and trailing ",
        b"it's",
        b"\"quoted\"",
        b"back\\slash",
        b"-rf",
        b"--help",
        b"...",
        b".hidden",
        b"*?[a-z]{x,y}$HOME`id`",
        b"semi;colon:at@percent%",
        "Üñïçødé 😀 文件".as_bytes(),
        // The same letters in composed and in decomposed form: two files.
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        &longest,
        longest_letters.as_bytes(),
    ];
    for name in names {
        fs::write(dir.join(OsStr::from_bytes(name)), name)?;
    }
    for name in ["README", "readme", "a", "a.txt", "a-b", "a/b"] {
        // Folders and files whose order depends on how names are compared.
        let path = dir.join("order").join(name.replace("a/b", "a.d/b"));
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        fs::write(path, name)?;
    }
    let odd_folder = dir.join(OsStr::from_bytes(b"folder \xf0\n")).join("-");
    fs::create_dir_all(&odd_folder)?;
    fs::write(odd_folder.join("inside"), "inside")
}

fn empty(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join("folder"))?;
    fs::create_dir_all(dir.join("folders/in/folders"))?;
    fs::write(dir.join("file"), "")?;
    fs::write(dir.join("also a file"), "")
}

fn symlinks(dir: &Path) -> io::Result<()> {
    use fs_err::os::unix::fs::symlink;
    fs::create_dir_all(dir.join("folder"))?;
    fs::write(dir.join("folder/file"), "behind a link")?;
    symlink("folder/file", dir.join("relative"))?;
    symlink("../symlinks/./folder/../folder/file", dir.join("winding"))?;
    symlink("/etc/passwd", dir.join("absolute"))?;
    symlink("nowhere/at all", dir.join("dangling"))?;
    symlink("folder", dir.join("to-folder"))?;
    symlink("..", dir.join("to-parent"))?;
    symlink("itself", dir.join("itself"))?;
    symlink(OsStr::from_bytes(b"not \xff utf-8\n"), dir.join("odd-target"))?;
    symlink("t/".repeat(1_000), dir.join("long-target"))
}

fn hard_links(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join("one"))?;
    fs::create_dir_all(dir.join("two/deep"))?;
    fs::write(dir.join("one/first"), "three names")?;
    fs::hard_link(dir.join("one/first"), dir.join("one/second"))?;
    fs::hard_link(dir.join("one/first"), dir.join("two/deep/third"))?;
    fs::write(dir.join("two/pair"), "two names")?;
    fs::hard_link(dir.join("two/pair"), dir.join("a-pair"))?;
    // Equal content, but not a hard link.
    fs::write(dir.join("one/twin"), "two names")?;
    // A symlink can have two names too.
    fs_err::os::unix::fs::symlink("first", dir.join("one/link"))?;
    fs::hard_link(dir.join("one/link"), dir.join("two/link"))
}

fn special(dir: &Path, made: &mut Odd) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, dir.join("fifo"), FileType::Fifo, mode, 0)?;
    mknodat(CWD, dir.join("socket"), FileType::Socket, mode, 0)?;
    // The numbers of the null device, and larger ones without a driver.
    let devices = [
        ("character-device", FileType::CharacterDevice, makedev(1, 3)),
        ("block-device", FileType::BlockDevice, makedev(250, 65_537)),
    ];
    for (name, kind, number) in devices {
        if let Err(error) = mknodat(CWD, dir.join(name), kind, mode, number) {
            made.left_out.push(format!("{name}: {error}"));
        }
    }
    Ok(())
}

fn sparse(dir: &Path) -> io::Result<()> {
    const MIB: u64 = 1 << 20;
    fs::create_dir_all(dir)?;
    let write = |name: &str, len: u64, data: &[(u64, usize)]| -> io::Result<()> {
        let mut file = fs::File::create(dir.join(name))?;
        for &(offset, bytes) in data {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(&Corpus::Random.make_seeded(bytes, offset))?;
        }
        file.set_len(len)
    };
    write("holes-everywhere", 16 * MIB, &[(2 * MIB, 65_536), (9 * MIB, 65_536)])?;
    write("hole-at-start", 4 * MIB, &[(4 * MIB - 5_000, 5_000)])?;
    write("hole-at-end", 4 * MIB, &[(0, 5_000)])?;
    write("only-a-hole", 8 * MIB, &[])?;
    write("odd-length-hole", 3 * MIB + 17, &[(0, 1)])?;
    // Stored zeros are not a hole, but a restore may make them one.
    fs::write(dir.join("zeros"), Corpus::Zeros.make(300_000))
}

fn large(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut file = fs::File::create(dir.join("nine-mib"))?;
    for (seed, corpus) in [Corpus::Text, Corpus::Random, Corpus::Source].into_iter().enumerate() {
        file.write_all(&corpus.make_seeded(3 << 20, seed as u64))?;
    }
    let folder = dir.join("many-files");
    fs::create_dir_all(&folder)?;
    for number in 0..3_000 {
        fs::write(folder.join(format!("{number}")), number.to_string())?;
    }
    let deepest: OsString =
        (0..60).map(|level| format!("level-{level}")).collect::<Vec<_>>().join("/").into();
    let deepest = dir.join(deepest);
    fs::create_dir_all(&deepest)?;
    fs::write(deepest.join("bottom"), "60 levels down")
}

fn modes(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let files = [0o000, 0o400, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o1644, 0o7777];
    for mode in files {
        let path = dir.join(format!("file-{mode:04o}"));
        fs::write(&path, format!("{mode:04o}"))?;
        fs::set_permissions(&path, PermissionsExt::from_mode(mode))?;
    }
    for mode in [0o500, 0o700, 0o1777, 0o2775, 0o6755] {
        let path = dir.join(format!("folder-{mode:04o}"));
        fs::create_dir_all(&path)?;
        fs::write(path.join("inside"), "inside")?;
        fs::set_permissions(&path, PermissionsExt::from_mode(mode))?;
    }
    Ok(())
}

fn attributes(dir: &Path, made: &mut Odd) -> io::Result<()> {
    fs::create_dir_all(dir.join("folder"))?;
    let path = dir.join("file");
    fs::write(&path, "with attributes")?;
    let long = Corpus::Random.make(1_500);
    let wanted: [(&Path, &str, &[u8]); 5] = [
        (&path, "user.comment", b"as text"),
        (&path, "user.empty", b""),
        (&path, "user.bytes", b"\0\xff\n"),
        (&path, "user.long", &long),
        (&dir.join("folder"), "user.folder", b"on a folder"),
    ];
    for (path, name, value) in wanted {
        if let Err(error) = lsetxattr(path, name, value, XattrFlags::empty()) {
            made.left_out.push(format!("attribute {name}: {error}"));
        }
    }
    Ok(())
}

fn times(dir: &Path, made: &mut Odd) -> io::Result<()> {
    let wanted = [
        ("nanoseconds", 1_700_000_000, 123_456_789),
        ("last-nanosecond", 1_700_000_000, 999_999_999),
        ("epoch", 0, 0),
        ("before-1970", -86_400 * 365, 1),
        ("just-before-1970", -1, 999_999_999),
        ("after-2038", 1 << 32, 5),
        ("year-2400", 13_569_465_600, 42),
    ];
    fs::create_dir_all(dir)?;
    for (name, secs, nanos) in wanted {
        let folder = dir.join(format!("{name}-folder"));
        fs::create_dir_all(&folder)?;
        fs::write(dir.join(name), name)?;
        fs_err::os::unix::fs::symlink(name, dir.join(format!("{name}-link")))?;
        for path in [folder, dir.join(name), dir.join(format!("{name}-link"))] {
            set_time(&path, secs, nanos, made);
        }
    }
    set_time(dir, 1_000_000_000, 1, made);
    Ok(())
}

fn set_time(path: &Path, secs: i64, nanos: u32, made: &mut Odd) {
    let time = Timespec { tv_sec: secs, tv_nsec: nanos.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    if let Err(error) = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW) {
        made.left_out.push(format!("time {secs} of {}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_odd_tree_has_its_odd_entries() {
        let dir = tempfile::tempdir().unwrap();
        odd(dir.path()).unwrap();
        let stat = |path: &str| fs::symlink_metadata(dir.path().join(path)).unwrap();
        assert_eq!(stat("hard-links/one/first").nlink(), 3);
        assert_eq!(stat("modes/file-7777").mode() & 0o7777, 0o7777);
        assert_eq!(stat("modes/file-0000").mode() & 0o7777, 0);
        assert_eq!(stat("times/just-before-1970").mtime(), -1);
        assert_eq!(stat("times/nanoseconds-link").mtime_nsec(), 123_456_789);
        let sparse = stat("sparse/holes-everywhere");
        assert!(sparse.blocks() * 512 < sparse.size() / 8, "the file system keeps no holes");
        assert_eq!(walkdir::WalkDir::new(dir.path().join("names")).into_iter().count(), 36);
    }
}
