//! Buffered stdout for data, with or without a pager.

use std::{
    io::{self, BufWriter, Stdout, Write},
    sync::Arc,
};

use serde::Serialize;

use super::{
    pager::{Paged, Pager},
    screen::Screen,
    text,
};

/// Buffer sizes. A smaller buffer shows output in the pager sooner.
const PLAIN_BYTES: usize = 64 << 10;
const PAGED_BYTES: usize = 4 << 10;

/// Buffered stdout. It is not locked, so that threads can share it.
#[derive(Debug)]
pub(crate) struct Out(BufWriter<To>);

#[derive(Debug)]
enum To {
    Stdout(Stdout),
    Paged(Box<Paged>),
}

impl Out {
    pub(super) fn plain() -> Self {
        Self(BufWriter::with_capacity(PLAIN_BYTES, To::Stdout(io::stdout())))
    }

    pub(super) fn paged(pager: Pager, screen: Arc<Screen>) -> Self {
        let to = To::Paged(Box::new(Paged::new(pager, screen)));
        Self(BufWriter::with_capacity(PAGED_BYTES, to))
    }

    /// Prints one JSON object on a line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value).map_err(io::Error::from)?;
        self.0.write_all(text::json(&text).as_bytes())?;
        self.0.write_all(b"\n")
    }

    /// Flushes the buffer, and waits until the user leaves the pager.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.0.flush()?;
        match self.0.get_mut() {
            To::Stdout(_) => Ok(()),
            To::Paged(paged) => paged.finish(),
        }
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

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes),
            Self::Paged(paged) => paged.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.flush(),
            Self::Paged(paged) => paged.flush(),
        }
    }
}
