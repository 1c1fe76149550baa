//! Decides which commits stay, and why.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt, mem,
};

use crate::{
    base::{
        blocked::Blocked,
        id::CommitId,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{commit::Commit, pack::ObjectKind},
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
    store::{DiskUsageSum, Store, StoreError},
};

/// The label of commits that never go.
const KEEP_LABEL: &str = "keep";

/// Most characters of a message in a report.
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

/// A commit of a plan. It has no text of the commit, so a plan of a long history is small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCommit {
    pub id: CommitId,
    pub time: Time,
    /// Why the commit stays. Without a reason it is forgotten.
    pub reasons: Vec<KeepReason>,
    /// Why the commit is forgotten, if it has no reason to stay.
    pub cause: ForgetCause,
    /// The bytes that the commit takes in the store and no commit that stays, or that goes later,
    /// takes as well. `None` if they were not computed.
    pub bytes: Option<u64>,
}

/// What a report says of a commit, besides the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitText {
    pub host: String,
    /// The start of the first line of the message.
    pub message: String,
}

impl PlannedCommit {
    /// Reads the text of the commit.
    ///
    /// # Errors
    /// [`StoreError`] if the commit cannot be read.
    pub fn text(&self, store: &Store) -> Result<CommitText, StoreError> {
        let Commit { host, message, .. } = store.commit(&self.id)?;
        let line = message.lines().next().unwrap_or_default();
        Ok(CommitText { host, message: line.chars().take(MESSAGE_CHARS).collect() })
    }
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
    until_settled_in(repo, || {
        plan_once(repo, choice, present, offset_secs, sizes, observer).map(Some)
    })
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

/// A commit of the history of all branches: what the rules need.
struct Known {
    id: CommitId,
    time: Time,
    is_forgotten: bool,
    parents: Vec<CommitId>,
    /// The labels that rules name.
    labels: BTreeMap<String, String>,
    /// The host or the value of a label that names the group; empty for groups by branch.
    group: String,
    /// True if the history of a chosen branch has the commit.
    is_chosen: bool,
    /// Number of the first other branch whose history has the commit.
    other: Option<usize>,
    /// The rules that keep the commit in any group.
    rules: Vec<Rule>,
}

impl Planner<'_> {
    /// Returns the reasons for which a commit stays in any case.
    fn own_reasons(
        &self,
        id: &CommitId,
        time: Time,
        labels: &BTreeMap<String, String>,
    ) -> Vec<KeepReason> {
        let mut reasons = self.protected.reasons(id).to_vec();
        if labels.contains_key(KEEP_LABEL) {
            reasons.push(KeepReason::KeepLabel);
        }
        if time > self.present {
            reasons.push(KeepReason::Future);
        }
        reasons
    }

    fn add(&mut self, id: CommitId, time: Time, reasons: Vec<KeepReason>, cause: ForgetCause) {
        self.plan.commits.push(PlannedCommit { id, time, reasons, cause, bytes: None });
    }

    fn add_named(&mut self, ids: &[CommitId]) -> Result<(), RemovalError> {
        let mut named = HashSet::new();
        for id in ids.iter().filter(|id| named.insert(**id)) {
            let store = self.repo.store();
            if store.is_forgotten(id)? && store.is_alive(&id.link())? {
                self.plan.forgotten_before += 1;
                continue;
            }
            let Commit { time, labels, .. } = store.commit(id)?;
            // A user who names a commit dated in the future wants to forget that one.
            let is_reason = |reason: &KeepReason| *reason != KeepReason::Future;
            let mut reasons = self.own_reasons(id, time, &labels).into_iter();
            if let Some(reason) = reasons.find(is_reason) {
                return Err(RemovalError::Protected { id: *id, reason });
            }
            self.add(*id, time, Vec::new(), ForgetCause::Named);
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
        let tips: Vec<CommitId> = branches.iter().map(|(_, id)| *id).collect();
        let mut known = self.read_history(&tips, policy, group_by, observer)?;
        let places: HashMap<CommitId, usize> =
            known.iter().enumerate().map(|(at, known)| (known.id, at)).collect();
        for (number, (name, tip)) in branches.iter().enumerate() {
            let is_chosen = chosen.is_empty() || chosen.contains(name);
            let members = members_of(&known, &places, *tip)?;
            for at in &members {
                match is_chosen {
                    true => known[*at].is_chosen = true,
                    false => drop(known[*at].other.get_or_insert(number)),
                }
            }
            if is_chosen && *group_by == GroupBy::Branch {
                self.apply(policy, &mut known, &members, offset_secs);
            }
        }
        if *group_by != GroupBy::Branch {
            let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for (at, known) in known.iter().enumerate().filter(|(_, known)| known.is_chosen) {
                groups.entry(&known.group).or_default().push(at);
            }
            let groups: Vec<Vec<usize>> = groups.into_values().collect();
            groups.iter().for_each(|group| self.apply(policy, &mut known, group, offset_secs));
        }
        for Known { id, time, is_forgotten, labels, is_chosen, other, rules, .. } in known {
            if is_forgotten {
                self.plan.forgotten_before += 1;
                continue;
            }
            if !is_chosen {
                continue;
            }
            let mut reasons = self.own_reasons(&id, time, &labels);
            reasons.extend(other.map(|number| KeepReason::OtherBranch(branches[number].0.clone())));
            reasons.extend(rules.into_iter().map(KeepReason::Rule));
            self.add(id, time, reasons, ForgetCause::NoRule);
        }
        Ok(())
    }

    /// Applies a policy to a group, which has positions in `known`, newest commit first.
    fn apply(
        &self,
        policy: &KeepPolicy,
        known: &mut [Known],
        group: &[usize],
        offset_secs: &dyn Fn(Time) -> i64,
    ) {
        // Commits dated in the future neither count nor go.
        let counts = |at: &usize| !known[*at].is_forgotten && known[*at].time <= self.present;
        let group: Vec<usize> = group.iter().copied().filter(counts).collect();
        let facts = |at: &usize| RuleFacts { time: known[*at].time, labels: &known[*at].labels };
        let facts: Vec<_> = group.iter().map(facts).collect();
        let kept = rules_of(policy, &facts, offset_secs);
        for (at, kept) in group.into_iter().zip(kept) {
            let rules = &mut known[at].rules;
            let new: Vec<Rule> = kept.into_iter().filter(|rule| !rules.contains(rule)).collect();
            rules.extend(new);
        }
    }

    /// Reads the history of all branches, newest commit first.
    fn read_history(
        &self,
        tips: &[CommitId],
        policy: &KeepPolicy,
        group_by: &GroupBy,
        observer: &dyn Observer,
    ) -> Result<Vec<Known>, RemovalError> {
        let mut known = Vec::new();
        for step in History::new(self.repo.store(), tips, Parents::All)? {
            observer.check()?;
            let HistoryStep { id, commit, is_forgotten } = step?;
            let Commit { time, parents, host, mut labels, .. } = commit;
            let group = match group_by {
                GroupBy::Branch => String::new(),
                GroupBy::Host => host,
                GroupBy::Label(key) => labels.get(key).cloned().unwrap_or_default(),
            };
            labels.retain(|key, _| {
                key == KEEP_LABEL || policy.labels.iter().any(|(named, _)| named == key)
            });
            let (is_chosen, other, rules) = (false, None, Vec::new());
            known.push(Known {
                id,
                time,
                is_forgotten,
                parents,
                labels,
                group,
                is_chosen,
                other,
                rules,
            });
        }
        known.sort_by_key(|known| std::cmp::Reverse(known.time));
        Ok(known)
    }
}

/// Returns the positions in `known` of the history of `tip`, in ascending order.
fn members_of(
    known: &[Known],
    places: &HashMap<CommitId, usize>,
    tip: CommitId,
) -> Result<Vec<usize>, RemovalError> {
    let mut is_member = vec![false; known.len()];
    history::walk::<RemovalError>([tip], |id| {
        let at = places.get(&id).filter(|at| !mem::replace(&mut is_member[**at], true));
        Ok(at.map_or_else(Vec::new, |at| known[*at].parents.clone()))
    })?;
    Ok((0..known.len()).filter(|at| is_member[*at]).collect())
}

/// Marks a commit, and returns what the objects that were not marked before take in the store.
fn usage_of(store: &Store, live: &Live<'_>, id: CommitId) -> Result<DiskUsageSum, RemovalError> {
    live.start_journal();
    live.add_commit(id)?;
    let mut usage = DiskUsageSum::default();
    for id in live.end_journal() {
        usage.add(&store.disk_usage(&id, ObjectKind::Blob)?);
    }
    Ok(usage)
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
        let mut others = DiskUsageSum::default();
        for id in self.others(repo)? {
            others.add(&usage_of(repo.store(), &live, id)?);
        }
        let mut kept_bytes = others.stored_bytes();
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
            let bytes = usage_of(repo.store(), &live, commit.id)?.stored_bytes();
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
