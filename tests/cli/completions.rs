//! `snap completions`, tested in real shells.

use crate::{
    env::TestEnv,
    tools::{self, Tool},
};

/// The default `COMP_WORDBREAKS` of bash.
const BREAKS: &str = " \t\n\"'><=;|&(:";

/// Two commits, a tag, a branch, and names that need quotes.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    env.write("my dir/a file", "1");
    env.write("src/main.rs", "fn main() {}");
    env.write("it's $x", "3");
    env.write("a:b", "4");
    env.set("SNAP_TIME", "2026-11-20T08:00:00Z");
    env.snap(["commit", "-qm", "first one", "--label", "ci=12"]).succeeds();
    env.write("src/main.rs", "fn main() { }");
    env.set("SNAP_TIME", "2026-11-21T08:00:00Z");
    env.snap(["commit", "-qm", "second one"]).succeeds();
    env.snap(["tag", "-q", "v1.0"]).succeeds();
    env.snap(["branch", "-q", "feature/x"]).succeeds();
    env
}

/// Returns what `snap __tab` prints for zsh about the last of `words`.
fn told(env: &TestEnv, words: &[&str]) -> Vec<String> {
    let told = env.snap([&["__tab", "zsh", "--"], words].concat()).succeeds();
    assert_eq!(told.stderr, "");
    told.stdout.lines().map(str::to_owned).collect()
}

/// Returns only the words of the candidates.
fn values(env: &TestEnv, words: &[&str]) -> Vec<String> {
    let lines = told(env, words).into_iter().skip(1);
    lines.map(|line| line[1..].split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn revisions_are_refs_and_the_newest_ids() {
    let env = env();
    let log = env.snap(["--json", "log"]).json();
    let id = |at: usize| log[at]["id"].as_str().unwrap()[..12].to_owned();
    let expected = ["latest", "HEAD", "feature/x", "main", "v1.0", &id(0), &id(1)];
    assert_eq!(values(&env, &["log", ""]), expected);
    assert_eq!(values(&env, &["branch", "new", ""]), expected);
    assert_eq!(values(&env, &["log", &id(1)[..6]]), [id(1)]);
    assert_eq!(
        told(&env, &["log", &id(1)[..6]])[1],
        format!("={}\t2026-11-20 08:00 first one", id(1))
    );
    assert_eq!(values(&env, &["tag", "-d", ""]), ["v1.0"]);
    assert_eq!(values(&env, &["branch", "--switch", "f"]), ["feature/x"]);
    assert_eq!(values(&env, &["branch", "--log", "H"]), ["HEAD"]);
}

#[test]
fn remotes_and_what_goes_there_are_named() {
    let env = env();
    env.snap(["remote", "add", "origin", "s3://bucket/a"]).succeeds();
    env.snap(["remote", "add", "nas", "sftp://nas/srv"]).succeeds();
    for command in [&["push"][..], &["pull"], &["remote", "check"], &["remote", "remove"]] {
        assert_eq!(values(&env, &[command, &[""]].concat()), ["nas", "origin"], "{command:?}");
    }
    assert_eq!(told(&env, &["push", "o"])[1], "=origin\ts3://bucket/a");
    assert_eq!(values(&env, &["push", "origin", ""]), ["feature/x", "main", "v1.0"]);
    assert_eq!(values(&env, &["pull", "origin", "v"]), ["v1.0"]);
}

#[test]
fn an_old_commit_is_found_by_the_start_of_its_id() {
    let mut env = TestEnv::in_memory();
    env.write("file", "x");
    let mut first = None;
    for second in 10..50 {
        env.set("SNAP_TIME", &format!("2026-11-01T00:00:{second}Z"));
        let made = env.snap(["commit", "--allow-empty"]).succeeds();
        first.get_or_insert_with(|| made.line().to_owned());
    }
    let first = first.unwrap();
    // The commit is not one of the newest, and an empty word only offers those.
    assert!(!values(&env, &["log", ""]).contains(&first[..12].to_owned()));
    assert!(values(&env, &["log", &first[..4]]).contains(&first[..12].to_owned()));
    assert_eq!(values(&env, &["log", &first[..20]]), [first]);
}

#[test]
fn paths_in_a_snapshot_go_folder_by_folder() {
    let env = env();
    assert_eq!(
        told(&env, &["ls", "latest:"]),
        [":nothing", "=latest:a:b\t1 B", "=latest:it's $x\t1 B", "+latest:my dir/", "+latest:src/"]
    );
    assert_eq!(values(&env, &["cat", "v1.0:src/"]), ["v1.0:src/main.rs"]);
    assert_eq!(values(&env, &["cat", "latest~1:a:"]), ["latest~1:a:b"]);
    assert_eq!(
        values(&env, &["cat", "latest@2026-11-20T08:00:src/m"]),
        ["latest@2026-11-20T08:00:src/main.rs"]
    );
    // A file needs the colon after its revision; for a snapshot it is optional.
    assert_eq!(values(&env, &["cat", "v"]), ["v1.0:"]);
    assert_eq!(told(&env, &["restore", "v"]), [":files", "+v1.0\ttag"]);
    assert_eq!(told(&env, &["restore", "v1.0", ""]), [":folders"]);
    // After `./` and `../` the path starts at the current folder.
    for (word, found) in [("latest:./m", "latest:./main.rs"), ("latest:../sr", "latest:../src/")] {
        let ran = env.snap_in("src", ["__tab", "zsh", "--", "ls", word]).succeeds();
        assert!(ran.stdout.contains(found), "{word}: {ran}");
    }
    for nothing in ["latest:nowhere/", "latest:src/main.rs/", "latest:../", "nope:", ":"] {
        assert_eq!(values(&env, &["ls", nothing]), [""; 0], "{nothing}");
    }
}

#[test]
fn names_of_any_bytes_are_kept_and_control_characters_left_out() {
    use std::os::unix::ffi::OsStrExt;
    let env = TestEnv::new();
    for name in [&b"caf\xe9"[..], b"line\nend", b"\x1b[31m", b"-dash", "na\u{ef}ve".as_bytes()] {
        env.write("folder/x", "");
        fs_err::write(env.path("folder").join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
    }
    env.snap_in("folder", ["commit", "-q"]).succeeds();
    let word = std::ffi::OsStr::from_bytes(b"latest:caf\xe9");
    for word in [word, std::ffi::OsStr::new("latest:")] {
        let mut command = env.command("");
        command.args(["--store", "folder/.snap", "__tab", "zsh", "--", "ls"]).arg(word);
        let asked = command.output().unwrap();
        assert!(asked.stdout.windows(13).any(|bytes| bytes == b"=latest:caf\xe9\t"), "{asked:?}");
        assert!(!asked.stdout.contains(&0x1b) && !asked.stdout.windows(4).any(|b| b == b"line"));
    }
}

#[test]
fn a_huge_folder_is_not_read_from_its_beginning() {
    let env = TestEnv::in_memory();
    for number in 0..6000 {
        fs_err::create_dir_all(env.path("many")).unwrap();
        fs_err::write(env.path(format!("many/{number:04}")), "").unwrap();
    }
    env.snap(["commit", "-q"]).succeeds();
    assert_eq!(values(&env, &["ls", "latest:many/5999"]), ["latest:many/5999"]);
    assert_eq!(values(&env, &["ls", "latest:many/4"]).len(), 1000);
    assert_eq!(values(&env, &["ls", "latest:many/"])[0], "latest:many/0000");
    assert_eq!(values(&env, &["ls", "latest:many/6"]), [""; 0]);
}

#[test]
fn settings_labels_and_words_of_options_are_known() {
    let env = env();
    assert_eq!(values(&env, &["config", "get", "gc.g"]), ["gc.grace"]);
    assert_eq!(told(&env, &["commit", "--label", ""]), [":nothing", "+ci="]);
    assert_eq!(values(&env, &["commit", "--label=ci="]), ["--label=ci=12"]);
    assert_eq!(values(&env, &["log", "--color", "a"]), ["auto", "always"]);
    assert_eq!(values(&env, &["completions", "po"]), ["powershell"]);
}

#[test]
fn the_store_is_the_one_that_the_line_names() {
    let mut env = env();
    env.snap(["--store", "other store", "init"]).succeeds();
    env.write("x/only here", "1");
    env.snap(["--store", "other store", "commit", "-q", "x"]).succeeds();
    for before in [&["--store", "other store"][..], &["--store=other store"]] {
        let words = [before, &["ls", "latest:"]].concat();
        assert_eq!(values(&env, &words), ["latest:only here"]);
    }
    assert_eq!(values(&env, &["ls", "--store", "other store", "latest:o"]), ["latest:only here"]);
    let at_home = env.path("").to_str().unwrap().to_owned();
    env.set("HOME", &at_home);
    assert_eq!(values(&env, &["--store=~/other store", "ls", "latest:o"]), ["latest:only here"]);
    env.set("SNAP_STORE", "other store");
    assert_eq!(values(&env, &["ls", "latest:"]), ["latest:only here"]);
    assert_eq!(values(&env, &["--store", ".snap", "ls", "latest:s"]), ["latest:src/"]);
}

#[test]
fn what_cannot_be_read_is_not_complained_about() {
    let env = TestEnv::new();
    assert_eq!(values(&env, &["log", ""]), [""; 0]);
    env.snap(["init"]).succeeds();
    assert_eq!(values(&env, &["log", ""]), ["latest", "HEAD"]);
    env.write("file", "1");
    env.snap(["commit", "-q"]).succeeds();
    env.write(".snap/HEAD", "what?");
    assert_eq!(values(&env, &["log", ""]), ["latest", "HEAD", "main"]);
    env.write(".snap/refs/heads/main", "what?");
    assert_eq!(values(&env, &["log", "m"]), ["main"]);
    env.write(".snap/config.toml", "what?");
    assert_eq!(values(&env, &["log", ""]), [""; 0]);
    // Invalid lines must not fail either.
    for words in
        [&["nope", "-x", "--what", "=", ""][..], &["-", "--", "-", ""], &["config", "", ""]]
    {
        told(&env, words);
    }
    let asked = env.snap(["__tab", "bash"]).succeeds();
    assert_eq!((asked.stdout, asked.stderr), (String::new(), String::new()));
}

/// Lists the names and times of all files of the store.
fn files_of_store(env: &TestEnv) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![env.path(".snap")];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                folders.push(entry.path());
            }
            found.push(format!("{:?} {:?} {}", entry.path(), meta.modified().unwrap(), meta.len()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_store_without_index_is_left_as_it_is() {
    let env = env();
    for damage in ["cut", "gone"] {
        match damage {
            "cut" => {
                for segment in fs_err::read_dir(env.path(".snap/index")).unwrap() {
                    fs_err::write(segment.unwrap().path(), "SNAP").unwrap();
                }
            }
            _ => fs_err::remove_dir_all(env.path(".snap/index")).unwrap(),
        }
        let before = files_of_store(&env);
        assert_eq!(values(&env, &["log", "v"]), ["v1.0"], "{damage}");
        assert_eq!(values(&env, &["ls", "latest:"]), [""; 0]);
        assert_eq!(files_of_store(&env), before, "{damage}");
    }
}

#[test]
fn bash_completes() {
    let env = env();
    let Some(bash) = tools::find("bash") else { return };
    for (line, offered) in [
        ("snap cat la", &["latest:"][..]),
        ("snap ls latest:my", &["my\\ dir/"]),
        ("snap ls \"latest:my", &["latest:my dir/"]),
        ("snap ls latest:my\\ dir/", &["my\\ dir/a\\ file "]),
        ("snap cat latest:it\\'s", &["it\\'s\\ \\$x "]),
        ("snap cat latest:a:", &["b "]),
        ("snap log --on", &["--oneline "]),
        ("snap log --color=al", &["always "]),
        ("snap --color never res", &["restore "]),
    ] {
        assert_eq!(in_bash(&env, &bash, line), offered, "{line}");
    }
    let listed = in_bash(&env, &bash, "snap branch x ");
    assert_eq!(listed[0], "latest  (the newest snapshot)");
    assert!(listed[5].ends_with("  (2026-11-21 08:00 second one)"), "{listed:?}");
}

/// Returns what bash would insert for a line.
fn in_bash(env: &TestEnv, bash: &Tool, line: &str) -> Vec<String> {
    let script = r#"
        source <(snap completions bash)
        complete -p snap >&2
        COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_WORDBREAKS=$2
        _snap
        ((${#COMPREPLY[@]})) && printf '%s\n' "${COMPREPLY[@]}" || true
    "#;
    let (out, said) = bash.run(env, ["--norc", "-c", script, "bash", line, BREAKS]);
    assert!(said.contains("-F _snap snap"), "{said}");
    out.lines().map(str::to_owned).collect()
}

#[test]
fn fish_completes() {
    let env = env();
    let Some(fish) = tools::find("fish") else { return };
    let offered = |line: &str| {
        let script = "snap completions fish | source; complete -C $argv[1]";
        let (out, said) = fish.run(&env, ["--no-config", "-c", script, line]);
        assert_eq!(said, "", "{line}");
        out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered("snap cat la"), ["latest:\tthe newest snapshot"]);
    assert_eq!(offered("snap ls latest:my"), ["latest:my dir/"]);
    assert_eq!(offered("snap ls latest:my\\ dir/"), ["latest:my dir/a file\t1 B"]);
    assert_eq!(offered("snap ls \"latest:my dir/"), ["latest:my dir/a file\t1 B"]);
    assert_eq!(offered("snap cat latest:a:"), ["latest:a:b\t1 B"]);
    assert_eq!(offered("snap log --color=al"), ["--color=always\tAlways"]);
    assert_eq!(offered("snap --store .snap res")[0].split('\t').next(), Some("restore"));
    assert_eq!(offered("snap restore latest sr"), ["src/"]);
    assert_eq!(offered("snap ls --store=sr"), ["--store=src/"]);
    assert_eq!(offered("snap branch x ")[0], "latest\tthe newest snapshot");
    assert_eq!(offered("snap commit a"), ["a:b"]);
}

#[test]
fn zsh_and_bash_complete_what_is_typed() {
    let env = env();
    let Some(zsh) = tools::find("zsh") else { return };
    let zsh_load = "autoload -U compinit; compinit -u -D; source <(snap completions zsh)";
    for (shell, load) in
        [("zsh -f -i", zsh_load), ("bash --norc -i", "source <(snap completions bash)")]
    {
        for (typed, line) in [
            ("snap cat la", "snap cat latest:"),
            ("snap ls latest:my", "snap ls latest:my\\ dir/"),
            ("snap ls latest:my\\ dir/a", "snap ls latest:my\\ dir/a\\ file"),
            ("snap ls \"latest:my", "snap ls \"latest:my dir/"),
            ("snap cat latest:it\\'s", "snap cat latest:it\\'s\\ \\$x"),
            ("snap cat latest:a:", "snap cat latest:a:b"),
            ("snap ls --store=sr", "snap ls --store=src/"),
            ("snap restore latest sr", "snap restore latest src/"),
            ("snap log --onel", "snap log --oneline"),
        ] {
            let script = r#"
                zmodload zsh/zpty
                zpty -e sh "exec $1"
                zpty -w sh "PS1=; unsetopt prompt_cr 2>/dev/null; $2; echo 're'ady"
                zpty -r -m sh out '*ready*'
                zpty -w -n sh "$3"$'\t'
                zpty -r -m sh out "*${(b)4}*"
                zpty -d sh
                print -r -- "as it should be"
            "#;
            let (out, _) = zsh.run(&env, ["-f", "-c", script, "zsh", shell, load, typed, line]);
            assert_eq!(out, "as it should be\n", "{shell}: {typed}");
        }
    }
}

#[test]
fn every_shell_gets_a_script() {
    let env = TestEnv::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = env.snap(["completions", shell]).succeeds().stdout;
        assert!(script.contains("snap") && script.lines().count() > 10, "{script}");
        assert!(!script.contains("__docs"), "{shell} offers an internal command");
    }
    insta::assert_snapshot!(env.snap(["completions", "tcsh"]), @r"
    exit: 2
    --- stderr ---
    error: `<SHELL>` has no value `tcsh`
    hint: did you mean `bash`?
    ");
}
