//! Rolling checks: packs that were not read for some time are read again, oldest check
//! first, until the budget is spent.

use std::{os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use snap_core::{
    base::{id::PackId, time::Time},
    ops::verify::{Data, DataChecks, Rolling, VerifyOutcome},
};
use snap_testkit::bytes::Corpus;

use crate::{scratch::Scratch, shadow::Victim};

const DAY_SECS: i64 = 86_400;

const MONTH: Rolling = Rolling { max_age: Duration::from_secs(30 * DAY_SECS as u64), budget: None };

/// A store with three packs.
struct Checked {
    victim: Victim,
    packs: Vec<PackId>,
}

impl Checked {
    fn new() -> Self {
        let victim = Victim::new();
        victim.scratch.write("third", Corpus::Random.make_seeded(200_000, 3));
        victim.scratch.commit();
        let packs = victim.repo().store().packs();
        assert_eq!(packs.len(), 3);
        Self { victim, packs }
    }

    fn verify(&self, rolling: Rolling) -> VerifyOutcome {
        self.victim.verify(Data::Due(rolling))
    }

    fn record(&self) -> PathBuf {
        self.victim.store().join("cache/checked")
    }

    /// Returns the packs with a recorded check, and the age of the check in seconds.
    fn ages(&self) -> Vec<(PackId, i64)> {
        let text = fs_err::read_to_string(self.record()).unwrap_or_default();
        let age = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].parse().unwrap(), Time::now().secs - words[1].parse::<i64>().unwrap())
        };
        text.lines().map(age).collect()
    }

    /// Records that the packs, in their current state, were checked these numbers of
    /// days ago.
    fn set_ages(&self, days: [i64; 3]) {
        let repo = self.victim.repo();
        let line = |(id, days): (&PackId, i64)| {
            let meta = fs_err::metadata(repo.store().pack_path(id)).unwrap();
            let (secs, nanos) = (meta.ctime(), meta.ctime_nsec());
            let identity = format!("{}:{}:{secs}.{nanos:09}", meta.dev(), meta.ino());
            format!("{id} {} {identity}\n", Time::now().secs - days * DAY_SECS)
        };
        let lines: String = self.packs.iter().zip(days).map(line).collect();
        fs_err::write(self.record(), lines).unwrap();
    }

    /// Flips a bit of the first pack without another trace, as a disk may do. Then
    /// records when it and the other packs were checked.
    fn flip(&self, days: i64, others: i64) {
        let mut bytes = self.victim.whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs_err::write(&self.victim.path, &bytes).unwrap();
        let is_first = |id: PackId| id == self.victim.first;
        self.set_ages([0, 1, 2].map(|at| if is_first(self.packs[at]) { days } else { others }));
    }

    /// Returns the packs whose recorded check is less than a day old.
    fn fresh(&self) -> Vec<PackId> {
        let fresh = |(id, age)| (age < DAY_SECS).then_some(id);
        self.ages().into_iter().filter_map(fresh).collect()
    }
}

#[test]
fn recently_checked_packs_are_not_read_again() {
    let checked = Checked::new();
    let all = checked.verify(MONTH);
    assert_eq!((all.due_packs, all.left_packs), (3, 0));
    assert!(all.bytes_read > 4 << 20 && all.problems.is_empty(), "{all:?}");
    let nothing = checked.verify(MONTH);
    assert_eq!((nothing.due_packs, nothing.bytes_read), (0, 0));
    // A check in the future proves nothing, and neither does a missing one.
    checked.set_ages([31, 29, -2]);
    assert_eq!(checked.verify(MONTH).due_packs, 2);
    fs_err::remove_file(checked.record()).unwrap();
    assert_eq!(checked.verify(MONTH).due_packs, 3);
    // A check of all data is recorded, a check of a sample is not.
    fs_err::remove_file(checked.record()).unwrap();
    checked.victim.verify(Data::Sample(1.0));
    assert_eq!(checked.ages(), []);
    checked.victim.verify(Data::All);
    assert_eq!(checked.verify(MONTH).due_packs, 0);
}

#[test]
fn the_oldest_check_and_unchecked_packs_are_reported() {
    let checked = Checked::new();
    let of = || DataChecks::of(checked.victim.repo().store());
    assert_eq!(of(), DataChecks { oldest_secs: None, unchecked_packs: 3 });
    checked.verify(MONTH);
    checked.set_ages([3, 40, 1]);
    let DataChecks { oldest_secs, unchecked_packs } = of();
    assert_eq!(oldest_secs, checked.ages().iter().map(|(_, age)| Time::now().secs - age).min());
    assert_eq!((checked.ages()[1].1 / DAY_SECS, unchecked_packs), (40, 0));
    // As in a rolling check, one in the future does not count, nor does one of another file.
    checked.set_ages([3, -2, 1]);
    let path = checked.victim.repo().store().pack_path(&checked.packs[0]);
    fs_err::copy(&path, path.with_extension("copy")).unwrap();
    fs_err::rename(path.with_extension("copy"), &path).unwrap();
    assert_eq!(of().unchecked_packs, 2);
}

#[test]
fn damage_is_found_when_its_pack_is_due_and_keeps_it_due() {
    let checked = Checked::new();
    checked.flip(1, 1);
    assert!(checked.verify(MONTH).problems.is_empty(), "it is not due yet");
    checked.flip(40, 1);
    let is_first = |id: &PackId| *id == checked.victim.first;
    let found = checked.verify(MONTH);
    assert_eq!(found.due_packs, 1);
    assert!(!found.problems.is_empty() && found.shadowed.packs == 1, "{found:?}");
    assert!(checked.ages().iter().any(|(id, age)| is_first(id) && *age > 39 * DAY_SECS));
}

#[test]
fn a_budget_skips_the_most_recently_checked_packs() {
    let checked = Checked::new();
    checked.verify(MONTH);
    let spent = Rolling { budget: Some(Duration::from_nanos(1)), ..MONTH };
    for (days, first) in [([60, 50, 40], 0), ([50, 60, 40], 1), ([40, 50, 60], 2)] {
        checked.set_ages(days);
        let some = checked.verify(spent);
        assert_eq!((some.due_packs, some.left_packs), (3, 2), "one is read in any case");
        assert_eq!(checked.fresh(), [checked.packs[first]]);
    }
    let rest = checked.verify(MONTH);
    assert_eq!((rest.due_packs, rest.left_packs), (2, 0));
    assert_eq!(checked.fresh().len(), 3);
}

#[test]
fn the_record_drops_packs_that_no_longer_exist() {
    let checked = Checked::new();
    checked.verify(MONTH);
    let other = Scratch::new();
    other.write("file", "x");
    other.commit();
    let foreign = other.repo().store().packs()[0];
    let text = fs_err::read_to_string(checked.record()).unwrap();
    fs_err::write(checked.record(), format!("{text}{foreign} 1 x\nno line\n")).unwrap();
    checked.victim.verify(Data::All);
    assert_eq!(checked.ages().len(), 3);
}

#[test]
fn a_replaced_pack_is_due_again() {
    let checked = Checked::new();
    checked.verify(MONTH);
    // As in a copy of the store, or after a disk was restored from a backup.
    for id in &checked.packs[..2] {
        let path = checked.victim.repo().store().pack_path(id);
        let bytes = fs_err::read(&path).unwrap();
        fs_err::remove_file(&path).unwrap();
        fs_err::write(&path, bytes).unwrap();
    }
    assert_eq!(checked.verify(MONTH).due_packs, 2);
    assert_eq!(checked.verify(MONTH).due_packs, 0);
}

#[test]
fn a_persistently_damaged_pack_does_not_use_up_the_budget() {
    let checked = Checked::new();
    checked.flip(1, 60);
    checked.victim.verify(Data::All);
    checked.flip(1, 60);
    let spent = Rolling { budget: Some(Duration::from_nanos(1)), ..MONTH };
    let some = checked.verify(spent);
    assert_eq!((some.due_packs, some.left_packs), (3, 1), "the damaged one and another are read");
    let rest = checked.verify(spent);
    assert_eq!((rest.due_packs, rest.left_packs), (2, 0));
    assert!(!rest.problems.is_empty(), "known damage is reported each time");
}
