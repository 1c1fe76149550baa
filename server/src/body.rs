//! Bodies between connections, which are async, and threads, which work on
//! stores. A few pieces wait between the two, never a whole body.

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use snap_core::base::observe::Observer;
use tokio::{
    runtime::Handle,
    sync::{
        Semaphore,
        mpsc::{self, error::TrySendError},
    },
    time::Instant,
};

use crate::problem::{Code, Problem};

/// Pieces that may wait.
const PIECES: usize = 8;

/// How long a piece is that goes out, at most.
const PIECE_BYTES: usize = 256 << 10;

/// Whoever takes no piece of what it asked for in so long is taken for gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// A body stands still when less than this comes in the time for that, unless it
/// ends: one byte now and then is no body.
const LEAST_BYTES: u64 = 16 << 10;

/// For so long, and up to so many bytes, a body is read of which nobody wants
/// more, so that whoever sends it comes to read why.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: u64 = 32 << 20;

/// Threads for all that does not run on the connections' own.
pub const THREADS: usize = 512;

/// Those of them that may wait for slow clients. The rest is for work that ends
/// by itself, so that slow clients keep nobody from that.
static WAITING: Semaphore = Semaphore::const_new(THREADS * 3 / 4);

/// Pieces of a body that comes in, for a thread.
#[derive(Debug)]
pub struct Pieces {
    pieces: mpsc::Receiver<Result<Bytes, Problem>>,
}

impl Pieces {
    /// All of a short body.
    ///
    /// # Errors
    /// What was wrong with it.
    pub fn gather(self) -> Result<Bytes, Problem> {
        let mut all = BytesMut::new();
        for piece in self {
            all.extend_from_slice(&piece?);
        }
        Ok(all.freeze())
    }
}

impl Iterator for Pieces {
    type Item = Result<Bytes, Problem>;

    /// Waits for the next one; the last is an error if the body broke off.
    fn next(&mut self) -> Option<Self::Item> {
        self.pieces.blocking_recv()
    }
}

/// How much of a body is taken.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// How long it may be.
    pub most_bytes: u64,
    /// How long it may stand still.
    pub stall: Duration,
}

/// A body as it comes.
struct Coming {
    body: Body,
    left: u64,
    stall: Duration,
    /// When it will have stood still, and what must come before that.
    until: Instant,
    awaited: u64,
}

impl Coming {
    fn new(body: Body, accept: Accept) -> Self {
        let (left, stall, awaited) = (accept.most_bytes, accept.stall, LEAST_BYTES);
        Self { body, left, stall, until: Instant::now() + stall, awaited }
    }

    /// Its next piece.
    async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        let invalid = |why| Some(Err(Problem::new(Code::Invalid, why)));
        loop {
            let bytes = match tokio::time::timeout_at(self.until, self.body.frame()).await {
                Err(_) => return invalid("the body stood still"),
                Ok(None) => return None,
                Ok(Some(Err(_))) => return invalid("the body broke off"),
                Ok(Some(Ok(frame))) => frame.into_data(),
            };
            let Ok(bytes) = bytes else { continue };
            let length = bytes.len() as u64;
            if length > self.left {
                return Some(Err(Problem::new(Code::TooLarge, "the body is too long")));
            }
            self.left -= length;
            self.awaited = self.awaited.saturating_sub(length);
            if self.awaited == 0 {
                self.go_on();
            }
            return Some(Ok(bytes));
        }
    }

    /// Reads on for a while.
    async fn linger(mut self) {
        self.left = LINGER_BYTES;
        self.go_on();
        let read = async { while let Some(Ok(_)) = self.next().await {} };
        let _ = tokio::time::timeout(LINGER, read).await;
    }

    /// What was waited for has come, or nobody took it meanwhile.
    fn go_on(&mut self) {
        (self.until, self.awaited) = (Instant::now() + self.stall, LEAST_BYTES);
    }
}

/// Hands a body to a thread that does `work` with it.
///
/// # Errors
/// Those of `work`; in its pieces [`Code::TooLarge`], and [`Code::Invalid`] when
/// the body broke off or stood still.
pub async fn receive<T: Send + 'static>(
    body: Body,
    accept: Accept,
    work: impl FnOnce(Pieces) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let _waits = WAITING.acquire().await;
    let (to, pieces) = mpsc::channel(PIECES);
    let working = blocking(move || work(Pieces { pieces }));
    let feed = async move {
        let mut coming = Coming::new(body, accept);
        while let Some(piece) = coming.next().await {
            let is_last = piece.is_err();
            let is_too_long = is_too_long(&piece);
            let sent = match to.try_send(piece) {
                Ok(()) => Ok(()),
                Err(TrySendError::Closed(_)) => Err(()),
                Err(TrySendError::Full(piece)) => {
                    let sent = to.send(piece).await.map_err(|_| ());
                    // It was the thread that was waited for.
                    coming.go_on();
                    sent
                }
            };
            // Whoever works on it may have seen enough.
            if sent.is_err() || is_too_long {
                coming.linger().await;
                break;
            }
            if is_last {
                break;
            }
        }
    };
    let ((), done) = tokio::join!(feed, working);
    done
}

fn is_too_long(piece: &Result<Bytes, Problem>) -> bool {
    piece.as_ref().is_err_and(|problem| problem.code == Code::TooLarge)
}

/// Reads a body for a while that is refused, unless whoever sends it waits to be
/// told whether to.
pub async fn linger(headers: &HeaderMap, body: Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let accept = Accept { most_bytes: LINGER_BYTES, stall: LINGER };
    Coming::new(body, accept).linger().await;
}

/// Reads a short body whole. No thread waits for it.
///
/// # Errors
/// As [`receive`].
pub async fn whole(body: Body, accept: Accept) -> Result<Bytes, Problem> {
    let (mut coming, mut all) = (Coming::new(body, accept), BytesMut::new());
    while let Some(piece) = coming.next().await {
        if is_too_long(&piece) {
            coming.linger().await;
            return piece;
        }
        all.extend_from_slice(&piece?);
    }
    Ok(all.freeze())
}

/// Does `work` in a thread.
///
/// # Errors
/// Those of `work`.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    // So that what is logged there says of which request it is.
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "the work for a request broke off");
        Err(Problem::new(Code::Unavailable, ""))
    })
}

/// Sees whether anybody still waits.
#[derive(Debug, Default)]
struct Watch {
    left: AtomicBool,
}

impl Observer for Watch {
    fn cancelled(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Tells the watch when whoever waits goes away.
struct Waiting(Arc<Watch>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.left.store(true, Ordering::Relaxed);
    }
}

/// Does `work` in a thread, and has it end when nobody waits for it any more.
///
/// # Errors
/// Those of `work`.
pub async fn watched<T: Send + 'static>(
    work: impl FnOnce(&dyn Observer) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let waiting = Waiting(Arc::default());
    let watch = Arc::clone(&waiting.0);
    blocking(move || work(&*watch)).await
}

/// A body that a thread writes. When `work` fails the connection is broken off,
/// so that nobody takes a part for the whole.
pub fn send(work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Body {
    let (to, pieces) = mpsc::channel(PIECES);
    let (runtime, whole) = (Handle::current(), Arc::new(AtomicBool::new(false)));
    let is_whole = Arc::clone(&whole);
    let span = tracing::Span::current();
    let write = move || {
        let mut out = Out { to, piece: BytesMut::new(), runtime };
        match span.in_scope(|| work(&mut out)).and_then(|()| out.flush()) {
            Ok(()) => whole.store(true, Ordering::Release),
            Err(error) => span.in_scope(|| tracing::debug!(%error, "an answer broke off")),
        }
    };
    tokio::spawn(async move {
        let _waits = WAITING.acquire().await;
        if let Err(error) = tokio::task::spawn_blocking(write).await {
            tracing::error!(%error, "the work for an answer broke off");
        }
    });
    let next = move |pieces: Option<mpsc::Receiver<Bytes>>| {
        let is_whole = Arc::clone(&is_whole);
        async move {
            let mut pieces = pieces?;
            match pieces.recv().await {
                Some(piece) => Some((Ok(piece), Some(pieces))),
                None if is_whole.load(Ordering::Acquire) => None,
                // The thread failed, lost its patience, or is no more.
                None => Some((Err(io::Error::from(io::ErrorKind::BrokenPipe)), None)),
            }
        }
    };
    Body::from_stream(futures::stream::unfold(Some(pieces), next).fuse())
}

/// Writes a range of a file.
///
/// # Errors
/// Those of `out`, and when the file cannot be read or ends before.
pub fn copy(file: &File, range: Range<u64>, out: &mut dyn Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min((range.end - range.start) as usize)];
    let mut at = range.start;
    while at < range.end {
        let some = piece.len().min((range.end - at) as usize);
        file.read_exact_at(&mut piece[..some], at)?;
        out.write_all(&piece[..some])?;
        at += some as u64;
    }
    Ok(())
}

struct Out {
    to: mpsc::Sender<Bytes>,
    piece: BytesMut,
    runtime: Handle,
}

impl Out {
    fn pass_on(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        match self.to.try_send(piece) {
            Ok(()) => Ok(()),
            // Nobody listens any more.
            Err(TrySendError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(piece)) => {
                let sent = self.runtime.block_on(self.to.send_timeout(piece, PATIENCE));
                sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..some]);
        if self.piece.len() == PIECE_BYTES {
            self.pass_on()?;
        }
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.pass_on() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(pieces: usize, bytes: usize, every: Duration) -> Body {
        let pieces = futures::stream::unfold(0, move |number| async move {
            tokio::time::sleep(every).await;
            (number < pieces).then(|| (Ok::<_, io::Error>(vec![7; bytes]), number + 1))
        });
        Body::from_stream(pieces)
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_no_body() {
        let accept = Accept { most_bytes: 1 << 20, stall: Duration::from_secs(60) };
        let every = Duration::from_secs(50);
        let error = whole(slow(10, 1, every), accept).await.unwrap_err();
        assert!(error.detail.contains("stood still"), "{error}");
        let least = LEAST_BYTES as usize;
        assert_eq!(whole(slow(10, least, every), accept).await.unwrap().len(), 10 * least);
        // Its end may come before that.
        assert_eq!(whole(slow(1, 3, every / 3), accept).await.unwrap(), [7; 3][..]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_part_is_not_taken_for_the_whole() {
        let good = send(|out| out.write_all(&[7; 3 * PIECE_BYTES]));
        assert_eq!(good.collect().await.unwrap().to_bytes().len(), 3 * PIECE_BYTES);
        let failed = send(|out| {
            out.write_all(&[7; PIECE_BYTES])?;
            Err(io::ErrorKind::InvalidData.into())
        });
        assert!(failed.collect().await.is_err());
        let panicked = send(|_| panic!("in the midst of it"));
        assert!(panicked.collect().await.is_err());
    }
}
