//! Connections as they come in: only so many at a time, of one address no more
//! than its share, and none that says nothing or takes nothing. What comes after
//! the first bytes is watched where requests are read.

use std::{
    collections::HashMap,
    future::{Future, Ready, ready},
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum_server::accept::Accept;
use rustix::process::{Resource, getrlimit};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};

use crate::{
    access::network,
    body::line::{Lines, Open},
    observe::metrics::Metrics,
    settings::Settings,
};

/// What a client of HTTP/2 says first. Whatever begins otherwise is read as
/// HTTP/1, and watched from there on.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Takes connections, as long as there are not too many.
#[derive(Clone, Debug)]
pub struct Sockets {
    free: Arc<Semaphore>,
    shares: Arc<Shares>,
    metrics: Arc<Metrics>,
}

/// Connections for which there is room where so many files may be open: a quarter
/// is for packs and all else.
fn most_connections(wanted: usize, files: Option<u64>) -> usize {
    let room = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    wanted.min(room - room / 4).max(1)
}

/// How many connections each address has.
#[derive(Debug)]
struct Shares {
    most: usize,
    /// These ask for others.
    proxies: Vec<IpAddr>,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of an address; free again when this is dropped.
#[derive(Debug)]
struct Share {
    shares: Arc<Shares>,
    address: IpAddr,
}

impl Shares {
    /// One more of that address; `None` if it has had its share.
    fn take(self: &Arc<Self>, address: IpAddr) -> Option<Share> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(network(address)).or_default();
        let is_limited = self.most > 0 && !self.proxies.contains(&address.to_canonical());
        if is_limited && *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Share { shares: Arc::clone(self), address: network(address) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    _one_of: (OwnedSemaphorePermit, Share),
}

impl Sockets {
    /// As many as the settings say, and as the files that the process may open
    /// leave room for.
    pub fn new(settings: &Settings, metrics: Arc<Metrics>) -> Self {
        let limits = &settings.limits;
        let files = getrlimit(Resource::Nofile).current;
        let most = most_connections(limits.connections, files);
        if most < limits.connections {
            tracing::warn!(
                connections = most,
                wanted = limits.connections,
                files,
                "fewer connections at a time than `limits.connections`: \
                 the process may open no more files"
            );
        }
        let free = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let (most, proxies) = (limits.address_connections, settings.proxies.clone());
        let shares = Arc::new(Shares { most, proxies, taken: Mutex::default() });
        Self { free, shares, metrics }
    }

    fn take(&self, stream: TcpStream) -> io::Result<Socket> {
        let one = Arc::clone(&self.free).try_acquire_owned().ok();
        let address = stream.peer_addr()?.ip();
        let Some(one_of) = one.zip(self.shares.take(address)) else {
            self.metrics.refused_connection();
            tracing::debug!(%address, "too many connections");
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        // Answers are short more often than not, and somebody waits for them.
        stream.set_nodelay(true)?;
        Ok(Socket { stream, _one_of: one_of })
    }
}

impl<S> Accept<TcpStream, S> for Sockets {
    type Stream = Socket;
    type Service = S;
    type Future = Ready<io::Result<(Socket, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(self.take(stream).map(|socket| (socket, service)))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Gives up on connections on which nothing happens that should. It goes around
/// TLS, so a handshake is nothing yet.
#[derive(Clone, Debug)]
pub struct Patient<A> {
    inner: A,
    lines: Arc<Lines>,
    silence: Duration,
    stall: Duration,
}

impl<A> Patient<A> {
    /// Waits `silence` for the first bytes, and `stall` for each of those that
    /// go out to be taken. Connections are among `lines` while they are open.
    pub fn new(inner: A, lines: Arc<Lines>, (silence, stall): (Duration, Duration)) -> Self {
        Self { inner, lines, silence, stall }
    }
}

impl<A, S> Accept<TcpStream, S> for Patient<A>
where
    A: Accept<TcpStream, S>,
    A::Future: Send + 'static,
{
    type Stream = Watched<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let (address, lines) = (stream.peer_addr(), Arc::clone(&self.lines));
        let (accepted, silence, stall) =
            (self.inner.accept(stream, service), self.silence, self.stall);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let opening = Some(Opening {
                said: 0,
                is_preface: false,
                until: Box::pin(tokio::time::sleep(silence)),
            });
            let line = lines.open(address?);
            let is_shared = false;
            Ok((Watched { stream, line, opening, is_shared, stall, unsent: None }, service))
        })
    }
}

/// A connection on which something has to happen.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    line: Open,
    /// Until it is told which HTTP is spoken.
    opening: Option<Opening>,
    /// More than one answer at a time: HTTP/2.
    is_shared: bool,
    stall: Duration,
    /// While something waits to go out.
    unsent: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Opening {
    /// Bytes of the preface that came, and whether that was it.
    said: usize,
    is_preface: bool,
    until: Pin<Box<Sleep>>,
}

impl Opening {
    /// Whether this tells which HTTP is spoken.
    fn hears(&mut self, bytes: &[u8]) -> bool {
        let rest = &PREFACE[self.said..];
        let is_preface = bytes.iter().zip(rest).all(|(said, due)| said == due);
        self.said = (self.said + bytes.len()).min(PREFACE.len());
        self.is_preface = is_preface && self.said == PREFACE.len();
        !is_preface || self.is_preface
    }
}

impl<S> Watched<S> {
    /// Something came, or it is to end for the sake of an answer that nobody takes.
    /// Whoever has said all there is to say may still wait for a long answer that
    /// is on its way; without one that they have gone.
    fn hears(
        &self,
        context: &Context<'_>,
        read: Poll<io::Result<()>>,
        is_empty: bool,
    ) -> Poll<io::Result<()>> {
        let reader = context.waker();
        if self.line.is_ended(reader) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let has_said_all = is_empty && matches!(read, Poll::Ready(Ok(()))) && !self.is_shared;
        let waits = self.unsent.is_some() || self.line.is_sending(reader);
        if has_said_all && waits { Poll::Pending } else { read }
    }

    /// Something went out, or has waited for too long.
    fn sends<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            if self.unsent.take().is_some() && !self.is_shared {
                // Who reads may have waited for that.
                context.waker().wake_by_ref();
            }
            return done;
        }
        let stall = self.stall;
        let unsent = self.unsent.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        unsent.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (into.filled().len(), into.remaining());
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        let Some(opening) = &mut self.opening else {
            return self.hears(context, read, room > 0 && into.filled().len() == before);
        };
        if read.is_pending() {
            let over = opening.until.as_mut().poll(context);
            return over.map(|()| Err(io::ErrorKind::TimedOut.into()));
        }
        if opening.hears(&into.filled()[before..]) {
            self.is_shared = opening.is_preface;
            self.opening = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sends(context, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.sends(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.sends(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.sends(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_of_the_preface_tells_nothing() {
        let opening = || Opening {
            said: 0,
            is_preface: false,
            until: Box::pin(tokio::time::sleep(Duration::ZERO)),
        };
        assert!(opening().hears(b"GET"));
        assert!(opening().hears(PREFACE));
        let mut slow = opening();
        assert!(PREFACE[..23].iter().all(|byte| !slow.hears(&[*byte])));
        assert!(slow.hears(b"\n"));
        let mut other = opening();
        assert!(!other.hears(b"P"));
        assert!(other.hears(b"UT /"));
    }

    #[test]
    fn there_are_no_more_connections_than_files_for_them() {
        assert_eq!(most_connections(10_000, Some(1024)), 768);
        assert_eq!(most_connections(100, Some(1024)), 100);
        assert_eq!(most_connections(10_000, Some(0)), 1);
        assert_eq!(most_connections(10_000, None), 10_000);
    }

    #[test]
    fn an_address_has_its_share() {
        let proxy: IpAddr = "192.0.2.9".parse().unwrap();
        let taken = Mutex::default();
        let shares = Arc::new(Shares { most: 2, proxies: vec![proxy], taken });
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let first = shares.take(one).unwrap();
        let _second = shares.take(one).unwrap();
        assert!(shares.take(one).is_none());
        let _others = shares.take(other).unwrap();
        let _many: Vec<_> = (0..9).map(|_| shares.take(proxy).unwrap()).collect();
        drop(first);
        assert!(shares.take(one).is_some());
    }
}
