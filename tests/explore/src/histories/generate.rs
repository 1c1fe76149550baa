//! Generates random histories.
//!
//! There are few paths, contents and branches, so that commands affect each other. A history consists
//! of short scenes in which commands of one subject follow each other. Some of their steps are left
//! out, and some commands are halted while the next ones run.

use snap_testkit::rng::Rng;

use crate::histories::{
    mark::CONTENTS,
    operation::{Call, Op, Place},
};

/// Paths of files; rewrites exclude `s` and `d/s`.
const FILES: [&str; 5] = ["a", "d/c", "n", "s", "d/s"];

/// Waiting times in hours. No sum of some of them is nearly 7 days, because the model does not know
/// the time of a change to the second.
const WAITS: [i64; 4] = [1, 26, 200, 720];

/// Minimum and maximum number of scenes after the first.
const SCENES: (u64, u64) = (3, 7);

/// Steps at which a command may be halted; about as many as a commit has.
const STEPS: u64 = 40;

/// A scene.
type Scene = fn(&mut Generator);

/// All scenes, the more frequent ones several times.
const ALL: [Scene; 8] = [
    Generator::branches,
    Generator::forgets,
    Generator::rewrites,
    Generator::copies,
    Generator::races,
    Generator::undoes,
    Generator::bundles,
    Generator::restores,
];

/// The first scenes; one of them is frequent in a history.
const THEMES: usize = 5;

struct Generator {
    rng: Rng,
    ops: Vec<Op>,
}

/// Generates the history of a seed.
pub(crate) fn sequence(seed: u64) -> Vec<Op> {
    let mut generator = Generator { rng: Rng::new(seed), ops: Vec::new() };
    let theme = ALL[generator.rng.index(THEMES)];
    for _ in 0..2 + generator.rng.below(2) {
        let path = FILES[generator.rng.index(FILES.len())];
        generator.write("a", path);
        generator.run("a", "commit");
    }
    generator.run("a", "remote add origin");
    generator.run("a", "push origin main");
    generator.run("b", "clone");
    for place in ["a", "b"] {
        generator.run(place, "remote add other");
    }
    let scenes = SCENES.0 + generator.rng.below(SCENES.1 - SCENES.0 + 1);
    let first = generator.ops.len();
    for _ in 0..scenes {
        let scene = match generator.chance(2) {
            true => theme,
            false => ALL[generator.rng.index(ALL.len())],
        };
        scene(&mut generator);
    }
    let later = generator.ops.split_off(first);
    generator.thin_and_hold(later);
    generator.ops
}

impl Generator {
    /// Returns true with a probability of 1 in `times`.
    fn chance(&mut self, times: u64) -> bool {
        self.rng.below(times) == 0
    }

    fn pick<'l, T: ?Sized>(&mut self, list: &[&'l T]) -> &'l T {
        list[self.rng.index(list.len())]
    }

    fn run(&mut self, place: Place, line: impl AsRef<str>) {
        self.ops.push(Op::Run(Call::new(place, line)));
    }

    /// Runs one of several commands.
    fn run_one(&mut self, place: Place, lines: &[&str]) {
        let line = self.pick(lines);
        self.run(place, line);
    }

    /// Runs a command with a probability of 1 in 2.
    fn maybe(&mut self, place: Place, line: &str) {
        if self.chance(2) {
            self.run(place, line);
        }
    }

    fn wait(&mut self) {
        let hours = WAITS[self.rng.index(WAITS.len())];
        self.ops.push(Op::Wait(hours));
    }

    /// Returns a place with all objects.
    fn place(&mut self) -> Place {
        self.pick(&["a", "a", "b"])
    }

    fn write(&mut self, place: Place, path: &'static str) {
        self.ops.push(Op::Write(place, path, self.rng.below(CONTENTS)));
    }

    fn commit(&mut self, place: Place) {
        let path = if place == "partial" { "d/c" } else { self.pick(&FILES) };
        self.write(place, path);
        let line =
            self.pick(&["commit", "commit", "commit", "commit -b side", "commit --onto-tip"]);
        self.run(place, line);
    }

    fn gc(&mut self, place: Place) {
        self.run_one(place, &["gc", "gc", "gc --now"]);
    }

    /// A branch is pushed, pulled by others, moved or deleted, and collected later.
    fn branches(&mut self) {
        let (one, two) = if self.chance(4) { ("b", "a") } else { ("a", "b") };
        self.write(one, "n");
        self.run(one, "commit -b side");
        self.run(one, "push origin side");
        self.maybe(one, "branch --switch main");
        self.run(two, "pull origin side");
        self.maybe(two, "branch -d side");
        self.wait();
        match self.rng.below(5) {
            0..2 => {
                self.run(one, "branch --force side main~1");
                self.run(one, "push --force origin side");
            }
            2 => self.run(one, "push origin --delete side"),
            3 => self.run(two, "remote remove origin"),
            _ => self.run(two, "push origin --delete side"),
        }
        self.run_one(
            two,
            &["pull origin side", "pull origin side", "pull", "pull --force origin side"],
        );
        self.gc(two);
        if self.ops.iter().any(|op| matches!(op, Op::Run(call) if call.has("remove"))) {
            self.run(two, "remote add origin");
        }
        if self.chance(3) {
            self.wait();
            self.run_one(
                one,
                &["branch -d side", "tag -d v1", "tag v1 main~1", "branch --force main side"],
            );
            self.wait();
            self.gc(one);
            self.run_one(one, &["gc origin", "gc origin --now"]);
        }
    }

    /// Commits are forgotten and deleted, here and at a remote; or brought back.
    fn forgets(&mut self) {
        let place = self.place();
        self.commit(place);
        self.commit(place);
        self.maybe(place, "push origin main");
        self.forget(place);
        match self.rng.below(3) {
            0 => self.wait(),
            1 => self.run_one(place, &["undo", "tag v2 main~1", "branch kept main~1"]),
            _ => {}
        }
        self.maybe(place, "undo --redo");
        self.gc(place);
        self.run_one(
            place,
            &["gc origin --forgotten --now", "gc origin --forgotten", "gc origin --now"],
        );
        self.maybe(place, "push other main");
        self.maybe("b", "pull --update");
    }

    fn forget(&mut self, place: Place) {
        self.run_one(
            place,
            &[
                "forget main~1",
                "forget main~1 main~2",
                "forget main~2",
                "forget --keep-last 1 --allow-none",
            ],
        );
    }

    /// A file is removed from history, here and at the remote, while others still have it.
    fn rewrites(&mut self) {
        let place = self.place();
        let path = self.pick(&["s", "d/s"]);
        self.write(place, path);
        self.run(place, "commit");
        self.maybe(place, "tag v1");
        self.commit(place);
        self.run_one(
            place,
            &["push origin main", "push origin --all --tags", "push --force origin --all --tags"],
        );
        self.maybe("b", "pull --update");
        let pattern = self.pick(&["s", if path == "s" { "/s" } else { "d/s" }]);
        let whole = if self.chance(4) { " main" } else { "" };
        self.run(place, format!("rewrite --exclude {pattern}{whole}"));
        self.ops.push(Op::Remove(place, path));
        if self.chance(4) {
            self.run_one(place, &["undo", "commit", "undo --redo"]);
        }
        self.gc(place);
        self.run_one(
            place,
            &["push --force origin --all --tags", "push --force origin main", "push origin main"],
        );
        self.run_one(place, &["gc origin --now", "gc origin --now", "gc origin"]);
        let other = if place == "a" { "b" } else { "a" };
        for _ in 0..1 + self.rng.below(3) {
            self.run_one(
                other,
                &[
                    "push",
                    "push",
                    "push -n",
                    "push origin --all --tags",
                    "pull",
                    "commit",
                    "pull --force",
                    "gc",
                ],
            );
        }
    }

    /// Clones with a part of the objects, whose remote forgets commits.
    fn copies(&mut self) {
        let place = self.pick(&["shallow", "shallow", "partial"]);
        self.commit("a");
        self.commit("a");
        self.run("a", "push origin main");
        self.run(place, if place == "shallow" { "clone --depth 1" } else { "clone --path d" });
        self.maybe(place, "remote add other");
        self.forget("a");
        self.run_one(
            "a",
            &["gc", "gc --now", "gc origin --forgotten --now", "gc origin --forgotten --now"],
        );
        if self.chance(4) {
            self.wait();
            self.run("a", "gc origin --forgotten");
        }
        for _ in 0..1 + self.rng.below(4) {
            match self.rng.below(9) {
                0..3 => self.commit(place),
                3 => self.run(place, "pack main -f -o ../x.snap"),
                4 => self.run(place, "fetch"),
                5 => self.run_one(place, &["pull", "pull --force"]),
                _ => self.run_one(place, &["push", "push other main", "push origin main", "log"]),
            }
        }
    }

    /// A commit or a collection is halted while another command changes what it relies on.
    fn races(&mut self) {
        let place = self.place();
        self.write(place, "s");
        self.run(place, "commit");
        self.write(place, "n");
        let line = self.pick(&[
            "commit",
            "commit",
            "commit -b side",
            "gc",
            "restore main~1 --overwrite --yes",
        ]);
        let call = Call::new(place, line);
        let lines = [
            "rewrite --exclude s",
            "rewrite --exclude s",
            "undo",
            "forget main~1",
            "gc --now",
            "commit",
        ];
        let mut beside = vec![Call::new(place, self.pick(&lines))];
        if self.chance(3) {
            beside.push(Call::new(place, "gc"));
        }
        let (step, kill) = (1 + self.rng.below(STEPS), self.chance(6));
        self.ops.push(Op::Hold { call, step, beside, kill });
        self.gc(place);
        self.ops.push(Op::Remove(place, "s"));
        self.commit(place);
    }

    /// Changes of refs, and their undo.
    fn undoes(&mut self) {
        let place = self.place();
        for _ in 0..1 + self.rng.below(3) {
            self.run_one(
                place,
                &[
                    "branch side main~1",
                    "branch --force side main",
                    "branch --switch side",
                    "branch --switch main",
                    "branch -d side",
                    "tag --force v1 main~1",
                    "tag -d v1",
                    "undo",
                ],
            );
        }
        self.maybe(place, "commit");
        self.maybe(place, "undo");
        self.maybe(place, "undo --redo");
        self.wait();
        self.gc(place);
    }

    /// Bundles, and the project as a remote of the clone.
    fn bundles(&mut self) {
        let (from, to) = if self.chance(2) { ("a", "b") } else { ("b", "a") };
        self.commit(from);
        self.run_one(from, &["pack main -f -o ../x.snap", "pack side -f -o ../x.snap"]);
        self.run_one(to, &["unpack ../x.snap", "unpack ../x.snap -b imported"]);
        self.wait();
        self.gc(to);
        if self.chance(2) {
            self.run("b", "remote add peer");
            self.run_one(
                "b",
                &[
                    "push peer main",
                    "push --force peer side",
                    "pull peer main",
                    "push peer --delete side",
                ],
            );
            self.gc("a");
        }
    }

    /// A restore of another commit, and a commit of its files.
    fn restores(&mut self) {
        let place = self.place();
        self.run_one(
            place,
            &["restore main~1 --overwrite --yes", "restore main --overwrite --delete --yes"],
        );
        self.commit(place);
        self.run_one(place, &["pull --update", "push other main", "verify", "push"]);
        self.gc(place);
    }

    /// Adds operations, leaves some out, and halts some commands while the next ones run.
    fn thin_and_hold(&mut self, ops: Vec<Op>) {
        let mut ops = ops.into_iter();
        while let Some(op) = ops.next() {
            if self.chance(12) {
                continue;
            }
            let Op::Run(call) = op else {
                self.ops.push(op);
                continue;
            };
            if !self.chance(10) {
                self.ops.push(Op::Run(call));
                continue;
            }
            let mut beside = Vec::new();
            let mut after = None;
            for next in ops.by_ref().take(1 + self.rng.index(3)) {
                match next {
                    Op::Run(next) => beside.push(next),
                    other => {
                        after = Some(other);
                        break;
                    }
                }
            }
            let (step, kill) = (1 + self.rng.below(STEPS), self.chance(4));
            self.ops.push(Op::Hold { call, step, beside, kill });
            self.ops.extend(after);
        }
    }
}
