//! 1,000,000 tiny files: the memory of a commit, of a commit without changes and of a restore; and
//! the time of a commit without changes compared with listing the files.
//!
//! Commit and restore have no time target, so they are timed once. In memory this needs 4 GB for
//! the data and as much again for the restored tree.

use snap_testkit::trees;

use super::{Bench, save_all};
use crate::{
    Result,
    contest::{Contestant, hold},
    measure::Call,
    table::{Row, Target},
};

const MEMORY: Target = Target::AtMost(300.0 * 1_048_576.0);

/// The peer for the commit without changes.
const FIND: &str = "find -ls";

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    trees::million(&data, bench.args.scale(1_000_000, 5_000))?;
    bench.place.settle();
    let tools = bench.tools(&data, &[], "");
    let snap = &*tools[0];
    let mut rows = Vec::new();

    let saver = bench.saver(snap, &data, true);
    let scores = hold(bench.place, 1, |_| Ok(()), vec![saver])?;
    let commit = bench.rows("million, commit", &scores);
    rows.extend([commit.time(Target::None), commit.memory(MEMORY)]);
    if scores[0].failure.is_some() {
        save_all(&tools)?;
    }

    let contestants = vec![
        Contestant::plain(snap.name(), || snap.save()),
        Contestant::plain(FIND, || Call::shell(r#"find "$1" -ls > /dev/null"#).arg(&data)),
    ];
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), contestants)?;
    let unchanged = bench.rows("million, unchanged", &scores);
    rows.extend([unchanged.time(Target::Times(2.5, FIND)), unchanged.memory(MEMORY)]);

    let restorer = bench.restorer(snap, &data);
    let scores = hold(bench.place, 1, |_| Ok(()), vec![restorer])?;
    let restore = bench.rows("million, restore", &scores);
    rows.extend([restore.time(Target::None), restore.memory(MEMORY)]);
    Ok(rows)
}
