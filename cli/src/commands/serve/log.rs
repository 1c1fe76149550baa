//! The log of a server. Lines are written to stderr in batches, so that a request does not cost a
//! system call for its line. Warnings and errors are written immediately.

use std::{
    fmt,
    io::{self, Write},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use snap_server::settings::{LogFormat, LogLevel, LogSettings};
use tracing::{
    Metadata,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    filter::LevelFilter,
    fmt::{FormatFields, MakeWriter, format::Writer},
};

/// Longest time that a line is buffered.
const MOMENT: Duration = Duration::from_millis(20);

/// Maximum number of buffered bytes.
const HELD_BYTES: usize = 128 << 10;

/// Starts logging to stderr. Clients get a short message about an error of their request; the log
/// has all details. Buffered lines are written on drop.
pub(super) fn log(chosen: &LogSettings) -> BufferedLog<io::Stderr> {
    let level = match chosen.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let held = BufferedLog::new(io::stderr());
    let lines = tracing_subscriber::fmt().with_writer(held.made()).with_max_level(level);
    let lines = lines.with_ansi(false);
    match chosen.format {
        LogFormat::Text => lines.fmt_fields(Fields).init(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).init(),
    }
    held
}

/// Formats the fields of a text line, each as `name=value`.
///
/// A value is quoted and escaped unless it is a plain word. Text from clients therefore cannot end
/// the line or look like another field.
struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut shown = FieldWriter { writer, is_first: true, done: Ok(()) };
        fields.record(&mut shown);
        shown.done
    }
}

/// A visitor that writes the fields.
struct FieldWriter<'w> {
    writer: Writer<'w>,
    is_first: bool,
    done: fmt::Result,
}

impl FieldWriter<'_> {
    fn write(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.done.is_ok() {
            let space = if std::mem::take(&mut self.is_first) { "" } else { " " };
            self.done = match field.name() {
                "message" => write!(self.writer, "{space}{value}"),
                name => write!(self.writer, "{space}{name}={value}"),
            };
        }
    }
}

impl Visit for FieldWriter<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.write(field, format_args!("{value:?}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
        match field.name() {
            "message" => self.write(field, format_args!("{}", text.escape_debug())),
            _ if !text.is_empty() && text.chars().all(is_plain) => {
                self.write(field, format_args!("{text}"));
            }
            _ => self.write(field, format_args!("{text:?}")),
        }
    }
}

/// Buffered log lines, written on drop.
pub(super) struct BufferedLog<W: Write>(Arc<SharedBuffer<W>>);

struct SharedBuffer<W> {
    state: Mutex<BufferState<W>>,
    come: Condvar,
}

struct BufferState<W> {
    out: W,
    held: Vec<u8>,
    is_over: bool,
}

/// Makes a writer for each line.
struct LineWriterFactory<W>(Arc<SharedBuffer<W>>);

/// The writer of one line.
struct LineWriter<'l, W> {
    shared: &'l SharedBuffer<W>,
    is_urgent: bool,
}

impl<W: Write> BufferState<W> {
    /// Writes the buffered lines. Ignores errors, because there is nowhere to report them.
    fn flush(&mut self) {
        let _ = self.out.write_all(&self.held).and_then(|()| self.out.flush());
        self.held.clear();
    }
}

impl<W: Write> SharedBuffer<W> {
    fn take(&self, bytes: &[u8], is_urgent: bool) {
        let mut state = self.state.lock();
        let is_first = state.held.is_empty();
        state.held.extend_from_slice(bytes);
        if is_urgent || state.is_over || state.held.len() >= HELD_BYTES {
            state.flush();
        } else if is_first {
            self.come.notify_one();
        }
    }

    /// Writes the buffered lines periodically.
    fn write(&self) {
        loop {
            let waits = |state: &mut BufferState<W>| state.held.is_empty() && !state.is_over;
            let mut state = self.state.lock();
            self.come.wait_while(&mut state, waits);
            if state.is_over {
                return;
            }
            drop(state);
            thread::sleep(MOMENT);
            self.state.lock().flush();
        }
    }
}

impl<W: Write + Send + 'static> BufferedLog<W> {
    fn new(out: W) -> Self {
        let state = Mutex::new(BufferState { out, held: Vec::new(), is_over: false });
        let shared = Arc::new(SharedBuffer { state, come: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let named = thread::Builder::new().name("log".to_owned());
        // Without this thread, each line is written immediately.
        if named.spawn(move || theirs.write()).is_err() {
            shared.state.lock().is_over = true;
        }
        Self(shared)
    }

    fn made(&self) -> LineWriterFactory<W> {
        LineWriterFactory(Arc::clone(&self.0))
    }
}

impl<W: Write> Drop for BufferedLog<W> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_over = true;
        state.flush();
        self.0.come.notify_one();
    }
}

impl<'l, W: Write + 'l> MakeWriter<'l> for LineWriterFactory<W> {
    type Writer = LineWriter<'l, W>;

    fn make_writer(&'l self) -> LineWriter<'l, W> {
        LineWriter { shared: &self.0, is_urgent: false }
    }

    fn make_writer_for(&'l self, about: &Metadata<'_>) -> LineWriter<'l, W> {
        LineWriter { shared: &self.0, is_urgent: *about.level() <= tracing::Level::WARN }
    }
}

impl<W: Write> Write for LineWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.take(bytes, self.is_urgent);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Collects the writes, one string for each.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<String>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().push(String::from_utf8(bytes.to_vec()).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn has(&self, text: &str) -> bool {
            self.0.lock().concat() == text
        }

        /// Waits until the output is `text`.
        fn comes_to(&self, text: &str) {
            let start = Instant::now();
            while !self.has(text) {
                assert!(start.elapsed() < Duration::from_secs(20), "it never came");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn lines_come_together_after_a_moment() {
        let sink = Sink::default();
        let lines = BufferedLog::new(sink.clone());
        let line = |text: &str| lines.made().make_writer().write_all(text.as_bytes()).unwrap();
        (0..100).for_each(|_| line("x\n"));
        sink.comes_to(&"x\n".repeat(100));
        // A busy machine may have needed several writes.
        assert!(sink.0.lock().len() < 50);
        line("y\n");
        sink.comes_to(&("x\n".repeat(100) + "y\n"));
    }

    #[test]
    fn nothing_from_outside_ends_a_line_or_looks_like_a_field() {
        let sink = Sink::default();
        let lines = BufferedLog::new(sink.clone());
        let logging = tracing_subscriber::fmt().with_writer(lines.made()).without_time();
        let logging = logging.with_ansi(false).fmt_fields(Fields).finish();
        tracing::subscriber::with_default(logging, || {
            let sent = "x\n ERROR forged\u{1b}[31m who=root\u{2028}";
            let error = io::Error::other(sent);
            let as_error = &error as &(dyn std::error::Error + 'static);
            let span = tracing::error_span!("request", id = sent, problem = %sent);
            let _in = span.enter();
            tracing::error!(problem = %sent, text = sent, debug = ?sent, as_error, "it {sent}");
            tracing::error!(code = ?io::ErrorKind::NotFound, number = 7, "failed");
        });
        let seen = sink.0.lock().concat();
        let all: Vec<&str> = seen.lines().collect();
        assert_eq!(all.len(), 2, "{seen}");
        assert!(
            seen.chars().all(|c| c == '\n' || (c.is_ascii() && !c.is_ascii_control())),
            "{seen}"
        );
        for field in ["id", "problem", "text", "debug", "as_error"] {
            assert!(all[0].contains(&format!("{field}=\"")), "{field}: {seen}");
        }
        assert!(all[1].ends_with("failed code=NotFound number=7"), "{seen}");
    }

    #[test]
    fn what_goes_wrong_is_urgent() {
        let sink = Sink::default();
        let lines = BufferedLog::new(sink.clone());
        let seen = || sink.0.lock().concat();
        let logging = tracing_subscriber::fmt().with_writer(lines.made()).without_time();
        tracing::subscriber::with_default(logging.with_ansi(false).finish(), || {
            tracing::warn!("is odd");
            assert!(seen().contains("is odd"));
            tracing::error!("is wrong");
            assert!(seen().contains("is wrong"));
            tracing::info!("is well");
        });
        drop(lines);
        assert!(seen().ends_with("is well\n"));
    }

    #[test]
    fn none_is_lost_at_the_end_and_what_is_urgent_comes_in_its_turn() {
        let sink = Sink::default();
        let lines = BufferedLog::new(sink.clone());
        let made = lines.made();
        made.make_writer().write_all(b"first\n").unwrap();
        LineWriter { shared: &made.0, is_urgent: true }.write_all(b"wrong\n").unwrap();
        assert!(sink.has("first\nwrong\n"));
        made.make_writer().write_all(b"last\n").unwrap();
        drop(lines);
        assert!(sink.has("first\nwrong\nlast\n"));
        made.make_writer().write_all(b"after\n").unwrap();
        assert!(sink.has("first\nwrong\nlast\nafter\n"));
    }
}
