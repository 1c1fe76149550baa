//! `snap pull --update`: the files follow the branch, and local changes are never lost.

use std::{
    collections::BTreeMap,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
};

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use snap_testkit::skip::needs_root;

use crate::{
    base_sequences::copy,
    env::{Ran, TestEnv},
};

/// A project `ann/p` with a remote, and a clone `bob/p`.
fn env() -> TestEnv {
    let env = TestEnv::in_memory();
    let url = format!("file://{}", env.path("there").display());
    for (path, content) in [
        ("same", "same"),
        ("edited", "first"),
        ("deleted", "first"),
        ("old/a", "a"),
        ("old/b", "b"),
        ("tool", "#!"),
        ("kind/file", "first"),
        ("src/deep/x", "first"),
    ] {
        env.write(&format!("ann/p/{path}"), content);
    }
    env.snap_in("ann/p", ["commit", "-qm", "first"]).succeeds();
    env.snap_in("ann/p", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("ann/p", ["push", "-q"]).succeeds();
    env.snap(["clone", "-q", &url, "bob/p"]).succeeds();
    env
}

/// Changes files of every kind at Ann's, and pushes them.
fn ann_works(env: &TestEnv) {
    env.write("ann/p/edited", "second");
    env.write("ann/p/added/new", "new");
    env.write("ann/p/src/deep/x", "second");
    env.mode("ann/p/tool", 0o755);
    fs_err::remove_file(env.path("ann/p/deleted")).unwrap();
    fs_err::rename(env.path("ann/p/old"), env.path("ann/p/moved")).unwrap();
    fs_err::remove_dir_all(env.path("ann/p/kind")).unwrap();
    env.write("ann/p/kind", "now a file");
    env.snap_in("ann/p", ["commit", "-qm", "second"]).succeeds();
    env.snap_in("ann/p", ["push", "-q"]).succeeds();
}

fn pull(env: &TestEnv) -> Ran {
    env.snap_in("bob/p", ["pull", "--update"])
}

fn tip(env: &TestEnv, project: &str) -> String {
    env.snap_in(project, ["show", "--id", "main"]).line().to_owned()
}

/// Returns the files of a project with their modes and contents, without its store.
fn files(project: &Path) -> BTreeMap<String, (u32, String)> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![project.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            if meta.is_file() {
                let name = path.strip_prefix(project).unwrap().to_str().unwrap().to_owned();
                let mode = meta.permissions().mode() & 0o7777;
                files.insert(name, (mode, fs_err::read_to_string(&path).unwrap()));
            } else if entry.file_name() != ".snap" {
                folders.push(path);
            }
        }
    }
    files
}

#[test]
fn files_follow_the_branch_and_other_local_changes_stay() {
    let env = env();
    ann_works(&env);
    env.write("bob/p/same", "edited by bob");
    env.write("bob/p/notes", "of bob");
    env.write("bob/p/src/mine", "of bob");
    let ran = pull(&env).succeeds();
    assert!(ran.stderr.contains("\nUpdated 6 files, 27 B\n"), "{ran}");
    assert!(ran.stderr.ends_with("\nDeleted 6 paths\n"), "{ran}");
    let mut expected = files(&env.path("ann/p"));
    for (path, content) in [("same", "edited by bob"), ("notes", "of bob"), ("src/mine", "of bob")]
    {
        expected.insert(path.to_owned(), (0o644, content.to_owned()));
    }
    assert_eq!(files(&env.path("bob/p")), expected);
    assert!(!env.path("bob/p/old").exists());
    // The base has followed: a commit takes back nothing, so it is not refused.
    let status = env.snap_in("bob/p", ["status", "-s"]).succeeds().stdout;
    assert_eq!(status, "A notes\nM same\nA src/mine\n");
    env.snap_in("bob/p", ["commit", "-qm", "of bob"]).succeeds();
    env.snap_in("bob/p", ["push", "-q"]).succeeds();
    let again = pull(&env).succeeds();
    assert!(again.stderr.contains("up to date"), "{again}");
}

#[test]
fn a_path_that_changed_on_both_sides_stops_everything() {
    type Edit = fn(&TestEnv);
    let cases: [(&str, &[&str], Edit); 9] = [
        ("edited", &["edited"], |env| env.write("bob/p/edited", "mine")),
        ("deleted there", &["deleted"], |env| env.write("bob/p/deleted", "mine")),
        ("deleted here", &["edited"], |env| {
            fs_err::remove_file(env.path("bob/p/edited")).unwrap();
        }),
        ("mode", &["tool"], |env| env.mode("bob/p/tool", 0o700)),
        ("added here", &["added/new"], |env| env.write("bob/p/added/new", "mine")),
        ("a file for a folder", &["added"], |env| env.write("bob/p/added", "mine")),
        ("a folder for a file", &["kind"], |env| env.write("bob/p/kind/mine", "mine")),
        ("excluded from commits", &["added/new"], |env| {
            env.snap_in("bob/p", ["config", "set", "commit.exclude", "[\"added\"]"]).succeeds();
            env.write("bob/p/added/new", "mine");
        }),
        ("two", &["edited", "src/deep/x"], |env| {
            env.write("bob/p/edited", "mine");
            env.write("bob/p/src/deep/x", "mine");
        }),
    ];
    let saved = env();
    ann_works(&saved);
    copy(&saved.path("bob"), &saved.path("saved"));
    for (name, paths, edit) in cases {
        let env = &saved;
        fs_err::remove_dir_all(env.path("bob")).unwrap();
        copy(&env.path("saved"), &env.path("bob"));
        edit(env);
        let (before, old) = (files(&env.path("bob/p")), tip(env, "bob/p"));
        for _ in 0..2 {
            let ran = pull(env);
            assert_eq!(ran.code, Some(1), "{name}: {ran}");
            let listed: String = paths.iter().map(|path| format!("conflict: {path}\n")).collect();
            assert_eq!(ran.stdout, listed, "{name}");
            assert_eq!(files(&env.path("bob/p")), before, "{name}");
            assert_eq!(tip(env, "bob/p"), old, "{name}");
        }
    }
    insta::assert_snapshot!(pull(&saved), @"
    exit: 1
    --- stdout ---
    conflict: edited
    conflict: src/deep/x
    --- stderr ---
    error: conflict: 2 paths were changed both here and in [SHORT ID]; branch `main` and the files stay as they are
    hint: `snap commit -b NAME` saves the local changes on a new branch, then pull again
    hint: `snap restore NAME:edited --overwrite` takes your version from that branch afterwards
    hint: `snap diff [SHORT ID]` compares the files with the pulled commit
    hint: `snap restore HEAD:edited --overwrite` drops the change of one file
    ");
    let json = saved.snap_in("bob/p", ["pull", "--update", "--json"]);
    let records = json.json();
    assert_eq!((json.code, records.len()), (Some(1), 2), "{json}");
    assert_eq!(
        (&records[0]["type"], &records[0]["path"]),
        (&"update-conflict".into(), &"edited".into())
    );
    // What the hint proposes leads on, and loses nothing.
    saved.snap_in("bob/p", ["commit", "-q", "-b", "mine"]).succeeds();
    pull(&saved).succeeds();
    assert_eq!(files(&saved.path("bob/p")), files(&saved.path("ann/p")));
    assert_eq!(saved.snap_in("bob/p", ["cat", "mine:edited"]).stdout, "mine");
}

#[test]
fn a_path_that_already_equals_the_new_commit_is_no_conflict() {
    let env = env();
    ann_works(&env);
    env.write("bob/p/edited", "second");
    fs_err::remove_file(env.path("bob/p/deleted")).unwrap();
    env.write("bob/p/added/new", "new");
    pull(&env).succeeds();
    assert_eq!(files(&env.path("bob/p")), files(&env.path("ann/p")));
}

#[test]
fn files_of_a_named_path_that_was_committed_are_no_local_change() {
    let env = env();
    env.write("bob/p/edited", "of bob");
    env.write("bob/p/only", "of bob");
    env.write("bob/p/same", "not committed");
    env.snap_in("bob/p", ["commit", "-qm", "paths", "edited", "only"]).succeeds();
    env.snap_in("bob/p", ["push", "-q"]).succeeds();
    pull_in(&env, "ann/p").succeeds();
    assert_eq!(env.read("ann/p/edited"), "of bob");
    env.write("ann/p/edited", "of both");
    env.write("ann/p/only", "of both");
    env.snap_in("ann/p", ["commit", "-q"]).succeeds();
    env.snap_in("ann/p", ["push", "-q"]).succeeds();
    pull(&env).succeeds();
    for (path, content) in [("edited", "of both"), ("only", "of both"), ("same", "not committed")] {
        assert_eq!(env.read(&format!("bob/p/{path}")), content);
    }
}

fn pull_in(env: &TestEnv, project: &str) -> Ran {
    env.snap_in(project, ["pull", "--update"])
}

/// Returns up to 24 steps at which an update is stopped: some before the branch moves, most after.
fn steps_of_an_update(env: &TestEnv) -> Vec<usize> {
    let log = env.path("steps");
    let mut command = env.command("bob/p");
    command.args(["pull", "-q", "--update"]).env("SNAP_TEST_STEP_LOG", &log);
    assert!(command.output().unwrap().status.success());
    let log = env.read("steps");
    let steps: Vec<&str> = log.lines().collect();
    let moved = steps.iter().rposition(|step| step.contains("refs/heads/main")).unwrap();
    let before = (1..=moved).step_by(moved.div_ceil(4));
    let after = (moved + 1..=steps.len()).step_by((steps.len() - moved).div_ceil(20));
    before.chain(after).collect()
}

#[test]
fn an_update_that_was_stopped_at_any_step_is_completed_by_the_next_one() {
    let env = env();
    ann_works(&env);
    env.write("bob/p/notes", "of bob");
    let mut expected = files(&env.path("ann/p"));
    expected.insert("notes".to_owned(), (0o644, "of bob".to_owned()));
    let (old, new) = (files(&env.path("bob/p")), tip(&env, "ann/p"));
    copy(&env.path("bob"), &env.path("saved"));
    let mut stopped = 0;
    for (number, step) in steps_of_an_update(&env).into_iter().enumerate() {
        let signal = if number % 2 == 0 { "INT" } else { "KILL" };
        fs_err::remove_dir_all(env.path("bob")).unwrap();
        copy(&env.path("saved"), &env.path("bob"));
        let mut command = env.command("bob/p");
        command.args(["pull", "--update"]).env("SNAP_TEST_STOP_AT", step.to_string());
        let output = command.env("SNAP_TEST_STOP_BY", signal).output().unwrap();
        stopped += usize::from(!output.status.success());
        // Each file is the old or the new one.
        for (path, found) in files(&env.path("bob/p")) {
            let is_draft = path.rsplit('/').next().unwrap().starts_with(".snap-tmp-");
            let is_either = [old.get(&path), expected.get(&path)].contains(&Some(&found));
            assert!(is_draft || is_either, "step {step}: {path}");
        }
        // The files of the old commit cannot be committed over the new one.
        if tip(&env, "bob/p") == new && files(&env.path("bob/p")) != expected {
            let refused = env.snap_in("bob/p", ["commit", "-q"]);
            assert_ne!(refused.code, Some(0), "step {step}: {refused}");
        }
        let ran = pull(&env);
        assert_eq!(ran.code, Some(0), "step {step}: {ran}");
        assert_eq!(files(&env.path("bob/p")), expected, "step {step}");
        assert_eq!(tip(&env, "bob/p"), new, "step {step}");
        let status = env.snap_in("bob/p", ["status", "-s"]).succeeds().stdout;
        assert_eq!(status, "A notes\n", "step {step}");
        env.snap_in("bob/p", ["commit", "-q"]).succeeds();
    }
    assert!(stopped > 15, "only {stopped} stops");
}

#[test]
fn a_plain_pull_names_the_update_which_then_does_the_rest() {
    let env = env();
    ann_works(&env);
    let ran = env.snap_in("bob/p", ["pull"]).succeeds();
    let hint = "Files are unchanged\nhint: `snap pull --update` updates them and keeps local changes\n\
                hint: `snap restore main --overwrite --delete -n` lists what a restore would change\n";
    assert!(ran.stderr.ends_with(hint), "{ran}");
    assert_eq!(env.read("bob/p/edited"), "first");
    env.write("bob/p/edited", "mine");
    assert_eq!(pull(&env).code, Some(1));
    env.write("bob/p/edited", "first");
    pull(&env).succeeds();
    assert_eq!(files(&env.path("bob/p")), files(&env.path("ann/p")));
}

#[test]
fn a_setting_updates_files_with_each_pull_of_the_current_branch() {
    let env = env();
    env.snap_in("ann/p", ["tag", "v1"]).succeeds();
    env.snap_in("ann/p", ["push", "-q", "origin", "v1"]).succeeds();
    ann_works(&env);
    env.snap_in("bob/p", ["config", "set", "pull.update", "true"]).succeeds();
    env.snap_in("bob/p", ["pull", "origin", "v1"]).succeeds();
    assert_eq!(env.read("bob/p/edited"), "first");
    let records = env.snap_in("bob/p", ["pull", "--json"]).succeeds().json();
    assert_eq!((&records[0]["type"], &records[1]["type"]), (&"pulled".into(), &"restored".into()));
    assert_eq!(files(&env.path("bob/p")), files(&env.path("ann/p")));
}

#[test]
fn an_update_needs_the_files_of_the_current_branch() {
    let env = env();
    insta::assert_snapshot!(env.snap_in("bob/p", ["pull", "--update", "origin", "other"]), @r"
    exit: 2
    --- stderr ---
    error: --update updates the files only from the current branch; `snap branch --switch NAME` switches
    ");
    env.snap(["--store", "bare", "init"]).succeeds();
    insta::assert_snapshot!(env.snap(["--store", "bare", "pull", "--update"]), @r"
    exit: 2
    --- stderr ---
    error: a bare store has no project, so --update has no files
    ");
    // A diverged branch moves neither itself nor the files.
    ann_works(&env);
    env.write("bob/p/notes", "of bob");
    env.snap_in("bob/p", ["commit", "-q"]).succeeds();
    let before = (files(&env.path("bob/p")), tip(&env, "bob/p"));
    let diverged = pull(&env);
    assert_eq!(diverged.code, Some(1), "{diverged}");
    assert!(diverged.stderr.contains("have diverged"), "{diverged}");
    assert_eq!((files(&env.path("bob/p")), tip(&env, "bob/p")), before);
    // Forced, the files follow; the local commit stays in the log.
    env.snap_in("bob/p", ["pull", "--update", "--force"]).succeeds();
    assert_eq!(files(&env.path("bob/p")), files(&env.path("ann/p")));
    env.snap_in("bob/p", ["undo"]).succeeds();
    assert_eq!(env.snap_in("bob/p", ["cat", "HEAD:notes"]).stdout, "of bob");
}

#[test]
fn a_new_project_gets_its_files_and_keeps_those_in_the_way() {
    let env = env();
    let url = format!("file://{}", env.path("there").display());
    env.write("new/mine", "of carl");
    env.snap(["init", "-q", "new"]).succeeds();
    env.snap_in("new", ["remote", "add", "origin", &url]).succeeds();
    env.write("new/edited", "of carl");
    let ran = env.snap_in("new", ["pull", "--update"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(1), "conflict: edited\n"), "{ran}");
    assert_eq!(files(&env.path("new")).len(), 2);
    fs_err::remove_file(env.path("new/edited")).unwrap();
    env.snap_in("new", ["pull", "--update"]).succeeds();
    let mut expected = files(&env.path("ann/p"));
    expected.insert("mine".to_owned(), (0o644, "of carl".to_owned()));
    assert_eq!(files(&env.path("new")), expected);
}

#[test]
fn a_partial_clone_updates_only_its_paths() {
    let env = env();
    let url = format!("file://{}", env.path("there").display());
    env.snap(["clone", "-q", "--path", "src", &url, "part"]).succeeds();
    ann_works(&env);
    pull_in(&env, "part").succeeds();
    let found: Vec<_> = files(&env.path("part")).into_iter().collect();
    assert_eq!(found, [("src/deep/x".to_owned(), (0o644, "second".to_owned()))]);
    env.write("part/src/deep/x", "third");
    env.snap_in("part", ["commit", "-q"]).succeeds();
    assert_eq!(env.snap_in("part", ["cat", "HEAD:edited"]).stdout, "second");
}

#[test]
fn ignored_files_that_the_branch_deletes_stay() {
    let env = env();
    env.write("ann/p/.snapignore", "deleted\n");
    env.snap_in("ann/p", ["commit", "-q"]).succeeds();
    env.snap_in("ann/p", ["push", "-q"]).succeeds();
    assert_eq!(env.snap_in("ann/p", ["ls"]).stdout.matches("deleted").count(), 0);
    pull(&env).succeeds();
    assert_eq!(env.read("bob/p/deleted"), "first");
    assert_eq!(env.snap_in("bob/p", ["status", "-s"]).succeeds().stdout, "");
    env.snap_in("bob/p", ["commit", "-q"]).succeeds();
}

/// Sets an extended attribute of a user. Returns false if the file system has none.
fn note(path: &Path) -> bool {
    setxattr(path, "user.note", b"mine", XattrFlags::empty()).is_ok()
}

fn has_note(path: &Path) -> bool {
    getxattr(path, "user.note", &mut [0; 8]).is_ok()
}

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn folders_keep_a_local_mode_and_attributes_that_the_pull_does_not_change() {
    let env = env();
    ann_works(&env);
    env.write("ann/p/src/new", "new");
    env.write("ann/p/top", "new");
    env.mode("ann/p/moved", 0o711);
    env.snap_in("ann/p", ["commit", "-q"]).succeeds();
    env.snap_in("ann/p", ["push", "-q"]).succeeds();
    for folder in ["bob/p", "bob/p/src"] {
        env.mode(folder, 0o700);
    }
    let has_notes = note(&env.path("bob/p/src")) && note(&env.path("bob/p"));
    pull(&env).succeeds();
    assert_eq!(files(&env.path("bob/p")), files(&env.path("ann/p")));
    for folder in ["bob/p", "bob/p/src"] {
        assert_eq!(mode(&env.path(folder)), 0o700, "{folder}");
        assert_eq!(has_note(&env.path(folder)), has_notes, "{folder}");
    }
    assert_eq!(mode(&env.path("bob/p/moved")), 0o711);
    // A mode that changed on both sides is a conflict.
    env.mode("ann/p/src", 0o750);
    env.write("ann/p/same", "third");
    env.snap_in("ann/p", ["commit", "-q"]).succeeds();
    env.snap_in("ann/p", ["push", "-q"]).succeeds();
    let ran = pull(&env);
    assert_eq!((ran.code, &*ran.stdout), (Some(1), "conflict: src\n"), "{ran}");
    assert_eq!(env.read("bob/p/same"), "same");
    // The same change on both sides is none.
    env.mode("bob/p/src", 0o750);
    removexattr(env.path("bob/p/src"), "user.note").ok();
    pull(&env).succeeds();
    assert_eq!(env.read("bob/p/same"), "third");
}

#[test]
fn a_file_with_the_new_content_and_other_attributes_is_a_conflict() {
    let env = env();
    ann_works(&env);
    env.write("bob/p/edited", "second");
    env.mode("bob/p/edited", 0o600);
    env.write("bob/p/added/new", "new");
    let has_note = note(&env.path("bob/p/added/new"));
    let expected =
        if has_note { "conflict: added/new\nconflict: edited\n" } else { "conflict: edited\n" };
    let ran = pull(&env);
    assert_eq!((ran.code, &*ran.stdout), (Some(1), expected), "{ran}");
    assert_eq!(mode(&env.path("bob/p/edited")), 0o600);
    // A mode that is that of the last commit is not local.
    env.mode("bob/p/edited", 0o644);
    env.write("bob/p/tool", "#!");
    removexattr(env.path("bob/p/added/new"), "user.note").ok();
    pull(&env).succeeds();
    assert_eq!(files(&env.path("bob/p")), files(&env.path("ann/p")));
}

#[test]
fn an_excluded_file_that_no_base_has_is_not_replaced_after_a_plain_pull() {
    let env = env();
    env.write("bob/p/.snapignore", "out\n");
    env.write("bob/p/out", "first");
    env.mode("bob/p/out", 0o600);
    env.write("ann/p/out", "of ann");
    env.snap_in("ann/p", ["commit", "-q"]).succeeds();
    env.snap_in("ann/p", ["push", "-q"]).succeeds();
    env.snap_in("bob/p", ["pull", "-q"]).succeeds();
    let ran = pull(&env);
    assert_eq!((ran.code, &*ran.stdout), (Some(1), "conflict: out\n"), "{ran}");
    assert_eq!((env.read("bob/p/out"), mode(&env.path("bob/p/out"))), ("first".to_owned(), 0o600));
}

#[test]
fn changes_of_an_undone_commit_are_local_changes() {
    let env = env();
    env.write("bob/p/same", "of bob");
    env.write("bob/p/edited", "of bob");
    env.snap_in("bob/p", ["commit", "-q"]).succeeds();
    env.snap_in("bob/p", ["undo"]).succeeds();
    ann_works(&env);
    let ran = pull(&env);
    assert_eq!((ran.code, &*ran.stdout), (Some(1), "conflict: edited\n"), "{ran}");
    env.write("bob/p/edited", "first");
    pull(&env).succeeds();
    assert_eq!(
        (env.read("bob/p/same"), env.read("bob/p/edited")),
        ("of bob".into(), "second".into())
    );
    assert_eq!(env.snap_in("bob/p", ["status", "-s"]).succeeds().stdout, "M same\n");
}

#[test]
fn a_folder_that_cannot_be_listed_stops_an_update_of_files_in_it() {
    const NOBODY: u32 = 65_534;
    if !needs_root() {
        return;
    }
    let env = env();
    ann_works(&env);
    env.write("bob/p/src/deep/x", "of bob");
    env.mode("", 0o755);
    let owner = format!("{NOBODY}:{NOBODY}");
    let run = |name: &str, args: &[&str], path: &str| {
        assert!(Command::new(name).args(args).arg(env.path(path)).status().unwrap().success());
    };
    run("chown", &["-R", &owner], "bob");
    run("chmod", &["-R", "a+rX"], "there");
    let url = format!("file://{}", env.path("there").display());
    for closed in [0o111, 0] {
        env.mode("bob/p/src/deep", closed);
        let mut command = env.command("bob/p");
        command.args(["pull", "--update", &url, "main"]).uid(NOBODY).gid(NOBODY);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "conflict: src/deep\n", "{output:?}");
        assert_eq!(mode(&env.path("bob/p/src/deep")), closed);
        env.mode("bob/p/src/deep", 0o755);
        assert_eq!(env.read("bob/p/src/deep/x"), "of bob");
        assert_eq!(env.read("bob/p/edited"), "first");
    }
}
