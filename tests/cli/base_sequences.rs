//! Sequences of events over two branches and one remote, through the binary: no commit takes back
//! what its files did not contain. `tests/core/base_sequences.rs` enumerates longer ones in memory.

use std::{path::Path, thread};

use snap_testkit::{
    branch_world::{BRANCHES, EVENTS, Event, World},
    rng::Rng,
    trees,
};

use crate::env::{Ran, TestEnv};

const NAMES: [&str; BRANCHES] = ["main", "try"];

/// The step at which a killed restore ends: it has recorded that it started, and changed one file.
const KILLED_AT: &str = "7";

/// A project `w/p`, a remote and a colleague `w/bob`, beside the model.
struct Run<'e> {
    env: &'e TestEnv,
    world: World,
    done: Vec<Event>,
    /// True if colleagues or restores changed something: then a refusal may be right.
    may_refuse: bool,
    /// True if the files are those of the current branch, so that a commit must be taken.
    is_up_to_date: bool,
}

fn prepare() -> TestEnv {
    let env = TestEnv::in_memory();
    env.write("w/p/t0", "0");
    let url = format!("file://{}", env.path("w/there").display());
    env.snap_in("w/p", ["commit", "-q"]).succeeds();
    env.snap_in("w/p", ["branch", "-q", "try"]).succeeds();
    env.snap_in("w/p", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("w/p", ["push", "-q", "--all"]).succeeds();
    env.snap(["clone", "-q", &url, "w/bob"]).succeeds();
    copy(&env.path("w"), &env.path("saved0"));
    env
}

/// Copies a folder with everything below it.
pub(crate) fn copy(from: &Path, to: &Path) {
    trees::copy(from, to).unwrap();
}

impl<'e> Run<'e> {
    /// Starts with the prepared folders.
    fn start(env: &'e TestEnv) -> Self {
        let run = Self {
            env,
            world: World::default(),
            done: Vec::new(),
            may_refuse: false,
            is_up_to_date: true,
        };
        run.load();
        run
    }

    /// Copies the folders as they are after the events so far.
    fn save(&self) {
        let saved = self.env.path(format!("saved{}", self.done.len()));
        if saved.exists() {
            fs_err::remove_dir_all(&saved).unwrap();
        }
        copy(&self.env.path("w"), &saved);
    }

    /// Returns to the saved folders.
    fn load(&self) {
        fs_err::remove_dir_all(self.env.path("w")).unwrap();
        copy(&self.env.path(format!("saved{}", self.done.len())), &self.env.path("w"));
    }

    fn snap(&self, args: &[&str]) -> Ran {
        self.env.snap_in("w/p", args)
    }

    fn restore(&self, revision: &str) -> [String; 6] {
        ["restore", "-q", revision, "--overwrite", "--delete", "-y"].map(str::to_owned)
    }

    fn step(&mut self, event: Event) {
        self.done.push(event);
        let head = self.world.head;
        let file = format!("t{}", self.world.count());
        let mut is_refused = false;
        match event {
            Event::Commit | Event::CommitOther | Event::CommitPath => {
                fs_err::write(self.env.path("w/p").join(&file), &file).unwrap();
                let ran = match event {
                    Event::CommitOther => self.snap(&["commit", "-q", "-b", NAMES[1 - head]]),
                    Event::CommitPath => self.snap(&["commit", "-q", &file]),
                    _ => self.snap(&["commit", "-q"]),
                };
                is_refused = ran.code == Some(1) && ran.stderr.contains("than the files here");
                let stderr = &ran.stderr;
                assert!(is_refused || ran.code == Some(0), "{:?}: {stderr}", self.done);
                let must_take = !self.may_refuse || self.is_up_to_date && event == Event::Commit;
                assert!(!is_refused || !must_take, "refused: {:?}: {stderr}", self.done);
                let target = self.world.target(event).unwrap();
                assert!(
                    is_refused || event == Event::CommitPath || self.world.permits(target),
                    "it reverts what its files lack: {:?}",
                    self.done
                );
            }
            Event::Switch => drop(self.snap(&["branch", "-q", "-s", NAMES[1 - head]]).succeeds()),
            Event::Restore(branch) => drop(self.snap_owned(&self.restore(NAMES[branch]))),
            Event::RestoreBack => drop(self.snap_owned(&self.restore("HEAD~1"))),
            Event::Killed(branch) => {
                // The first command in a copied store makes the index again, which takes steps.
                drop(self.snap(&["log", "-q"]));
                let mut restore = self.env.command("w/p");
                restore.args(self.restore(NAMES[branch])).env("SNAP_TEST_STOP_AT", KILLED_AT);
                drop(restore.output().unwrap());
            }
            Event::Colleague(branch) => self.colleague(branch, &file),
            Event::Pull => drop(self.snap(&["pull", "-q"]).succeeds()),
            Event::Push => drop(self.snap(&["push", "-q"]).succeeds()),
            Event::Undo => drop(self.snap(&["undo", "-q", NAMES[head]]).succeeds()),
        }
        let restores = matches!(event, Event::Restore(_) | Event::RestoreBack | Event::Killed(_));
        self.may_refuse |= restores || matches!(event, Event::Colleague(_));
        self.world.apply(event, is_refused);
        let tips = self.world.tips;
        self.is_up_to_date = match event {
            Event::Restore(branch) => tips[branch] == tips[self.world.head],
            Event::Commit => !is_refused,
            Event::Push | Event::Colleague(_) => self.is_up_to_date,
            _ => false,
        };
        if !self.world.is_cut {
            let has = |number: &usize| self.env.path(format!("w/p/t{number}")).exists();
            let files: Vec<usize> = (0..16).filter(has).collect();
            let model = self.world.present();
            let expected: Vec<usize> = (0..16).filter(|number| model >> number & 1 == 1).collect();
            assert_eq!(files, expected, "{:?}", self.done);
        }
    }

    fn snap_owned(&self, args: &[String]) -> Ran {
        self.env.snap_in("w/p", args).succeeds()
    }

    /// The colleague adds a file to a branch of the remote.
    fn colleague(&self, branch: usize, file: &str) {
        let name = NAMES[branch];
        self.env.snap_in("w/bob", ["pull", "-q", "origin", name]).succeeds();
        self.env.write(&format!("w/bob/{file}"), file);
        self.env.snap_in("w/bob", ["commit", "-q", "-b", name, file]).succeeds();
        self.env.snap_in("w/bob", ["push", "-q", "origin", name]).succeeds();
    }

    /// Makes all sequences of events that go on from here, up to a length.
    fn visit(&mut self, length: usize) {
        if self.done.len() == length {
            return;
        }
        self.save();
        let (world, done) = (self.world, self.done.clone());
        let (may_refuse, is_up_to_date) = (self.may_refuse, self.is_up_to_date);
        for event in EVENTS.into_iter().filter(|event| world.applies(*event)) {
            (self.world, self.may_refuse, self.is_up_to_date) = (world, may_refuse, is_up_to_date);
            self.done.clone_from(&done);
            self.load();
            self.step(event);
            self.visit(length);
        }
    }
}

/// Runs a part of the tests on each of two threads.
fn on_two_threads(part: impl Fn(&TestEnv, usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..2 {
            let part = &part;
            scope.spawn(move || part(&prepare(), number));
        }
    });
}

#[test]
fn in_no_short_sequence_of_events_a_commit_takes_back_what_its_files_lack() {
    on_two_threads(|env, number| {
        for event in EVENTS.into_iter().skip(number).step_by(2) {
            let mut run = Run::start(env);
            if run.world.applies(event) {
                run.step(event);
                run.visit(3);
            }
        }
    });
}

#[test]
fn in_no_random_sequence_of_events_a_commit_takes_back_what_its_files_lack() {
    on_two_threads(|env, number| {
        let mut rng = Rng::new(27 + number as u64);
        for round in 0..100 {
            let events = match round % 4 {
                0 => draw(&mut rng),
                _ => draw_forbidden(&mut rng),
            };
            let mut run = Run::start(env);
            for event in events {
                // A commit that the program refuses, and the model permits, changes what applies.
                if run.world.applies(event) {
                    run.step(event);
                }
            }
        }
    });
}

/// Draws a sequence of six events that apply.
fn draw(rng: &mut Rng) -> Vec<Event> {
    let (mut world, mut events) = (World::default(), Vec::new());
    while events.len() < 6 {
        let event = EVENTS[rng.index(EVENTS.len())];
        if world.applies(event) {
            let is_whole = event != Event::CommitPath;
            let is_refused =
                world.target(event).is_some_and(|branch| is_whole && !world.permits(branch));
            world.apply(event, is_refused);
            events.push(event);
        }
    }
    events
}

/// Draws a sequence that restores something after a pull, and whose last commit the model forbids.
fn draw_forbidden(rng: &mut Rng) -> Vec<Event> {
    loop {
        let events = draw(rng);
        let pull = events.iter().position(|event| *event == Event::Pull);
        let is_restore = |event: &Event| {
            matches!(event, Event::Restore(_) | Event::RestoreBack | Event::Killed(_))
        };
        let is_restored_later = pull.is_some_and(|pull| events[pull..].iter().any(is_restore));
        let (last, before) = events.split_last().unwrap();
        let mut world = World::default();
        for event in before {
            let is_whole = *event != Event::CommitPath;
            let target = world.target(*event).filter(|_| is_whole);
            world.apply(*event, target.is_some_and(|branch| !world.permits(branch)));
        }
        let target = world.target(*last).filter(|_| *last != Event::CommitPath);
        if is_restored_later && target.is_some_and(|branch| !world.permits(branch)) {
            return events;
        }
    }
}
