//! `snap verify`.

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("a", "content of a");
    env.snap(["commit", "-m", "one"]).succeeds();
    env.write("b", "content of b");
    env.snap(["commit", "-m", "two"]).succeeds();
    env
}

#[test]
fn a_whole_store_is_said_to_be_whole() {
    let env = env();
    insta::assert_snapshot!(env.snap(["verify"]), @"
    exit: 0
    --- stderr ---
    Checked 2 packs with 6 objects, and 2 commits reachable from branches and tags
    No errors found
    hint: --data also reads all contents
    ");
    insta::assert_snapshot!(env.snap(["verify", "--data"]), @r"
    exit: 0
    --- stderr ---
    Checked 2 packs with 6 objects, and 2 commits reachable from branches and tags
    Data read: [SIZE] of the data
    No errors found
    ");
    env.snap(["verify", "--sample", "50%"]).succeeds();
    let summary = env.snap(["verify", "--data", "--json"]).succeeds().json();
    assert_eq!(summary[0]["whole"], true);
    let rolling = ["verify", "--max-age", "30d", "--budget", "10m", "--json"];
    let summary = env.snap(rolling).succeeds().json();
    assert_eq!((&summary[0]["due_packs"], &summary[0]["left_packs"]), (&0.into(), &0.into()));
    fs_err::remove_file(env.path(".snap/cache/checked")).unwrap();
    let told = env.snap(["verify", "--max-age", "30d"]).succeeds().stderr;
    assert!(told.contains(" of the packs that were due; none are left"), "{told}");
    insta::assert_snapshot!(env.snap(["verify", "--budget", "10m"]), @r"
    exit: 2
    --- stderr ---
    error: the following required arguments were not provided:
      --max-age <TIME>

    Usage: snap verify --max-age <TIME> --budget <TIME> [REMOTE|URL|FILE]

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(env.snap(["verify", "--max-age", "12m"]), @"
    exit: 2
    --- stderr ---
    error: invalid value '12m' for '--max-age <TIME>': expected a time such as 36h, 7d or 2w; `m` could be minutes or months: write 2h for 120 minutes, or 60d for 2 months

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(env.snap(["verify", "--sample", "200%"]), @r"
    exit: 2
    --- stderr ---
    error: invalid value '200%' for '--sample <PART>': expected a fraction such as 5% or 0.05

    For more information, try '--help'.
    ");
}

#[test]
fn damage_is_listed_with_what_it_touches() {
    let env = TestEnv::new();
    env.write("sub/a", "content of a");
    env.snap(["commit", "-m", "one"]).succeeds();
    for pack in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
        let pack = pack.unwrap().path();
        let mut bytes = fs_err::read(&pack).unwrap();
        bytes[20] ^= 1;
        env.mode(&pack, 0o644);
        fs_err::write(&pack, bytes).unwrap();
    }
    insta::assert_snapshot!(env.snap(["verify", "--data"]), @"
    exit: 4
    --- stdout ---
    damaged: cannot read a frame of pack [SHORT ID] (objects in it: 1): pack [SHORT ID] is damaged in the frame at byte 16: its checksum does not match
    damaged: pack [SHORT ID] is damaged: its bytes hash to [SHORT ID]
    affected: commit [SHORT ID]: sub/a
    --- stderr ---
    Checked 1 pack with 4 objects, and 1 commit reachable from branches and tags
    Data read: [SIZE] of the data
    Damaged objects in 1 pack are no longer used: the next commit stores them again from files that still have the content
    warning: 2 problems found; everything else is intact
    hint: `snap repair` recovers lost data from remotes and local files
    hint: `snap repair --from PLACE` recovers it from another copy
    ");
    let found = env.snap(["verify", "--data", "--json"]);
    assert_eq!(found.code, Some(4));
    let path = found.json().into_iter().find(|line| line["type"] == "path").unwrap();
    assert_eq!(path["path"], "sub/a");
}

#[test]
fn a_branch_that_is_lost_is_found_by_its_log() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    let id = env.snap_in("home", ["commit"]).succeeds().stdout;
    fs_err::remove_file(env.path("home/.snap/refs/heads/main")).unwrap();
    for command in ["status", "log", "ls"] {
        let told = env.snap_in("home", [command]);
        assert_eq!(told.code, Some(4), "{command}: {}", told.stderr);
        assert!(
            told.stderr.contains("branch `main` is missing; it last pointed at"),
            "{}",
            told.stderr
        );
    }
    let found = env.snap_in("home", ["verify"]);
    assert_eq!(found.code, Some(4), "{}", found.stderr);
    assert!(found.stdout.contains("refs/heads/main is missing"), "{}", found.stdout);
    let hint = format!("snap branch main {}", &id[..12]);
    assert!(found.stderr.contains(&hint), "{}", found.stderr);
    env.snap_in("home", hint.split(' ').skip(1)).succeeds();
    assert_eq!(env.snap_in("home", ["cat", "HEAD:a.txt"]).succeeds().stdout, "one");
    env.snap_in("home", ["verify"]).succeeds();
    // If the logs are lost too, the base of the files still names the commit.
    fs_err::remove_dir_all(env.path("home/.snap/refs")).unwrap();
    fs_err::remove_dir_all(env.path("home/.snap/logs")).unwrap();
    let found = env.snap_in("home", ["verify"]);
    assert_eq!(found.code, Some(4), "{}", found.stderr);
    assert!(found.stderr.contains(&hint), "{}", found.stderr);
    env.snap_in("home", hint.split(' ').skip(1)).succeeds();
    env.snap_in("home", ["verify"]).succeeds();
    // A deleted branch does not count as lost.
    env.snap_in("home", ["branch", "other"]).succeeds();
    env.snap_in("home", ["branch", "--delete", "other"]).succeeds();
    env.snap_in("home", ["verify"]).succeeds();
}

#[test]
fn lost_tags_and_branches_are_named_with_the_command_that_creates_them_again() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    let id = env.snap_in("home", ["commit"]).succeeds().stdout.trim().to_owned();
    env.snap_in("home", ["tag", "v1"]).succeeds();
    env.snap_in("home", ["tag", "v2"]).succeeds();
    env.snap_in("home", ["branch", "side"]).succeeds();
    env.snap_in("home", ["tag", "removed"]).succeeds();
    env.snap_in("home", ["tag", "--delete", "removed"]).succeeds();
    for file in ["refs/tags/v1", "refs/tags/v2", "refs/heads/side"] {
        fs_err::remove_file(env.path("home/.snap").join(file)).unwrap();
    }
    // A power cut may empty the lock file, and people remove files of that name.
    for is_emptied in [false, true] {
        if is_emptied {
            fs_err::write(env.path("home/.snap/lock"), "").unwrap();
        }
        let found = env.snap_in("home", ["verify", "--json"]);
        assert_eq!(found.code, Some(4), "{}", found.stderr);
        let problems = found.json().into_iter().filter(|record| record["type"] == "problem");
        let problems: Vec<_> = problems.collect();
        let names: Vec<_> = problems.iter().map(|problem| problem["ref"].as_str()).collect();
        let lost = ["refs/heads/side", "refs/tags/v1", "refs/tags/v2"].map(Some);
        assert_eq!(names, lost, "{}", found.stdout);
        assert!(problems.iter().all(|problem| problem["commit"] == id[..]), "{}", found.stdout);
    }
    fs_err::remove_file(env.path("home/.snap/lock")).unwrap();
    let found = env.snap_in("home", ["verify", "--json"]).json();
    let commands = found.iter().filter_map(|record| record["command"].as_str());
    for command in commands {
        env.snap_in("home", command.split(' ').skip(1)).succeeds();
    }
    env.snap_in("home", ["verify"]).succeeds();
    assert_eq!(env.snap_in("home", ["tag"]).succeeds().stdout.lines().count(), 2);
}

#[test]
fn a_lost_branch_is_not_thought_to_have_followed_a_commit_of_another() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    let first = env.snap_in("home", ["commit"]).succeeds().stdout;
    env.write("home/a.txt", "two");
    // `-b` leaves `HEAD` on main, but the files come from the new commit.
    env.snap_in("home", ["commit", "-b", "side"]).succeeds();
    fs_err::remove_file(env.path("home/.snap/refs/heads/main")).unwrap();
    let found = env.snap_in("home", ["verify"]);
    assert_eq!(found.code, Some(4), "{}", found.stderr);
    let hint = format!("snap branch main {}", &first[..12]);
    assert!(found.stderr.contains(&hint), "{}", found.stderr);
}

/// Makes a project with two commits and the tag `v1` at the first one. Returns the id of the first
/// commit.
fn two_commits_and_a_tag() -> (TestEnv, String) {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    let first = env.snap_in("home", ["commit"]).succeeds().stdout;
    env.write("home/a.txt", "two");
    env.snap_in("home", ["commit"]).succeeds();
    env.snap_in("home", ["tag", "v1", "HEAD~1"]).succeeds();
    (env, first)
}

#[test]
fn a_ref_that_was_just_made_is_missed_as_well() {
    let (env, first) = two_commits_and_a_tag();
    env.snap_in("home", ["branch", "side", "HEAD~1"]).succeeds();
    for (noun, name) in [("tag", "tags/v1"), ("branch", "heads/side")] {
        fs_err::remove_file(env.path(format!("home/.snap/refs/{name}"))).unwrap();
        let found = env.snap_in("home", ["verify"]);
        assert_eq!(found.code, Some(4), "{}", found.stderr);
        let short = name.split_once('/').unwrap().1;
        let hint = format!("snap {noun} {short} {}", &first[..12]);
        assert!(found.stderr.contains(&hint), "{}", found.stderr);
        let refused = env.snap_in("home", [noun, short]);
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        assert!(refused.stderr.contains(&hint), "{}", refused.stderr);
        env.snap_in("home", hint.split(' ').skip(1)).succeeds();
        env.snap_in("home", ["verify"]).succeeds();
        fs_err::remove_file(env.path(format!("home/.snap/refs/{name}"))).unwrap();
        env.snap_in("home", [noun, "--force", short, "HEAD"]).succeeds();
        env.snap_in("home", ["verify"]).succeeds();
    }
}

#[test]
fn a_damaged_tag_is_in_the_way_of_nothing_else() {
    let (env, first) = two_commits_and_a_tag();
    env.snap_in("home", ["tag", "v2", "HEAD"]).succeeds();
    env.write("home/.snap/refs/tags/v1", "");
    fs_err::remove_file(env.path("home/a.txt")).unwrap();
    let hint = format!("snap tag --force v1 {}", &first[..12]);
    for command in [&["restore", "HEAD"][..], &["log", "--all"], &["show", "HEAD"], &["find", "a*"]]
    {
        let ran = env.snap_in("home", command.iter().copied()).succeeds();
        assert_eq!(ran.stderr.matches(&hint).count(), 1, "{command:?}: {}", ran.stderr);
    }
    let listed = env.snap_in("home", ["tag"]);
    assert_eq!(listed.code, Some(4));
    assert!(listed.stdout.starts_with("v2 "), "{}", listed.stdout);
    assert_eq!(env.read("home/a.txt"), "two");
    env.snap_in("home", hint.split(' ').skip(1)).succeeds();
    env.snap_in("home", ["verify"]).succeeds();
}

#[test]
fn a_lost_record_of_collections_is_reported_and_recreated() {
    let env = TestEnv::new();
    env.write("f", "1");
    env.snap(["commit", "-q"]).succeeds();
    fs_err::remove_file(env.path(".snap/gc")).unwrap();
    insta::assert_snapshot!(env.snap(["verify"]), @"
    exit: 4
    --- stdout ---
    damaged: the file `gc`, which records garbage collections, is missing or damaged
    --- stderr ---
    Checked 1 pack with 3 objects, and 1 commit reachable from branches and tags
    warning: 1 problem found
    hint: `snap repair` writes it again
    hint: --data reads all contents and may find more damage
    ");
    env.snap(["repair", "-q"]).succeeds();
    assert!(env.path(".snap/gc").exists());
    env.snap(["verify"]).succeeds();
}

#[test]
fn a_lost_branch_is_made_again_by_a_commit_and_moved_elsewhere_by_nothing() {
    let env = TestEnv::new();
    // A backup store without a project.
    env.snap(["--store", "st", "init"]).succeeds();
    let commit = |content: &str| {
        env.write("src/f", content);
        env.snap(["--store", "st", "commit", "-q", "src"]).succeeds()
    };
    let messages = |store: &str| {
        env.snap(["--store", store, "log", "--oneline"]).succeeds().stdout.lines().count()
    };
    commit("1");
    commit("2");
    fs_err::remove_file(env.path("st/refs/heads/main")).unwrap();
    let told = commit("3").stderr;
    assert!(told.contains("recreated it at"), "{told}");
    assert_eq!(messages("st"), 3);
    // A commit without changes also recreates the branch.
    fs_err::remove_file(env.path("st/refs/heads/main")).unwrap();
    env.snap(["--store", "st", "commit", "-q", "src"]).succeeds();
    assert_eq!(messages("st"), 3);
    // Commits from elsewhere are not put on top of the lost branch.
    env.write("p/f", "1");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "p", "q"]).succeeds();
    env.snap(["clone", "-q", "p", "s"]).succeeds();
    env.write("q/new", "precious");
    let precious = env.snap_in("q", ["commit"]).succeeds().stdout;
    env.write("s/other", "other");
    env.snap_in("s", ["commit", "-q"]).succeeds();
    env.snap_in("s", ["pack", "-q", "HEAD", "-o", "../b.snap"]).succeeds();
    fs_err::remove_file(env.path("q/.snap/refs/heads/main")).unwrap();
    for (place, command) in
        [("q", &["pull"][..]), ("q", &["unpack", "../b.snap"]), ("s", &["push", "../q", "main"])]
    {
        let refused = env.snap_in(place, command.iter().copied());
        assert_ne!(refused.code, Some(0), "{command:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(&precious[..12]), "{command:?}: {}", refused.stderr);
    }
    let listed = env.snap_in("q", ["branch"]);
    assert_eq!(listed.code, Some(4));
    assert!(listed.stderr.contains("`snap branch main"), "{}", listed.stderr);
    env.write("q/new", "changed");
    env.snap_in("q", ["commit", "-q"]).succeeds();
    assert_eq!(env.snap_in("q", ["cat", "HEAD~1:new"]).succeeds().stdout, "precious");
}

#[test]
fn of_much_damage_counts_are_shown_and_with_verbose_the_list() {
    let env = TestEnv::new();
    // One pack for each commit, so that each can be damaged.
    for number in 0..12 {
        env.write(&format!("many/{number}a"), format!("content {number}"));
        env.write(&format!("many/{number}b"), format!("other content {number}"));
        env.snap(["commit", "-q"]).succeeds();
    }
    for pack in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
        fs_err::remove_file(pack.unwrap().path()).unwrap();
    }
    let short = env.snap(["verify"]);
    assert_eq!(short.code, Some(4), "{short}");
    assert!(short.stdout.lines().count() < 25, "{short}");
    assert!(short.stdout.contains("; -v lists them\n"), "{short}");
    let long = env.snap(["verify", "-v"]).stdout;
    assert!(!long.contains("-v lists them"), "{long}");
    assert!(long.lines().count() > short.stdout.lines().count(), "{long}");
}

#[test]
fn the_bytes_that_a_verification_reads_are_those_of_the_store() {
    let env = TestEnv::new();
    // A compressible file that is cut into chunks.
    env.write("large", "0123456789".repeat(800_000));
    env.snap(["commit"]).succeeds();
    let records = env.snap(["--json", "verify", "--data"]).succeeds().json();
    let read = records.last().unwrap()["bytes_read"].as_u64().unwrap();
    let packs = fs_err::read_dir(env.path(".snap/objects")).unwrap();
    let stored: u64 = packs.map(|pack| pack.unwrap().metadata().unwrap().len()).sum();
    assert!(0 < read && read <= stored, "{read} of {stored}");
}
