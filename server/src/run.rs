//! Listening, and stopping in an orderly manner.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{ServiceExt, extract::Request};
use axum_server::{
    Handle,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use tokio::runtime::{Builder, Runtime};

use crate::{
    allocator::return_large_buffers,
    around::Around,
    body::THREADS,
    routes::Server,
    socket::{Patient, Sockets},
};

/// Requests on one connection at a time.
const STREAMS: u32 = 256;

/// Longest head of a request, and about as much memory as a connection takes.
const HEAD_BYTES: u32 = 64 << 10;

/// What a server runs in: a thread for each processor, and those that wait for
/// disks and for slow clients. Large buffers that are freed go back to the system
/// from now on, in the whole process.
///
/// # Errors
/// What the system says.
pub fn runtime() -> io::Result<Runtime> {
    return_large_buffers();
    Builder::new_multi_thread().max_blocking_threads(THREADS).enable_all().build()
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Listening {
    listener: std::net::TcpListener,
    server: Server,
    handle: Handle<SocketAddr>,
}

/// Stops a server.
#[derive(Clone, Debug)]
pub struct Stop {
    handle: Handle<SocketAddr>,
    within: Duration,
}

impl Stop {
    /// Takes no more requests, and lets those end that are under way, as long as
    /// the settings say.
    pub fn stop(&self) {
        self.handle.graceful_shutdown(Some(self.within));
    }
}

impl Listening {
    /// Listens where the settings say.
    ///
    /// # Errors
    /// What the system says, such as that the address is taken.
    pub fn new(server: Server) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(server.settings().listen)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, server, handle: Handle::new() })
    }

    /// Where.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What stops it.
    pub fn stop(&self) -> Stop {
        let within = Duration::from_secs(self.server.settings().limits.stop_secs);
        Stop { handle: self.handle.clone(), within }
    }

    /// Answers until it is stopped.
    ///
    /// # Errors
    /// What the system says.
    pub async fn answer(self) -> io::Result<()> {
        let patience = Duration::from_secs(self.server.settings().limits.header_secs);
        let limits = &self.server.settings().limits;
        let sockets = Sockets::new(self.server.settings(), Arc::clone(self.server.metrics()));
        let lines = Arc::clone(self.server.lines());
        let mut server = axum_server::from_tcp(self.listener)?.handle(self.handle);
        let builder = server.http_builder();
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(patience)
            .max_buf_size(HEAD_BYTES as usize);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEAD_BYTES)
            .keep_alive_interval(patience)
            .keep_alive_timeout(patience);
        let around = Around::new(self.server.clone());
        let service =
            ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(around);
        let Some(tls) = self.server.settings().tls.clone() else {
            let acceptor = Patient::new(sockets, lines, (patience, limits.stall()));
            return server.acceptor(acceptor).serve(service).await;
        };
        let (config, follower) = tls.followed().map_err(io::Error::other)?;
        let config = RustlsConfig::from_config(config);
        let follow = tokio::spawn(follower.follow(config.clone()));
        let tls = RustlsAcceptor::new(config).handshake_timeout(patience).acceptor(sockets);
        let acceptor = Patient::new(tls, lines, (patience, limits.stall()));
        let done = server.acceptor(acceptor).serve(service).await;
        follow.abort();
        done
    }
}
