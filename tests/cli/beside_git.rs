//! A project that is also a git work tree: commits leave out its `.git`, and restores leave it
//! alone.

use crate::env::TestEnv;

/// Returns a project with a `.git`, which has one commit of git.
fn work_tree() -> TestEnv {
    let env = TestEnv::new();
    env.write("p/a", "1");
    env.write("p/.git/HEAD", "ref: refs/heads/main\n");
    env.write("p/.git/refs/heads/main", "git 1\n");
    env
}

const MIRROR: [&str; 3] = ["--overwrite", "--delete", "--yes"];

fn git(env: &TestEnv) -> String {
    env.read("p/.git/refs/heads/main")
}

#[test]
fn the_first_commit_says_that_it_leaves_out_git() {
    let env = work_tree();
    let said = env.snap_in("p", ["commit", "-n"]).succeeds().stderr;
    let note = "`.git` is left out: git keeps its own history\n\
                hint: `snap commit --include-git` saves it once\n\
                hint: `snap config set commit.git true` saves it always\n";
    assert!(said.ends_with(note), "{said}");
    let said = env.snap_in("p", ["commit"]).succeeds().stderr;
    assert!(said.ends_with(note), "{said}");
    assert_eq!(env.snap_in("p", ["ls", "-R", "HEAD"]).stdout, "a\n");
    assert!(env.snap_in("p", ["show"]).stdout.contains("Left out: /.git\n"));
    env.write("p/.git/refs/heads/main", "git 2\n");
    let status = env.snap_in("p", ["status"]).succeeds().stdout;
    assert!(status.contains("Nothing changed"), "{status}");
    let said = env.snap_in("p", ["commit"]).succeeds().stderr;
    assert!(said.starts_with("Nothing changed"), "{said}");
    let said = env.snap_in("p", ["commit", "--allow-empty"]).succeeds().stderr;
    assert!(!said.contains(".git"), "only the first commit says it: {said}");

    // The `.git` of a linked work tree or a submodule is a file.
    env.write("linked/.git", "gitdir: elsewhere\n");
    env.write("linked/b", "1");
    let said = env.snap_in("linked", ["commit"]).succeeds().stderr;
    assert!(said.contains("`.git` is left out"), "{said}");
    assert_eq!(env.snap_in("linked", ["ls", "-R", "HEAD"]).stdout, "b\n");
}

#[test]
fn an_option_and_a_setting_include_git() {
    let env = work_tree();
    let said = env.snap_in("p", ["commit", "--include-git"]).succeeds().stderr;
    assert!(!said.contains(".git"), "{said}");
    let has_git = || env.snap_in("p", ["ls", "HEAD"]).stdout.contains(".git/\n");
    assert!(has_git());
    env.write("p/.git/refs/heads/main", "git 2\n");
    let changes = |args: &[&str]| env.snap_in("p", [&["status", "-s"], args].concat()).stdout;
    assert_eq!(changes(&[]), "");
    assert_eq!(changes(&["--include-git"]), "M .git/refs/heads/main\n");
    assert_eq!(
        env.snap_in("p", ["diff", "--name-only", "--include-git"]).stdout.lines().count(),
        1
    );
    env.write("p/a", "2");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    assert!(!has_git());
    env.snap_in("p", ["config", "set", "commit.git", "true"]).succeeds();
    assert!(changes(&[]).contains("A .git/\n"));
    env.snap_in("p", ["commit", "-q"]).succeeds();
    assert!(has_git());

    // A named path in it needs the option, too.
    env.snap_in("p", ["config", "unset", "commit.git"]).succeeds();
    insta::assert_snapshot!(env.snap_in("p", ["commit", ".git/HEAD"]), @r"
    exit: 2
    --- stderr ---
    error: .git/HEAD is excluded by the ignore rules
    hint: --include-git saves a `.git` at the top of the project
    ");
    env.snap_in("p", ["commit", "-q", "--include-git", ".git/HEAD"]).succeeds();
}

#[test]
fn other_repositories_are_complete() {
    let env = work_tree();
    env.write("outer/lib/.git/HEAD", "ref: refs/heads/main\n");
    let said = env.snap_in("outer", ["commit"]).succeeds().stderr;
    assert!(!said.contains(".git"), "{said}");
    let files = env.snap_in("outer", ["ls", "-R", "HEAD"]).stdout;
    assert_eq!(files, "lib/\nlib/.git/\nlib/.git/HEAD\n");
    // So is a backup of a named folder.
    env.snap(["--store", "backup", "init", "-q"]).succeeds();
    for sources in [&["p"][..], &["p", "outer"]] {
        let branch = format!("of{}", sources.len());
        let args = [&["--store", "backup", "commit", "-q", "-b", &branch], sources].concat();
        env.snap(args).succeeds();
        let files = env.snap(["--store", "backup", "ls", "-R", &branch]).stdout;
        assert!(files.contains(".git/refs/heads/main\n"), "{files}");
    }
    // A restore elsewhere is complete, too.
    env.snap_in("p", ["commit", "-q", "--include-git"]).succeeds();
    env.snap_in("p", ["restore", "-q", "HEAD", "../out"]).succeeds();
    assert_eq!(env.read("out/.git/HEAD"), "ref: refs/heads/main\n");
}

#[test]
fn no_restore_in_place_touches_git() {
    let env = work_tree();
    env.snap_in("p", ["commit", "-q", "--include-git", "-m", "with git"]).succeeds();
    env.write("p/a", "2");
    env.write("p/.git/refs/heads/main", "git 2\n");
    env.snap_in("p", ["commit", "-q", "-m", "without"]).succeeds();
    env.snap_in("p", ["pack", "-q", "HEAD~1", "-o", "../old.snap"]).succeeds();
    env.write("p/.git/new", "");
    for (args, kept) in [
        (&["HEAD~1"][..], "warning: kept `.git`: it belongs to git\n"),
        (&["HEAD"], ""),
        (&["HEAD~1", "--delete-excluded"], "warning: kept `.git`: it belongs to git\n"),
        (&["HEAD", "--delete-excluded"], ""),
        (&["HEAD~1", "."], "warning: kept `.git`: it belongs to git\n"),
        (&["../old.snap", "."], "warning: kept `.git`: it belongs to git\n"),
    ] {
        let dry = env.snap_in("p", [&["restore", "-n"], args, &MIRROR].concat()).succeeds();
        assert!(!dry.stdout.contains(".git"), "{args:?}: {dry}");
        let done = env.snap_in("p", [&["restore"], args, &MIRROR].concat()).succeeds();
        assert!(done.stderr.starts_with(kept), "{args:?}: {done}");
        assert_eq!(done.stderr.matches(".git").count(), kept.matches(".git").count(), "{done}");
        assert_eq!(git(&env), "git 2\n", "{args:?}");
        assert!(env.path("p/.git/new").exists(), "{args:?}");
        assert!(!done.stderr.contains("exclude"), "{done}");
        assert_eq!(env.snap_in("p", ["status", "-s", "--folder", "."]).code, Some(0));
    }
    for path in ["HEAD~1:.git", "HEAD~1:.git/refs/heads/main"] {
        let refused = env.snap_in("p", ["restore", path, "--overwrite"]);
        assert_eq!((refused.code, git(&env)), (Some(1), "git 2\n".to_owned()), "{refused}");
    }
    insta::assert_snapshot!(env.snap_in("p", ["restore", "HEAD~1:.git/HEAD", "--overwrite"]), @r"
    exit: 1
    --- stderr ---
    error: `.git/HEAD` belongs to git; a restore leaves it alone
    hint: --include-git restores it
    hint: pass a folder to restore it elsewhere
    ");
    // The base is that of the restored commit, so the next commit is not refused.
    env.snap_in("p", ["restore", "-q", "HEAD", "--overwrite", "--delete"]).succeeds();
    let status = env.snap_in("p", ["status"]).stdout;
    assert!(status.contains("Nothing changed"), "{status}");

    let args = [&["restore", "-q", "HEAD~1", "--include-git"][..], &MIRROR].concat();
    env.snap_in("p", args).succeeds();
    assert_eq!(git(&env), "git 1\n");
    assert!(!env.path("p/.git/new").exists());
}

#[test]
fn clones_with_and_without_git_stay_up_to_date() {
    let env = work_tree();
    env.snap_in("p", ["commit", "-q", "--include-git"]).succeeds();
    for clone in ["has", "lacks"] {
        env.snap(["clone", "-q", "p", clone]).succeeds();
    }
    fs_err::remove_dir_all(env.path("lacks/.git")).unwrap();
    let is_current = |clone: &str| {
        let status = env.snap_in(clone, ["status"]).succeeds().stdout;
        assert!(status.contains("Nothing changed"), "{clone}: {status}");
        let said = env.snap_in(clone, ["commit"]).succeeds().stderr;
        assert!(said.starts_with("Nothing changed"), "{clone}: {said}");
        assert_eq!(env.path(clone).join(".git").exists(), clone == "has");
    };
    is_current("has");
    is_current("lacks");
    env.write("has/.git/refs/heads/main", "git 9\n");
    // The branch changes its `.git`, drops it, and has it again.
    for (text, args) in [("2", &["--include-git"][..]), ("3", &[]), ("4", &["--include-git"])] {
        env.write("p/a", text);
        env.write("p/.git/refs/heads/main", format!("git {text}\n"));
        env.snap_in("p", [&["commit", "-q"], args].concat()).succeeds();
        for clone in ["has", "lacks"] {
            let pulled = env.snap_in(clone, ["pull", "--update"]).succeeds();
            assert!(!pulled.stderr.contains("git"), "{pulled}");
            assert_eq!(env.read(&format!("{clone}/a")), text);
            is_current(clone);
        }
        assert_eq!(env.read("has/.git/refs/heads/main"), "git 9\n");
    }
    // The option brings a `.git` that differs, and names it as a conflict if it was changed here.
    env.write("p/a", "5");
    env.write("p/.git/refs/heads/main", "git 5\n");
    env.snap_in("p", ["commit", "-q", "--include-git"]).succeeds();
    let conflict = env.snap_in("has", ["pull", "--update", "--include-git"]);
    assert!(conflict.stdout.contains("conflict: .git/refs/heads/main\n"), "{conflict}");
    assert_eq!(env.read("has/.git/refs/heads/main"), "git 9\n");
    env.snap_in("has", ["pull", "-q", "--update"]).succeeds();
    is_current("has");
    assert_eq!(env.read("has/.git/refs/heads/main"), "git 9\n");
}

#[test]
fn git_that_appears_later_makes_no_commit() {
    let env = TestEnv::new();
    env.write("p/a", "1");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    let root_time = fs_err::metadata(env.path("p")).unwrap().modified().unwrap();
    env.write("p/.git/HEAD", "ref: refs/heads/main\n");
    let folder = fs_err::File::open(env.path("p")).unwrap();
    folder.file().set_modified(root_time).unwrap();
    let said = env.snap_in("p", ["commit"]).succeeds().stderr;
    assert!(said.starts_with("Nothing changed"), "{said}");
    env.write("p/a", "2");
    let said = env.snap_in("p", ["commit"]).succeeds().stderr;
    assert!(said.contains("`.git` is left out"), "{said}");
}
