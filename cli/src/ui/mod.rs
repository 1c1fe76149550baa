//! Talking to the user: the only place that prints.
//!
//! stdout is data, stderr is talk. Text from a store or a file system is shown
//! through [`text`], so that it cannot send control sequences to a terminal.

mod json;
mod out;
mod pager;
mod paint;
mod progress;
mod screen;
pub(crate) mod size;
pub(crate) mod text;
pub(crate) mod time;

use std::{
    fmt,
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    process::Stdio,
    sync::Arc,
};

use anstream::AutoStream;
use clap::builder::StyledStr;
use serde::Serialize;
use signal_hook::SigId;
use snap_core::base::{id::Id, time::Time};

pub(crate) use self::{
    json::{VERSION, Versioned},
    out::Out,
    paint::Paint,
    progress::Progress,
};
use self::{pager::Pager, screen::Screen};
use crate::{args::Global, config::UiSettings, env::Env};

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How much to say on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Talk {
    Quiet,
    Normal,
    Verbose,
}

/// What data looks like on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

/// How to talk.
#[derive(Debug)]
pub(crate) struct Ui {
    talk: Talk,
    form: Form,
    out_is_terminal: bool,
    err_is_terminal: bool,
    out_paint: Paint,
    err_paint: Paint,
    pager: Option<Pager>,
    screen: Arc<Screen>,
    now: Option<Time>,
}

/// Says on stderr what a command waits for.
#[derive(Clone, Debug)]
pub(crate) struct Voice(Arc<Screen>);

impl Voice {
    /// Says one line.
    pub(crate) fn say(&self, message: &str) {
        self.0.say(&format!("{}\n", text::line(message.as_bytes())));
    }
}

/// An error under `--json`.
#[derive(Serialize)]
struct ErrorJson<'a> {
    version: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
    causes: &'a [String],
    hint: Option<&'a str>,
    exit: u8,
}

impl Ui {
    /// As the global options, the settings and the environment say.
    pub(crate) fn new(global: &Global, settings: &UiSettings, env: &Env) -> Self {
        let auto = |choice| choice != anstream::ColorChoice::Never;
        let (out, err) = match settings.color {
            When::Always => (true, true),
            When::Never => (false, false),
            When::Auto => {
                (auto(AutoStream::choice(&io::stdout())), auto(AutoStream::choice(&io::stderr())))
            }
        };
        let talk = match (global.quiet, global.verbose) {
            (true, _) => Talk::Quiet,
            (false, false) => Talk::Normal,
            (false, true) => Talk::Verbose,
        };
        let out_is_terminal = io::stdout().is_terminal();
        let may_page = out_is_terminal && !global.no_pager && !global.json && !env.is_dumb;
        let set = env.pager.as_deref().or(settings.pager.as_deref());
        // A setting of none is one, too.
        let may_page = may_page && set != Some("");
        let pager = set.or(env.usual_pager.as_deref());
        Self {
            talk,
            form: if global.json { Form::Json } else { Form::Text },
            out_is_terminal,
            err_is_terminal: io::stderr().is_terminal(),
            out_paint: Paint::new(out),
            err_paint: Paint::new(err),
            pager: if may_page { Pager::new(pager, env.has_less) } else { None },
            screen: Arc::default(),
            now: None,
        }
    }

    /// What a second Ctrl-C does, which it is not to do while a pager has the
    /// screen: there, Ctrl-C is a key like others.
    pub(crate) fn leave_to_pager(&mut self, second: SigId) {
        self.screen = Arc::new(Screen::new(second));
    }

    /// From now on times are shown with how long ago they are.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = Some(now);
    }

    /// Whether JSON is wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.out_is_terminal
    }

    /// Returns whether there is a person who can answer a question.
    pub(crate) fn asks(&self) -> bool {
        io::stdin().is_terminal() && self.err_is_terminal && !self.is_json()
    }

    /// Asks a question on stderr. Anything but yes is no, and so is Ctrl-C, after
    /// which `is_stopped` returns true.
    pub(crate) fn ask(&self, question: &str, is_stopped: &dyn Fn() -> bool) -> bool {
        self.screen.say(question);
        // A read would go on after the signal.
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

    /// Columns of the terminal; of anything else as many as people expect.
    pub(crate) fn columns(&self) -> usize {
        let columns = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col);
        let columns = if self.out_is_terminal { columns() } else { None };
        columns.filter(|columns| *columns >= 20).map_or(80, usize::from)
    }

    /// Colours of stdout.
    pub(crate) fn paint(&self) -> Paint {
        self.out_paint
    }

    /// Whether a progress bar may be drawn.
    fn may_draw(&self) -> bool {
        self.err_is_terminal && self.talk > Talk::Quiet && !self.screen.is_taken()
    }

    /// Data for stdout, buffered; call [`Out::finish`] at the end. On a terminal
    /// a pager gets what is longer than the screen.
    pub(crate) fn out(&self) -> Out {
        match &self.pager {
            Some(pager) => Out::paged(pager.clone(), Arc::clone(&self.screen)),
            None => Out::plain(),
        }
    }

    /// The same, always without a pager: for content that people did not
    /// ask to read, or that is no text.
    #[expect(clippy::unused_self, reason = "all output is asked of the same thing")]
    pub(crate) fn plain_out(&self) -> Out {
        Out::plain()
    }

    /// A time: local, and on a terminal with how long ago it was.
    pub(crate) fn when(&self, time: Time) -> String {
        let shown = time::local(time);
        match self.now.filter(|_| self.out_is_terminal) {
            Some(now) => format!("{shown} ({})", time.ago(now)),
            None => shown,
        }
    }

    /// Where the stdout of a command goes that is run on the way: it is talk.
    pub(crate) fn talk_of_child(&self) -> Stdio {
        let stderr = io::stderr().as_fd().try_clone_to_owned();
        match self.talk {
            Talk::Quiet => Stdio::null(),
            _ => stderr.map_or_else(|_| Stdio::null(), Stdio::from),
        }
    }

    /// stdout for bytes that are not lines, without a buffer.
    pub(crate) fn raw_out(&self) -> io::Result<File> {
        Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// An id as it is shown: short on a terminal, whole in a pipe.
    pub(crate) fn id<K>(&self, id: &Id<K>) -> String {
        if self.out_is_terminal { format!("{id:.12}") } else { id.to_string() }
    }

    /// Says what was done, unless quiet.
    pub(crate) fn status(&self, message: fmt::Arguments<'_>) {
        if self.talk > Talk::Quiet {
            self.say(&message.to_string());
        }
    }

    /// For those who say what is waited for; nobody does when quiet, or where
    /// programs read.
    pub(crate) fn voice(&self) -> Option<Voice> {
        let speaks = self.talk > Talk::Quiet && !self.is_json();
        speaks.then(|| Voice(Arc::clone(&self.screen)))
    }

    /// Says what was asked for by an option of its own.
    pub(crate) fn report(&self, message: fmt::Arguments<'_>) {
        self.say(&message.to_string());
    }

    /// Says what only some want to know.
    pub(crate) fn detail(&self, message: fmt::Arguments<'_>) {
        if self.talk == Talk::Verbose {
            self.say(&message.to_string());
        }
    }

    /// Says what should not be missed.
    pub(crate) fn warning(&self, message: fmt::Arguments<'_>) {
        let label = self.err_paint.warning("warning:");
        self.say_raw(&format!("{label} {}", text::lines(&message.to_string())));
    }

    /// An error with its causes, and what to do about it.
    pub(crate) fn error(
        &self,
        error: &(dyn std::error::Error + 'static),
        hint: Option<&str>,
        exit: u8,
    ) {
        let message = error.to_string();
        let mut causes: Vec<String> = Vec::new();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // `#[error(transparent)]` and libraries that repeat themselves.
            if text != *causes.last().unwrap_or(&message) {
                causes.push(text);
            }
            cause = error.source();
        }
        if self.is_json() {
            return self.error_json(&message, &causes, hint, exit);
        }
        let label = self.err_paint.error("error:");
        // One line each: a line end in a name must not begin a line of its own.
        let mut all = format!("{label} {}", text::line(message.as_bytes()));
        for cause in causes {
            all.push_str(&format!("\n  caused by: {}", text::line(cause.as_bytes())));
        }
        if let Some(hint) = hint {
            let label = self.err_paint.hint("hint:");
            all.push_str(&format!("\n{label} {}", text::lines(hint)));
        }
        self.say_raw(&all);
    }

    /// What clap says about a command line that is wrong.
    pub(crate) fn usage_error(&self, answer: &StyledStr, exit: u8) {
        let plain = answer.to_string();
        let (message, rest) = plain.split_once("\n\n").unwrap_or((plain.trim_end(), ""));
        let message = message.strip_prefix("error: ").unwrap_or(message);
        if self.is_json() {
            let tip = rest.lines().find_map(|line| line.trim().strip_prefix("tip: "));
            return self.error_json(message, &[], tip, exit);
        }
        let shown = if self.err_paint.is_on() { answer.ansi().to_string() } else { plain };
        self.say_raw(shown.trim_end_matches('\n'));
    }

    /// Help, or the version.
    pub(crate) fn help(&self, answer: &StyledStr) -> io::Result<()> {
        let mut out = self.out();
        match self.out_paint.is_on() {
            true => write!(out, "{}", answer.ansi())?,
            false => write!(out, "{answer}")?,
        }
        out.finish()
    }

    fn error_json(&self, message: &str, causes: &[String], hint: Option<&str>, exit: u8) {
        let kind = "error";
        let error = ErrorJson { version: json::VERSION, kind, message, causes, hint, exit };
        self.say_raw(&serde_json::to_string(&error).unwrap_or_default());
    }

    fn say(&self, message: &str) {
        self.say_raw(&text::lines(message));
    }

    /// One write, so that lines of several processes do not mix. A stderr that
    /// is closed is no reason to stop.
    fn say_raw(&self, message: &str) {
        self.screen.say(&format!("{message}\n"));
    }
}
