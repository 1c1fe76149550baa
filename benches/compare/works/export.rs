//! Exports a committed snapshot as tar and as zip.
//!
//! On both sides tar goes through a pipe into `cat`, because GNU tar does not read the files if its
//! output is `/dev/null`.

use snap_testkit::compare::{Options, compare};

use super::{Bench, Data, on_both};
use crate::{
    Result,
    contest::{Contestant, hold},
    measure::{Call, is_installed},
    place::{empty, remove},
    table::{Row, Target},
    tools::{Snap, Tool},
};

const MIB: f64 = 1_048_576.0;

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    on_both(bench, |data| {
        bench.place.settle();
        let snap = bench.snap(&data.dir);
        snap.fresh()?;
        snap.save().run()?;
        let mut rows = tar(bench, data, &snap)?;
        match ["zip", "unzip"].iter().find(|program| !is_installed(program)) {
            Some(program) => (bench.note)(format!("export zip: {program} is not installed")),
            None => rows.extend(zip(bench, data, &snap)?),
        }
        Ok(rows)
    })
}

fn tar(bench: &Bench<'_>, data: &Data, snap: &Snap) -> Result<Vec<Row>> {
    let export = |line| Call::shell(line).arg(&snap.program).arg(&snap.store);
    let into = bench.place.join("checked");
    let check = || {
        empty(&into)?;
        // Run as root, tar would restore the owners, as it should.
        let line = r#"set -e; "$1" -q --store "$2" export latest -o - |
            tar --xattrs --xattrs-include='*' -xpf - -C "$3""#;
        export(line).arg(&into).run()?;
        same(data, &into, &snap.keeps())?;
        remove(&into)
    };
    let contestants = vec![
        Contestant {
            check: Box::new(check),
            ..Contestant::plain("snap", || {
                export(r#""$1" -q --store "$2" export latest -o - | cat >/dev/null"#)
            })
        },
        Contestant::plain("tar", || {
            Call::shell(r#"tar -cf - -C "$1" . | cat >/dev/null"#).arg(&data.dir)
        }),
    ];
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), contestants)?;
    let work = format!("export tar ({})", data.name);
    let rows = bench.rows(&work, &scores);
    // Half the rate means twice the time.
    Ok(vec![rows.time(Target::Times(2.0, "tar")), rows.memory(Target::AtMost(64.0 * MIB))])
}

fn zip(bench: &Bench<'_>, data: &Data, snap: &Snap) -> Result<Vec<Row>> {
    let into = bench.place.join("checked");
    let check = |file: &str| {
        empty(&into)?;
        // Exit code 1 is a warning.
        Call::new("unzip").arg("-q").arg(bench.place.join(file)).dir(&into).or_code(1).run()?;
        same(data, &into, &Options::content_only())?;
        remove(&into)
    };
    let contestants = vec![
        Contestant {
            prepare: Box::new(|| remove(&bench.place.join("snap.zip"))),
            check: Box::new(|| check("snap.zip")),
            ..Contestant::plain("snap", || {
                snap.call().args(["export", "latest", "-o"]).arg(bench.place.join("snap.zip"))
            })
        },
        Contestant {
            prepare: Box::new(|| remove(&bench.place.join("zip.zip"))),
            check: Box::new(|| check("zip.zip")),
            ..Contestant::plain("zip", || {
                let zip = Call::new("zip").arg("-qry").arg(bench.place.join("zip.zip"));
                zip.arg(".").dir(&data.dir)
            })
        },
    ];
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), contestants)?;
    let work = format!("export zip ({})", data.name);
    let rows = bench.rows(&work, &scores);
    Ok(vec![rows.time(Target::Times(0.4, "zip")), rows.memory(Target::AtMost(64.0 * MIB))])
}

fn same(data: &Data, into: &std::path::Path, keeps: &Options) -> Result<()> {
    match compare(&data.dir, into, keeps).first() {
        None => Ok(()),
        Some(first) => Err(format!("the result differs from the source: {first}").into()),
    }
}
