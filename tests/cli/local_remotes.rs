//! The store of a project as a remote, and folders that are named by their path.

use crate::{
    env::TestEnv,
    remote::{env, folder, says},
};

/// Texts of all files below a folder, with their paths; sorted.
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
    // What is committed there later is learnt of, also when packs were merged.
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

#[test]
fn nothing_of_a_store_that_commits_go_to_is_touched_by_a_push() {
    let env = env();
    env.snap(["clone", &folder(&env, "work"), "copy"]).succeeds();
    env.write("copy/notes.txt", "second\n");
    env.snap_in("copy", ["commit", "-qm", "two"]).succeeds();
    let urls = [folder(&env, "work"), folder(&env, "work/.snap"), "../work".to_owned()];
    let before = texts(&env, "work");
    for url in &urls {
        for args in [
            &["push", url][..],
            &["push", url, "--force"],
            &["push", url, "-n"],
            &["push", url, "--delete", "main"],
        ] {
            let ran = env.snap_in("copy", args);
            let why = "is a store that commits go to: nothing can be pushed into it";
            says(&ran, 2, &[why, "hint: `snap serve ", "`snap pull` there"]);
            assert!(texts(&env, "work") == before, "{args:?}");
        }
    }
    // The other way round the same commits arrive.
    env.snap_in("work", ["pull", "../copy"]).succeeds();
    let tip = |dir: &str| {
        env.snap_in(dir, ["log", "-n", "1", "--oneline", "main"]).succeeds().stdout[..64].to_owned()
    };
    assert_eq!(tip("work"), tip("copy"));
    env.snap_in("work", ["verify", "--data"]).succeeds();
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
    // The name of a remote or a branch is no path.
    says(&env.snap_in("work", ["push", "there/a"]), 1, &["there is no remote `there/a`"]);
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
    assert!(ran.stderr.contains(&name) || ran.stderr.contains("[ID]"), "{}", ran.stderr);
    assert!(!env.path("there/refs/heads/main").exists());
    assert!(!env.path("there/objects").join(&name).exists());
}
