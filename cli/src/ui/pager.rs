//! A pager for output that is longer than the screen.
//!
//! Output is buffered until it is longer than the screen. Only then is the pager started, so the
//! user does not have to leave a pager after three lines. If the pager cannot be started, the
//! output is printed directly. If the user leaves the pager early, further writes fail like writes
//! to a closed pipe, which ends the command quietly.

use std::{
    io::{self, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
};

use super::screen::Screen;

/// The command that means "no pager".
const NONE: &str = "cat";

/// Characters that mean that a command needs a shell.
const SHELL: &[char] = &[
    '|', '&', ';', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', '*', '?', '[', '#', '~', '=', '%',
];

/// The pager if no other one is set.
const DEFAULT_PAGER: &str = "less";

/// The value of `LESS` if it is unset: quit if everything fits, pass colours through, do not clear
/// the screen.
const LESS: &str = "FRX";

/// Number of bytes sent to a pager that are kept, for the case that the pager never ran: more than
/// the buffer of a pipe.
const SENT_BYTES: usize = 256 << 10;

/// The pager command and the size of the screen.
#[derive(Clone, Debug)]
pub(crate) struct Pager {
    command: String,
    rows: usize,
    columns: usize,
    tells_less: bool,
}

impl Pager {
    /// Makes the pager `command`, or the default one, for this terminal. Returns `None` if there
    /// should be no pager.
    pub(crate) fn new(command: Option<&str>, has_less: bool) -> Option<Self> {
        let command = command.map(str::trim).filter(|command| !command.is_empty());
        let command = command.unwrap_or(DEFAULT_PAGER).to_owned();
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
        // A terminal of size zero is controlled by a program.
        (command != NONE && rows > 1 && columns > 0).then_some(Self {
            command,
            rows,
            columns,
            tells_less: !has_less,
        })
    }

    /// Starts the pager.
    fn start(&self) -> io::Result<Child> {
        let mut command = if self.command.contains(SHELL) {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(&self.command);
            shell
        } else {
            let mut words = self.command.split_whitespace();
            let mut command = Command::new(words.next().unwrap_or(DEFAULT_PAGER));
            command.args(words);
            command
        };
        if self.tells_less {
            command.env("LESS", LESS);
        }
        command.stdin(Stdio::piped()).spawn()
    }
}

/// Output that goes through a pager once it is longer than the screen.
#[derive(Debug)]
pub(crate) struct Paged {
    pager: Pager,
    screen: Arc<Screen>,
    state: PagerState,
}

#[derive(Debug)]
enum PagerState {
    /// The output still fits: the text, its whole rows, and the columns of the last row.
    Fits { text: Vec<u8>, rows: usize, columns: usize },
    /// A pager shows the output.
    Shown(RunningPager),
    /// There is no pager, or it could not run.
    Plain,
    /// The user left the pager early.
    Left,
}

#[derive(Debug)]
struct RunningPager {
    child: Child,
    /// The stdin of the pager, closed before waiting for it.
    pipe: Option<ChildStdin>,
    /// Everything that was written, as long as the pager may not be running at all.
    sent: Option<Vec<u8>>,
}

impl RunningPager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(pipe) = &mut self.pipe else { return Ok(bytes.len()) };
        let written = pipe.write(bytes)?;
        self.sent = self.sent.take().filter(|sent| sent.len() < SENT_BYTES);
        if let Some(sent) = &mut self.sent {
            sent.extend_from_slice(&bytes[..written]);
        }
        Ok(written)
    }

    /// Waits until the pager ends. If the shell did not find the pager, returns the output that the
    /// user has not seen.
    fn wait(mut self) -> io::Result<Option<Vec<u8>>> {
        drop(self.pipe.take());
        let code = self.child.wait()?.code();
        let never_ran = matches!(code, Some(126 | 127));
        Ok(self.sent.filter(|_| never_ran))
    }
}

impl Paged {
    /// Makes an empty output.
    pub(crate) fn new(pager: Pager, screen: Arc<Screen>) -> Self {
        let state = PagerState::Fits { text: Vec::new(), rows: 0, columns: 0 };
        Self { pager, screen, state }
    }

    /// Writes everything, and waits until the user leaves the pager.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let left = match std::mem::replace(&mut self.state, PagerState::Plain) {
            PagerState::Fits { text, .. } => text,
            PagerState::Shown(shown) => {
                let left = shown.wait();
                self.screen.give_back();
                left?.unwrap_or_default()
            }
            PagerState::Plain => Vec::new(),
            PagerState::Left => return Ok(()),
        };
        io::stdout().write_all(&left)?;
        io::stdout().flush()
    }

    /// Handles a pager that reads no more. If the pager never ran, prints what it should have
    /// shown.
    fn left(&mut self) -> io::Result<()> {
        if let PagerState::Shown(shown) = std::mem::replace(&mut self.state, PagerState::Left) {
            let unseen = shown.wait();
            self.screen.give_back();
            if let Some(unseen) = unseen? {
                self.state = PagerState::Plain;
                io::stdout().write_all(&unseen)?;
            }
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let PagerState::Fits { text, .. } = std::mem::replace(&mut self.state, PagerState::Plain)
        else {
            return Ok(());
        };
        if let Ok(mut child) = self.pager.start() {
            self.screen.take();
            let pipe = child.stdin.take();
            self.state = PagerState::Shown(RunningPager { child, pipe, sent: Some(Vec::new()) });
        }
        self.write_all(&text)
    }
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.state {
            PagerState::Fits { text, rows, columns } => {
                text.extend_from_slice(bytes);
                count(bytes, self.pager.columns, rows, columns);
                // The prompt of the pager needs a row too.
                if *rows + usize::from(*columns > 0) >= self.pager.rows {
                    self.start()?;
                }
                Ok(bytes.len())
            }
            PagerState::Shown(shown) => match shown.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.left()?;
                    self.write(bytes)
                }
                written => written,
            },
            PagerState::Plain => io::stdout().write(bytes),
            PagerState::Left => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.state {
            // The text is buffered on purpose, and a pipe has no buffer.
            PagerState::Fits { .. } | PagerState::Shown(_) | PagerState::Left => Ok(()),
            PagerState::Plain => io::stdout().flush(),
        }
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        // Also after an error, the output so far is shown.
        let _ = self.finish();
    }
}

/// Counts the rows of a text, with one column for each character and none for colour sequences. If
/// the text arrives in pieces, the result may be one column off, which does not matter.
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
            // A continuation byte of a UTF-8 character.
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

    #[test]
    fn a_shell_that_ends_before_the_first_byte_is_no_pager_either() {
        let mut child =
            Command::new("/bin/sh").args(["-c", "exit 127"]).stdin(Stdio::piped()).spawn().unwrap();
        // `wait` would close the pipe, so the pipe is taken first.
        let pipe = child.stdin.take();
        child.wait().unwrap();
        let pager = Pager { command: String::new(), rows: 2, columns: 80, tells_less: false };
        let mut paged = Paged::new(pager, Arc::default());
        paged.state = PagerState::Shown(RunningPager { child, pipe, sent: Some(Vec::new()) });
        paged.write_all(b"\n").unwrap();
        assert!(matches!(paged.state, PagerState::Plain), "{:?}", paged.state);
    }
}
