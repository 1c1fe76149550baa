//! `snap remote`: named remotes, and checks of what they support.

use snap_nettest::{
    Conditions, DavOptions, DavServer, Denied, Fault, Kind, Proxy, Rule, S3Options, S3Server, Seen,
};

use crate::env::{Ran, TestEnv};

/// Makes a store with one commit.
pub(crate) fn env() -> TestEnv {
    let mut env = TestEnv::new();
    let cache = env.path("cache").to_str().unwrap().to_owned();
    env.set("XDG_CACHE_HOME", &cache);
    env.write("work/notes.txt", "first\n");
    env.write("work/sub/more.txt", "more\n");
    env.snap_in("work", ["commit", "-qm", "one"]).succeeds();
    env
}

/// Makes such a store, with environment variables for a bucket at `endpoint`.
pub(crate) fn env_of(server: &S3Server, endpoint: &str) -> TestEnv {
    let mut env = env();
    for (name, value) in server.environment(endpoint) {
        env.set(name, &value);
    }
    env
}

/// Returns the location of a folder in the root of a test.
pub(crate) fn folder(env: &TestEnv, name: &str) -> String {
    format!("file://{}", env.path(name).display())
}

#[track_caller]
pub(crate) fn says(ran: &Ran, code: i32, texts: &[&str]) {
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    for text in texts {
        assert!(ran.stderr.contains(text), "no `{text}` in: {}", ran.stderr);
    }
}

#[test]
fn remotes_are_added_listed_shown_and_removed() {
    let env = env();
    let snap = |args: &[&str]| env.snap_in("work", args).to_string();
    insta::assert_snapshot!(snap(&["remote"]), @r"
    exit: 0
    --- stderr ---
    The store has no remote; `snap remote add` adds one
    ");
    insta::assert_snapshot!(snap(&["push"]), @"
    exit: 1
    --- stderr ---
    error: the store has no remote
    hint: `snap remote add origin URL` adds one
    hint: a URL looks like s3://bucket/project or file:///mnt/disk/project
    ");
    let add = ["remote", "add", "origin", "s3://bucket/a", "--option", "path-style=true"];
    insta::assert_snapshot!(snap(&add), @r"
    exit: 0
    --- stderr ---
    Added remote origin at s3://bucket/a
    ");
    insta::assert_snapshot!(snap(&add), @"
    exit: 1
    --- stderr ---
    error: remote `origin` already exists: s3://bucket/a
    hint: choose another name
    hint: `snap remote remove origin` removes it from the settings and keeps its data
    ");
    env.snap_in("work", ["remote", "add", "nas", "sftp://ada@nas/srv"]).succeeds();
    insta::assert_snapshot!(snap(&["remote", "list"]), @r"
    exit: 0
    --- stdout ---
    nas     sftp://ada@nas/srv
    origin  s3://bucket/a
    ");
    insta::assert_snapshot!(snap(&["--json", "remote", "list"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"remote","remote":"nas","url":"sftp://ada@nas/srv"}
    {"version":1,"type":"remote","remote":"origin","url":"s3://bucket/a"}
    "#);
    insta::assert_snapshot!(snap(&["remote", "show"]), @r"
    exit: 0
    --- stdout ---
    Remote:   origin
    Location: s3://bucket/a
    Option:   path-style=true
    Keys:     from the environment, if any are needed
    Settings: [ROOT]/work/.snap/config.toml:31
    ");
    insta::assert_snapshot!(snap(&["remote", "show", "orgin"]), @r"
    exit: 1
    --- stderr ---
    error: remote `orgin` does not exist
    hint: did you mean `origin`?
    ");
    insta::assert_snapshot!(snap(&["remote", "remove", "nas"]), @r"
    exit: 0
    --- stderr ---
    Removed remote nas; its data is unchanged
    ");
    insta::assert_snapshot!(snap(&["remote", "remove", "nas"]), @r"
    exit: 1
    --- stderr ---
    error: remote `nas` does not exist
    hint: known remotes: `origin`
    ");
}

#[test]
fn what_cannot_be_a_remote_is_refused() {
    let env = env();
    let add = |name: &str, url: &str, option: &str| {
        let option = format!("--option={option}");
        let ran = env.snap_in("work", ["remote", "add", name, url, &option]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        ran.stderr
    };
    assert!(add("a/b", "s3://b", "region=x").contains("`a/b` is not a valid name of a remote"));
    assert!(add("a", "bucket", "region=x").contains("hint: URLs begin with s3://, gs://"));
    assert!(add("a", "/mnt/x", "region=x").contains("`region`"));
    assert!(add("a", "s3://b", "regoin=x").contains("hint: the options are endpoint, region"));
    assert!(add("a", "s3://b", "path-style=maybe").contains("true or false"));
    // Secrets are refused and not printed.
    for (url, option) in [
        ("s3://b", "secret-access-key=geheim"),
        ("webdavs://ada:geheim@host/x", "username=ada"),
        ("webdavs://ada:geheim@x@host/x", "username=ada"),
        ("webdavs://ada:ge/heim@host/x", "username=ada"),
        ("azblob://c/x?sig=geheim", "account=a"),
    ] {
        let said = add("a", url, option);
        assert!(!said.contains("heim"), "{said}");
    }
    let said = add("a", "webdavs://ada:geheim@host/x", "username=ada");
    assert!(said.contains("hint: set SNAP_REMOTE_USER and SNAP_REMOTE_SECRET"), "{said}");
    let set = ["config", "set", "remote.a.url", "webdavs://ada:geheim@host/x"];
    let ran = env.snap_in("work", set);
    says(&ran, 2, &["contains a password"]);
    assert!(
        !ran.stderr.contains("geheim") && !env.read("work/.snap/config.toml").contains("geheim")
    );
    let ran = env.snap_in("work", ["config", "set", "remote.a.secret_key", "geheim"]);
    says(&ran, 2, &["hint: settings contain no secrets; set `remote.NAME.credentials_file`"]);
    assert!(!ran.stderr.contains("geheim"));
    env.snap_in("work", ["remote", "list"]).succeeds();
}

#[test]
fn a_secret_in_the_url_of_a_service_is_neither_stored_nor_shown() {
    let env = env();
    for url in ["https://ada:geheim@host", "https://host/?sig=geheim"] {
        let ran = env.snap_in("work", ["config", "set", "remote.a.endpoint", url]);
        says(&ran, 2, &["option `endpoint` contains", "hint: set SNAP_REMOTE_USER"]);
        assert!(!ran.stderr.contains("geheim"), "{}", ran.stderr);
    }
    let mut config = env.read("work/.snap/config.toml");
    assert!(!config.contains("geheim"));
    // The user may have written it by hand.
    config.push_str("\n[remote.a]\nurl = \"s3://b\"\nendpoint = \"https://ada:geheim@host\"\n");
    config.push_str("\n[remote.b]\nurl = \"webdavs://ada:geheim@host/x\"\n");
    env.write("work/.snap/config.toml", config);
    let commands: [&[&str]; 9] = [
        &["config", "list"],
        &["config", "get", "remote.a.endpoint"],
        &["config", "get", "remote.b.url"],
        &["config", "trust"],
        &["remote", "list"],
        &["remote", "show", "a"],
        &["remote", "show", "b"],
        &["push", "a"],
        &["ls", "b#main"],
    ];
    for command in commands {
        for json in [&[][..], &["--json"]] {
            let ran = env.snap_in("work", command.iter().chain(json));
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!said.contains("geheim"), "{command:?}: {said}");
            assert!(!said.is_empty(), "{command:?}");
        }
    }
}

#[test]
fn a_remote_of_the_user_is_for_all_stores() {
    let mut env = env();
    let file = env.path("user.toml").to_str().unwrap().to_owned();
    env.set("SNAP_CONFIG", &file);
    env.snap(["remote", "add", "--user", "all", "s3://bucket"]).succeeds();
    insta::assert_snapshot!(env.snap_in("work", ["remote"]), @r"
    exit: 0
    --- stdout ---
    all  s3://bucket
    ");
    env.snap(["remote", "remove", "--user", "all"]).succeeds();
    assert_eq!(env.snap(["remote"]).succeeds().stdout, "");
}

#[test]
fn a_folder_can_be_checked_and_is_left_as_it_was() {
    let env = env();
    env.write("there/keep", "");
    let ran = env.snap_in("work", ["remote", "check", &folder(&env, "there")]).succeeds();
    let words: Vec<_> = ran.stdout.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(
        words,
        [
            "list",
            "read",
            "write",
            "read back",
            "if absent",
            "if unchanged",
            "remove",
            "round trip",
            "store"
        ]
    );
    assert!(ran.stdout.ends_with("does not exist; `snap push` creates one\n"), "{}", ran.stdout);
    assert!(env.path("there/keep").exists());
    assert_eq!(fs_err::read_dir(env.path("there")).unwrap().count(), 1);
}

#[test]
fn a_folder_that_is_away_is_not_made_by_a_check() {
    let env = env();
    let disk = folder(&env, "disk/store");
    let ran = env.snap_in("work", ["remote", "check", &disk]).succeeds();
    let untried = "write           not tested: the folder does not exist; a push creates it\n";
    assert!(ran.stdout.contains(untried), "{ran}");
    assert!(ran.stderr.starts_with("Nothing was written: the folder "), "{ran}");
    assert!(!env.path("disk").exists());
    env.write("work/a", "1");
    env.snap_in("work", ["commit", "-q"]).succeeds();
    env.snap_in("work", ["remote", "add", "usb", &disk]).succeeds();
    env.snap_in("work", ["push", "-q", "usb"]).succeeds();
    env.snap_in("work", ["remote", "check", "usb"]).succeeds();
    // Simulates an unmounted disk: only the folder of the mount point exists.
    fs_err::rename(env.path("disk"), env.path("away")).unwrap();
    let ran = env.snap_in("work", ["remote", "check", "usb"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stdout.contains("not tested: the store no longer exists"), "{ran}");
    assert!(ran.stderr.contains("is gone: the location is empty"), "{ran}");
    assert!(
        ran.stderr.contains("hint: check that the location is correct and its disk is mounted"),
        "{ran}"
    );
    assert!(!env.path("disk").exists());
    fs_err::create_dir_all(env.path("disk/store")).unwrap();
    let ran = env.snap_in("work", ["--json", "remote", "check", "usb"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert_eq!(ran.json()[0]["possible"], false, "{ran}");
    assert_eq!(fs_err::read_dir(env.path("disk/store")).unwrap().count(), 0);
}

#[test]
fn a_bucket_is_checked_for_all_that_snap_needs() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let env = env_of(&server, &proxy.endpoint());
    let ran = env.snap_in("work", ["--json", "remote", "check", "s3://bucket/x"]).succeeds();
    let record = &ran.json()[0];
    assert_eq!((&record["possible"], &record["has_store"]), (&true.into(), &false.into()));
    for trial in record["trials"].as_array().unwrap() {
        assert_eq!(trial["can"], "yes", "{trial}");
    }
    assert_eq!(record["stats"]["requests"], proxy.take_counts().total);
    assert!(record["round_trip_min_ms"].as_f64() <= record["round_trip_median_ms"].as_f64());
    assert_eq!(server.keys(), [""; 0]);

    server.deny(Denied::Writes);
    let ran = env.snap_in("work", ["remote", "check", "s3://bucket/x"]);
    says(&ran, 1, &["error: cannot write", "hint: the credentials are missing or lack permission"]);
    assert!(ran.stdout.contains("list            yes\nread            yes\nwrite           NO"));
    server.deny(Denied::Nothing);

    // If a service ignores conditional requests, snap would lose commits without claims.
    proxy.add(Rule::new(Fault::error(200, "")).kind(Kind::Put).skip(1).times(1));
    let ran = env.snap_in("work", ["remote", "check", "s3://bucket/x"]).succeeds();
    let told = "if absent       no (not needed): it ignores conditions; each push first writes a file that claims the branch";
    assert!(ran.stdout.contains(told), "{}", ran.stdout);
}

#[test]
fn a_share_without_conditions_will_do() {
    let server = DavServer::start(DavOptions::default());
    let env = env();
    let url = format!("{}/snap", server.endpoint().replacen("http", "webdav", 1));
    let ran = env.snap_in("work", ["remote", "check", &url]).succeeds();
    assert!(ran.stdout.contains("if absent       no (not needed): pushes use claims instead"));
}

#[test]
fn a_service_that_keeps_to_no_conditions_can_be_used_with_claims() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let env = env_of(&server, &proxy.endpoint());
    env.snap_in("work", ["remote", "add", "origin", "s3://bucket/x"]).succeeds();
    let claims = || {
        let is_claim =
            |seen: &&Seen| seen.kind == Kind::Put && seen.path.contains("claims/heads/main/");
        proxy.requests().iter().filter(is_claim).count()
    };
    for (conditions, at) in [(Conditions::Ignored, 1), (Conditions::Refused, 2)] {
        server.set_conditions(conditions);
        let ran = env.snap_in("work", ["remote", "check"]).succeeds();
        for condition in ["if absent ", "if unchanged "] {
            let line = ran.stdout.lines().find(|line| line.starts_with(condition)).unwrap();
            assert!(line.contains("no (not needed)"), "{line}");
        }
        env.write("work/more", format!("{conditions:?}"));
        env.snap_in("work", ["commit"]).succeeds();
        let url = format!("s3://bucket/{at}");
        let pushed = env.snap_in("work", ["push", &url]).succeeds();
        assert_eq!(claims(), at, "{}", pushed.stderr);
        if conditions == Conditions::Ignored {
            let told = "does not support conditional writes";
            assert!(pushed.stderr.contains(told), "{}", pushed.stderr);
        }
        assert!(!server.keys().iter().any(|key| key.contains("claims/")), "{:?}", server.keys());
    }
    // The check corrects the remembered result, for all stores in the bucket.
    for (conditions, at) in [(Conditions::Kept, 2), (Conditions::Ignored, 3)] {
        server.set_conditions(conditions);
        env.snap_in("work", ["remote", "check"]).succeeds();
        env.write("work/more", format!("checked: {conditions:?}"));
        env.snap_in("work", ["commit"]).succeeds();
        env.snap_in("work", ["push"]).succeeds();
        assert_eq!(claims(), at, "{conditions:?}");
    }
    // If the user sets the option, no test is needed.
    env.snap_in("work", ["config", "set", "remote.origin.conditional-writes", "false"]).succeeds();
    let ran = env.snap_in("work", ["remote", "check"]).succeeds();
    assert!(ran.stdout.contains("if absent       no (not needed): pushes use claims instead"));
}
