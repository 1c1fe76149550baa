//! SIGKILL at each step of unpacking a bundle: the store shows all of it or nothing, and another
//! run completes it.

use snap_explore::steps::{self, Stop, spread, stop_at, was_killed};
use snap_testkit::{bytes::Corpus, trees};

use crate::place::{age_left_over, copy, folder, left_over, snap, well};

/// Most kills.
const KILLS: usize = 24;

#[test]
fn an_unpack_killed_at_any_moment_can_be_run_again() {
    let place = folder();
    let (from, source) = (place.path().join("from"), place.path().join("source"));
    trees::text_files(&source, 60, 4096).unwrap();
    fs_err::write(source.join("film"), Corpus::Random.make_seeded(6 << 20, 1)).unwrap();
    let own = place.path().join("own");
    trees::text_files(&own, 3, 100).unwrap();
    well(snap(&from).arg("init"));
    well(snap(&from).args(["commit", "-m", "all"]).arg(&source));
    let bundle = place.path().join("all.snap");
    well(snap(&from).args(["pack", "latest", "-o"]).arg(&bundle));
    let before = place.path().join("before");
    well(snap(&before).arg("init"));
    well(snap(&before).args(["commit", "-m", "own"]).arg(&own));

    let unpacking = |number: u64| {
        let store = place.path().join(format!("store{number}"));
        copy(&before, &store);
        let mut command = snap(&store);
        command.arg("unpack").arg(&bundle);
        (store, command)
    };
    let count = steps::count(&mut unpacking(0).1).len();
    let mut kills = 0;
    for step in spread(count, KILLS) {
        let (store, mut unpack) = unpacking(step);
        // The second run begins with what the first one left.
        for step in [step, step.div_ceil(2)] {
            let output = stop_at(&mut unpack, step, Stop::Kill).output().unwrap();
            kills += usize::from(was_killed(output.status));
            well(snap(&store).args(["verify", "--data"]));
        }
        let id = well(snap(&store).arg("unpack").arg(&bundle));
        well(snap(&store).args(["branch", "unpacked", id.trim()]));
        well(snap(&store).args(["verify", "--data"]));
        age_left_over(&store);
        well(snap(&store).args(["commit", "--allow-empty"]).arg(&own));
        assert_eq!(left_over(&store), [""; 0], "left over in tmp/");
        fs_err::remove_dir_all(&store).unwrap();
    }
    assert!(kills > KILLS, "only {kills} kills");
}
