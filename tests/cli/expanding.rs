//! A tree of a few kilobytes that names one folder many times on each level, and so expands to
//! 16^24 files. Every walk over it must use little memory, and stop when its client disconnects.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use snap_core::{
    base::{
        id::{BlobId, CommitId, TreeId},
        name::EntryName,
        observe::Silent,
        time::Time,
    },
    disk::Disk,
    format::{
        commit::Commit,
        tree::{Entry, EntryKind, Metadata, Node, Totals},
    },
    repo::{Repo, ref_name::RefName, refs::RefLogMessage},
    store::ObjectWriter,
};
use snap_testkit::{
    alone::peak_bytes_of,
    wait::{PATIENCE, until},
};

use crate::{
    env::TestEnv,
    serve::{Serving, commit},
};

/// Number of folders in each folder, and depth: 16^24 files.
const WIDTH: usize = 16;
const LEVELS: usize = 24;

/// Memory limit of a process.
const MOST_BYTES: u64 = 256 << 20;

/// A client disconnects after this many bytes of a response, or when the server has used this much
/// processor time for it (in hundredths of a second): some responses would never begin.
const READ_BYTES: usize = 4 << 20;
const MOST_TICKS: u64 = 200;

fn entry(name: &str, kind: EntryKind) -> Entry {
    let metadata = Metadata { mode: 0o755, ..Metadata::default() };
    Entry { name: EntryName::new(name.as_bytes()).unwrap(), kind, metadata }
}

/// Builds the tree. Its deepest folders have one file with the given content; the names of folders
/// end with `ending`.
fn expanding(
    writer: &ObjectWriter<'_>,
    (id, size): (BlobId, u64),
    ending: &str,
) -> (TreeId, Totals) {
    let file = entry("f", EntryKind::File { size, id: id.into() });
    let mut totals = Totals::default();
    totals.count(&file.kind);
    let mut entries = vec![file];
    for _ in 0..LEVELS {
        let bytes = Node::Leaf { totals, entries }.encode();
        let id = TreeId::of(&bytes);
        writer.add_tree(id, &bytes).unwrap();
        let folder = |at| entry(&format!("d{at:02}{ending}"), EntryKind::Folder { id });
        entries = (0..WIDTH).map(folder).collect();
        let below = totals;
        totals = Totals::default();
        for entry in &entries {
            totals.count(&entry.kind);
            totals.add(&below);
        }
    }
    let bytes = Node::Leaf { totals, entries }.encode();
    let id = TreeId::of(&bytes);
    writer.add_tree(id, &bytes).unwrap();
    (id, totals)
}

/// Puts two commits of such trees on a branch of the store in `here`. The second one differs in the
/// content of the one file, and therefore in every folder.
fn two_commits(env: &TestEnv, ending: &str) -> [CommitId; 2] {
    commit(env, "here", "first\n");
    commit(env, "here", "second\n");
    let repo = Repo::open(&env.path("here/.snap"), Disk::default(), &Silent).unwrap();
    let mut parents = Vec::new();
    let ids = ["first\n", "second\n"].map(|content| {
        let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
        let id = BlobId::of(content.as_bytes());
        let (tree, totals) = expanding(&writer, (id, content.len() as u64), ending);
        let made = Commit {
            tree,
            parents: parents.clone(),
            time: Time { secs: 1_795_000_000, nanos: 0 },
            author: "eve".into(),
            host: "box".into(),
            message: content.into(),
            labels: BTreeMap::new(),
            root: None,
            totals,
            selection: Default::default(),
        };
        let bytes = made.encode();
        let id = CommitId::of(&bytes);
        writer.add_commit(id, &bytes).unwrap();
        writer.finish().unwrap();
        parents = vec![id];
        id
    });
    let change = RefLogMessage { time: Time::now(), who: "eve", reason: "test" };
    let name = RefName::parse_full("refs/heads/wide").unwrap();
    repo.refs().update(&name, None, Some(ids[1]), &change).unwrap();
    ids
}

/// Returns the processor time of a process, in hundredths of a second.
fn ticks(process: u32) -> u64 {
    let stat = fs_err::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Sends a request. Each read of the response waits no longer than `patience`.
fn request(serving: &Serving, path: &str, patience: Duration) -> TcpStream {
    let mut stream = TcpStream::connect(serving.address()).unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

/// Sends a request, reads a part of the response, and disconnects. Returns what was read.
fn begin(serving: &Serving, path: &str) -> Vec<u8> {
    let mut stream = request(serving, path, Duration::from_millis(100));
    let start = ticks(serving.process());
    let (mut came, mut piece) = (Vec::new(), vec![0; 1 << 20]);
    until(&format!("{path}: the server responds or computes"), || {
        match stream.read(&mut piece) {
            Ok(0) => return true,
            Ok(bytes) => came.extend_from_slice(&piece[..bytes]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{path}"),
        }
        came.len() >= READ_BYTES || ticks(serving.process()) - start >= MOST_TICKS
    });
    came
}

/// Sends a request, and returns the status of the response.
fn status(serving: &Serving, path: &str) -> String {
    let mut line = String::new();
    BufReader::new(request(serving, path, PATIENCE)).read_line(&mut line).unwrap();
    line[9..12].to_owned()
}

/// Uses the processor for a tenth of a second.
fn compute() {
    let used = || clock_gettime(ClockId::ThreadCPUTime);
    let begin = used();
    while Duration::try_from(used() - begin).unwrap() < Duration::from_millis(100) {
        std::hint::spin_loop();
    }
}

/// Waits until the server has stopped working for a disconnected client: until it computes much
/// less than this thread does in the same time. Meanwhile the server must answer other clients.
fn await_rest(serving: &Serving, path: &str) {
    until(&format!("{path}: the server stops working for a client that disconnected"), || {
        assert_eq!(status(serving, "/health"), "200");
        let before = ticks(serving.process());
        compute();
        ticks(serving.process()) - before < 3
    });
}

#[test]
fn no_route_takes_much_memory_for_a_tree_that_expands_without_end() {
    let env = TestEnv::new();
    let [old, new] = two_commits(&env, "");
    let serving = Serving::start(&env, "here");
    let api = "/v1/repos/default";
    let deep = "d00/".repeat(LEVELS);
    for path in [
        format!("{api}/find?pattern=*&limit=1&commit=wide"),
        format!("{api}/find?pattern=*&limit=1000&commit=wide"),
        format!("{api}/find?pattern=*&cursor={new}.100000"),
        format!("{api}/find?pattern=f&limit=1000&commit=wide"),
        format!("{api}/find?pattern=**/d1%3F/*/f&commit=wide"),
        format!("{api}/find?pattern=nothing&commit=wide"),
        format!("{api}/diff?to={new}&limit=1"),
        format!("{api}/diff?to={new}&limit=1000"),
        format!("{api}/diff?from={old}&to=main&limit=1000"),
        format!("{api}/log?ref=wide"),
        format!("{api}/log?ref=wide&path={deep}f"),
        format!("{api}/log?ref=wide&path=d07"),
        format!("{api}/stats?ref=wide"),
        format!("{api}/commits/{new}"),
        format!("{api}/commits/{new}/tree"),
        format!("{api}/commits/{new}/tree?recursive=false"),
        format!("{api}/commits/{new}/tree/d00/d01"),
        format!("{api}/commits/{new}/files/{deep}f"),
        format!("{api}/commits/{new}/archive.tar"),
        format!("{api}/commits/{new}/archive.tar.zst"),
        format!("{api}/commits/{new}/archive.zip"),
        format!("{api}/commits/{new}/bundle"),
        "/r/default?ref=wide".to_owned(),
        format!("/r/default/c/{new}"),
        format!("/r/default/c/{new}/d00/d01"),
        format!("/r/default/c/{new}/{deep}f"),
        format!("/r/default/history/{new}/d07"),
        format!("/r/default/history/{new}/{deep}f"),
        format!("/r/default/diff?from={old}&to={new}"),
        "/r/default/search?q=f".to_owned(),
        "/r/default/search?q=nothing".to_owned(),
        "/r/default/refs".to_owned(),
        "/r/default/stats".to_owned(),
        "/r/default/stats?ref=wide".to_owned(),
    ] {
        let came = begin(&serving, &path);
        let is_answer = match came.get(9..12) {
            // Such a zip archive is refused before its first byte.
            Some(status) if path.ends_with(".zip") => status == b"400",
            Some(status) => [b"200", b"404"].iter().any(|wanted| status == *wanted),
            None => !path.ends_with(".zip"),
        };
        assert!(is_answer, "{path}: {}", String::from_utf8_lossy(&came));
        let peak = peak_bytes_of(serving.process());
        assert!(peak < MOST_BYTES, "{} MiB after {path}", peak >> 20);
        // Pages start a measurement of the store's growth in the background. All clients share it,
        // and its time is limited, so it need not stop here.
        if path.starts_with(api) {
            await_rest(&serving, &path);
        }
    }
    let left = fs_err::read_dir(env.path("here/.snap/tmp")).unwrap().count();
    assert_eq!(left, 0, "spooled data is removed when its reader disconnects");
    let path = format!("{api}/find?pattern=*&limit=1&commit=wide");
    let mut page = String::new();
    request(&serving, &path, PATIENCE).read_to_string(&mut page).unwrap();
    assert!(page.contains("\"path\":\"d00\"") && page.contains("\"next\""), "{page}");
}

/// Number of clients that request a long response and read nothing of it, and the memory limit of
/// the server meanwhile. All responses together have 1 GiB.
const SLOW_CLIENTS: usize = 100;
const MOST_FOR_SLOW_BYTES: u64 = 512 << 20;

#[test]
fn long_answers_that_nobody_takes_are_made_for_a_few_at_a_time() {
    let env = TestEnv::new();
    let [old, new] = two_commits(&env, &"x".repeat(240));
    let serving = Serving::start(&env, "here");
    for path in [
        "/v1/repos/default/find?pattern=*&limit=1000&commit=wide".to_owned(),
        format!("/r/default/diff?from={old}&to={new}"),
        "/r/default/search?q=*".to_owned(),
    ] {
        let clients: Vec<TcpStream> =
            (0..SLOW_CLIENTS).map(|_| request(&serving, &path, PATIENCE)).collect();
        // Each client gets a response, the start of one, or status 503.
        let mut refused = 0;
        for mut client in &clients {
            let mut status = [0; 12];
            client.read_exact(&mut status).unwrap();
            refused += usize::from(status.ends_with(b"503"));
        }
        assert!(refused < SLOW_CLIENTS, "{path}: no client got a response");
        let peak = peak_bytes_of(serving.process());
        assert!(peak < MOST_FOR_SLOW_BYTES, "{} MiB after {path}", peak >> 20);
        drop(clients);
        await_rest(&serving, &path);
        assert_eq!(status(&serving, &path), "200", "{path}");
    }
}

#[test]
fn a_local_search_takes_little_memory_for_a_tree_that_expands_without_end() {
    let env = TestEnv::new();
    two_commits(&env, "");
    for (pattern, lines) in [("*", 200_000), ("f", 50_000)] {
        let mut command: Command = env.command("here");
        let command = command.args(["find", pattern, "wide"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = Vec::new();
        for at in 0..lines {
            line.clear();
            assert_ne!(out.read_until(b'\n', &mut line).unwrap(), 0, "ended at line {at}");
        }
        let peak = peak_bytes_of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(peak < MOST_BYTES, "{} MiB for {pattern}", peak >> 20);
    }
    let none = env.snap_in("here", ["find", "nothing", "wide"]).succeeds();
    assert!(none.stderr.contains("matches nothing"), "{}", none.stderr);
}
