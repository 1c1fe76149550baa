//! 10,000 text files of 4 KiB: first commit, commit without changes, commit with 1 % changed,
//! restore.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use snap_testkit::trees;

use super::{Bench, save_all};
use crate::{
    Result,
    contest::hold,
    table::{Row, Target},
};

const FILE_BYTES: usize = 4096;
const MIB: f64 = 1_048_576.0;

/// One of this number of files is changed.
pub(super) const CHANGED_EVERY: usize = 100;

pub(super) fn files(bench: &Bench<'_>) -> usize {
    bench.args.scale(10_000, 500)
}

/// Writes the files and waits until they are old enough for stat caches.
pub(super) fn data(bench: &Bench<'_>) -> Result<PathBuf> {
    let data = bench.place.join("data");
    fill(bench, &data)?;
    bench.place.settle();
    Ok(data)
}

/// Writes the files.
pub(super) fn fill(bench: &Bench<'_>, data: &Path) -> Result<()> {
    Ok(trees::text_files(data, files(bench), FILE_BYTES)?)
}

pub(super) fn first(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = data(bench)?;
    let tools = bench.tools(&data, &["tar+zstd", "git", "restic", "borg"], "tar+zstd");
    let savers = tools.iter().map(|tool| bench.saver(&**tool, &data, true)).collect();
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), savers)?;
    let rows = bench.rows("first-commit", &scores);
    Ok(vec![
        rows.time(Target::Times(0.9, "tar+zstd")),
        rows.stored(&tools, Target::Times(1.1, "tar+zstd")),
        rows.memory(Target::AtMost(64.0 * MIB)),
    ])
}

pub(super) fn unchanged(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = data(bench)?;
    let tools = bench.tools(&data, &["git", "restic", "borg"], "git");
    save_all(&tools)?;
    let savers = tools.iter().map(|tool| bench.saver(&**tool, &data, false)).collect();
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), savers)?;
    let rows = bench.rows("unchanged", &scores);
    Ok(vec![rows.time(Target::Times(0.7, "git")), rows.memory(Target::None)])
}

pub(super) fn changed(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = data(bench)?;
    let tools = bench.tools(&data, &["git", "restic", "borg"], "git");
    save_all(&tools)?;
    // The same files in each round, with new content.
    let change = |round| {
        trees::change_text_files(&data, files(bench), CHANGED_EVERY, round as u64)?;
        thread::sleep(Duration::from_millis(100));
        Ok(())
    };
    let savers = tools.iter().map(|tool| bench.saver(&**tool, &data, false)).collect();
    let scores = hold(bench.place, bench.args.runs, change, savers)?;
    let rows = bench.rows("changed", &scores);
    Ok(vec![rows.time(Target::Times(0.9, "git")), rows.memory(Target::None)])
}

pub(super) fn restore(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = data(bench)?;
    let tools = bench.tools(&data, &["cp -a", "tar+zstd", "git", "restic", "borg"], "cp -a");
    save_all(&tools)?;
    let restorers = tools.iter().map(|tool| bench.restorer(&**tool, &data)).collect();
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), restorers)?;
    let rows = bench.rows("restore", &scores);
    Ok(vec![rows.time(Target::Times(0.8, "cp -a")), rows.memory(Target::None)])
}
