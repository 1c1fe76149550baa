//! Retention policies: which commits of a group stay.
//!
//! The rules are those of restic and borg. A commit stays if any rule keeps it:
//!
//! - `last`: the newest commits.
//! - A [`Period`] with a count: the newest commit of each of the newest hours, days, … that have one.
//! - `within`: all commits up to this age, compared with the newest one.
//! - A period with an age: the newest commit of each hour, day, … up to that age.
//! - `labels`: all commits with one of these labels.
//!
//! Ages count from the newest commit and not from the present, so a machine that was off for a year
//! loses nothing. Hours and days are those of the local time zone; a week begins on Monday.

use std::collections::BTreeMap;

use crate::base::{duration::Age, time::Time};

/// A period of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Period {
    /// All periods, the shortest first.
    pub const ALL: [Self; 5] = [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the adverb for options, settings and messages.
    pub const fn adverb(self) -> &'static str {
        match self {
            Self::Hour => "hourly",
            Self::Day => "daily",
            Self::Week => "weekly",
            Self::Month => "monthly",
            Self::Year => "yearly",
        }
    }

    /// Returns the number of the period that has this time, counted from 1970. `offset_secs` is the
    /// offset of the local time from UTC.
    fn number(self, time: Time, offset_secs: i64) -> i64 {
        let local = Time { secs: time.secs.saturating_add(offset_secs), ..time };
        let days = local.secs.div_euclid(86_400);
        match self {
            Self::Hour => local.secs.div_euclid(3600),
            Self::Day => days,
            // 1970-01-01 was a Thursday.
            Self::Week => (days + 3).div_euclid(7),
            Self::Month => local.civil().year * 12 + i64::from(local.civil().month),
            Self::Year => local.civil().year,
        }
    }
}

/// A label that keeps a commit: its key, and its value or `None` for any value.
pub type KeptLabel = (String, Option<String>);

/// The rules of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepPolicy {
    /// Number of newest commits to keep.
    pub last: u64,
    /// Number of periods of which to keep the newest commit.
    pub periods: BTreeMap<Period, u64>,
    /// Age, compared with the newest commit, up to which all commits stay.
    pub within: Option<Age>,
    /// Age, compared with the newest commit, up to which the newest commit of each period stays.
    pub within_periods: BTreeMap<Period, Age>,
    /// Labels that keep a commit.
    pub labels: Vec<KeptLabel>,
    /// The most bytes that all commits may take in the store. The oldest ones go first.
    pub max_bytes: Option<u64>,
}

impl KeepPolicy {
    /// Returns true if the policy has no rule.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The rule that keeps a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is one of the newest.
    Last,
    /// It is the newest of its period.
    Newest(Period),
    /// It is young enough.
    Within,
    /// It is the newest of its period, and young enough.
    NewestWithin(Period),
    /// It has this label.
    Label(String),
    /// No rule but the limit of bytes exists.
    All,
}

/// The facts about a commit that rules use.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleFacts<'a> {
    /// Time of the commit.
    pub(super) time: Time,
    /// Labels of the commit.
    pub(super) labels: &'a BTreeMap<String, String>,
}

/// Returns the rules that keep each commit of a group. The newest commit comes first. `offset_secs`
/// returns the offset of the local time from UTC at a time.
pub(super) fn rules_of(
    policy: &KeepPolicy,
    group: &[RuleFacts<'_>],
    offset_secs: &dyn Fn(Time) -> i64,
) -> Vec<Vec<Rule>> {
    let mut kept: Vec<Vec<Rule>> = vec![Vec::new(); group.len()];
    let Some(newest) = group.first().map(|facts| facts.time) else { return kept };
    let oldest = |age: Age| age.before(newest, offset_secs).secs;
    let oldest_within = policy.within.map(oldest);
    // If the only rule is the limit of bytes, all commits below it are kept.
    let max_bytes = policy.max_bytes;
    let keeps_all =
        max_bytes.is_some() && *policy == KeepPolicy { max_bytes, ..Default::default() };
    for (at, rules) in kept.iter_mut().enumerate() {
        let facts = &group[at];
        if keeps_all {
            rules.push(Rule::All);
        }
        if (at as u64) < policy.last {
            rules.push(Rule::Last);
        }
        if oldest_within.is_some_and(|oldest| facts.time.secs >= oldest) {
            rules.push(Rule::Within);
        }
        for (key, wanted) in &policy.labels {
            let value = facts.labels.get(key);
            if value.is_some_and(|value| wanted.as_ref().is_none_or(|wanted| wanted == value)) {
                rules.push(Rule::Label(key.clone()));
            }
        }
    }
    for period in Period::ALL {
        let mut left = policy.periods.get(&period).copied().unwrap_or_default();
        let oldest = policy.within_periods.get(&period).copied().map(oldest);
        let mut last = None;
        for (facts, rules) in group.iter().zip(&mut kept) {
            let number = period.number(facts.time, offset_secs(facts.time));
            if last.replace(number) == Some(number) {
                continue;
            }
            if left > 0 {
                left -= 1;
                rules.push(Rule::Newest(period));
            }
            if oldest.is_some_and(|oldest| facts.time.secs >= oldest) {
                rules.push(Rule::NewestWithin(period));
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    /// Returns the positions of the commits at these hours that a policy keeps.
    fn kept(policy: &KeepPolicy, hours: &[i64], offset_secs: i64) -> Vec<usize> {
        let labels = BTreeMap::new();
        let facts = |hour: &i64| RuleFacts {
            time: Time { secs: 1_700_000_000 / DAY * DAY + hour * HOUR, nanos: 0 },
            labels: &labels,
        };
        let group: Vec<_> = hours.iter().map(facts).collect();
        let rules = rules_of(policy, &group, &|_| offset_secs);
        (0..hours.len()).filter(|at| !rules[*at].is_empty()).collect()
    }

    fn periods(period: Period, count: u64) -> KeepPolicy {
        KeepPolicy { periods: [(period, count)].into(), ..KeepPolicy::default() }
    }

    #[test]
    fn a_count_of_days_keeps_the_newest_commit_of_each_day_with_commits() {
        // Two commits on one day, none on the next, one on the third, two on the fourth.
        let hours = [80, 75, 50, 20, 10];
        assert_eq!(kept(&periods(Period::Day, 9), &hours, 0), [0, 2, 3]);
        assert_eq!(kept(&periods(Period::Day, 2), &hours, 0), [0, 2]);
        assert_eq!(kept(&periods(Period::Hour, 3), &hours, 0), [0, 1, 2]);
        // Five hours west of UTC, 75 and 50 are on other days: 70 and 45 hours.
        assert_eq!(kept(&periods(Period::Day, 9), &hours, -5 * HOUR), [0, 1, 2, 3]);
    }

    #[test]
    fn weeks_begin_on_monday_and_months_and_years_are_those_of_the_calendar() {
        let time = |text: i64| Time { secs: text, nanos: 0 };
        // 2023-11-12 was a Sunday, 2023-11-13 a Monday.
        let (sunday, monday) = (time(1_699_833_599), time(1_699_833_600));
        assert_eq!(Period::Week.number(sunday, 0) + 1, Period::Week.number(monday, 0));
        assert_eq!(Period::Week.number(monday, 0), Period::Week.number(time(1_700_438_399), 0));
        // 2023-12-31T23:59:59Z, and a second later.
        let (old, new) = (time(1_704_067_199), time(1_704_067_200));
        for period in [Period::Year, Period::Month, Period::Day, Period::Hour] {
            assert_eq!(period.number(old, 0) + 1, period.number(new, 0), "{period:?}");
            assert_eq!(period.number(old, 1), period.number(new, 1), "{period:?}");
        }
    }

    #[test]
    fn ages_count_from_the_newest_commit() {
        let days = |days| Age { days, ..Age::default() };
        let within = KeepPolicy { within: Some(days(1)), ..KeepPolicy::default() };
        assert_eq!(kept(&within, &[48, 24, 23], 0), [0, 1]);
        let daily =
            KeepPolicy { within_periods: [(Period::Day, days(2))].into(), ..KeepPolicy::default() };
        assert_eq!(kept(&daily, &[80, 75, 50, 31, 30], 0), [0, 2]);
    }

    #[test]
    fn the_last_commits_and_labels_keep_and_an_empty_policy_keeps_nothing() {
        let last = KeepPolicy { last: 2, ..KeepPolicy::default() };
        assert_eq!(kept(&last, &[3, 2, 1], 0), [0, 1]);
        assert_eq!(kept(&KeepPolicy::default(), &[3, 2, 1], 0), [0_usize; 0]);
        let all = KeepPolicy { max_bytes: Some(0), ..KeepPolicy::default() };
        assert_eq!(kept(&all, &[3, 2, 1], 0), [0, 1, 2]);
        let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
        let facts = [RuleFacts { time: Time::default(), labels: &labels }];
        for (wanted, is_kept) in [(None, true), (Some("prod"), true), (Some("test"), false)] {
            let wanted = ("env".to_owned(), wanted.map(str::to_owned));
            let policy = KeepPolicy { labels: vec![wanted], ..KeepPolicy::default() };
            assert_eq!(!rules_of(&policy, &facts, &|_| 0)[0].is_empty(), is_kept);
        }
    }
}
