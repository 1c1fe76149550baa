//! Incoming connections. The server limits their number, in total and for each address. It closes a
//! connection if the client sends nothing at first or if a write makes no progress. Timeouts of
//! later reads belong to the HTTP server: see `run`.

use std::{
    collections::HashMap,
    future::{Future, Ready, ready},
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum_server::accept::Accept;
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    access::network,
    body::connection_table::{ConnectionTable, OpenConnection},
    clock::{Clock, ClockSleep},
    observe::metrics::Metrics,
    settings::ServerSettings,
};

/// The preface of an HTTP/2 connection. A connection that begins otherwise is HTTP/1; for it, the
/// HTTP server applies its own timeout.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Accepts connections up to the limits.
#[derive(Clone, Debug)]
pub struct ConnectionLimiter {
    free: Arc<Semaphore>,
    shares: Arc<AddressLimits>,
    metrics: Arc<Metrics>,
}

/// Returns how many connections fit if the process may open `files` files. A quarter of the
/// files is left for packs and everything else.
fn most_connections(wanted: usize, files: Option<u64>) -> usize {
    let room = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    wanted.min(room - room / 4).max(1)
}

/// The limit of connections for each address, and their present numbers.
#[derive(Debug)]
struct AddressLimits {
    most: usize,
    /// Addresses without a limit: a proxy forwards requests of many clients.
    proxies: Vec<IpAddr>,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of an address, counted until it is dropped.
#[derive(Debug)]
struct AddressPermit {
    shares: Arc<AddressLimits>,
    address: IpAddr,
}

impl AddressLimits {
    /// Counts one more connection of an address; `None` if it is at its limit.
    fn take(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let mut taken = self.taken.lock();
        let count = taken.entry(network(address)).or_default();
        let is_limited = self.most > 0 && !self.proxies.contains(&address.to_canonical());
        if is_limited && *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressPermit { shares: Arc::clone(self), address: network(address) })
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// An accepted connection. It is counted until it is dropped.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
    _address_permit: AddressPermit,
}

impl ConnectionLimiter {
    /// Limits connections to the setting `limits.connections`, or to fewer if the process may not
    /// open enough files.
    pub fn new(settings: &ServerSettings, metrics: Arc<Metrics>) -> Self {
        let limits = &settings.limits;
        let files = getrlimit(Resource::Nofile).current;
        let most = most_connections(limits.connections, files);
        if most < limits.connections {
            tracing::warn!(
                connections = most,
                wanted = limits.connections,
                files,
                "the limit on open files permits fewer connections than `limits.connections`"
            );
        }
        let free = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let (most, proxies) = (limits.address_connections, settings.proxies.clone());
        let shares = Arc::new(AddressLimits { most, proxies, taken: Mutex::default() });
        Self { free, shares, metrics }
    }

    fn take(&self, stream: TcpStream) -> io::Result<Socket> {
        let one = Arc::clone(&self.free).try_acquire_owned().ok();
        let address = stream.peer_addr()?.ip();
        let Some((permit, address_permit)) = one.zip(self.shares.take(address)) else {
            self.metrics.refused_connection();
            tracing::debug!(%address, "too many connections");
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        // Clients wait for responses, most of which are short: send them without delay.
        stream.set_nodelay(true)?;
        Ok(Socket { stream, _permit: permit, _address_permit: address_permit })
    }
}

impl<S> Accept<TcpStream, S> for ConnectionLimiter {
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

/// An acceptor that closes connections without progress. It wraps the acceptor of TLS, so
/// the handshake does not count as data from the client.
#[derive(Clone, Debug)]
pub struct TimeoutAcceptor<A> {
    inner: A,
    lines: Arc<ConnectionTable>,
    timeouts: ConnectionTimeouts,
}

/// The timeouts of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionTimeouts {
    /// Longest time until the client has sent enough bytes to tell the HTTP version.
    pub silence: Duration,
    /// Longest time that a write may stay pending.
    pub stall: Duration,
    pub clock: Clock,
}

impl<A> TimeoutAcceptor<A> {
    /// Creates an acceptor that closes connections after these timeouts, and lists open connections
    /// in `lines`.
    pub fn new(inner: A, lines: Arc<ConnectionTable>, timeouts: ConnectionTimeouts) -> Self {
        Self { inner, lines, timeouts }
    }
}

impl<A, S> Accept<TcpStream, S> for TimeoutAcceptor<A>
where
    A: Accept<TcpStream, S>,
    A::Future: Send + 'static,
{
    type Stream = TimedStream<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let (address, lines) = (stream.peer_addr(), Arc::clone(&self.lines));
        let (accepted, timeouts) = (self.inner.accept(stream, service), self.timeouts.clone());
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let opening = Some(PrefaceProbe {
                matched: 0,
                is_preface: false,
                until: timeouts.clock.sleep(timeouts.silence),
            });
            let line = lines.open(address?);
            let (is_http2, unsent) = (false, None);
            Ok((TimedStream { stream, line, opening, is_http2, timeouts, unsent }, service))
        })
    }
}

/// A connection with timeouts.
#[derive(Debug)]
pub struct TimedStream<S> {
    stream: S,
    line: OpenConnection,
    /// Present until the HTTP version is known.
    opening: Option<PrefaceProbe>,
    /// True for HTTP/2: several responses may be in progress at once.
    is_http2: bool,
    timeouts: ConnectionTimeouts,
    /// The timeout of a write that is pending.
    unsent: Option<ClockSleep>,
}

/// The detection of HTTP/2 by its preface, with a timeout for the client's first bytes.
#[derive(Debug)]
struct PrefaceProbe {
    /// Number of bytes of the preface that have arrived, and whether it is complete.
    matched: usize,
    is_preface: bool,
    until: ClockSleep,
}

impl PrefaceProbe {
    /// Takes bytes from the client. Returns true once the HTTP version is known.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let rest = &PREFACE[self.matched..];
        let is_preface = bytes.iter().zip(rest).all(|(found, expected)| found == expected);
        self.matched = (self.matched + bytes.len()).min(PREFACE.len());
        self.is_preface = is_preface && self.matched == PREFACE.len();
        !is_preface || self.is_preface
    }
}

impl<S> TimedStream<S> {
    /// Decides the result of a read:
    ///
    /// - an error, if the connection is to be closed because the client does not receive a
    ///   response;
    /// - pending, if an HTTP/1 client has half-closed its connection while a response is
    ///   being sent, since it must still receive the whole response;
    /// - otherwise `read`. Without a response in progress, the end of input means that the
    ///   client has gone.
    fn on_read(
        &self,
        context: &Context<'_>,
        read: Poll<io::Result<()>>,
        is_empty: bool,
    ) -> Poll<io::Result<()>> {
        let reader = context.waker();
        if self.line.is_ended(reader) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let is_half_closed = is_empty && matches!(read, Poll::Ready(Ok(()))) && !self.is_http2;
        let waits = self.unsent.is_some() || self.line.is_sending(reader);
        if is_half_closed && waits { Poll::Pending } else { read }
    }

    /// Passes on the result of a write, or an error once it has been pending for `stall`.
    fn on_write<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            if self.unsent.take().is_some() && !self.is_http2 {
                // A read may be waiting for this write to end: see `on_read`.
                context.waker().wake_by_ref();
            }
            return done;
        }
        let ConnectionTimeouts { stall, clock, .. } = &self.timeouts;
        let unsent = self.unsent.get_or_insert_with(|| clock.sleep(*stall));
        Pin::new(unsent).poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (into.filled().len(), into.remaining());
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        let Some(opening) = &mut self.opening else {
            return self.on_read(context, read, room > 0 && into.filled().len() == before);
        };
        if read.is_pending() {
            let over = Pin::new(&mut opening.until).poll(context);
            return over.map(|()| Err(io::ErrorKind::TimedOut.into()));
        }
        if opening.take(&into.filled()[before..]) {
            self.is_http2 = opening.is_preface;
            self.opening = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.on_write(context, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.on_write(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.on_write(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.on_write(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_http2_preface_is_not_decisive() {
        let opening = || PrefaceProbe {
            matched: 0,
            is_preface: false,
            until: Clock::manual().sleep(Duration::ZERO),
        };
        assert!(opening().take(b"GET"));
        assert!(opening().take(PREFACE));
        let mut slow = opening();
        assert!(PREFACE[..23].iter().all(|byte| !slow.take(&[*byte])));
        assert!(slow.take(b"\n"));
        let mut other = opening();
        assert!(!other.take(b"P"));
        assert!(other.take(b"UT /"));
    }

    #[test]
    fn the_connection_limit_fits_the_file_descriptor_limit() {
        assert_eq!(most_connections(10_000, Some(1024)), 768);
        assert_eq!(most_connections(100, Some(1024)), 100);
        assert_eq!(most_connections(10_000, Some(0)), 1);
        assert_eq!(most_connections(10_000, None), 10_000);
    }

    #[test]
    fn each_address_has_a_connection_quota() {
        let proxy: IpAddr = "192.0.2.9".parse().unwrap();
        let taken = Mutex::default();
        let shares = Arc::new(AddressLimits { most: 2, proxies: vec![proxy], taken });
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
