//! SIGKILL at random moments of unpacking a bundle: the store shows all of it or nothing, and
//! another run completes it.

use std::{
    thread,
    time::{Duration, Instant},
};

use snap_testkit::{bytes::Corpus, rng::Rng, trees};

use crate::place::{age_left_over, folder, left_over, snap, well};

/// Number of stores that a bundle is unpacked into.
const STORES: usize = 10;

/// Number of kills for each store, before an unpack may finish.
const KILLS_EACH: usize = 4;

#[test]
fn an_unpack_killed_at_any_moment_can_be_run_again() {
    let place = folder();
    let (from, source) = (place.path().join("from"), place.path().join("source"));
    trees::text_files(&source, 600, 4096).unwrap();
    fs_err::write(source.join("film"), Corpus::Random.make_seeded(6 << 20, 1)).unwrap();
    let own = place.path().join("own");
    trees::text_files(&own, 3, 100).unwrap();
    well(snap(&from).arg("init"));
    well(snap(&from).args(["commit", "-m", "all"]).arg(&source));
    let bundle = place.path().join("all.snap");
    well(snap(&from).args(["pack", "latest", "-o"]).arg(&bundle));

    let mut rng = Rng::new(2029);
    let (mut longest, mut cut_short) = (None::<Duration>, 0);
    for number in 0..STORES {
        let store = place.path().join(format!("store{number}"));
        well(snap(&store).arg("init"));
        well(snap(&store).args(["commit", "-m", "own"]).arg(&own));
        let unpack = || {
            let mut command = snap(&store);
            command.arg("unpack").arg(&bundle);
            command
        };
        for _ in 0..KILLS_EACH {
            let Some(longest) = longest else { break };
            let mut child = unpack().spawn().unwrap();
            thread::sleep(longest.mul_f64(rng.unit()));
            child.kill().unwrap();
            cut_short += usize::from(!child.wait().unwrap().success());
            well(snap(&store).args(["verify", "--data"]));
        }
        let start = Instant::now();
        let id = well(&mut unpack());
        longest.get_or_insert(start.elapsed());
        well(snap(&store).args(["branch", "unpacked", id.trim()]));
        well(snap(&store).args(["verify", "--data"]));
        age_left_over(&store);
        well(snap(&store).args(["commit", "--allow-empty"]).arg(&own));
        assert_eq!(left_over(&store), [""; 0], "left over in tmp/");
    }
    assert!(cut_short > STORES, "only {cut_short} were cut short");
}
