//! Ctrl-C at random moments: the exit code is 130, nothing is left over, and the next run completes
//! the work.

use std::{
    io::Write,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use snap_testkit::{
    bytes::Corpus,
    compare::{Options, compare},
    rng::Rng,
    trees,
};

use crate::place::{drafts, folder, left_over, log, snap, stderr, well};

/// Number of interrupted runs in each test.
const ROUNDS: usize = 15;

/// Longest time that a process may take to end after Ctrl-C, generous for busy machines.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes a tree that is large enough for an interruption.
fn tree(folder: &Path) {
    trees::text_files(folder, 700, 4096).unwrap();
    let content = Corpus::Random.make_seeded(16 << 20, 3);
    fs_err::write(folder.join("film"), content).unwrap();
}

fn interrupt(child: Child) -> Output {
    let id = i32::try_from(child.id()).unwrap();
    // A process that has already ended cannot be interrupted, which is not an error.
    let _ = kill_process(Pid::from_raw(id).unwrap(), Signal::INT);
    let start = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(start.elapsed() < PATIENCE, "did not end within {:?}", start.elapsed());
    output
}

/// Returns true if the process was interrupted; its exit code must show that.
fn was_interrupted(output: &Output) -> bool {
    use std::os::unix::process::ExitStatusExt;
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => false,
        (Some(130), _) => {
            assert!(stderr(output).contains("interrupted"), "{}", stderr(output));
            true
        }
        // The signal came before the program installed its handler.
        (None, Some(2)) => true,
        other => panic!("{other:?}: {}", stderr(output)),
    }
}

fn how_long(command: &mut Command) -> Duration {
    let start = Instant::now();
    well(command);
    start.elapsed()
}

#[test]
fn an_interrupted_commit_leaves_nothing_and_the_next_one_works() {
    let place = folder();
    let source = place.path().join("source");
    tree(&source);
    let commit = |store: &Path| {
        let mut command = snap(store);
        command.args(["commit", "-m", "all"]).arg(&source);
        command
    };
    let store = |number: usize| {
        let store = place.path().join(format!("store{number}"));
        well(snap(&store).arg("init"));
        store
    };
    let longest = how_long(&mut commit(&store(ROUNDS)));
    let mut rng = Rng::new(2029);
    let mut interrupted = 0;
    for number in 0..ROUNDS {
        let store = store(number);
        let child = commit(&store).spawn().unwrap();
        thread::sleep(longest.mul_f64(rng.unit()));
        interrupted += usize::from(was_interrupted(&interrupt(child)));
        assert_eq!(left_over(&store), [""; 0]);
        well(&mut commit(&store));
        assert_eq!(log(&store, "main").len(), 1);
        well(snap(&store).args(["verify", "--data"]));
        fs_err::remove_dir_all(&store).unwrap();
    }
    assert!(interrupted > ROUNDS / 5, "only {interrupted} commits were interrupted");
}

#[test]
fn an_interrupted_restore_leaves_whole_files_and_the_next_one_completes_them() {
    let place = folder();
    let (store, source) = (place.path().join("store"), place.path().join("source"));
    tree(&source);
    well(snap(&store).arg("init"));
    well(snap(&store).args(["commit", "-m", "all"]).arg(&source));
    let restore = |target: &Path| {
        let mut command = snap(&store);
        command.args(["restore", "latest"]).arg(target);
        command
    };
    let longest = how_long(&mut restore(&place.path().join("first")));
    // Attributes of the target are not compared, because they stay unchanged if it existed before.
    let options = Options { root: false, ..Options::default() };
    let mut rng = Rng::new(2030);
    let mut interrupted = 0;
    for number in 0..ROUNDS {
        let target = place.path().join(format!("target{number}"));
        let child = restore(&target).spawn().unwrap();
        thread::sleep(longest.mul_f64(rng.unit()));
        interrupted += usize::from(was_interrupted(&interrupt(child)));
        if target.exists() {
            assert_eq!(drafts(&target), Vec::<std::path::PathBuf>::new(), "left over");
        }
        well(&mut restore(&target));
        assert_eq!(compare(&source, &target, &options), [""; 0]);
        fs_err::remove_dir_all(&target).unwrap();
    }
    assert!(interrupted > ROUNDS / 5, "only {interrupted} restores were interrupted");
}

#[test]
fn an_unpack_that_waits_for_its_input_can_be_interrupted() {
    let place = folder();
    let (store, source) = (place.path().join("store"), place.path().join("source"));
    tree(&source);
    well(snap(&store).arg("init"));
    let bundle = place.path().join("all.snap");
    well(snap(&place.path().join("from")).arg("init"));
    well(snap(&place.path().join("from")).arg("commit").arg(&source));
    well(snap(&place.path().join("from")).args(["pack", "-o"]).arg(&bundle));
    let whole = fs_err::read(&bundle).unwrap();
    for sent in [0, 10, 1000, whole.len() / 2] {
        let mut child = snap(&store).args(["unpack", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&whole[..sent]).unwrap();
        thread::sleep(Duration::from_millis(300));
        assert!(was_interrupted(&interrupt(child)));
        drop(stdin);
        assert_eq!(left_over(&store), [""; 0], "left over in tmp/");
    }
    well(snap(&store).arg("unpack").arg(&bundle));
}

#[test]
fn an_interrupted_export_leaves_no_file() {
    let place = folder();
    let (store, source) = (place.path().join("store"), place.path().join("source"));
    tree(&source);
    well(snap(&store).arg("init"));
    well(snap(&store).args(["commit", "-m", "all"]).arg(&source));
    let out = place.path().join("out");
    fs_err::create_dir(&out).unwrap();
    let mut rng = Rng::new(2030);
    let mut interrupted = 0;
    for name in ["x.tar", "x.tar.zst", "x.zip"] {
        let export = || {
            let mut command = snap(&store);
            command.args(["export", "latest", "-o"]).arg(out.join(name));
            command
        };
        let longest = how_long(&mut export());
        fs_err::remove_file(out.join(name)).unwrap();
        for _ in 0..ROUNDS {
            let child = export().spawn().unwrap();
            thread::sleep(longest.mul_f64(rng.unit()));
            let was_stopped = was_interrupted(&interrupt(child));
            interrupted += usize::from(was_stopped);
            let left = fs_err::read_dir(&out).unwrap().count();
            assert_eq!(left, usize::from(!was_stopped), "{name}");
            let _ = fs_err::remove_file(out.join(name));
        }
    }
    assert!(interrupted > ROUNDS / 5, "only {interrupted} exports were interrupted");
}
