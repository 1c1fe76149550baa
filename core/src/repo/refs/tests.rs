//! Tests of [`Refs`](super::Refs). They need a folder, but no store.

use std::thread;

use super::*;
use crate::base::kind::ErrorKind;

const CHANGE: RefLogMessage<'static> =
    RefLogMessage { time: Time { secs: 1, nanos: 0 }, who: "ann", reason: "test" };

fn refs() -> (tempfile::TempDir, Refs) {
    let dir = tempfile::tempdir().unwrap();
    fs_err::create_dir(dir.path().join("tmp")).unwrap();
    let refs = Refs::new(dir.path(), Disk::default());
    (dir, refs)
}

fn id(text: &str) -> CommitId {
    CommitId::of(text.as_bytes())
}

fn branch(name: &str) -> RefName {
    RefName::branch(name).unwrap()
}

#[test]
fn a_ref_moves_only_from_the_expected_commit() {
    let (_dir, refs) = refs();
    let main = branch("main");
    assert_eq!(refs.read(&main).unwrap(), None);
    refs.update(&main, None, Some(id("1")), &CHANGE).unwrap();
    assert_eq!(refs.read(&main).unwrap(), Some(id("1")));

    let again = refs.update(&main, None, Some(id("2")), &CHANGE).unwrap_err();
    assert!(matches!(again, RefError::Exists { at, .. } if at == id("1")));
    let stale = refs.update(&main, Some(id("0")), Some(id("2")), &CHANGE).unwrap_err();
    assert!(matches!(stale, RefError::Moved { found: Some(at), .. } if at == id("1")));
    assert_eq!(stale.kind(), ErrorKind::Exists);

    refs.update(&main, Some(id("1")), Some(id("2")), &CHANGE).unwrap();
    refs.update(&main, Some(id("2")), None, &CHANGE).unwrap();
    assert_eq!(refs.read(&main).unwrap(), None);
    let moves: Vec<_> = refs.log(&main).unwrap().into_iter().map(|l| (l.old, l.new)).collect();
    let [one, two] = [id("1"), id("2")].map(RefValue::Commit);
    let nothing = RefValue::Nothing;
    assert_eq!(moves, [(nothing.clone(), one.clone()), (one, two.clone()), (two, nothing)]);
}

#[test]
fn a_ref_cannot_be_a_folder_of_another_ref() {
    let (_dir, refs) = refs();
    refs.update(&branch("a"), None, Some(id("1")), &CHANGE).unwrap();
    let below = refs.update(&branch("a/b/c"), None, Some(id("1")), &CHANGE).unwrap_err();
    assert_eq!(below.to_string(), "branch `a/b/c` conflicts with `a`");

    refs.update(&branch("a"), Some(id("1")), None, &CHANGE).unwrap();
    refs.update(&branch("a/b/c"), None, Some(id("1")), &CHANGE).unwrap();
    let above = refs.update(&branch("a"), None, Some(id("1")), &CHANGE).unwrap_err();
    assert_eq!(above.to_string(), "branch `a` conflicts with `a/b/c`");
    assert_eq!(refs.read(&branch("a")).unwrap(), None);

    refs.update(&branch("a/b/c"), Some(id("1")), None, &CHANGE).unwrap();
    refs.update(&branch("a"), None, Some(id("1")), &CHANGE).unwrap();
    assert_eq!(refs.list(RefKind::Branch).unwrap(), [(branch("a"), id("1"))]);
}

#[test]
fn refs_are_created_together_unless_one_exists() {
    let (_dir, refs) = refs();
    let all = |text: &str| ["a/b", "c", "a/d"].map(|name| (branch(name), id(text)));
    refs.update(&branch("c"), None, Some(id("1")), &CHANGE).unwrap();
    refs.create_all(&all("1"), &CHANGE).unwrap();
    assert_eq!(refs.list(RefKind::Branch).unwrap().len(), 3);
    let log = refs.log(&branch("a/d")).unwrap();
    assert_eq!((log.len(), &log[0].new), (1, &RefValue::Commit(id("1"))));
    refs.create_all(&all("1"), &CHANGE).unwrap();
    assert_eq!(refs.log(&branch("a/d")).unwrap().len(), 1, "they are there already");
    assert!(matches!(refs.create_all(&all("2"), &CHANGE), Err(RefError::Exists { .. })));
    let beside = [(branch("new"), id("1")), (branch("c/below"), id("1"))];
    assert!(matches!(refs.create_all(&beside, &CHANGE), Err(RefError::NameConflict { .. })));
    assert_eq!(refs.read(&branch("new")).unwrap(), None);
}

#[test]
fn all_refs_are_listed_in_order() {
    let (_dir, refs) = refs();
    for name in ["z", "a/x", "a/b/c", "m"] {
        refs.update(&branch(name), None, Some(id(name)), &CHANGE).unwrap();
    }
    refs.update(&RefName::tag("v1").unwrap(), None, Some(id("t")), &CHANGE).unwrap();
    let names: Vec<_> = refs.list(RefKind::Branch).unwrap();
    let names: Vec<_> = names.iter().map(|(name, _)| name.short()).collect();
    assert_eq!(names, ["a/b/c", "a/x", "m", "z"]);
    assert_eq!(refs.list(RefKind::Tag).unwrap().len(), 1);
}

#[test]
fn head_names_a_branch_or_a_commit() {
    let (dir, refs) = refs();
    assert_eq!(refs.head().unwrap_err().kind(), ErrorKind::Damaged);
    let main = Head::Branch(branch("main"));
    refs.write_head(&main).unwrap();
    assert_eq!(refs.head().unwrap(), main);
    assert_eq!(refs.head_commit().unwrap(), None);

    let detached = Head::Detached(id("1"));
    assert!(matches!(refs.set_head(&detached, &main, &CHANGE), Err(RefError::HeadMoved)));
    refs.set_head(&main, &detached, &CHANGE).unwrap();
    assert_eq!(refs.head_commit().unwrap(), Some(id("1")));
    assert_eq!(refs.log_of(&Pointer::Head).unwrap()[0].old, RefValue::Branch(branch("main")));

    for bad in ["", "ref: refs/tags/x", "ref: refs/heads/..", "12", "\u{0}"] {
        fs_err::write(dir.path().join("HEAD"), bad).unwrap();
        assert_eq!(refs.head().unwrap_err().kind(), ErrorKind::Damaged, "{bad:?}");
    }
}

#[test]
fn an_error_of_a_damaged_ref_names_the_file() {
    let (dir, refs) = refs();
    let file = dir.path().join("refs/heads/main");
    fs_err::create_dir_all(file.parent().unwrap()).unwrap();
    let large = "a".repeat(10_000);
    for bad in ["", "123\n", &large] {
        fs_err::write(&file, bad).unwrap();
        let error = refs.read(&branch("main")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().starts_with(file.to_str().unwrap()), "{error}");
    }
    refs.repair(&branch("main"), id("1"), &CHANGE).unwrap();
    assert_eq!(refs.read(&branch("main")).unwrap(), Some(id("1")));
    assert!(refs.repair(&branch("main"), id("2"), &CHANGE).is_err());
}

#[test]
fn concurrent_writers_move_a_ref_one_at_a_time() {
    let (_dir, refs) = refs();
    let main = branch("main");
    thread::scope(|scope| {
        for writer in 0..4 {
            let (refs, main) = (&refs, &main);
            scope.spawn(move || {
                for step in 0..10 {
                    loop {
                        let seen = refs.read(main).unwrap();
                        let new = id(&format!("{writer} {step} {seen:?}"));
                        match refs.update(main, seen, Some(new), &CHANGE) {
                            Ok(()) => break,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Exists),
                        }
                    }
                }
            });
        }
    });
    let log = refs.log(&main).unwrap();
    assert_eq!(log.len(), 40);
    assert!(log.windows(2).all(|pair| pair[0].new == pair[1].old));
}

#[test]
fn each_write_of_a_ref_has_its_own_nonce() {
    let (dir, refs) = refs();
    let (main, file) = (branch("main"), dir.path().join("refs/heads/main"));
    let first = refs.swap(&main, ExpectedRef::At(None), Some(id("1")), &CHANGE).unwrap();
    assert_eq!(refs.text(&main).unwrap().as_ref(), Some(&first));
    assert_eq!(fs_err::read_to_string(&file).unwrap(), first.encode());
    assert_eq!(first.encode().lines().count(), 3);
    refs.update(&main, Some(id("1")), Some(id("2")), &CHANGE).unwrap();
    refs.update(&main, Some(id("2")), Some(id("1")), &CHANGE).unwrap();
    // The ref points at the old commit again, but its file was written since.
    let stale = refs.swap(&main, ExpectedRef::Text(&first), Some(id("3")), &CHANGE).unwrap_err();
    assert!(matches!(stale, RefError::Moved { found: Some(at), .. } if at == id("1")));
    let now = refs.text(&main).unwrap().unwrap();
    refs.swap(&main, ExpectedRef::Text(&now), Some(id("3")), &CHANGE).unwrap();
    assert_eq!(refs.read(&main).unwrap(), Some(id("3")));
}

#[test]
fn refs_with_a_later_epoch_are_read_but_not_moved() {
    let (dir, refs) = refs();
    let (main, file) = (branch("main"), dir.path().join("refs/heads/main"));
    fs_err::create_dir_all(file.parent().unwrap()).unwrap();
    let (one, nonce) = (id("1"), "0".repeat(32));
    for later in [format!("{one}\n{nonce}\n1\n"), format!("{one}\n{nonce}\n0\n{one} 5\n")] {
        fs_err::write(&file, &later).unwrap();
        assert_eq!(refs.read(&main).unwrap(), Some(one));
        for new in [Some(id("2")), None] {
            let refused = refs.update(&main, Some(one), new, &CHANGE).unwrap_err();
            assert!(matches!(refused, RefError::Newer { .. }), "{refused}");
        }
        assert_eq!(fs_err::read_to_string(&file).unwrap(), later);
    }
    // A ref whose file records its deletion does not exist, and can be created again.
    fs_err::write(&file, format!("{}\n{nonce}\n0\n", "0".repeat(64))).unwrap();
    assert_eq!((refs.read(&main).unwrap(), refs.list(RefKind::Branch).unwrap()), (None, vec![]));
    refs.update(&main, None, Some(one), &CHANGE).unwrap();
    assert_eq!(refs.read(&main).unwrap(), Some(one));
}

#[test]
fn a_listing_is_current_until_a_ref_of_any_folder_changes() {
    let (dir, refs) = refs();
    for name in ["main", "team/topic"] {
        refs.update(&branch(name), None, Some(id("1")), &CHANGE).unwrap();
    }
    let tag = RefName::new(RefKind::Tag, "v1").unwrap();
    refs.update(&tag, None, Some(id("1")), &CHANGE).unwrap();
    assert!(!refs.list_all().unwrap().is_current(), "the times of changed folders prove nothing");
    let settle = || {
        let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        for folder in ["refs/heads", "refs/heads/team", "refs/tags"] {
            let folder = fs_err::File::open(dir.path().join(folder)).unwrap();
            folder.set_modified(hour_ago).unwrap();
        }
    };
    let changes =
        [(branch("main"), Some(id("2"))), (branch("team/topic"), Some(id("2"))), (tag, None)];
    for (name, new) in &changes {
        settle();
        let before = refs.list_all().unwrap();
        assert!(before.is_current());
        refs.update(name, Some(id("1")), *new, &CHANGE).unwrap();
        assert!(!before.is_current(), "{name}");
        assert_eq!(before.refs.len(), 3);
    }
    let after = refs.list_all().unwrap().refs;
    assert_eq!(after[..], [(branch("main"), id("2")), (branch("team/topic"), id("2"))]);
}
