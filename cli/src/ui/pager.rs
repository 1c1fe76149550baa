//! A pager for what is longer than the screen.
//!
//! What is printed is kept until it turns out to be longer than the screen;
//! only then is the pager started, so that nobody has to leave one to see three
//! lines. One that cannot be started is done without. One that is left early is
//! no failure: what would still be written fails as a closed pipe does, which
//! is quiet.

use std::{
    io::{self, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
};

use super::screen::Screen;

/// What stands for "no pager".
const NONE: &str = "cat";

/// Characters that make a command one for a shell.
const SHELL: &[char] = &[
    '|', '&', ';', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', '*', '?', '[', '#', '~', '=', '%',
];

/// Used where nothing else was said.
const USUAL: &str = "less";

/// What `less` is told where `LESS` says nothing: leave if it all fits, pass
/// colours on, leave the screen as it is.
const LESS: &str = "FRX";

/// What is kept of what a pager was sent: more than a pipe takes from
/// somebody before it turns out that nobody reads it.
const SENT_BYTES: usize = 256 << 10;

/// Which pager, and how large the screen is.
#[derive(Clone, Debug)]
pub(crate) struct Pager {
    command: String,
    rows: usize,
    columns: usize,
    tells_less: bool,
}

impl Pager {
    /// The pager `command`, or the usual one, for this terminal; `None` where
    /// there should be none.
    pub(crate) fn new(command: Option<&str>, has_less: bool) -> Option<Self> {
        let command = command.map(str::trim).filter(|command| !command.is_empty());
        let command = command.unwrap_or(USUAL).to_owned();
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
        // A screen of no size is that of a program.
        (command != NONE && rows > 1 && columns > 0).then_some(Self {
            command,
            rows,
            columns,
            tells_less: !has_less,
        })
    }

    /// Starts it.
    fn start(&self) -> io::Result<Child> {
        let mut command = if self.command.contains(SHELL) {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(&self.command);
            shell
        } else {
            let mut words = self.command.split_whitespace();
            let mut command = Command::new(words.next().unwrap_or(USUAL));
            command.args(words);
            command
        };
        if self.tells_less {
            command.env("LESS", LESS);
        }
        command.stdin(Stdio::piped()).spawn()
    }
}

/// What is printed while a pager may still be needed.
#[derive(Debug)]
pub(crate) struct Paged {
    pager: Pager,
    screen: Arc<Screen>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// So far it fits: the text, its whole rows and the columns of the last.
    Fits { text: Vec<u8>, rows: usize, columns: usize },
    /// A pager has it.
    Shown(Shown),
    /// There is no pager, or none any more.
    Plain,
    /// Whoever read in the pager has seen enough.
    Left,
}

#[derive(Debug)]
struct Shown {
    child: Child,
    /// Closed before the child is waited for.
    pipe: Option<ChildStdin>,
    /// All that was written, while that may have been in vain.
    sent: Option<Vec<u8>>,
}

impl Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(pipe) = &mut self.pipe else { return Ok(bytes.len()) };
        let written = pipe.write(bytes)?;
        self.sent = self.sent.take().filter(|sent| sent.len() < SENT_BYTES);
        if let Some(sent) = &mut self.sent {
            sent.extend_from_slice(&bytes[..written]);
        }
        Ok(written)
    }

    /// Waits until the pager is left. Returns what nobody has seen, because
    /// the shell did not find a pager of that name.
    fn wait(mut self) -> io::Result<Vec<u8>> {
        drop(self.pipe.take());
        let code = self.child.wait()?.code();
        let in_vain = matches!(code, Some(126 | 127));
        Ok(self.sent.filter(|_| in_vain).unwrap_or_default())
    }
}

impl Paged {
    /// Nothing was printed yet.
    pub(crate) fn new(pager: Pager, screen: Arc<Screen>) -> Self {
        let state = State::Fits { text: Vec::new(), rows: 0, columns: 0 };
        Self { pager, screen, state }
    }

    /// Passes everything on and waits until the pager is left.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let left = match std::mem::replace(&mut self.state, State::Plain) {
            State::Fits { text, .. } => text,
            State::Shown(shown) => {
                let left = shown.wait();
                self.screen.give_back();
                left?
            }
            State::Plain => Vec::new(),
            State::Left => return Ok(()),
        };
        io::stdout().write_all(&left)?;
        io::stdout().flush()
    }

    /// The pager reads no more. What it should have shown is printed, if it
    /// never was one.
    fn left(&mut self) -> io::Result<()> {
        if let State::Shown(shown) = std::mem::replace(&mut self.state, State::Left) {
            let in_vain = shown.wait();
            self.screen.give_back();
            let in_vain = in_vain?;
            if !in_vain.is_empty() {
                self.state = State::Plain;
                io::stdout().write_all(&in_vain)?;
            }
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let State::Fits { text, .. } = std::mem::replace(&mut self.state, State::Plain) else {
            return Ok(());
        };
        if let Ok(mut child) = self.pager.start() {
            self.screen.take();
            let pipe = child.stdin.take();
            self.state = State::Shown(Shown { child, pipe, sent: Some(Vec::new()) });
        }
        self.write_all(&text)
    }
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.state {
            State::Fits { text, rows, columns } => {
                text.extend_from_slice(bytes);
                count(bytes, self.pager.columns, rows, columns);
                // The prompt needs a row, too.
                if *rows + usize::from(*columns > 0) >= self.pager.rows {
                    self.start()?;
                }
                Ok(bytes.len())
            }
            State::Shown(shown) => match shown.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.left()?;
                    self.write(bytes)
                }
                written => written,
            },
            State::Plain => io::stdout().write(bytes),
            State::Left => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.state {
            // To be held back is the point of it; a pipe has no buffer.
            State::Fits { .. } | State::Shown(_) | State::Left => Ok(()),
            State::Plain => io::stdout().flush(),
        }
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        // After an error; what there is so far is shown all the same.
        let _ = self.finish();
    }
}

/// Counts the rows that text takes, one column for each character and none for
/// colours. What comes in pieces may be a column off, which does not matter.
fn count(bytes: &[u8], width: usize, rows: &mut usize, columns: &mut usize) {
    let mut in_escape = false;
    for &byte in bytes {
        match byte {
            b'\n' => {
                *rows += 1 + columns.saturating_sub(1) / width;
                *columns = 0;
                in_escape = false;
            }
            0x1b => in_escape = true,
            _ if in_escape => in_escape = !byte.is_ascii_alphabetic(),
            // A later byte of a character.
            0x80..=0xbf => {}
            _ => *columns += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, width: usize) -> (usize, usize) {
        let (mut rows, mut columns) = (0, 0);
        count(text.as_bytes(), width, &mut rows, &mut columns);
        (rows, columns)
    }

    #[test]
    fn long_lines_take_several_rows() {
        assert_eq!(rows("", 10), (0, 0));
        assert_eq!(rows("a\n\nb", 10), (2, 1));
        assert_eq!(rows("0123456789\n", 10), (1, 0));
        assert_eq!(rows("0123456789a\n", 10), (2, 0));
        assert_eq!(rows("\u{1b}[31mred\u{1b}[0m\n", 3), (1, 0));
        assert_eq!(rows("äöü\n", 3), (1, 0));
    }
}
