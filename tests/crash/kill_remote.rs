//! SIGKILL at counted steps and requests of `push`, `pull` and `clone`, over S3. The remote always
//! opens and has everything that its refs reach. The local store has everything that it lists. The
//! next run completes the transfer without sending anything again.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use snap_explore::{
    steps::{self, Stop, spread, stop_at, was_killed},
    versions,
};
use snap_nettest::{Fault, Gate, Kind, Proxy, Rule, S3Options, S3Server};
use snap_testkit::{bytes::Corpus, wait::until};

use crate::place::{
    Listed, bare, copy, folder, log, names, printed_id, restores, snap, stderr, well,
};

/// Most kills of each command before a step, before a request is served, and after one is served.
const KILLS: usize = 10;

/// After every 10 kills, everything that was cloned is restored too.
const THOROUGH_EVERY: usize = 10;

/// The moment at which a client is killed. Steps and requests count from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// Before this step of the client.
    Step(u64),
    /// Before this request is served.
    Request(u64),
    /// After this request was served, before the client gets the reply.
    Reply(u64),
}

/// Returns moments that are spread evenly over a run with so many steps and requests.
pub(crate) fn moments(steps: usize, requests: u64) -> Vec<Moment> {
    let requests = || spread(requests as usize, KILLS);
    let steps = spread(steps, KILLS).map(Moment::Step);
    steps.chain(requests().map(Moment::Request)).chain(requests().map(Moment::Reply)).collect()
}

/// Adds a rule that stops the request of a moment, if it is one.
pub(crate) fn stop_request(proxy: &Proxy, moment: Moment) {
    let (fault, number) = match moment {
        Moment::Step(_) => return,
        Moment::Request(number) => (Fault::Stall, number),
        Moment::Reply(number) => (Fault::StallReply, number),
    };
    proxy.take_counts();
    proxy.add(Rule::new(fault).skip(number - 1).times(1));
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
            let is_nothing = ["no store found at", "branch `main` does not exist"];
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

impl Scene {
    /// Runs a command to its end; returns the moments at which it can be killed.
    #[track_caller]
    fn moments(&self, mut command: Command) -> Vec<Moment> {
        self.proxy.take_counts();
        let steps = steps::count(&mut command).len();
        moments(steps, self.proxy.take_counts().total)
    }

    /// Kills a command at a moment; returns true if it succeeded before.
    #[track_caller]
    fn kill(&self, mut command: Command, moment: Moment) -> bool {
        if let Moment::Step(step) = moment {
            let output = stop_at(&mut command, step, Stop::Kill).output().unwrap();
            return !was_killed(output.status);
        }
        stop_request(&self.proxy, moment);
        let mut child = command.spawn().unwrap();
        let done = self.end_at_stall(&mut child);
        self.proxy.clear_rules();
        done
    }

    /// Kills a process as soon as one of its requests is stopped; returns true if it succeeded
    /// before.
    #[track_caller]
    fn end_at_stall(&self, child: &mut Child) -> bool {
        let mut status = None;
        until("a request stalls, or the process ends", || {
            if self.proxy.counts().stalled > 0 {
                child.kill().unwrap();
            }
            status = child.try_wait().unwrap();
            status.is_some()
        });
        !was_killed(status.unwrap())
    }
}

#[test]
fn a_push_killed_at_any_moment_leaves_a_whole_remote_and_is_gone_on_with() {
    let mut scene = Scene::new();
    scene.commit();
    let fresh = scene.moments(scene.push()).into_iter().map(|moment| (true, moment));
    scene.commit();
    let usual = scene.moments(scene.push()).into_iter().map(|moment| (false, moment));
    let mut before = Some(log(&scene.store(), "main")[0].id.clone());
    for (number, (is_fresh, moment)) in usual.chain(fresh).enumerate() {
        if is_fresh {
            scene.url = format!("s3://bucket/place{number}");
            before = None;
        }
        let after = Some(scene.commit());
        let done = scene.kill(scene.push(), moment);

        let stands = scene.stands(number % THOROUGH_EVERY == 0);
        assert!(stands == after || (stands == before && !done), "{stands:?} at {moment:?}");
        let arrived = scene.arrived();
        scene.written();
        well(&mut scene.push());
        let again: Vec<String> = scene.written().intersection(&arrived).cloned().collect();
        assert_eq!(again, [""; 0], "sent again at {moment:?}");
        before = after;
    }
    assert_eq!(scene.stands(true), before);
}

/// Length of a file whose pack is sent as a multipart upload.
const LARGE_BYTES: usize = 56 << 20;

/// Waits until the proxy holds a part of each of `count` uploads.
fn await_uploads(scene: &Scene, count: usize) {
    until("parts are uploaded", || scene.proxy.counts().stalled >= count as u64);
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

    // One part of each upload is in progress until the end of the test.
    scene.proxy.take_counts();
    let gate = Gate::default();
    let second_part =
        || Rule::new(Fault::Hold(gate.clone())).kind(Kind::UploadPart).path("partNumber=2&");
    scene.proxy.add(second_part().times(1));
    let mut killed = scene.push().spawn().unwrap();
    await_uploads(&scene, 1);
    let [left] = &scene.server.unfinished_uploads()[..] else { panic!("one upload") };
    scene.proxy.clear_rules();
    scene.proxy.add(second_part().times(1));
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

    gate.open();
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
    scene.commit();
    let count = steps::count(&mut push(&scene)).len();
    for (number, step) in spread(count, 2 * KILLS).enumerate() {
        // Some pushes send one pack, others several.
        for _ in 0..=number % 3 {
            scene.commit();
        }
        let (old, before) = (log(&there, "main"), packs(&there));
        let done = scene.kill(push(&scene), Moment::Step(step));
        let listed = log(&there, "main");
        assert!(listed.ends_with(&old), "{step}: {listed:?}, before: {old:?}");
        assert!(!done || listed.len() > old.len(), "{step}: the command reported success");
        assert!(packs(&there).is_superset(&before), "{step}");
        well(snap(&there).args(["verify", "--data"]));
        // Leftover packs in the store do not disturb a commit there.
        let (message, other) = (format!("main {}", scene.number), scene.path("copy"));
        copy(&there, &other);
        let mut commit = snap(&other);
        commit.args(["commit", "-m", &message, "-b", "own"]).arg(scene.path("work"));
        let id = printed_id(well(&mut commit).as_bytes()).unwrap();
        restores(&other, &Listed { id, message });
        fs_err::remove_dir_all(&other).unwrap();

        well(&mut push(&scene));
        let listed = log(&there, "main");
        assert_eq!(listed[0].message, format!("main {}", scene.number));
        restores(&there, &listed[0]);
        assert_eq!(names(&there.join("tmp/staged")), [""; 0], "{step}");
    }
    well(snap(&there).args(["verify", "--data"]));
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
    scene.commit();
    well(&mut scene.push());
    for (number, moment) in scene.moments(pull(&scene)).into_iter().enumerate() {
        let old = log(&here, "main");
        // Some pulls fetch one commit, others several.
        for _ in 0..=number % 3 {
            scene.commit();
        }
        well(&mut scene.push());
        let done = scene.kill(pull(&scene), moment);
        let listed = log(&here, "main");
        assert!(listed.ends_with(&old), "{moment:?}: {listed:?}, before: {old:?}");
        assert!(!done || listed.len() > old.len(), "{moment:?}: the command reported success");
        well(snap(&here).args(["verify", "--data"]));

        well(&mut pull(&scene));
        let listed = log(&here, "main");
        assert_eq!(listed[0].message, format!("main {}", scene.number));
        restores(&here, &listed[0]);
    }
    well(snap(&here).args(["verify", "--data"]));
}

#[test]
fn a_clone_killed_at_any_moment_has_what_it_lists_and_can_be_completed() {
    let mut scene = Scene::new();
    for _ in 0..3 {
        scene.commit();
        well(&mut scene.push());
    }
    let moments = scene.moments(scene.clone(&scene.path("first")));
    let wanted = log(&scene.store(), "main");
    let mut completed = 0;
    for moment in moments {
        let into = scene.path("again");
        let done = scene.kill(scene.clone(&into), moment);
        let store = into.join(".snap");
        // Until the branch exists here, the store lists nothing.
        if store.join("refs/heads/main").exists() {
            assert_eq!(log(&store, "main"), wanted, "{moment:?}");
            well(scene.reach(snap(&store)).arg("fetch"));
            well(snap(&store).args(["verify", "--data"]));
            restores(&store, &wanted[0]);
            completed += u64::from(!done);
        } else {
            assert!(!done, "{moment:?}: the command reported success");
        }
        if into.exists() {
            fs_err::remove_dir_all(&into).unwrap();
        }
    }
    assert!(completed > 0, "no clone was killed before it fetched the rest");
    assert_eq!(names(&scene.path("")).iter().filter(|name| name.starts_with("again")).count(), 0);
}
