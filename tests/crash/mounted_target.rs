//! Restores into folders with mount points: nothing behind a mount point is removed.

use std::{ffi::OsStr, path::Path};

use snap_testkit::mounts::{in_own_mounts, mount_memory, tool};

use crate::place::{bare, fails, folder, stderr, well};

fn write(path: &Path, text: &str) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, text).unwrap();
}

fn bind(from: &Path, to: &Path) {
    let args = ["--bind".as_ref(), from.as_os_str(), to.as_os_str()];
    assert!(tool("mount", args.map(OsStr::new)));
}

#[test]
fn nothing_behind_a_mount_point_is_removed() {
    in_own_mounts("mounted_target::nothing_behind_a_mount_point_is_removed", || {
        let place = folder();
        let (project, outside) = (place.path().join("project"), place.path().join("outside"));
        write(&project.join("notes"), "saved");
        write(&outside.join("precious"), "x");
        // A mounted folder whose files are part of the snapshot.
        fs_err::create_dir_all(project.join("saved")).unwrap();
        mount_memory(&project.join("saved"), 512);
        write(&project.join("saved/z"), "saved");
        well(bare().current_dir(&project).args(["commit"]));
        write(&project.join("saved/a"), "x");
        write(&project.join("saved/b"), "x");
        write(&project.join("saved/z"), "other");
        let dry = ["restore", "latest", "--overwrite", "--delete", "-n"];
        let listed = well(bare().current_dir(&project).args(dry));
        assert_eq!(listed, "replace saved/z  (in no commit)\n");
        well(bare().current_dir(&project).args(&dry[..4]).arg("--yes"));
        assert_eq!(fs_err::read(project.join("saved/z")).unwrap(), b"saved");
        assert!(project.join("saved/a").exists());

        fs_err::create_dir_all(project.join("disk")).unwrap();
        mount_memory(&project.join("disk"), 512);
        write(&project.join("disk/data"), "x");
        well(bare().current_dir(&project).args(["commit", "--one-file-system"]));

        // Mounts on a folder that is empty in the snapshot, on an extra folder, a bind mount, and
        // one deep in an extra folder.
        mount_memory(&project.join("extra-disk"), 512);
        write(&project.join("extra-disk/data"), "x");
        for bound in ["bound", "extra/deep/bound", "in-the-way"] {
            fs_err::create_dir_all(project.join(bound)).unwrap();
            bind(&outside, &project.join(bound));
        }
        write(&project.join("extra/gone"), "x");
        write(&project.join("file-mount"), "");
        bind(&outside.join("precious"), &project.join("file-mount"));

        let args = ["restore", "latest", "--overwrite", "--delete", "--yes"];
        let output = bare().current_dir(&project).args(args).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let mounted = ["disk", "extra-disk", "bound", "extra/deep/bound", "file-mount"];
        for path in mounted {
            let told = format!("kept `{path}`: another file system is mounted there");
            assert!(said.contains(&told), "{told}\n{said}");
        }
        for data in ["disk/data", "extra-disk/data", "bound/precious", "file-mount"] {
            assert!(project.join(data).exists(), "{data}");
        }
        assert!(outside.join("precious").exists() && !project.join("extra/gone").exists());
    });
}

/// Mounts a FUSE file system whose server is gone.
fn mount_dead(at: &Path) -> bool {
    fs_err::create_dir_all(at).unwrap();
    let options = "fd=3,rootmode=40000,user_id=0,group_id=0";
    let script = format!("exec 3<>/dev/fuse && mount -i -t fuse none \"$1\" -o {options}");
    tool("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), at.as_os_str()])
}

#[test]
fn paths_that_refuse_are_named_and_all_others_are_restored() {
    const TEST: &str = "mounted_target::paths_that_refuse_are_named_and_all_others_are_restored";
    in_own_mounts(TEST, || {
        let place = folder();
        let project = place.path().join("project");
        for number in 0..40 {
            write(&project.join(format!("d{number:02}/f")), "saved");
        }
        fs_err::hard_link(project.join("d03/f"), project.join("d30/other-name")).unwrap();
        well(bare().current_dir(&project).arg("commit"));
        for number in 0..40 {
            write(&project.join(format!("d{number:02}/f")), "changed");
        }
        fs_err::remove_file(project.join("d30/other-name")).unwrap();
        // A file and a folder that are mount points, a read-only one, and a dead file server.
        let mount_point = project.join("d01/f");
        bind(&mount_point, &mount_point);
        let read_only = project.join("d02");
        bind(&read_only, &read_only);
        let args = ["-o", "remount,bind,ro"].map(OsStr::new);
        assert!(tool("mount", args.into_iter().chain([read_only.as_os_str()])));
        let first_name = project.join("d03");
        bind(&first_name, &first_name);
        assert!(tool("mount", args.into_iter().chain([first_name.as_os_str()])));
        let mut refused = vec!["d01/f", "d02/f", "d03/f"];
        let has_fuse = mount_dead(&project.join("d04")) && mount_dead(&project.join("extra"));
        refused.extend(has_fuse.then_some("d04"));

        for delete in [&["--yes"][..], &["--delete", "--yes"]] {
            let mut restore = bare();
            restore.current_dir(&project).args(["restore", "latest", "--overwrite"]).args(delete);
            let said = fails(&mut restore, 3);
            for path in &refused {
                assert!(
                    said.contains(&format!("could not restore file `{path}`"))
                        || said.contains(&format!("could not restore folder `{path}`")),
                    "{path}: {said}"
                );
            }
            let extra = said.contains("could not remove `extra`");
            assert_eq!(extra, has_fuse && delete.len() > 1, "{said}");
            for number in (0..40).filter(|number| ![1, 2, 3].contains(number)) {
                let path = project.join(format!("d{number:02}/f"));
                if number != 4 || !has_fuse {
                    assert_eq!(fs_err::read(&path).unwrap(), b"saved", "{number}: {said}");
                }
            }
            assert_eq!(fs_err::read(project.join("d30/other-name")).unwrap(), b"saved");
        }
    });
}

#[test]
fn a_read_only_target_ends_the_restore_at_once() {
    const TEST: &str = "mounted_target::a_read_only_target_ends_the_restore_at_once";
    in_own_mounts(TEST, || {
        let place = folder();
        let (project, target) = (place.path().join("project"), place.path().join("target"));
        write(&project.join("a"), "saved");
        write(&project.join("b"), "saved");
        well(bare().current_dir(&project).arg("commit"));
        fs_err::create_dir_all(&target).unwrap();
        bind(&target, &target);
        let args = ["-o", "remount,bind,ro"].map(OsStr::new);
        assert!(tool("mount", args.into_iter().chain([target.as_os_str()])));
        let args = ["restore", "latest", "../target"];
        let said = fails(bare().current_dir(&project).args(args), 1);
        assert!(said.contains("Read-only file system"), "{said}");
        assert!(!said.contains("could not restore"), "{said}");
    });
}

#[test]
fn a_mount_point_in_the_way_of_a_file_blocks_it_and_keeps_what_is_in_it() {
    const TEST: &str =
        "mounted_target::a_mount_point_in_the_way_of_a_file_blocks_it_and_keeps_what_is_in_it";
    in_own_mounts(TEST, || {
        let place = folder();
        let (project, outside) = (place.path().join("project"), place.path().join("outside"));
        write(&project.join("a"), "a file");
        write(&outside.join("precious"), "x");
        well(bare().current_dir(&project).arg("commit"));
        fs_err::remove_file(project.join("a")).unwrap();
        fs_err::create_dir(project.join("a")).unwrap();
        bind(&outside, &project.join("a"));
        for dry in [&["-n"][..], &[]] {
            let args = ["restore", "latest", "--overwrite", "--delete"];
            let said = fails(bare().current_dir(&project).args(args).args(dry), 1);
            assert!(said.contains("`a` is a folder that is not empty"), "{said}");
            assert!(outside.join("precious").exists());
        }
    });
}

#[test]
fn a_name_that_cannot_be_a_link_across_mounts_becomes_a_copy() {
    in_own_mounts(
        "mounted_target::a_name_that_cannot_be_a_link_across_mounts_becomes_a_copy",
        || {
            let place = folder();
            let (project, outside) = (place.path().join("project"), place.path().join("outside"));
            for (name, text) in [("small", "saved".to_owned()), ("large", "saved ".repeat(400_000))]
            {
                write(&project.join(name), &text);
                fs_err::create_dir_all(project.join("m")).unwrap();
                fs_err::hard_link(project.join(name), project.join("m").join(name)).unwrap();
            }
            well(bare().current_dir(&project).args(["commit"]));
            fs_err::create_dir_all(&outside).unwrap();
            write(&outside.join("small"), "other");
            bind(&outside, &project.join("m"));
            for name in ["small", "large"] {
                write(&project.join(name), "changed");
            }
            let args = ["restore", "latest", "--overwrite", "--yes"];
            let output = bare().current_dir(&project).args(args).output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{said}");
            assert!(said.contains("hard link of 2 entries could not be set"), "{said}");
            for name in ["small", "large"] {
                let of = |path: &Path| fs_err::read(path.join(name)).unwrap();
                assert!(of(&project).starts_with(b"saved"), "{name}");
                assert_eq!(of(&project), of(&outside), "{name}");
            }
        },
    );
}

#[test]
fn a_part_of_the_store_is_no_target_under_any_path() {
    in_own_mounts("mounted_target::a_part_of_the_store_is_no_target_under_any_path", || {
        let place = folder();
        let (project, bound) = (place.path().join("project"), place.path().join("bound"));
        write(&project.join("notes"), "saved");
        well(bare().current_dir(&project).args(["commit"]));
        fs_err::create_dir_all(&bound).unwrap();
        bind(&project.join(".snap/objects"), &bound);
        let args = ["restore", "latest", "../bound", "--overwrite", "--delete", "--yes"];
        let output = bare().current_dir(&project).args(args).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("it lies in the store"), "{said}");
        // A store inside the target is not changed either.
        let target = place.path().join("target");
        fs_err::create_dir_all(target.join("inner")).unwrap();
        bind(&project.join(".snap/objects"), &target.join("inner"));
        let args = ["restore", "latest", "../target", "--overwrite", "--delete", "--yes"];
        bare().current_dir(&project).args(args).output().unwrap();
        well(bare().current_dir(&project).args(["verify", "--data"]));
    });
}

#[test]
fn a_commit_of_one_file_system_stops_at_bind_mounts() {
    in_own_mounts("mounted_target::a_commit_of_one_file_system_stops_at_bind_mounts", || {
        let place = folder();
        let (project, outside) = (place.path().join("project"), place.path().join("outside"));
        write(&project.join("notes"), "saved");
        write(&outside.join("elsewhere"), "x");
        for point in ["bound", "deep/bound"] {
            fs_err::create_dir_all(project.join(point)).unwrap();
            bind(&outside, &project.join(point));
        }
        let run = |args: &[&str]| well(bare().current_dir(&project).args(args));
        run(&["commit", "--one-file-system"]);
        assert_eq!(run(&["ls", "-R", "HEAD"]), "bound/\ndeep/\ndeep/bound/\nnotes\n");
        assert_eq!(run(&["status", "-s", "--one-file-system"]), "");
        assert_eq!(run(&["status", "-s"]), "A bound/elsewhere\nA deep/bound/elsewhere\n");
        run(&["commit"]);
        let listed = run(&["ls", "-R", "HEAD"]);
        assert!(listed.contains("bound/elsewhere\n"), "{listed}");
        // Named folders are sources of their own.
        run(&["commit", "--one-file-system", "-b", "named", "bound", "notes"]);
    });
}
