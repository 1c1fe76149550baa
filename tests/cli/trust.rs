//! Stores and settings that another user may have made.

use std::{os::unix::process::CommandExt, path::Path, process::Command};

use snap_testkit::skip::needs_root;

use crate::env::{Ran, TestEnv};

/// A user who is neither root nor the user of the tests.
const OTHER: u32 = 4321;

/// Changes the owner of a folder and of everything in it.
fn give(path: &Path, uid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), None).unwrap();
    if fs_err::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs_err::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), uid);
        }
    }
}

#[track_caller]
fn refuses(ran: &Ran, code: i32, texts: &[&str]) {
    assert_eq!(ran.code, Some(code), "{ran}");
    for text in texts {
        assert!(ran.to_string().contains(text), "{ran}\ndoes not say {text}");
    }
}

/// Makes a project with one commit, in a folder that other users may enter.
fn project() -> TestEnv {
    let env = TestEnv::new();
    env.mode("", 0o755);
    env.write("a", "1");
    env.snap(["commit", "-q"]).succeeds();
    env
}

#[test]
fn a_store_of_another_user_is_read_and_not_written() {
    if !needs_root() {
        return;
    }
    let env = project();
    env.snap(["clone", "-q", ".", "mine"]).succeeds();
    give(&env.path(".snap"), OTHER);
    // Pushing into it is refused too.
    env.mode("mine", 0o755);
    let pushed = env.snap_in("mine", ["push", ".."]);
    refuses(&pushed, 1, &["belongs to the user with id 4321", "snap config trust", "SNAP_TRUST="]);
    assert!(!pushed.stderr.contains("--store"), "{pushed}");
    fs_err::remove_dir_all(env.path(".snap/index")).unwrap();
    env.write("private", "key");
    insta::assert_snapshot!(env.snap(["commit"]), @"
    exit: 1
    --- stderr ---
    error: the store at [ROOT]/.snap is read-only: [ROOT]/.snap belongs to the user with id 4321
    hint: `snap config trust [ROOT]/.snap` trusts it
    hint: `--store [ROOT]/.snap` or SNAP_TRUST=[ROOT]/.snap trusts it once, for a container or a pipeline
    ");
    for args in [
        &["config", "set", "commit.host", "h"][..],
        &["remote", "add", "origin", "file:///nowhere"],
        &["branch", "b"],
        &["tag", "t"],
        &["undo"],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        refuses(&env.snap(args), 1, &["belongs to the user with id 4321", "snap config trust"]);
    }
    for args in [
        &["log"][..],
        &["ls", "latest"],
        &["cat", "latest:a"],
        &["status"],
        &["diff"],
        &["verify", "--data"],
        &["commit", "--dry-run"],
        &["config", "list"],
        &["restore", "latest", "out"],
    ] {
        env.snap(args).succeeds();
    }
    assert!(!env.path(".snap/index").exists(), "a read-only command wrote the index");
    let store = env.path(".snap");
    env.snap(["--store", store.to_str().unwrap(), "commit", "-q", "."]).succeeds();
}

#[test]
fn the_user_the_environment_and_the_system_can_trust_a_store() {
    if !needs_root() {
        return;
    }
    let mut env = project();
    give(&env.path(".snap"), OTHER);
    let fails = |env: &TestEnv| refuses(&env.snap(["commit", "-q"]), 1, &["is read-only"]);
    let root = env.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    insta::assert_snapshot!(env.snap(["config", "trust"]), @r"
    exit: 0
    --- stderr ---
    Trusted the store at [ROOT]/.snap, which belongs to the user with id 4321: it has no hooks, profiles or remotes
    ");
    env.snap(["commit", "-q"]).succeeds();
    give(&env.path(".snap"), OTHER + 1);
    fails(&env);
    env.snap(["config", "trust", &root]).succeeds();
    env.snap(["commit", "-q"]).succeeds();
    env.snap(["config", "trust", "--forget"]).succeeds();
    fails(&env);

    for (trusted, is_it) in [
        (root.clone(), true),
        (format!("{root}/.snap"), true),
        (format!("/nowhere:{root}"), true),
        (format!("{root}/*"), true),
        ("/*".to_owned(), true),
        ("/nowhere".to_owned(), false),
        (format!("{root}/other"), false),
        (format!("{root}/a/*"), false),
    ] {
        env.set("SNAP_TRUST", &trusted);
        let ran = env.snap(["commit", "-q"]);
        assert_eq!(ran.code == Some(0), is_it, "{trusted}: {ran}");
    }
    env.set("SNAP_TRUST", ".");
    refuses(&env.snap(["log"]), 2, &["SNAP_TRUST: `.` is not an absolute path"]);
    env.set("SNAP_TRUST", "");

    let system = tempfile::NamedTempFile::new().unwrap();
    fs_err::write(system.path(), format!("trust = ['{root}']\n")).unwrap();
    env.set("SNAP_CONFIG_SYSTEM", system.path().to_str().unwrap());
    env.snap(["commit", "-q"]).succeeds();
    let list = env.snap(["config", "list", "--origin"]).succeeds().stdout;
    assert!(list.contains("trust = ") && list.contains("system") || list.contains(":1"), "{list}");
    give(system.path(), OTHER);
    refuses(&env.snap(["commit", "-q"]), 2, &["must belong to root"]);
}

#[test]
fn root_trusts_the_user_who_called_sudo() {
    if !needs_root() {
        return;
    }
    let mut env = project();
    give(&env.path(".snap"), OTHER);
    env.set("SUDO_UID", "4322");
    refuses(&env.snap(["commit", "-q"]), 1, &["is read-only"]);
    env.set("SUDO_UID", "4321");
    env.snap(["commit", "-q"]).succeeds();
}

#[test]
fn another_user_cannot_lure_a_commit_into_a_planted_store() {
    if !needs_root() {
        return;
    }
    let env = TestEnv::new();
    env.mode("", 0o1777);
    env.write("mine/secret", "key");
    give(&env.path("mine"), OTHER);
    // Plants an empty `.snap` for the victim to complete, or a link to another place.
    for plant in [true, false] {
        let planted = env.path(".snap");
        match plant {
            true => fs_err::create_dir(&planted).unwrap(),
            false => fs_err::os::unix::fs::symlink(env.path("elsewhere"), &planted).unwrap(),
        }
        fs_err::create_dir_all(env.path("elsewhere")).unwrap();
        give(&planted, OTHER + 1);
        let mut command = env.command("mine");
        command.args(["commit", "-q"]).uid(OTHER).gid(OTHER);
        command.env("XDG_STATE_HOME", env.path("mine"));
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let told = match plant {
            true => "belongs to the user with id 4322",
            false => ".snap is a symbolic link; ",
        };
        assert!(stderr.contains(told), "{stderr}");
        match plant {
            true => fs_err::remove_dir_all(&planted).unwrap(),
            false => fs_err::remove_file(&planted).unwrap(),
        }
    }
}

#[test]
fn a_store_that_other_users_may_write_to_is_refused_unless_it_is_shared() {
    let env = project();
    env.mode(".snap", 0o777);
    insta::assert_snapshot!(env.snap(["commit"]), @"
    exit: 1
    --- stderr ---
    error: the store at [ROOT]/.snap is read-only: every user may write to [ROOT]/.snap (mode 0777)
    hint: `chmod o-w [ROOT]/.snap` removes the write permission of others
    hint: `snap config trust [ROOT]/.snap` trusts it
    hint: `--store [ROOT]/.snap` or SNAP_TRUST=[ROOT]/.snap trusts it once, for a container or a pipeline
    ");
    env.mode(".snap", 0o770);
    let group = env.snap(["commit", "-q"]);
    refuses(&group, 1, &["the store is not shared", "chmod -R g-w", "config set shared true"]);
    env.snap(["--store", ".snap", "config", "set", "shared", "true"]).succeeds();
    env.snap(["commit", "-q"]).succeeds();
    env.mode(".snap", 0o700);
    env.mode("", 0o777);
    refuses(&env.snap(["commit", "-q"]), 1, &["every user may write to", "chmod o-w"]);
    env.mode("", 0o1777);
    env.snap(["commit", "-q"]).succeeds();
}

/// Makes a store with a hook that came from elsewhere: no trust is recorded for it.
fn unpacked(settings: &str) -> TestEnv {
    let env = project();
    let text = env.read(".snap/config.toml");
    env.write(".snap/config.toml", format!("{text}\n{settings}"));
    env
}

#[test]
fn a_hook_counts_only_when_the_user_has_seen_it() {
    let env = unpacked("[hooks]\npre_commit = 'touch ran'\n");
    insta::assert_snapshot!(env.snap(["commit"]), @"
    exit: 2
    --- stderr ---
    error: [ROOT]/.snap/config.toml:31: `pre_commit` is not used: you do not trust the settings of this store, or they changed since
    hint: `snap config trust [ROOT]/.snap` shows these settings and trusts them
    hint: --no-hooks commits without hooks
    ");
    assert!(!env.path("ran").exists());
    env.snap(["commit", "-q", "--no-hooks"]).succeeds();
    insta::assert_snapshot!(env.snap(["config", "trust"]), @r#"
    exit: 0
    --- stdout ---
    hooks.pre_commit = "touch ran"
    --- stderr ---
    Trusted the store at [ROOT]/.snap: 1 setting of its file
    "#);
    env.snap(["commit", "-q"]).succeeds();
    assert!(env.path("ran").exists());

    // A change by another user is not trusted.
    fs_err::remove_file(env.path("ran")).unwrap();
    let text = env.read(".snap/config.toml").replace("touch ran", "touch ran; true");
    env.write(".snap/config.toml", &text);
    refuses(&env.snap(["commit"]), 2, &["or they changed since"]);
    // It does not become trusted when the user changes another setting.
    env.snap(["config", "set", "commit.host", "h"]).succeeds();
    env.snap(["config", "set", "hooks.post_commit", "true"]).succeeds();
    refuses(&env.snap(["commit"]), 2, &["`pre_commit` is not used"]);
    env.snap(["config", "unset", "hooks.pre_commit"]).succeeds();
    refuses(&env.snap(["commit"]), 2, &["`post_commit` is not used"]);
    assert!(!env.path("ran").exists());
}

#[test]
fn a_change_by_the_user_keeps_the_store_trusted() {
    let env = project();
    env.snap(["config", "set", "hooks.pre_commit", "touch ran"]).succeeds();
    env.snap(["commit", "-q"]).succeeds();
    fs_err::remove_file(env.path("ran")).unwrap();
    env.snap(["remote", "add", "origin", "file:///nowhere"]).succeeds();
    env.snap(["config", "set", "hooks.pre_commit", "touch ran; touch again"]).succeeds();
    env.snap(["commit", "-q"]).succeeds();
    assert!(env.path("again").exists());
    let list = env.snap(["config", "list", "--origin"]).succeeds().stdout;
    assert!(list.contains("(trusted)") && !list.contains("(not trusted)"), "{list}");
}

#[test]
fn a_copy_and_a_store_that_was_moved_ask_again() {
    let env = project();
    env.snap(["config", "set", "hooks.pre_commit", "touch ran"]).succeeds();
    fs_err::create_dir(env.path("moved")).unwrap();
    fs_err::rename(env.path(".snap"), env.path("moved/.snap")).unwrap();
    refuses(&env.snap_in("moved", ["commit"]), 2, &["is not used", "snap config trust"]);
    let list = env.snap_in("moved", ["config", "list", "--origin"]).succeeds().stdout;
    assert!(list.contains("config.toml:31 (not trusted)"), "{list}");
    let json = env.snap_in("moved", ["--json", "config", "get", "hooks.pre_commit"]).json();
    assert_eq!(json[0]["origin"]["trusted"], false);
    fs_err::rename(env.path("moved/.snap"), env.path(".snap")).unwrap();
    env.snap(["commit", "-q"]).succeeds();
}

#[test]
fn an_untrusted_store_neither_turns_off_nor_weakens_a_hook_of_the_user() {
    for settings in ["[hooks]\npre_commit = ''\n", "[hooks]\non_failure = 'report'\n"] {
        let mut env = unpacked(settings);
        env.set("SNAP_CONFIG", env.path("user.toml").to_str().unwrap());
        env.snap(["config", "set", "--user", "hooks.pre_commit", "false"]).succeeds();
        refuses(&env.snap(["commit"]), 2, &["is not used"]);
    }
}

#[test]
fn a_profile_counts_only_when_the_user_has_seen_it() {
    let env = unpacked("[profile.theirs]\npaths = ['/etc/hostname']\n");
    insta::assert_snapshot!(env.snap(["commit", "--profile", "theirs"]), @"
    exit: 2
    --- stderr ---
    error: [ROOT]/.snap/config.toml:31: profile `theirs` is not used: you do not trust the settings of this store, or they changed since
    hint: `snap config trust [ROOT]/.snap` shows these settings and trusts them
    ");
    env.snap(["config", "trust"]).succeeds();
    env.snap(["commit", "-q", "--profile", "theirs", "--branch", "other"]).succeeds();
}

#[test]
fn commands_are_shown_without_what_a_terminal_would_obey() {
    let env = unpacked("[hooks]\npre_commit = \"evil \\u001b[2K\\u202e #\"\n");
    let shown = env.snap(["config", "trust"]).succeeds().stdout;
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    assert!(shown.contains("evil"), "{shown:?}");
}

#[test]
fn an_untrusted_remote_is_asked_without_keys_and_runs_nothing() {
    let mut env = unpacked("");
    let remote = format!("file://{}", env.path("remote").display());
    let text = env.read(".snap/config.toml");
    env.write(".snap/config.toml", format!("{text}\n[remote.origin]\nurl = '{remote}'\n"));
    for command in ["push", "pull"] {
        let told = ["the default remote origin is not used", "or name the remote"];
        refuses(&env.snap([command]), 1, &told);
    }
    assert!(!env.path("remote").exists());
    env.snap(["push", "origin"]).succeeds();
    env.set("SNAP_REMOTE_SECRET", "hunter2");
    insta::assert_snapshot!(env.snap(["push", "origin"]), @"
    exit: 1
    --- stderr ---
    error: no credentials are sent to origin: only the settings of this store, which are not trusted, name it
    hint: `snap config trust [ROOT]/.snap` shows these settings and trusts them
    hint: or pass the URL instead of the name of the remote
    ");
    // The push works if the user names the location, or trusts the file that does.
    env.snap(["push", &remote]).succeeds();
    env.snap(["config", "trust"]).succeeds();
    env.snap(["push"]).succeeds();

    let command = format!("touch {}", env.path("ran").display());
    let more =
        format!("{text}\n[remote.origin]\nurl = '{remote}'\ncredentials_command = '{command}'\n");
    env.write(".snap/config.toml", more);
    for args in [&["push"][..], &["pull"], &["remote", "check"], &["remote", "show"]] {
        refuses(&env.snap(args), 2, &["`credentials_command` of remote `origin` is not used"]);
    }
    assert!(!env.path("ran").exists());
    // Reading the location is harmless.
    assert!(env.snap(["remote"]).succeeds().stdout.contains("file://"));
}

#[test]
fn keys_of_the_users_own_file_do_not_go_where_an_untrusted_store_says() {
    let mut env = unpacked("");
    env.set("SNAP_CONFIG", env.path("user.toml").to_str().unwrap());
    let ran = env.path("ran");
    let command = format!("touch {}; echo secret = hunter2", ran.display());
    env.write(
        "user.toml",
        format!(
            "[remote.origin]\nurl = 'http://good.example'\ncredentials_command = '{command}'\n"
        ),
    );
    let text = env.read(".snap/config.toml");
    env.write(
        ".snap/config.toml",
        format!("{text}\n[remote.origin]\nurl = 'http://127.0.0.1:9/evil'\n"),
    );
    let commands: [&[&str]; 4] = [
        &["push", "origin"],
        &["pull", "origin"],
        &["remote", "check", "origin"],
        &["log", "origin#main"],
    ];
    for args in commands {
        refuses(&env.snap(args), 1, &["no credentials are sent to origin"]);
    }
    assert!(!ran.exists());
}

/// A store of another user may contain pipes and devices in place of files.
#[test]
fn no_command_waits_for_a_pipe_in_a_store_or_reads_without_end() {
    let env = TestEnv::new();
    env.write("a.txt", "one");
    env.snap(["commit"]).succeeds();
    env.snap(["status"]).succeeds();
    let whole = env.path("whole");
    fs_err::rename(env.path(".snap"), &whole).unwrap();
    let files = |folder: &'static str| {
        let entries = fs_err::read_dir(whole.join(folder)).unwrap();
        entries.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().display()))
    };
    let mut parts: Vec<String> =
        ["HEAD", "base", "scope", "shadow", "refs/heads/main", "logs/refs/heads/main.log"]
            .map(str::to_owned)
            .into();
    parts.extend(files("cache").chain(files("index")));
    for part in parts {
        for kind in ["pipe", "zeros"] {
            let mut copy = Command::new("cp");
            let copied = copy.arg("-a").arg(&whole).arg(env.path(".snap")).status().unwrap();
            assert!(copied.success());
            let path = env.path(".snap").join(&part);
            let _ = fs_err::remove_file(&path);
            match kind {
                "pipe" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                _ => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
            }
            for args in [&["status"][..], &["log", "--all"], &["undo", "-n"], &["commit"]] {
                let mut command = env.command_of("", "timeout");
                let snap = env.command("").get_program().to_owned();
                command.args(["-s", "KILL", "20"]).arg(snap).args(args);
                let output = command.output().unwrap();
                let told = String::from_utf8_lossy(&output.stderr);
                let code = output.status.code();
                assert!(
                    code.is_some_and(|code| code < 5),
                    "{kind} {part} {args:?}: {code:?} {told}"
                );
            }
            fs_err::remove_dir_all(env.path(".snap")).unwrap();
        }
    }
}

#[test]
fn without_a_home_folder_the_environment_says_what_is_trusted() {
    let mut env = unpacked("[hooks]\npre_commit = 'touch ran'\n");
    env.set("XDG_STATE_HOME", "");
    refuses(&env.snap(["commit"]), 2, &["is not used"]);
    refuses(&env.snap(["config", "trust"]), 1, &["SNAP_TRUST"]);
    let root = env.path("").to_str().unwrap().to_owned();
    env.set("SNAP_TRUST", &root);
    env.snap(["commit", "-q"]).succeeds();
    assert!(env.path("ran").exists());
}

#[test]
fn without_a_home_folder_the_hint_names_the_environment() {
    let mut env = unpacked("");
    let remote = format!("file://{}", env.path("remote").display());
    let text = env.read(".snap/config.toml");
    env.write(".snap/config.toml", format!("{text}\n[remote.origin]\nurl = '{remote}'\n"));
    env.set("XDG_STATE_HOME", "");
    let store = env.path(".snap").display().to_string();
    insta::assert_snapshot!(env.snap(["--store", &store, "push"]), @"
    exit: 1
    --- stderr ---
    error: the default remote origin is not used: only the settings of this store, which are not trusted, name it
    hint: set HOME: snap records below it which settings you trust
    hint: SNAP_TRUST=[ROOT]/.snap trusts them without a record
    hint: or name the remote in the command
    ");
    env.set("SNAP_TRUST", &store);
    env.snap(["--store", &store, "push", "-q"]).succeeds();
    assert!(env.path("remote/refs/heads/main").exists());
}

#[test]
fn what_is_trusted_is_recorded_where_no_other_user_reads() {
    use std::os::unix::fs::MetadataExt;

    let mut env = unpacked("[hooks]\npre_commit = 'true'\n");
    let state = env.path("state");
    env.set("XDG_STATE_HOME", state.to_str().unwrap());
    env.snap(["config", "trust"]).succeeds();
    let mode = |path: &Path| fs_err::metadata(path).unwrap().mode() & 0o777;
    let folder = state.join("snap/trust");
    assert_eq!((mode(&state.join("snap")), mode(&folder)), (0o700, 0o700));
    let record = fs_err::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    assert_eq!(mode(&record), 0o600);
    if rustix::process::geteuid().is_root() {
        // A record that another user owns, for example because sudo kept HOME, is ignored.
        give(&record, OTHER);
        refuses(&env.snap(["commit"]), 2, &["is not used"]);
    }
}

#[test]
fn a_folder_with_settings_and_no_objects_is_no_store_whatever_is_trusted() {
    let mut env = TestEnv::new();
    let settings = "version = 5\n[hooks]\npre_commit = \"touch ../ran\"\n";
    env.write("other/.snap/config.toml", settings);
    env.write("other/.snap/HEAD", "ref: refs/heads/main\n");
    let trusted = env.path("other/.snap").to_str().unwrap().to_owned();
    env.set("SNAP_TRUST", &trusted);
    for command in ["commit", "status", "log"] {
        let refused = env.snap_in("other", [command]);
        assert_eq!(refused.code, Some(4), "{command}: {}", refused.stderr);
        assert!(refused.stderr.contains("has no folder `objects`"), "{}", refused.stderr);
    }
    assert!(!env.path("ran").exists());
}

#[test]
fn a_store_that_lost_its_folder_of_objects_gets_them_back_as_the_hint_says() {
    let env = TestEnv::new();
    env.write("work/f", "1");
    env.snap_in("work", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "work", "copy"]).succeeds();
    let objects = env.path("copy/.snap/objects");
    fs_err::remove_dir_all(&objects).unwrap();
    let refused = env.snap_in("copy", ["status"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains(".snap/objects`, then `snap repair`"), "{}", refused.stderr);
    fs_err::create_dir(&objects).unwrap();
    env.snap_in("copy", ["repair", "--data"]).succeeds();
    env.snap_in("copy", ["verify", "--data"]).succeeds();
}

#[test]
fn no_way_out_of_a_store_makes_what_commands_take_for_a_store() {
    let env = TestEnv::new();
    env.write("victim/v", "v");
    env.snap_in("victim", ["commit", "-q"]).succeeds();
    env.write("other/settings/.snap/config.toml", "version = 5\n");
    env.write("other/link/f", "f");
    let link = env.path("other/link/.snap");
    std::os::unix::fs::symlink("../../victim/.snap", &link).unwrap();
    env.write("other/nowhere/f", "f");
    std::os::unix::fs::symlink("../../later/.snap", env.path("other/nowhere/.snap")).unwrap();
    env.snap(["--store", "store", "init", "-q"]).succeeds();
    // The commit excludes links that lead to a store; on another machine they lead nowhere.
    fs_err::rename(env.path("victim"), env.path("away")).unwrap();
    env.snap(["--store", "store", "commit", "-q", "other"]).succeeds();
    fs_err::rename(env.path("away"), env.path("victim")).unwrap();
    let left_out = ["link/.snap", "nowhere/.snap", "settings/.snap"];
    // Each way out of a store.
    let store = "--store=store";
    let ways: [(&str, &[&str]); 8] = [
        ("", &[store, "restore", "latest", "restored"]),
        ("", &[store, "restore", "latest:link/.snap", "restored/link"]),
        ("", &["clone", "store", "cloned"]),
        ("", &["restore", "bundle.snap", "from-bundle"]),
        ("", &["restore", "archive.snap", "from-archive"]),
        ("unpacked", &["restore", "latest", "files"]),
        ("", &[store, "export", "latest", "-o", "x.tar"]),
        ("", &[store, "export", "latest", "-o", "x.zip"]),
    ];
    env.snap([store, "pack", "latest", "-o", "bundle.snap"]).succeeds();
    fs_err::rename(env.path("victim"), env.path("away")).unwrap();
    env.snap(["archive", "other", "-o", "archive.snap"]).succeeds();
    fs_err::rename(env.path("away"), env.path("victim")).unwrap();
    fs_err::create_dir(env.path("unpacked")).unwrap();
    env.snap_in("unpacked", ["unpack", "../bundle.snap"]).succeeds();
    for (folder, command) in ways {
        let ran = env.snap_in(folder, command);
        assert_eq!(ran.code, Some(3), "{command:?}: {}", ran.stderr);
        let told = |path: &&str| ran.stderr.contains(&format!("skipped `{path}`"));
        let all = left_out.iter().all(told);
        assert!(all || command.contains(&"latest:link/.snap"), "{command:?}: {}", ran.stderr);
    }
    for folder in ["restored", "cloned", "from-bundle", "from-archive", "unpacked/files"] {
        for path in left_out {
            let path = env.path(folder).join(path);
            assert!(path.symlink_metadata().is_err(), "{}", path.display());
        }
        assert_eq!(env.read(&format!("{folder}/nowhere/f")), "f");
    }
    for archive in ["x.tar", "x.zip"] {
        let bytes = fs_err::read(env.path(archive)).unwrap();
        let has = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
        assert!(has(b"nowhere/f") && !has(b".snap"), "{archive}");
    }
}
