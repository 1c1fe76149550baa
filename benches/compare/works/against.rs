//! Two binaries of snap on the same files: the one to measure, and an older one.
//!
//! Both take turns in each round. Each has a store, a server and a bucket of its own, made by itself.
//! For large files see [`large`](super::large).

use std::{
    cell::Cell,
    path::{Path, PathBuf},
};

use snap_testkit::trees;

use super::{
    Bench,
    small_files::{self, CHANGED_EVERY},
    source_tree,
};
use crate::{
    Result,
    bucket::{Bucket, Server, Way},
    contest::{Contestant, hold},
    measure::Call,
    place::{copy, empty},
    table::{Row, Target},
    tools::Snap,
    web::Web,
};

/// Name of the older binary in the table.
const OLD: &str = "old";

/// How much slower than the old binary the new one may be.
pub(super) const TARGET: Target = Target::Times(1.03, OLD);

/// How much more memory than the old binary the new one may take; it is measured only once.
pub(super) const MEMORY: Target = Target::Times(1.1, OLD);

/// The new binary may send as many requests as the old one.
const REQUESTS: Target = Target::Times(1.0, OLD);

/// A commit without changes takes so little time that it needs this many times as many rounds.
const UNCHANGED_ROUNDS: usize = 4;

/// A binary with its store, its server and its bucket.
struct Side {
    name: &'static str,
    snap: Snap,
    web: Web,
    /// The number of repositories that were pushed to.
    pushes: Cell<usize>,
    pulled: PathBuf,
    bucket: Bucket,
    place_in_bucket: String,
    /// A project whose remote `origin` is the bucket.
    project: PathBuf,
    /// A project whose remote `origin` has just been made.
    newest: PathBuf,
    /// The number of changes of the projects.
    versions: Cell<usize>,
    cloned: PathBuf,
}

impl Side {
    fn new(bench: &Bench<'_>, name: &'static str, snap: Snap) -> Result<Self> {
        let place = |what: &str| bench.place.join(&format!("{what} of {name}"));
        let served = place("server");
        empty(&served)?;
        let web = Web::snap(&snap.program, &served)?;
        let bucket = Bucket::open(Server::Inside, Way::Counted)?;
        let side = Self {
            name,
            snap,
            web,
            pushes: Cell::new(0),
            pulled: place("pull"),
            place_in_bucket: format!("s3://{}", bucket.fresh()),
            bucket,
            project: place("project"),
            newest: place("newest project"),
            versions: Cell::new(0),
            cloned: place("clone"),
        };
        copy(&side.snap.data, &side.project)?;
        bench.place.settle();
        side.push_project(&side.project, &side.place_in_bucket)?;
        Ok(side)
    }

    /// Calls the program in a project.
    fn within(&self, project: &Path) -> Call {
        self.program().dir(project).vars(self.bucket.environment())
    }

    /// Commits the files of a folder, and pushes them to the unused place `origin`.
    fn push_project(&self, folder: &Path, origin: &str) -> Result<()> {
        self.within(folder).arg("commit").run()?;
        self.within(folder).args(["remote", "add", "origin", origin]).run()?;
        self.within(folder).args(["push", "origin", "main"]).run()
    }

    /// Makes a contestant whose requests to the bucket are counted.
    fn in_bucket<'c>(
        &'c self,
        mut prepare: impl FnMut() -> Result<()> + 'c,
        call: impl Fn() -> Call + 'c,
        check: impl Fn() -> Call + 'c,
    ) -> Contestant<'c> {
        Contestant {
            name: self.name.to_owned(),
            prepare: Box::new(move || {
                prepare()?;
                let _before = self.bucket.requests();
                Ok(())
            }),
            call: Box::new(call),
            check: Box::new(move || check().run()),
            count: Box::new(|| Ok(self.bucket.requests())),
        }
    }

    /// Pushes a commit in which every hundredth file has changed.
    fn push_to_bucket(&self, files: usize) -> Contestant<'_> {
        let change = move || {
            let version = self.next_version() as u64;
            trees::change_text_files(&self.project, files, CHANGED_EVERY, version)?;
            self.within(&self.project).arg("commit").run()
        };
        let push = || self.within(&self.project).args(["push", "origin", "main"]);
        let check = || self.within(&self.project).args(["verify", "origin"]);
        self.in_bucket(change, push, check)
    }

    /// Collects the bucket after a branch with a new file was deleted there.
    fn collect_bucket(&self) -> Contestant<'_> {
        self.collect(&self.project, || self.leave_garbage(&self.project))
    }

    /// Collects a new remote for the first time.
    fn collect_first(&self) -> Contestant<'_> {
        self.collect(&self.newest, || {
            empty(&self.newest)?;
            fs_err::write(self.newest.join("kept"), "kept")?;
            self.push_project(&self.newest, &format!("s3://{}", self.bucket.fresh()))?;
            self.leave_garbage(&self.newest)
        })
    }

    /// Collects the remote of a project.
    fn collect<'c>(
        &'c self,
        project: &'c Path,
        prepare: impl FnMut() -> Result<()> + 'c,
    ) -> Contestant<'c> {
        let collect = || self.within(project).args(["gc", "origin", "--now"]);
        let check = || self.within(project).args(["verify", "origin"]);
        self.in_bucket(prepare, collect, check)
    }

    /// Pushes a branch with a new file, and deletes it.
    fn leave_garbage(&self, project: &Path) -> Result<()> {
        fs_err::write(project.join("garbage"), self.next_version().to_string())?;
        for args in [
            &["commit", "-b", "side"][..],
            &["push", "origin", "side"],
            &["push", "origin", "--delete", "side"],
            &["branch", "-d", "side"],
        ] {
            self.within(project).args(args).run()?;
        }
        Ok(())
    }

    fn clone_bucket(&self) -> Contestant<'_> {
        let of = |call: Call| call.vars(self.bucket.environment());
        let clone =
            move || of(self.program().args(["clone", &self.place_in_bucket]).arg(&self.cloned));
        let check = || self.program().args(["verify", "--data"]).dir(&self.cloned);
        self.in_bucket(|| empty(&self.cloned), clone, check)
    }

    fn next_version(&self) -> usize {
        self.versions.set(self.versions.get() + 1);
        self.versions.get()
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

/// Returns both binaries, the new one first, each with a store that does not exist yet.
pub(super) fn snaps(bench: &Bench<'_>, data: &Path) -> Result<[Snap; 2]> {
    let old = bench.args.against.as_deref().ok_or("--against does not name the old binary")?;
    Ok([("snap", bench.snap), (OLD, old)].map(|(name, program)| Snap {
        program: program.to_owned(),
        data: data.to_owned(),
        store: bench.place.join(&format!("store of {name}")),
    }))
}

/// Makes a contestant of each binary, the new one first.
pub(super) fn both<'c, T>(
    sides: &'c [T; 2],
    contestant: impl Fn(&'c T) -> Contestant<'c>,
) -> Vec<Contestant<'c>> {
    let named = ["snap", OLD].into_iter().zip(sides);
    named.map(|(name, side)| Contestant { name: name.to_owned(), ..contestant(side) }).collect()
}

/// Measures the everyday works: first commit, commit of nothing new, restore, push, pull, clone, gc.
pub(super) fn small(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let (data, files) = (small_files::data(bench)?, small_files::files(bench));
    let [new, old] = snaps(bench, &data)?;
    let sides = [Side::new(bench, "snap", new)?, Side::new(bench, OLD, old)?];
    let mut rows = Vec::new();
    let mut measure = |work: &str,
                       rounds: usize,
                       contestant: &dyn Fn(&'_ Side) -> Contestant<'_>|
     -> Result<()> {
        let scores = hold(bench.place, rounds, |_| Ok(()), both(&sides, contestant))?;
        let of_work = bench.rows(work, &scores);
        rows.push(of_work.time(TARGET));
        if scores.iter().any(|score| !score.counted.is_empty()) {
            rows.push(of_work.counted("requests", REQUESTS));
        }
        Ok(())
    };
    let (runs, many) = (bench.args.runs, bench.args.runs * UNCHANGED_ROUNDS);
    measure("first-commit", runs, &|side| bench.saver(&side.snap, &side.snap.data, true))?;
    measure("unchanged", many, &|side| bench.saver(&side.snap, &side.snap.data, false))?;
    measure("restore", runs, &|side| bench.restorer(&side.snap, &side.snap.data))?;
    measure("serve-push", runs, &Side::push)?;
    measure("serve-pull", runs, &Side::pull)?;
    measure("clone", runs, &Side::clone_bucket)?;
    measure("push-changed", runs, &|side| side.push_to_bucket(files))?;
    measure("gc-remote", runs, &Side::collect_bucket)?;
    measure("gc-remote, first", runs, &Side::collect_first)?;
    Ok(rows)
}

/// Measures the first commit of a real source tree.
pub(super) fn source(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    let Some((files, mb)) = source_tree::fill(bench, &data)? else { return Ok(Vec::new()) };
    bench.place.settle();
    let snaps = snaps(bench, &data)?;
    let savers = both(&snaps, |snap| bench.saver(snap, &data, true));
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), savers)?;
    let work = format!("source-tree ({files} files, {mb} MB)");
    let rows = bench.rows(&work, &scores);
    Ok(vec![rows.time(TARGET), rows.memory(MEMORY)])
}
