//! A folder of realistic stores, for screenshots and browser tests of the pages.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use snap_core::{
    base::{id::CommitId, observe::Silent, time::Time},
    disk::Disk,
    ops::{
        commit::{self, CommitOptions, CommitSource},
        verify::{self, Data, VerifyOptions},
    },
    repo::{
        Config, Repo,
        ref_name::{RefKind, RefName},
        refs::RefLogMessage,
    },
};
use tempfile::TempDir;

use crate::hostile::PNG;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

struct Author<'a> {
    repo: &'a Repo,
    folder: &'a Path,
    /// The files that were written since the last commit.
    written: RefCell<Vec<PathBuf>>,
}

impl Author<'_> {
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.folder.join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, bytes).unwrap();
        self.written.borrow_mut().push(path);
    }

    fn commit(&self, (who, host): (&str, &str), age_secs: i64, message: &str) -> CommitId {
        self.labelled((who, host), age_secs, message, &[])
    }

    fn labelled(
        &self,
        (who, host): (&str, &str),
        age_secs: i64,
        message: &str,
        labels: &[(&str, &str)],
    ) -> CommitId {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let time = Some(Time { secs: Time::now().secs - age_secs, nanos: 0 });
        let changed = SystemTime::now() - Duration::from_secs(age_secs.unsigned_abs() + 60);
        for path in self.written.take() {
            for path in path.ancestors().take_while(|path| path.starts_with(self.folder)) {
                fs_err::File::open(path).unwrap().file().set_modified(changed).unwrap();
            }
        }
        let (message, author, host) = (message.into(), who.into(), host.into());
        let options =
            CommitOptions { message, labels, author, host, time, ..CommitOptions::default() };
        let source = CommitSource::Folder(self.folder.to_owned());
        commit::run(self.repo, source, &options, &Silent).unwrap().id.unwrap()
    }

    fn tag(&self, name: &str, id: CommitId) {
        self.name(&RefName::tag(name).unwrap(), id);
    }

    fn branch(&self, name: &str, id: CommitId) {
        self.name(&RefName::branch(name).unwrap(), id);
    }

    fn name(&self, name: &RefName, id: CommitId) {
        let change = RefLogMessage { time: Time::now(), who: "ada", reason: "push" };
        self.repo.refs().update(name, None, Some(id), &change).unwrap();
    }

    /// Makes the logs say that each branch was pushed by the author of its commit, at the time of
    /// the commit.
    fn push_all(&self) {
        for (name, id) in self.repo.refs().list(RefKind::Branch).unwrap() {
            let commit = self.repo.store().commit(&id).unwrap();
            let line = format!("{}\t-\t{id}\t{}\tpush\n", commit.time.decimal(), commit.author);
            fs_err::write(name.log_file(self.repo.dir()), line).unwrap();
        }
    }
}

/// Returns bytes that do not compress.
fn noise(seed: u32, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..bytes).map(step).collect()
}

fn page(title: &str, paragraphs: usize) -> String {
    let mut text = format!("<!doctype html>\n<title>{title}</title>\n<main>\n");
    for number in 0..paragraphs {
        let _ =
            writeln!(text, "  <p>Paragraph {number} of {title}, which goes on for a while.</p>");
    }
    text + "</main>\n"
}

fn visits(lines: u32) -> String {
    let mut text = String::from("day,page,visits\n");
    for line in 0..lines {
        let _ = writeln!(
            text,
            "2026-{:02}-{:02},/page/{},{}",
            line % 12 + 1,
            line % 28 + 1,
            line % 97,
            line * 7 % 1013
        );
    }
    text
}

const MAIN: &str = r#"//! A small server for the website.

use std::{env, net::TcpListener, process::ExitCode};

/// Where it listens unless told otherwise.
const ADDRESS: &str = "127.0.0.1:8080";

fn main() -> ExitCode {
    let address = env::args().nth(1).unwrap_or_else(|| ADDRESS.to_owned());
    // Print the address, so that the user can open it.
    match TcpListener::bind(&address) {
        Ok(listener) => {
            println!("http://{address}/");
            for stream in listener.incoming().flatten() {
                answer(stream);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{address}: {error}");
            ExitCode::from(2)
        }
    }
}
"#;

const README: &str = "\
# Website

The pages that [people asked for](pages/about.html), and a **small server** for them.

## Start it

1. Install Rust.
2. Run the server, and open <http://127.0.0.1:8080/>:

   ```sh
   cargo run -- 127.0.0.1:8080
   ```

## What is where

| folder | content | files |
|---|---|--:|
| [`pages`](pages) | the text of the pages | 3 |
| [`pictures`](pictures) | the logo, and photographs | 3 |
| `data` | visits by day, from the log of ~~the old~~ the server | 1 |

### Left to do

- [x] A way to reach us
- [ ] A search, see [the source](src/main.rs#L8)

> The photographs may be used by anyone who says where they come from.
";

/// Creates three repositories, one of which has a history and was verified.
pub(crate) fn make() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let dir = place.path().join(name);
        fs_err::create_dir_all(dir.parent().unwrap()).unwrap();
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();
        Repo::open(&dir, Disk::default(), &Silent).unwrap()
    };
    website(&Author {
        repo: &open("team/website"),
        folder: &work.path().join("website"),
        written: RefCell::default(),
    });
    birds(&Author {
        repo: &open("datasets/birds"),
        folder: &work.path().join("birds"),
        written: RefCell::default(),
    });
    open("notes");
    place
}

fn website(author: &Author<'_>) {
    let (ada, grace) = (("ada", "laptop"), ("grace", "build-2"));
    author.write("README.md", README);
    author.write("src/main.rs", MAIN.replace("http://", ""));
    author.write("Cargo.toml", "[package]\nname = \"website\"\nversion = \"0.9.0\"\n");
    author.write("pages/index.html", page("Home", 40));
    author.commit(ada, 41 * DAY, "A page that says hello");
    author.write("pages/about.html", page("About us", 80));
    author.write("pictures/logo.png", PNG);
    author.write("pictures/header.jpg", noise(1, 380_000));
    author.commit(
        ada,
        33 * DAY,
        "The pages that people asked for\n\nWith pictures, as they come from the camera.",
    );
    author.write("dist/website", noise(2, 3_000_000));
    author.write("data/visits.csv", visits(40_000));
    let first = author.labelled(grace, 26 * DAY, "Build 118", &[("ci", "118"), ("os", "linux")]);
    author.tag("v1.0", first);
    author.write("src/main.rs", MAIN);
    let link = author.commit(ada, 9 * DAY, "Print the address as a link");
    author.branch("redesign", link);
    author.write("dist/website", [&noise(2, 2_500_000)[..], &noise(3, 400_000)].concat());
    let second = author.labelled(grace, 8 * DAY, "Build 132", &[("ci", "132"), ("os", "linux")]);
    author.tag("v1.1", second);
    author.write(
        "pages/index.html",
        page("Home", 44).replace("Paragraph 3 ", "The third paragraph "),
    );
    author.write("pages/contact.html", page("Contact", 12));
    author.write("data/visits.csv", visits(60_000));
    author.commit(ada, 2 * DAY, "A way to reach us");
    author.write("pictures/small/header.jpg", noise(4, 60_000));
    author.write("src/main.rs", MAIN.replace("ExitCode::from(2)", "ExitCode::FAILURE"));
    author.commit(ada, 3 * HOUR, "Serve pictures in their own size");
    author.push_all();
    verify::run(author.repo, &VerifyOptions { data: Data::All }, &Silent).unwrap();
}

fn birds(author: &Author<'_>) {
    let host = ("linus", "gpu-1");
    author.write("labels.csv", "file,species\n0001.jpg,wren\n".repeat(400));
    for number in 0..12 {
        author.write(&format!("images/{number:04}.jpg"), noise(number + 10, 90_000));
    }
    author.commit(host, 70 * DAY, "The first thousand");
    author.write("labels.csv", "file,species\n0001.jpg,robin\n".repeat(420));
    author.commit(host, 5 * DAY, "Labels that were wrong");
    author.push_all();
}
