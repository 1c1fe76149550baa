//! SIGKILL of the server at random moments of pushes: its stores are complete, acknowledged pushes
//! are stored, and pushes succeed after a restart.
//!
//! `SNAP_TEST_KILLS` sets the number of kills; see docs/safety.md.

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use snap_nettest::{Proxy, S3Options, S3Server};
use snap_testkit::rng::Rng;

use crate::{
    kill_remote::kills,
    place::{bare, folder, log, printed_id, restores, snap, stderr, well},
    serving::Serving,
    versions,
};

/// After every 10 kills, everything that the server lists is restored.
const THOROUGH_EVERY: u64 = 10;

/// An estimate of the duration of a push. On a machine with other load it adapts to the results, so
/// that some kills hit a running push.
struct Span(Duration);

impl Span {
    fn new() -> Self {
        Self(Duration::ZERO)
    }

    /// Measures a push that is not killed.
    fn measure(&mut self, push: &mut Command) {
        let start = Instant::now();
        well(push);
        self.0 = start.elapsed();
    }

    /// Waits for a random part of the duration.
    fn wait(&self, rng: &mut Rng) {
        thread::sleep(self.0.mul_f64(rng.unit()));
    }

    /// Adjusts the estimate: shorter if the push had ended before the kill, longer otherwise.
    fn learn(&mut self, had_ended: bool) {
        self.0 = self.0.mul_f64(if had_ended { 0.85 } else { 1.15 });
    }
}

fn commit(store: &Path, work: &Path, number: u64) -> String {
    let message = format!("main {number}");
    versions::write(work, &message);
    let stdout = well(snap(store).args(["commit", "-m", &message]).arg(work));
    printed_id(stdout.as_bytes()).unwrap()
}

#[test]
fn a_server_killed_at_any_moment_of_a_push_has_what_it_acknowledged() {
    let place = folder();
    let path = |name: &str| place.path().join(name);
    let (store, work, served) = (path("store"), path("work"), path("served"));
    for store in [&store, &served] {
        well(snap(store).arg("init"));
    }
    let serve =
        |address: Option<&str>| Serving::start(snap(&store), address, &[served.to_str().unwrap()]);
    let mut serving = serve(None);
    let push = |serving: &Serving| {
        let mut push = snap(&store);
        push.args(["push", &serving.url("")]);
        push
    };
    let (mut span, mut rng) = (Span::new(), Rng::new(2033));
    let (mut waited, mut before, kills) = (0, None, kills());
    for number in 0..kills {
        // A push without a kill measures the duration.
        if number % THOROUGH_EVERY == 0 {
            before = Some(commit(&store, &work, 2 * number));
            span.measure(&mut push(&serving));
        }
        let after = Some(commit(&store, &work, 2 * number + 1));
        let child = push(&serving).spawn().unwrap();
        span.wait(&mut rng);
        let address = serving.kill();
        // No repair runs before the check.
        let stands = log(&served, "main").first().map(|listed| listed.id.clone());
        assert!(stands == before || stands == after, "{stands:?} at {number}");
        well(snap(&served).args(["verify", "--data"]));

        serving = serve(Some(&address));
        let output = child.wait_with_output().unwrap();
        span.learn(stands == after);
        waited += u64::from(stands != after);
        let stands = log(&served, "main")[0].id.clone();
        if output.status.success() {
            assert_eq!(Some(&stands), after.as_ref(), "acknowledged and lost at {number}");
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
    // Otherwise the kills were not spread over the whole push.
    assert!(waited * 4 > kills, "only {waited} of {kills} kills hit a running push");
}

#[test]
fn a_server_before_a_bucket_killed_at_any_moment_leaves_a_whole_bucket() {
    let (place, bucket) = (folder(), S3Server::start(S3Options::default()));
    let path = |name: &str| place.path().join(name);
    let (store, work) = (path("store"), path("work"));
    well(snap(&store).arg("init"));
    let reaching = |mut command: Command| {
        command.envs(bucket.environment(&bucket.endpoint()));
        command.env("XDG_CACHE_HOME", path("cache"));
        command
    };
    let serve =
        |address: Option<&str>| Serving::start(reaching(bare()), address, &["s3://bucket/all"]);
    // Returns the tip in the bucket. Clones it, which reads and hashes everything that it reaches.
    let stands = || {
        let folder = folder();
        let clone = folder.path().join("clone");
        let mut command = reaching(bare());
        command.args(["clone", "--no-restore", "s3://bucket/all/one"]).arg(&clone);
        well(&mut command);
        let listed = log(&clone.join(".snap"), "main");
        restores(&clone.join(".snap"), &listed[0]);
        listed[0].id.clone()
    };
    let mut serving = serve(None);
    let push = |serving: &Serving| {
        let mut push = snap(&store);
        push.args(["push", &serving.url("one")]);
        push
    };
    let (mut span, mut rng) = (Span::new(), Rng::new(2034));
    let (mut waited, kills) = (0, kills().div_ceil(2));
    for number in 0..kills {
        if number % THOROUGH_EVERY == 0 {
            commit(&store, &work, 2 * number);
            span.measure(&mut push(&serving));
        }
        let before = stands();
        let after = commit(&store, &work, 2 * number + 1);
        let child = push(&serving).spawn().unwrap();
        span.wait(&mut rng);
        let address = serving.kill();
        let now = stands();
        assert!(now == before || now == after, "{now} at {number}");
        span.learn(now == after);
        waited += u64::from(now != after);
        // The cache may be lost at any time.
        if number % 3 == 0 {
            fs_err::remove_dir_all(path("cache")).unwrap();
        }
        serving = serve(Some(&address));
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success() || stands() == after, "acknowledged and lost at {number}");
        well(&mut push(&serving));
        assert_eq!(stands(), after, "{}", stderr(&output));
    }
    assert!(waited * 4 > kills, "only {waited} of {kills} kills hit a running push");
}

#[test]
fn what_came_of_a_pack_before_the_server_was_killed_is_not_sent_again() {
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
    let serve =
        |address: Option<&str>| Serving::start(snap(&store), address, &[served.to_str().unwrap()]);
    let serving = serve(None);
    let proxy = Proxy::start(&serving.url(""));
    proxy.set_rate(Some(8 << 20));
    let child = snap(&store).args(["push", &proxy.endpoint()]).spawn().unwrap();
    let (start, half) = (Instant::now(), BYTES as u64 / 2);
    while proxy.counts().sent_bytes < half {
        assert!(start.elapsed() < Duration::from_secs(120), "nothing comes");
        thread::sleep(Duration::from_millis(5));
    }
    let address = serving.kill();
    let parts = fs_err::read_dir(served.join("tmp/staged")).unwrap().count();
    assert_eq!(parts, 1, "the received part is kept");
    well(snap(&served).args(["verify", "--data"]));
    let _serving = serve(Some(&address));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let sent = proxy.counts().sent_bytes;
    assert!(sent < BYTES as u64 + half / 2, "{sent} B");
    well(snap(&served).args(["verify", "--data"]));
    assert_eq!(log(&served, "main")[0].id, log(&store, "main")[0].id);
}
