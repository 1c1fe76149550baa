//! `snap --version`: measures the start of the program.

use super::Bench;
use crate::{
    Result,
    contest::{Contestant, hold},
    measure::{Call, is_installed},
    table::{Row, Target},
};

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let peers = [("git", "--version"), ("restic", "version"), ("borg", "--version")];
    let mut contestants =
        vec![Contestant::plain("snap", || Call::new(bench.snap).arg("--version"))];
    let here = peers.iter().filter(|(name, _)| is_installed(name) && bench.wants(name));
    contestants
        .extend(here.map(|(name, arg)| Contestant::plain(name, move || Call::new(name).arg(arg))));
    let scores = hold(bench.place, bench.args.runs * 4, |_| Ok(()), contestants)?;
    Ok(vec![bench.rows("version", &scores).time(Target::AtMost(0.005))])
}
