//! Tests of undo and redo, with random changes and with changes that a crash prevented.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    base::kind::ErrorKind,
    disk::Disk,
    format::ref_text::RefText,
    repo::{
        ref_name::{RefKind, RefName},
        refs::{Head, RefLogMessage, wait_for_second_open},
    },
};

/// A store folder with refs, but without objects.
struct Fixture {
    dir: tempfile::TempDir,
    refs: Refs,
}

fn change(reason: &str) -> RefLogMessage<'_> {
    // All changes have the same time, so that the order cannot depend on the clock.
    RefLogMessage { time: Time { secs: 1, nanos: 0 }, who: "ann", reason }
}

fn id(number: u8) -> CommitId {
    CommitId::of(&[number])
}

fn branch(name: &str) -> RefName {
    RefName::branch(name).unwrap()
}

fn pointer(name: &str) -> Pointer {
    Pointer::Ref(branch(name))
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs_err::create_dir(dir.path().join("tmp")).unwrap();
        let refs = Refs::new(dir.path(), Disk::default());
        refs.write_head(&Head::Branch(branch("main"))).unwrap();
        Self { dir, refs }
    }

    fn set(&self, name: &RefName, to: Option<u8>) {
        let from = self.refs.read(name).unwrap();
        self.refs.update(name, from, to.map(id), &change("set")).unwrap();
    }

    fn go(&self, wanted: Option<&Pointer>, direction: Direction) -> Result<(), UndoError> {
        let plan = plan_refs(&self.refs, wanted, direction)?;
        Ok(plan.run(&self.refs, &change(&plan.reason()))?)
    }

    fn undo(&self) {
        self.go(None, Direction::Undo).unwrap();
    }

    fn redo(&self) {
        self.go(None, Direction::Redo).unwrap();
    }

    fn at(&self, name: &str) -> Option<CommitId> {
        self.refs.read(&branch(name)).unwrap()
    }

    /// Returns the value of `HEAD` and of each ref.
    fn state(&self) -> BTreeMap<String, RefValue> {
        let mut state = BTreeMap::new();
        state.insert("HEAD".to_owned(), self.refs.target(&Pointer::Head).unwrap());
        for kind in [RefKind::Branch, RefKind::Tag] {
            for (name, id) in self.refs.list(kind).unwrap() {
                state.insert(name.to_string(), id.into());
            }
        }
        state
    }

    fn log_file(&self, name: &str) -> std::path::PathBuf {
        branch(name).log_file(self.dir.path())
    }

    /// Adds a log line about a change that does not happen.
    fn crash(&self, name: &str, to: u8) {
        let file = branch(name).file(self.dir.path());
        let text = fs_err::read(&file).unwrap();
        self.set(&branch(name), Some(to));
        fs_err::write(&file, text).unwrap();
    }
}

#[test]
fn repeated_undos_go_further_back_and_redos_return() {
    let fixture = Fixture::new();
    let main = branch("main");
    (1..=3).for_each(|to| fixture.set(&main, Some(to)));
    for at in [Some(2), Some(1), None] {
        fixture.undo();
        assert_eq!(fixture.at("main"), at.map(id));
    }
    let error = fixture.go(None, Direction::Undo).unwrap_err();
    assert_eq!(error.to_string(), "nothing to undo");
    for at in 1..=3 {
        fixture.redo();
        assert_eq!(fixture.at("main"), Some(id(at)));
    }
    let error = fixture.go(None, Direction::Redo).unwrap_err();
    assert_eq!(error.to_string(), "nothing to redo");
}

#[test]
fn a_new_change_clears_the_redo_stack() {
    let fixture = Fixture::new();
    let (main, other) = (branch("main"), branch("other"));
    (1..=2).for_each(|to| fixture.set(&main, Some(to)));
    fixture.undo();
    fixture.set(&other, Some(9));
    let error = fixture.go(None, Direction::Redo).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing to redo: branch `other` has changed since the last undo"
    );
    // A redo with a name works, because that ref has not changed.
    fixture.go(Some(&pointer("main")), Direction::Redo).unwrap();
    assert_eq!(fixture.at("main"), Some(id(2)));
    fixture.undo();
    fixture.undo();
    fixture.set(&main, Some(7));
    let error = fixture.go(Some(&pointer("main")), Direction::Redo).unwrap_err();
    assert_eq!(error.to_string(), "nothing to redo of branch `main`");
    fixture.undo();
    assert_eq!(fixture.at("main"), Some(id(1)));
}

#[test]
fn a_ref_name_selects_the_change_to_undo() {
    let fixture = Fixture::new();
    let (main, other) = (branch("main"), branch("other"));
    (1..=2).for_each(|to| fixture.set(&main, Some(to)));
    fixture.set(&other, Some(5));
    fixture.go(Some(&pointer("main")), Direction::Undo).unwrap();
    assert_eq!((fixture.at("main"), fixture.at("other")), (Some(id(1)), Some(id(5))));
    // The newest remaining change is that of `other`.
    fixture.undo();
    assert_eq!((fixture.at("main"), fixture.at("other")), (Some(id(1)), None));
    // A redo starts with the change that was undone last.
    fixture.redo();
    assert_eq!((fixture.at("main"), fixture.at("other")), (Some(id(1)), Some(id(5))));
    fixture.redo();
    assert_eq!(fixture.at("main"), Some(id(2)));
}

#[test]
fn undo_skips_a_change_that_a_crash_prevented() {
    for crashes in 1..3 {
        let fixture = Fixture::new();
        let main = branch("main");
        (1..=2).for_each(|to| fixture.set(&main, Some(to)));
        fixture.set(&branch("other"), Some(5));
        (0..crashes).for_each(|to| fixture.crash("main", 100 + to));
        // The last log line is that of the crash, but the last completed change is that of `other`.
        fixture.undo();
        assert_eq!((fixture.at("main"), fixture.at("other")), (Some(id(2)), None));
        fixture.undo();
        assert_eq!(fixture.at("main"), Some(id(1)));
        fixture.redo();
        fixture.crash("main", 50);
        fixture.set(&main, Some(3));
        fixture.undo();
        fixture.undo();
        assert_eq!(fixture.at("main"), Some(id(1)));
    }
}

#[test]
fn an_undo_that_a_crash_prevented_can_be_repeated() {
    let fixture = Fixture::new();
    let main = branch("main");
    (1..=3).for_each(|to| fixture.set(&main, Some(to)));
    for direction in [Direction::Undo, Direction::Redo] {
        let file = main.file(fixture.dir.path());
        let (text, at) = (fs_err::read(&file).unwrap(), fixture.at("main"));
        fixture.go(None, direction).unwrap();
        fs_err::write(&file, text).unwrap();
        assert_eq!(fixture.at("main"), at);
        fixture.go(None, direction).unwrap();
        assert_eq!(fixture.at("main"), Some(id(if direction == Direction::Undo { 2 } else { 3 })));
    }
}

#[test]
fn undo_stops_at_a_gap_in_the_log() {
    let fixture = Fixture::new();
    let main = branch("main");
    (1..=4).for_each(|to| fixture.set(&main, Some(to)));
    let text = fs_err::read_to_string(fixture.log_file("main")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs_err::write(fixture.log_file("main"), format!("{}\n{}\n", lines[0], lines[3])).unwrap();
    fixture.undo();
    assert_eq!(fixture.at("main"), Some(id(3)));
    let error = fixture.go(Some(&pointer("main")), Direction::Undo).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the log of branch `main` does not record how it got its current value"
    );
    assert_eq!(error.kind(), ErrorKind::Damaged);
}

#[test]
fn a_ref_that_moved_without_a_log_line_is_not_undone() {
    let fixture = Fixture::new();
    let main = branch("main");
    (1..=2).for_each(|to| fixture.set(&main, Some(to)));
    fs_err::write(main.file(fixture.dir.path()), RefText::new(Some(id(9))).encode()).unwrap();
    let error = fixture.go(None, Direction::Undo).unwrap_err();
    assert!(matches!(error, UndoError::Log { .. }), "{error}");
    assert_eq!(fixture.at("main"), Some(id(9)));
}

#[test]
fn a_ref_that_moved_since_the_plan_is_not_moved() {
    let fixture = Fixture::new();
    let main = branch("main");
    (1..=2).for_each(|to| fixture.set(&main, Some(to)));
    let plan = plan_refs(&fixture.refs, None, Direction::Undo).unwrap();
    fixture.set(&main, Some(3));
    let moved = fixture.refs.retarget(&plan.pointer, &plan.from, &plan.to, &change("undo: set"));
    assert!(matches!(moved, Err(RefError::Moved { .. })));
}

#[test]
fn the_undo_order_survives_a_lost_lock_file() {
    let fixture = Fixture::new();
    for (name, to) in [("a", 1), ("b", 2), ("a", 3), ("b", 4)] {
        fixture.set(&branch(name), Some(to));
        fs_err::write(fixture.dir.path().join("lock"), "9").unwrap();
    }
    let order = ["b", "a", "b", "a"].map(pointer);
    for wanted in order {
        assert_eq!(plan_refs(&fixture.refs, None, Direction::Undo).unwrap().pointer, wanted);
        fixture.undo();
    }
}

/// A change that commands make to refs.
#[derive(Clone, Debug)]
enum RefChange {
    Set(RefName, Option<u8>),
    Switch(Head),
    Crash(RefName, u8),
}

fn any_act() -> impl Strategy<Value = RefChange> {
    let name = prop_oneof![
        Just(branch("main")),
        Just(branch("a")),
        Just(branch("b/c")),
        Just(RefName::tag("a").unwrap()),
    ];
    let head = prop_oneof![
        (0..3usize).prop_map(|at| Head::Branch(branch(["main", "a", "b/c"][at]))),
        (0..4u8).prop_map(|to| Head::Detached(id(to))),
    ];
    prop_oneof![
        6 => (name.clone(), proptest::option::weighted(0.8, 0..6u8)).prop_map(|(n, to)| RefChange::Set(n, to)),
        2 => head.prop_map(RefChange::Switch),
        1 => (name, 10..13u8).prop_map(|(n, to)| RefChange::Crash(n, to)),
    ]
}

impl Fixture {
    /// Performs `act`; returns true if a ref moved.
    fn act(&self, act: &RefChange) -> bool {
        let before = self.state();
        match act {
            RefChange::Set(name, to) => self.set(name, *to),
            RefChange::Switch(head) => {
                let from = self.refs.head().unwrap();
                self.refs.set_head(&from, head, &change("switch")).unwrap();
            }
            RefChange::Crash(name, to) => {
                let from = self.refs.read(name).unwrap();
                if from.is_some() {
                    self.crash_of(name, *to);
                }
            }
        }
        self.state() != before
    }

    fn crash_of(&self, name: &RefName, to: u8) {
        let file = name.file(self.dir.path());
        let text = fs_err::read(&file).unwrap();
        self.set(name, Some(to));
        fs_err::write(&file, text).unwrap();
    }
}

proptest! {
    #![proptest_config(snap_testkit::property::cases(48))]

    /// As many undos as there were changes lead back to the start through every state in between,
    /// and as many redos lead to the end again.
    #[test]
    fn undos_return_to_the_start_and_redos_to_the_end(
        acts in proptest::collection::vec(any_act(), 1..24)
    ) {
        let fixture = Fixture::new();
        let mut states = vec![fixture.state()];
        for act in &acts {
            if fixture.act(act) {
                states.push(fixture.state());
            }
        }
        for state in states.iter().rev().skip(1) {
            fixture.undo();
            prop_assert_eq!(&fixture.state(), state);
        }
        prop_assert!(fixture.go(None, Direction::Undo).is_err());
        for state in states.iter().skip(1) {
            fixture.redo();
            prop_assert_eq!(&fixture.state(), state);
        }
        prop_assert!(fixture.go(None, Direction::Redo).is_err());
    }

    /// Mixes undos and redos with changes. One undo takes back the last change, and a redo right
    /// after it makes the change again.
    #[test]
    fn a_redo_right_after_an_undo_changes_nothing(
        acts in proptest::collection::vec((any_act(), 0..4usize), 1..12)
    ) {
        let fixture = Fixture::new();
        for (act, undos) in &acts {
            fixture.act(act);
            for _ in 0..*undos {
                let before = fixture.state();
                if fixture.go(None, Direction::Undo).is_ok() {
                    fixture.redo();
                    prop_assert_eq!(&fixture.state(), &before);
                    fixture.undo();
                    prop_assert_ne!(&fixture.state(), &before);
                }
            }
        }
    }
}

#[test]
fn a_concurrent_move_does_not_count_as_damage() {
    let fixture = Fixture::new();
    let main = branch("main");
    let file = fixture.dir.path().join("refs/heads/main");
    fixture.set(&main, Some(1));
    let first = fs_err::read(&file).unwrap();
    fixture.set(&main, Some(2));
    fixture.set(&main, Some(3));
    let last = fs_err::read(&file).unwrap();
    // The log is two moves ahead of the value, as if the reader had been slow between its two
    // reads.
    fs_err::write(&file, &first).unwrap();
    let lock = fixture.refs.lock().unwrap();
    std::thread::scope(|scope| {
        let file = &file;
        scope.spawn(move || {
            wait_for_second_open(&lock);
            fs_err::write(file, &last).unwrap();
            drop(lock);
        });
        let plan = plan_refs(&fixture.refs, Some(&pointer("main")), Direction::Undo).unwrap();
        assert_eq!((plan.from, plan.to), (Some(id(3)).into(), Some(id(2)).into()));
    });
    // Without another process, the difference is damage.
    fs_err::write(&file, &first).unwrap();
    let damaged = plan_refs(&fixture.refs, Some(&pointer("main")), Direction::Undo);
    assert!(matches!(damaged, Err(UndoError::Log { .. })), "{damaged:?}");
}
