//! Clones with `--depth` and `--path` as remotes: by their path, and behind a server.

use crate::{
    env::{TestEnv, noise},
    remote::{env, folder, says},
    serve::Serving,
};

/// The options and the names of two partial clones.
const PARTIAL: [(&str, [&str; 2]); 2] =
    [("shallow", ["--depth", "1"]), ("part", ["--path", "sub"])];

/// Makes a project with three commits, a shallow clone and a clone of one path.
fn cloned() -> TestEnv {
    let env = env();
    env.write("work/large.bin", noise(1, 3 << 20));
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    env.write("work/large.bin", noise(2, 3 << 20));
    env.write("work/sub/more.txt", "second\n");
    env.snap_in("work", ["commit", "-qm", "three"]).succeeds();
    for (name, [option, value]) in PARTIAL {
        env.snap(["clone", "-q", option, value, "work", name]).succeeds();
        let partial = env.path(name).join(".snap/partial");
        assert!(fs_err::read_dir(partial).unwrap().next().is_some(), "{name} is whole");
    }
    env
}

fn tip(env: &TestEnv, dir: &str) -> String {
    env.read(&format!("{dir}/.snap/refs/heads/main"))
}

#[test]
fn what_a_partial_clone_left_at_its_origin_is_no_damage_of_a_remote() {
    let env = cloned();
    let origin = folder(&env, "work");
    for (name, _) in PARTIAL {
        let at = env.path(name).display().to_string();
        env.snap_in(name, ["verify"]).succeeds();
        let told = format!("were not checked, because only the origin, {origin}, has them");
        for options in [&["verify", &at][..], &["verify", &at, "--data"]] {
            let ran = env.snap(options);
            says(&ran, 0, &[&told, "No errors found"]);
            assert!(!ran.to_string().contains("damaged"), "{name}: {ran}");
        }
        let summary = env.snap(["verify", &at, "--json"]).succeeds().json().pop().unwrap();
        assert!(summary["absent_objects"].as_u64().unwrap() > 0, "{summary}");
        assert!(summary["partial_packs"].as_u64().unwrap() > 0, "{summary}");
        says(&env.snap(["repair", &at, "-n"]), 0, &["Nothing to repair"]);
        says(&env.snap(["repair", &at]), 0, &["Nothing to repair"]);
        env.snap_in(name, ["verify"]).succeeds();
    }
    // What whole packs have lost is damage nevertheless.
    let objects = env.path("shallow/.snap/objects");
    for pack in fs_err::read_dir(objects).unwrap() {
        fs_err::remove_file(pack.unwrap().path()).unwrap();
    }
    let ran = env.snap(["verify", &env.path("shallow").display().to_string()]);
    says(&ran, 4, &["Partial clone: ", "problem"]);
    assert!(ran.stdout.contains("is not in the store"), "{ran}");
}

#[test]
fn a_clone_of_a_partial_clone_is_refused_and_names_the_origin() {
    let env = cloned();
    let hint = format!("hint: clone from its origin: `snap clone {}`", folder(&env, "work"));
    for (name, _) in PARTIAL {
        let ran = env.snap(["clone", name, "again"]);
        says(&ran, 1, &["is a partial clone and lacks some of the requested objects", &hint]);
        assert!(!env.path("again").exists(), "{name}");
        env.snap(["init", "-q", "empty"]).succeeds();
        let ran = env.snap_in("empty", ["pull", &format!("../{name}"), "main"]);
        says(&ran, 1, &["is a partial clone and lacks some of the requested objects", &hint]);
        fs_err::remove_dir_all(env.path("empty")).unwrap();
        env.snap_in(name, ["fetch"]).succeeds();
        let whole = format!("whole-{name}");
        env.snap(["clone", "-q", name, &whole]).succeeds();
        env.snap_in(&whole, ["verify", "--data"]).succeeds();
        assert_eq!(env.read(&format!("{whole}/sub/more.txt")), "second\n");
    }
}

#[test]
fn a_push_into_a_partial_clone_sends_what_it_lacks_or_is_refused() {
    let env = cloned();
    env.snap(["clone", "-q", "--depth", "1", "work", "poor"]).succeeds();
    env.snap_in("poor", ["remote", "remove", "origin"]).succeeds();
    env.snap(["clone", "-q", "work", "rich"]).succeeds();
    for from in ["poor", "rich"] {
        env.write(&format!("{from}/new.txt"), from);
        env.snap_in(from, ["commit", "-qm", "four"]).succeeds();
    }
    for (name, _) in PARTIAL {
        let (before, to) = (tip(&env, name), format!("../{name}"));
        let ran = env.snap_in("poor", ["push", &to, "main"]);
        assert_ne!(ran.code, Some(0), "{name}: {ran}");
        assert_eq!(tip(&env, name), before, "{name}: {ran}");
        env.snap_in("rich", ["push", &to, "main"]).succeeds();
        let whole = format!("whole-{name}");
        env.snap(["clone", "-q", name, &whole]).succeeds();
        env.snap_in(&whole, ["verify", "--data"]).succeeds();
        assert_eq!(env.read(&format!("{whole}/new.txt")), "rich");
        env.snap_in(name, ["verify", "--data"]).succeeds();
    }
}

#[test]
fn a_server_of_a_partial_clone_acknowledges_nothing_that_cannot_be_cloned() {
    let env = cloned();
    env.snap(["clone", "-q", "work", "rich"]).succeeds();
    env.write("shallow/own.txt", "own");
    env.snap_in("shallow", ["commit", "-qm", "four"]).succeeds();
    env.snap_in("shallow", ["push", "-q"]).succeeds();
    let serving = Serving::start(&env, "shallow");
    let url = format!("http://{}/default", serving.address());
    // The index lists the last commit, so the client does not send what that refers to.
    env.snap_in("rich", ["pull", "-q", "--update", &url, "main"]).succeeds();
    env.write("rich/new.txt", "new");
    env.snap_in("rich", ["commit", "-qm", "five"]).succeeds();
    let before = tip(&env, "shallow");
    let ran = env.snap_in("rich", ["push", &url, "main"]);
    says(&ran, 1, &["is a partial clone and lacks objects", "`snap fetch` in it"]);
    assert_eq!(tip(&env, "shallow"), before);
    serving.stop();
    env.snap_in("shallow", ["fetch"]).succeeds();
    for name in ["shallow", "part"] {
        // The index of a clone by path does not list its tip, so the client sends everything.
        let serving = Serving::start(&env, name);
        let url = format!("http://{}/default", serving.address());
        env.snap_in("rich", ["push", &url, "main"]).succeeds();
        let whole = format!("whole-{name}");
        env.snap(["clone", "-q", &url, &whole]).succeeds();
        env.snap_in(&whole, ["verify", "--data"]).succeeds();
        assert_eq!(env.read(&format!("{whole}/new.txt")), "new");
    }
}

/// The origin of a shallow clone forgets old commits, and deletes their files.
#[test]
fn a_shallow_clone_goes_on_after_its_origin_has_forgotten_commits() {
    for first in ["log", "pull", "fetch", "push", "pack main -qo ../first.snap"] {
        let env = cloned();
        env.snap_in("work", ["forget", "-q", "main~1", "main~2"]).succeeds();
        env.snap_in("work", ["gc", "-q", "--now"]).succeeds();
        env.write("shallow/new.txt", "new work\n");
        env.snap_in("shallow", ["commit", "-qm", "four"]).succeeds();
        let ran = env.snap_in("shallow", first.split(' '));
        assert_eq!(ran.code, Some(if first == "fetch" { 3 } else { 0 }), "{first}: {ran}");
        let log = env.snap_in("shallow", ["log", "--oneline"]).succeeds().stdout;
        assert_eq!(log.matches("(forgotten at origin)").count(), 2, "{first}: {log}");
        let records = env.snap_in("shallow", ["log", "--json"]).succeeds().json();
        let at = records.iter().filter(|record| record["forgotten_at"] == "origin");
        assert_eq!(at.count(), 2, "{first}");
        says(&env.snap_in("shallow", ["verify"]), 0, &["2 forgotten, not checked"]);
        says(
            &env.snap_in("shallow", ["fetch"]),
            3,
            &["2 commits were forgotten at origin, and cannot be fetched"],
        );
        env.snap_in("shallow", ["push", "-q"]).succeeds();
        env.snap_in("shallow", ["push", "-q", "../elsewhere", "main"]).succeeds();
        env.snap_in("shallow", ["pack", "-q", "-o", "../all.snap"]).succeeds();
        let restored = env.snap_in("shallow", ["restore", "main~2", "../never"]);
        says(&restored, 1, &["was forgotten"]);
        env.snap(["clone", "-q", "elsewhere", "copy"]).succeeds();
        env.snap_in("copy", ["verify", "--data"]).succeeds();
        env.snap_in("work", ["verify", "--data"]).succeeds();
    }
}

/// The pack of a commit has only folders, because its file is that of an older commit. So a clone of
/// another path has the whole pack, and not the file.
#[test]
fn a_clone_of_a_path_goes_on_after_its_origin_has_forgotten_commits() {
    for first in ["pack main -qo ../first.snap", "push -q ../other main"] {
        let env = env();
        let once = noise(3, 600);
        env.write("work/once", &once);
        env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
        env.write("work/twice", &once);
        env.snap_in("work", ["commit", "-qm", "three"]).succeeds();
        env.write("work/once", "another");
        env.write("work/sub/new", "new");
        env.snap_in("work", ["commit", "-qm", "four"]).succeeds();
        env.snap_in("work", ["remote", "add", "origin", "../there"]).succeeds();
        env.snap_in("work", ["push", "-q", "origin", "main"]).succeeds();
        env.snap(["clone", "-q", "there", "part", "--path", "sub"]).succeeds();
        env.snap_in("work", ["forget", "-q", "main~1", "main~2", "main~3"]).succeeds();
        env.snap_in("work", ["gc", "-q", "origin", "--forgotten", "--now"]).succeeds();
        env.snap_in("part", first.split(' ')).succeeds();
        let log = env.snap_in("part", ["log", "--oneline"]).succeeds().stdout;
        assert_eq!(log.matches("(forgotten at origin)").count(), 3, "{first}: {log}");
        env.snap_in("part", ["verify"]).succeeds();
    }
}

/// Makes a remote with a branch `old`, and clones of it: shallow, of one path, and whole. Then others
/// delete the branch at the remote, with its commit.
pub(crate) fn with_deleted_branch(prepare: impl Fn(&TestEnv)) -> TestEnv {
    let env = env();
    env.snap_in("work", ["remote", "add", "origin", "../there"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "main"]).succeeds();
    env.write("work/sub/old.txt", "old\n");
    env.write("work/large.bin", noise(1, 1 << 20));
    env.snap_in("work", ["commit", "-qb", "old", "-m", "old"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "old"]).succeeds();
    for (name, options) in PARTIAL {
        env.snap([&["clone", "-q", "there", name][..], &options].concat()).succeeds();
    }
    env.snap(["clone", "-q", "there", "whole"]).succeeds();
    prepare(&env);
    env.snap_in("work", ["push", "-q", "origin", "--delete", "old"]).succeeds();
    env.snap_in("work", ["gc", "-q", "origin", "--now"]).succeeds();
    env
}

#[test]
fn a_fetch_names_a_branch_that_others_deleted_and_that_it_cannot_fetch() {
    let env = with_deleted_branch(|_| {});
    let named = "Branch old was deleted at origin, and `snap gc` has deleted its commit ";
    for (name, _) in PARTIAL {
        env.snap_in(name, ["pull", "-q"]).succeeds();
        for _ in 0..2 {
            says(&env.snap_in(name, ["fetch"]), 3, &["Nothing that origin has is missing", named]);
        }
        let ran = env.snap_in(name, ["fetch", "--json"]);
        let [branch, fetched] = &ran.json()[..] else { panic!("{ran}") };
        assert_eq!((&branch["type"], &branch["name"]), (&"branch".into(), &"old".into()));
        assert_eq!(branch["now"], serde_json::Value::Null);
        assert_eq!(fetched["branches_incomplete"], serde_json::json!([]));
        env.snap_in(name, ["verify", "--data"]).succeeds();
        says(&env.snap_in(name, ["log", "origin/old"]), 1, &["is not a commit, branch or tag"]);
        // Its other work goes on.
        env.write(&format!("{name}/sub/new.txt"), "new\n");
        env.snap_in(name, ["commit", "-qb", name, "-m", "new"]).succeeds();
        env.snap_in(name, ["push", "-q", "origin", name]).succeeds();
    }
    env.snap_in("shallow", ["gc", "-q", "--now"]).succeeds();
    // A whole clone has everything.
    says(&env.snap_in("whole", ["fetch"]), 0, &["Nothing to fetch"]);
    env.snap_in("whole", ["branch", "old", "origin/old"]).succeeds();
    env.snap_in("whole", ["push", "-q", "origin", "old"]).succeeds();
    // The branch is back.
    env.snap_in("shallow", ["pull", "-q", "origin", "old"]).succeeds();
    says(&env.snap_in("shallow", ["fetch"]), 0, &["Nothing to fetch"]);
}

#[test]
fn a_branch_at_a_commit_that_only_its_remote_had_is_called_deleted() {
    // The commit itself is here, or only its name.
    for (reads, clone) in [(true, "shallow"), (false, "shallow"), (true, "part"), (false, "part")] {
        let env = with_deleted_branch(|env| {
            env.snap_in(clone, ["branch", "old", "origin/old"]).succeeds();
            if reads {
                env.snap_in(clone, ["log", "old"]).succeeds();
            }
        });
        let ran = env.snap_in(clone, ["fetch"]);
        says(&ran, 3, &["Branch old was deleted at origin, and `snap gc` has deleted its commit "]);
        let restored = env.snap_in(clone, ["restore", "old", "../out"]);
        says(&restored, 1, &["was deleted by a garbage collection"]);
        let named = "refs/heads/old is at commit ";
        let hint = "`snap branch -d old` deletes the branch";
        for args in
            [&["verify"][..], &["gc", "--now"], &["forget", "main"], &["rewrite", "--exclude", "x"]]
        {
            says(&env.snap_in(clone, args), 1, &[named, "has deleted", hint]);
        }
        let ran = env.snap_in(clone, ["--json", "verify"]);
        let records = ran.json();
        assert_eq!(records[0]["type"], "deleted", "{ran}");
        assert_eq!(records[0]["ref"], "refs/heads/old", "{ran}");
        let ran = env.snap_in(clone, ["branch"]);
        assert_eq!(ran.code, Some(if reads { 0 } else { 1 }), "{ran}");
        assert!(ran.stdout.contains("* main "), "{ran}");
        assert_eq!(ran.stderr.contains(hint), !reads, "{ran}");
        let ran = env.snap_in(clone, ["log", "--all"]).succeeds();
        assert_eq!(ran.stderr.contains(hint), !reads, "{ran}");
        says(&env.snap_in(clone, ["fetch"]), 3, &["Branch old was deleted at origin"]);

        env.snap_in(clone, ["branch", "-q", "-d", "old"]).succeeds();
        env.snap_in(clone, ["log", "--all"]).succeeds();
        env.snap_in(clone, ["verify", "--data"]).succeeds();
        if clone == "shallow" {
            env.snap_in(clone, ["gc", "-q", "--now"]).succeeds();
            env.snap_in(clone, ["verify", "--data"]).succeeds();
        }
    }
}

/// No fetch has told the clone of the collection.
#[test]
fn what_reads_a_deleted_branch_first_calls_it_deleted() {
    for (clone, _) in PARTIAL {
        for pulls in [false, true] {
            let env = with_deleted_branch(|_| {});
            if pulls {
                env.snap_in(clone, ["pull", "-q"]).succeeds();
            }
            let deleted = "was deleted by a garbage collection";
            says(&env.snap_in(clone, ["log", "origin/old"]), 1, &[deleted]);
            says(&env.snap_in(clone, ["restore", "origin/old", "../out"]), 1, &[deleted]);
            let ran = env.snap_in(clone, ["branch", "--remotes"]);
            says(&ran, 0, &["refs/remotes/origin/old is at commit ", "`snap fetch` removes it"]);
            assert!(ran.stdout.contains("origin/main "), "{ran}");
            says(&env.snap_in(clone, ["fetch"]), 3, &["Branch old was deleted at origin"]);
            env.snap_in(clone, ["verify"]).succeeds();
        }
    }
}

/// The commit is here, but not its contents.
#[test]
fn a_content_of_a_deleted_branch_is_called_deleted() {
    let env = with_deleted_branch(|env| {
        env.snap_in("part", ["branch", "old", "origin/old"]).succeeds();
        env.snap_in("part", ["ls", "-R", "old"]).succeeds();
    });
    let deleted = "was deleted by a garbage collection";
    says(&env.snap_in("part", ["cat", "old:large.bin"]), 1, &[deleted]);
    says(&env.snap_in("part", ["restore", "old", "../out"]), 1, &[deleted]);
    let listed = env.snap_in("part", ["ls", "old"]).succeeds().stdout;
    assert!(listed.contains("large.bin"), "{listed}");
}

#[test]
fn a_tag_at_a_commit_that_only_its_remote_had_is_called_deleted() {
    let env = env();
    env.snap_in("work", ["remote", "add", "origin", "../there"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "main"]).succeeds();
    env.write("work/sub/old.txt", "old\n");
    env.snap_in("work", ["commit", "-qb", "old", "-m", "old"]).succeeds();
    env.snap_in("work", ["tag", "v1", "old"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "v1"]).succeeds();
    env.snap(["clone", "-q", "--depth", "1", "there", "shallow"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "--delete", "refs/tags/v1"]).succeeds();
    env.snap_in("work", ["gc", "-q", "origin", "--now"]).succeeds();
    let named = ["refs/tags/v1 is at commit ", "`snap tag -d v1` deletes the tag"];
    says(&env.snap_in("shallow", ["fetch"]), 3, &named);
    for args in [&["verify"][..], &["gc", "--now"], &["tag"]] {
        says(&env.snap_in("shallow", args), 1, &named);
    }
    env.snap_in("shallow", ["tag", "-q", "-d", "v1"]).succeeds();
    says(&env.snap_in("shallow", ["fetch"]), 0, &[]);
    env.snap_in("shallow", ["gc", "-q", "--now"]).succeeds();
    env.snap_in("shallow", ["verify", "--data"]).succeeds();
}

/// The commit is dead at the remote, but whole in a stub here.
#[test]
fn a_collection_keeps_the_stub_of_a_deleted_branch_that_is_whole_here() {
    let env = env();
    env.snap_in("work", ["remote", "add", "origin", "../there"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "main"]).succeeds();
    env.write("work/sub/old.txt", "old\n");
    env.snap_in("work", ["commit", "-qb", "old", "-m", "old"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "old"]).succeeds();
    env.snap(["clone", "-q", "--depth", "1", "there", "shallow"]).succeeds();
    env.snap_in("shallow", ["branch", "old", "origin/old"]).succeeds();
    env.snap_in("shallow", ["ls", "-R", "old"]).succeeds();
    // The files are also in the new commit of main.
    env.write("work/new.txt", "new\n");
    env.snap_in("work", ["branch", "-q", "--switch", "main"]).succeeds();
    env.snap_in("work", ["commit", "-qm", "new"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "main"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "--delete", "old"]).succeeds();
    env.snap_in("work", ["gc", "-q", "origin", "--now"]).succeeds();
    env.snap_in("shallow", ["pull", "-q"]).succeeds();
    says(&env.snap_in("shallow", ["fetch"]), 3, &["Branch old was deleted at origin"]);
    env.snap_in("shallow", ["verify"]).succeeds();
    env.snap_in("shallow", ["gc", "--now"]);
    env.snap_in("shallow", ["verify", "--data"]).succeeds();
    env.snap_in("shallow", ["restore", "-q", "old", "../after"]).succeeds();
    assert_eq!(env.read("after/sub/old.txt"), "old\n");
}

/// Others overwrite a branch, and its former commit is deleted.
#[test]
fn a_branch_that_others_moved_is_named_until_it_is_pulled() {
    let env = with_deleted_branch(|env| {
        env.snap_in("part", ["branch", "old", "origin/old"]).succeeds();
    });
    env.write("whole/new.txt", "new\n");
    env.snap_in("whole", ["commit", "-qb", "old", "-m", "new"]).succeeds();
    env.snap_in("whole", ["push", "-q", "--force", "origin", "old"]).succeeds();
    let moved = "Branch old was moved at origin to ";
    for (clone, _) in PARTIAL {
        says(&env.snap_in(clone, ["verify", "origin"]), 0, &[moved, "No errors found"]);
        for _ in 0..2 {
            says(&env.snap_in(clone, ["fetch"]), 3, &[moved]);
        }
    }
    let hint = "`snap branch -d old` deletes the branch";
    says(&env.snap_in("part", ["pull", "origin", "old"]), 1, &[hint]);
    env.snap_in("part", ["pull", "-q", "--force", "origin", "old"]).succeeds();
    env.snap_in("shallow", ["pull", "-q", "origin", "old"]).succeeds();
    for (clone, _) in PARTIAL {
        says(&env.snap_in(clone, ["fetch"]), 0, &["Nothing to fetch"]);
        env.snap_in(clone, ["verify", "--data"]).succeeds();
        says(&env.snap_in(clone, ["verify", "origin"]), 0, &["No errors found"]);
    }
}

/// The remote is a store behind a server.
#[test]
fn a_fetch_names_a_branch_that_others_deleted_at_a_server() {
    let mut env = env();
    let serving = Serving::start(&env, "work");
    env.snap(["clone", "-q", &serving.url, "ours"]).succeeds();
    env.write("ours/sub/topic.txt", "only on a branch\n");
    env.write("ours/large.bin", noise(1, 1 << 20));
    env.snap_in("ours", ["commit", "-qm", "topic", "-b", "topic"]).succeeds();
    env.snap_in("ours", ["push", "-q", "origin", "topic"]).succeeds();
    env.snap(["clone", "-q", "--path", "sub", &serving.url, "part"]).succeeds();
    env.snap_in("ours", ["push", "-q", "origin", "--delete", "topic"]).succeeds();
    // The server logs the time of the machine.
    env.set("SNAP_TIME", "2099-01-01T00:00:00Z");
    env.snap_in("work", ["gc", "-q", "--now", "--yes"]).succeeds();
    let named = "Branch topic was deleted at origin, and `snap gc` has deleted its commit ";
    for _ in 0..2 {
        says(&env.snap_in("part", ["fetch"]), 3, &[named]);
        env.snap_in("part", ["verify"]).succeeds();
    }
    says(&env.snap_in("part", ["verify", "origin"]), 0, &["No errors found"]);
}

/// A lost pack is not taken for one that a collection has deleted.
#[test]
fn a_fetch_does_not_call_a_branch_deleted_that_its_remote_has() {
    let env = env();
    env.snap_in("work", ["remote", "add", "origin", "../there"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "main"]).succeeds();
    env.write("work/sub/old.txt", "old\n");
    env.snap_in("work", ["commit", "-qb", "old", "-m", "old"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "old"]).succeeds();
    env.snap(["clone", "-q", "there", "whole"]).succeeds();
    let before: Vec<_> = fs_err::read_dir(env.path("whole/.snap/objects")).unwrap().collect();
    for pack in before {
        let pack = pack.unwrap().path();
        let kept = env.path("kept");
        fs_err::rename(&pack, &kept).unwrap();
        if env.snap_in("whole", ["verify"]).code == Some(0) {
            // Only the remote-tracking branch needs it.
            let ran = env.snap_in("whole", ["fetch"]);
            says(&ran, 3, &["Branch old at origin is incomplete here, and cannot be fetched"]);
            return;
        }
        fs_err::rename(&kept, &pack).unwrap();
    }
    panic!("no pack has only the branch");
}

/// A clone does not take a lost pack for one that a collection has deleted.
#[test]
fn a_lost_pack_of_an_origin_stays_damage_in_a_shallow_clone() {
    let env = cloned();
    let packs = fs_err::read_dir(env.path("work/.snap/objects")).unwrap();
    for pack in packs {
        fs_err::remove_file(pack.unwrap().path()).unwrap();
    }
    let ran = env.snap_in("shallow", ["log"]);
    assert_eq!(ran.code, Some(4), "{ran}");
    let ran = env.snap_in("shallow", ["fetch"]);
    assert_eq!(ran.code, Some(4), "{ran}");
}
