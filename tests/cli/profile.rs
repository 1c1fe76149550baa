//! `snap commit --profile`.

use crate::env::{Ran, TestEnv};

/// Makes a home folder with a settings file and with files to back up.
fn env(settings: &str) -> TestEnv {
    let mut env = TestEnv::new();
    let home = env.path("home");
    env.set("HOME", home.to_str().unwrap());
    env.write("home/.config/snap/config.toml", settings);
    env.write("home/docs/plan", "plan");
    env.write("home/docs/plan.tmp", "draft");
    env.write("home/notes", "notes");
    env
}

/// Lists the paths in the newest snapshot, relative to the test's folder.
fn files(env: &TestEnv, store: &str) -> Vec<String> {
    let listed = env.snap(["--store", store, "ls", "-R"]).succeeds().stdout;
    let root = env.path("").to_str().unwrap().trim_matches('/').to_owned() + "/";
    let lines = listed.lines().filter(|line| !line.ends_with('/'));
    lines.map(|line| line.strip_prefix(&root).unwrap_or(line).to_owned()).collect()
}

#[test]
fn one_says_what_where_and_how() {
    let env = env("[profile.home]\npaths = ['~/docs', '~/notes']\nexclude = ['*.tmp']\n\
                   labels = { set = 'home', by = 'night' }\nmessage = 'every night'\n\
                   branch = 'nightly'\nstore = '~/../backup'\n");
    env.snap(["--store", "backup", "init"]).succeeds();
    let made = env.snap(["commit", "--profile", "home", "--json"]).succeeds();
    assert_eq!(made.json()[0]["labels"].to_string(), r#"{"by":"night","set":"home"}"#);
    assert_eq!(made.json()[0]["message"], "every night");
    assert_eq!(env.read("backup/HEAD"), "ref: refs/heads/nightly\n");
    assert_eq!(files(&env, "backup"), ["home/docs/plan", "home/notes"]);
}

#[test]
fn options_add_to_its_lists_and_replace_its_single_values() {
    let env = env("[profile.home]\npaths = ['~/docs']\nexclude = ['*.tmp']\n\
                   labels = { set = 'home', by = 'night' }\nmessage = 'every night'\n");
    env.snap(["init"]).succeeds();
    env.write("more", "more");
    env.write("more.o", "more");
    let args = ["commit", "--profile", "home", "more", "more.o", "--exclude", "plan", "-m", "now"];
    let made = env.snap(args.iter().chain(&["--label", "by=hand", "--json"])).succeeds();
    assert_eq!(made.json()[0]["labels"].to_string(), r#"{"by":"hand","set":"home"}"#);
    assert_eq!(made.json()[0]["message"], "now");
    assert_eq!(files(&env, ".snap"), ["more", "more.o"]);
}

#[test]
fn a_single_folder_has_its_absolute_path_and_the_store_is_in_the_current_folder() {
    let env = env("[profile.docs]\npaths = ['~/docs']\n");
    env.snap(["commit", "--profile", "docs"]).succeeds();
    assert_eq!(files(&env, ".snap"), ["home/docs/plan", "home/docs/plan.tmp"]);
    assert!(!env.path("home/docs/.snap").exists());
}

#[test]
fn relative_paths_start_at_the_project() {
    let env = env("");
    env.snap(["init"]).succeeds();
    for path in ["src/main.rs", "src/deep/lib.rs", "plan", "other"] {
        env.write(path, path);
    }
    env.snap(["config", "set", "profile.code.paths", r#"["src", "./plan"]"#]).succeeds();
    env.snap_in("src/deep", ["commit", "--profile", "code"]).succeeds();
    assert_eq!(files(&env, ".snap"), ["plan", "src/deep/lib.rs", "src/main.rs"]);
    env.snap(["config", "set", "profile.code.paths", "src"]).succeeds();
    env.write("plan", "changed");
    fs_err::remove_file(env.path("src/main.rs")).unwrap();
    env.snap_in("src/deep", ["commit", "--profile", "code"]).succeeds();
    assert_eq!(files(&env, ".snap"), ["plan", "src/deep/lib.rs"]);
    assert_eq!(env.snap(["cat", "HEAD:plan"]).succeeds().stdout, "plan");
    env.snap(["config", "set", "profile.code.paths", r#"["src", ".."]"#]).succeeds();
    let refused = env.snap(["commit", "--profile", "code"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("holds snapshots of this project's own files"), "{refused}");
    env.snap(["--store", "bare", "init"]).succeeds();
    env.snap(["--store", "bare", "config", "set", "profile.a.paths", "src"]).succeeds();
    insta::assert_snapshot!(env.snap(["--store", "bare", "commit", "--profile", "a"]), @r"
    exit: 2
    --- stderr ---
    error: profile `a`: `src` is relative, and a bare store has no project folder
    hint: start the path with `/` or `~/`
    ");
}

#[test]
fn one_without_paths_is_of_the_project() {
    let env = env("");
    env.snap(["init"]).succeeds();
    env.write("sub/a", "1");
    env.snap(["config", "set", "profile.all.labels.kind", "all"]).succeeds();
    env.snap(["config", "set", "profile.all.exclude", "home"]).succeeds();
    env.snap_in("sub", ["commit", "--profile", "all"]).succeeds();
    assert_eq!(files(&env, ".snap"), ["sub/a"]);
}

#[test]
fn the_stores_settings_win_one_by_one() {
    let env = env("[profile.home]\npaths = ['~/docs', '~/notes']\nmessage = 'of the user'\n");
    env.snap(["init"]).succeeds();
    env.snap(["config", "set", "profile.home.message", "of the store"]).succeeds();
    let made = env.snap(["commit", "--profile", "home", "--json"]).succeeds();
    assert_eq!(made.json()[0]["message"], "of the store");
    assert_eq!(files(&env, ".snap"), ["home/docs/plan", "home/docs/plan.tmp", "home/notes"]);
}

#[test]
fn one_can_leave_out_caches_and_what_git_ignores() {
    let env = env("[profile.a]\npaths = ['~/docs']\nexclude_caches = true\ngitignore = true\n\
                   one_file_system = true\n[profile.b]\npaths = ['~/docs']\ngitignore = false\n");
    env.write("home/docs/cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    env.write("home/docs/cache/x", "x");
    env.write("home/docs/.gitignore", "*.tmp\n");
    env.snap(["commit", "--profile", "a"]).succeeds();
    let store = ".snap";
    let saved =
        [".gitignore", "cache/CACHEDIR.TAG", "plan"].map(|path| format!("home/docs/{path}"));
    assert_eq!(files(&env, store), saved);
    env.snap(["--store", store, "config", "set", "commit.gitignore", "true"]).succeeds();
    env.snap(["commit", "--profile", "b"]).succeeds();
    assert!(files(&env, store).contains(&"home/docs/plan.tmp".to_owned()));
}

#[test]
fn one_that_is_not_there_is_told_with_those_that_are() {
    let env = env("[profile.home]\npaths = ['~/docs']\n[profile.work]\n");
    insta::assert_snapshot!(env.snap(["commit", "--profile", "hom"]), @r"
    exit: 2
    --- stderr ---
    error: profile `hom` does not exist
    hint: did you mean `home`?
    ");
    insta::assert_snapshot!(env.snap(["commit", "--profile", "photos"]), @r"
    exit: 2
    --- stderr ---
    error: profile `photos` does not exist
    hint: known: `home`, `work`
    ");
    assert!(!env.path(".snap").exists());
    env.write("home/.config/snap/config.toml", "");
    insta::assert_snapshot!(env.snap(["commit", "--profile", "home"]), @r#"
    exit: 2
    --- stderr ---
    error: profile `home` does not exist
    hint: `snap config set profile.NAME.paths '["~/docs"]'` creates one for this store
    hint: with --user, it creates one for all stores
    "#);
}

#[test]
fn paths_that_mean_nothing_are_named() {
    let of = |path: &str| -> Ran {
        let env = env(&format!("[profile.a]\npaths = ['{path}', '~/docs']\n"));
        let ran = env.snap(["commit", "--profile", "a"]);
        assert!(!env.path(".snap").exists());
        ran
    };
    insta::assert_snapshot!(of("~bob/docs"), @"
    exit: 2
    --- stderr ---
    error: cannot expand `~` in `~bob/docs`: only your own home folder is known
    hint: write the full path
    hint: write `./~…` for a file or folder of that name
    ");
}

#[test]
fn a_path_that_is_not_there_is_told_and_the_others_are_committed() {
    let mut env = env("[profile.a]\npaths = ['~/nowhere', '~/docs']\nexclude = ['*.tmp']\n");
    insta::assert_snapshot!(env.snap(["commit", "--profile", "a"]), @"
    exit: 3
    --- stdout ---
    [ID]
    --- stderr ---
    Created a store at .snap
    warning: path of profile `a` does not exist: [ROOT]/home/nowhere
    Committed 1 file, 4 B: 1 added, 0 modified, 0 unmodified
    Read [SIZE], added [SIZE], stored [SIZE] in [TIME]
    warning: skipped 1 entry that could not be read
    ");
    assert_eq!(files(&env, ".snap"), ["home/docs/plan"]);
    let made = env.snap(["commit", "--profile", "a", "--dry-run", "--json"]);
    assert_eq!((made.code, &made.json()[0]["skipped"]), (Some(3), &1.into()));

    env.set("HOME", "/nowhere");
    env.set("SNAP_CONFIG", env.path("home/.config/snap/config.toml").to_str().unwrap());
    insta::assert_snapshot!(env.snap(["commit", "--profile", "a"]), @r"
    exit: 1
    --- stderr ---
    error: no path of profile `a` exists, such as /nowhere/nowhere
    hint: `snap config get profile.a.paths` lists them
    ");
    fs_err::remove_dir_all(env.path(".snap")).unwrap();
    insta::assert_snapshot!(env.snap(["commit", "--profile", "a"]), @r"
    exit: 1
    --- stderr ---
    error: no path of profile `a` exists, such as /nowhere/nowhere
    hint: `snap config get profile.a.paths` lists them
    ");
    assert!(!env.path(".snap").exists());
}

#[test]
fn comparisons_and_archives_leave_out_what_a_profile_excludes() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    env.snap(["config", "set", "profile.home.exclude", "['*.tmp']"]).succeeds();
    env.write("file", "1");
    env.snap(["commit", "-q", "--profile", "home"]).succeeds();
    env.write("x.tmp", "2");
    let out = |args: &[&str]| env.snap(args).succeeds().stdout;
    assert_eq!(out(&["status", "-s"]), "A x.tmp\n");
    assert_eq!(out(&["status", "-s", "--profile", "home"]), "");
    assert_eq!(out(&["diff", "--name-only"]), "x.tmp\n");
    assert_eq!(out(&["diff", "--name-only", "--profile", "home"]), "");
    assert!(out(&["verify", "--against-files"]).contains("x.tmp"));
    assert_eq!(out(&["verify", "--against-files", "--profile", "home"]), "");
    env.snap(["archive", "-q", ".", "--profile", "home", "-o", "a.snap"]).succeeds();
    assert_eq!(out(&["ls", "a.snap"]), "file\n");
    let ran = env.snap(["status", "--profile", "nope"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("profile `nope` does not exist"), "{ran}");
    let ran = env.snap(["diff", "HEAD", "HEAD", "--profile", "home"]);
    assert_eq!(ran.code, Some(2), "{ran}");
}
