//! The user interface: the only module that prints.
//!
//! stdout is for data, stderr for messages. Text from a store or a file system is shown through
//! [`text`], so that it cannot send control sequences to a terminal.

mod json;
pub(crate) mod measure;
mod out;
mod pager;
mod paint;
mod progress;
mod screen;
pub(crate) mod size;
pub(crate) mod text;
pub(crate) mod time;

use std::{
    collections::BTreeSet,
    fmt,
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anstream::AutoStream;
use clap::builder::StyledStr;
use parking_lot::Mutex;
use serde::Serialize;
use signal_hook::SigId;
use snap_core::base::{id::Id, time::Time};

pub(crate) use self::{
    json::{VERSION, Versioned},
    out::Out,
    paint::Paint,
    progress::{Progress, misnamed},
};
use self::{pager::Pager, screen::Screen};
use crate::{args::Global, config::UiSettings, env::Env, report::ErrorCode};

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorMode {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How many messages to print on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

/// How long a command runs before it shows a progress bar.
const PROGRESS_DELAY: Duration = Duration::from_millis(250);

/// The format of data on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputFormat {
    Text,
    Json,
}

/// The user interface of a command.
#[derive(Debug)]
pub(crate) struct Ui {
    talk: Verbosity,
    form: OutputFormat,
    out_is_terminal: bool,
    err_is_terminal: bool,
    out_paint: Paint,
    err_paint: Paint,
    pager: Option<Pager>,
    screen: Arc<Screen>,
    /// How long a command runs before it shows a progress bar.
    progress_delay: Duration,
    /// Messages that were already printed and are not repeated.
    told: Mutex<BTreeSet<String>>,
    now: Option<Time>,
}

/// Prints on stderr what a command is waiting for.
#[derive(Clone, Debug)]
pub(crate) struct StatusPrinter(Arc<Screen>);

impl StatusPrinter {
    /// Prints one line.
    pub(crate) fn say(&self, message: &str) {
        self.0.say(&format!("{}\n", text::line(message.as_bytes())));
    }
}

/// A message or a warning under `--json`.
#[derive(Serialize)]
struct MessageJson<'a> {
    message: &'a str,
}

/// A hint without an error under `--json`.
#[derive(Serialize)]
struct HintJson {
    hints: Vec<String>,
}

/// An error under `--json`.
#[derive(Serialize)]
struct ErrorJson<'a> {
    message: &'a str,
    causes: &'a [String],
    hints: Vec<String>,
    exit: u8,
    code: &'static str,
    retry: bool,
}

/// What a program can do about an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorClass {
    pub(crate) code: &'static ErrorCode,
    /// The exit code.
    pub(crate) exit: u8,
}

/// Returns the choices of a hint: each line is one. A line that begins with a space continues the
/// line before it.
fn choices(hint: &str) -> Vec<String> {
    let mut choices: Vec<String> = Vec::new();
    for line in hint.split('\n') {
        match choices.last_mut() {
            Some(last) if line.starts_with(' ') => last.push_str(&format!("\n{line}")),
            _ => choices.push(line.to_owned()),
        }
    }
    choices
}

impl Ui {
    /// Builds the user interface from the global options, the settings and the environment.
    pub(crate) fn new(global: &Global, settings: &UiSettings, env: &Env) -> Self {
        let auto = |choice| choice != anstream::ColorChoice::Never;
        let (out, err) = match settings.color {
            ColorMode::Always => (true, true),
            ColorMode::Never => (false, false),
            ColorMode::Auto => {
                (auto(AutoStream::choice(&io::stdout())), auto(AutoStream::choice(&io::stderr())))
            }
        };
        let talk = match (global.quiet, global.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, false) => Verbosity::Normal,
            (false, true) => Verbosity::Verbose,
        };
        let out_is_terminal = io::stdout().is_terminal();
        let may_page = out_is_terminal && !global.no_pager && !global.json && !env.is_dumb;
        let set = env.pager.as_deref().or(settings.pager.as_deref());
        // An empty setting means that no pager is wanted.
        let may_page = may_page && set != Some("");
        let pager = set.or(env.usual_pager.as_deref());
        Self {
            talk,
            form: if global.json { OutputFormat::Json } else { OutputFormat::Text },
            out_is_terminal,
            err_is_terminal: io::stderr().is_terminal(),
            out_paint: Paint::new(out),
            err_paint: Paint::new(err),
            pager: if may_page { Pager::new(pager, env.has_less) } else { None },
            screen: Arc::default(),
            progress_delay: env.progress_millis.map_or(PROGRESS_DELAY, Duration::from_millis),
            told: Mutex::default(),
            now: None,
        }
    }

    /// Registers the action of a second Ctrl-C. It is disabled while a pager owns the terminal,
    /// because Ctrl-C is an ordinary key there.
    pub(crate) fn leave_to_pager(&mut self, second: SigId) {
        self.screen = Arc::new(Screen::new(second));
    }

    /// Sets the present time; times are then shown together with their age.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = Some(now);
    }

    /// Returns true if the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.form == OutputFormat::Json
    }

    /// Returns true if only warnings and errors are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.talk == Verbosity::Quiet
    }

    /// Returns true if details are printed.
    pub(crate) fn is_verbose(&self) -> bool {
        self.talk == Verbosity::Verbose
    }

    /// Returns true if stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.out_is_terminal
    }

    /// Returns true if a user can answer a question.
    pub(crate) fn is_interactive(&self) -> bool {
        io::stdin().is_terminal() && self.err_is_terminal && !self.is_json()
    }

    /// Asks a question on stderr. Any answer except yes counts as no, and so does Ctrl-C, after
    /// which `is_stopped` returns true.
    pub(crate) fn ask(&self, question: &str, is_stopped: &dyn Fn() -> bool) -> bool {
        self.screen.say(question);
        // A plain read would continue after the signal, so this polls.
        let tick = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            let stdin = io::stdin();
            let mut ready = [rustix::event::PollFd::new(&stdin, rustix::event::PollFlags::IN)];
            match rustix::event::poll(&mut ready, Some(&tick)) {
                _ if is_stopped() => return false,
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }

    /// Returns the width of the terminal; 80 columns if stdout is not a terminal.
    pub(crate) fn columns(&self) -> usize {
        let columns = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col);
        let columns = if self.out_is_terminal { columns() } else { None };
        columns.filter(|columns| *columns >= 20).map_or(80, usize::from)
    }

    /// Returns the colours for stdout.
    pub(crate) fn paint(&self) -> Paint {
        self.out_paint
    }

    /// Returns true if a progress bar may be drawn.
    fn may_draw(&self) -> bool {
        self.err_is_terminal && self.talk > Verbosity::Quiet && !self.screen.is_taken()
    }

    /// Returns a buffered stdout for data; call [`Out::finish`] at the end. On a terminal, output
    /// longer than the screen goes through a pager.
    pub(crate) fn out(&self) -> Out {
        match &self.pager {
            Some(pager) => Out::paged(pager.clone(), Arc::clone(&self.screen)),
            None => Out::plain(),
        }
    }

    /// Returns a buffered stdout without a pager: for content that is not meant to be read by
    /// people, or is not text.
    #[expect(clippy::unused_self, reason = "every output is created through `Ui`")]
    pub(crate) fn plain_out(&self) -> Out {
        Out::plain()
    }

    /// Formats a time: local, and on a terminal with its age.
    pub(crate) fn when(&self, time: Time) -> String {
        let shown = time::local(time);
        match self.now.filter(|_| self.out_is_terminal) {
            Some(now) => format!("{shown} ({})", time.ago(now)),
            None => shown,
        }
    }

    /// Returns the stdout for a child process such as a hook: its output goes to stderr, as
    /// messages.
    pub(crate) fn child_stdout(&self) -> Stdio {
        let stderr = io::stderr().as_fd().try_clone_to_owned();
        match self.talk {
            Verbosity::Quiet => Stdio::null(),
            _ => stderr.map_or_else(|_| Stdio::null(), Stdio::from),
        }
    }

    /// Returns an unbuffered stdout for bytes that are not lines.
    pub(crate) fn raw_out(&self) -> io::Result<File> {
        Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// Formats an id: shortened on a terminal, in full in a pipe.
    pub(crate) fn id<K>(&self, id: &Id<K>) -> String {
        if self.out_is_terminal { format!("{id:.12}") } else { id.to_string() }
    }

    /// Prints a message about what was done, unless quiet.
    pub(crate) fn status(&self, message: fmt::Arguments<'_>) {
        if self.talk > Verbosity::Quiet {
            self.say(&message.to_string());
        }
    }

    /// Prints a message once, although several steps of a command may report it.
    pub(crate) fn status_once(&self, message: &str) {
        if self.told.lock().insert(message.to_owned()) {
            self.status(format_args!("{message}"));
        }
    }

    /// Prints what the user can do next, after a message or a warning, unless quiet.
    pub(crate) fn hint(&self, hint: &str) {
        if self.talk == Verbosity::Quiet {
            return;
        }
        match self.is_json() {
            true => self.record(&Versioned::of_type("hint", HintJson { hints: choices(hint) })),
            false => self.say_raw(&self.hint_lines(hint).join("\n")),
        }
    }

    /// Formats a hint, each of its choices with a label.
    fn hint_lines(&self, hint: &str) -> Vec<String> {
        let label = self.err_paint.hint("hint:");
        choices(hint).iter().map(|choice| format!("{label} {}", text::lines(choice))).collect()
    }

    /// Returns a printer for messages about waiting; `None` if quiet or if the output is JSON.
    pub(crate) fn status_printer(&self) -> Option<StatusPrinter> {
        let speaks = self.talk > Verbosity::Quiet && !self.is_json();
        speaks.then(|| StatusPrinter(Arc::clone(&self.screen)))
    }

    /// Prints output that the user requested by an option; quiet does not suppress it.
    pub(crate) fn report(&self, message: fmt::Arguments<'_>) {
        self.say(&message.to_string());
    }

    /// Prints a detail, if verbose.
    pub(crate) fn detail(&self, message: fmt::Arguments<'_>) {
        if self.talk == Verbosity::Verbose {
            self.say(&message.to_string());
        }
    }

    /// Prints a warning.
    pub(crate) fn warning(&self, message: fmt::Arguments<'_>) {
        if self.is_json() {
            let record = MessageJson { message: &message.to_string() };
            return self.record(&Versioned::of_type("warning", record));
        }
        let label = self.err_paint.warning("warning:");
        self.say_raw(&format!("{label} {}", text::lines(&message.to_string())));
    }

    /// Prints a warning once, although several steps of a command may report it.
    pub(crate) fn warning_once(&self, message: &str) {
        if self.told.lock().insert(message.to_owned()) {
            self.warning(format_args!("{message}"));
        }
    }

    /// Prints an error with its causes and a hint.
    pub(crate) fn error(
        &self,
        error: &(dyn std::error::Error + 'static),
        hint: Option<&str>,
        class: ErrorClass,
    ) {
        let message = error.to_string();
        let mut causes: Vec<String> = Vec::new();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Skips repeated messages, from `#[error(transparent)]` and from libraries.
            if text != *causes.last().unwrap_or(&message) {
                causes.push(text);
            }
            cause = error.source();
        }
        if self.is_json() {
            return self.error_json(&message, &causes, hint, class);
        }
        let label = self.err_paint.error("error:");
        // Each part stays on one line: a line end in a name must not start a new line.
        let mut all = format!("{label} {}", text::line(message.as_bytes()));
        for cause in causes {
            all.push_str(&format!("\n  caused by: {}", text::line(cause.as_bytes())));
        }
        for line in hint.into_iter().flat_map(|hint| self.hint_lines(hint)) {
            all.push_str(&format!("\n{line}"));
        }
        self.say_raw(&all);
    }

    /// Prints an error in the command line that needs a hint instead of clap's message.
    pub(crate) fn usage_hint(&self, message: &str, hint: &str, class: ErrorClass) {
        if self.is_json() {
            return self.error_json(message, &[], Some(hint), class);
        }
        let error = format!("{} {message}", self.err_paint.error("error:"));
        self.say_raw(&[vec![error], self.hint_lines(hint)].concat().join("\n"));
    }

    /// Prints clap's message about an invalid command line.
    pub(crate) fn usage_error(&self, answer: &StyledStr, class: ErrorClass) {
        let plain = answer.to_string();
        let (message, rest) = plain.split_once("\n\n").unwrap_or((plain.trim_end(), ""));
        let message = message.strip_prefix("error: ").unwrap_or(message);
        if self.is_json() {
            let tip = rest.lines().find_map(|line| line.trim().strip_prefix("tip: "));
            return self.error_json(message, &[], tip, class);
        }
        let shown = if self.err_paint.is_on() { answer.ansi().to_string() } else { plain };
        self.say_raw(shown.trim_end_matches('\n'));
    }

    /// Prints the help or the version.
    pub(crate) fn help(&self, answer: &StyledStr) -> io::Result<()> {
        let mut out = self.out();
        match self.out_paint.is_on() {
            true => write!(out, "{}", answer.ansi())?,
            false => write!(out, "{answer}")?,
        }
        out.finish()
    }

    fn error_json(
        &self,
        message: &str,
        causes: &[String],
        hint: Option<&str>,
        ErrorClass { code, exit }: ErrorClass,
    ) {
        let hints = hint.into_iter().flat_map(choices).collect();
        let (code, retry) = (code.name, code.retry);
        let error = ErrorJson { message, causes, hints, exit, code, retry };
        self.record(&Versioned::of_type("error", error));
    }

    /// Prints a record on stderr.
    fn record(&self, record: &impl Serialize) {
        self.say_raw(&serde_json::to_string(record).unwrap_or_default());
    }

    fn say(&self, message: &str) {
        match self.is_json() {
            true => self.record(&Versioned::of_type("message", MessageJson { message })),
            false => self.say_raw(&text::lines(message)),
        }
    }

    /// Prints a message with one write, so that lines of several processes do not mix. Ignores a
    /// closed stderr.
    fn say_raw(&self, message: &str) {
        self.screen.say(&format!("{message}\n"));
    }
}
