//! Checks the output of `--json` against `docs/schema/`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use rustix::fs::FileType;
use serde_json::Value;
use snap_testkit::schema::{sound, valid};

use crate::{env::TestEnv, partial_remotes::with_deleted_branch, serve::Serving};

/// Schemas by name, such as `commit`.
struct Schemas {
    by_name: BTreeMap<String, Value>,
    seen: BTreeSet<String>,
}

impl Schemas {
    fn read() -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema");
        let files = fs_err::read_dir(dir).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        let mut by_name = BTreeMap::new();
        for path in files {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let schema: Value =
                serde_json::from_str(&fs_err::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            assert_eq!(schema["$id"], format!("{name}.json"));
            assert!(schema["description"].is_string(), "{name} has no description");
            assert_eq!(schema["properties"]["version"]["const"], 1, "{name}");
            assert_eq!(schema["required"][0], "version", "{name}");
            assert_eq!(schema["required"][1], "type", "{name}");
            let kind = &schema["properties"]["type"];
            assert!(kind["const"].is_string() || kind["enum"].is_array(), "{name}");
            sound(&schema, &schema).unwrap_or_else(|fault| panic!("{name}.json: {fault}"));
            by_name.insert(name, schema);
        }
        Self { by_name, seen: BTreeSet::new() }
    }

    /// Asserts that each line matches one of `names`, and that each name has a line.
    #[track_caller]
    fn check(&mut self, what: &str, lines: &str, names: &[&str]) {
        let mut left: BTreeSet<&str> = names.iter().copied().collect();
        for line in lines.lines() {
            let record: Value = serde_json::from_str(line)
                .unwrap_or_else(|_| panic!("{what} prints a line that is not JSON: {line}"));
            let check = |name: &str| {
                let schema = &self.by_name[name];
                valid(schema, schema, &record)
            };
            let fits: Vec<_> = names.iter().map(|name| (name, check(name))).collect();
            match fits.iter().find(|(_, fault)| fault.is_ok()) {
                Some((name, _)) => {
                    left.remove(**name);
                    self.seen.insert((**name).to_owned());
                }
                None => panic!("{what} prints {line}\nwhich does not fit {fits:?}"),
            }
        }
        assert!(left.is_empty(), "{what} printed no {left:?}, but\n{lines}");
    }
}

/// Commands without records: their output is a content, a script or a page.
const WITHOUT: [&str; 4] = ["cat", "completions", "man", "help"];

#[test]
fn every_record_is_as_its_schema_says() {
    let env = TestEnv::new();
    let mut schemas = Schemas::read();
    let mut used: BTreeSet<String> = BTreeSet::new();
    let url = format!("file://{}", env.path("there").display());
    let runs: &[(&[&str], &[&str])] = &[
        (&["init"], &["store"]),
        (&["commit", "-m", "one", "--label", "ci=7"], &["made-commit"]),
        (&["commit", "--stdin", "x", "--allow-empty-stream"], &["made-commit"]),
        (&["commit", "-e", "*.o", "--exclude-larger-than", "1GiB"], &["made-commit"]),
        (&["commit", "--stdin", "x", "--allow-empty-stream"], &["made-commit"]),
        (&["commit", "--dry-run"], &["would-commit"]),
        (&["status"], &["status", "change", "diff-summary"]),
        (&["diff", "HEAD~1", "HEAD"], &["change", "diff-summary"]),
        (&["diff", "--stat"], &["change", "diff-summary"]),
        (&["branch", "old", "HEAD~1"], &["ref-changed"]),
        (&["tag", "v1"], &["ref-changed"]),
        (&["branch", "--switch", "old"], &["ref-changed"]),
        (&["branch", "--switch", "main"], &["ref-changed"]),
        (&["tag", "gone"], &["ref-changed"]),
        (&["tag", "-d", "gone"], &["ref-changed"]),
        (&["branch"], &["ref"]),
        (&["tag"], &["ref"]),
        (&["branch", "--log", "main"], &["ref-log"]),
        (&["log"], &["commit"]),
        (&["log", "--follow", "--", "sub/file"], &["commit"]),
        (&["log", "--patch", "-n", "1"], &["commit", "change", "diff-summary"]),
        (&["show"], &["commit"]),
        (&["show", "--patch"], &["commit", "change", "diff-summary"]),
        (&["find", "*"], &["version"]),
        (&["stats"], &["stats-commit", "stats-file", "stats-store"]),
        (&["show", "old:sub/file"], &["entry"]),
        (&["ls", "-R", "old"], &["entry"]),
        (&["restore", "old", "out", "--dry-run"], &["restore-change", "restored"]),
        (&["restore", "old", "out"], &["restored"]),
        (&["pack", "old", "-o", "x.snap"], &["packed"]),
        (&["archive", "sub", "-o", "sub.snap"], &["archived"]),
        (&["verify", "sub.snap"], &["verified-bundle"]),
        (&["export", "old", "-o", "x.tar"], &["exported"]),
        (&["export", "old", "-o", "x.zip"], &["exported"]),
        (&["undo", "--dry-run"], &["undo"]),
        (&["undo"], &["undo"]),
        (&["undo", "--redo"], &["undo"]),
        (&["--store", "other", "init"], &["store"]),
        (&["--store", "other", "unpack", "x.snap"], &["unpacked"]),
        (&["verify"], &["verify-summary"]),
        (&["verify", "--against-files"], &["change", "diff-summary"]),
        (&["repair", "--data"], &["repair-summary"]),
        (
            &["forget", "--keep-last", "1", "--allow-none", "--sizes"],
            &["forget-commit", "forgotten"],
        ),
        (&["log"], &["commit"]),
        (&["undo"], &["undo"]),
        (&["rewrite", "--exclude", "sub/", "--dry-run"], &["rewritten"]),
        (&["rewrite", "--exclude", "sub/"], &["rewritten"]),
        (&["undo"], &["undo"]),
        (&["gc", "--dry-run"], &["collected"]),
        (&["gc", "--now"], &["collected"]),
        (&["config"], &["setting"]),
        (&["config", "list"], &["setting"]),
        (&["config", "get", "commit.host"], &["setting"]),
        (&["config", "list", "--origin"], &["setting"]),
        (&["config", "set", "compression.level", "5"], &["setting-changed"]),
        (&["config", "unset", "compression.level"], &["setting-changed"]),
        (&["config", "trust"], &["store-trusted"]),
        (&["config", "trust", "--forget"], &["store-trusted"]),
        (&["remote", "add", "origin", &url], &["remote-changed"]),
        (&["remote"], &["remote"]),
        (&["remote", "check"], &["remote-check"]),
        (&["push", "--dry-run"], &["would-push"]),
        (&["push", "--all", "--tags"], &["pushed"]),
        (&["push", "--delete", "old"], &["pushed"]),
        (&["gc", "origin", "--dry-run"], &["collected-remote"]),
        (&["gc", "origin", "--now", "--forgotten"], &["collected-remote"]),
        (&["verify", "origin", "--sample", "50%"], &["verify-summary"]),
        (&["pull"], &["pulled"]),
        (&["remote", "show"], &["remote-known"]),
        (&["ls-remote"], &["ref"]),
        (&["branch", "--remotes"], &["ref"]),
        (&["clone", &url, "cloned"], &["cloned"]),
        (&["commit", "--allow-empty", "-b", "gone"], &["made-commit"]),
        (&["push", "origin", "gone"], &["pushed"]),
        (&["push", &url, "--delete", "gone"], &["pushed"]),
        (&["gc", &url, "--now"], &["collected-remote"]),
        (&["branch", "-d", "gone"], &["ref-changed"]),
        (&["verify", "origin"], &["verify-branch", "verify-summary"]),
        (&["fetch"], &["fetched"]),
        (&["--stats", "ls", &url], &["entry", "remote-stats"]),
        (&["remote", "remove", "origin"], &["remote-changed"]),
        (&["serve", "token", "add", "ci", "--repository", "a"], &["token-changed"]),
        (&["serve", "token", "list"], &["token"]),
        (&["serve", "token", "revoke", "ci"], &["token-changed"]),
    ];
    odd_tree(&env);
    fs_err::create_dir(env.path(".git")).unwrap();
    let mut talk = String::new();
    for (args, names) in runs {
        let ran = env.snap([&["--json"], *args].concat()).succeeds();
        schemas.check(&format!("snap --json {}", args.join(" ")), &ran.stdout, names);
        talk.push_str(&ran.stderr);
        used.extend(args.iter().map(|word| (*word).to_owned()));
    }
    let (stopped, updated) = pull_with_update(&env);
    schemas.check("snap --json pull --update", &stopped, &["update-conflict"]);
    schemas.check("snap --json pull --update", &updated, &["pulled", "restored"]);
    schemas.check("snap --json", &talk, &["message", "hint", "warning"]);
    let serving = Serving::start(&env, ".");
    schemas.check("snap --json serve", &serving.line, &["serving"]);
    used.insert("serve".to_owned());
    drop(serving);
    for args in [&["log", "nope"][..], &["nope"], &["log", "-n", "0"], &["log", "--since", "soon"]]
    {
        let ran = env.snap([&["--json"], args].concat());
        assert_eq!(ran.stdout, "");
        schemas.check(&format!("snap --json {}", args.join(" ")), &ran.stderr, &["error"]);
        assert_eq!(serde_json::from_str::<Value>(&ran.stderr).unwrap()["exit"], ran.code.unwrap());
    }
    env.write(".snap/refs/tags/damaged", "not a commit");
    let ran = env.snap(["--json", "tag"]);
    fs_err::remove_file(env.path(".snap/refs/tags/damaged")).unwrap();
    schemas.check("snap --json tag", &ran.stderr, &["warning"]);
    damage(&env);
    let ran = env.snap(["--json", "verify", "--data"]);
    let found = ["verify-problem", "verify-commit", "verify-path", "verify-summary"];
    schemas.check("snap --json verify --data", &ran.stdout, &found);
    let found =
        ["repair-repaired", "repair-lost", "verify-commit", "verify-path", "repair-summary"];
    // The files no longer have all of the lost content.
    env.write("sub/file", "another text\n");
    for args in [["repair", "--dry-run"], ["repair", "--data"]] {
        let ran = env.snap([&["--json"][..], &args].concat());
        schemas.check(&format!("snap --json {}", args.join(" ")), &ran.stdout, &found);
    }

    let shallow = with_deleted_branch(|env| {
        env.snap_in("shallow", ["branch", "old", "origin/old"]).succeeds();
    });
    shallow.snap_in("shallow", ["fetch"]);
    let ran = shallow.snap_in("shallow", ["--json", "verify"]);
    schemas.check("snap --json verify", &ran.stdout, &["verify-deleted", "verify-summary"]);

    let unseen: Vec<_> =
        schemas.by_name.keys().filter(|name| !schemas.seen.contains(*name)).collect();
    assert!(unseen.is_empty(), "no command printed a record of {unseen:?}");
    // Each command is either tested here or listed as having no records.
    let docs = env.snap(["__docs"]).succeeds().stdout;
    let headings =
        docs.lines().filter_map(|line| line.strip_prefix("## `snap ")?.strip_suffix('`'));
    for command in headings {
        let name = command.split(' ').next().unwrap();
        let known = used.contains(name) || WITHOUT.contains(&name);
        assert!(known, "`snap {command}` is not tried with --json");
    }
}

/// Returns the output of an update that a local change stops, and of one that succeeds.
fn pull_with_update(env: &TestEnv) -> (String, String) {
    env.snap(["init", "-q", "theirs"]).succeeds();
    env.write("theirs/file", "first");
    env.snap_in("theirs", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "theirs", "ours"]).succeeds();
    env.write("theirs/file", "second");
    env.snap_in("theirs", ["commit", "-q"]).succeeds();
    env.write("ours/file", "another");
    let stopped = env.snap_in("ours", ["--json", "pull", "--update"]);
    assert_eq!(stopped.code, Some(1), "{stopped}");
    env.write("ours/file", "first");
    let updated = env.snap_in("ours", ["--json", "pull", "--update"]).succeeds();
    (stopped.stdout, updated.stdout)
}

/// Makes files, folders, links, a name that is not UTF-8, and special files; devices if the user
/// may create them.
pub(crate) fn odd_tree(env: &TestEnv) {
    use std::os::unix::ffi::OsStrExt;
    env.write("sub/file", "some text\n");
    std::os::unix::fs::symlink("sub/file", env.path("link")).unwrap();
    fs_err::hard_link(env.path("sub/file"), env.path("sub/twin")).unwrap();
    fs_err::write(env.path(std::ffi::OsStr::from_bytes(b"sub/caf\xe9")), "x").unwrap();
    node(env, "pipe", FileType::Fifo, 0).unwrap();
    node(env, "socket", FileType::Socket, 0).unwrap();
    if rustix::process::geteuid().is_root() {
        node(env, "null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)).unwrap();
        node(env, "loop", FileType::BlockDevice, rustix::fs::makedev(7, 0)).unwrap();
    }
}

fn node(env: &TestEnv, name: &str, kind: FileType, device: u64) -> rustix::io::Result<()> {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, env.path(name), kind, mode, device)
}

/// Changes a byte of a file's content in each pack that contains it.
fn damage(env: &TestEnv) {
    let mut damaged = 0;
    for pack in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
        let path = pack.unwrap().path();
        let mut bytes = fs_err::read(&path).unwrap();
        let Some(at) = bytes.windows(9).position(|bytes| bytes == b"some text") else { continue };
        bytes[at] ^= 1;
        damaged += 1;
        fs_err::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .unwrap();
        fs_err::write(&path, bytes).unwrap();
    }
    assert!(damaged > 0, "no pack contains the content uncompressed");
}
