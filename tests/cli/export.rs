//! `snap export`: the archives are read by the usual tools.

use std::{
    ffi::OsStr,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::symlink},
    process::{Output, Stdio},
};

use snap_testkit::{
    bytes::Corpus,
    compare::{Options, compare},
    trees,
};

use crate::{
    env::{Ran, TestEnv},
    tools,
};

/// Returns true if a program is installed; otherwise reports that a test is skipped.
fn has(program: &str) -> bool {
    tools::find(program).is_some()
}

/// Commits the odd tree, with further entries that archives have failed on.
fn odd() -> TestEnv {
    let env = TestEnv::new();
    let odd = env.path("odd");
    trees::odd(&odd).unwrap();
    // Paths of about 1,000 and 2,000 bytes, in ASCII and in other characters.
    for folder in ["f".repeat(200), "\u{e4}".repeat(100)] {
        let path = odd.join("long").join(vec![folder; 5].join("/"));
        fs_err::create_dir_all(&path).unwrap();
        fs_err::write(path.join("file"), "at the end").unwrap();
        fs_err::hard_link(path.join("file"), path.join("second")).unwrap();
    }
    let bytes = OsStr::from_bytes(&[0xe9; 150]);
    let path = odd.join("long").join(bytes).join(bytes);
    fs_err::create_dir_all(&path).unwrap();
    fs_err::write(path.join("file"), "at the end").unwrap();
    fs_err::hard_link(path.join("file"), path.join("second")).unwrap();
    symlink(bytes, path.join("link")).unwrap();
    env.snap(["--store", "store", "init"]).succeeds();
    env.snap(["--store", "store", "commit", "odd"]).succeeds();
    env
}

fn export(env: &TestEnv, args: &[&str]) -> Ran {
    env.snap([&["--store", "store", "export", "latest"], args].concat()).succeeds()
}

/// Unpacks with a program that runs in the folder `into`.
fn unpack(env: &TestEnv, into: &str, program: &str, args: &[&str]) -> Output {
    fs_err::create_dir_all(env.path(into)).unwrap();
    let mut command = env.command_of(into, program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let output = command.env("PATH", path).env("LC_ALL", "C.UTF-8").args(args);
    let output = output.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Lists the differences from the source, except at the paths `but`.
fn differences(env: &TestEnv, unpacked: &str, options: &Options, but: &[&str]) -> Vec<String> {
    let found = compare(&env.path("odd"), &env.path(unpacked), options);
    let is_known = |line: &String| but.iter().any(|path| line.starts_with(&format!("{path:?}")));
    found.into_iter().filter(|line| !is_known(line)).collect()
}

/// Archives cannot hold sockets.
const SOCKET: &str = "special/socket";

/// bsdtar 3.7 reads -1.5 s as -0.5 s.
const NEGATIVE: [&str; 7] = [
    SOCKET,
    "times/before-1970",
    "times/before-1970-folder",
    "times/before-1970-link",
    "times/just-before-1970",
    "times/just-before-1970-folder",
    "times/just-before-1970-link",
];

/// Compares everything except the attributes of the root folder. Owners are compared only for root,
/// because other users cannot set them.
fn everything() -> Options {
    Options { root: false, owner: rustix::process::geteuid().is_root(), ..Options::default() }
}

#[test]
fn gnu_tar_unpacks_everything() {
    if !has("tar") || !has("zstd") {
        return;
    }
    let env = odd();
    for name in ["x.tar", "x.tar.zst"] {
        let said = export(&env, &["-o", name]);
        assert!(said.stderr.contains("skipped 1 socket"), "{said}");
        let into = format!("{name}.d");
        let archive = format!("../{name}");
        let args = ["--xattrs", "--xattrs-include=*", "--acls", "-xpf", &archive];
        let output = unpack(&env, &into, "tar", &args);
        let told = String::from_utf8(output.stderr).unwrap();
        let odd_times = |line: &str| line.contains("in the future") || line.contains("implausibly");
        assert!(told.lines().all(odd_times), "{told}");
        assert_eq!(differences(&env, &into, &everything(), &[SOCKET]), [""; 0]);
    }
}

#[test]
fn bsdtar_unpacks_everything() {
    if !has("bsdtar") {
        return;
    }
    let env = odd();
    for name in ["x.tar", "x.tar.zst"] {
        export(&env, &["-o", name]);
        let into = format!("{name}.d");
        let output = unpack(&env, &into, "bsdtar", &["-xpf", &format!("../{name}")]);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(differences(&env, &into, &everything(), &NEGATIVE), [""; 0]);
    }
}

#[test]
fn python_reads_the_tar_archive() {
    if !has("python3") {
        return;
    }
    let env = odd();
    export(&env, &["-o", "x.tar"]);
    let script = "import tarfile; tarfile.open('../x.tar', errors='surrogateescape')\
                  .extractall(filter='fully_trusted')";
    unpack(&env, "a", "python3", &["-c", script]);
    // It does not restore attributes, stores times as floating point, and writes holes as zeros.
    let options = Options { attributes: false, times: false, ..everything() };
    assert_eq!(differences(&env, "a", &options, &[SOCKET]), [""; 0]);
}

/// Compares what zip keeps of [`everything`]. Times, which have whole seconds, are checked
/// separately.
fn of_zip() -> Options {
    Options { times: false, attributes: false, hard_links: false, sparse: false, ..everything() }
}

const NOT_IN_ZIP: [&str; 4] =
    [SOCKET, "special/fifo", "special/character-device", "special/block-device"];

/// Names of the tree that a zip archive rewrites, because Windows would interpret them.
const REWRITTEN: [(&str, &str); 4] = [
    (" leading and trailing%20", " leading and trailing "),
    ("..%2E", "..."),
    ("back%5Cslash", "back\\slash"),
    ("semi;colon%3Aat@percent%25", "semi;colon:at@percent%"),
];

fn undo_rewriting(env: &TestEnv, unpacked: &str) {
    for (written, name) in REWRITTEN {
        let path = |name: &str| env.path(format!("{unpacked}/names/{name}"));
        fs_err::rename(path(written), path(name)).unwrap();
    }
}

#[test]
fn unzip_unpacks_what_zip_can_hold() {
    if !has("unzip") {
        return;
    }
    let env = odd();
    let said = export(&env, &["-o", "x.zip"]);
    let names = "rewrote 4 names";
    for lost in ["socket", "pipe", "extended attributes of 2 entries", "hard links", names] {
        assert!(said.stderr.contains(lost), "{said}");
    }
    // -X restores owners, -K keeps setuid and similar bits, -^ allows control characters in names.
    unpack(&env, "a", "unzip", &["-q", "-X", "-K", "-^", "../x.zip"]);
    undo_rewriting(&env, "a");
    assert_eq!(differences(&env, "a", &of_zip(), &NOT_IN_ZIP), [""; 0]);
    let seconds = |path: &str| {
        let modified = fs_err::metadata(env.path(path)).unwrap().modified().unwrap();
        modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    };
    for path in ["times/nanoseconds", "times/epoch", "times/nanoseconds-folder"] {
        assert_eq!(seconds(&format!("a/{path}")), seconds(&format!("odd/{path}")), "{path}");
    }
    unpack(&env, "b", "unzip", &["-qt", "../x.zip"]);
}

#[test]
fn python_and_bsdtar_read_the_zip_archive() {
    if !has("python3") || !has("bsdtar") {
        return;
    }
    let env = odd();
    export(&env, &["-o", "x.zip"]);
    unpack(&env, "a", "bsdtar", &["-xpf", "../x.zip"]);
    undo_rewriting(&env, "a");
    // It converts names in UTF-8 to their composed form.
    let but = [&NOT_IN_ZIP[..], &["names/cafe\u{301}"]].concat();
    assert_eq!(differences(&env, "a", &of_zip(), &but), [""; 0]);
    let script = "import zipfile, os, urllib.parse; z = zipfile.ZipFile('../x.zip'); assert z.testzip() is None\n\
                 for i in z.infolist():\n\
                 \x20 n = i.filename.encode('utf-8' if i.flag_bits & 2048 else 'cp437')\n\
                 \x20 if n.endswith(b'/') or i.external_attr >> 28 == 10: continue\n\
                 \x20 f = os.path.join(b'../odd', urllib.parse.unquote_to_bytes(n))\n\
                 \x20 assert open(f, 'rb').read() == z.read(i), n\n\
                 \x20 assert os.stat(f).st_mode == i.external_attr >> 16, n";
    unpack(&env, "a", "python3", &["-c", script]);
}

/// Makes a few files, one of them larger than a chunk and of all kinds of content.
fn few() -> TestEnv {
    let env = TestEnv::new();
    env.write("home/notes.txt", "notes");
    env.write("home/sub/more.txt", "more");
    let parts = [Corpus::Text, Corpus::Random, Corpus::Zeros, Corpus::Source];
    env.write("home/large", parts.map(|corpus| corpus.make(2_500_000)).concat());
    env.snap(["--store", "store", "init"]).succeeds();
    env.snap(["--store", "store", "commit", "home"]).succeeds();
    env
}

/// Returns the archive that these arguments write to stdout.
fn stdout(env: &TestEnv, args: &[&str]) -> Vec<u8> {
    let args = [&["--store", "store", "export", "-o", "-"], args].concat();
    let output = env.command("").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn listed(env: &TestEnv, archive: &str) -> String {
    let output = unpack(env, "", "bsdtar", &["-tf", archive]);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_same_snapshot_gives_the_same_bytes() {
    let env = few();
    for format in ["tar", "tar.zst", "zip"] {
        let first = stdout(&env, &["latest", "--format", format]);
        let name = format!("x.{format}");
        export(&env, &["-o", &name]);
        assert!(fs_err::read(env.path(&name)).unwrap() == first, "{format}");
        // Approximates a single processor by one thread.
        let mut command = env.command("");
        let args = ["--store", "store", "export", "latest", "-o", "-", "--format", format];
        let output = command.env("RAYON_NUM_THREADS", "1").args(args).output().unwrap();
        assert!(output.stdout == first, "{format}");
    }
}

#[test]
fn the_form_follows_from_the_name_of_the_file() {
    let env = few();
    let starts = |path: &str, magic: &[u8], at: usize| {
        let bytes = fs_err::read(env.path(path)).unwrap();
        assert_eq!(&bytes[at..at + magic.len()], magic, "{path}");
    };
    insta::assert_snapshot!(export(&env, &["-o", "a.tar"]), @r"
    exit: 0
    --- stderr ---
    Exported 3 files and 1 other entry, 9.5 MiB, to a.tar (9.6 MiB)
    ");
    export(&env, &["-o", "A.TAR.ZST"]);
    export(&env, &["-o", "a.tzst", "--level", "19"]);
    export(&env, &["-o", "a.zip", "--level", "0"]);
    export(&env, &["-o", "a.bin", "--format", "zip"]);
    starts("a.tar", b"ustar\x0000", 257);
    starts("A.TAR.ZST", &[0x28, 0xb5, 0x2f, 0xfd], 0);
    starts("a.tzst", &[0x28, 0xb5, 0x2f, 0xfd], 0);
    starts("a.zip", b"PK\x03\x04", 0);
    starts("a.bin", b"PK\x03\x04", 0);
    assert_eq!(stdout(&env, &["latest"])[257..262], *b"ustar");
    let size = |path: &str| fs_err::metadata(env.path(path)).unwrap().len();
    assert!(size("a.tzst") < size("A.TAR.ZST"));
    assert!(size("a.bin") < size("a.zip"));
    let refused =
        |args: &[&str]| env.snap([&["--store", "store", "export", "latest"], args].concat());
    insta::assert_snapshot!(refused(&["-o", "a.rar"]), @"
    exit: 2
    --- stderr ---
    error: cannot infer the archive format from `a.rar`
    hint: pass --format tar, tar.zst or zip
    hint: end the file name in .tar, .tar.zst or .zip
    ");
    insta::assert_snapshot!(refused(&["-o", "b.tar", "--level", "3"]), @r"
    exit: 2
    --- stderr ---
    error: tar does not support compression level 3
    hint: tar is not compressed; use .tar.zst
    ");
    insta::assert_snapshot!(refused(&["-o", "b.zip", "--level", "10"]), @r"
    exit: 2
    --- stderr ---
    error: zip does not support compression level 10
    hint: zip supports 0 (not compressed) to 9 (smallest)
    ");
    insta::assert_snapshot!(refused(&["-o", "b.tar.zst", "--level", "-1"]), @r"
    exit: 2
    --- stderr ---
    error: tar.zst does not support compression level -1
    hint: tar.zst supports 1 (fastest) to 19 (smallest)
    ");
    insta::assert_snapshot!(refused(&["-o", "-", "--json"]), @r#"
    exit: 2
    --- stderr ---
    {"version":1,"type":"error","message":"--json and `-o -` both write to stdout","causes":[],"hints":[],"exit":2,"code":"usage","retry":false}
    "#);
    insta::assert_snapshot!(refused(&["-o", "b.tar", "--prefix", "../up"]), @"
    exit: 2
    --- stderr ---
    error: --prefix requires a relative path
      caused by: an entry name is `.` or `..`
    hint: --prefix is a folder in the archive, such as project-1.0
    ");
}

#[test]
fn a_folder_or_a_file_can_be_exported_alone_and_into_a_folder() {
    if !has("bsdtar") {
        return;
    }
    let env = few();
    for ending in ["tar", "zip"] {
        let name = |what: &str| format!("{what}.{ending}");
        let snap = |what: &str, args: &[&str]| {
            let args = [&["--store", "store", "export", what, "-o"], args].concat();
            env.snap(args).succeeds()
        };
        snap("latest:sub", &[&name("sub")]);
        assert_eq!(listed(&env, &name("sub")), "more.txt\n");
        snap("latest:sub/more.txt", &[&name("one"), "--prefix", "a/b"]);
        assert_eq!(listed(&env, &name("one")), "a/b/\na/b/more.txt\n");
        snap("latest", &[&name("all"), "--prefix", "home-1.0/"]);
        let all =
            "home-1.0/\nhome-1.0/large\nhome-1.0/notes.txt\nhome-1.0/sub/\nhome-1.0/sub/more.txt\n";
        assert_eq!(listed(&env, &name("all")), all);
        unpack(&env, ending, "bsdtar", &["-xpf", &format!("../{}", name("all"))]);
        let options = if ending == "zip" { of_zip() } else { Options::default() };
        let unpacked = env.path(format!("{ending}/home-1.0"));
        assert_eq!(compare(&env.path("home"), &unpacked, &options), [""; 0]);
    }
}

#[test]
fn without_a_revision_the_last_snapshot_is_exported() {
    let env = few();
    env.write("home/later", "2");
    env.snap(["--store", "store", "commit", "-q", "home"]).succeeds();
    env.snap(["--store", "store", "export", "-q", "-o", "default.tar"]).succeeds();
    export(&env, &["-q", "-o", "latest.tar"]);
    env.snap(["--store", "store", "export", "-q", "latest~1", "-o", "before.tar"]).succeeds();
    let [default, latest, before] = ["default.tar", "latest.tar", "before.tar"]
        .map(|file| fs_err::read(env.path(file)).unwrap());
    assert!(default == latest && default != before);
}

#[test]
fn what_is_there_is_replaced_only_when_told_to() {
    let env = few();
    env.write("x.tar", "mine");
    let again =
        |args: &[&str]| env.snap([&["--store", "store", "export", "latest"], args].concat());
    insta::assert_snapshot!(again(&["-o", "x.tar"]), @r"
    exit: 1
    --- stderr ---
    error: `x.tar` already exists
    hint: name another file with `-o FILE`
    hint: --force replaces it
    ");
    assert_eq!(env.read("x.tar"), "mine");
    again(&["-o", "x.tar", "--force"]).succeeds();
    assert_eq!(fs_err::read(env.path("x.tar")).unwrap()[257..262], *b"ustar");
    insta::assert_snapshot!(again(&["-o", "home", "--format", "tar"]), @r"
    exit: 1
    --- stderr ---
    error: cannot write home
      caused by: Is a directory (os error 21)
    ");
    insta::assert_snapshot!(again(&["-o", "none/x.tar"]), @r"
    exit: 1
    --- stderr ---
    error: cannot create a file beside none/x.tar
      caused by: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(again(&["-o", "/dev/full", "--format", "tar"]), @"
    exit: 1
    --- stderr ---
    error: cannot export to /dev/full
      caused by: No space left on device (os error 28)
    hint: free some space, and run the command again
    hint: in a store, `snap forget` and then `snap gc --now` free space
    ");
    // A device is written to, not replaced.
    again(&["-o", "/dev/null", "--format", "tar", "--force"]).succeeds();
    assert!(!fs_err::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn an_outcome_is_told_in_json_and_what_was_lost_by_name() {
    let env = TestEnv::new();
    env.write("home/a", "a");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        env.path("home/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    fs_err::hard_link(env.path("home/a"), env.path("home/b")).unwrap();
    env.snap_in("home", ["commit"]).succeeds();
    insta::assert_snapshot!(env.snap_in("home", ["export", "latest", "-o", "x.zip", "--json"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"exported","file":"x.zip","format":"zip","entries":2,"files":2,"bytes":2,"archive_bytes":276,"left_out":{"sockets":0,"fifos":1,"devices":0,"attributes":0,"links":1,"names":0,"stores":0}}
    --- stderr ---
    {"version":1,"type":"message","message":"Exported 2 files, 2 B, to x.zip (276 B)"}
    {"version":1,"type":"warning","message":"skipped 1 pipe"}
    {"version":1,"type":"warning","message":"stored files again for 1 hard link"}
    "#);
    insta::assert_snapshot!(env.snap_in("home", ["export", "latest", "-o", "y.zip", "-v"]), @r"
    exit: 0
    --- stderr ---
    stored a file again for another hard link: b
    skipped a pipe: pipe
    Exported 2 files, 2 B, to y.zip (276 B)
    warning: skipped 1 pipe
    warning: stored files again for 1 hard link
    ");
    insta::assert_snapshot!(env.snap_in("home", ["export", "latest", "-o", "x.tar", "-v"]), @r"
    exit: 0
    --- stderr ---
    Exported 2 files and 1 other entry, 1 B, to x.tar (10.0 KiB)
    ");
    insta::assert_snapshot!(env.snap_in("home", ["export", "latest", "-o", "y.tar", "-q"]), @"exit: 0");
}

#[test]
fn an_empty_snapshot_is_an_empty_archive() {
    if !has("bsdtar") {
        return;
    }
    let env = TestEnv::new();
    fs_err::create_dir(env.path("none")).unwrap();
    env.snap(["--store", "store", "init"]).succeeds();
    env.snap(["--store", "store", "commit", "none"]).succeeds();
    for name in ["x.tar", "x.tar.zst", "x.zip"] {
        export(&env, &["-o", name]);
        assert_eq!(listed(&env, name), "");
    }
}

#[test]
fn damage_is_named_and_no_archive_appears() {
    for (file, at) in [("a", 20), ("large", 60_000)] {
        let env = TestEnv::new();
        env.write("a", "content of a");
        if file == "large" {
            env.write("large", Corpus::Random.make(5_000_000));
        }
        env.snap(["commit"]).succeeds();
        for pack in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
            let pack = pack.unwrap().path();
            let mut bytes = fs_err::read(&pack).unwrap();
            bytes[at] ^= 1;
            env.mode(&pack, 0o644);
            fs_err::write(&pack, bytes).unwrap();
        }
        for name in ["x.tar", "x.tar.zst", "x.zip"] {
            let before = fs_err::read_dir(env.path("")).unwrap().count();
            let said = env.snap(["export", "HEAD", "-o", name]);
            assert_eq!(said.code, Some(4), "{said}");
            let first = format!("error: cannot export `{file}`\n  caused by: pack ");
            assert!(said.stderr.starts_with(&first), "{said}");
            assert!(said.stderr.contains("hint: `snap verify --data`"), "{said}");
            assert_eq!(fs_err::read_dir(env.path("")).unwrap().count(), before);
        }
    }
}

#[test]
fn a_receiver_that_is_full_is_an_error_and_one_that_went_away_is_none() {
    let env = few();
    let export = |format: &str| {
        let mut command = env.command("");
        command.args(["--store", "store", "export", "latest", "-o", "-", "--format", format]);
        command
    };
    for format in ["tar", "tar.zst", "zip"] {
        let full = fs_err::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = export(format).stdout(full.into_parts().0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("error: cannot export to stdout\n  caused by: No space"),
            "{said}"
        );

        let mut child =
            export(format).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut start = [0; 100];
        child.stdout.take().unwrap().read_exact(&mut start).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn an_archive_without_owners_gives_no_rights_of_whoever_unpacks_it() {
    let env = TestEnv::new();
    env.write("project/s", "x");
    env.mode("project/s", 0o6755);
    env.snap_in("project", ["commit", "--reproducible"]).succeeds();
    env.snap_in("project", ["export", "HEAD", "-o", "../s.tar"]).succeeds();
    let header = fs_err::read(env.path("s.tar")).unwrap();
    let at = header.windows(2).position(|name| name == b"s\0").unwrap();
    assert_eq!(&header[at + 100..at + 107], b"0000755");
}
