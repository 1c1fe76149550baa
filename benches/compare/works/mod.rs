//! The measured works: the lines of the target tables in the issues.
//!
//! A work makes its data in the given place, runs its contests and turns their scores into rows. It
//! leaves nothing that affects the next work.

mod against;
mod big_file;
mod bundle;
mod changes;
mod export;
mod find;
mod gc;
mod history;
mod large;
mod million;
mod parquet;
mod ranges;
mod rate;
mod remote;
mod serve;
mod small_files;
mod source_tree;
mod version;

use std::path::{Path, PathBuf};

use snap_testkit::compare::{Options, compare};

use crate::{
    Result,
    args::Args,
    contest::{Contestant, Score},
    measure::is_installed,
    place::{Place, empty, remove},
    table::{Row, Target, Unit},
    tools::{PEERS, Snap, Tool, peer},
};

/// A line of the target table.
pub(crate) struct Work {
    pub(crate) slug: &'static str,
    pub(crate) about: &'static str,
    /// True if it runs only once, in any place.
    pub(crate) once: bool,
    pub(crate) run: fn(&Bench<'_>) -> Result<Vec<Row>>,
}

/// All works, in the order of the issues' tables.
pub(crate) const WORKS: [Work; 34] = [
    work("first-commit", "first commit of 10,000 text files of 4 KiB", small_files::first),
    work("unchanged", "commit of the same files, nothing changed", small_files::unchanged),
    work("changed", "commit of the same files, 1 % of them changed", small_files::changed),
    work("restore", "restore of the same files into an empty folder", small_files::restore),
    work("source-tree", "first commit of a real source tree", source_tree::run),
    work("big-file", "one file of 700 MiB: first, unchanged, a byte inserted", big_file::run),
    work("million", "1,000,000 tiny files: commit, unchanged, restore", million::run),
    work("history", "2,000 commits in one store", history::run),
    work("pack", "a committed snapshot into one file", bundle::pack),
    work("unpack", "that file into an empty store, every object checked", bundle::unpack),
    work(
        "archive",
        "a folder into one file without a store, and restored from it",
        bundle::archive,
    ),
    work("export", "a committed snapshot as tar and as zip", export::run),
    work("diff", "two commits with 1 % of the files changed", changes::diff),
    work("status", "a folder with 1 % of the files changed", changes::status),
    work("find", "a name over 500 commits of 15,000 files", find::run),
    work("forget", "forget over 10,000 commits", gc::forget),
    work("gc", "forget and gc over 500 commits, and the commit after it", gc::local),
    once("mark", "a gc that marks 10 million objects", gc::mark),
    work("push", "first push of the text files to a bucket", remote::first),
    work("push-changed", "push after 100 of them changed", remote::changed),
    work("push-nothing", "push of nothing new", remote::nothing),
    work("clone", "clone of the same, files restored", remote::clone),
    work("cat-url", "one small file out of a bucket", remote::cat),
    work("gc-remote", "gc of a bucket: nothing to do, and half of it garbage", gc::remote),
    work("big-remote", "1 GiB pushed and cloned, without the proxy", rate::run),
    work("serve-push", "first push of the text files to `snap serve`", serve::push),
    work("serve-pull", "pull of the same into an empty store", serve::pull),
    work("serve-asked", "what `curl` asks a server for", serve::asked),
    work("serve-load", "64 clients reading files of a server", serve::load_files),
    work("serve-large", "1 GiB to a server and from it", serve::large),
    once("ranges", "500 scattered ranges of an object of 1 GiB", ranges::scattered),
    once("fragments", "pages of 40 fragments, eager against lazy", ranges::fragments),
    once("parquet", "a Parquet file inside a remote snapshot", parquet::run),
    once("version", "snap --version", version::run),
];

/// The works with `--against`.
pub(crate) const AGAINST: [Work; 5] = [
    work("small-files", "everyday works on 10,000 text files", against::small),
    work("source-tree", "first commit of a real source tree", against::source),
    work("tar", "700 MB of system libraries: commits, verify, restore, status", large::tar),
    work("noise", "1 GiB of noise: first commit, verify, unpack, pull and clone", large::noise),
    work("hole", "64 GiB of hole: first commit, restore, status", large::hole),
];

const fn work(
    slug: &'static str,
    about: &'static str,
    run: fn(&Bench<'_>) -> Result<Vec<Row>>,
) -> Work {
    Work { slug, about, once: false, run }
}

const fn once(
    slug: &'static str,
    about: &'static str,
    run: fn(&Bench<'_>) -> Result<Vec<Row>>,
) -> Work {
    Work { once: true, ..work(slug, about, run) }
}

/// The arguments of a work.
pub(crate) struct Bench<'b> {
    pub(crate) args: &'b Args,
    pub(crate) place: &'b Place,
    pub(crate) snap: &'b Path,
    /// Receives notes that are printed beside the table.
    pub(crate) note: &'b dyn Fn(String),
}

impl Bench<'_> {
    /// Returns snap for `data`, with a store that does not exist yet.
    fn snap(&self, data: &Path) -> Snap {
        Snap {
            program: self.snap.to_owned(),
            data: data.to_owned(),
            store: self.place.join("snap-store"),
        }
    }

    /// Returns snap and, of the peers with these names, those that are installed and wanted.
    /// `needed` is the peer that the target names.
    fn tools(&self, data: &Path, names: &[&str], needed: &str) -> Vec<Box<dyn Tool>> {
        let mut tools: Vec<Box<dyn Tool>> = vec![Box::new(self.snap(data))];
        let named = PEERS.iter().filter(|(name, _)| names.contains(name));
        let here = named.filter(|(name, programs)| {
            (*name == needed || self.wants(name)) && programs.iter().all(|one| is_installed(one))
        });
        tools.extend(
            here.filter_map(|(name, _)| peer(name, data, self.place.join(&format!("tool {name}")))),
        );
        tools
    }

    fn wants(&self, name: &str) -> bool {
        let Some(wanted) = &self.args.peers else { return true };
        wanted.iter().any(|one| name.contains(one.as_str()))
    }

    /// Makes a contestant that saves, into an empty store each time (`fresh`) or into the existing
    /// one. Its result is restored and compared.
    fn saver<'c>(&self, tool: &'c dyn Tool, data: &'c Path, fresh: bool) -> Contestant<'c> {
        let into = self.place.join("checked");
        Contestant {
            prepare: Box::new(move || if fresh { tool.fresh() } else { Ok(()) }),
            check: Box::new(move || check(tool, data, &into)),
            ..Contestant::plain(tool.name(), || tool.save())
        }
    }

    /// Makes a contestant that restores into an empty folder.
    fn restorer<'c>(&self, tool: &'c dyn Tool, data: &'c Path) -> Contestant<'c> {
        let into = self.place.join(&format!("restored {}", tool.name()));
        let (before, during) = (into.clone(), into.clone());
        Contestant {
            prepare: Box::new(move || empty(&before)),
            check: Box::new(move || differences(tool, data, &into)),
            ..Contestant::plain(tool.name(), move || tool.restore(&during))
        }
    }

    /// Makes the rows of one contest; snap must be its first contestant.
    fn rows<'r>(&'r self, work: &'r str, scores: &'r [Score]) -> Rows<'r> {
        for score in scores {
            if let Some(failure) = &score.failure {
                let place = &self.place.name;
                (self.note)(format!("{work}, {place}: {} failed: {failure}", score.name));
            }
        }
        Rows { work, place: &self.place.name, scores }
    }
}

/// A data set.
struct Data {
    /// Its name for the table, such as `text`.
    name: String,
    dir: PathBuf,
}

/// Calls `run` with text files, then with a source tree.
fn on_both(bench: &Bench<'_>, run: impl Fn(&Data) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    let dir = bench.place.join("data");
    small_files::fill(bench, &dir)?;
    let mut rows = run(&Data { name: "text".to_owned(), dir: dir.clone() })?;
    bench.place.clear()?;
    if let Some((files, mb)) = source_tree::fill(bench, &dir)? {
        rows.extend(run(&Data { name: format!("source tree, {files} files, {mb} MB"), dir })?);
    }
    Ok(rows)
}

/// Saves the data with each tool, before the timed part.
fn save_all(tools: &[Box<dyn Tool>]) -> Result<()> {
    for tool in tools {
        tool.fresh()?;
        tool.save().run()?;
    }
    Ok(())
}

fn check(tool: &dyn Tool, data: &Path, into: &Path) -> Result<()> {
    empty(into)?;
    tool.restore(into).run()?;
    differences(tool, data, into)?;
    remove(into)
}

fn differences(tool: &dyn Tool, data: &Path, into: &Path) -> Result<()> {
    same(data, into, &tool.keeps())
}

fn same(data: &Path, into: &Path, keeps: &Options) -> Result<()> {
    let found = compare(data, into, keeps);
    match found.as_slice() {
        [] => Ok(()),
        [first, ..] => {
            let count = found.len();
            Err(format!("the result differs from the source in {count} places: {first}").into())
        }
    }
}

/// Turns the scores of one contest into rows.
struct Rows<'r> {
    work: &'r str,
    place: &'r str,
    scores: &'r [Score],
}

impl Rows<'_> {
    fn time(&self, target: Target) -> Row {
        let medians = |score: &Score| match score.failure {
            None => score.samples.median_secs(),
            Some(_) => None,
        };
        let snap = self.scores.first();
        let detail = snap.map_or(String::new(), |snap| snap.samples.shown_range());
        Row { detail, ..self.row("time", Unit::Secs, target, medians) }
    }

    fn memory(&self, target: Target) -> Row {
        let peaks = |score: &Score| match score.failure {
            None => score.peak_bytes.map(|bytes| bytes as f64),
            Some(_) => None,
        };
        self.row("peak memory", Unit::Memory, target, peaks)
    }

    /// Makes a row of the highest count of any run.
    fn counted(&self, measure: &'static str, target: Target) -> Row {
        let most = |score: &Score| match score.failure {
            None => score.counted.iter().max().map(|&count| count as f64),
            Some(_) => None,
        };
        let least = self.scores.first().and_then(|snap| snap.counted.iter().min());
        let detail = match (least, self.scores.first().and_then(most)) {
            (Some(&least), Some(most)) if (least as f64) < most => format!("({least} at least)"),
            _ => String::new(),
        };
        Row { detail, ..self.row(measure, Unit::Count, target, most) }
    }

    /// Makes a row of the bytes that each of `tools` stored.
    fn stored(&self, tools: &[Box<dyn Tool>], target: Target) -> Row {
        let bytes = |score: &Score| {
            let tool = tools.iter().find(|tool| tool.name() == score.name)?;
            let (objects, _) = tool.stored_bytes().ok().filter(|_| score.failure.is_none())?;
            Some(objects as f64)
        };
        let detail = match tools.first().and_then(|snap| snap.stored_bytes().ok()) {
            Some((_, whole)) => format!("(whole store {:.2})", whole as f64 / 1e6),
            None => String::new(),
        };
        Row { detail, ..self.row("stored", Unit::Stored, target, bytes) }
    }

    fn row(
        &self,
        measure: &'static str,
        unit: Unit,
        target: Target,
        figure: impl Fn(&Score) -> Option<f64>,
    ) -> Row {
        let peers = self.scores.iter().skip(1);
        Row {
            work: self.work.to_owned(),
            place: self.place.to_owned(),
            measure,
            unit,
            snap: self.scores.first().and_then(&figure),
            detail: String::new(),
            peers: peers.filter_map(|score| Some((score.name.clone(), figure(score)?))).collect(),
            target,
        }
    }
}
