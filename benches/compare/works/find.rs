//! Searches a name in 500 commits of a tree of 15,000 files.
//!
//! Each commit changes a different file; folders have 100 files.

use fs_err as fs;
use snap_testkit::{bytes::Corpus, trees};

use super::Bench;
use crate::{
    Result,
    contest::{Contestant, hold},
    table::{Row, Target},
    tools::Tool,
};

const FILE_BYTES: usize = 256;
const MIB: f64 = 1_048_576.0;

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    let (files, commits) = (bench.args.scale(15_000, 500), bench.args.scale(500, 20));
    trees::text_files(&data, files, FILE_BYTES)?;
    bench.place.settle();
    let snap = bench.snap(&data);
    snap.fresh()?;
    for number in 0..commits {
        // The step is prime, so that consecutive files are far apart.
        let path = trees::text_file_path(&data, number * 7_919 % files);
        fs::write(path, Corpus::Text.make_seeded(FILE_BYTES, 1_000_000 + number as u64))?;
        snap.save().run()?;
    }
    bench.place.settle();
    let name = |number: usize| {
        let path = trees::text_file_path(&data, number * 7_919 % files);
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    let (one, pattern) = (name(commits / 2), "file-00?23*");
    let find = |pattern: &str| snap.call().arg("find").arg(pattern);
    let check = |pattern: &str, name: &str| {
        let found = find(pattern).output()?;
        match found.contains(name) {
            true => Ok(()),
            false => Err(format!("{name} was not found: {found}").into()),
        }
    };
    let mut rows = Vec::new();
    for (what, pattern, name) in [("a name", &*one, &*one), ("a pattern", pattern, "file-000230")] {
        let contestant = Contestant {
            check: Box::new(move || check(pattern, name)),
            ..Contestant::plain("snap", move || find(pattern))
        };
        let scores = hold(bench.place, bench.args.runs, |_| Ok(()), vec![contestant])?;
        let work = format!("find {what} ({commits} commits, {files} files)");
        let made = bench.rows(&work, &scores);
        rows.extend([made.time(Target::AtMost(0.5)), made.memory(Target::AtMost(64.0 * MIB))]);
    }
    Ok(rows)
}
