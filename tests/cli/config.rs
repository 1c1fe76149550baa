//! `snap config`: layers, origins, and edits that leave the rest of a file unchanged.

use std::process::Stdio;

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    env
}

/// Makes an environment with the user's settings file `user.toml`.
fn with_user_file() -> TestEnv {
    let mut env = env();
    let file = env.path("user.toml");
    env.set("SNAP_CONFIG", file.to_str().unwrap());
    env
}

#[test]
fn settings_are_listed_set_and_read() {
    let env = env();
    insta::assert_snapshot!(env.snap(["config", "list"]), @r#"
    exit: 0
    --- stdout ---
    version = 5
    jobs = 1
    compression.level = 3
    commit.author = "ann"
    commit.host = "box"
    commit.exclude = []
    commit.iexclude = []
    commit.exclude_if_present = []
    commit.exclude_caches = false
    commit.gitignore = false
    commit.git = false
    pull.update = false
    ui.color = "auto"
    keep.label = []
    gc.undo = "7d"
    gc.grace = "1d"
    price.currency = "USD"
    price.writes = 0.005
    price.reads = 0.0004
    price.sent = 0.0
    price.received = 0.09
    "#);
    env.snap(["config", "set", "commit.exclude", r#"["*.o"]"#]).succeeds();
    insta::assert_snapshot!(env.snap(["config", "get", "commit.author"]), @r"
    exit: 0
    --- stdout ---
    ann
    ");
    insta::assert_snapshot!(env.snap(["config", "get", "commit.exclude", "--json"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"setting","key":"commit.exclude","description":"patterns to exclude, as in `.gitignore`; `--exclude` adds to them","value":["*.o"],"origin":{"layer":"store","path":"[ROOT]/.snap/config.toml","line":18}}
    "#);
    insta::assert_snapshot!(env.snap(["config", "get", "hooks.pre_commit"]), @"exit: 0");
    assert!(env.read(".snap/config.toml").contains("# zstd level"));
}

#[test]
fn the_origin_of_each_value_is_told() {
    let mut env = with_user_file();
    env.write(
        "user.toml",
        "[ui]\ncolor = 'never'\n\n[commit]\nexclude = [\n  '*.o',\n]\n\
         [profile.home]\npaths = ['~/docs']\nlabels.set = 'home'\n",
    );
    env.snap(["config", "set", "compression.level", "9"]).succeeds();
    env.snap(["config", "set", "profile.home.message", "by \"night\"\n"]).succeeds();
    env.set("SNAP_COMMIT_GITIGNORE", "true");
    env.set("SNAP_COMMIT_AUTHOR", "bob");
    insta::assert_snapshot!(env.snap(["config", "list", "--origin", "--color=always"]), @r#"
    exit: 0
    --- stdout ---
    version = 5  # [ROOT]/.snap/config.toml:5
    jobs = 1  # SNAP_JOBS
    compression.level = 9  # [ROOT]/.snap/config.toml:9
    commit.author = "ann"  # SNAP_AUTHOR
    commit.host = "box"  # SNAP_HOST
    commit.exclude = ["*.o"]  # [ROOT]/user.toml:5
    commit.iexclude = []  # built-in
    commit.exclude_if_present = []  # built-in
    commit.exclude_caches = false  # built-in
    commit.gitignore = true  # SNAP_COMMIT_GITIGNORE
    commit.git = false  # built-in
    pull.update = false  # built-in
    ui.color = "always"  # --color
    keep.label = []  # built-in
    gc.undo = "7d"  # built-in
    gc.grace = "1d"  # built-in
    price.currency = "USD"  # built-in
    price.writes = 0.005  # built-in
    price.reads = 0.0004  # built-in
    price.sent = 0.0  # built-in
    price.received = 0.09  # built-in
    profile.home.labels.set = "home"  # [ROOT]/user.toml:10
    profile.home.message = "by \"night\"\n"  # [ROOT]/.snap/config.toml:31 (trusted)
    profile.home.paths = ["~/docs"]  # [ROOT]/user.toml:9
    "#);
    insta::assert_snapshot!(env.snap(["config", "get", "ui.color", "--origin"]), @r"
    exit: 0
    --- stdout ---
    never  # [ROOT]/user.toml:2
    ");
    let json = env.snap(["--json", "config", "list"]).succeeds().json();
    let origin =
        |key: &str| json.iter().find(|line| line["key"] == key).unwrap()["origin"].to_string();
    assert_eq!(origin("commit.author"), r#"{"layer":"variable","name":"SNAP_AUTHOR"}"#);
    assert_eq!(origin("commit.exclude_caches"), r#"{"layer":"built-in"}"#);
    assert_eq!(origin("hooks.pre_commit"), "null");
    assert!(origin("ui.color").starts_with(r#"{"layer":"user","path":"/"#));
}

#[test]
fn each_layer_wins_over_those_below() {
    let mut env = with_user_file();
    env.set("SNAP_AUTHOR", "");
    env.set("USER", "login");
    env.write("a", "1");
    let author = |env: &TestEnv, args: &[&str]| {
        let made = env.snap(["commit", "--allow-empty", "--json"].iter().chain(args)).succeeds();
        made.json()[0]["author"].as_str().unwrap().to_owned()
    };
    assert_eq!(author(&env, &[]), "login");
    env.snap(["config", "set", "--user", "commit.author", "of the user"]).succeeds();
    assert_eq!(author(&env, &[]), "of the user");
    env.snap(["config", "set", "commit.author", "of the store"]).succeeds();
    assert_eq!(author(&env, &[]), "of the store");
    env.set("SNAP_COMMIT_AUTHOR", "of the environment");
    assert_eq!(author(&env, &[]), "of the environment");
    env.set("SNAP_AUTHOR", "of the environment, in short");
    assert_eq!(author(&env, &[]), "of the environment, in short");
    assert_eq!(author(&env, &["--author", "of the option"]), "of the option");
}

#[test]
fn settings_of_the_user_count_in_every_store() {
    let env = with_user_file();
    env.write("user.toml", "[commit]\nexclude = ['*.o']\nexclude_caches = true\n");
    env.write("p/a.o", "1");
    env.write("p/b", "2");
    env.snap_in("p", ["commit"]).succeeds();
    assert_eq!(env.snap(["ls", "HEAD:p"]).succeeds().stdout, "b\n");
    // A list in a higher layer replaces the list of a lower one.
    env.snap_in("p", ["config", "set", "commit.exclude", "b"]).succeeds();
    env.snap_in("p", ["commit"]).succeeds();
    assert_eq!(env.snap(["ls", "HEAD:p"]).succeeds().stdout, "a.o\n");
}

#[test]
fn the_sizes_of_chunks_cannot_be_set() {
    let env = with_user_file();
    env.write("user.toml", "[chunk]\nmin = 8192\n");
    insta::assert_snapshot!(env.snap(["init", "newer"]), @"
    exit: 2
    --- stderr ---
    error: [ROOT]/user.toml:1: `chunk` cannot be set: all stores cut large files in the same way
    hint: correct that line of the file
    hint: SNAP_CONFIG= ignores the file
    ");
    assert!(!env.path("newer").exists());
}

#[test]
fn the_users_file_is_made_where_it_belongs() {
    let mut env = TestEnv::new();
    let home = env.path("home");
    env.set("HOME", home.to_str().unwrap());
    insta::assert_snapshot!(env.snap(["config", "set", "--user", "ui.color", "never"]), @r"
    exit: 0
    --- stderr ---
    Set ui.color in [ROOT]/home/.config/snap/config.toml
    ");
    assert_eq!(env.read("home/.config/snap/config.toml"), "[ui]\ncolor = \"never\"\n");
    assert_eq!(env.snap(["config", "get", "ui.color"]).line(), "never");
    let elsewhere = env.path("xdg");
    env.set("XDG_CONFIG_HOME", elsewhere.to_str().unwrap());
    assert_eq!(env.snap(["config", "get", "ui.color"]).line(), "auto");
    env.snap(["config", "set", "--user", "ui.color", "always"]).succeeds();
    assert!(env.path("xdg/snap/config.toml").is_file());
    // A settings file may be a symbolic link to another place; the link is kept.
    env.write("dot/snap.toml", "# mine\n");
    fs_err::remove_file(env.path("xdg/snap/config.toml")).unwrap();
    let link = env.path("xdg/snap/config.toml");
    fs_err::os::unix::fs::symlink(env.path("dot/snap.toml"), &link).unwrap();
    env.snap(["config", "set", "--user", "ui.color", "auto"]).succeeds();
    assert!(link.is_symlink());
    assert_eq!(env.read("dot/snap.toml"), "# mine\n\n[ui]\ncolor = \"auto\"\n");
    env.set("SNAP_CONFIG", "");
    insta::assert_snapshot!(env.snap(["config", "set", "--user", "ui.color", "never"]), @"
    exit: 1
    --- stderr ---
    error: no file is configured for the user's settings
    hint: set SNAP_CONFIG to a file
    hint: set HOME to a folder
    ");
    env.set("SNAP_CONFIG", home.to_str().unwrap());
    insta::assert_snapshot!(env.snap(["config", "list"]), @r"
    exit: 1
    --- stderr ---
    error: cannot read [ROOT]/home
      caused by: Is a directory (os error 21)
    ");
}

#[test]
fn comments_and_order_of_a_file_stay() {
    let env = with_user_file();
    let text = "# my settings\n\n[commit] # for commits\n# who I am\nauthor = 'Ann'   # me\n\n\
                [compression]\nlevel = 3\n";
    env.write("user.toml", text);
    env.mode("user.toml", 0o600);
    env.snap(["config", "set", "--user", "commit.author", "Bob"]).succeeds();
    let changed = text.replace("'Ann'", "\"Bob\"");
    assert_eq!(env.read("user.toml"), changed);
    env.snap(["config", "unset", "--user", "compression.level"]).succeeds();
    assert_eq!(env.read("user.toml"), changed.replace("level = 3\n", ""));
    let mode = std::os::unix::fs::PermissionsExt::mode;
    assert_eq!(
        mode(&fs_err::metadata(env.path("user.toml")).unwrap().permissions()) & 0o777,
        0o600
    );
    insta::assert_snapshot!(env.snap(["config", "unset", "--user", "compression.level"]), @r"
    exit: 0
    --- stderr ---
    [ROOT]/user.toml does not set compression.level
    ");
}

#[test]
fn changes_have_a_record_of_their_own() {
    let env = env();
    insta::assert_snapshot!(env.snap(["config", "set", "commit.exclude", "*.o", "--json"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"setting-changed","action":"set","key":"commit.exclude","value":["*.o"],"path":"[ROOT]/.snap/config.toml"}
    --- stderr ---
    {"version":1,"type":"message","message":"Set commit.exclude in [ROOT]/.snap/config.toml"}
    "#);
    insta::assert_snapshot!(env.snap(["config", "unset", "commit.exclude", "--json", "-q"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"setting-changed","action":"unset","key":"commit.exclude","value":null,"path":"[ROOT]/.snap/config.toml"}
    "#);
}

#[test]
fn a_value_that_does_not_fit_changes_nothing() {
    let env = env();
    let before = env.read(".snap/config.toml");
    insta::assert_snapshot!(env.snap(["config", "set", "compression.level", "99"]), @r"
    exit: 2
    --- stderr ---
    error: `compression.level` is 99, but must be a number from 1 to 19
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "compression.level", "high"]), @r"
    exit: 2
    --- stderr ---
    error: `compression.level` is high, but must be a number from 1 to 19
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "chunk.average", "1000000"]), @r"
    exit: 2
    --- stderr ---
    error: `chunk.average` cannot be set: all stores cut large files in the same way
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "colour", "red"]), @r"
    exit: 2
    --- stderr ---
    error: `colour` is not a setting
    hint: `snap config list` lists the settings
    ");
    insta::assert_snapshot!(env.snap(["config", "get", "commit.authr"]), @r"
    exit: 2
    --- stderr ---
    error: `commit.authr` is not a setting
    hint: did you mean `commit.author`?
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "version", "6"]), @"
    exit: 2
    --- stderr ---
    error: `version` is the format version of the store and cannot be set
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "ui.color", "never"]), @r"
    exit: 2
    --- stderr ---
    error: `ui.color` is not allowed here: it belongs in the user's file
    hint: `snap config set --user KEY VALUE` writes to the user's file
    ");
    assert_eq!(env.read(".snap/config.toml"), before);
}

#[test]
fn ages_times_sizes_and_rates_are_checked_when_they_are_set() {
    let env = with_user_file();
    let before = env.read(".snap/config.toml");
    insta::assert_snapshot!(env.snap(["config", "set", "keep.within", "30x"]), @"
    exit: 2
    --- stderr ---
    error: `keep.within` is 30x, but must be an age such as 12h, 30d, 8w, 12m (months) or 1y5m7d; minutes and seconds are too short
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "gc.undo", "30m"]), @"
    exit: 2
    --- stderr ---
    error: `gc.undo` is 30m, but must be a time such as 36h, 7d or 2w; `m` could be minutes or months: write 2h for 120 minutes, or 60d for 2 months
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "keep.under", "5Q"]), @"
    exit: 2
    --- stderr ---
    error: `keep.under` is 5Q, but must be a size such as 4096, 10MB or 1.5GiB
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "transfer.limit_upload", "0"]), @"
    exit: 2
    --- stderr ---
    error: `transfer.limit_upload` is 0, but must be bytes per second, more than 0, such as 500K, 2M or 1.5MiB
    ");
    for (key, value) in [
        ("keep.within_hourly", "90s"),
        ("keep.within_daily", "6mo"),
        ("keep.within_weekly", "1.5d"),
        ("keep.within_monthly", "30"),
        ("keep.within_yearly", "''"),
        ("gc.undo", "1y"),
        ("gc.grace", "2m"),
        ("transfer.limit_download", "fast"),
    ] {
        let refused = env.snap(["config", "set", key, value]);
        assert_eq!(refused.code, Some(2), "{key}: {refused}");
        let refused = env.snap(["config", "set", "--user", key, value]);
        assert_eq!(refused.code, Some(2), "{key}: {refused}");
    }
    assert_eq!(env.read(".snap/config.toml"), before);
    for (key, value) in [
        ("keep.within", "1y5m7d"),
        ("gc.undo", "36h"),
        ("keep.under", "500GB"),
        ("transfer.limit_upload", "'1.5MiB/s'"),
    ] {
        env.snap(["config", "set", key, value]).succeeds();
    }
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_line() {
    let env = with_user_file();
    env.write(".snap/config.toml", "version = 5\n[commit]\nauthr = 'ann'\n");
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 2
    --- stderr ---
    error: [ROOT]/.snap/config.toml:3: `commit.authr` is not a setting
    hint: did you mean `commit.author`?
    ");
    env.write("user.toml", "[commit]\n\nexclude = '*.o'\n");
    insta::assert_snapshot!(env.snap(["log"]), @"
    exit: 2
    --- stderr ---
    error: [ROOT]/user.toml:3: `commit.exclude` is '*.o', but must be a list of strings
    hint: correct that line of the file
    hint: SNAP_CONFIG= ignores the file
    ");
    env.write("user.toml", b"[commit]\n# \xff\n");
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 2
    --- stderr ---
    error: [ROOT]/user.toml:2: the text is not UTF-8
    hint: correct that line of the file
    ");
    env.write("user.toml", "# much\n".repeat(200_000));
    insta::assert_snapshot!(env.snap(["log"]), @"
    exit: 2
    --- stderr ---
    error: [ROOT]/user.toml has more than 1048576 bytes
    hint: settings files have a few lines; check whether this is one
    ");
    env.write("user.toml", "[profile.home]\npath = ['~/docs']\n");
    insta::assert_snapshot!(env.snap(["commit", "--profile", "home"]), @r"
    exit: 2
    --- stderr ---
    error: [ROOT]/user.toml:2: `profile.home.path` is not a setting
    hint: did you mean `profile.home.paths`, `profile.home.branch`, `profile.home.store`?
    ");
    fs_err::remove_file(env.path("user.toml")).unwrap();
    env.write(".snap/config.toml", "version = 5\n[compression]\nlevel = 99\n");
    insta::assert_snapshot!(env.snap(["log"]), @"
    exit: 2
    --- stderr ---
    error: [ROOT]/.snap/config.toml:3: `compression.level` is 99, but must be a number from 1 to 19
    hint: correct that line of the file
    hint: or remove the file; `snap repair` then recreates it with default settings
    ");
    env.write("user.toml", "[commit\n");
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 2
    --- stderr ---
    error: [ROOT]/user.toml:1: unclosed table, expected `]`
    hint: correct that line of the file
    ");
}

#[test]
fn a_value_that_does_not_fit_in_the_environment_is_named() {
    let mut env = env();
    env.set("SNAP_COMPRESSION_LEVEL", "0");
    insta::assert_snapshot!(env.snap(["config", "list"]), @r"
    exit: 2
    --- stderr ---
    error: SNAP_COMPRESSION_LEVEL: `compression.level` is 0, but must be a number from 1 to 19
    ");
}

/// All variables that snapd and its helpers set in a terminal inside a snap package.
const OF_SNAPD: [&str; 22] = [
    "SNAP",
    "SNAP_ARCH",
    "SNAP_COMMON",
    "SNAP_CONTEXT",
    "SNAP_COOKIE",
    "SNAP_DATA",
    "SNAP_DESKTOP_RUNTIME",
    "SNAP_EUID",
    "SNAP_INSTANCE_KEY",
    "SNAP_INSTANCE_NAME",
    "SNAP_LAUNCHER_ARCH_TRIPLET",
    "SNAP_LIBRARY_PATH",
    "SNAP_MOUNT_DIR",
    "SNAP_NAME",
    "SNAP_REAL_HOME",
    "SNAP_REEXEC",
    "SNAP_REVISION",
    "SNAP_SAVE_DATA",
    "SNAP_UID",
    "SNAP_USER_COMMON",
    "SNAP_USER_DATA",
    "SNAP_VERSION",
];

#[test]
fn variables_of_other_programs_are_ignored() {
    let mut env = env();
    let before = env.snap(["config", "list", "--origin"]).succeeds().stdout;
    let kubernetes = ["SNAP_REMOTE_SERVICE_HOST", "SNAP_REMOTE_PORT", "SNAP_COMMIT_SERVICE_PORT"];
    let no_variables = ["SNAP_CHUNK_MIN", "SNAP_COMMIT_EXLUDE"];
    for name in OF_SNAPD.iter().chain(&kubernetes).chain(&no_variables) {
        env.set(name, "/snap/other/7");
    }
    let after = env.snap(["config", "list", "--origin"]).succeeds().stdout;
    assert_eq!(before, after);
    env.write("a", "1");
    env.snap(["commit"]).succeeds();
}

#[test]
fn a_list_in_a_variable_has_a_member_on_each_line() {
    let mut env = env();
    env.set("SNAP_COMMIT_EXCLUDE", "*.o\n[ab].c");
    assert_eq!(env.snap(["config", "get", "commit.exclude"]).line(), r#"["*.o", "[ab].c"]"#);
    env.set("SNAP_COMMIT_EXCLUDE", "['*.o']");
    assert_eq!(env.snap(["config", "get", "commit.exclude"]).line(), r#"["*.o"]"#);
}

#[test]
fn without_a_store_those_of_the_user_are_listed() {
    let env = TestEnv::new();
    let listed = env.snap(["config", "list"]).succeeds().stdout;
    assert!(listed.contains("compression.level = 3\n"), "{listed}");
    assert!(!listed.contains("version"), "{listed}");
    insta::assert_snapshot!(env.snap(["config", "set", "compression.level", "9"]), @"
    exit: 1
    --- stderr ---
    error: no store found in this folder or above
    hint: `snap commit` creates a store here
    hint: `snap init` creates an empty store
    hint: `snap --store STORE COMMAND` uses another store
    ");
}

/// Runs all commands at the same time; each must succeed.
fn at_once(env: &TestEnv, commands: &[Vec<String>]) {
    let running: Vec<_> = commands
        .iter()
        .map(|args| env.command("").args(args).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for (child, args) in running.into_iter().zip(commands) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn of_changes_at_once_none_is_lost() {
    const AT_ONCE: usize = 12;
    let mut env = with_user_file();
    fs_err::create_dir(env.path("settings")).unwrap();
    env.set("SNAP_CONFIG", env.path("settings/user.toml").to_str().unwrap());
    let args = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for user in ["", " --user"] {
        let mut commands = Vec::new();
        for n in 0..AT_ONCE {
            commands.push(args(format!("remote add r{n} file:///tmp/r{n}{user}")));
            commands.push(args(format!("config set profile.p{n}.message m{n}{user}")));
        }
        at_once(&env, &commands);
        let file = if user.is_empty() { ".snap/config.toml" } else { "settings/user.toml" };
        let text = env.read(file);
        for n in 0..AT_ONCE {
            assert!(text.contains(&format!("file:///tmp/r{n}\"")), "r{n} is lost: {text}");
            assert!(text.contains(&format!("\"m{n}\"")), "p{n} is lost: {text}");
        }
        // The user made all of these changes, so the settings are trusted.
        let origins = env.snap(["config", "list", "--origin"]).succeeds().stdout;
        assert!(!origins.contains("(not trusted)"), "{origins}");
        // Only one process can add a given name.
        let same: Vec<_> = (0..4)
            .map(|n| {
                env.command("").args(args(format!("remote add same file:///{n}{user}"))).spawn()
            })
            .collect();
        let same = same.into_iter().map(|child| child.unwrap().wait().unwrap().success());
        assert_eq!(same.filter(|is_added| *is_added).count(), 1);
        let commands: Vec<_> =
            (0..AT_ONCE).map(|n| args(format!("remote remove r{n}{user}"))).collect();
        at_once(&env, &commands);
        let text = env.read(file);
        assert!(!text.contains("[remote.r") && text.contains("remote.same"), "{text}");
        env.snap(args(format!("remote remove same{user}"))).succeeds();
    }
    assert_eq!(fs_err::read_dir(env.path("settings")).unwrap().count(), 1);
}

#[test]
fn settings_of_a_store_that_were_cut_are_damage_and_repair_leaves_them_to_the_user() {
    let env = env();
    env.write("a", "1");
    env.snap(["commit", "-q"]).succeeds();
    let cut = "version = 5\n\n[compression]\nlev";
    env.write(".snap/config.toml", cut);
    insta::assert_snapshot!(env.snap(["log"]), @"
    exit: 4
    --- stderr ---
    error: [ROOT]/.snap/config.toml is damaged: line 4: key with no value, expected `=`
    hint: correct that line of the file
    hint: or remove the file; `snap repair` then recreates it with default settings
    ");
    for args in [&["repair"][..], &["verify"], &["config", "set", "commit.host", "h"]] {
        let ran = env.snap(args);
        assert_eq!(ran.code, Some(4), "{ran}");
        assert!(ran.stderr.contains("config.toml is damaged"), "{ran}");
        assert!(ran.stderr.contains("remove the file; `snap repair` then recreates it"), "{ran}");
        assert_eq!(env.read(".snap/config.toml"), cut);
    }
    // Follows the hint.
    fs_err::remove_file(env.path(".snap/config.toml")).unwrap();
    env.snap(["repair"]).succeeds();
    env.snap(["log"]).succeeds();
}

#[test]
fn the_settings_without_a_value_are_listed_on_request() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    let listed = |args: &[&str]| {
        let args = [&["config", "list"], args].concat();
        env.snap(args).succeeds().stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (set, all) = (listed(&[]), listed(&["--all"]));
    assert!(!set.iter().any(|line| line.starts_with('#')), "{set:?}");
    assert_eq!(all[..set.len()], set);
    for (line, description) in [
        (
            "# hooks.on_failure is not set; expected: `stop` or `report`",
            "#   what to do if a hook fails; default: `pre_commit` stops and `post_commit` reports",
        ),
        (
            "# ui.pager is not set; expected: a command or false",
            "#   pager for long output; `false` for none",
        ),
        (
            "# remote.NAME.url is not set; expected: a text",
            "#   location, such as `s3://bucket/prefix`",
        ),
    ] {
        assert!(all.windows(2).any(|two| two == [line, description]), "{line}: {all:#?}");
    }
    let ran = env.snap(["config", "get", "pull.update", "--json"]).succeeds();
    let described = "`snap pull` also updates the files of the project, as with `--update`";
    assert_eq!(ran.json()[0]["description"], described);
    env.snap(["config", "set", "commit.author", "Ann"]).succeeds();
    let author = |lines: Vec<String>| lines.iter().filter(|l| l.contains("commit.author")).count();
    assert_eq!((author(listed(&[])), author(listed(&["--all"]))), (1, 1));
}

#[test]
fn a_store_from_before_the_first_release_is_refused() {
    let env = TestEnv::new();
    env.write("f", "1");
    env.snap(["commit", "-q"]).succeeds();
    let settings = env.read(".snap/config.toml");
    let old = settings.replace("\nversion = 5\n", "\nversion = 4\n");
    env.write(".snap/config.toml", &old);
    insta::assert_snapshot!(env.snap(["log"]), @"
    exit: 1
    --- stderr ---
    error: [ROOT]/.snap/config.toml has store version 4, from before the first release; this snap reads version 5
    hint: make a new store and commit again; the snap that made this store can restore from it
    ");
    for command in
        [&["commit"][..], &["init"], &["verify"], &["repair"], &["gc"], &["config", "list"]]
    {
        let refused = env.snap(command);
        assert!(refused.stderr.contains("from before the first release"), "{}", refused.stderr);
    }
    assert_eq!(env.read(".snap/config.toml"), old);
    // So is a remote.
    env.write(".snap/config.toml", &settings);
    env.snap(["push", "-q", "./there", "main"]).succeeds();
    let there = env.read("there/config.toml").replace("\nversion = 5\n", "\nversion = 4\n");
    env.write("there/config.toml", &there);
    insta::assert_snapshot!(env.snap(["clone", "./there", "here"]), @"
    exit: 1
    --- stderr ---
    error: the settings of the store at file://[ROOT]/there cannot be used
      caused by: config.toml has store version 4, from before the first release; this snap reads version 5
    hint: make a new store and commit again; the snap that made this store can restore from it
    ");
}
