//! 1 GiB of incompressible data, uploaded and downloaded without the proxy.
//!
//! rclone transfers the bytes as files, snap as packs of an earlier commit. Both download into an
//! empty folder.

use fs_err as fs;
use snap_testkit::bytes::Corpus;

use super::{Bench, Rows, remote::Ground, same};
use crate::{
    Result,
    bucket::{Bucket, Way},
    contest::hold,
    place::empty,
    table::{Row, Target},
};

const MIB: f64 = 1_048_576.0;

/// Number of files, all of the same length.
const FILES: usize = 8;

/// At least 0.7 × the rate of rclone, expressed as a time limit.
const TARGET: Target = Target::Times(1.42, "rclone");

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    fs::create_dir_all(&data)?;
    let each = bench.args.scale((1 << 30) / FILES, 2 << 20);
    for number in 0..FILES {
        let bytes = Corpus::Random.make_seeded(each, number as u64);
        fs::write(data.join(format!("file-{number}")), bytes)?;
    }
    bench.place.settle();
    let bucket = Bucket::open(bench.args.s3, Way::Direct)?;
    let ground = Ground::new(bench, &bucket, &data, &["rclone"]);

    let pushers = ground.keepers.iter().map(|keeper| {
        let fresh = || {
            bucket.forget(&keeper.prefix())?;
            keeper.fresh()
        };
        let check = || ground.check(&**keeper);
        ground.contestant(&**keeper, fresh, || keeper.first(), check)
    });
    // Removes the data of the previous run.
    ground.keepers.iter().try_for_each(|keeper| keeper.fresh())?;
    let mut rows = contest(&ground, "1 GiB pushed", pushers.collect())?;

    let into = bench.place.join("cloned");
    let cloners = ground.keepers.iter().map(|keeper| {
        let prepare = || {
            keeper.forget()?;
            empty(&into)
        };
        let check = || same(&data, &into, &keeper.keeps());
        ground.contestant(&**keeper, prepare, || keeper.restore(&into), check)
    });
    rows.extend(contest(&ground, "1 GiB cloned, files restored", cloners.collect())?);
    ground.keepers.iter().try_for_each(|keeper| bucket.forget(&keeper.prefix()))?;
    Ok(rows)
}

fn contest(
    ground: &Ground<'_>,
    work: &str,
    contestants: Vec<crate::contest::Contestant<'_>>,
) -> Result<Vec<Row>> {
    let bench = ground.bench;
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), contestants)?;
    let place = format!("{}, {}", ground.bucket.server, bench.place.name);
    let rows = Rows { place: &place, ..bench.rows(work, &scores) };
    Ok(vec![rows.time(TARGET), rows.memory(Target::AtMost(200.0 * MIB))])
}
