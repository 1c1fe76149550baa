//! A restore of an exact set of paths.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use snap_core::ops::restore::{ContentLoss, ExactPaths, RestoreAction, RestoreOptions};

use crate::restore_fixture::{Snapshot, dirs, mirror};

fn paths(names: &[&str]) -> ExactPaths {
    let mut paths = ExactPaths::default();
    names.iter().for_each(|name| paths.insert(name.as_bytes().to_vec()));
    paths
}

#[test]
fn only_the_named_paths_are_written_and_removed() {
    let (_dir, source, target) = dirs();
    for name in ["sub/a", "sub/b", "other/c"] {
        fs_err::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        fs_err::write(source.join(name), "new").unwrap();
    }
    let snapshot = Snapshot::of(&source);
    for name in ["sub/a", "sub/b", "sub/mine", "gone", "gone-too"] {
        fs_err::create_dir_all(target.join(name).parent().unwrap()).unwrap();
        fs_err::write(target.join(name), "old").unwrap();
    }
    let private = std::fs::Permissions::from_mode(0o711);
    fs_err::set_permissions(target.join("sub"), private).unwrap();
    let mut only = paths(&["sub/a", "gone"]);
    only.look(&target);
    let options = RestoreOptions { only: Some(&only), ..mirror() };
    let outcome = snapshot.restore_with(&target, &options).unwrap();
    assert_eq!((outcome.files_written, outcome.removed), (1, 1), "{outcome:?}");
    let content = |name: &str| fs_err::read_to_string(target.join(name)).unwrap();
    assert_eq!(content("sub/a"), "new");
    for name in ["sub/b", "sub/mine", "gone-too"] {
        assert_eq!(content(name), "old", "{name}");
    }
    assert!(!target.join("gone").exists() && !target.join("other").exists());
    let mode = fs_err::metadata(target.join("sub")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o711, "the folder itself is not in the set");
}

#[test]
fn a_file_changed_after_the_check_is_left_alone() {
    let (_dir, source, target) = dirs();
    fs_err::create_dir_all(source.join("folder")).unwrap();
    for name in ["changed", "appeared", "folder/x", "right"] {
        fs_err::write(source.join(name), "new").unwrap();
    }
    let snapshot = Snapshot::of(&source);
    fs_err::create_dir_all(&target).unwrap();
    for name in ["changed", "deleted", "right"] {
        fs_err::write(target.join(name), "old").unwrap();
    }
    let mut only = paths(&["changed", "appeared", "folder", "folder/x", "right", "deleted"]);
    only.look(&target);
    // What a user does meanwhile.
    for name in ["changed", "appeared", "folder", "deleted"] {
        fs_err::write(target.join(name), "written meanwhile").unwrap();
    }
    let options = RestoreOptions { only: Some(&only), ..mirror() };
    let outcome = snapshot.restore_with(&target, &options).unwrap();
    for name in ["changed", "appeared", "folder", "deleted"] {
        assert_eq!(fs_err::read_to_string(target.join(name)).unwrap(), "written meanwhile");
    }
    assert_eq!(fs_err::read_to_string(target.join("right")).unwrap(), "new");
    assert_eq!((outcome.not_made, outcome.kept), (3, 1), "{outcome:?}");
    assert!(!outcome.is_complete());
}

#[test]
fn a_file_changed_before_its_replacement_is_left_alone() {
    let (_dir, source, target) = dirs();
    fs_err::create_dir_all(&source).unwrap();
    fs_err::create_dir_all(&target).unwrap();
    let names = ["small", "large", "linked", "link", "symlink", "appears", "right"];
    for (folder, content) in [(&source, "new"), (&target, "old")] {
        fs_err::write(folder.join("small"), content).unwrap();
        fs_err::write(folder.join("right"), content).unwrap();
        fs_err::write(folder.join("linked"), content).unwrap();
        symlink(content, folder.join("symlink")).unwrap();
    }
    fs_err::write(source.join("large"), vec![b'n'; 3 << 20]).unwrap();
    fs_err::write(target.join("large"), "old").unwrap();
    fs_err::write(source.join("appears"), "new").unwrap();
    fs_err::hard_link(source.join("linked"), source.join("link")).unwrap();
    fs_err::write(target.join("link"), "old").unwrap();
    let snapshot = Snapshot::of(&source);
    let mut only = paths(&names);
    only.look(&target);
    // The restore reports a change after it has compared the file and before it writes it.
    let on_change = |path: &Path, _: RestoreAction, _: ContentLoss| {
        if path != Path::new("right") && path != Path::new("linked") {
            let _ = fs_err::remove_file(target.join(path));
            fs_err::write(target.join(path), "written meanwhile").unwrap();
        }
    };
    let options = RestoreOptions { only: Some(&only), on_change: Some(&on_change), ..mirror() };
    let outcome = snapshot.restore_with(&target, &options).unwrap();
    for name in names {
        let content = fs_err::read_to_string(target.join(name)).unwrap();
        let expected =
            if ["right", "linked"].contains(&name) { "new" } else { "written meanwhile" };
        assert_eq!(content, expected, "{name}");
    }
    assert_eq!((outcome.not_made, outcome.files_written), (5, 2), "{outcome:?}");
    assert_eq!(fs_err::read_dir(&target).unwrap().count(), names.len(), "no draft remains");
}
