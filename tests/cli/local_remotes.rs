//! The store of a project as a remote, and remotes that are named by a path.

use crate::{
    env::TestEnv,
    remote::{env, folder, says},
};

/// Returns the contents of all files below a folder with their paths, sorted.
fn texts(env: &TestEnv, below: &str) -> Vec<(String, Vec<u8>)> {
    let root = env.path(below);
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(&root).unwrap().display().to_string();
                    found.push((name, fs_err::read(path).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_project_is_cloned_and_pulled_from_by_url_and_by_path() {
    let env = env();
    env.snap_in("work", ["tag", "v1", "main"]).succeeds();
    env.snap_in("work", ["branch", "side"]).succeeds();
    let urls = [
        folder(&env, "work"),
        folder(&env, "work/.snap"),
        env.path("work").display().to_string(),
        "../work".to_owned(),
        "./../work/.snap".to_owned(),
    ];
    env.write("elsewhere/x", "");
    for (number, url) in urls.iter().enumerate() {
        let copy = format!("../copy{number}");
        env.snap_in("elsewhere", ["clone", url, &copy]).succeeds();
        let copy = &copy[3..];
        assert_eq!(env.read(&format!("{copy}/notes.txt")), "first\n", "{url}");
        env.snap_in(copy, ["verify", "--data"]).succeeds();
        env.snap_in(copy, ["log", "-n", "1", "origin/side"]).succeeds();
        assert!(env.snap_in(copy, ["tag"]).succeeds().stdout.contains("v1"), "{url}");
    }
    env.snap_in("elsewhere", ["clone", &urls[1]]).succeeds();
    assert_eq!(env.read("elsewhere/work/notes.txt"), "first\n", "not called `.snap`");
    // Later commits are found too, even after packs were merged.
    for round in 0..9 {
        env.write("work/notes.txt", format!("round {round}\n"));
        env.write(&format!("work/new{round}.txt"), "new\n");
        env.snap_in("work", ["commit", "-qm", "more"]).succeeds();
    }
    let tip = |dir: &str| {
        env.snap_in(dir, ["log", "-n", "1", "--oneline", "main"]).succeeds().stdout[..64].to_owned()
    };
    for (number, url) in urls[..4].iter().enumerate() {
        let copy = format!("copy{number}");
        env.snap_in(&copy, ["pull"]).succeeds();
        assert_eq!(tip(&copy), tip("work"), "{url}");
        env.snap_in(&copy, ["verify", "--data"]).succeeds();
    }
    env.snap_in("copy4", ["fetch", "../work"]).succeeds();
    env.snap_in("copy4", ["pull", "../work", "main"]).succeeds();
    assert_eq!(tip("copy4"), tip("work"));
    assert!(env.snap(["ls", &format!("{}#main", urls[0])]).succeeds().stdout.contains("new8.txt"));
}

/// Returns the tip of a branch of the project in `dir`.
fn tip(env: &TestEnv, dir: &str, branch: &str) -> String {
    let ran = env.snap_in(dir, ["log", "-n", "1", "--oneline", branch]).succeeds();
    ran.stdout[..64].to_owned()
}

/// Clones `work` and adds one commit.
fn copy_of_work(env: &TestEnv) {
    env.snap(["clone", "-q", "work", "copy"]).succeeds();
    env.write("copy/notes.txt", "second\n");
    env.snap_in("copy", ["commit", "-qm", "two"]).succeeds();
}

#[test]
fn a_push_into_a_project_is_like_a_pull_from_the_other_side() {
    let env = env();
    copy_of_work(&env);
    let before = (tip(&env, "work", "main"), env.path("work/.snap/base"));
    let base = fs_err::read(&before.1).unwrap();
    // A dry run reports the changes and writes nothing.
    let files = texts(&env, "work");
    says(&env.snap_in("copy", ["push", "-n", "../work"]), 0, &[]);
    assert!(texts(&env, "work") == files, "a plan writes nothing");
    says(&env.snap_in("copy", ["push", "../work"]), 0, &["main -> main  ", "Sent 3 objects"]);
    assert_eq!(tip(&env, "work", "main"), tip(&env, "copy", "main"));
    env.snap_in("work", ["verify", "--data"]).succeeds();
    // The files and their base are unchanged, so the next commit reverts nothing.
    assert_eq!(env.read("work/notes.txt"), "first\n");
    assert_eq!(fs_err::read(&before.1).unwrap(), base);
    let refused = env.snap_in("work", ["commit", "-m", "three"]);
    says(&refused, 1, &["has 1 newer commit than the files here", "hint: ", "--onto-tip"]);
    // The log names the user, and the push can be undone in that project.
    let log = env.snap_in("work", ["branch", "--log", "main"]).succeeds().stdout;
    assert!(log.lines().next().unwrap().ends_with("ann on box: push"), "{log}");
    env.snap_in("work", ["undo"]).succeeds();
    assert_eq!(tip(&env, "work", "main"), before.0);
    // Pushes again, by the URL of the store and by name.
    says(&env.snap_in("copy", ["push", &folder(&env, "work/.snap")]), 0, &["main -> main  "]);
    env.snap_in("work", ["undo"]).succeeds();
    says(&env.snap_in("copy", ["push"]), 0, &["main -> main  "]);
    says(&env.snap_in("copy", ["push"]), 0, &["Nothing to push"]);
    assert_eq!(fs_err::read_dir(env.path("work/.snap/tmp/staged")).unwrap().count(), 0);
}

#[test]
fn refs_of_a_project_are_forced_made_and_deleted_by_a_push() {
    let env = env();
    copy_of_work(&env);
    env.write("work/notes.txt", "another way\n");
    env.snap_in("work", ["commit", "-qm", "theirs"]).succeeds();
    let theirs = tip(&env, "work", "main");
    says(&env.snap_in("copy", ["push"]), 1, &["the remote has commits that you do not have"]);
    assert_eq!(tip(&env, "work", "main"), theirs);
    says(&env.snap_in("copy", ["push", "--force"]), 0, &["forced"]);
    assert_eq!(tip(&env, "work", "main"), tip(&env, "copy", "main"));
    env.snap_in("copy", ["tag", "v1"]).succeeds();
    env.snap_in("copy", ["branch", "a/b"]).succeeds();
    env.snap_in("copy", ["push", "--all", "--tags"]).succeeds();
    assert_eq!(tip(&env, "work", "a/b"), tip(&env, "work", "v1"));
    says(&env.snap_in("copy", ["push", "--delete", "a/b"]), 0, &["a/b  deleted"]);
    assert!(!env.path("work/.snap/refs/heads/a/b").exists());
    // Same rule as for `snap branch --delete` in that project.
    let refused = env.snap_in("copy", ["push", "--delete", "main"]);
    says(&refused, 1, &["it is the current branch of that project", "`snap branch --switch"]);
    says(&env.snap_in("copy", ["push", "."]), 2, &["is this store itself", "hint: "]);
    says(&env.snap_in("copy", ["push", "../copy", "-n"]), 2, &["is this store itself"]);
    let check = env.snap_in("copy", ["remote", "check"]).succeeds().stdout;
    assert!(check.contains("write           not tested"), "{check}");
    // A clone of a bare store starts on the branch that was pushed first.
    env.snap(["--store", "bare", "init", "-q"]).succeeds();
    env.snap_in("copy", ["push", "../bare", "a/b"]).succeeds();
    env.snap(["clone", "-q", "bare", "of-bare"]).succeeds();
    assert_eq!(env.read("of-bare/notes.txt"), "second\n");
}

#[test]
fn what_is_damaged_in_a_project_is_sent_again() {
    let env = env();
    copy_of_work(&env);
    let objects = env.path("work/.snap/objects");
    let pack = fs_err::read_dir(&objects).unwrap().next().unwrap().unwrap().path();
    env.mode(&pack, 0o600);
    let mut bytes = fs_err::read(&pack).unwrap();
    bytes[17] ^= 1;
    fs_err::write(&pack, bytes).unwrap();
    assert_eq!(env.snap_in("work", ["verify", "--data"]).code, Some(4));
    says(&env.snap_in("copy", ["push"]), 0, &["main -> main  "]);
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn pushes_and_commits_to_one_project_at_once_lose_nothing() {
    let env = env();
    for number in 0..3 {
        let copy = format!("copy{number}");
        env.snap(["clone", "-q", "work", &copy]).succeeds();
    }
    std::thread::scope(|scope| {
        for number in 0..3 {
            let env = &env;
            scope.spawn(move || {
                let (copy, own) = (format!("copy{number}"), format!("own{number}"));
                for round in 0..4 {
                    env.write(&format!("{copy}/file{number}"), format!("{round}"));
                    env.snap_in(&copy, ["commit", "-qm", "more"]).succeeds();
                    env.snap_in(&copy, ["branch", "--force", &own]).succeeds();
                    env.snap_in(&copy, ["push", "-q", "origin", &own]).succeeds();
                    // Other pushes may have won the race.
                    let ran = env.snap_in(&copy, ["push", "-q", "origin", "main"]);
                    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
                }
            });
        }
        scope.spawn(|| {
            for round in 0..6 {
                env.write("work/mine", format!("{round}"));
                let ran = env.snap_in("work", ["commit", "-qm", "mine", "-b", "mine"]);
                assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            }
        });
    });
    for number in 0..3 {
        let (copy, own) = (format!("copy{number}"), format!("own{number}"));
        assert_eq!(tip(&env, "work", &own), tip(&env, &copy, "main"));
    }
    let listed = env.snap_in("work", ["log", "mine", "--oneline"]).succeeds().stdout;
    assert_eq!(listed.lines().count(), 7);
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn folders_with_any_name_are_cloned_and_pushed_to() {
    let env = env();
    fs_err::rename(env.path("work"), env.path("c# or why?")).unwrap();
    env.snap(["clone", "c# or why?", "copy"]).succeeds();
    for to in ["../a#b", "../c?d"] {
        env.snap_in("copy", ["push", to]).succeeds();
        env.snap(["clone", &to[3..], &format!("{to} again")[3..]]).succeeds();
        assert_eq!(env.read(&format!("{to} again/notes.txt")[3..]), "first\n");
    }
    env.write("c# or why?/new.txt", "new");
    env.snap_in("c# or why?", ["commit", "-q"]).succeeds();
    env.snap_in("copy", ["pull"]).succeeds();
    assert_eq!(env.snap_in("copy", ["cat", "HEAD:new.txt"]).succeeds().stdout, "new");
}

#[test]
fn a_partial_clone_takes_a_push_only_if_it_is_complete_then() {
    let env = env();
    env.write("work/notes.txt", "more\n");
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    copy_of_work(&env);
    env.snap(["clone", "-q", "--path", "sub", "work", "part"]).succeeds();
    env.snap(["clone", "-q", "--depth", "1", "work", "shallow"]).succeeds();
    for target in ["part", "shallow"] {
        let ran = env.snap_in("copy", ["push", &format!("../{target}"), "main"]);
        assert_eq!(ran.code, Some(0), "{target}: {}", ran.stderr);
        assert_eq!(tip(&env, target, "main"), tip(&env, "copy", "main"));
        let full = format!("full-{target}");
        env.snap_in(target, ["restore", "main", &format!("../{full}")]).succeeds();
        assert_eq!(env.read(&format!("{full}/notes.txt")), "second\n");
        assert_eq!(env.read(&format!("{full}/sub/more.txt")), "more\n");
    }
}

#[test]
fn a_push_into_a_shared_store_leaves_files_for_its_group() {
    let env = env();
    env.snap(["--store", "shared", "init", "-q", "--shared"]).succeeds();
    env.snap_in("work", ["push", "-q", "../shared"]).succeeds();
    let mode = |path: &str| {
        let meta = fs_err::metadata(env.path(path)).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o7777
    };
    assert_eq!(mode("shared/tmp/staged") & 0o070, 0o070);
    for (name, _) in texts(&env, "shared/objects") {
        assert_eq!(mode(&format!("shared/objects/{name}")) & 0o040, 0o040);
    }
    assert_eq!(mode("shared/refs/heads/main") & 0o060, 0o060);
}

#[test]
fn a_folder_is_pushed_to_by_its_path() {
    let env = env();
    let ran = env.snap_in("work", ["push", "../there/a"]);
    says(&ran, 0, &["main -> main  new branch at "]);
    assert!(env.path("there/a/refs/heads/main").is_file());
    env.snap_in("work", ["remote", "add", "origin", "../there/./a"]).succeeds();
    let listed = env.snap_in("work", ["remote"]).succeeds().stdout;
    assert_eq!(listed, format!("origin  {}\n", folder(&env, "there/a")));
    says(&env.snap_in("work", ["push"]), 0, &["Nothing to push"]);
    // The name of a remote or a branch is not a path.
    says(&env.snap_in("work", ["push", "there/a"]), 1, &["remote `there/a` does not exist"]);
}

#[test]
fn a_damaged_pack_ends_a_push_with_4_and_the_command_to_run() {
    let env = env();
    let objects = env.path("work/.snap/objects");
    let pack = fs_err::read_dir(objects).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs_err::read(&pack).unwrap();
    bytes[17] ^= 1;
    fs_err::set_permissions(&pack, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs_err::write(&pack, bytes).unwrap();
    let name = pack.file_name().unwrap().to_str().unwrap().to_owned();
    let ran = env.snap_in("work", ["push", "../there"]);
    says(&ran, 4, &["damaged", "`snap verify --data`"]);
    assert!(
        ran.stderr.contains(&name[..12]) || ran.stderr.contains("[SHORT ID]"),
        "{}",
        ran.stderr
    );
    assert!(!env.path("there/refs/heads/main").exists());
    assert!(!env.path("there/objects").join(&name).exists());
}

#[test]
fn a_location_that_begins_with_a_tilde_is_a_path_in_the_home_folder() {
    let mut env = TestEnv::new();
    let home = env.path("home");
    fs_err::create_dir(&home).unwrap();
    env.set("HOME", home.to_str().unwrap());
    env.write("p/a.txt", "one");
    env.snap_in("p", ["commit"]).succeeds();
    // No shell expands these.
    env.snap_in("p", ["push", "~/a store #1?"]).succeeds();
    assert!(home.join("a store #1?/refs/heads/main").is_file());
    env.snap(["clone", "~/a store #1?", "copy"]).succeeds();
    assert_eq!(env.read("copy/a.txt"), "one");
    env.snap_in("p", ["remote", "add", "backup", "~/backup"]).succeeds();
    env.snap_in("p", ["push", "backup"]).succeeds();
    env.snap_in("p", ["config", "set", "remote.other.url", "~/backup"]).succeeds();
    assert!(env.snap_in("p", ["verify", "other"]).succeeds().stderr.contains("1 commit"));
    let listed = env.snap_in("p", ["remote"]).succeeds().stdout;
    assert!(listed.contains("other") && listed.contains("~/backup"), "{listed}");
    let refused = env.snap_in("p", ["push", "~nobody/backup"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("cannot expand `~` in `~nobody/backup`"), "{}", refused.stderr);
    assert!(!env.path("p/~nobody").exists() && !env.path("p/~").exists());
    // A folder of that name needs a path that says so.
    env.snap_in("p", ["push", "./~nobody/backup"]).succeeds();
    assert!(env.path("p/~nobody/backup/refs/heads/main").is_file());
}
