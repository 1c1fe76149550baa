//! Two binaries of snap on the same data: the one to measure, and an older one.
//!
//! Both take turns in each round. Each has a store and a server of its own, made by itself.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
};

use super::{Bench, small_files};
use crate::{
    Result,
    contest::{Contestant, hold},
    measure::Call,
    place::empty,
    table::{Row, Target},
    tools::Snap,
    web::Web,
};

const OLD: &str = "old";

/// How much slower than the old binary the new one may be.
const TARGET: Target = Target::Times(1.03, OLD);

/// A binary with its store and its server.
struct Side {
    name: &'static str,
    snap: Snap,
    web: Web,
    /// The number of repositories that were pushed to.
    pushes: Cell<usize>,
    pulled: PathBuf,
}

impl Side {
    fn new(bench: &Bench<'_>, name: &'static str, program: &Path, data: &Path) -> Result<Self> {
        let place = |what: &str| bench.place.join(&format!("{what} of {name}"));
        let served = place("server");
        empty(&served)?;
        let (program, data) = (program.to_owned(), data.to_owned());
        let web = Web::snap(&program, &served)?;
        let snap = Snap { program, data, store: place("store") };
        Ok(Self { name, snap, web, pushes: Cell::new(0), pulled: place("pull") })
    }

    fn program(&self) -> Call {
        Call::new(&self.snap.program).arg("-q")
    }

    /// Each push goes to a new repository.
    fn url(&self) -> String {
        format!("{}/push-{}", self.web.url, self.pushes.get())
    }

    fn push(&self) -> Contestant<'_> {
        Contestant {
            prepare: Box::new(|| {
                self.pushes.set(self.pushes.get() + 1);
                Ok(())
            }),
            ..Contestant::plain(self.name, || self.snap.call().args(["push", &self.url(), "main"]))
        }
    }

    /// Pulls what was pushed last.
    fn pull(&self) -> Contestant<'_> {
        let pull = || self.program().args(["pull", &self.url(), "main"]).dir(&self.pulled);
        Contestant {
            prepare: Box::new(|| {
                empty(&self.pulled)?;
                self.program().arg("init").dir(&self.pulled).run()
            }),
            check: Box::new(|| self.program().args(["verify", "--data"]).dir(&self.pulled).run()),
            ..Contestant::plain(self.name, pull)
        }
    }
}

/// Measures the everyday works: first commit, commit of nothing new, restore, push, pull.
pub(crate) fn run(bench: &Bench<'_>, old: &Path) -> Result<Vec<Row>> {
    let data = small_files::data(bench)?;
    let new = Side::new(bench, "snap", bench.snap, &data)?;
    let sides = [new, Side::new(bench, OLD, old, &data)?];
    let mut rows = Vec::new();
    let mut measure = |work: &str, contestant: &dyn Fn(&'_ Side) -> Contestant<'_>| -> Result<()> {
        let contestants = sides
            .iter()
            .map(|side| Contestant { name: side.name.to_owned(), ..contestant(side) })
            .collect();
        let scores = hold(bench.place, bench.args.runs, |_| Ok(()), contestants)?;
        rows.push(bench.rows(work, &scores).time(TARGET));
        Ok(())
    };
    measure("first-commit", &|side| bench.saver(&side.snap, &side.snap.data, true))?;
    measure("unchanged", &|side| bench.saver(&side.snap, &side.snap.data, false))?;
    measure("restore", &|side| bench.restorer(&side.snap, &side.snap.data))?;
    measure("serve-push", &Side::push)?;
    measure("serve-pull", &Side::pull)?;
    Ok(rows)
}
