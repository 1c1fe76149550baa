//! The examples of `README.md` and of the pages in `docs/`: each command is run, each shown output
//! is compared, each link leads somewhere.
//!
//! The steps of a page run in order in one bash, which starts in an empty home folder:
//!
//! | in the page | what the test does |
//! |---|---|
//! | a block `console` | runs each `$ command`; if lines follow, it prints these; `...` stands for any lines |
//! | a block `sh` | runs the block; each command in it must succeed |
//! | a comment `<!-- run … -->`, which readers do not see | runs it like a block `sh` |
//! | a table with a column `snap` | runs each code span of that column, which must succeed |
//! | other code spans that begin with `snap ` | checks that the command line accepts them |
//!
//! Commands print to a terminal of 80 columns without colours, as in the pages.
//!
//! A command in a block `console` may fail only if its output has a line that begins like one of
//! [`FAILURES`]. Ids, sizes, times and rates may differ from the page.
//!
//! `s3://bucket` is a bucket in memory. Absolute folders such as `/srv` lie in the folder of the
//! test ([`FOLDERS`]). `snap serve` runs in the background on a free port, and
//! `127.0.0.1:7627` and `https://snap.example.org` lead there. Programs of the system, such as
//! `systemctl`, are replaced by scripts ([`STAND_INS`]).
//!
//! `SNAP_UPDATE_DOCS=1` writes the outputs into the pages.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    ops::Range,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use snap_nettest::{S3Options, S3Server};

use crate::{
    env::{TestEnv, steady},
    tools,
};

/// Pages that a test writes, from the sources of the program.
const GENERATED: [&str; 2] = ["cli.md", "messages.md"];

/// Starts of lines that a failed command prints.
const FAILURES: [&str; 5] = ["error:", "damaged:", "conflict:", "lost:", "warning:"];

/// Absolute folders of examples, which lie in the folder of the test.
const FOLDERS: [&str; 10] =
    ["/backup", "/etc", "/home", "/media", "/mnt", "/root", "/srv", "/tmp", "/usr/local", "/var"];

/// Folders of the machine that examples may name, because they only read or run what is there.
const READ_ONLY: [&str; 4] = ["/bin", "/dev/null", "/dev/stdin", "/usr/bin"];

/// Folders that a machine has.
const PRESENT: [&str; 6] =
    ["etc/cron.d", "etc/nginx", "etc/systemd/system", "usr/local/bin", "var/lib", "var/log"];

/// Programs that the machine may lack or that would change it, and the scripts in their place.
const STAND_INS: [(&str, &str); 13] = [
    // Building and testing the program is not an example's task.
    ("cargo", "if [ \"$1 $2 $3 $4\" = 'run -p snap-cli --' ]; then shift 4; exec snap \"$@\"; fi"),
    ("apt", ""),
    ("crontab", ""),
    ("curl", "case \"$*\" in *127.0.0.1:*) exec /usr/bin/curl \"$@\" ;; esac"),
    ("journalctl", ""),
    ("mail", "cat > /dev/null"),
    ("mysqldump", "echo '-- dump'"),
    ("pass", "printf '%s\\nuser: %s\\n' \"$AWS_SECRET_ACCESS_KEY\" \"$AWS_ACCESS_KEY_ID\""),
    ("pg_dump", "echo '-- dump'"),
    ("podman", ""),
    ("systemctl", ""),
    ("useradd", ""),
    ("usermod", ""),
];

/// What bash defines before the first step. `snap serve` becomes a server in the background.
const FUNCTIONS: &str = r#"
set -o pipefail
address() {
    local here=${1//https:\/\/snap.example.org/http:\/\/127.0.0.1:7627} server=
    if [[ -s $RUN/server ]]; then server=$(cat "$RUN/server"); fi
    printf '%s\n' "${here//127.0.0.1:7627/${server:-127.0.0.1:7627}}"
}
snap() {
    local args=() arg
    for arg; do args+=("$(address "$arg")"); done
    if [[ $1 != serve || $2 == token ]]; then command snap "${args[@]}"; return; fi
    stop
    rm -f "$RUN/started"; mkfifo "$RUN/started"
    command snap --json "$@" --listen 127.0.0.1:0 >"$RUN/started" 2>>"$RUN/log" &
    echo $! >"$RUN/serving"
    local line; read -r line <"$RUN/started"
    if [[ $line =~ \"url\":\"https?://([^\"]*)\" ]]; then echo "${BASH_REMATCH[1]}" >"$RUN/server"
    else cat "$RUN/log"; return 1; fi
}
curl() {
    local args=() arg
    for arg; do args+=("$(address "$arg")"); done
    command curl "${args[@]}"
}
sudo() {
    while [[ $1 == -* ]]; do if [[ $1 == -u ]]; then shift; fi; shift; done
    "$@"
}
exec 3<>"$TERMINAL"
stop() { if [[ -s $RUN/serving ]]; then kill "$(cat "$RUN/serving")"; wait "$(cat "$RUN/serving")"; fi; }
trap "stop; printf '\001' >&3" EXIT
cd
"#;

/// What bash prints to the terminal after each step, and when it ends.
const END_OF_STEP: u8 = 1;

/// One step of a page.
struct Step {
    /// Line of the page, from 1.
    line: usize,
    commands: String,
    /// The part of the page that shows the output, which is empty if none is shown. `None` for
    /// steps in which each command must succeed.
    output: Option<Range<usize>>,
}

/// A page, and what the tests look at.
struct Page {
    path: PathBuf,
    text: String,
    steps: Vec<Step>,
    /// Code spans that begin with `snap `, and their lines.
    spans: Vec<(usize, String)>,
    /// Targets of links, and their lines.
    links: Vec<(usize, String)>,
    /// The names of the headings in links.
    anchors: Vec<String>,
}

/// Returns the top folder of the sources.
fn sources() -> PathBuf {
    // Cargo sets it. Another value selects the pages of another checkout.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    Path::new(&package).parent().unwrap().to_owned()
}

/// Returns the paths of all pages below the top folder.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/decisions", "docs/schema"] {
        let entries = fs_err::read_dir(sources().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_written = |name: &String| name.ends_with(".md") && !GENERATED.contains(&&**name);
        pages.extend(names.filter(is_written).map(|name| format!("{folder}/{name}")));
    }
    pages.sort();
    pages
}

impl Page {
    fn read(name: &str) -> Self {
        let path = sources().join(name);
        let text = fs_err::read_to_string(&path).unwrap();
        let mut page = Self {
            path,
            text: text.clone(),
            steps: Vec::new(),
            spans: Vec::new(),
            links: Vec::new(),
            anchors: Vec::new(),
        };
        page.parse(&text);
        page
    }

    fn parse(&mut self, text: &str) {
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
        let mut block = None;
        let mut heading = None;
        // The column named `snap` of the present table, the present column, and the cell's text.
        let (mut wanted, mut column, mut title) = (None, 0, String::new());
        for (event, range) in events {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let language = match kind {
                        CodeBlockKind::Fenced(language) => language.to_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    block = Some((language, None));
                }
                Event::Text(_) if block.is_some() => {
                    let (_, content): &mut (String, Option<Range<usize>>) = block.as_mut().unwrap();
                    let start = content.as_ref().map_or(range.start, |content| content.start);
                    *content = Some(start..range.end);
                }
                Event::End(TagEnd::CodeBlock) => {
                    let (language, content) = block.take().unwrap();
                    let content = content.unwrap_or(0..0);
                    match &*language {
                        "console" => self.add_session(content),
                        "sh" => {
                            let commands = text[content.clone()].to_owned();
                            self.steps.push(Step {
                                line: line(content.start),
                                commands,
                                output: None,
                            });
                        }
                        _ => {}
                    }
                }
                Event::Html(html) => {
                    let hidden = html.strip_prefix("<!-- run\n").is_some();
                    if hidden {
                        let from = range.start + "<!-- run\n".len();
                        let length = text[from..].find("-->").expect("the comment ends");
                        let commands = text[from..from + length].to_owned();
                        self.steps.push(Step { line: line(from), commands, output: None });
                    }
                }
                Event::Start(Tag::Table(_)) => (wanted, column) = (None, 0),
                Event::Start(Tag::TableHead | Tag::TableRow) => column = 0,
                Event::Start(Tag::TableCell) => title.clear(),
                Event::End(TagEnd::TableCell) => {
                    if wanted.is_none() && title == "snap" {
                        wanted = Some(column);
                    }
                    column += 1;
                }
                Event::End(TagEnd::TableHead) => wanted = wanted.or(Some(usize::MAX)),
                Event::End(TagEnd::Table) => (wanted, column) = (None, 0),
                Event::Code(code) if wanted == Some(column) => {
                    let step =
                        Step { line: line(range.start), commands: code.to_string(), output: None };
                    self.steps.push(step);
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        String::push_str(heading, &code);
                    }
                    if code.starts_with("snap ") {
                        self.spans.push((line(range.start), code.to_string()));
                    }
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    self.anchors.push(anchor(&heading.take().unwrap()));
                }
                Event::Text(part) => {
                    title.push_str(&part);
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    self.links.push((line(range.start), dest_url.to_string()));
                }
                _ => {}
            }
        }
    }

    /// Adds the commands of a block `console`.
    fn add_session(&mut self, content: Range<usize>) {
        let mut at = content.start;
        for line in self.text[content.clone()].split_inclusive('\n') {
            let end = at + line.len();
            let number = self.text[..at].matches('\n').count() + 1;
            if let Some(command) = line.strip_prefix("$ ") {
                let output = Some(end..end);
                self.steps.push(Step { line: number, commands: command.to_owned(), output });
            } else if let Some(last) = self.steps.last_mut() {
                let output = last.output.as_mut().expect("a block begins with a command");
                match line.strip_prefix("> ") {
                    Some(more) if output.start == output.end => {
                        last.commands.push_str(more);
                        *output = end..end;
                    }
                    _ => output.end = end,
                }
            }
            at = end;
        }
    }
}

/// Returns the name of a heading in links, as GitHub forms it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// A bash that runs the steps of a page.
struct Shell {
    env: TestEnv,
    bash: Child,
    input: ChildStdin,
    replies: BufReader<ChildStdout>,
    terminal: BufReader<File>,
    steps: usize,
    _bucket: S3Server,
}

impl Shell {
    /// Starts bash; `None` if it is not installed.
    fn start() -> Option<Self> {
        let bash = tools::find("bash")?;
        let bucket = S3Server::start(S3Options::default());
        let mut env = TestEnv::new();
        for (name, value) in bucket.environment(&bucket.endpoint()) {
            env.set(name, &value);
        }
        let snap = Path::new(env!("CARGO_BIN_EXE_snap"));
        let place = |path: &str| env.path(path).to_str().unwrap().to_owned();
        let (home, run, programs) = (place("users/ada"), place("run"), place("usr/local/bin"));
        let settings = place("etc/snap/config.toml");
        let folders = FOLDERS.iter().map(|folder| &folder[1..]);
        for folder in folders.chain(PRESENT).chain(["run"]) {
            fs_err::create_dir_all(env.path(folder)).unwrap();
        }
        let installed = env.path("users/ada/.cargo/bin");
        fs_err::create_dir_all(&installed).unwrap();
        symlink(snap, installed.join("snap")).unwrap();
        symlink(snap, env.path("usr/local/bin/snap")).unwrap();
        for (name, script) in STAND_INS {
            env.write(&format!("usr/local/bin/{name}"), format!("#!/bin/sh\n{script}\n"));
            env.mode(format!("usr/local/bin/{name}"), 0o755);
        }
        let path = format!("{programs}:{home}/.local/bin:/usr/local/bin:/usr/bin:/bin");
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let terminal = BufReader::new(File::from(terminal));
        let variables = [
            ("HOME", &*home),
            ("PAGER", "cat"),
            ("PATH", &path),
            ("RUN", &run),
            ("SNAP_CONFIG_SYSTEM", &settings),
            ("TERMINAL", &name),
        ];
        for (key, value) in variables {
            env.set(key, value);
        }
        // The shell may not wait for ever for a command that hangs.
        let mut command = env.command_of("users/ada", "/usr/bin/timeout");
        command.args(["600", bash.path().to_str().unwrap(), "--norc"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bash = command.spawn().unwrap();
        let (input, replies) = (bash.stdin.take().unwrap(), bash.stdout.take().unwrap());
        let replies = BufReader::new(replies);
        let mut shell = Self { env, bash, input, replies, terminal, steps: 0, _bucket: bucket };
        shell.run(FUNCTIONS, true).unwrap();
        Some(shell)
    }

    /// Returns the path of the test's folder, with a `/` at its end.
    fn root(&self) -> String {
        self.env.path("").to_str().unwrap().to_owned()
    }

    /// Runs commands. Returns what they printed, as an error if the last one failed or, if
    /// `strict` is set, any of them.
    fn run(&mut self, commands: &str, strict: bool) -> Result<String, String> {
        self.steps += 1;
        let time = format!("2026-11-21T{:02}:{:02}:00Z", 8 + self.steps / 60, self.steps % 60);
        let (start, end) = if strict { ("set -e", "set +e") } else { ("", "") };
        let script = format!("export SNAP_TIME={time}\n{start}\n{commands}\n{end}\n");
        self.env.write("run/step", script);
        let run = "{ . \"$RUN/step\"; } </dev/null >\"$TERMINAL\" 2>&1; echo $?; \
                   printf '\\001' >\"$TERMINAL\"\n";
        self.input.write_all(run.as_bytes()).unwrap();
        let mut output = Vec::new();
        self.terminal.read_until(END_OF_STEP, &mut output).unwrap();
        let mut reply = String::new();
        // A strict step that fails ends the shell.
        self.replies.read_line(&mut reply).unwrap();
        let root = self.root();
        let output = String::from_utf8_lossy(&output[..output.len() - 1])
            .replace("\r\n", "\n")
            .replace(root.trim_end_matches('/'), "")
            .replace(&root[1..], "");
        if reply.trim() == "0" { Ok(output) } else { Err(output) }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The shell stops its server. It may have ended already.
        let _ = self.input.write_all(b"exit\n");
        let _ = self.bash.wait();
    }
}

/// Moves the absolute folders of examples below `root`, also where a snapshot has them
/// (`latest:home`).
///
/// # Panics
/// If an example names any other folder of the machine, which it could change.
fn in_folder(commands: &str, root: &str) -> String {
    let root = root.trim_end_matches('/');
    let mut moved = String::new();
    let mut rest = commands;
    while let Some(at) = rest.find(['/', ':']) {
        let (before, from) = rest.split_at(at);
        moved.push_str(before);
        let (sign, after) = from.split_at(1);
        let is_first = match sign {
            ":" => moved.ends_with(char::is_alphanumeric),
            _ => {
                let within = |c: char| c.is_alphanumeric() || "._~-/*}$".contains(c);
                moved.ends_with("://") || !moved.ends_with(within)
            }
        };
        let is_here = |folder: &&str| {
            let rest = after.strip_prefix(&folder[1..]);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
        };
        let is_moved = is_first && FOLDERS.iter().any(is_here);
        let is_foreign = sign == "/" && is_first && after.starts_with(char::is_alphabetic);
        assert!(
            is_moved || !is_foreign || READ_ONLY.iter().any(is_here),
            "an example names a folder of this machine: /{}",
            after.lines().next().unwrap_or_default()
        );
        if is_moved {
            moved.push_str(if sign == ":" { ":" } else { "/" });
            moved.push_str(&root[1..]);
            moved.push('/');
        } else {
            moved.push_str(sign);
        }
        rest = after;
    }
    moved + rest
}

/// Returns an output without what may differ from the page: ids, amounts, rates, spaces.
fn comparable(output: &str) -> Vec<String> {
    let line = |line: &str| {
        // A rate is printed only after transfers that take a while.
        let front = line.split_once("B/s in ").and_then(|(front, _)| front.rsplit_once(", "));
        let line = front.map_or(line, |(front, _)| front);
        let shown = steady(&format!("{line}\n"));
        let mut words: Vec<&str> = shown.split_whitespace().collect();
        for at in 1..words.len() {
            let unit = words[at].trim_end_matches(|c: char| !c.is_ascii_alphabetic());
            let is_unit = ["B", "KiB", "MiB", "GiB", "ms", "s"].contains(&unit);
            if is_unit && words[at - 1].parse::<f64>().is_ok() {
                words[at - 1] = "[AMOUNT]";
            }
        }
        words.join(" ")
    };
    output.trim_end().lines().map(line).collect()
}

/// Returns true if the output is what the page shows; `...` stands for any lines.
fn matches(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed.first() == Some(first) && matches(rest, &printed[1..]),
    }
}

/// Runs all steps of a page.
fn run_examples(name: &str) {
    let page = Page::read(name);
    assert!(!page.steps.is_empty(), "{name} has no examples");
    let Some(mut shell) = Shell::start() else { return };
    let public = page.text.contains("https://snap.example.org");
    let server = if public { "https://snap.example.org" } else { "http://127.0.0.1:7627" };
    let mut updates = Vec::new();
    for step in &page.steps {
        let at = format!("{name}:{}: {}", step.line, step.commands.trim());
        let commands = in_folder(&step.commands, &shell.root());
        let ran = shell.run(&commands, step.output.is_none());
        let failed = ran.is_err();
        let mut output = ran.unwrap_or_else(|output| output);
        if let Ok(address) = fs_err::read_to_string(shell.env.path("run/server")) {
            output = output.replace(&format!("http://{}", address.trim()), server);
        }
        let range = step.output.clone().unwrap_or(0..0);
        let shown = page.text[range.clone()].trim_end();
        let failure = |line: &str| FAILURES.iter().any(|start| line.starts_with(start));
        let may_fail = step.output.is_some() && shown.lines().any(failure);
        assert!(!failed || may_fail, "{at}\nfailed:\n{output}");
        let is_equal = matches(&comparable(shown), &comparable(&output));
        if shown.is_empty() || (is_equal && shown.lines().any(|line| line == "...")) {
            continue;
        }
        if std::env::var_os("SNAP_UPDATE_DOCS").is_none() {
            assert!(is_equal, "{at}\nprinted:\n{output}\nand the page shows:\n{shown}");
            continue;
        }
        // Equal outputs, too: an id is then the same wherever a page shows it.
        updates.push((range, format!("{}\n", output.trim_end())));
    }
    let mut text = page.text;
    for (range, output) in updates.into_iter().rev() {
        text.replace_range(range, &output);
    }
    if std::env::var_os("SNAP_UPDATE_DOCS").is_some() {
        fs_err::write(page.path, text).unwrap();
    }
}

/// Makes a test of each page that has examples, and a list of these pages.
macro_rules! examples {
    ($($test:ident: $name:literal),* $(,)?) => {
        const WITH_EXAMPLES: &[&str] = &[$($name),*];
        $(#[test] fn $test() { run_examples($name); })*
    };
}

examples! {
    examples_of_the_readme_run: "README.md",
    examples_of_backups_run: "docs/backup.md",
    examples_of_configuration_run: "docs/configuration.md",
    examples_of_deploying_run: "docs/deploy.md",
    examples_of_formats_run: "docs/format.md",
    examples_of_installing_run: "docs/install.md",
    examples_of_pages_run: "docs/page.md",
    examples_of_pipelines_run: "docs/pipelines.md",
    examples_of_records_run: "docs/schema/README.md",
    examples_of_remotes_run: "docs/remotes.md",
    examples_of_retention_run: "docs/retention.md",
    examples_of_safety_run: "docs/safety.md",
    examples_of_servers_run: "docs/server.md",
    examples_of_the_protocol_run: "docs/protocol.md",
    examples_of_teams_run: "docs/team.md",
    examples_of_moving_from_git_run: "docs/from-git.md",
    examples_of_moving_from_restic_run: "docs/from-restic.md",
}

#[test]
fn each_page_with_examples_has_a_test() {
    let with_examples =
        |name: &String| WITH_EXAMPLES.contains(&&**name) || Page::read(name).steps.is_empty();
    let without: Vec<_> = pages().into_iter().filter(|name| !with_examples(name)).collect();
    assert!(without.is_empty(), "no test runs the examples of {without:?}");
}

/// Returns the words of a command in a sentence, without signs for optional or repeated parts.
fn words(span: &str) -> Vec<String> {
    let command = span.split(['|', ';', '>', '&']).next().unwrap();
    let plain: String = command.chars().filter(|c| !"[]…".contains(*c)).collect();
    shlex::split(&plain.replace("...", "")).unwrap_or_default()
}

#[test]
fn commands_in_sentences_are_accepted() {
    let env = TestEnv::new();
    let mut refused = Vec::new();
    for name in pages() {
        for (line, span) in Page::read(&name).spans {
            let words = words(&span);
            // `snap COMMAND`, and the names of hash contexts, such as `snap 2026-11-21 tree v1`.
            if words.get(1).is_none_or(|word| !word.starts_with(|c: char| c.is_ascii_lowercase())) {
                continue;
            }
            let help = |words: &[&str]| env.snap(words.iter().chain(&["--help"]));
            // Where `--` ends the options, the words after it belong to another program.
            let words: Vec<&str> =
                words[1..].iter().map(String::as_str).take_while(|word| *word != "--").collect();
            // The last word may be an option without its value.
            let is_accepted = |words: &[&str]| help(words).code == Some(0);
            if !is_accepted(&words) && !is_accepted(&[&words[..], &["1"]].concat()) {
                refused.push(format!("{name}:{line}: `{span}`: {}", help(&words).stderr));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn each_link_leads_somewhere() {
    let mut lost = Vec::new();
    let mut check = |name: String| {
        let page = Page::read(&name);
        for (line, link) in &page.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&name).parent().unwrap();
            let there = if path.is_empty() { PathBuf::from(&name) } else { folder.join(path) };
            let is_page = there.extension().is_some_and(|end| end == "md");
            let found = match sources().join(&there).exists() {
                true if is_page && !heading.is_empty() => {
                    let anchors = Page::read(there.to_str().unwrap()).anchors;
                    anchors.iter().any(|anchor| anchor == heading)
                }
                exists => exists,
            };
            if !found {
                lost.push(format!("{name}:{line}: {link}"));
            }
        }
    };
    pages().into_iter().for_each(&mut check);
    for name in ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"] {
        check(name.to_owned());
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}
