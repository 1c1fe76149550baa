//! Generates random sequences of operations.
//!
//! There are few paths and few contents, so that operations affect each other. Recently used paths
//! are more likely than others, because most faults need several steps on one file.

use snap_testkit::rng::Rng;

use crate::sequences::{
    features::Features,
    files::Filling,
    operation::{CommitArgs, DamageKind, FileOp, MountKind, Op, OwnFile, Place, RestoreArgs},
};

/// Paths of small files. Ignore rules name `*.tmp` and `ign/`.
const FILES: [&str; 12] =
    ["a", "b", "c", "d/a", "d/b", "d/e/c", "d/e/k", "x.tmp", "d/y.tmp", "ign/z", "m/f", "inner/h"];

/// Paths of folders, for renames, removals and commits of a path.
const FOLDERS: [&str; 5] = ["d", "d/e", "ign", "inner", "m"];

/// Folders that get a link called `.snap`, and in which commits run. The first is not in a partial
/// clone.
const LINKED: [&str; 3] = ["inner", "d", "d/e"];

/// Contents of `.snapignore`.
const IGNORE: [&[&str]; 4] = [&[], &["*.tmp"], &["ign/"], &["*.tmp", "ign/"]];

/// Number of contents of small files.
const CONTENTS: u64 = 16;

/// Minimum and maximum number of steps in a sequence.
const STEPS: (usize, usize) = (12, 40);

/// Steps at which a commit may be killed; about as many as one with a merge of packs has.
const STEPS_OF_COMMIT: u64 = 60;

/// The main subject of a sequence, so that rare operations of one subject occur together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Theme {
    /// Changes of files that are hard to detect.
    Changes,
    /// Restores over existing files.
    Restores,
    /// Lost or damaged packs.
    Damage,
    /// Clones, pushes and pulls.
    Remotes,
    /// A partial clone of one path.
    Partial,
}

/// All themes.
const THEMES: [Theme; 5] =
    [Theme::Changes, Theme::Restores, Theme::Damage, Theme::Remotes, Theme::Partial];

struct Generator<'f> {
    rng: Rng,
    theme: Theme,
    features: &'f Features,
    recent: Vec<String>,
}

/// Generates the sequence for `seed`.
pub(crate) fn sequence(seed: u64, features: &Features) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let theme = THEMES[rng.index(THEMES.len())];
    let steps = STEPS.0 + rng.index(STEPS.1 - STEPS.0 + 1);
    let mut generator = Generator { rng, theme, features, recent: Vec::new() };
    let mut ops = Vec::new();
    // Most operations need files, and many need a commit of them.
    for path in ["a", "d/a"] {
        let filling = generator.filling();
        ops.push(Op::File(Place::Project, FileOp::Write(path.to_owned(), filling)));
    }
    if matches!(theme, Theme::Remotes | Theme::Partial) {
        let commit = Op::Commit(Place::Project, CommitArgs::default());
        ops.extend([commit, Op::Push(Place::Project)]);
        let place = if theme == Theme::Partial { Place::Partial } else { Place::Clone };
        ops.push(Op::Clone(place));
    }
    while ops.len() < steps {
        generator.step(&mut ops);
    }
    ops
}

impl Generator<'_> {
    /// Returns true with a probability of 1 in `times`.
    fn chance(&mut self, times: u64) -> bool {
        self.rng.below(times) == 0
    }

    /// Returns true with a probability of 1 in `times`, if the program has the option.
    fn option(&mut self, name: &'static str, times: u64) -> bool {
        let wanted = self.chance(times);
        wanted && self.features.has(name)
    }

    fn place(&mut self) -> Place {
        match (self.theme, self.rng.below(6)) {
            (Theme::Remotes, 0..3) => Place::Clone,
            (Theme::Partial, 0..4) => Place::Partial,
            _ => Place::Project,
        }
    }

    fn filling(&mut self) -> Filling {
        Filling { number: self.rng.below(CONTENTS), large: self.chance(25) }
    }

    /// Returns a path of a file in the scope of the place.
    fn file(&mut self, place: Place) -> String {
        let recent = (!self.recent.is_empty() && !self.chance(3)).then(|| {
            let last = self.recent.len().min(3);
            self.recent[self.recent.len() - 1 - self.rng.index(last)].clone()
        });
        let any = FILES[self.rng.index(FILES.len())].to_owned();
        let path = recent.unwrap_or(any);
        let path = if place == Place::Partial && !path.starts_with("d/") {
            ["d/a", "d/b", "d/e/c"][self.rng.index(3)].to_owned()
        } else {
            path
        };
        self.recent.push(path.clone());
        path
    }

    fn folder(&mut self, place: Place) -> String {
        if place == Place::Partial {
            return "d/e".to_owned();
        }
        FOLDERS[self.rng.index(FOLDERS.len())].to_owned()
    }

    /// Returns a path of a file or a folder.
    fn path(&mut self, place: Place) -> String {
        if self.chance(4) { self.folder(place) } else { self.file(place) }
    }

    fn step(&mut self, ops: &mut Vec<Op>) {
        let place = self.place();
        match self.rng.below(100) {
            0..42 => {
                let op = self.file_op(place);
                ops.push(Op::File(place, op));
            }
            42..50 => ops.push(Op::Settle),
            50..68 => self.commit(place, ops),
            68..74 => self.commit_plainly(place, ops),
            _ => self.themed(place, ops),
        }
    }

    /// Adds a commit of everything, sometimes after waiting for the times to settle.
    fn commit_plainly(&mut self, place: Place, ops: &mut Vec<Op>) {
        if self.chance(2) {
            ops.push(Op::Settle);
        }
        ops.push(Op::Commit(place, CommitArgs::default()));
    }

    fn commit(&mut self, place: Place, ops: &mut Vec<Op>) {
        let mut args = CommitArgs {
            checksum: self.option("commit --checksum", 10),
            side: self.chance(12),
            onto_tip: self.option("commit --onto-tip", 6),
            exclude: self.chance(6),
            one_file_system: self.chance(6),
            allow_empty: self.chance(12),
            dry_run: self.chance(12),
            year: self.chance(15).then(|| if self.chance(2) { 2099 } else { 2001 }),
            ..CommitArgs::default()
        };
        if self.chance(8) {
            args.within = Some(LINKED[self.rng.index(LINKED.len())]);
        } else if self.chance(6) {
            let count = 1 + self.rng.index(2);
            args.paths = (0..count).map(|_| self.path(place)).collect();
        }
        if self.chance(3) {
            ops.push(Op::Settle);
        }
        ops.push(Op::Commit(place, args));
    }

    fn file_op(&mut self, place: Place) -> FileOp {
        match self.rng.below(22) {
            0..6 => FileOp::Write(self.file(place), self.filling()),
            6..11 => {
                let filling = Filling { large: false, ..self.filling() };
                FileOp::Rewrite(self.file(place), filling, self.rng.below(3) > 0)
            }
            11..14 => {
                let from = self.path(place);
                FileOp::Rename(from, self.file(place))
            }
            14 => {
                let from = self.file(place);
                FileOp::Link(from, self.file(place))
            }
            15 => FileOp::Remove(self.path(place)),
            16 => {
                let modes = [0o644, 0o600, 0o755, 0o750];
                let mode = modes[self.rng.index(modes.len())];
                FileOp::Chmod(self.file(place), mode)
            }
            17 => match self.rng.below(4) {
                0 => FileOp::Touch(self.file(place), self.rng.below(3)),
                1 => FileOp::Symlink(self.file(place), self.file(place)),
                _ => FileOp::Attribute(self.file(place), self.rng.below(3) as u8),
            },
            18 if self.chance(2) => {
                let within = if place == Place::Partial { 1 } else { 0 };
                let folder = LINKED[within + self.rng.index(LINKED.len() - within)];
                FileOp::StoreLink(folder.to_owned())
            }
            19 => FileOp::Immutable(self.path(place), !self.chance(4)),
            20 if place != Place::Partial => FileOp::Ignore(IGNORE[self.rng.index(IGNORE.len())]),
            _ if place != Place::Partial && self.chance(2) => {
                let path = if self.chance(2) { "inner" } else { "d/e" };
                if self.option("lookalike folders", 3) {
                    FileOp::Lookalike(path.to_owned())
                } else {
                    FileOp::Nest(path.to_owned())
                }
            }
            _ => FileOp::Write(self.file(place), self.filling()),
        }
    }

    /// Adds an operation of the sequence's theme.
    fn themed(&mut self, place: Place, ops: &mut Vec<Op>) {
        let theme = if self.chance(4) { THEMES[self.rng.index(THEMES.len())] } else { self.theme };
        match theme {
            Theme::Changes => self.hidden_change(place, ops),
            Theme::Restores if place != Place::Partial => match self.rng.below(10) {
                0 => ops.push(Op::Mount(place, Some(MountKind::Memory))),
                1 => ops.push(Op::Mount(place, Some(MountKind::Bind))),
                2 if self.chance(2) => ops.push(Op::Mount(place, None)),
                3 => self.attributes(place, ops),
                4 => self.store_link(place, ops),
                5 => self.refusal(place, ops),
                _ => {
                    let args = self.restore(place);
                    ops.push(Op::Restore(place, args));
                }
            },
            Theme::Restores => {
                let args = RestoreArgs { path: Some("d".to_owned()), ..self.restore(place) };
                ops.push(Op::Restore(place, args));
            }
            Theme::Damage => self.damage(place, ops),
            Theme::Remotes | Theme::Partial => match self.rng.below(10) {
                0..3 => ops.push(Op::Push(place)),
                3..6 => ops.push(Op::Pull(place)),
                6 => ops.push(Op::Clone(Place::Clone)),
                7 => ops.push(Op::Clone(Place::Partial)),
                8 => self.branches(ops),
                _ => {
                    let number = self.rng.below(CONTENTS);
                    ops.push(Op::Forge(Place::Hub, number));
                    ops.push(if self.chance(2) { Op::Pull(place) } else { Op::Clone(place) });
                    self.commit_large(place, number, ops);
                }
            },
        }
    }

    /// Writes a large file, and commits it.
    fn commit_large(&mut self, place: Place, number: u64, ops: &mut Vec<Op>) {
        let write = FileOp::Write(self.file(place), Filling { number, large: true });
        ops.extend([Op::File(place, write), Op::Commit(place, CommitArgs::default())]);
    }

    /// Changes attributes of what is committed, and restores it without `--overwrite`.
    fn attributes(&mut self, place: Place, ops: &mut Vec<Op>) {
        ops.push(Op::Commit(place, CommitArgs::default()));
        let (folder, file) = (self.folder(place), self.file(place));
        let change = match self.chance(2) {
            true => FileOp::Chmod(file, 0o700),
            false => FileOp::Attribute(file, self.rng.below(3) as u8),
        };
        let args = RestoreArgs { back: self.rng.below(2), ..RestoreArgs::default() };
        ops.extend([
            Op::File(place, FileOp::Chmod(folder, 0o700)),
            Op::File(place, change),
            Op::Restore(place, args),
        ]);
    }

    /// Commits a link called `.snap`. Then restores or clones it, and commits beside it.
    fn store_link(&mut self, place: Place, ops: &mut Vec<Op>) {
        let folder = LINKED[self.rng.index(LINKED.len())];
        let link = format!("{folder}/.snap");
        ops.extend([
            Op::File(place, FileOp::StoreLink(folder.to_owned())),
            Op::Commit(place, CommitArgs::default()),
        ]);
        if self.chance(3) {
            ops.extend([Op::Push(place), Op::Clone(Place::Clone)]);
        }
        let beside = CommitArgs { within: Some(folder), ..CommitArgs::default() };
        let args = RestoreArgs { overwrite: self.chance(2), ..RestoreArgs::default() };
        let mut steps = vec![
            Op::Commit(place, beside),
            Op::File(place, FileOp::Remove(link)),
            Op::Restore(place, args),
        ];
        // The commit meets the link, or what the restore made of it.
        steps.rotate_left(self.rng.index(2));
        ops.extend(steps);
    }

    /// Makes a changed file or folder immutable, and restores an older commit over it.
    fn refusal(&mut self, place: Place, ops: &mut Vec<Op>) {
        let (path, file) = (self.path(place), self.file(place));
        let write = FileOp::Write(file, self.filling());
        ops.extend([
            Op::Commit(place, CommitArgs::default()),
            Op::File(place, write),
            Op::File(place, FileOp::Immutable(path.clone(), true)),
            Op::Restore(place, RestoreArgs { overwrite: true, yes: true, ..self.restore(place) }),
            Op::File(place, FileOp::Immutable(path, false)),
        ]);
    }

    /// Pulls a colleague's commit into the clone and restores it. Then restores an older commit,
    /// switches to another branch and commits, in any order, and goes back.
    fn branches(&mut self, ops: &mut Vec<Op>) {
        let (place, colleague) = (Place::Clone, Place::Project);
        let whole = |back| {
            let (overwrite, delete, yes) = (true, true, true);
            Op::Restore(place, RestoreArgs { back, overwrite, delete, yes, ..Default::default() })
        };
        let side = Op::Commit(place, CommitArgs { side: true, ..CommitArgs::default() });
        let onto_tip = Op::Commit(colleague, CommitArgs { onto_tip: true, ..Default::default() });
        let has_side_first = self.chance(2);
        ops.extend([Op::Clone(place), Op::Switch(place, "main")]);
        ops.extend(has_side_first.then(|| side.clone()));
        ops.extend([Op::Push(place), Op::Pull(colleague)]);
        ops.extend([self.change(colleague), onto_tip, Op::Push(colleague)]);
        ops.extend([Op::Pull(place), whole(0)]);
        ops.extend((!has_side_first).then_some(side));
        let mut steps = vec![
            vec![whole(1 + self.rng.below(3))],
            vec![Op::Switch(place, "side")],
            vec![self.change(place), Op::Commit(place, CommitArgs::default())],
        ];
        while !steps.is_empty() {
            ops.extend(steps.remove(self.rng.index(steps.len())));
        }
        ops.extend([Op::Switch(place, "main"), self.change(place)]);
        ops.push(Op::Commit(place, CommitArgs::default()));
    }

    /// Returns a change of one file.
    fn change(&mut self, place: Place) -> Op {
        Op::File(place, FileOp::Write(self.file(place), self.filling()))
    }

    fn hidden_change(&mut self, place: Place, ops: &mut Vec<Op>) {
        match self.rng.below(8) {
            0 => ops.push(Op::Burst(place, self.rng.below(CONTENTS))),
            1 => ops.push(Op::Undo(place, self.chance(3))),
            2 => ops.push(Op::Status(place)),
            3 => ops.push(Op::Kill(place, 1 + self.rng.below(STEPS_OF_COMMIT))),
            4 => ops.push(Op::Verify(place, true)),
            _ => {
                // Moves or links a committed file and changes it without a visible change of its
                // times.
                let path = self.file(place);
                let filling = Filling { large: false, ..self.filling() };
                if self.chance(2) {
                    let other = self.file(place);
                    let (from, to) = (path.clone(), other.clone());
                    let op = if self.chance(3) {
                        FileOp::Link(from, to)
                    } else {
                        FileOp::Rename(from, to)
                    };
                    ops.push(Op::File(place, op));
                }
                let changed = self.recent.last().cloned().unwrap_or(path);
                let keep_mtime = !self.chance(4);
                ops.push(Op::File(place, FileOp::Rewrite(changed.clone(), filling, keep_mtime)));
                if self.chance(2) {
                    ops.push(Op::Commit(place, CommitArgs::default()));
                }
                if self.chance(3) {
                    let to = self.file(place);
                    ops.push(Op::File(place, FileOp::Rename(changed, to)));
                    self.commit_plainly(place, ops);
                }
            }
        }
    }

    fn restore(&mut self, place: Place) -> RestoreArgs {
        let delete = self.chance(2);
        RestoreArgs {
            back: self.rng.below(4),
            path: self.chance(5).then(|| self.path(place)),
            elsewhere: self.chance(5),
            overwrite: delete || !self.chance(3),
            delete,
            delete_excluded: delete && self.option("restore --delete-excluded", 4),
            dry_run: self.chance(8),
            yes: self.option("restore --yes", 2),
            checksum: self.chance(8),
            exclude: self.chance(10),
        }
    }

    fn damage(&mut self, place: Place, ops: &mut Vec<Op>) {
        let place = if place == Place::Partial { Place::Project } else { place };
        match self.rng.below(12) {
            11 => {
                let number = self.rng.below(CONTENTS);
                ops.push(Op::Forge(place, number));
                self.commit_large(place, number, ops);
            }
            0 => ops.push(Op::Drop(place, if self.chance(2) { "cache" } else { "index" })),
            1..4 => {
                let kind = match self.rng.below(4) {
                    0..2 => DamageKind::Lose,
                    2 => DamageKind::Flip(self.rng.below(1000)),
                    _ => DamageKind::Truncate,
                };
                ops.push(Op::Damage(place, self.rng.below(6), kind));
                if self.chance(2) {
                    ops.push(Op::Verify(place, self.chance(2)));
                }
                if self.chance(2) {
                    ops.push(Op::Commit(place, CommitArgs::default()));
                }
            }
            4..6 => ops.push(Op::Verify(place, !self.chance(3))),
            6 => ops.push(Op::Burst(place, self.rng.below(CONTENTS))),
            7 => ops.push(Op::Push(place)),
            8 => ops.push(Op::Repair(place, !self.chance(3))),
            9 => {
                let file = OwnFile::ALL[self.rng.index(OwnFile::ALL.len())];
                ops.push(Op::LoseFile(place, file));
            }
            _ => {
                let args = self.restore(place);
                ops.push(Op::Restore(place, args));
            }
        }
    }
}
