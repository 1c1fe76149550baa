//! Bundles: pack, unpack, archive, and restore from the file.
//!
//! Each is compared with `tar | zstd` of the same files, as the targets say, because a bundle
//! replaces such a file.

use std::path::Path;

use super::{Bench, Data, on_both};
use crate::{
    Result,
    contest::{Contestant, hold},
    measure::Call,
    place::{empty, remove},
    table::{Row, Target},
    tools::{Snap, Tool},
};

const MIB: f64 = 1_048_576.0;

pub(super) fn pack(bench: &Bench<'_>) -> Result<Vec<Row>> {
    on_both(bench, |data| {
        let snap = committed(bench, data)?;
        let file = bench.place.join("bundle.snap");
        let (before, during, after) = (file.clone(), file.clone(), file.clone());
        let packer = Contestant {
            prepare: Box::new(move || remove(&before)),
            check: Box::new(|| check_bundle(bench, data, &after)),
            ..Contestant::plain("snap", || snap.call().args(["pack", "latest", "-o"]).arg(&during))
        };
        let target = Target::Times(0.3, "tar+zstd");
        contest(bench, data, &format!("pack ({})", data.name), (packer, target))
    })
}

pub(super) fn unpack(bench: &Bench<'_>) -> Result<Vec<Row>> {
    on_both(bench, |data| {
        let snap = committed(bench, data)?;
        let file = bench.place.join("bundle.snap");
        snap.call().args(["pack", "latest", "-o"]).arg(&file).run()?;
        let other = Snap { store: bench.place.join("other-store"), ..bench.snap(&data.dir) };
        let unpacker = Contestant {
            prepare: Box::new(|| other.fresh()),
            check: Box::new(|| super::check(&other, &data.dir, &bench.place.join("checked"))),
            ..Contestant::plain("snap", || other.call().arg("unpack").arg(&file))
        };
        let target = Target::Times(0.5, "tar+zstd");
        contest(bench, data, &format!("unpack ({})", data.name), (unpacker, target))
    })
}

pub(super) fn archive(bench: &Bench<'_>) -> Result<Vec<Row>> {
    on_both(bench, |data| {
        bench.place.settle();
        let file = bench.place.join("archive.snap");
        let (before, during, after) = (file.clone(), file.clone(), file.clone());
        let call = move || {
            Call::new(bench.snap).args(["-q", "archive"]).arg(&data.dir).arg("-o").arg(&during)
        };
        let archiver = Contestant {
            prepare: Box::new(move || remove(&before)),
            check: Box::new(|| check_bundle(bench, data, &after)),
            ..Contestant::plain("snap", call)
        };
        let target = Target::Times(1.0, "tar+zstd");
        let mut rows =
            contest(bench, data, &format!("archive ({})", data.name), (archiver, target))?;
        rows.extend(restore(bench, data, &file)?);
        Ok(rows)
    })
}

/// Restores from the file, compared with `cp -a` of the data.
fn restore(bench: &Bench<'_>, data: &Data, file: &Path) -> Result<Vec<Row>> {
    let tools = bench.tools(&data.dir, &["cp -a", "tar+zstd"], "cp -a");
    for tool in tools.iter().skip(1) {
        tool.fresh()?;
        tool.save().run()?;
    }
    let into = bench.place.join("restored from the file");
    let (before, during, after) = (into.clone(), into.clone(), into);
    let snap = Contestant {
        prepare: Box::new(move || empty(&before)),
        check: Box::new(|| super::differences(&bench.snap(&data.dir), &data.dir, &after)),
        ..Contestant::plain("snap", || restore_call(bench, file, &during))
    };
    let others = tools.iter().skip(1).map(|tool| bench.restorer(&**tool, &data.dir));
    let contestants = std::iter::once(snap).chain(others).collect();
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), contestants)?;
    let work = format!("restore from the archive ({})", data.name);
    let rows = bench.rows(&work, &scores);
    Ok(vec![rows.time(Target::Times(0.8, "cp -a")), rows.memory(Target::AtMost(64.0 * MIB))])
}

/// Returns snap with a store that contains the data.
fn committed(bench: &Bench<'_>, data: &Data) -> Result<Snap> {
    bench.place.settle();
    let snap = bench.snap(&data.dir);
    snap.fresh()?;
    snap.save().run()?;
    Ok(snap)
}

/// Runs snap against `tar | zstd`.
fn contest<'c>(
    bench: &'c Bench<'_>,
    data: &'c Data,
    work: &str,
    (snap, target): (Contestant<'c>, Target),
) -> Result<Vec<Row>> {
    let tools = bench.tools(&data.dir, &["tar+zstd"], "tar+zstd");
    // The first tool is snap's commit, which is not measured here.
    let others = tools.iter().skip(1).map(|tool| bench.saver(&**tool, &data.dir, true));
    let contestants = std::iter::once(snap).chain(others).collect();
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), contestants)?;
    let rows = bench.rows(work, &scores);
    Ok(vec![rows.time(target), rows.memory(Target::AtMost(64.0 * MIB))])
}

fn restore_call(bench: &Bench<'_>, file: &Path, into: &Path) -> Call {
    Call::new(bench.snap).args(["-q", "restore"]).arg(file).arg(into)
}

/// Restores directly from the file and compares the result.
fn check_bundle(bench: &Bench<'_>, data: &Data, file: &Path) -> Result<()> {
    let into = bench.place.join("checked");
    empty(&into)?;
    restore_call(bench, file, &into).run()?;
    super::differences(&bench.snap(&data.dir), &data.dir, &into)?;
    remove(&into)
}
