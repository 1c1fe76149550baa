//! `snap serve` on loopback: push, pull and requests by `curl`; a load of small files, compared
//! with nginx; and 1 GiB of upload and download, compared with nginx.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use fs_err as fs;
use snap_testkit::{bytes::Corpus, trees};

use super::{Bench, Rows, small_files};
use crate::{
    Result,
    contest::{Contestant, hold},
    measure::{Call, is_installed},
    place::empty,
    table::{Row, Target, Unit},
    tools::Tool,
    web::{Load, Web, load},
};

const MIB: f64 = 1_048_576.0;

/// Duration of a load test in seconds.
const LOAD_SECS: usize = 60;

/// The files, committed to a store, and a server of that store.
struct Served {
    data: PathBuf,
    store: PathBuf,
    web: Web,
}

impl Served {
    fn new(bench: &Bench<'_>, data: PathBuf) -> Result<Self> {
        let snap = bench.snap(&data);
        snap.fresh()?;
        snap.save().run()?;
        let web = Web::snap(bench.snap, &snap.store)?;
        Ok(Self { data, store: snap.store, web })
    }

    fn at(&self, path: &str) -> String {
        format!("{}/v1/repos/default/{path}", self.web.url)
    }
}

pub(super) fn push(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = small_files::data(bench)?;
    let snap = bench.snap(&data);
    snap.fresh()?;
    snap.save().run()?;
    let folder = bench.place.join("served");
    empty(&folder)?;
    let web = Web::snap(bench.snap, &folder)?;
    // Each run pushes to a new repository.
    let number = Cell::new(0);
    let url = || format!("{}/run-{}", web.url, number.get());
    let run = || snap.call().args(["push", &url(), "main"]);
    let mut first = Contestant::plain("snap", run);
    first.prepare = Box::new(|| {
        number.set(number.get() + 1);
        Ok(())
    });
    first.check = Box::new(|| {
        let into = bench.place.join("checked");
        empty(&into)?;
        Call::new(bench.snap).args(["-q", "clone", &url()]).arg(into.join("clone")).run()
    });
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), vec![first])?;
    let mut rows = vec![bench.rows("push to a server", &scores).time(Target::AtMost(0.35))];
    let change = |round: usize| {
        let (files, every) = (small_files::files(bench), small_files::CHANGED_EVERY);
        trees::change_text_files(&data, files, every, round as u64 + 1)?;
        thread::sleep(Duration::from_millis(100));
        snap.save().run()
    };
    let again = vec![Contestant::plain("snap", run)];
    let scores = hold(bench.place, bench.args.runs, change, again)?;
    rows.push(bench.rows("push to a server, 100 changed", &scores).time(Target::AtMost(0.06)));
    Ok(rows)
}

pub(super) fn pull(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let served = Served::new(bench, small_files::data(bench)?)?;
    let into = bench.place.join("pulled");
    let mut puller = Contestant::plain("snap", || {
        Call::new(bench.snap).args(["-q", "pull", &served.web.url, "main"]).dir(&into)
    });
    puller.prepare = Box::new(|| {
        empty(&into)?;
        Call::new(bench.snap).args(["-q", "init"]).dir(&into).run()
    });
    puller.check =
        Box::new(|| Call::new(bench.snap).args(["-q", "verify", "--data"]).dir(&into).run());
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), vec![puller])?;
    Ok(vec![bench.rows("pull from a server", &scores).time(Target::AtMost(0.25))])
}

/// The requests by `curl`, each with its time limit in seconds.
const ASKED: [(&str, &str, f64); 4] = [
    ("a bundle", "commits/main/bundle", 0.05),
    ("a zip", "commits/main/archive.zip", 0.45),
    ("a tar", "commits/main/archive.tar", 0.15),
    ("the tree as JSON", "commits/main/tree", 0.05),
];

pub(super) fn asked(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let served = Served::new(bench, small_files::data(bench)?)?;
    let mut rows = Vec::new();
    let mut measure = |what: &str, call: &dyn Fn() -> Call, most: f64| -> Result<()> {
        let scores = vec![Contestant::plain("snap", call)];
        let scores = hold(bench.place, bench.args.runs, |_| Ok(()), scores)?;
        rows.push(bench.rows(&format!("{what} by curl"), &scores).time(Target::AtMost(most)));
        Ok(())
    };
    for (what, path, most) in ASKED {
        let url = served.at(path);
        measure(what, &|| Call::new("curl").args(["-sSf", "-o", "/dev/null", &url]), most)?;
    }
    let ids = bench.place.join("ids");
    fs::write(&ids, Corpus::Random.make_seeded(10_000 * 32, 7))?;
    let (url, body) = (served.at("missing"), format!("@{}", ids.display()));
    let kind = "content-type: application/vnd.snap.ids";
    let missing = ["-sSf", "-o", "/dev/null", "-H", kind, "--data-binary", &body, &url];
    measure("missing, 10,000 ids,", &|| Call::new("curl").args(missing), 0.01)?;
    Ok(rows)
}

pub(super) fn load_files(bench: &Bench<'_>) -> Result<Vec<Row>> {
    for program in ["wrk", "nginx"] {
        if !is_installed(program) && !Path::new("/usr/sbin").join(program).exists() {
            (bench.note)(format!("{program} is missing, so the load test is skipped"));
            return Ok(Vec::new());
        }
    }
    let served = Served::new(bench, small_files::data(bench)?)?;
    let home = bench.place.join("nginx");
    let nginx = Web::nginx(&served.data, &home)?;
    let commit = tip(bench, &served)?;
    let mut plain = Vec::new();
    for entry in walkdir::WalkDir::new(&served.data) {
        let entry = entry?;
        if entry.file_type().is_file() {
            plain.push(format!("/{}", entry.path().strip_prefix(&served.data)?.display()));
        }
    }
    let prefix = format!("/v1/repos/default/commits/{commit}/files");
    let paths: Vec<String> = plain.iter().map(|path| format!("{prefix}{path}")).collect();
    let secs = bench.args.scale(LOAD_SECS, 2);
    load(&nginx.url, &plain, 2, &home)?;
    load(&served.web.url, &paths, 2, &home)?;
    let before = served.web.peak_bytes();
    let theirs = load(&nginx.url, &plain, secs, &home)?;
    let ours = load(&served.web.url, &paths, secs, &home)?;
    let place = &bench.place.name;
    let row = |measure, figure: fn(&Load) -> f64, times| Row {
        work: "64 clients reading files".to_owned(),
        place: place.clone(),
        measure,
        unit: Unit::Secs,
        snap: Some(figure(&ours)),
        detail: String::new(),
        peers: vec![("nginx".to_owned(), figure(&theirs))],
        target: Target::Times(times, "nginx"),
    };
    let each = row("time for each", |load| load.secs_each, 1.0 / 0.6);
    let shown = before
        .map_or(String::new(), |bytes| format!("({} at its start)", Unit::Memory.show(bytes)));
    let memory = Row {
        measure: "peak memory",
        unit: Unit::Memory,
        snap: served.web.peak_bytes(),
        detail: shown,
        peers: Vec::new(),
        target: Target::AtMost(256.0 * MIB),
        ..each.clone()
    };
    Ok(vec![each, row("99th percentile", |load| load.p99_secs, 3.0), memory])
}

/// Returns the id of the served commit.
fn tip(bench: &Bench<'_>, served: &Served) -> Result<String> {
    let call = Call::new(bench.snap).arg("--store").arg(&served.store);
    let log = call.args(["--json", "log", "-n", "1"]).output()?;
    let record: serde_json::Value = serde_json::from_str(log.lines().next().unwrap_or_default())?;
    Ok(record["id"].as_str().ok_or("log does not tell ids")?.to_owned())
}

pub(super) fn large(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    fs::create_dir_all(&data)?;
    fs::write(
        data.join("large"),
        Corpus::Random.make_seeded(bench.args.scale(1 << 30, 4 << 20), 5),
    )?;
    bench.place.settle();
    let served = Served::new(bench, data)?;
    let nginx = Web::nginx(&served.data, &bench.place.join("nginx"))?;
    let commit = tip(bench, &served)?;
    let get = |url: String| Call::new("curl").args(["-sSf", "-o", "/dev/null", &url]);
    let down = vec![
        Contestant::plain("snap", || get(served.at(&format!("commits/{commit}/files/large")))),
        Contestant::plain("nginx", || get(format!("{}/large", nginx.url))),
    ];
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), down)?;
    let mut rows = vec![bench.rows("1 GiB by curl, down", &scores).time(SHARE)];
    rows.extend(up(bench, &served)?);
    rows.push(Row {
        work: "1 GiB by curl, up and down".to_owned(),
        place: bench.place.name.clone(),
        measure: "peak memory of the server",
        unit: Unit::Memory,
        snap: served.web.peak_bytes(),
        detail: String::new(),
        peers: Vec::new(),
        target: Target::AtMost(128.0 * MIB),
    });
    Ok(rows)
}

/// At least 0.6 × the rate of nginx, expressed as a time limit.
const SHARE: Target = Target::Times(1.0 / 0.6, "nginx");

/// Uploads the packs of one gibibyte to each server, with one `curl` each.
fn up(bench: &Bench<'_>, served: &Served) -> Result<Vec<Row>> {
    let mut packs = Vec::new();
    for entry in fs::read_dir(served.store.join("objects"))? {
        packs.push(entry?.path());
    }
    let (theirs, ours) = (bench.place.join("sent"), bench.place.join("repos"));
    empty(&theirs)?;
    empty(&ours)?;
    let nginx = Web::nginx(&theirs, &bench.place.join("nginx-up"))?;
    let snap = Web::snap(bench.snap, &ours)?;
    let config = served.store.join("config.toml");
    let send = |to: &dyn Fn(&str) -> String| {
        packs.iter().fold(Call::new("curl").args(["-sSf"]), |call, pack| {
            let name = pack.file_name().unwrap_or_default().to_string_lossy();
            call.arg("-T").arg(pack).arg(to(&name))
        })
    };
    let number = Cell::new(0);
    let repo = || format!("{}/v1/repos/run-{}", snap.url, number.get());
    let mut first = Contestant::plain("snap", || send(&|name| format!("{}/packs/{name}", repo())));
    first.prepare = Box::new(|| {
        // Removes the packs of the previous run, so that they do not fill the disk.
        empty(&ours)?;
        number.set(number.get() + 1);
        Call::new("curl").args(["-sSf", "-T"]).arg(&config).arg(repo()).run()
    });
    let mut second = Contestant::plain("nginx", || send(&|name| format!("{}/{name}", nginx.url)));
    second.prepare = Box::new(|| empty(&theirs));
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), vec![first, second])?;
    let rows: Rows<'_> = bench.rows("1 GiB by curl, up", &scores);
    let memory = Row {
        work: "1 GiB by curl, up".to_owned(),
        place: bench.place.name.clone(),
        measure: "peak memory of the server",
        unit: Unit::Memory,
        snap: snap.peak_bytes(),
        detail: String::new(),
        peers: Vec::new(),
        target: Target::AtMost(128.0 * MIB),
    };
    Ok(vec![rows.time(SHARE), memory])
}
