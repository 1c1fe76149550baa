//! Ctrl-C at counted steps: the exit code is 130, nothing is left over, and the next run completes
//! the work.

use std::{
    io::Write as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
};

use rustix::{
    io::ioctl_fionread,
    process::{Signal, kill_process},
};
use snap_explore::steps::{self, Stop, pid, spread, stop_at};
use snap_testkit::{
    bytes::Corpus,
    compare::{Options, compare},
    trees,
    wait::{PATIENCE, until, until_it_handles_ctrl_c},
};

use crate::place::{drafts, folder, left_over, log, snap, stderr, well};

/// Most interrupted runs of each command.
const ROUNDS: usize = 12;

/// Makes a tree with many small files and a large one.
fn tree(folder: &Path) {
    trees::text_files(folder, 60, 4096).unwrap();
    let content = Corpus::Random.make_seeded(8 << 20, 3);
    fs_err::write(folder.join("film"), content).unwrap();
}

/// Waits until a process has ended; fails if it hangs.
#[track_caller]
fn ended(child: Child) -> Output {
    let id = pid(&child);
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(child.wait_with_output().unwrap()));
    receive.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ended = kill_process(id, Signal::KILL);
        panic!("a process hangs after Ctrl-C");
    })
}

/// Runs a command and interrupts it at a step. Returns true if it did not complete its work; its
/// exit code must show that.
#[track_caller]
fn is_interrupted_at(step: u64, command: &mut Command) -> bool {
    was_interrupted(&ended(stop_at(command, step, Stop::Interrupt).spawn().unwrap()))
}

#[track_caller]
fn was_interrupted(output: &Output) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
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
    let store = |number: u64| {
        let store = place.path().join(format!("store{number}"));
        well(snap(&store).arg("init"));
        store
    };
    let count = steps::count(&mut commit(&store(0))).len();
    for step in spread(count, ROUNDS) {
        let store = store(step);
        let was_interrupted = is_interrupted_at(step, &mut commit(&store));
        assert!(was_interrupted || step > 1, "Ctrl-C before the first step has no effect");
        assert_eq!(left_over(&store), [""; 0], "interrupted at {step}");
        well(&mut commit(&store));
        assert_eq!(log(&store, "main").len(), 1);
        well(snap(&store).args(["verify", "--data"]));
        fs_err::remove_dir_all(&store).unwrap();
    }
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
    let count = steps::count(&mut restore(&place.path().join("first"))).len();
    // Attributes of the target are not compared, because they stay unchanged if it existed before.
    let options = Options { root: false, ..Options::default() };
    for step in spread(count, ROUNDS) {
        let target = place.path().join(format!("target{step}"));
        let was_interrupted = is_interrupted_at(step, &mut restore(&target));
        assert!(was_interrupted || step > 1, "Ctrl-C before the first step has no effect");
        if target.exists() {
            assert_eq!(drafts(&target), Vec::<std::path::PathBuf>::new(), "left over");
        }
        well(&mut restore(&target));
        assert_eq!(compare(&source, &target, &options), [""; 0], "interrupted at {step}");
        fs_err::remove_dir_all(&target).unwrap();
    }
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
        until_it_handles_ctrl_c(&mut child);
        // When it has read everything, it waits for more.
        until("it reads all of its input", || {
            ioctl_fionread(&stdin).unwrap() == 0 || child.try_wait().unwrap().is_some()
        });
        kill_process(pid(&child), Signal::INT).unwrap();
        assert!(was_interrupted(&ended(child)));
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
    for name in ["x.tar", "x.tar.zst", "x.zip"] {
        let export = || {
            let mut command = snap(&store);
            command.args(["export", "latest", "-o"]).arg(out.join(name));
            command
        };
        let count = steps::count(&mut export()).len();
        fs_err::remove_file(out.join(name)).unwrap();
        for step in spread(count, ROUNDS) {
            let was_stopped = is_interrupted_at(step, &mut export());
            assert!(was_stopped || step > 1, "Ctrl-C before the first step has no effect");
            let left = fs_err::read_dir(&out).unwrap().count();
            assert_eq!(left, usize::from(!was_stopped), "{name}, interrupted at {step}");
            let _ = fs_err::remove_file(out.join(name));
        }
    }
}
