//! A model of a project with two branches and one remote: which changes the files, each commit and
//! each branch contain.
//!
//! Each commit adds one change, which is one file. The model states the rule that tests compare the
//! program with: *a commit takes back only what its files contained.* It knows no histories, logs
//! or times, only changes.

/// The number of branches.
pub const BRANCHES: usize = 2;

/// The largest number of commits in a world.
const COMMITS: usize = 10;

/// A set of changes, one bit for each.
pub type Changes = u16;

/// An event in the project or at a colleague. "Other" means the branch that is not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Adds a file, and commits all files to the current branch.
    Commit,
    /// Adds a file, and commits all files to the other branch.
    CommitOther,
    /// Adds a file, and commits it alone to the current branch.
    CommitPath,
    /// Switches to the other branch.
    Switch,
    /// Restores the last commit of a branch, with `--overwrite --delete`.
    Restore(usize),
    /// Restores the commit before the last one of the current branch.
    RestoreBack,
    /// Begins to restore the last commit of a branch, and is killed in the middle.
    Killed(usize),
    /// A colleague commits to a branch of the remote.
    Colleague(usize),
    /// Pulls the current branch.
    Pull,
    /// Pushes the current branch.
    Push,
    /// Takes back the last change of the current branch.
    Undo,
}

/// All events.
pub const EVENTS: [Event; 14] = [
    Event::Commit,
    Event::CommitOther,
    Event::CommitPath,
    Event::Switch,
    Event::Restore(0),
    Event::Restore(1),
    Event::RestoreBack,
    Event::Killed(0),
    Event::Killed(1),
    Event::Colleague(0),
    Event::Colleague(1),
    Event::Pull,
    Event::Push,
    Event::Undo,
];

/// A commit of the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelCommit {
    /// The parent; the first commit is its own.
    pub parent: usize,
    /// The changes in its files.
    pub present: Changes,
    /// These, and the changes that it or an earlier commit took back on purpose.
    accounted: Changes,
}

/// What the files of the project contain.
#[derive(Clone, Copy, Debug, Default)]
struct Files {
    /// The changes that are certainly there.
    present: Changes,
    /// These, and those that a commit in their history took back on purpose.
    accounted: Changes,
}

/// The state of the project and its remote.
#[derive(Clone, Copy, Debug)]
pub struct World {
    commits: [ModelCommit; COMMITS],
    count: usize,
    /// The last commit of each branch of the project.
    pub tips: [usize; BRANCHES],
    /// The last commit of each branch of the remote.
    pub remote: [usize; BRANCHES],
    /// The current branch.
    pub head: usize,
    files: Files,
    /// Changes that the last restore took out of the files, and the branch that was current then.
    /// The next commit to that branch takes them back on purpose, if no other commit comes first.
    replaced: Option<(usize, Changes)>,
    /// The earlier tips of each branch.
    past: [[usize; COMMITS]; BRANCHES],
    past_len: [usize; BRANCHES],
    /// True if a killed restore left files that the model does not know.
    pub is_cut: bool,
}

impl Default for World {
    /// A project with one commit, which both branches and the remote have.
    fn default() -> Self {
        let mut commits = [ModelCommit::default(); COMMITS];
        commits[0] = ModelCommit { parent: 0, present: 1, accounted: 1 };
        Self {
            commits,
            count: 1,
            tips: [0; BRANCHES],
            remote: [0; BRANCHES],
            head: 0,
            files: Files { present: 1, accounted: 1 },
            replaced: None,
            past: [[0; COMMITS]; BRANCHES],
            past_len: [0; BRANCHES],
            is_cut: false,
        }
    }
}

impl World {
    /// Returns a commit.
    pub fn commit(&self, id: usize) -> ModelCommit {
        self.commits[id]
    }

    /// Returns the number of commits. The next one gets this number.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the changes that the files certainly contain.
    pub fn present(&self) -> Changes {
        self.files.present
    }

    /// Returns the branch that the event commits to, if it is a commit.
    pub fn target(&self, event: Event) -> Option<usize> {
        match event {
            Event::Commit | Event::CommitPath => Some(self.head),
            Event::CommitOther => Some(1 - self.head),
            _ => None,
        }
    }

    /// Returns the commit that the event restores, if it is a restore.
    pub fn restored(&self, event: Event) -> Option<usize> {
        match event {
            Event::Restore(branch) | Event::Killed(branch) => Some(self.tips[branch]),
            Event::RestoreBack => Some(self.commits[self.tips[self.head]].parent),
            _ => None,
        }
    }

    /// Returns true if the event does something that no other event does.
    pub fn applies(&self, event: Event) -> bool {
        let (tip, there) = (self.tips[self.head], self.remote[self.head]);
        match event {
            Event::Restore(branch) | Event::Killed(branch) => {
                // With equal tips both branches restore the same.
                branch == 0 || self.tips[0] != self.tips[1]
            }
            Event::RestoreBack => tip != 0,
            Event::Pull => tip != there && self.descends(there, tip),
            Event::Push => tip != there && self.descends(tip, there),
            Event::Undo => self.past_len[self.head] > 0,
            _ => true,
        }
    }

    fn descends(&self, mut id: usize, from: usize) -> bool {
        while id > from {
            id = self.commits[id].parent;
        }
        id == from
    }

    /// Returns true if the rule permits the commit of all files to a branch.
    pub fn permits(&self, branch: usize) -> bool {
        self.commits[self.tips[branch]].accounted & !self.known_on(branch) == 0
    }

    /// Returns the changes that a commit to the branch may lack or contains.
    fn known_on(&self, branch: usize) -> Changes {
        self.files.accounted | self.replaced_on(branch)
    }

    fn replaced_on(&self, branch: usize) -> Changes {
        match self.replaced {
            Some((on, changes)) if on == branch => changes,
            _ => 0,
        }
    }

    /// Makes an event happen that [applies](World::applies). A commit of all files that the program
    /// refused leaves its new file uncommitted. Returns the new tip of a branch that moved.
    ///
    /// # Panics
    /// After more than nine commits.
    pub fn apply(&mut self, event: Event, is_refused: bool) -> Option<(usize, usize)> {
        match event {
            Event::Switch => self.head = 1 - self.head,
            Event::Restore(_) | Event::RestoreBack | Event::Killed(_) => {
                let commit = self.commits[self.restored(event).unwrap_or_default()];
                let tip = self.commits[self.tips[self.head]].accounted;
                self.replaced = Some((self.head, tip & self.known_on(self.head)));
                self.is_cut = matches!(event, Event::Killed(_));
                let before = self.files;
                self.files = Files { present: commit.present, accounted: commit.accounted };
                if self.is_cut {
                    self.files.present &= before.present;
                    self.files.accounted &= before.accounted;
                }
            }
            Event::Colleague(branch) => {
                let parent = self.remote[branch];
                let commit = self.commits[parent];
                let change = 1 << self.count;
                let (present, accounted) = (commit.present | change, commit.accounted | change);
                self.remote[branch] = self.add(ModelCommit { parent, present, accounted });
            }
            Event::Pull => return Some(self.move_to(self.head, self.remote[self.head])),
            Event::Push => self.remote[self.head] = self.tips[self.head],
            Event::Undo => {
                let branch = self.head;
                self.past_len[branch] -= 1;
                self.tips[branch] = self.past[branch][self.past_len[branch]];
                return Some((branch, self.tips[branch]));
            }
            Event::Commit | Event::CommitOther | Event::CommitPath => {
                let branch = self.target(event).unwrap_or_default();
                let change = 1 << self.count;
                self.files.present |= change;
                self.files.accounted |= change;
                let parent = self.tips[branch];
                let on = self.commits[parent];
                if is_refused {
                    // Uses up the number, so that no later commit has the same change.
                    self.add(ModelCommit::default());
                    return None;
                }
                let commit = match event {
                    Event::CommitPath => {
                        let (present, accounted) = (on.present | change, on.accounted | change);
                        if on.accounted & !self.files.accounted == 0 {
                            self.replaced = None;
                        }
                        ModelCommit { parent, present, accounted }
                    }
                    _ => {
                        self.files.accounted |= on.accounted;
                        self.replaced = None;
                        let Files { present, accounted } = self.files;
                        ModelCommit { parent, present, accounted }
                    }
                };
                let id = self.add(commit);
                return Some(self.move_to(branch, id));
            }
        }
        None
    }

    fn add(&mut self, commit: ModelCommit) -> usize {
        self.commits[self.count] = commit;
        self.count += 1;
        self.count - 1
    }

    fn move_to(&mut self, branch: usize, id: usize) -> (usize, usize) {
        self.past[branch][self.past_len[branch]] = self.tips[branch];
        self.past_len[branch] += 1;
        self.tips[branch] = id;
        (branch, id)
    }
}
