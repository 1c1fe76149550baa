//! Large files, with two binaries of snap that take turns: a tar of system libraries, noise, a hole.
//!
//! Each binary has a store of its own. `cp` restores the tar as well, as a yardstick.

use std::{
    io::Write as _,
    os::unix::{ffi::OsStrExt as _, fs::FileExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use fs_err::{self as fs, File, OpenOptions};
use snap_testkit::{bytes::Corpus, compare::Options};
use walkdir::WalkDir;

use super::{
    Bench,
    against::{MEMORY, TARGET, both, snaps},
    big_file::insert_byte,
    changes, same,
};
use crate::{
    Result,
    bucket::{Bucket, Way},
    contest::{Contestant, hold},
    measure::Call,
    place::{empty, remove},
    table::{Row, Target},
    tools::{Snap, Tool as _},
};

/// Source of the tar: binary files that every machine has.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY_BYTES: u64 = 700_000_000;

const NOISE_BYTES: usize = 1 << 30;
/// The noise is made and written in pieces of this size.
const PIECE_BYTES: usize = 16 << 20;

const HOLE_BYTES: usize = 64 << 30;
/// A hole of any size takes no time, only that of starting the program.
const HOLE_TARGET: Target = Target::AtMost(1.0);

/// A tar of system libraries: first commit, verify, byte inserted, restore, status.
pub(super) fn tar(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    let file = data.join("libraries.tar");
    let wanted = bench.args.scale(LIBRARY_BYTES as usize, 20_000_000) as u64;
    // The file, two stores, two restored copies, and the part that an insertion moves.
    bench.place.needs(6 * wanted)?;
    fs::create_dir_all(&data)?;
    let packed = pack(Path::new(LIBRARIES), &file, wanted)?;
    // A machine with enough files fills almost all of it.
    if packed < wanted - wanted / 100 {
        let (packed, wanted) = (packed / 1_000_000, wanted / 1_000_000);
        (bench.note)(format!("tar: {LIBRARIES} has only {packed} MB of {wanted} MB"));
    }
    bench.place.settle();
    let snaps = snaps(bench, &data)?;
    let name = format!("tar ({} MB)", fs::metadata(&file)?.len() / 1_000_000);
    let measure =
        |what: &str, change: &dyn Fn(usize) -> Result<()>, contestants: Vec<Contestant<'_>>| {
            contest(bench, &format!("{name}, {what}"), change, contestants)
        };

    let savers = |fresh| both(&snaps, move |snap| bench.saver(snap, &snap.data, fresh));
    let mut rows = measure("first commit", &nothing, savers(true))?;
    // The stores have one version of the file, whatever the number of runs.
    rows.extend(measure("verify --data", &nothing, both(&snaps, verifier))?);
    let insert = |round| insert_byte(&file, round as u64);
    rows.extend(measure("byte inserted", &insert, savers(false))?);

    // From this commit on, the stat caches know the file.
    bench.place.settle();
    snaps.iter().try_for_each(|snap| snap.save().run())?;
    let mut restorers = both(&snaps, |snap| bench.restorer(snap, &snap.data));
    restorers.push(copier(&file, bench.place.join("copied")));
    rows.extend(measure("restore", &nothing, restorers)?);
    remove(&bench.place.join("copied"))?;

    rows.extend(measure("status, unchanged", &nothing, both(&snaps, |snap| lister(snap, &[])))?);
    let changed = [PathBuf::from("libraries.tar")];
    let change = |_| {
        change_byte(&file)?;
        bench.place.settle();
        Ok(())
    };
    let listers = || both(&snaps, |snap| lister(snap, &changed));
    rows.extend(measure("status, byte changed", &change, listers())?);
    // Both have listed this change in the last round.
    rows.extend(measure("status, the same again", &nothing, listers())?);
    Ok(rows)
}

/// One file of noise: first commit, verify, unpack, pull and clone from a bucket.
pub(super) fn noise(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    let bytes = bench.args.scale(NOISE_BYTES, 20 << 20);
    // The file, two stores or what a bucket holds of them, two bundles, and a clone with its store.
    bench.place.needs(8 * bytes as u64)?;
    fs::create_dir_all(&data)?;
    write_noise(&data.join("noise"), bytes)?;
    bench.place.settle();
    let snaps = snaps(bench, &data)?;
    let savers = both(&snaps, |snap| bench.saver(snap, &data, true));
    let mut rows = contest(bench, "noise, first commit", &nothing, savers)?;
    rows.extend(contest(bench, "noise, verify --data", &nothing, both(&snaps, verifier))?);
    let (bundle, received) = (bench.place.join("bundle"), bench.place.join("received"));
    snaps[0].call().args(["pack", "main", "-o"]).arg(&bundle).run()?;

    let bucket = Bucket::open(bench.args.s3, Way::Direct)?;
    let sides = snaps.each_ref().map(|snap| (snap, bucket.fresh()));
    for (snap, prefix) in &sides {
        let push = snap.call().arg("push").arg(url(prefix)).arg("main");
        push.vars(bucket.environment()).run()?;
        remove(&snap.store)?;
    }
    let from = bundle.display().to_string();
    let unpackers = both(&snaps, |snap| receiver(snap, &bucket, ["unpack", &from], &received));
    rows.extend(contest(bench, "noise, unpack", &nothing, unpackers)?);
    remove(&bundle)?;
    let pullers =
        both(&sides, |(snap, prefix)| receiver(snap, &bucket, ["pull", &url(prefix)], &received));
    rows.extend(contest(bench, &format!("noise, pull ({})", bucket.server), &nothing, pullers)?);
    remove(&received)?;
    let cloned = bench.place.join("cloned");
    let cloners = both(&sides, |(snap, prefix)| cloner(snap, &bucket, prefix, &cloned));
    rows.extend(contest(bench, &format!("noise, clone ({})", bucket.server), &nothing, cloners)?);
    sides.iter().try_for_each(|(_, prefix)| bucket.forget(prefix))?;
    Ok(rows)
}

/// One file that is a single hole: commit, restore, status.
pub(super) fn hole(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    let file = data.join("hole");
    fs::create_dir_all(&data)?;
    let gib = bench.args.scale(HOLE_BYTES, 1 << 30) >> 30;
    File::create(&file)?
        .set_len((gib as u64) << 30)
        .map_err(|error| format!("the file system refuses a hole of {gib} GiB: {error}"))?;
    bench.place.settle();
    let snaps = snaps(bench, &data)?;
    let measure = |what: &str, contestants: Vec<Contestant<'_>>| {
        contest(bench, &format!("hole ({gib} GiB), {what}"), &nothing, contestants)
    };
    let savers = both(&snaps, |snap| bench.saver(snap, &data, true));
    let mut rows = measure("first commit", savers)?;
    rows.extend(measure("restore", both(&snaps, |snap| bench.restorer(snap, &data)))?);
    // Otherwise the stat caches would answer.
    let touch = || Ok(File::options().write(true).open(&file)?.set_modified(SystemTime::now())?);
    let touchers =
        both(&snaps, |snap| Contestant { prepare: Box::new(touch), ..lister(snap, &[]) });
    rows.extend(measure("status, touched", touchers)?);
    for row in rows.iter_mut().filter(|row| row.measure == "time") {
        row.target = HOLE_TARGET;
    }
    Ok(rows)
}

/// Measures time and memory of both binaries. `change` is called before each round.
fn contest(
    bench: &Bench<'_>,
    work: &str,
    change: &dyn Fn(usize) -> Result<()>,
    contestants: Vec<Contestant<'_>>,
) -> Result<Vec<Row>> {
    let scores = hold(bench.place, bench.args.runs, change, contestants)?;
    let rows = bench.rows(work, &scores);
    Ok(vec![rows.time(TARGET), rows.memory(MEMORY)])
}

/// Changes nothing before a round.
fn nothing(_round: usize) -> Result<()> {
    Ok(())
}

/// Makes a contestant that copies the file into an empty folder.
fn copier<'c>(file: &'c Path, into: PathBuf) -> Contestant<'c> {
    let to = into.clone();
    Contestant {
        prepare: Box::new(move || empty(&into)),
        ..Contestant::plain("cp", move || Call::new("cp").arg(file).arg(&to))
    }
}

fn verifier(snap: &Snap) -> Contestant<'_> {
    Contestant::plain("snap", || snap.call().args(["verify", "--data"]))
}

/// Makes a contestant that lists changes, which must be these.
fn lister<'c>(snap: &'c Snap, changed: &'c [PathBuf]) -> Contestant<'c> {
    let status = || snap.call().args(["status", "--folder"]).arg(&snap.data);
    Contestant {
        check: Box::new(move || changes::check(&status().arg("--short").output()?, changed)),
        ..Contestant::plain("snap", status)
    }
}

fn url(prefix: &str) -> String {
    format!("s3://{prefix}")
}

/// Makes a contestant that runs a command in a new store in the folder `into`.
fn receiver<'c>(
    snap: &'c Snap,
    bucket: &'c Bucket,
    command: [&str; 2],
    into: &'c Path,
) -> Contestant<'c> {
    let command = command.map(str::to_owned);
    let call = move || {
        let call = Call::new(&snap.program).args(["-q", "--store"]).arg(into);
        call.vars(bucket.environment())
    };
    Contestant {
        prepare: Box::new(move || {
            empty(into)?;
            call().arg("init").run()
        }),
        check: Box::new(move || call().args(["verify", "--data"]).run()),
        ..Contestant::plain("snap", move || call().args(&command))
    }
}

/// Makes a contestant that clones a prefix of the bucket.
fn cloner<'c>(snap: &'c Snap, bucket: &'c Bucket, prefix: &str, into: &'c Path) -> Contestant<'c> {
    let url = url(prefix);
    let clone = move || {
        let clone = Call::new(&snap.program).args(["-q", "clone", &url]).arg(into);
        clone.vars(bucket.environment())
    };
    // A clone contains its store.
    let keeps = Options { skip: vec![".snap".into()], ..snap.keeps() };
    Contestant {
        prepare: Box::new(|| empty(into)),
        check: Box::new(move || same(&snap.data, into, &keeps)),
        ..Contestant::plain("snap", clone)
    }
}

/// Packs the files below `folder`, in the order of their paths, each that fits into the rest of
/// `most` bytes. Only names and contents depend on the machine. Returns the number of bytes.
fn pack(folder: &Path, tar: &Path, most: u64) -> Result<u64> {
    let mut list = tempfile::NamedTempFile::new()?;
    let mut bytes = 0;
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry?;
        if !entry.file_type().is_file() {
            continue;
        }
        let more = entry.metadata()?.len();
        if bytes + more <= most {
            list.write_all(entry.path().strip_prefix(folder)?.as_os_str().as_bytes())?;
            list.write_all(b"\0")?;
            bytes += more;
        }
    }
    Call::new("tar")
        .args(["--create", "--format=gnu", "--hard-dereference", "--no-recursion"])
        .args(["--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=0644"])
        .arg("--directory")
        .arg(folder)
        .args(["--null", "--verbatim-files-from", "--files-from"])
        .arg(list.path())
        .arg("--file")
        .arg(tar)
        .run()?;
    Ok(bytes)
}

fn write_noise(path: &Path, bytes: usize) -> Result<()> {
    let mut file = File::create(path)?;
    for (number, start) in (0..bytes).step_by(PIECE_BYTES).enumerate() {
        let piece = Corpus::Random.make_seeded(PIECE_BYTES.min(bytes - start), number as u64);
        file.write_all(&piece)?;
    }
    Ok(())
}

/// Changes the byte in the middle of a file; after 256 times it is the same again.
fn change_byte(path: &Path) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let middle = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.file().read_exact_at(&mut byte, middle)?;
    byte[0] = byte[0].wrapping_add(1);
    Ok(file.file().write_all_at(&byte, middle)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tar_has_the_files_that_fit_and_is_the_same_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, tar) = (dir.path().join("folder"), dir.path().join("tar"));
        for (name, bytes) in [("c", 300), ("a/b", 100), ("a/-C", 100), ("d", 100), ("e", 100)] {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![b'x'; bytes]).unwrap();
        }
        std::os::unix::fs::symlink("c", folder.join("b")).unwrap();
        assert_eq!(pack(&folder, &tar, 350).unwrap(), 300);
        let listed = Call::new("tar").arg("-tf").arg(&tar).output().unwrap();
        assert_eq!(listed, "a/-C\na/b\nd\n");
        let bytes = fs::read(&tar).unwrap();
        let file = File::options().write(true).open(folder.join("d")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(pack(&folder, &tar, 350).unwrap(), 300);
        assert!(fs::read(&tar).unwrap() == bytes);
        assert_eq!(pack(&folder, &tar, 1_000).unwrap(), 700);
    }

    #[test]
    fn noise_has_its_length_and_no_piece_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("noise");
        write_noise(&path, PIECE_BYTES + 1_000).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), PIECE_BYTES + 1_000);
        assert_ne!(bytes[..1_000], bytes[PIECE_BYTES..]);
    }

    #[test]
    fn one_byte_changes_and_the_length_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "abcde").unwrap();
        change_byte(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abdde");
        change_byte(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abede");
    }
}
