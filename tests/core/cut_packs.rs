//! Packs that became shorter or longer and were not verified yet: a commit compares
//! their lengths, and stores their objects again.

use std::os::unix::fs::symlink;

use snap_core::{
    base::observe::Silent,
    ops::commit::{self, CommitOptions, CommitRun, CommitSource},
    store::CacheTrust,
};

use crate::{
    scratch::{commit, on_branch, open, options},
    shadow::{Victim, assert_restores},
};

#[test]
fn the_next_commit_detects_a_truncated_pack() {
    let cuts: [fn(usize) -> usize; 5] = [|_| 0, |_| 1, |_| 40, |all| all / 2, |all| all - 1];
    for cut in cuts {
        let victim = Victim::new();
        let cut = cut(victim.whole.len());
        let told = format!("cut at {cut} of {}", victim.whole.len());
        fs_err::write(&victim.path, &victim.whole[..cut]).unwrap();
        let again = victim.commit_again(&told);
        assert!(again.bytes_read > 4 << 20, "{told}: all files are read");
        assert!(again.added.objects > 10, "{told}: {:?}", again.added);
        assert!(victim.repo().store().is_damaged(&victim.first), "{told}");
        assert_restores(&victim.scratch, victim.tip, &told);
        victim.scratch.settle();
        assert_eq!(victim.repo().store().cache_trust(), CacheTrust::Holds, "{told}");
    }
}

#[test]
fn the_next_commit_detects_appended_bytes() {
    let victim = Victim::new();
    let longer = [&victim.whole[..], b"and more"].concat();
    fs_err::write(&victim.path, longer).unwrap();
    assert!(victim.commit_again("longer").added.objects > 10);
    assert_restores(&victim.scratch, victim.tip, "longer");
}

#[test]
fn the_next_commit_detects_a_pack_with_bytes_of_another() {
    let victim = Victim::new();
    let packs = victim.repo().store().packs();
    let other = packs.iter().find(|id| **id != victim.first).unwrap();
    fs_err::copy(victim.repo().store().pack_path(other), &victim.path).unwrap();
    assert!(victim.commit_again("another pack").added.objects > 10);
    assert_restores(&victim.scratch, victim.tip, "another pack");
}

#[test]
fn a_truncated_pack_stays_distrusted_without_a_shadow_table() {
    let victim = Victim::new();
    fs_err::write(&victim.path, &victim.whole[..victim.whole.len() / 2]).unwrap();
    victim.commit_again("cut");
    victim.scratch.settle();
    fs_err::remove_file(victim.store().join("shadow")).unwrap();
    commit(&victim.repo(), &victim.scratch.source(), &on_branch("side"));
    assert!(victim.repo().store().is_damaged(&victim.first));
}

#[test]
fn a_dry_run_detects_a_truncated_pack_and_writes_nothing() {
    let victim = Victim::with_tree_elsewhere();
    fs_err::write(&victim.path, &victim.whole[..100]).unwrap();
    let dry = CommitOptions { run: CommitRun::Dry, ..options() };
    let repo = victim.repo();
    let source = CommitSource::Folder(victim.scratch.source());
    let would = commit::run(&repo, source, &dry, &Silent).unwrap();
    assert!(would.bytes_read > 4 << 20, "{would:?}");
    assert!(!victim.store().join("shadow").exists());
}

#[test]
fn a_dangling_symlink_to_a_pack_is_a_lost_pack() {
    let victim = Victim::new();
    let (elsewhere, away) = (victim.scratch.path("elsewhere"), victim.scratch.path("away"));
    fs_err::rename(&victim.path, &elsewhere).unwrap();
    symlink(&elsewhere, &victim.path).unwrap();
    // A pack may be a symbolic link.
    assert_restores(&victim.scratch, victim.tip, "through the link");
    assert_eq!(victim.scratch.settle().added.objects, 0);
    fs_err::rename(&elsewhere, &away).unwrap();
    let repo = open(&victim.store());
    assert_eq!(repo.store().cache_trust(), CacheTrust::Lost { packs: 1, first: victim.first });
    assert!(victim.commit_again("away").added.objects > 10);
    assert_restores(&victim.scratch, victim.tip, "away");
}
