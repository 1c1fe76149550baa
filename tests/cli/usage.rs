//! Behaviour of all commands: help, options, exit codes.

use crate::env::TestEnv;

#[test]
fn a_word_that_is_no_command_is_a_usage_error() {
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["comit", "-m", "x"]), @"
    exit: 2
    --- stderr ---
    error: snap has no command `comit`
    hint: did you mean `snap commit`?
    ");
    insta::assert_snapshot!(env.snap(["remote", "shwo", "--json"]), @r#"
    exit: 2
    --- stderr ---
    {"version":1,"type":"error","message":"snap remote has no command `shwo`","causes":[],"hints":["did you mean `snap remote show`?"],"exit":2,"code":"usage","retry":false}
    "#);
    // A hidden command is not proposed.
    insta::assert_snapshot!(env.snap(["__doc"]), @"
    exit: 2
    --- stderr ---
    error: snap has no command `__doc`
    hint: `snap --help` lists the commands
    ");
    assert_eq!(env.snap(["help", "comit"]).stderr, env.snap(["comit"]).stderr);
    insta::assert_snapshot!(env.snap(["-q"]), @"
    exit: 2
    --- stderr ---
    error: snap needs a command
    hint: `snap --help` lists the commands
    ");
}

#[test]
fn a_mistyped_option_or_value_is_answered_with_a_similar_one() {
    let env = TestEnv::new();
    for (line, message, hint) in [
        ("commit --mesage x", "snap commit has no option `--mesage`", "did you mean `--message`?"),
        (
            "remote add --optoin=x",
            "snap remote add has no option `--optoin`",
            "did you mean `--option`?",
        ),
        ("log --jsn", "snap log has no option `--jsn`", "did you mean `--json`?"),
        ("--stor s log", "snap has no option `--stor`", "did you mean `--store`?"),
        (
            "--message x commit",
            "snap has no option `--message`",
            "did you mean `snap commit --message`?",
        ),
        (
            "commit --nonsense",
            "snap commit has no option `--nonsense`",
            "`snap commit --help` lists the options",
        ),
        ("undo -Z", "snap undo has no option `-Z`", "`snap undo --help` lists the options"),
        ("init a b", "snap init has no argument `b`", "`snap init --help` lists the arguments"),
        ("log --color alwys", "`--color` has no value `alwys`", "did you mean `always`?"),
        ("log --color=x", "`--color` has no value `x`", "use `auto`, `always` or `never`"),
    ] {
        let ran = env.snap(line.split(' '));
        assert_eq!(ran.code, Some(2), "{ran}");
        assert_eq!(ran.stderr, format!("error: {message}\nhint: {hint}\n"));
    }
    let ran = env.snap(["--json", "commit", "--mesage", "x"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains(r#""hints":["did you mean `--message`?"],"exit":2,"#), "{ran}");
}

#[test]
fn a_command_of_another_tool_is_answered_with_that_of_snap() {
    let env = TestEnv::new();
    for (typed, instead) in [
        ("amend", "use `snap undo`, then `snap commit`"),
        ("snapshots", "use `snap log`"),
        ("switch", "use `snap branch --switch NAME`"),
        ("add", "`snap commit PATH` saves some"),
        ("prune", "`snap gc`"),
        ("delete", "`snap forget REV` forgets a commit"),
        ("cherry-pick", "`snap diff A B` compares two branches"),
        ("unlock", "not needed: a lock ends with its process"),
        ("extract", "use `snap restore REV DIR`"),
        ("rebuild-index", "use `snap repair`"),
        ("rev-parse", "use `snap show --id REV`"),
    ] {
        let ran = env.snap([typed]);
        assert_eq!(ran.code, Some(2), "{ran}");
        assert!(ran.stderr.starts_with(&format!("error: snap has no `{typed}`\nhint: ")), "{ran}");
        assert!(ran.stderr.contains(instead), "{ran}");
        assert_eq!(env.snap(["help", typed]).stderr, ran.stderr);
    }
    insta::assert_snapshot!(env.snap(["--store", "s", "backup", "src"]), @"
    exit: 2
    --- stderr ---
    error: snap has no `backup`
    hint: `snap commit` creates a snapshot
    hint: `snap push` sends it to a remote
    ");
    insta::assert_snapshot!(env.snap(["remote", "rm", "origin"]), @r"
    exit: 2
    --- stderr ---
    error: snap has no `remote rm`
    hint: use `snap remote remove NAME`
    ");
    insta::assert_snapshot!(env.snap(["--json", "backup"]), @r#"
    exit: 2
    --- stderr ---
    {"version":1,"type":"error","message":"snap has no `backup`","causes":[],"hints":["`snap commit` creates a snapshot","`snap push` sends it to a remote"],"exit":2,"code":"usage","retry":false}
    "#);
}

#[test]
fn an_option_of_another_tool_is_answered_with_what_to_write() {
    let env = TestEnv::new();
    for (line, message, hint) in [
        ("commit --tag x", "snap commit has no `--tag`", "use `--label KEY=VALUE`"),
        (
            "commit -am text",
            "snap commit has no `-a`",
            "not needed: `snap commit` commits all files",
        ),
        ("commit --amend", "snap commit has no `--amend`", "use `snap undo`, then `snap commit`"),
        ("tag -a v1 -m text", "snap tag has no `-a`", "tags have no message; use `snap tag NAME`"),
        (
            "restore latest --target /x",
            "snap restore has no `--target`",
            "use `snap restore REV DIR`",
        ),
        ("status --porcelain=v2", "snap status has no `--porcelain`", "`--json` prints records"),
        (
            "-r s config --global a b",
            "snap config has no `--global`",
            "use `snap config set --user",
        ),
        ("--git-dir x log", "snap has no `--git-dir`", "use `--store STORE`"),
        ("log --password-file x", "snap log has no `--password-file`", "snap does not encrypt"),
    ] {
        let ran = env.snap(line.split(' '));
        assert_eq!(ran.code, Some(2), "{ran}");
        assert!(ran.stderr.starts_with(&format!("error: {message}\nhint: {hint}")), "{ran}");
    }
    insta::assert_snapshot!(env.snap(["--json", "push", "-u", "origin"]), @r#"
    exit: 2
    --- stderr ---
    {"version":1,"type":"error","message":"snap push has no `-u`","causes":[],"hints":["not needed: the default remote is `origin`, or the only one"],"exit":2,"code":"usage","retry":false}
    "#);
}

#[test]
fn options_of_git_and_restic_with_the_same_meaning_work() {
    let env = TestEnv::new();
    env.write("a/kept", "1");
    env.write("a/left.o", "2");
    env.write("patterns", "*.o\n");
    let date = "2026-11-01T00:00:00Z";
    let commit = ["commit", "-q", "--exclude-file", "../patterns", "--date", date];
    env.snap_in("a", commit).succeeds();
    assert_eq!(env.snap(["ls", "-r", "a/.snap"]).succeeds().stdout, "kept\n");
    let log = |args: &[&str]| {
        env.snap_in("a", [&["--json", "log"], args].concat()).succeeds().stdout.lines().count()
    };
    assert_eq!(log(&["--after", "2026-10-31", "--before", "2026-11-01"]), 1);
    assert_eq!(log(&["--after", "2026-11-02"]), 0);
    env.snap_in("a", ["branch", "other"]).succeeds();
    env.snap_in("a", ["branch", "--switch", "other"]).succeeds();
    env.write("a/kept", "2");
    env.snap_in("a", ["commit", "-qn"]).succeeds();
    assert_eq!(log(&[]), 1);
    env.snap_in("a", ["commit", "-q"]).succeeds();
    assert_eq!((log(&[]), log(&["-1"]), log(&["main", "-5"])), (2, 1, 1));
    env.snap(["clone", "-b", "main", "a", "one"]).succeeds();
    assert_eq!(env.read("one/kept"), "1");
    env.snap(["clone", "--branch", "other", "--no-checkout", "a", "two"]).succeeds();
    assert!(env.path("two/.snap").is_dir() && !env.path("two/kept").exists());
}

#[test]
fn a_store_can_be_named_as_in_restic() {
    let env = TestEnv::new();
    env.snap(["-r", "s", "init"]).succeeds();
    env.snap(["branch", "--repo", "s"]).succeeds();
    assert!(env.path("s/objects").is_dir());
}

#[test]
fn the_global_options_are_listed_once() {
    let env = TestEnv::new();
    let top = env.snap(["--help"]).succeeds().stdout;
    for option in ["--store", "--json", "--quiet", "--verbose", "--color", "--stats", "--no-pager"]
    {
        assert!(top.contains(option), "{option} is missing in {top}");
        for command in [&["log"][..], &["fetch"], &["config", "set"]] {
            for args in [&["-h"][..], &["--help"]] {
                let help = env.snap([command, args].concat()).succeeds().stdout;
                let (options, _) =
                    help.split_once("\nGlobal options: see `snap --help`\n").unwrap();
                let listed =
                    options.lines().any(|line| line.split([' ', ',']).any(|w| w == option));
                assert!(!listed, "{option} is listed in {help}");
            }
        }
    }
}

#[test]
fn help_teaches_by_example() {
    let env = TestEnv::new();
    let help = env.snap(["--help"]).succeeds();
    for part in ["snap commit -m", "SNAP_STORE", "Exit codes:", "latest@2026-11-01"] {
        assert!(help.stdout.contains(part), "{part} is missing in {}", help.stdout);
    }
}

#[test]
fn every_command_shows_examples() {
    let env = TestEnv::new();
    let docs = env.snap(["__docs"]).succeeds().stdout;
    let headings =
        docs.lines().filter_map(|line| line.strip_prefix("## `snap ")?.strip_suffix('`'));
    let commands: Vec<Vec<&str>> = headings.map(|name| name.split(' ').collect()).collect();
    assert!(commands.contains(&vec!["config", "set"]) && commands.len() > 10, "{commands:?}");
    for command in commands {
        let help = env.snap(command.iter().chain(&["--help"])).succeeds().stdout;
        let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{help}"));
        assert!(examples.contains(command.last().unwrap()), "{command:?}: {examples}");
        let other = env.snap([&["help"], &*command].concat()).succeeds();
        assert_eq!(other.stdout, help);
    }
}

#[test]
fn help_fits_in_80_columns_and_is_wrapped_once() {
    let env = TestEnv::new();
    let docs = env.snap(["__docs"]).succeeds().stdout;
    let headings =
        docs.lines().filter_map(|line| line.strip_prefix("## `snap ")?.strip_suffix('`'));
    let commands: Vec<Vec<&str>> = headings.map(|name| name.split(' ').collect()).collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands.into_iter().chain([Vec::new()]) {
        for option in ["-h", "--help"] {
            let help = env.snap(command.iter().chain(&[option])).succeeds().stdout;
            let long = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{command:?}");
            // Paragraphs, and in long help the descriptions of options. Other lines are lists.
            let indent = |line: &str| line.len() - line.trim_start().len();
            let is_prose =
                |line: &str| indent(line) == 0 || option == "--help" && indent(line) == 10;
            for (line, next) in help.lines().zip(help.lines().skip(1)) {
                let word = next.split_whitespace().next();
                let is_list = next.trim_start().starts_with(['-', '[']) || line.ends_with(':');
                let Some(word) = word.filter(|_| !line.trim().is_empty() && !is_list) else {
                    continue;
                };
                let fits = line.chars().count() + 1 + word.chars().count() <= 80;
                let is_broken = is_prose(line) && indent(line) == indent(next) && fits;
                assert!(!is_broken, "{command:?} {option}: {line:?} is broken before {word:?}");
            }
        }
    }
}

#[test]
fn the_help_groups_the_commands() {
    let env = TestEnv::new();
    let help = env.snap(["-h"]).succeeds().stdout;
    let (_, commands) = help.split_once("COMMAND>\n\n").unwrap();
    let (commands, _) = commands.split_once("Global options:").unwrap();
    let groups: Vec<_> = commands.split_terminator("\n\n").collect();
    assert!(groups[0].starts_with("Make snapshots:\n  init "), "{commands}");
    assert!(groups.iter().any(|group| group.starts_with("Restore files:\n  restore ")));
    // A command in no group would still be shown.
    assert!(!commands.contains("More:"), "{commands}");
    assert!(!commands.contains("__") && !commands.contains("  man "), "{commands}");
    assert_eq!(commands.matches("  log ").count(), 1, "{commands}");
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    let env = TestEnv::new();
    env.snap(["--store", "s", "init"]).succeeds();
    let before = env.snap(["--store", "s", "--json", "config", "get", "commit.host"]).succeeds();
    let after = env.snap(["config", "get", "commit.host", "--json", "--store", "s"]).succeeds();
    assert_eq!(before.stdout, after.stdout);
}

#[test]
fn no_store_is_said_so_with_a_hint() {
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["log"]), @"
    exit: 1
    --- stderr ---
    error: no store found in this folder or above
    hint: `snap commit` creates a store here
    hint: `snap init` creates an empty store
    hint: `snap --store STORE COMMAND` uses another store
    ");
}

#[test]
fn a_store_that_was_named_and_is_not_there() {
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["--store", "nowhere", "log"]), @"
    exit: 1
    --- stderr ---
    error: no store found at nowhere
    hint: if the store is on another disk, mount that disk
    hint: `snap --store STORE init` creates a store
    ");
}

#[test]
fn a_restore_takes_a_folder_or_paths_but_not_both() {
    let env = TestEnv::new();
    env.write("notes.txt", "a");
    env.snap(["commit", "-q"]).succeeds();
    insta::assert_snapshot!(env.snap(["restore", "latest", "out", "--", "notes.txt"]), @"
    exit: 2
    --- stderr ---
    error: `snap restore` takes a folder, or paths after `--`, but not both
    hint: `snap restore REV -- PATH...` restores the paths to their place in the project
    hint: `snap restore REV:PATH DIR` restores one path into a folder
    ");
    assert!(!env.path("out").exists());
    let help = env.snap(["restore", "-h"]).succeeds().stdout;
    let usage = "Usage: snap restore [OPTIONS] <REV[:PATH]> [DIR]\n       \
                 snap restore [OPTIONS] <REV> -- <PATH>...\n";
    assert!(help.contains(usage), "{help}");
}

#[test]
fn what_is_not_a_store_is_said_so() {
    let env = TestEnv::new();
    env.write("files/a", "a");
    insta::assert_snapshot!(env.snap(["--store", "files", "log"]), @r"
    exit: 1
    --- stderr ---
    error: files is not a store
    hint: name the store folder itself, such as PROJECT/.snap
    ");
    env.write("file", "a");
    insta::assert_snapshot!(env.snap(["--store", "file", "log"]), @r"
    exit: 1
    --- stderr ---
    error: file is not a store
    hint: name the store folder itself, such as PROJECT/.snap
    ");
}

#[test]
fn a_newer_store_is_refused() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    env.write(".snap/config.toml", "version = 6\n[news]\nfrom = 'the future'\n");
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 1
    --- stderr ---
    error: [ROOT]/.snap/config.toml has store version 6; this snap reads up to 5
    hint: a newer version of snap wrote this store; update snap
    ");
}

#[test]
fn the_environment_names_a_store() {
    let mut env = TestEnv::new();
    env.set("SNAP_STORE", "elsewhere");
    env.snap(["init"]).succeeds();
    assert!(env.path("elsewhere/objects").is_dir());
    env.set("SNAP_TIME", "soon");
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 2
    --- stderr ---
    error: SNAP_TIME: `soon` is not a time such as 2026-11-21T08:00:00Z
    ");
}

#[test]
fn a_damaged_head_is_named() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    env.write(".snap/HEAD", "ref: refs/heads/../../etc");
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 4
    --- stderr ---
    error: [ROOT]/.snap/HEAD is damaged: it is not a branch or commit id
    hint: `snap repair` restores it from its log
    ");
}

#[test]
fn no_store_is_looked_for_at_or_above_a_ceiling() {
    let mut env = TestEnv::new();
    env.snap(["init"]).succeeds();
    env.write("a/b/file", "");
    env.snap_in("a/b", ["branch"]).succeeds();
    let ceilings = format!("/nowhere:{}", env.path("a").display());
    env.set("SNAP_CEILING_DIRECTORIES", &ceilings);
    assert_eq!(env.snap_in("a/b", ["branch"]).code, Some(1));
    // The current folder itself is always searched, even if it is a ceiling.
    env.snap_in("a", ["branch"]).succeeds();
    env.snap(["branch"]).succeeds();
}

#[test]
fn a_store_without_commits_has_no_log() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 1
    --- stderr ---
    error: branch `main` has no commit yet
    hint: `snap commit` creates the first one
    ");
    insta::assert_snapshot!(env.snap(["show", "abcd"]), @"
    exit: 1
    --- stderr ---
    error: `abcd` is not a commit, branch or tag
    hint: `snap log --all` lists the commits
    hint: `snap branch` lists the branches, `snap tag` the tags
    ");
}

#[test]
fn quiet_says_nothing() {
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["init", "-q"]), @"exit: 0");
}

#[test]
fn help_that_cannot_be_written_is_an_error_and_one_nobody_reads_is_none() {
    let env = TestEnv::new();
    for args in [&["--help"][..], &["commit", "--help"], &["help", "log"], &["--version"]] {
        let full = fs_err::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = env.command("");
        let output = command.args(args).stdout(full.into_parts().0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("error: cannot write to stdout\n  caused by: No space"), "{said}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = env.command("").args(args).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}
