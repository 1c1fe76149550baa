//! All sequences of up to six events over two branches and one remote: no commit takes back what its
//! files did not contain.

use std::thread;

use snap_core::{
    base::{id::CommitId, time::Time},
    repo::{
        RefName,
        base_state::{self, Base, BaseEvent, BranchTip, RefFacts},
        ref_log::{RefLogEntry, RefValue},
    },
};
use snap_testkit::branch_world::{BRANCHES, EVENTS, Event, World};

/// The length of the longest sequence.
const LENGTH: usize = 6;

/// The world of the model beside the state of the program.
#[derive(Clone)]
struct State<'n> {
    names: &'n [RefName; BRANCHES],
    world: World,
    base: Base,
    log: Vec<RefLogEntry>,
    /// True if colleagues or restores changed something: then a refusal may be right.
    may_refuse: bool,
    /// True to record the base as an earlier version did: with the tip that a restore replaced.
    names_replaced: bool,
}

struct Facts<'s>(&'s World, &'s [RefLogEntry]);

impl RefFacts for Facts<'_> {
    fn parents(&self, id: &CommitId) -> Option<Vec<CommitId>> {
        let number = usize::from(id.as_bytes()[0]);
        Some(if number == 0 { Vec::new() } else { vec![id_of(self.0.commit(number).parent)] })
    }

    fn log(&self) -> &[RefLogEntry] {
        self.1
    }
}

/// Returns an id that holds the number of a commit.
fn id_of(number: usize) -> CommitId {
    let mut digest = [0; 32];
    digest[0] = u8::try_from(number).unwrap();
    CommitId::from_bytes(digest)
}

/// How the program treats a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Refused,
    /// The files contain the whole commit.
    OfFiles,
    /// The commit keeps changes of the branch that the files lack.
    Update,
}

impl<'n> State<'n> {
    fn new(names: &'n [RefName; BRANCHES]) -> Self {
        let base = Base::default().after(BaseEvent::Committed(id_of(0)));
        let mut new = Self {
            names,
            world: World::default(),
            base,
            log: Vec::new(),
            may_refuse: false,
            names_replaced: false,
        };
        new.line(0, base_state::COMMIT);
        new
    }

    fn newest(&self) -> Option<Time> {
        Some(Time { secs: i64::try_from(self.log.len()).unwrap(), nanos: 0 })
    }

    fn line(&mut self, new: usize, reason: &str) {
        let secs = i64::try_from(self.log.len()).unwrap() + 1;
        let (old, new) = (RefValue::Nothing, RefValue::Commit(id_of(new)));
        let (who, reason) = (String::new(), reason.to_owned());
        self.log.push(RefLogEntry { time: Time { secs, nanos: 0 }, old, new, who, reason });
    }

    fn verdict(&self, event: Event, branch: usize) -> Verdict {
        let facts = Facts(&self.world, &self.log);
        let tip = id_of(self.world.tips[branch]);
        let unseen = self.base.unseen(Some(&self.names[branch]), tip, &facts);
        match event {
            // The colleagues never changed this path.
            Event::CommitPath if unseen.has_replaced || !unseen.commits.is_empty() => {
                Verdict::Update
            }
            _ if unseen.commits.is_empty() => Verdict::OfFiles,
            _ => Verdict::Refused,
        }
    }

    /// Makes one event happen. With `is_killed`, a commit is killed before it writes the base.
    fn step(&mut self, event: Event, is_killed: bool) -> Result<(), String> {
        let mut is_refused = false;
        let mut verdict = None;
        let could_commit = self.verdict(Event::Commit, self.world.head) != Verdict::Refused;
        if let Some(branch) = self.world.target(event) {
            let now = self.verdict(event, branch);
            is_refused = now == Verdict::Refused;
            verdict = Some(now);
            if event != Event::CommitPath {
                match (is_refused, self.world.permits(branch)) {
                    (false, false) => return Err("it reverts what its files lack".to_owned()),
                    (true, _) if !self.may_refuse => return Err("it is refused".to_owned()),
                    _ => {}
                }
            }
        }
        self.may_refuse |= matches!(
            event,
            Event::Colleague(_) | Event::Restore(_) | Event::RestoreBack | Event::Killed(_)
        );
        if let Some(revision) = self.world.restored(event).map(id_of) {
            let (branch, newest) = (self.world.head, self.newest());
            let (name, tip) = (Some(&self.names[branch]), Some(id_of(self.world.tips[branch])));
            let over = BranchTip { branch: name, tip };
            let facts = &Facts(&self.world, &self.log);
            let starting = BaseEvent::Restoring { revision, over, newest, facts };
            self.base = self.base.after(starting);
            if !matches!(event, Event::Killed(_)) {
                self.base = self.base.after(BaseEvent::Restored { revision, newest });
            }
            if self.names_replaced {
                let replaced = self.base.replaced.take().map(|replaced| replaced.commits);
                self.base.commits.extend(replaced.unwrap_or_default());
                let commits = &self.base.commits;
                self.base.restored.iter_mut().for_each(|last| last.commits.clone_from(commits));
            }
        }
        let Some((_, new)) = self.world.apply(event, is_refused) else {
            return self.check_goes_on(event, is_refused, could_commit);
        };
        match verdict {
            Some(Verdict::OfFiles) => {
                self.line(new, base_state::COMMIT);
                if !is_killed {
                    self.base = self.base.after(BaseEvent::Committed(id_of(new)));
                }
            }
            Some(_) => self.line(new, base_state::UPDATE),
            None => self.line(new, "pull"),
        }
        self.check_goes_on(event, is_refused, could_commit)
    }

    /// After a whole restore of the current branch, or a commit to it, a commit is taken.
    fn check_goes_on(
        &self,
        event: Event,
        is_refused: bool,
        could_commit: bool,
    ) -> Result<(), String> {
        let head = self.world.head;
        let is_up_to_date = match event {
            Event::Restore(branch) => self.world.tips[branch] == self.world.tips[head],
            // Going back from what the files contain.
            Event::RestoreBack => could_commit,
            Event::Commit => !is_refused,
            _ => false,
        };
        match is_up_to_date && self.verdict(Event::Commit, head) == Verdict::Refused {
            true => Err("a commit after it is refused".to_owned()),
            false => Ok(()),
        }
    }
}

/// Visits all sequences that begin with `done`. Returns their number, or the first that breaks the
/// rule.
fn visit(state: &State<'_>, done: &mut Vec<(Event, bool)>, length: usize) -> Result<u64, String> {
    let mut count = 1;
    if done.len() == length {
        return Ok(count);
    }
    for event in EVENTS.into_iter().filter(|event| state.world.applies(*event)) {
        let is_whole = matches!(event, Event::Commit | Event::CommitOther);
        for is_killed in [false, true].into_iter().take(1 + usize::from(is_whole)) {
            let mut next = state.clone();
            done.push((event, is_killed));
            next.step(event, is_killed).map_err(|problem| format!("{problem}: {done:?}"))?;
            count += visit(&next, done, length)?;
            done.pop();
        }
    }
    Ok(count)
}

fn names() -> [RefName; BRANCHES] {
    ["main", "try"].map(|name| RefName::branch(name).unwrap())
}

#[test]
fn no_event_sequence_makes_a_commit_revert_foreign_changes() {
    let names = names();
    let start = State::new(&names);
    let counts: Vec<Result<u64, String>> = thread::scope(|scope| {
        let visits = EVENTS.map(|event| {
            let mut state = start.clone();
            scope.spawn(move || match state.world.applies(event) {
                true => {
                    state.step(event, false)?;
                    visit(&state, &mut vec![(event, false)], LENGTH)
                }
                false => Ok(0),
            })
        });
        visits.into_iter().map(|visit| visit.join().unwrap()).collect()
    });
    let count: u64 = counts.into_iter().map(Result::unwrap).sum();
    assert!(count > 100_000, "only {count} sequences");
}

#[test]
fn the_event_sequences_detect_a_wrong_base_after_a_restore() {
    let names = names();
    let start = State { names_replaced: true, ..State::new(&names) };
    let found = visit(&start, &mut Vec::new(), LENGTH).unwrap_err();
    assert!(found.starts_with("it reverts what its files lack"), "{found}");
}
