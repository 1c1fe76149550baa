//! One file of 700 MiB: first commit, commit without changes, commit with one byte inserted.

use std::{
    cell::RefCell,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

use fs_err as fs;
use snap_testkit::trees;

use super::{Bench, save_all};
use crate::{
    Result,
    contest::{Contestant, hold},
    measure::{Call, is_installed},
    table::{Row, Target, Unit},
    tools::{Snap, Tool},
};

const MIB: f64 = 1_048_576.0;

/// The peer for the inserted byte: reading and hashing on one thread.
const HASH: &str = "b3sum, 1 thread";

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    let file = data.join("large.bin");
    fs::create_dir_all(&data)?;
    trees::large_file(&file, bench.args.scale(700 << 20, 20 << 20) as u64)?;
    bench.place.settle();

    let mut rows = first(bench, &data)?;
    let tools = bench.tools(&data, &["restic", "borg"], "");
    save_all(&tools)?;
    rows.extend(unchanged(bench, &tools, &data)?);
    rows.extend(inserted(bench, &tools, &data, &file)?);
    Ok(rows)
}

fn first(bench: &Bench<'_>, data: &Path) -> Result<Vec<Row>> {
    let tools = bench.tools(data, &["tar+zstd", "restic", "borg"], "tar+zstd");
    let savers = tools.iter().map(|tool| bench.saver(&**tool, data, true)).collect();
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), savers)?;
    let rows = bench.rows("big-file, first", &scores);
    Ok(vec![
        rows.time(Target::Times(1.0, "tar+zstd")),
        rows.stored(&tools, Target::Times(1.03, "tar+zstd")),
        rows.memory(Target::AtMost(160.0 * MIB)),
    ])
}

fn unchanged(bench: &Bench<'_>, tools: &[Box<dyn Tool>], data: &Path) -> Result<Vec<Row>> {
    let savers = tools.iter().map(|tool| bench.saver(&**tool, data, false)).collect();
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), savers)?;
    Ok(vec![bench.rows("big-file, unchanged", &scores).time(Target::AtMost(0.030))])
}

fn inserted(
    bench: &Bench<'_>,
    tools: &[Box<dyn Tool>],
    data: &Path,
    file: &Path,
) -> Result<Vec<Row>> {
    let snap = bench.snap(data);
    let sizes = RefCell::new(Vec::new());
    let mut contestants: Vec<Contestant<'_>> =
        tools.iter().map(|tool| bench.saver(&**tool, data, false)).collect();
    contestants[0].prepare = Box::new(|| note_size(&snap, &sizes));
    if is_installed("b3sum") {
        let hash = || Call::new("b3sum").args(["--num-threads", "1"]).arg(file);
        contestants.push(Contestant::plain(HASH, hash));
    }
    let change = |round| insert_byte(file, round as u64);
    let scores = hold(bench.place, bench.args.runs, change, contestants)?;
    note_size(&snap, &sizes)?;

    let rows = bench.rows("big-file, byte inserted", &scores);
    let sizes = sizes.borrow();
    let growth = sizes.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
    let growth = growth.filter(|_| scores[0].failure.is_none()).map(|bytes| bytes as f64);
    let target = Target::AtMost(8.0 * MIB);
    Ok(vec![
        rows.time(Target::Times(2.0, HASH)),
        rows.memory(Target::AtMost(160.0 * MIB)),
        Row { snap: growth, ..rows.row("growth, at most", Unit::Memory, target, |_| None) },
    ])
}

fn note_size(snap: &Snap, sizes: &RefCell<Vec<u64>>) -> Result<()> {
    sizes.borrow_mut().push(snap.stored_bytes()?.0);
    Ok(())
}

/// Moves the second half of the file by one byte.
pub(super) fn insert_byte(path: &Path, round: u64) -> Result<()> {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let middle = file.metadata()?.len() / 2 + round;
    let mut rest = Vec::new();
    file.seek(SeekFrom::Start(middle))?;
    file.read_to_end(&mut rest)?;
    file.seek(SeekFrom::Start(middle))?;
    file.write_all(b"+")?;
    Ok(file.write_all(&rest)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_inserted_and_all_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "abcdef").unwrap();
        insert_byte(&path, 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc+def");
        insert_byte(&path, 1).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc++def");
    }
}
