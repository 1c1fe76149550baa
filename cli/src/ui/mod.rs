//! Talking to the user: the only place that prints.
//!
//! stdout is data, stderr is talk. Text from a store or a file system is shown
//! through [`text`], so that it cannot send control sequences to a terminal.

mod json;
mod paint;
mod progress;
pub(crate) mod size;
pub(crate) mod text;
pub(crate) mod time;

use std::{
    fmt,
    fs::File,
    io::{self, BufWriter, IsTerminal, Stdout, Write},
    os::fd::AsFd,
    process::Stdio,
};

use anstream::AutoStream;
use serde::Serialize;
use snap_core::base::id::Id;

pub(crate) use self::{
    json::{CommitJson, EntryJson, VERSION, hex},
    paint::Paint,
    progress::Progress,
};
use crate::args::Global;

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
}

impl Ui {
    /// As the global options and the settings say.
    pub(crate) fn new(global: &Global, color: When) -> Self {
        let auto = |choice| choice != anstream::ColorChoice::Never;
        let (out, err) = match color {
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
        Self {
            talk,
            form: if global.json { Form::Json } else { Form::Text },
            out_is_terminal: io::stdout().is_terminal(),
            err_is_terminal: io::stderr().is_terminal(),
            out_paint: Paint::new(out),
            err_paint: Paint::new(err),
        }
    }

    /// Without colours; for errors before the options are known.
    pub(crate) fn plain() -> Self {
        Self {
            talk: Talk::Normal,
            form: Form::Text,
            out_is_terminal: false,
            err_is_terminal: false,
            out_paint: Paint::new(false),
            err_paint: Paint::new(false),
        }
    }

    /// Whether JSON is wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.out_is_terminal
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
        self.err_is_terminal && self.talk > Talk::Quiet
    }

    /// Data for stdout, buffered; call [`Out::finish`] at the end.
    pub(crate) fn out(&self) -> Out {
        Out(BufWriter::with_capacity(64 << 10, io::stdout()))
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
    pub(crate) fn error(&self, error: &(dyn std::error::Error + 'static), hint: Option<&str>) {
        let label = self.err_paint.error("error:");
        let mut all = format!("{label} {}", text::lines(&error.to_string()));
        let mut last = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let message = error.to_string();
            // `#[error(transparent)]` and libraries that repeat themselves.
            if message != last {
                all.push_str(&format!("\n  caused by: {}", text::lines(&message)));
            }
            last = message;
            cause = error.source();
        }
        if let Some(hint) = hint {
            let label = self.err_paint.hint("hint:");
            all.push_str(&format!("\n{label} {}", text::lines(hint)));
        }
        self.say_raw(&all);
    }

    fn say(&self, message: &str) {
        self.say_raw(&text::lines(message));
    }

    /// One write, so that lines of several processes do not mix. A stderr that
    /// is closed is no reason to stop.
    fn say_raw(&self, message: &str) {
        let _ = io::stderr().lock().write_all(format!("{message}\n").as_bytes());
    }
}

/// Buffered stdout. Not locked, so that it may be shared by threads.
#[derive(Debug)]
pub(crate) struct Out(BufWriter<Stdout>);

impl Out {
    /// Prints one object on a line of its own.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, value).map_err(io::Error::from)?;
        self.0.write_all(b"\n")
    }

    /// Writes what is still buffered.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
