//! `forget`: what goes and what stays, and what happens beside a garbage collection.

use std::{
    collections::BTreeSet,
    num::NonZeroU64,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use snap_core::{
    base::{
        id::{BlobId, CommitId},
        kind::ErrorKind,
        observe::Silent,
        time::Time,
    },
    format::{
        pack::ObjectKind,
        shadow::{Reason, ShadowTable, ShadowedPart},
    },
    ops::{
        find::{self, FindOptions},
        forget::{
            self, ForgetChoice, ForgetPlan, GroupBy, KeepPolicy, KeepReason, LastForget, Period,
            UndoneForget,
        },
        gc::{self, GcOptions},
        log, path_log,
        removal_error::RemovalError,
        stats, tidy, verify,
    },
    repo::{PastError, RefLogMessage, RefName, Repo},
    store::{ObjectWriter, StoreError},
};

use crate::{
    faults::{Fault, PLANS, Plan},
    gc::{ALL, collect, commit, delete_branch, has, interleave, message, noise},
    scratch::{START, Scratch, check, open, open_gated},
};

/// A store with four commits on `main`, each with a file of its own, oldest first.
fn with_history() -> (Scratch, Vec<CommitId>) {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let mut ids = Vec::new();
    for n in 0..4 {
        let _ = fs_err::remove_file(scratch.source().join("own"));
        scratch.write("own", noise(n, 20_000));
        scratch.write("common", "common");
        ids.push(commit(&repo, &scratch.source(), "main"));
    }
    (scratch, ids)
}

/// Returns the content that only the commit with this number has.
fn own(n: u64) -> BlobId {
    BlobId::of(&noise(n, 20_000))
}

fn forget(repo: &Repo, ids: &[CommitId]) -> u64 {
    let ids: BTreeSet<CommitId> = ids.iter().copied().collect();
    forget::run(repo, &ids, &message("forget"), &Silent).unwrap()
}

fn undo(repo: &Repo) -> bool {
    LastForget::read(repo).unwrap().unwrap().undo(repo, &message("undo: forget")).unwrap()
}

fn redo(repo: &Repo, message: &RefLogMessage<'_>) -> Option<u64> {
    UndoneForget::read(repo)?.redo(repo, message, &Silent).unwrap()
}

/// Returns the commits of `main`, newest first, each with true if it is forgotten.
fn history(repo: &Repo) -> Vec<(CommitId, bool)> {
    let tip = repo.refs().read(&RefName::branch("main").unwrap()).unwrap().unwrap();
    let steps = log::run(repo.store(), &[tip], &log::LogOptions::default()).unwrap();
    steps.map(|step| step.map(|step| (step.id, step.is_forgotten)).unwrap()).collect()
}

fn plan(repo: &Repo, policy: KeepPolicy) -> Result<ForgetPlan, RemovalError> {
    let choice = ForgetChoice::Policy {
        policy,
        branches: Vec::new(),
        group_by: GroupBy::Branch,
        allows_only_tips: false,
    };
    forget::plan(repo, &choice, ALL.present, &|_| 0, false, &Silent)
}

#[test]
fn a_collection_deletes_what_only_forgotten_commits_have() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    assert_eq!(forget(&repo, &ids[1..3]), 2);
    for repo in [&repo, &scratch.repo()] {
        let shown = vec![(ids[3], false), (ids[2], true), (ids[1], true), (ids[0], false)];
        assert_eq!(history(repo), shown);
        // Until a collection, everything can be read.
        assert!(repo.store().commit(&ids[1]).is_ok());
    }
    collect(&repo);
    for repo in [&repo, &scratch.repo()] {
        let kept: Vec<bool> = (0..4).map(|n| has(repo.store(), &own(n).object())).collect();
        assert_eq!(kept, [true, false, false, true]);
        let shown = vec![(ids[3], false), (ids[2], true), (ids[1], true), (ids[0], false)];
        assert_eq!(history(repo), shown);
        let error = repo.store().commit(&ids[1]).unwrap_err();
        assert!(matches!(error, StoreError::Forgotten { id } if id == ids[1]), "{error}");
        assert_eq!(check(repo), Ok(2));
    }
    // There is nothing left to do, and the next commit goes on.
    let again = collect(&scratch.repo());
    assert_eq!((again.deleted_packs, again.dead_objects), (0, 0), "{again:?}");
    scratch.write("own", noise(4, 20_000));
    let id = scratch.commit().id.unwrap();
    scratch.assert_restores(id);
    let data = verify::VerifyOptions { data: verify::Data::All };
    let found = verify::run(&scratch.repo(), &data, &Silent).unwrap();
    assert_eq!((found.problems.len(), found.commits, found.forgotten_commits), (0, 3, 2));
}

#[test]
fn a_merge_of_packs_keeps_links_and_no_second_copy_of_them() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    for id in &ids[..3] {
        forget(&repo, &[*id]);
    }
    collect(&repo);
    drop(repo);
    for n in 10..60 {
        scratch.write("own", noise(n, 2000));
        scratch.commit();
    }
    tidy::run(&scratch.repo(), &Silent).unwrap();
    let repo = scratch.repo();
    assert_eq!(check(&repo), Ok(51));
    assert_eq!(history(&repo).iter().filter(|(_, is_forgotten)| *is_forgotten).count(), 3);
    for id in &ids[..3] {
        assert_eq!(repo.store().places(&id.link()).unwrap().len(), 1);
    }
    assert_eq!(collect(&repo).dead_objects, 0);
}

#[test]
fn an_undo_brings_the_last_forgotten_commits_back_until_a_collection() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    forget(&repo, &ids[..1]);
    forget(&repo, &ids[1..3]);
    // A collection within the time of an undo keeps everything, and the links.
    let week = Duration::from_secs(2_000_000);
    gc::run(&repo, &GcOptions { undo_of_forget: week, ..ALL }, &Silent).unwrap();
    assert!((0..4).all(|n| has(repo.store(), &own(n).object())));
    assert!(undo(&repo));
    assert_eq!(history(&scratch.repo())[1..], [(ids[2], false), (ids[1], false), (ids[0], true)]);
    collect(&repo);
    assert!(!has(repo.store(), &own(0).object()) && has(repo.store(), &own(1).object()));
    assert_eq!(check(&scratch.repo()), Ok(3));
    // Too late for the first one.
    let last = LastForget::read(&repo).unwrap().unwrap();
    assert_eq!((last.forget.commits.as_slice(), last.deleted), (&ids[..1], Some(ids[0])));
    assert!(!last.undo(&repo, &message("undo: forget")).unwrap());
    assert_eq!(history(&scratch.repo())[3], (ids[0], true));
}

#[test]
fn a_redo_forgets_again_what_an_undo_brought_back() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    let forgotten =
        |repo: &Repo| history(repo).iter().filter(|(_, is_forgotten)| *is_forgotten).count();
    forget(&repo, &ids[..1]);
    forget(&repo, &ids[1..3]);
    let later = |secs| {
        let time = Time { secs: START.secs + secs, nanos: 0 };
        RefLogMessage { time, ..message("redo: forget") }
    };
    for _ in 0..2 {
        assert!(undo(&repo) && undo(&repo));
        // A collection deletes the links, which nothing needs now.
        collect(&repo);
        assert_eq!(
            (forgotten(&scratch.repo()), repo.store().is_alive(&ids[1].link()).unwrap()),
            (0, false)
        );
        // The last undo is redone first.
        assert_eq!(redo(&repo, &later(1)), Some(1));
        assert_eq!(
            history(&scratch.repo())[1..],
            [(ids[2], false), (ids[1], false), (ids[0], true)]
        );
        assert_eq!(redo(&repo, &later(1)), Some(2));
        assert_eq!((forgotten(&scratch.repo()), redo(&repo, &later(1))), (3, None));
    }
    assert_eq!(check(&repo), Ok(1));
    // The time of an undo counts from the redo.
    assert!(undo(&repo));
    assert_eq!(redo(&repo, &later(900_000)), Some(2));
    let undo_of_forget = Duration::from_secs(200_000);
    gc::run(&repo, &GcOptions { undo_of_forget, ..ALL }, &Silent).unwrap();
    let kept: Vec<bool> = (0..4).map(|n| has(repo.store(), &own(n).object())).collect();
    assert_eq!(kept, [false, true, true, true]);
    // A tag keeps its commit.
    assert!(undo(&repo));
    let tag = RefName::tag("t").unwrap();
    repo.refs().update(&tag, None, Some(ids[2]), &message("tag")).unwrap();
    assert_eq!(redo(&repo, &message("redo: forget")), Some(1));
    assert_eq!(history(&repo)[1..], [(ids[2], false), (ids[1], true), (ids[0], true)]);
    // After another forget there is nothing to redo.
    repo.refs().update(&tag, Some(ids[2]), None, &message("tag: delete")).unwrap();
    assert!(undo(&repo));
    forget(&repo, &ids[2..3]);
    assert_eq!(UndoneForget::read(&repo), None);
}

#[test]
fn a_redo_beside_another_forget_changes_nothing() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    forget(&repo, &ids[..2]);
    undo(&repo);
    let undone = UndoneForget::read(&repo).unwrap();
    forget(&scratch.repo(), &ids[2..3]);
    assert_eq!(undone.redo(&repo, &message("redo: forget"), &Silent).unwrap(), None);
    assert_eq!(history(&scratch.repo())[1..], [(ids[2], true), (ids[1], false), (ids[0], false)]);
}

#[test]
fn a_tag_at_a_forgotten_commit_keeps_it() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    forget(&repo, &ids[..3]);
    let tag = |name: &str, id| {
        repo.refs().update(&RefName::tag(name).unwrap(), None, Some(id), &message("tag"))
    };
    tag("t", ids[1]).unwrap();
    // It stays after the tag goes, too.
    tag("u", ids[2]).unwrap();
    let u = RefName::tag("u").unwrap();
    repo.refs().update(&u, Some(ids[2]), None, &message("tag: delete")).unwrap();
    collect(&repo);
    let kept: Vec<bool> = (0..4).map(|n| has(repo.store(), &own(n).object())).collect();
    assert_eq!(kept, [false, true, true, true]);
    assert_eq!(check(&scratch.repo()), Ok(3));
    // No ref can point at a link.
    let error = tag("v", ids[0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn a_policy_says_for_each_commit_why_it_stays() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    let old = RefName::tag("old").unwrap();
    repo.refs().update(&old, None, Some(ids[0]), &message("tag")).unwrap();
    // All four commits are of one day.
    let daily = KeepPolicy { periods: [(Period::Day, 7)].into(), ..KeepPolicy::default() };
    let found = plan(&repo, KeepPolicy { last: 2, ..daily.clone() }).unwrap();
    let reasons: Vec<String> = found
        .commits
        .iter()
        .map(|commit| commit.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        .collect();
    assert_eq!(reasons, ["tip of main, last, daily", "last", "", "tag old"]);
    assert_eq!(found.forgotten(), [ids[1]].into());
    // The policy has no rule for tags.
    assert!(matches!(plan(&repo, daily.clone()), Err(RemovalError::OnlyTips)));
    repo.refs().update(&old, Some(ids[0]), None, &message("tag: delete")).unwrap();
    assert!(matches!(plan(&repo, daily), Err(RemovalError::OnlyTips)));
    assert!(matches!(plan(&repo, KeepPolicy::default()), Err(RemovalError::OnlyTips)));
    // The present lies before the commits: they neither count nor go.
    let choice = ForgetChoice::Policy {
        policy: KeepPolicy::default(),
        branches: Vec::new(),
        group_by: GroupBy::Branch,
        allows_only_tips: true,
    };
    let past = Time { secs: START.secs - 10, nanos: 0 };
    let found = forget::plan(&repo, &choice, past, &|_| 0, false, &Silent).unwrap();
    assert!(found.commits.iter().all(|commit| commit.reasons.contains(&KeepReason::Future)));
}

#[test]
fn a_commit_of_another_branch_stays_and_a_named_tip_is_refused() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    let side = RefName::branch("side").unwrap();
    repo.refs().update(&side, None, Some(ids[1]), &message("branch: at")).unwrap();
    let choice = |branch: &str| ForgetChoice::Policy {
        policy: KeepPolicy::default(),
        branches: vec![RefName::branch(branch).unwrap()],
        group_by: GroupBy::Branch,
        allows_only_tips: true,
    };
    let gone = |choice: &ForgetChoice| {
        forget::plan(&repo, choice, ALL.present, &|_| 0, false, &Silent)
            .map(|plan| plan.forgotten())
    };
    assert_eq!(gone(&choice("main")).unwrap(), [ids[2]].into());
    assert_eq!(gone(&choice("side")).unwrap(), BTreeSet::new());
    assert_eq!(gone(&ForgetChoice::Commits(vec![ids[0], ids[0]])).unwrap(), [ids[0]].into());
    for id in [ids[1], ids[3]] {
        let refused = gone(&ForgetChoice::Commits(vec![id])).unwrap_err();
        assert!(matches!(refused, RemovalError::Protected { .. }), "{refused}");
    }
}

#[test]
fn a_policy_applies_to_each_branch_or_to_each_host_and_a_report_reads_the_commits() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    let side = RefName::branch("side").unwrap();
    repo.refs().update(&side, None, Some(ids[2]), &message("branch: at")).unwrap();
    for (group_by, kept) in [
        (GroupBy::Branch, ["tip of main, last", "tip of side, last", "last", ""]),
        (GroupBy::Host, ["tip of main, last", "tip of side, last", "", ""]),
        (GroupBy::Label("no".to_owned()), ["tip of main, last", "tip of side, last", "", ""]),
    ] {
        let choice = ForgetChoice::Policy {
            policy: KeepPolicy { last: 2, ..KeepPolicy::default() },
            branches: Vec::new(),
            group_by,
            allows_only_tips: true,
        };
        let plan = forget::plan(&repo, &choice, ALL.present, &|_| 0, false, &Silent).unwrap();
        let reasons = plan.commits.iter().map(|commit| {
            let reasons = commit.reasons.iter().map(ToString::to_string);
            reasons.collect::<Vec<_>>().join(", ")
        });
        assert_eq!(reasons.collect::<Vec<_>>(), kept, "{choice:?}");
        for planned in &plan.commits {
            let commit = repo.store().commit(&planned.id).unwrap();
            let text = planned.text(repo.store()).unwrap();
            assert_eq!((planned.time, text.host), (commit.time, commit.host));
            assert_eq!(text.message, commit.message.lines().next().unwrap_or_default());
        }
    }
}

#[test]
fn a_limit_of_bytes_lets_the_oldest_commits_go() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    // Each commit takes a bit more than its own 20,000 bytes that cannot be compressed.
    for (limit, gone) in [(1_000_000, 0), (70_000, 1), (50_000, 2), (30_000, 3), (0, 3)] {
        let choice = ForgetChoice::Policy {
            policy: KeepPolicy { max_bytes: Some(limit), ..KeepPolicy::default() },
            branches: Vec::new(),
            group_by: GroupBy::Branch,
            allows_only_tips: true,
        };
        let found = forget::plan(&repo, &choice, ALL.present, &|_| 0, false, &Silent).unwrap();
        assert_eq!(found.forgotten(), ids[..gone].iter().copied().collect(), "{limit} bytes");
        let kept = found.kept_bytes.unwrap();
        assert!(kept <= limit || gone == 3, "{kept} of {limit} bytes");
        assert!(kept + found.forgotten_bytes().unwrap() > 80_000);
    }
}

#[test]
fn reading_commands_skip_and_count_forgotten_commits() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    forget(&repo, &ids[..3]);
    for collected in [false, true] {
        if collected {
            collect(&repo);
        }
        let tip = [ids[3]];
        let limits = stats::StatsOptions { commits: 9, files: 9 };
        let counted = stats::run(repo.store(), &tip, &limits, &Silent).unwrap();
        assert_eq!((counted.commit_count, counted.forgotten_commits), (1, 3));
        assert_eq!(counted.files.len(), 2);
        let mut paths = 0;
        let found = find::run(repo.store(), &tip, &FindOptions::new(b"own"), &Silent, &mut |_| {
            paths += 1;
            Ok::<_, PastError>(())
        });
        let found = found.unwrap();
        assert_eq!((paths, found.commits, found.versions, found.forgotten_commits), (1, 1, 1, 3));
        let options = log::LogOptions { limit: NonZeroU64::new(9), ..log::LogOptions::default() };
        let renames = path_log::FollowRenames::Ignore;
        let steps = path_log::run(repo.store(), &tip, &[b"own"], &options, renames, &Silent);
        let steps: Vec<_> = steps.unwrap().map(|step| step.unwrap().id).collect();
        assert_eq!(steps, tip);
    }
}

#[test]
fn a_lost_or_damaged_table_loses_nothing() {
    let (scratch, ids) = with_history();
    forget(&scratch.repo(), &ids[..2]);
    collect(&scratch.repo());
    forget(&scratch.repo(), &ids[2..3]);
    let table = scratch.store().join("forgotten");
    let bytes = fs_err::read(&table).unwrap();
    let damaged: [&dyn Fn(); 4] = [
        &|| fs_err::remove_file(&table).unwrap(),
        &|| fs_err::write(&table, &bytes[..bytes.len() / 2]).unwrap(),
        &|| {
            let mut flipped = bytes.clone();
            flipped[20] ^= 1;
            fs_err::write(&table, flipped).unwrap();
        },
        &|| fs_err::write(&table, b"").unwrap(),
    ];
    for damage in damaged {
        damage();
        // Deleted commits count as forgotten, the others as kept.
        let is_forgotten = [false, false, true, true];
        let shown: Vec<_> = ids.iter().rev().copied().zip(is_forgotten).collect();
        assert_eq!(history(&scratch.repo()), shown);
        collect(&scratch.repo());
        assert_eq!(check(&scratch.repo()), Ok(2));
        fs_err::write(&table, &bytes).unwrap();
    }
}

/// The bytes of a link prove its id.
#[test]
fn a_forged_link_is_damage() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    let other = repo.store().object(&ids[1].object(), ObjectKind::Commit).unwrap();
    let stranger = CommitId::of(b"no commit");
    let writer = ObjectWriter::new(repo.store(), 1, 1).unwrap();
    writer.add_link(stranger, &other).unwrap();
    writer.finish().unwrap();
    let error = repo.store().ancestor(&stranger).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
}

#[test]
fn forget_beside_a_collection_at_any_step() {
    let (scratch, ids) = with_history();
    let old = ids[..3].to_vec();
    let forget_old = {
        let old = old.clone();
        move |store: &Path, _: &Path| {
            forget(&open(store), &old);
        }
    };
    let collect_all = |store: &Path, _: &Path| {
        collect(&open(store));
    };
    let steps = interleave(&scratch, &|repo, _| assert_eq!(forget(repo, &old), 3), collect_all);
    assert!(steps > 5, "{steps} steps");
    let steps = interleave(&scratch, &|repo, _| assert!(!collect(repo).is_busy), forget_old);
    assert!(steps > 1, "{steps} steps");
}

#[test]
fn an_undo_of_a_forget_beside_a_collection_at_any_step() {
    let (scratch, ids) = with_history();
    forget(&scratch.repo(), &ids[..3]);
    let whole_or_gone = |repo: &Repo| {
        let kept = history(repo).iter().filter(|(_, is_forgotten)| !is_forgotten).count();
        assert!(kept == 1 || kept == 4, "{kept} commits");
        assert_eq!(check(repo), Ok(kept));
    };
    interleave(
        &scratch,
        &|repo, _| {
            collect(repo);
        },
        move |store, _| {
            let repo = open(store);
            undo(&repo);
            whole_or_gone(&repo);
        },
    );
    interleave(
        &scratch,
        &|repo, _| {
            if LastForget::read(repo).unwrap().is_some() {
                undo(repo);
            }
            whole_or_gone(repo);
        },
        |store, _| {
            collect(&open(store));
        },
    );
}

#[test]
fn a_tag_at_a_forgotten_commit_beside_a_collection_at_any_step() {
    let (scratch, ids) = with_history();
    forget(&scratch.repo(), &ids[..3]);
    let (tag, at) = (RefName::tag("t").unwrap(), ids[1]);
    let set = {
        let tag = tag.clone();
        move |repo: &Repo| repo.refs().update(&tag, None, Some(at), &message("tag"))
    };
    let set_beside = set.clone();
    interleave(
        &scratch,
        &|repo, _| {
            collect(repo);
        },
        move |store, _| {
            // Too late is an error; a tag that was set is complete.
            if let Err(error) = set_beside(&open(store)) {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            }
        },
    );
    interleave(
        &scratch,
        &|repo, _| {
            if let Err(error) = set(repo) {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            }
        },
        |store, _| {
            collect(&open(store));
        },
    );
}

/// Also: a disk that is full, and writes that fail or stop in the middle.
#[test]
fn a_killed_forget_forgets_all_or_nothing() {
    let (scratch, ids) = with_history();
    let old: BTreeSet<CommitId> = ids[..3].iter().copied().collect();
    killed_at_each_step(&scratch, "forget", &|repo| {
        forget::run(repo, &old, &message("forget"), &Silent).is_ok()
    });
    forget(&scratch.repo(), &ids[..3]);
    undo(&scratch.repo());
    collect(&scratch.repo());
    killed_at_each_step(&scratch, "redo", &|repo| {
        let undone = UndoneForget::read(repo).unwrap();
        undone.redo(repo, &message("redo: forget"), &Silent).is_ok()
    });
}

/// Runs `forgets`, which forgets the first three commits of [`with_history`], with a fault at each of
/// its steps. It returns false after an error.
fn killed_at_each_step(scratch: &Scratch, name: &str, forgets: &dyn Fn(&Repo) -> bool) {
    for plan in PLANS {
        for at in 0.. {
            let store = scratch.path(&format!("{name}{plan:?}{at}"));
            crate::scratch::copy(&scratch.store(), &store);
            let fault = Fault::new(plan, at);
            let repo = open_gated(&store, Arc::clone(&fault) as _);
            let is_done = forgets(&repo);
            drop(repo);
            let repo = open(&store);
            let forgotten = history(&repo).iter().filter(|(_, is_forgotten)| *is_forgotten).count();
            assert!(forgotten == 0 || forgotten == 3, "{plan:?} at {at}: {forgotten}");
            assert!(forgotten == 3 || !is_done, "{plan:?} at {at}");
            collect(&repo);
            assert_eq!(check(&repo), Ok(4 - forgotten), "{plan:?} at {at}");
            fs_err::remove_dir_all(&store).unwrap();
            if fault.steps.lock().len() <= at {
                assert!(at > 5, "{at} steps");
                break;
            }
        }
    }
}

/// A collection that was killed at any step goes on, and an undo before it goes on brings back all
/// commits or none.
#[test]
fn an_undo_after_a_killed_collection_brings_back_only_whole_commits() {
    let (scratch, ids) = with_history();
    forget(&scratch.repo(), &ids[..3]);
    let undone = AtomicUsize::new(0);
    for at in 0.. {
        let store = scratch.path(&format!("killed{at}"));
        crate::scratch::copy(&scratch.store(), &store);
        let fault = Fault::new(Plan::Crash, at);
        let _ = gc::run(&open_gated(&store, Arc::clone(&fault) as _), &ALL, &Silent);
        let repo = open(&store);
        if undo(&repo) {
            undone.fetch_add(1, Ordering::SeqCst);
            assert_eq!(check(&repo), Ok(4), "at {at}");
        }
        collect(&repo);
        assert!(check(&repo).is_ok(), "at {at}");
        fs_err::remove_dir_all(&store).unwrap();
        if fault.steps.lock().len() <= at {
            assert!(at > 10, "{at} steps");
            break;
        }
    }
    assert!(undone.load(Ordering::SeqCst) > 0);
}

/// A collection that is killed after its shadows has deleted nothing yet. An ancestor that was once
/// forgotten still has its link then.
#[test]
fn a_dead_ancestor_with_a_link_stays_whole() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    kill_second(&repo, &ids);
    collect(&repo);
    assert_eq!(check(&repo), Ok(4));
    assert!(has(repo.store(), &own(1).object()));
}

/// Shadows the pack of the second commit of [`with_history`] as dead, although its link is there.
fn kill_second(repo: &Repo, ids: &[CommitId]) {
    forget(repo, &ids[1..2]);
    assert!(undo(repo));
    let place = repo.store().locate(&ids[1].object()).unwrap().unwrap();
    let pack = repo.store().pack_id(place.pack).unwrap();
    let kill = |table: &mut ShadowTable| table.add(pack, Reason::Dead, ShadowedPart::Whole);
    repo.store().change_shadows(&kill).unwrap();
}

#[test]
fn a_lost_content_of_a_ref_is_not_taken_for_one_of_a_dead_ancestor() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    scratch.write("lost", noise(50, 20_000));
    commit(&repo, &scratch.source(), "side");
    scratch.write("own", "changes the folder");
    commit(&repo, &scratch.source(), "main");
    delete_branch(&repo, "side");
    kill_second(&repo, &ids);
    let lost = BlobId::of(&noise(50, 20_000)).object();
    let place = repo.store().locate(&lost).unwrap().unwrap();
    let pack = repo.store().pack_id(place.pack).unwrap();
    fs_err::remove_file(repo.store().pack_path(&pack)).unwrap();
    let error = gc::run(&scratch.repo(), &ALL, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
}

/// Otherwise, a later commit could find its tree stored and rely on it.
#[test]
fn a_forgotten_commit_in_a_pack_that_stays_is_complete() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let mut ids = Vec::new();
    for n in 0..10 {
        scratch.write("own", noise(n, 200));
        ids.push(commit(&repo, &scratch.source(), "main"));
    }
    assert!(tidy::run(&repo, &Silent).unwrap().merged >= 8);
    forget(&repo, &ids[..4]);
    // A pack of a deleted branch, so that the collection frees something.
    scratch.write("own", noise(99, 5000));
    commit(&repo, &scratch.source(), "dead");
    delete_branch(&repo, "dead");
    let limited = GcOptions { max_rewritten_bytes: Some(0), ..ALL };
    let outcome = gc::run(&repo, &limited, &Silent).unwrap();
    assert!(outcome.deleted_packs > 0 && outcome.rewritten_packs == 0, "{outcome:?}");
    let is_whole = |n: u64| has(repo.store(), &BlobId::of(&noise(n, 200)).object());
    assert!(!repo.store().shadows().has_any_dead() && is_whole(0) && is_whole(3));
    assert!(undo(&repo));
    assert_eq!(check(&scratch.repo()), Ok(10));
    forget(&repo, &ids[..4]);
    collect(&repo);
    assert!(!is_whole(0) && !is_whole(3));
    assert_eq!(check(&scratch.repo()), Ok(6));
}

#[test]
fn sizes_count_what_no_commit_that_stays_has() {
    let (scratch, ids) = with_history();
    let repo = scratch.repo();
    let side = RefName::branch("side").unwrap();
    repo.refs().update(&side, None, Some(ids[0]), &message("branch: at")).unwrap();
    // All commits have `common`, and only the first two what they add here.
    let measured = |choice: &ForgetChoice| {
        forget::plan(&repo, choice, ALL.present, &|_| 0, true, &Silent).unwrap()
    };
    let named = measured(&ForgetChoice::Commits(vec![ids[1], ids[2]]));
    for commit in &named.commits {
        // Its own content cannot be compressed, and its trees are small.
        assert!((20_000..20_600).contains(&commit.bytes.unwrap()), "{commit:?}");
    }
    let of_main = measured(&ForgetChoice::Policy {
        policy: KeepPolicy::default(),
        branches: vec![RefName::branch("main").unwrap()],
        group_by: GroupBy::Branch,
        allows_only_tips: true,
    });
    assert_eq!(of_main.forgotten_bytes(), named.forgotten_bytes());
    assert_eq!(of_main.kept_bytes, named.kept_bytes);
}
