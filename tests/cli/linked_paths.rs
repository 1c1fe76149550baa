//! Paths to commit that are symbolic links.

use std::os::unix::fs::symlink;

use crate::env::TestEnv;

/// Makes a store without a project, and a folder `share` of links to folders and a file elsewhere.
fn share() -> TestEnv {
    let env = TestEnv::new();
    env.write("disk1/docs/f", "f");
    symlink("f", env.path("disk1/docs/link")).unwrap();
    env.write("disk2/photos/g", "g");
    env.write("disk2/note", "note");
    env.write("plain/p", "p");
    fs_err::create_dir(env.path("share")).unwrap();
    for (target, link) in [
        ("disk1/docs", "docs"),
        ("disk2/photos", "photos"),
        ("disk2/note", "note"),
        ("gone", "gone"),
    ] {
        symlink(env.path(target), env.path("share").join(link)).unwrap();
    }
    env.snap(["--store", "s", "init", "-q"]).succeeds();
    env
}

/// Lists the last snapshot, with `@` after links.
fn listed(env: &TestEnv) -> Vec<String> {
    let records = env.snap(["--store", "s", "ls", "-R", "latest", "--json"]).succeeds().json();
    let of = |entry: &serde_json::Value| {
        let mark = if entry["kind"] == "symlink" { "@" } else { "" };
        format!("{}{mark}", entry["path"].as_str().unwrap())
    };
    records.iter().filter(|entry| entry["kind"] != "folder").map(of).collect()
}

#[test]
fn links_that_are_named_are_followed_and_links_in_them_are_saved() {
    for (paths, saved) in [
        (&["share/docs"][..], &["f", "link@"][..]),
        (&["share/note"], &["note"]),
        (&["share/docs", "share/photos"], &["share/docs/f", "share/docs/link@", "share/photos/g"]),
        (&["plain", "share/photos"], &["plain/p", "share/photos/g"]),
        (
            &["share/note", "./share/../share/docs/"],
            &["share/docs/f", "share/docs/link@", "share/note"],
        ),
        (&["share/photos", "share/note"], &["share/note", "share/photos/g"]),
    ] {
        let env = share();
        let ran = env.snap([&["--store", "s", "commit", "-q"], paths].concat());
        ran.succeeds();
        // Several paths have their absolute paths in the snapshot.
        let root = env.path("").to_str().unwrap().trim_matches('/').to_owned() + "/";
        let of = |path: &String| path.strip_prefix(&root).unwrap_or(path).to_owned();
        assert_eq!(listed(&env).iter().map(of).collect::<Vec<_>>(), saved, "{paths:?}");
        // An archive has the paths as they are written, and none with `..`.
        let archived = env.snap([&["archive", "-q", "-o", "b.snap"], paths].concat());
        if paths.iter().any(|path| path.contains("..")) {
            assert_eq!(archived.code, Some(2), "{paths:?}: {archived}");
            continue;
        }
        archived.succeeds();
        let archived = env.snap(["ls", "-R", "b.snap"]).succeeds().stdout;
        let files: Vec<_> = archived.lines().filter(|line| !line.ends_with('/')).collect();
        assert_eq!(files.len(), saved.len(), "{paths:?}: {archived}");
    }
}

#[test]
fn links_in_a_profile_are_followed() {
    let mut env = share();
    let root = env.path("share").display().to_string();
    let paths = |names: &[&str]| {
        let quoted: Vec<_> = names.iter().map(|name| format!("'{root}/{name}'")).collect();
        quoted.join(", ")
    };
    let text = format!(
        "[profile.two]\npaths = [{}]\n[profile.one]\npaths = [{}]\n[profile.gone]\npaths = [{}]\n",
        paths(&["docs", "photos"]),
        paths(&["docs", "gone"]),
        paths(&["gone"]),
    );
    env.write("config.toml", text);
    let config = env.path("config.toml").display().to_string();
    env.set("SNAP_CONFIG", &config);
    let commit = |profile: &str| {
        env.snap(["--store", "s", "commit", "-b", profile, "--profile", profile, "-q"])
    };
    commit("two").succeeds();
    let restored = |branch: &str| {
        let target = format!("out-{branch}");
        env.snap(["--store", "s", "restore", branch, &target]).succeeds();
        env.path(target).join(root.trim_start_matches('/'))
    };
    let two = restored("two");
    assert_eq!(fs_err::read_to_string(two.join("docs/f")).unwrap(), "f");
    assert_eq!(fs_err::read_to_string(two.join("photos/g")).unwrap(), "g");
    assert!(two.join("docs/link").is_symlink() && !two.join("docs").is_symlink());
    // A link that leads nowhere is a missing path.
    let ran = commit("one");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let told = format!("path of profile `one` does not exist: {root}/gone");
    assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    assert!(restored("one").join("docs/f").exists());
    assert_eq!(commit("gone").code, Some(1));
}

#[test]
fn a_named_link_that_leads_nowhere_is_an_error() {
    let env = share();
    for paths in [&["share/gone"][..], &["share/docs", "share/gone"]] {
        for command in [&["--store", "s", "commit"][..], &["archive", "-o", "b.snap"]] {
            let refused = env.snap([command, paths].concat());
            assert_eq!(refused.code, Some(1), "{paths:?}: {}", refused.stderr);
            assert!(refused.stderr.contains("share/gone"), "{paths:?}: {}", refused.stderr);
        }
    }
    assert!(!env.path("b.snap").exists());
}

#[test]
fn a_link_in_a_project_is_part_of_it() {
    let env = share();
    env.write("p/src/x", "x");
    symlink("src", env.path("p/link")).unwrap();
    symlink("nowhere", env.path("p/dangling")).unwrap();
    symlink(env.path("disk1/docs"), env.path("p/docs")).unwrap();
    env.snap_in("p", ["init", "-q"]).succeeds();
    env.snap_in("p", ["commit", "-q", "link", "docs", "dangling"]).succeeds();
    let list = |what: &str| env.snap_in("p", ["ls", "-R", what]).succeeds().stdout;
    let named = list("latest");
    assert!(!named.contains("docs/f") && named.lines().count() == 3, "{named}");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    for link in ["link", "docs", "dangling"] {
        let diff = env.snap_in("p", ["diff", "--exit-code", "HEAD~", "HEAD", "--", link]);
        assert_eq!(diff.code, Some(0), "{link}: {}", diff.stdout);
    }
    // Links from elsewhere lead to the project, or into it.
    symlink(env.path("p"), env.path("to-project")).unwrap();
    symlink(env.path("p/src"), env.path("to-src")).unwrap();
    env.write("p/src/x", "xx");
    env.write("p/other", "other");
    env.snap_in("p", ["commit", "-q", "../to-src"]).succeeds();
    assert_eq!(env.snap_in("p", ["cat", "latest:src/x"]).succeeds().stdout, "xx");
    assert!(!list("latest").contains("other"));
    env.snap(["commit", "-q", "to-project"]).succeeds();
    assert_eq!(env.snap_in("p", ["cat", "latest:other"]).succeeds().stdout, "other");
}
