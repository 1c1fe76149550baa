//! Decides which commits stay, and why.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
};

use crate::{
    base::{
        blocked::Blocked,
        id::{CommitId, ObjectId},
        observe::{Observer, Phase},
        time::Time,
    },
    format::pack::ObjectKind,
    ops::{
        forget::{
            KeepPolicy, Rule,
            policy::{RuleFacts, rules_of},
            until_settled_in,
        },
        gc::Live,
        reach,
        removal_error::RemovalError,
    },
    repo::{
        Pointer, Repo,
        history::{self, History, HistoryStep, Parents},
        ref_name::{RefKind, RefName},
        roots::{Root, RootChoice, RootOrigin, Roots},
    },
    store::DiskUsageSum,
};

/// The label of commits that never go.
const KEEP_LABEL: &str = "keep";

/// Most characters of a message that a plan holds.
const MESSAGE_CHARS: usize = 200;

/// Which commits a user wants to forget.
#[derive(Clone, Debug)]
pub enum ForgetChoice {
    /// These commits.
    Commits(Vec<CommitId>),
    /// What a policy does not keep.
    Policy {
        policy: KeepPolicy,
        /// The branches to which it applies; empty for all.
        branches: Vec<RefName>,
        group_by: GroupBy,
        /// True if the policy may keep only the tips of branches.
        allows_only_tips: bool,
    },
}

/// The groups of commits to which a policy applies one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// The history of each branch.
    #[default]
    Branch,
    /// The commits of each machine.
    Host,
    /// The commits with the same value of this label.
    Label(String),
}

/// Why a commit stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// A branch points at it.
    Tip(RefName),
    /// A tag points at it.
    Tag(RefName),
    /// `HEAD` points at it.
    Head,
    /// The files of the project come from it.
    Base,
    /// It has the label `keep`.
    KeepLabel,
    /// It is dated in the future, so a clock is or was wrong.
    Future,
    /// It is also in the history of this branch, to which the policy does not apply.
    OtherBranch(RefName),
    /// A rule of the policy.
    Rule(Rule),
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tip(name) => write!(f, "tip of {}", name.short()),
            Self::Tag(name) => write!(f, "tag {}", name.short()),
            Self::Head => f.write_str("HEAD"),
            Self::Base => f.write_str("the project's files come from it"),
            Self::KeepLabel => f.write_str("label keep"),
            Self::Future => f.write_str("dated in the future"),
            Self::OtherBranch(name) => write!(f, "also in {}", name.short()),
            Self::Rule(Rule::Last) => f.write_str("last"),
            Self::Rule(Rule::Newest(period)) => f.write_str(period.adverb()),
            Self::Rule(Rule::Within) => f.write_str("within"),
            Self::Rule(Rule::NewestWithin(period)) => write!(f, "within {}", period.adverb()),
            Self::Rule(Rule::Label(key)) => write!(f, "label {key}"),
            Self::Rule(Rule::All) => f.write_str("below the limit"),
        }
    }
}

/// Why a commit is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgetCause {
    /// The user named it.
    Named,
    /// No rule keeps it.
    NoRule,
    /// A rule keeps it, but it takes the commits above the limit of bytes.
    AboveLimit,
}

impl fmt::Display for ForgetCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named => "named",
            Self::NoRule => "no rule keeps it",
            Self::AboveLimit => "above the limit",
        })
    }
}

/// A commit of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCommit {
    pub id: CommitId,
    pub time: Time,
    pub host: String,
    /// The start of the first line of the message.
    pub message: String,
    /// Why the commit stays. Without a reason it is forgotten.
    pub reasons: Vec<KeepReason>,
    /// Why the commit is forgotten, if it has no reason to stay.
    pub cause: ForgetCause,
    /// The bytes that the commit takes in the store and no commit that stays, or that goes later,
    /// takes as well. `None` if they were not computed.
    pub bytes: Option<u64>,
}

/// What a `forget` will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgetPlan {
    /// All commits to which the choice applies, newest first.
    pub commits: Vec<PlannedCommit>,
    /// The bytes of all commits of the store that stay, if they were computed.
    pub kept_bytes: Option<u64>,
    /// Number of commits that were forgotten before.
    pub forgotten_before: u64,
}

impl ForgetPlan {
    /// Returns the commits to forget.
    pub fn forgotten(&self) -> BTreeSet<CommitId> {
        let gone = self.commits.iter().filter(|commit| commit.reasons.is_empty());
        gone.map(|commit| commit.id).collect()
    }

    /// Returns the bytes that the forgotten commits take, if they were computed.
    pub fn forgotten_bytes(&self) -> Option<u64> {
        self.kept_bytes?;
        let gone = self.commits.iter().filter(|commit| commit.reasons.is_empty());
        gone.map(|commit| commit.bytes).sum()
    }
}

/// The commits that never go, because something other than history points at them.
#[derive(Debug, Default)]
pub(super) struct Protected {
    reasons: BTreeMap<CommitId, Vec<KeepReason>>,
}

impl Protected {
    /// Reads the refs and the base of the project.
    ///
    /// # Errors
    /// [`RemovalError::Ref`] if a ref cannot be read.
    pub(super) fn read(repo: &Repo) -> Result<Self, RemovalError> {
        let mut protected = Self::default();
        for Root { id, origin } in Roots::read(repo, RootChoice::Needed)?.complete()?.iter() {
            let reasons = protected.reasons.entry(*id).or_default();
            reasons.push(match origin {
                RootOrigin::Pointer(Pointer::Head) => KeepReason::Head,
                RootOrigin::Pointer(Pointer::Ref(name)) if name.kind() == RefKind::Tag => {
                    KeepReason::Tag(name.clone())
                }
                RootOrigin::Pointer(Pointer::Ref(name)) | RootOrigin::Lost(name) => {
                    KeepReason::Tip(name.clone())
                }
                RootOrigin::Base if reasons.is_empty() => KeepReason::Base,
                RootOrigin::Base
                | RootOrigin::Tracking(_)
                | RootOrigin::Misnamed
                | RootOrigin::Former => continue,
            });
        }
        Ok(protected)
    }

    /// Returns the reasons for which a commit never goes.
    pub(super) fn reasons(&self, id: &CommitId) -> &[KeepReason] {
        self.reasons.get(id).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Decides which commits stay. `offset_secs` returns the offset of the local time from UTC at a
/// time. Reads no trees, unless `sizes` is true or the policy limits the bytes.
///
/// # Errors
/// [`RemovalError`].
pub fn plan(
    repo: &Repo,
    choice: &ForgetChoice,
    present: Time,
    offset_secs: &dyn Fn(Time) -> i64,
    sizes: bool,
    observer: &dyn Observer,
) -> Result<ForgetPlan, RemovalError> {
    reach::check_refs(repo, observer)?;
    if let Some(lacks) = repo.partial_clone()? {
        return Err(Blocked::Partial { action: "forget commits", lacks }.into());
    }
    let plan = until_settled_in(repo, || {
        plan_once(repo, choice, present, offset_secs, sizes, observer).map(Some)
    })?;
    plan.ok_or(Blocked::Contended { action: "began a collection" }.into())
}

/// Plans with one view of the refs.
fn plan_once(
    repo: &Repo,
    choice: &ForgetChoice,
    present: Time,
    offset_secs: &dyn Fn(Time) -> i64,
    sizes: bool,
    observer: &dyn Observer,
) -> Result<ForgetPlan, RemovalError> {
    observer.phase(Phase::History, None);
    let mut planner =
        Planner { repo, protected: Protected::read(repo)?, present, plan: ForgetPlan::default() };
    match choice {
        ForgetChoice::Commits(ids) => planner.add_named(ids)?,
        ForgetChoice::Policy { policy, branches, group_by, .. } => {
            planner.add_by_policy(policy, branches, group_by, offset_secs, observer)?;
        }
    }
    let mut plan = planner.plan;
    let max_bytes = match choice {
        ForgetChoice::Policy { policy, .. } => policy.max_bytes,
        ForgetChoice::Commits(_) => None,
    };
    if sizes || max_bytes.is_some() {
        plan.measure(repo, max_bytes, observer)?;
    }
    if let ForgetChoice::Policy { allows_only_tips: false, .. } = choice {
        plan.check_keeps_more_than_tips()?;
    }
    Ok(plan)
}

struct Planner<'a> {
    repo: &'a Repo,
    protected: Protected,
    present: Time,
    plan: ForgetPlan,
}

/// A commit of the history of all branches.
struct Known {
    step: HistoryStep,
    /// Numbers of the branches whose history has the commit, in the order of their names.
    branches: Vec<usize>,
}

impl Planner<'_> {
    /// Returns the reasons for which a commit stays in any case.
    fn own_reasons(&self, step: &HistoryStep) -> Vec<KeepReason> {
        let mut reasons = self.protected.reasons(&step.id).to_vec();
        if step.commit.labels.contains_key(KEEP_LABEL) {
            reasons.push(KeepReason::KeepLabel);
        }
        if step.commit.time > self.present {
            reasons.push(KeepReason::Future);
        }
        reasons
    }

    fn add(&mut self, step: HistoryStep, reasons: Vec<KeepReason>, cause: ForgetCause) {
        let HistoryStep { id, commit, .. } = step;
        let line = commit.message.lines().next().unwrap_or_default();
        let message = line.chars().take(MESSAGE_CHARS).collect();
        let (time, host) = (commit.time, commit.host);
        let bytes = None;
        self.plan.commits.push(PlannedCommit { id, time, host, message, reasons, cause, bytes });
    }

    fn add_named(&mut self, ids: &[CommitId]) -> Result<(), RemovalError> {
        let mut named = HashSet::new();
        for id in ids.iter().filter(|id| named.insert(**id)) {
            let store = self.repo.store();
            if store.is_forgotten(id)? && store.has_link(id)? {
                self.plan.forgotten_before += 1;
                continue;
            }
            let step = HistoryStep { id: *id, commit: store.commit(id)?, is_forgotten: false };
            // A user who names a commit dated in the future wants to forget that one.
            let is_reason = |reason: &KeepReason| *reason != KeepReason::Future;
            if let Some(reason) = self.own_reasons(&step).into_iter().find(is_reason) {
                return Err(RemovalError::Protected { id: *id, reason });
            }
            self.add(step, Vec::new(), ForgetCause::Named);
        }
        self.plan.commits.sort_by_key(|commit| std::cmp::Reverse(commit.time));
        Ok(())
    }

    fn add_by_policy(
        &mut self,
        policy: &KeepPolicy,
        chosen: &[RefName],
        group_by: &GroupBy,
        offset_secs: &dyn Fn(Time) -> i64,
        observer: &dyn Observer,
    ) -> Result<(), RemovalError> {
        let branches = self.repo.refs().list(RefKind::Branch)?;
        let is_chosen: Vec<bool> =
            branches.iter().map(|(name, _)| chosen.is_empty() || chosen.contains(name)).collect();
        let known = self.read_history(&branches, observer)?;
        // Groups of positions in `known`, newest commit first.
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, Known { step, branches: own }) in known.iter().enumerate() {
            // Commits dated in the future neither count nor go.
            if step.is_forgotten || step.commit.time > self.present {
                continue;
            }
            let own = own.iter().filter(|number| is_chosen[**number]);
            let mut keys: Vec<String> = match group_by {
                GroupBy::Branch => own.map(|number| branches[*number].0.to_string()).collect(),
                GroupBy::Host => own.map(|_| step.commit.host.clone()).collect(),
                GroupBy::Label(key) => {
                    let value = step.commit.labels.get(key).cloned().unwrap_or_default();
                    own.map(|_| value.clone()).collect()
                }
            };
            keys.dedup();
            for key in keys {
                groups.entry(key).or_default().push(at);
            }
        }
        let mut rules: Vec<Vec<Rule>> = vec![Vec::new(); known.len()];
        for group in groups.values() {
            let facts = |at: &usize| {
                let commit = &known[*at].step.commit;
                RuleFacts { time: commit.time, labels: &commit.labels }
            };
            let facts: Vec<_> = group.iter().map(facts).collect();
            for (at, kept) in group.iter().zip(rules_of(policy, &facts, offset_secs)) {
                let new: Vec<Rule> =
                    kept.into_iter().filter(|rule| !rules[*at].contains(rule)).collect();
                rules[*at].extend(new);
            }
        }
        for (Known { step, branches: own }, rules) in known.into_iter().zip(rules) {
            if step.is_forgotten {
                self.plan.forgotten_before += 1;
                continue;
            }
            if !own.iter().any(|number| is_chosen[*number]) {
                continue;
            }
            let mut reasons = self.own_reasons(&step);
            let other = own.iter().find(|number| !is_chosen[**number]);
            reasons
                .extend(other.map(|number| KeepReason::OtherBranch(branches[*number].0.clone())));
            reasons.extend(rules.into_iter().map(KeepReason::Rule));
            self.add(step, reasons, ForgetCause::NoRule);
        }
        Ok(())
    }

    /// Reads the history of all branches, newest commit first.
    fn read_history(
        &self,
        branches: &[(RefName, CommitId)],
        observer: &dyn Observer,
    ) -> Result<Vec<Known>, RemovalError> {
        let mut known = Vec::new();
        let tips: Vec<CommitId> = branches.iter().map(|(_, id)| *id).collect();
        for step in History::new(self.repo.store(), &tips, Parents::All)? {
            observer.check()?;
            known.push(Known { step: step?, branches: Vec::new() });
        }
        known.sort_by_key(|known| std::cmp::Reverse(known.step.commit.time));
        let places: HashMap<CommitId, usize> =
            known.iter().enumerate().map(|(at, known)| (known.step.id, at)).collect();
        for (number, (_, tip)) in branches.iter().enumerate() {
            history::walk::<RemovalError>([*tip], |id| {
                let Some(known) = places.get(&id).and_then(|at| known.get_mut(*at)) else {
                    return Ok(Vec::new());
                };
                if known.branches.last() == Some(&number) {
                    return Ok(Vec::new());
                }
                known.branches.push(number);
                Ok(known.step.commit.parents.clone())
            })?;
        }
        Ok(known)
    }
}

/// Returns the bytes that objects take in the store.
fn bytes_of(repo: &Repo, ids: &[ObjectId]) -> Result<u64, RemovalError> {
    let mut usage = DiskUsageSum::default();
    for id in ids {
        usage.add(&repo.store().disk_usage(id, ObjectKind::Blob)?);
    }
    Ok(usage.stored_bytes())
}

impl ForgetPlan {
    /// Computes what each commit takes in the store. With a limit of bytes, also forgets the oldest
    /// commits that only rules keep, until the others take no more than the limit.
    fn measure(
        &mut self,
        repo: &Repo,
        max_bytes: Option<u64>,
        observer: &dyn Observer,
    ) -> Result<(), RemovalError> {
        observer.phase(Phase::Mark, None);
        let live = Live::new(repo.store(), observer);
        live.start_journal();
        for id in self.others(repo)? {
            live.add_commit(id)?;
        }
        let mut kept_bytes = bytes_of(repo, &live.end_journal())?;
        let is_rule = |reason: &KeepReason| matches!(reason, KeepReason::Rule(_));
        // First what stays in any case, then what rules keep, then the rest.
        let rank = |commit: &PlannedCommit| match commit.reasons.as_slice() {
            [] => 2,
            reasons => i32::from(reasons.iter().all(is_rule)),
        };
        let mut order: Vec<usize> = (0..self.commits.len()).collect();
        order.sort_by_key(|at| rank(&self.commits[*at]));
        let mut is_over = false;
        for at in order {
            let commit = &mut self.commits[at];
            live.start_journal();
            live.add_commit(commit.id)?;
            let bytes = bytes_of(repo, &live.end_journal())?;
            commit.bytes = Some(bytes);
            if rank(commit) == 1 {
                is_over = is_over || max_bytes.is_some_and(|most| kept_bytes + bytes > most);
                if is_over {
                    commit.reasons.clear();
                    commit.cause = ForgetCause::AboveLimit;
                }
            }
            if !commit.reasons.is_empty() {
                kept_bytes += bytes;
            }
        }
        self.kept_bytes = Some(kept_bytes);
        Ok(())
    }

    /// Returns the commits that refs reach and to which the choice does not apply. They stay.
    fn others(&self, repo: &Repo) -> Result<Vec<CommitId>, RemovalError> {
        let planned: HashSet<CommitId> = self.commits.iter().map(|commit| commit.id).collect();
        let tips: Vec<CommitId> = Protected::read(repo)?.reasons.into_keys().collect();
        let mut others = Vec::new();
        for step in History::new(repo.store(), &tips, Parents::All)? {
            let step = step?;
            if !step.is_forgotten && !planned.contains(&step.id) {
                others.push(step.id);
            }
        }
        Ok(others)
    }

    /// Checks that a rule keeps more than the tips of branches, if anything goes.
    fn check_keeps_more_than_tips(&self) -> Result<(), RemovalError> {
        let is_tip = |reason: &KeepReason| matches!(reason, KeepReason::Tip(_));
        let is_rule = |reason: &KeepReason| matches!(reason, KeepReason::Rule(_));
        let has_rule = |commit: &PlannedCommit| {
            commit.reasons.iter().any(is_rule) && !commit.reasons.iter().any(is_tip)
        };
        let goes = self.commits.iter().any(|commit| commit.reasons.is_empty());
        match goes && !self.commits.iter().any(has_rule) {
            true => Err(RemovalError::OnlyTips),
            false => Ok(()),
        }
    }
}
