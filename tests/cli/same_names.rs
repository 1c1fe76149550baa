//! One name for several things: local files, revisions, tags and branches of remotes.

use crate::env::TestEnv;

/// Makes a project whose files `latest`, `HEAD`, `main` and `v1` are bundles of other files.
fn project_with_bundles() -> TestEnv {
    let env = TestEnv::new();
    env.write("p/app", "good");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    env.snap_in("p", ["tag", "v1"]).succeeds();
    env.write("evil/app", "evil");
    for name in ["latest", "HEAD", "main", "v1", "main~0"] {
        env.snap(["archive", "-q", "evil", "-o", &format!("p/{name}")]).succeeds();
    }
    env
}

#[test]
fn files_do_not_hide_revisions() {
    let env = project_with_bundles();
    for rev in ["latest", "HEAD", "main", "v1", "main~0"] {
        let whole = format!("{rev}:app");
        assert_eq!(env.snap_in("p", ["cat", &whole]).succeeds().stdout, "good", "{rev}");
        assert_eq!(env.snap_in("p", ["ls", rev]).succeeds().stdout, "app\n", "{rev}");
        let id = env.snap_in("p", ["show", rev, "--json"]).succeeds().stdout;
        assert_eq!(id, env.snap_in("p", ["show", "tags/v1", "--json"]).stdout, "{rev}");
        let target = format!("../{rev}-restored");
        env.snap_in("p", ["restore", rev, &target]).succeeds();
        assert_eq!(env.read(&format!("{rev}-restored/app")), "good");
        let archive = format!("../{rev}.tar");
        env.snap_in("p", ["export", rev, "-o", &archive]).succeeds();
        assert!(env.read(&format!("{rev}.tar")).contains("good"), "{rev}");
        // A bundle is named with a slash, or has the suffix of bundles.
        let file = format!("./{rev}:app");
        assert_eq!(env.snap_in("p", ["cat", &file]).succeeds().stdout, "evil", "{rev}");
    }
    fs_err::rename(env.path("p/latest"), env.path("p/latest.snap")).unwrap();
    assert_eq!(env.snap_in("p", ["cat", "latest.snap:app"]).succeeds().stdout, "evil");
    // Without a store, a file is not taken for a revision either.
    fs_err::create_dir(env.path("q")).unwrap();
    fs_err::rename(env.path("p/HEAD"), env.path("q/other")).unwrap();
    let refused = env.snap_in("q", ["ls", "other"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: ./other is a bundle"), "{}", refused.stderr);
    // The name of a remote.
    env.snap_in("p", ["push", "-q", "../hub"]).succeeds();
    env.snap_in("p", ["remote", "add", "hub", "../hub"]).succeeds();
    fs_err::rename(env.path("p/main"), env.path("p/hub")).unwrap();
    env.snap_in("p", ["repair", "--from", "hub"]).succeeds();
}

#[test]
fn a_file_in_a_folder_does_not_hide_the_branch_of_a_remote() {
    let env = project_with_bundles();
    env.snap(["clone", "-q", "p", "c"]).succeeds();
    fs_err::create_dir(env.path("c/origin")).unwrap();
    for name in ["main", "other"] {
        fs_err::copy(env.path("p/main"), env.path("c/origin").join(name)).unwrap();
    }
    insta::assert_snapshot!(env.snap_in("c", ["cat", "origin/main:app"]), @"
    exit: 2
    --- stderr ---
    error: `origin/main` is both a revision and a bundle
    hint: for the file, write `./origin/main`
    hint: for the revision, write `heads/NAME`, `remotes/NAME` or `tags/NAME`
    ");
    assert_eq!(env.snap_in("c", ["cat", "./origin/main:app"]).succeeds().stdout, "evil");
    assert_eq!(env.snap_in("c", ["cat", "remotes/origin/main:app"]).succeeds().stdout, "good");
    assert_eq!(env.snap_in("c", ["cat", "origin/other:app"]).succeeds().stdout, "evil");
}

#[test]
fn a_pushed_tag_does_not_hide_the_branch_of_a_remote() {
    let env = TestEnv::new();
    env.write("p/app", "old");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    env.snap_in("p", ["tag", "origin/main"]).succeeds();
    env.write("p/app", "new");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "p", "c"]).succeeds();
    insta::assert_snapshot!(env.snap_in("c", ["cat", "origin/main:app"]), @"
    exit: 0
    --- stdout ---
    new--- stderr ---
    warning: `origin/main` is ambiguous; using remotes/origin/main; tags/origin/main refers to the tag
    ");
    for (rev, content) in [("tags/origin/main", "old"), ("remotes/origin/main", "new")] {
        let ran = env.snap_in("c", ["cat", &format!("{rev}:app")]).succeeds();
        assert_eq!((&*ran.stdout, &*ran.stderr), (content, ""), "{rev}");
    }
    env.snap_in("c", ["diff", "--exit-code", "origin/main", "main"]).succeeds();
}

#[test]
fn a_pushed_tag_does_not_hide_a_date_in_a_remote() {
    let mut env = TestEnv::new();
    let remote = format!("file://{}", env.path("there").display());
    let [writer, reader] = ["writer", "reader"].map(|name| env.path(name).display().to_string());
    let app = |env: &TestEnv, rev: &str| {
        env.snap(["cat", &format!("{remote}#{rev}:app")]).succeeds().stdout
    };
    env.set("XDG_CACHE_HOME", &writer);
    env.write("p/app", "old");
    let old = env.snap_in("p", ["commit"]).succeeds().stdout;
    env.snap_in("p", ["push", "-q", &remote, "main"]).succeeds();
    env.set("XDG_CACHE_HOME", &reader);
    assert_eq!(app(&env, "main"), "old");

    // The reader's cache does not know this commit. The tags lead to one that it knows.
    env.set("XDG_CACHE_HOME", &writer);
    env.write("p/app", "new");
    let new = env.snap_in("p", ["commit"]).succeeds().stdout;
    let [branch, id] = ["main", &new[..8]].map(|rev| format!("{rev}@2099-01-01"));
    for tag in [&*branch, &id, "main@other"] {
        env.snap_in("p", ["tag", tag, &old[..12]]).succeeds();
    }
    env.snap_in("p", ["push", "-q", "--tags", &remote, "main"]).succeeds();
    env.set("XDG_CACHE_HOME", &reader);
    assert_eq!(app(&env, &id), "new");
    assert_eq!(app(&env, &branch), "new");
    assert_eq!(app(&env, &format!("tags/{branch}")), "old");
    assert_eq!(app(&env, "main@other"), "old", "this is no date");
}

#[test]
fn new_names_do_not_begin_with_that_of_a_remote() {
    let env = TestEnv::new();
    env.write("p/app", "1");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    // Before there is a remote.
    env.snap_in("p", ["tag", "origin/old"]).succeeds();
    env.snap_in("p", ["remote", "add", "origin", "../hub"]).succeeds();
    env.snap_in("p", ["pack", "-q", "-o", "../b.snap"]).succeeds();
    let commands: [&[&str]; 4] = [
        &["tag", "origin/x"],
        &["branch", "origin/x"],
        &["commit", "--allow-empty", "-b", "origin/x"],
        &["unpack", "../b.snap", "-b", "origin/x"],
    ];
    for command in commands {
        let refused = env.snap_in("p", command);
        assert_eq!(refused.code, Some(2), "{command:?}: {}", refused.stderr);
        let told = "error: `origin/x` could be a branch of the remote `origin`\nhint: ";
        assert!(refused.stderr.contains(told), "{command:?}: {}", refused.stderr);
    }
    env.snap_in("p", ["tag", "-f", "origin/old"]).succeeds();
    env.snap_in("p", ["tag", "-d", "origin/old"]).succeeds();
    for name in ["origin", "origins/x", "x/origin/y"] {
        env.snap_in("p", ["tag", name]).succeeds();
    }
}
