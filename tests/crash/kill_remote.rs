//! SIGKILL at random moments of `push`, `pull` and `clone`, over S3. The remote always opens and
//! has everything that its refs reach. The local store has everything that it lists. The next run
//! completes the transfer without sending anything again.
//!
//! `SNAP_TEST_KILLS` sets the number of kills for each command; see docs/safety.md.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use snap_nettest::{Kind, Proxy, S3Options, S3Server};
use snap_testkit::{bytes::Corpus, rng::Rng};

use crate::{
    place::{Listed, bare, folder, log, names, printed_id, restores, snap, stderr, well},
    versions,
};

/// Default number of kills for each command.
const KILLS: u64 = 50;

/// Every seventh push goes to an empty location.
const FRESH_EVERY: u64 = 7;

/// After every 10 kills, everything that was cloned is restored too.
const THOROUGH_EVERY: u64 = 10;

/// Latency of each request, so that kills also hit the moments between requests.
const LATENCY: Duration = Duration::from_millis(2);

pub(crate) fn kills() -> u64 {
    let said = std::env::var("SNAP_TEST_KILLS").ok();
    said.map_or(KILLS, |text| text.parse().expect("SNAP_TEST_KILLS is a number"))
}

/// A store, the versions committed to it, and a bucket behind a proxy.
struct Scene {
    place: tempfile::TempDir,
    server: S3Server,
    proxy: Proxy,
    url: String,
    number: u64,
}

impl Scene {
    fn new() -> Self {
        let (place, server) = (folder(), S3Server::start(S3Options::default()));
        let proxy = Proxy::start(&server.endpoint());
        proxy.set_latency(LATENCY);
        let scene = Self { place, server, proxy, url: "s3://bucket/first".to_owned(), number: 0 };
        well(snap(&scene.store()).arg("init"));
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Adds the environment to reach the bucket.
    fn reach(&self, mut command: Command) -> Command {
        command.envs(self.server.environment(&self.proxy.endpoint()));
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Commits the next version and returns its id.
    fn commit(&mut self) -> String {
        self.number += 1;
        let (work, message) = (self.path("work"), format!("main {}", self.number));
        versions::write(&work, &message);
        let stdout = well(snap(&self.store()).args(["commit", "-m", &message]).arg(work));
        printed_id(stdout.as_bytes()).unwrap()
    }

    fn push(&self) -> Command {
        let mut command = self.reach(snap(&self.store()));
        command.args(["push", &self.url]);
        command
    }

    fn clone(&self, into: &Path) -> Command {
        let mut command = self.reach(bare());
        command.args(["clone", "--no-restore", &self.url]).arg(into);
        command
    }

    /// Returns the tip in the bucket; `None` if there is none. Clones it, which reads and hashes
    /// everything that it reaches.
    fn stands(&self, is_thorough: bool) -> Option<String> {
        let folder = folder();
        let clone = folder.path().join("clone");
        let output = self.clone(&clone).output().unwrap();
        if !output.status.success() {
            let said = stderr(&output);
            let is_nothing = ["there is no store at", "there is no branch"];
            assert!(is_nothing.iter().any(|nothing| said.contains(nothing)), "{said}");
            return None;
        }
        let store = clone.join(".snap");
        let listed = log(&store, "main");
        let looked_at = if is_thorough { listed.len() } else { 0 };
        listed.iter().take(looked_at).for_each(|commit| restores(&store, commit));
        Some(listed[0].id.clone())
    }

    /// Returns the keys of the packs and index files in the bucket.
    fn arrived(&self) -> BTreeSet<String> {
        let is_content = |key: &String| key.contains("/objects/") || key.contains("/index/");
        self.server.keys().into_iter().filter(is_content).collect()
    }

    /// Returns the keys that were written since the last call.
    fn written(&self) -> BTreeSet<String> {
        let seen = self.proxy.requests();
        self.proxy.take_counts();
        let puts = seen.into_iter().filter(|seen| seen.kind == Kind::Put);
        let key = |path: String| {
            let path = path.split('?').next().unwrap_or_default().to_owned();
            path.trim_start_matches("/bucket/").to_owned()
        };
        puts.map(|seen| key(seen.path)).collect()
    }
}

/// Runs a command, which must succeed, and returns its duration.
fn time(mut command: Command) -> Duration {
    let start = Instant::now();
    well(&mut command);
    start.elapsed()
}

/// Kills a process at a random moment up to `longest`; returns true if it had already succeeded.
fn kill_within(mut child: Child, longest: Duration, rng: &mut Rng) -> bool {
    thread::sleep(longest.mul_f64(rng.unit()));
    child.kill().unwrap();
    child.wait().unwrap().success()
}

/// Checks that enough kills hit a running process, so that they were spread over its whole
/// duration.
fn were_spread(cut_short: u64, kills: u64) {
    assert!(cut_short * 4 > kills, "only {cut_short} of {kills} were cut short");
}

#[test]
fn a_push_killed_at_any_moment_leaves_a_whole_remote_and_is_gone_on_with() {
    let mut scene = Scene::new();
    scene.commit();
    let fresh = time(scene.push());
    scene.commit();
    let usual = time(scene.push());
    let mut rng = Rng::new(2030);
    let (mut cut_short, mut before, kills) = (0, None, kills());
    for number in 0..kills {
        let is_fresh = number % FRESH_EVERY == 0;
        if is_fresh {
            scene.url = format!("s3://bucket/place{number}");
            before = None;
        }
        let after = Some(scene.commit());
        let longest = if is_fresh { fresh } else { usual };
        let done = kill_within(scene.push().spawn().unwrap(), longest, &mut rng);
        cut_short += u64::from(!done);

        let stands = scene.stands(number % THOROUGH_EVERY == 0);
        assert!(stands == after || (stands == before && !done), "{stands:?} at {number}");
        let arrived = scene.arrived();
        scene.written();
        well(&mut scene.push());
        let again: Vec<String> = scene.written().intersection(&arrived).cloned().collect();
        assert_eq!(again, [""; 0], "sent again at {number}");
        before = after;
    }
    assert_eq!(scene.stands(true), before);
    were_spread(cut_short, kills);
}

/// Length of a file whose pack is sent as a multipart upload.
const LARGE_BYTES: usize = 56 << 20;

/// Waits until the server has `count` unfinished uploads, and a part of each is in progress.
fn await_uploads(scene: &Scene, count: usize) {
    let start = Instant::now();
    let id = |path: &str| path.split_once("uploadId=").map(|(_, id)| id.to_owned());
    let begun = || {
        let seen = scene.proxy.requests();
        let parts = seen.iter().filter(|seen| seen.kind == Kind::UploadPart);
        parts.filter_map(|seen| id(&seen.path)).collect::<BTreeSet<_>>().len()
    };
    while begun() < count {
        assert!(start.elapsed() < Duration::from_secs(120), "{} uploads", begun());
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(scene.server.unfinished_uploads().len(), count);
}

#[test]
fn an_upload_in_parts_that_was_killed_is_aborted_by_the_next_push_and_no_other_is() {
    let mut scene = Scene::new();
    scene.commit();
    well(&mut scene.push());
    let large = |name: &str, seed: u64| {
        let folder = scene.path(name);
        fs_err::create_dir_all(&folder).unwrap();
        let bytes = Corpus::Random.make_seeded(LARGE_BYTES, seed);
        fs_err::write(folder.join("large"), bytes).unwrap();
        folder
    };
    well(snap(&scene.store()).args(["commit", "-m", "large"]).arg(large("work", 1)));
    // Another client, with its own store and cache.
    let other = scene.path("other");
    well(snap(&other).arg("init"));
    well(snap(&other).args(["commit", "-m", "large", "-b", "theirs"]).arg(large("theirs", 2)));
    let mut push_other = scene.reach(snap(&other));
    push_other.env("XDG_CACHE_HOME", scene.path("other-cache"));
    push_other.args(["push", &scene.url, "theirs"]);

    // Slow, so that parts are in progress when the test checks them.
    scene.proxy.take_counts();
    scene.proxy.set_rate(Some(2 << 20));
    let mut killed = scene.push().spawn().unwrap();
    await_uploads(&scene, 1);
    let [left] = &scene.server.unfinished_uploads()[..] else { panic!("one upload") };
    let running = push_other.spawn().unwrap();
    await_uploads(&scene, 2);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let aborted = |scene: &Scene| scene.proxy.counts().of(Kind::AbortUpload);
    assert_eq!((aborted(&scene), scene.server.unfinished_uploads().len()), (0, 2));

    // A push that sends almost nothing aborts the leftover upload before it sends a pack.
    let unrelated = scene.path("unrelated");
    fs_err::create_dir_all(&unrelated).unwrap();
    well(snap(&scene.store()).args(["commit", "-m", "small", "-b", "small"]).arg(&unrelated));
    well(scene.push().arg("small"));
    assert_eq!(aborted(&scene), 1);
    let [kept] = &scene.server.unfinished_uploads()[..] else {
        panic!("the upload of the other client is missing")
    };
    assert_ne!(left, kept);

    scene.proxy.set_rate(None);
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    well(&mut scene.push());
    assert_eq!((aborted(&scene), scene.server.unfinished_uploads()), (1, Vec::new()));
    assert_eq!(scene.stands(false).as_ref(), Some(&log(&scene.store(), "main")[0].id));
}

/// Returns the names of the packs in a store.
fn packs(store: &Path) -> BTreeSet<String> {
    names(&store.join("objects")).into_iter().collect()
}

#[test]
fn a_push_into_a_store_killed_at_any_moment_leaves_it_whole_and_is_gone_on_with() {
    let mut scene = Scene::new();
    let there = scene.path("there");
    well(snap(&there).arg("init"));
    let push = |scene: &Scene| {
        let mut command = scene.reach(snap(&scene.store()));
        command.arg("push").arg(&there);
        command
    };
    let mut rng = Rng::new(2033);
    let (mut longest, mut cut_short, kills) = (Duration::ZERO, 0, kills());
    for number in 0..kills {
        // Some pushes send one pack, others several.
        for _ in 0..=number % 3 {
            scene.commit();
        }
        if number > 0 {
            let (old, before) = (log(&there, "main"), packs(&there));
            let done = kill_within(push(&scene).spawn().unwrap(), longest, &mut rng);
            cut_short += u64::from(!done);
            let listed = log(&there, "main");
            assert!(listed.ends_with(&old), "{number}: {listed:?}, before: {old:?}");
            assert!(!done || listed.len() > old.len(), "{number}: the command reported success");
            assert!(packs(&there).is_superset(&before), "{number}");
            well(snap(&there).args(["verify", "--data"]));
            // Leftover packs in the store do not disturb a commit there.
            let (message, copy) = (format!("main {}", scene.number), scene.path("copy"));
            well(Command::new("cp").arg("-a").arg(&there).arg(&copy));
            let mut commit = snap(&copy);
            commit.args(["commit", "-m", &message, "-b", "own"]).arg(scene.path("work"));
            let id = printed_id(well(&mut commit).as_bytes()).unwrap();
            restores(&copy, &Listed { id, message });
            fs_err::remove_dir_all(&copy).unwrap();
        }
        longest = longest.max(time(push(&scene)));
        let listed = log(&there, "main");
        assert_eq!(listed[0].message, format!("main {}", scene.number));
        restores(&there, &listed[0]);
        // Partly received packs may remain; they are removed a minute later.
        let mut left = names(&there.join("tmp/staged"));
        left.retain(|name| !name.starts_with("pack-"));
        assert_eq!(left, [""; 0], "{number}");
    }
    well(snap(&there).args(["verify", "--data"]));
    were_spread(cut_short, kills);
}

#[test]
fn a_pull_killed_at_any_moment_leaves_a_whole_store_and_is_gone_on_with() {
    let mut scene = Scene::new();
    scene.commit();
    well(&mut scene.push());
    let here = scene.path("here");
    well(&mut scene.clone(&here));
    let here = here.join(".snap");
    let pull = |scene: &Scene| {
        let mut command = scene.reach(snap(&here));
        command.arg("pull");
        command
    };
    let mut rng = Rng::new(2031);
    let (mut longest, mut cut_short, kills) = (Duration::ZERO, 0, kills());
    for number in 0..kills {
        let old = log(&here, "main");
        // Some pulls fetch one commit, others several.
        for _ in 0..=number % 3 {
            scene.commit();
        }
        well(&mut scene.push());
        if number > 0 {
            let done = kill_within(pull(&scene).spawn().unwrap(), longest, &mut rng);
            cut_short += u64::from(!done);
            let listed = log(&here, "main");
            assert!(listed.ends_with(&old), "{number}: {listed:?}, before: {old:?}");
            assert!(!done || listed.len() > old.len(), "{number}: the command reported success");
            well(snap(&here).args(["verify", "--data"]));
        }
        longest = longest.max(time(pull(&scene)));
        let listed = log(&here, "main");
        assert_eq!(listed[0].message, format!("main {}", scene.number));
        restores(&here, &listed[0]);
    }
    well(snap(&here).args(["verify", "--data"]));
    were_spread(cut_short, kills);
}

#[test]
fn a_clone_killed_at_any_moment_has_what_it_lists_and_can_be_completed() {
    let mut scene = Scene::new();
    for _ in 0..3 {
        scene.commit();
        well(&mut scene.push());
    }
    let longest = time(scene.clone(&scene.path("first")));
    let wanted = log(&scene.store(), "main");
    let mut rng = Rng::new(2032);
    let (mut cut_short, mut completed, kills) = (0, 0, kills());
    for number in 0..kills {
        let into = scene.path("again");
        let done = kill_within(scene.clone(&into).spawn().unwrap(), longest, &mut rng);
        cut_short += u64::from(!done);
        let store = into.join(".snap");
        // Until the branch exists here, the store lists nothing.
        if store.join("refs/heads/main").exists() {
            assert_eq!(log(&store, "main"), wanted, "{number}");
            well(scene.reach(snap(&store)).arg("fetch"));
            well(snap(&store).args(["verify", "--data"]));
            restores(&store, &wanted[0]);
            completed += u64::from(!done);
        } else {
            assert!(!done, "{number}: the command reported success");
        }
        if into.exists() {
            fs_err::remove_dir_all(&into).unwrap();
        }
    }
    assert!(completed > 0, "no clone was killed before it fetched the rest");
    were_spread(cut_short, kills);
    assert_eq!(names(&scene.path("")).iter().filter(|name| name.starts_with("again")).count(), 0);
}
