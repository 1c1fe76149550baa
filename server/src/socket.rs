//! Connections as they come in: only so many at a time, and none that says
//! nothing. What comes after the first byte is watched where requests are read.

use std::{
    future::{Future, Ready, ready},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum_server::accept::Accept;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};

/// Takes connections, as long as there are not too many.
#[derive(Clone, Debug)]
pub struct Sockets {
    free: Arc<Semaphore>,
    patience: Duration,
}

/// A connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    /// Until the first byte has come.
    silence: Option<Pin<Box<Sleep>>>,
    _one_of: OwnedSemaphorePermit,
}

impl Sockets {
    /// At most `most` at a time, each of which says something within `patience`.
    pub fn new(most: usize, patience: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))), patience }
    }
}

impl<S> Accept<TcpStream, S> for Sockets {
    type Stream = Socket;
    type Service = S;
    type Future = Ready<io::Result<(Socket, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let permit = Arc::clone(&self.free).try_acquire_owned();
        let socket = permit.map_err(|_| io::ErrorKind::ConnectionRefused.into()).and_then(|one| {
            // Answers are short more often than not, and somebody waits for them.
            stream.set_nodelay(true)?;
            let silence = Some(Box::pin(tokio::time::sleep(self.patience)));
            Ok((Socket { stream, silence, _one_of: one }, service))
        });
        ready(socket)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.silence = None;
        }
        match (&read, &mut self.silence) {
            (Poll::Pending, Some(silence)) => {
                silence.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
            _ => read,
        }
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
