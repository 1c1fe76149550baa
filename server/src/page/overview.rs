//! The overview of a repository for an administrator: when its branches were last pushed, how much
//! space it takes, when it was verified, and what needs attention.
//!
//! An overview reads the end of the log and one commit for each branch, and the metadata of each
//! pack. It sends no request to the upstream.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use snap_core::{
    base::{id::CommitId, observe::Observer, time::Time},
    format::commit::Commit,
    ops::verify::DataChecks,
    repo::ref_name::{RefKind, RefName},
};

use super::{deadline::Deadline, stats::percent};
use crate::{
    problem::{Code, HttpProblem},
    quota::{QuotaUsage, Quotas},
    ref_log::LastMove,
    repository::Repository,
};

/// Maximum number of branches that are listed.
const BRANCHES: usize = 5;

/// Age of a check after which the data should be verified again.
const VERIFIED_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// Percentage of a quota above which the repository needs attention.
const QUOTA_PERCENT: u128 = 90;

/// The state of a repository.
pub(super) struct Overview {
    /// The branches that moved last, newest first.
    pub(super) branches: Vec<BranchOverview>,
    pub(super) branch_count: usize,
    pub(super) tag_count: usize,
    /// The commit of the branch that moved last.
    pub(super) newest: Option<Commit>,
    pub(super) damaged_refs: Arc<Vec<RefName>>,
    pub(super) damaged_packs: usize,
    pub(super) packs: usize,
    /// Bytes of all packs.
    pub(super) stored_bytes: u64,
    pub(super) quota: Option<QuotaUsage>,
    /// `None` without packs, or if the packs are verified elsewhere.
    pub(super) checks: Option<DataChecks>,
}

/// A branch and its last move.
pub(super) struct BranchOverview {
    pub(super) name: RefName,
    id: CommitId,
    /// `None` if the log does not record the move.
    pub(super) last_move: Option<LastMove>,
    /// The time of the commit that the branch points at.
    pub(super) committed: Time,
}

impl BranchOverview {
    /// Returns the time of the last move if the log records it, or else of the commit.
    pub(super) fn time(&self) -> Time {
        self.last_move.as_ref().map_or(self.committed, |last| last.time)
    }
}

impl Overview {
    /// Reads the state of a repository. Returns `None` after the deadline.
    ///
    /// # Errors
    /// [`Code::Damaged`] when a commit cannot be read, [`Code::Unavailable`].
    pub(super) fn of(
        repository: &Repository,
        quotas: &Quotas,
        deadline: &Deadline<'_>,
    ) -> Result<Option<Self>, HttpProblem> {
        repository.refresh()?;
        // A current listing would need a request to the upstream for each repository.
        let listing = repository.refs().cached_listing()?;
        let refs = listing.refs;
        let store = repository.repo().store();
        let mut branches = Vec::new();
        for (name, id) in refs.iter().filter(|(name, _)| name.kind() == RefKind::Branch) {
            if deadline.cancelled() {
                return Ok(None);
            }
            let last_move = repository.refs().last_move(name, *id)?;
            let committed = store.commit(id)?.time;
            branches.push(BranchOverview { name: name.clone(), id: *id, last_move, committed });
        }
        let branch_count = branches.len();
        branches.sort_by_key(|branch| Reverse(branch.time()));
        branches.truncate(BRANCHES);
        let newest = branches.first().map(|branch| store.commit(&branch.id)).transpose()?;
        let packs = repository.packs().list()?;
        Ok(Some(Self {
            branches,
            branch_count,
            tag_count: refs.iter().filter(|(name, _)| name.kind() == RefKind::Tag).count(),
            newest,
            damaged_refs: listing.damaged,
            damaged_packs: repository.damaged_pack_count(),
            packs: packs.len(),
            stored_bytes: packs.iter().map(|pack| pack.bytes).sum(),
            quota: quotas.usage(repository)?,
            checks: repository.data_checks().filter(|_| !packs.is_empty()),
        }))
    }
}

/// The kinds of [`Concern`], the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConcernKind {
    Damaged,
    DamagedRefs,
    Unreadable,
    NearQuota,
    Unverified,
}

/// A problem of a repository that an administrator should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Concern {
    pub(super) kind: ConcernKind,
    /// How severe the problem is, in a word or two.
    pub(super) detail: Option<String>,
}

impl Concern {
    fn new(kind: ConcernKind) -> Self {
        Self { kind, detail: None }
    }

    /// Lists the concerns about a repository. An `Ok(None)` summary, of a repository that was not
    /// read before the deadline, gives none.
    pub(super) fn about(summary: &Result<Option<Overview>, Code>, now: Time) -> Vec<Self> {
        let overview = match summary {
            Err(Code::Damaged) => return vec![Self::new(ConcernKind::Damaged)],
            Err(_) => return vec![Self::new(ConcernKind::Unreadable)],
            Ok(None) => return Vec::new(),
            Ok(Some(overview)) => overview,
        };
        let damaged_packs = (overview.damaged_packs > 0).then(|| Self::new(ConcernKind::Damaged));
        let has_damaged_refs = !overview.damaged_refs.is_empty();
        let damaged_refs = has_damaged_refs.then(|| Self::new(ConcernKind::DamagedRefs));
        let all = [
            damaged_packs,
            damaged_refs,
            overview.quota.and_then(Self::of_quota),
            overview.checks.and_then(|checks| Self::of_checks(checks, now)),
        ];
        all.into_iter().flatten().collect()
    }

    fn of_quota(QuotaUsage { used_bytes, quota_bytes }: QuotaUsage) -> Option<Self> {
        let is_near = u128::from(used_bytes) * 100 > u128::from(quota_bytes) * QUOTA_PERCENT;
        let detail = Some(percent(used_bytes, quota_bytes));
        is_near.then_some(Self { kind: ConcernKind::NearQuota, detail })
    }

    fn of_checks(checks: DataChecks, now: Time) -> Option<Self> {
        let oldest = checks.oldest_secs.map(|secs| Time { secs, nanos: 0 });
        let age_secs = oldest.map(|oldest| now.secs.saturating_sub(oldest.secs));
        let is_due = age_secs.is_none_or(|age| age > VERIFIED_FOR.as_secs() as i64);
        let ago = oldest.map_or_else(|| "never".to_owned(), |oldest| oldest.ago(now));
        is_due.then_some(Self { kind: ConcernKind::Unverified, detail: Some(ago) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time { secs: 1_800_000_000, nanos: 0 };

    fn overview(used_bytes: u64, checks: Option<DataChecks>) -> Result<Option<Overview>, Code> {
        Ok(Some(Overview {
            branches: Vec::new(),
            branch_count: 0,
            tag_count: 0,
            newest: None,
            damaged_refs: Arc::default(),
            damaged_packs: 0,
            packs: 1,
            stored_bytes: 1,
            quota: Some(QuotaUsage { used_bytes, quota_bytes: 1000 }),
            checks,
        }))
    }

    fn concern(kind: ConcernKind, detail: &str) -> Vec<Concern> {
        vec![Concern { kind, detail: Some(detail.to_owned()) }]
    }

    #[test]
    fn a_quota_is_a_concern_above_90_percent() {
        let of = |used_bytes| Concern::about(&overview(used_bytes, None), NOW);
        assert_eq!(of(900), []);
        assert_eq!(of(901), concern(ConcernKind::NearQuota, "90 %"));
        assert_eq!(of(1000), concern(ConcernKind::NearQuota, "100 %"));
    }

    #[test]
    fn a_check_is_a_concern_after_30_days() {
        let of = |oldest_secs| {
            let checks = DataChecks { oldest_secs, unchecked_packs: 0 };
            Concern::about(&overview(0, Some(checks)), NOW)
        };
        let before = |days: i64| Some(NOW.secs - days * 24 * 3600);
        assert_eq!(of(before(30)), []);
        assert_eq!(of(before(31)), concern(ConcernKind::Unverified, "1 month ago"));
        assert_eq!(of(None), concern(ConcernKind::Unverified, "never"));
        assert_eq!(Concern::about(&overview(0, None), NOW), [], "it is verified elsewhere");
    }
}
