//! 2,000 commits in one store: lists the last ones, adds one more, and counts the files of the
//! store.
//!
//! The tree has 100 text files of 4 KiB; each commit changes one of them.

use std::path::Path;

use fs_err as fs;
use snap_testkit::{bytes::Corpus, trees};

use super::Bench;
use crate::{
    Result,
    contest::{Contestant, hold},
    table::{Row, Target, Unit},
};

const FILES: usize = 100;
const FILE_BYTES: usize = 4096;

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    trees::text_files(&data, FILES, FILE_BYTES)?;
    let tools = bench.tools(&data, &["git"], "");
    let snap = bench.snap(&data);
    let commits = bench.args.scale(2_000, 60);
    for tool in &tools {
        tool.fresh()?;
    }
    for number in 0..commits {
        change(&data, number)?;
        for tool in &tools {
            tool.save().run()?;
        }
    }
    bench.place.settle();
    let (packs, _) = snap.objects()?;
    let mut rows = Vec::new();

    let log = Contestant::plain("snap", || snap.call().args(["log", "-n", "20"]));
    let scores = hold(bench.place, bench.args.runs * 4, |_| Ok(()), vec![log])?;
    let listed = snap.call().args(["log", "-n", "20", "--json"]).output();
    if let Err(error) = listed {
        (bench.note)(format!("history: snap log --json failed: {error}"));
    }
    let of = format!("history ({commits} commits)");
    rows.push(bench.rows(&format!("{of}, log -n 20"), &scores).time(Target::AtMost(0.020)));

    let savers = tools.iter().map(|tool| bench.saver(&**tool, &data, false)).collect();
    let next = |round| change(&data, commits + round);
    let scores = hold(bench.place, bench.args.runs * 4, next, savers)?;
    let name = format!("{of}, one more");
    let commit = bench.rows(&name, &scores);
    rows.extend([commit.time(Target::AtMost(0.060)), commit.memory(Target::None)]);

    let target = Target::AtMost(60.0);
    let count = commit.row("files in objects/", Unit::Count, target, |_| None);
    rows.push(Row { snap: Some(packs as f64), work: of, ..count });
    Ok(rows)
}

fn change(data: &Path, number: usize) -> Result<()> {
    let path = trees::text_file_path(data, number % FILES);
    Ok(fs::write(path, Corpus::Text.make_seeded(FILE_BYTES, 1_000_000 + number as u64))?)
}
