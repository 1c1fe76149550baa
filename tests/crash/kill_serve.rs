//! SIGKILL of the server at counted steps and requests of pushes: its stores are complete,
//! acknowledged pushes are stored, and pushes succeed after a restart.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command},
};

use snap_explore::{
    serving::Serving,
    steps::{Stop, spread, stop_at},
    versions,
};
use snap_nettest::{Proxy, S3Options, S3Server};
use snap_testkit::{rng::Rng, wait::until};

use crate::{
    kill_remote::{Moment, moments, stop_request},
    place::{SNAP, bare, folder, log, printed_id, restores, snap, stderr, well},
};

/// Most kills of a server of a folder.
const KILLS: usize = 24;

/// After every 10 kills, everything that the server lists is restored.
const THOROUGH_EVERY: usize = 10;

fn commit(store: &Path, work: &Path, number: u64) -> String {
    let message = format!("main {number}");
    versions::write(work, &message);
    let stdout = well(snap(store).args(["commit", "-m", &message]).arg(work));
    printed_id(stdout.as_bytes()).unwrap()
}

/// The file in which a server logs its steps.
struct StepLog(PathBuf);

impl StepLog {
    fn of(&self, command: &mut Command) {
        command.env("SNAP_TEST_STEP_LOG", &self.0);
    }

    /// Returns the number of steps so far.
    fn count(&self) -> usize {
        fs_err::read_to_string(&self.0).unwrap_or_default().lines().count()
    }
}

/// Waits until the client or the server has ended.
fn await_end(serving: &mut Serving, client: &mut Child) {
    until("the client or the server ends", || {
        serving.has_ended() || client.try_wait().unwrap().is_some()
    });
}

#[test]
fn a_server_killed_at_any_moment_of_a_push_has_what_it_acknowledged() {
    let place = folder();
    let path = |name: &str| place.path().join(name);
    let (store, work, served) = (path("store"), path("work"), path("served"));
    for store in [&store, &served] {
        well(snap(store).arg("init"));
    }
    let rest = [served.to_str().unwrap()];
    let (mut counted, steps) = (bare(), StepLog(path("steps")));
    steps.of(&mut counted);
    let mut serving = Serving::start(counted, &rest);
    let push = |serving: &Serving| {
        let mut push = snap(&store);
        push.args(["push", &serving.url("")]);
        push
    };
    let mut before = None;
    let mut counts = Vec::new();
    for number in 1..=2 {
        before = Some(commit(&store, &work, number));
        let begin = steps.count();
        well(&mut push(&serving));
        counts.push((begin, steps.count()));
    }
    let started = counts[0].0;
    let count = counts[1].1 - counts[1].0;
    for (number, step) in spread(count, KILLS).enumerate() {
        let mut server = bare();
        stop_at(&mut server, started as u64 + step, Stop::Kill);
        serving.restart(server, &rest);
        let after = Some(commit(&store, &work, number as u64 + 3));
        let mut child = push(&serving).spawn().unwrap();
        await_end(&mut serving, &mut child);
        serving.kill();
        // No repair runs before the check.
        let stands = log(&served, "main").first().map(|listed| listed.id.clone());
        assert!(stands == before || stands == after, "{stands:?} at {step}");
        well(snap(&served).args(["verify", "--data"]));

        serving.restart(bare(), &rest);
        let output = child.wait_with_output().unwrap();
        let stands = log(&served, "main")[0].id.clone();
        if output.status.success() {
            assert_eq!(Some(&stands), after.as_ref(), "acknowledged and lost at {step}");
        }
        // An interrupted push can be repeated immediately.
        well(&mut push(&serving));
        let listed = log(&served, "main");
        assert_eq!(Some(&listed[0].id), after.as_ref(), "{}", stderr(&output));
        let looked_at = if number % THOROUGH_EVERY == 0 { listed.len() } else { 1 };
        listed.iter().take(looked_at).for_each(|commit| restores(&served, commit));
        before = after;
    }
    well(snap(&served).args(["verify", "--data"]));
}

#[test]
fn a_server_before_a_bucket_killed_at_any_moment_leaves_a_whole_bucket() {
    let (place, bucket) = (folder(), S3Server::start(S3Options::default()));
    // Between the server and the bucket.
    let back = Proxy::start(&bucket.endpoint());
    let path = |name: &str| place.path().join(name);
    let (store, work) = (path("store"), path("work"));
    well(snap(&store).arg("init"));
    let reaching = |endpoint: &str| {
        let mut command = bare();
        command.envs(bucket.environment(endpoint));
        command.env("XDG_CACHE_HOME", path("cache"));
        command
    };
    let rest = ["s3://bucket/all"];
    // Returns the tip in the bucket. Clones it, which reads and hashes everything that it reaches.
    let stands = || {
        let folder = folder();
        let clone = folder.path().join("clone");
        let mut command = reaching(&bucket.endpoint());
        command.args(["clone", "--no-restore", "s3://bucket/all/one"]).arg(&clone);
        well(&mut command);
        let listed = log(&clone.join(".snap"), "main");
        restores(&clone.join(".snap"), &listed[0]);
        listed[0].id.clone()
    };
    let (mut counted, steps) = (reaching(&back.endpoint()), StepLog(path("steps")));
    steps.of(&mut counted);
    let mut serving = Serving::start(counted, &rest);
    let push = |serving: &Serving| {
        let mut push = snap(&store);
        push.args(["push", &serving.url("one")]);
        push
    };
    let started = steps.count();
    let mut before = String::new();
    let (mut first, mut last, mut requests) = (0, 0, 0);
    for number in 1..=2 {
        before = commit(&store, &work, number);
        first = steps.count();
        back.take_counts();
        well(&mut push(&serving));
        last = steps.count();
        requests = back.take_counts().total;
    }
    for (number, moment) in moments(last - first, requests).into_iter().enumerate() {
        let mut server = reaching(&back.endpoint());
        if let Moment::Step(step) = moment {
            stop_at(&mut server, started as u64 + step, Stop::Kill);
        }
        serving.restart(server, &rest);
        let after = commit(&store, &work, number as u64 + 3);
        stop_request(&back, moment);
        let mut child = push(&serving).spawn().unwrap();
        until("a request stalls, or the client or the server ends", || {
            back.counts().stalled > 0 || serving.has_ended() || child.try_wait().unwrap().is_some()
        });
        serving.kill();
        back.clear_rules();
        let now = stands();
        assert!(now == before || now == after, "{now} at {moment:?}");
        // The cache may be lost at any time.
        if number % 3 == 0 {
            let _none = fs_err::remove_dir_all(path("cache"));
        }
        serving.restart(reaching(&back.endpoint()), &rest);
        let output = child.wait_with_output().unwrap();
        let is_lost = output.status.success() && stands() != after;
        assert!(!is_lost, "acknowledged and lost at {moment:?}");
        well(&mut push(&serving));
        assert_eq!(stands(), after, "{}", stderr(&output));
        before = after;
    }
}

#[test]
fn a_push_goes_on_after_its_server_was_killed_in_the_middle_of_a_pack() {
    const BYTES: usize = 24 << 20;
    let place = folder();
    let path = |name: &str| place.path().join(name);
    let (store, work, served) = (path("store"), path("work"), path("served"));
    for store in [&store, &served] {
        well(snap(store).arg("init"));
    }
    let mut bytes = vec![0; BYTES];
    Rng::new(2035).fill(&mut bytes);
    fs_err::create_dir(&work).unwrap();
    fs_err::write(work.join("large"), bytes).unwrap();
    well(snap(&store).args(["commit", "-m", "large"]).arg(&work));
    // A push into a copy counts the steps: nearly all of them write a part of the pack.
    let (other, steps) = (path("other"), StepLog(path("steps")));
    well(snap(&other).arg("init"));
    let mut counted = bare();
    steps.of(&mut counted);
    let counting = Serving::start(counted, &[other.to_str().unwrap()]);
    well(snap(&store).args(["push", &counting.url("")]));
    drop(counting);

    let mut server = bare();
    stop_at(&mut server, steps.count() as u64 / 2, Stop::Kill);
    let rest = [served.to_str().unwrap()];
    let mut serving = Serving::start(server, &rest);
    let mut child = snap(&store).args(["push", &serving.url("")]).spawn().unwrap();
    await_end(&mut serving, &mut child);
    serving.kill();
    well(snap(&served).args(["verify", "--data"]));
    // Requests that the dead server does not get have no body here.
    serving.proxy().take_counts();
    serving.restart(SNAP.bare(), &rest);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let sent = serving.proxy().counts().sent_bytes;
    assert!(sent < (BYTES as u64) + (2 << 20), "{sent} B were sent for the pack");
    let left = fs_err::read_dir(served.join("tmp/staged")).unwrap().count();
    assert_eq!(left, 0, "parts of packs remain");
    well(snap(&served).args(["verify", "--data"]));
    assert_eq!(log(&served, "main")[0].id, log(&store, "main")[0].id);
}
