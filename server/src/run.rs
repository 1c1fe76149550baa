//! Listening, and graceful shutdown.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{ServiceExt, extract::Request};
use axum_server::{
    Handle,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    task::AbortHandle,
};

use crate::{
    allocator::return_large_buffers,
    app_service::AppService,
    body::THREADS,
    clock::Clock,
    connections::{ConnectionLimiter, ConnectionTimeouts, TimeoutAcceptor},
    routes::Server,
};

/// Maximum number of concurrent requests (HTTP/2 streams) on one connection.
const STREAMS: u32 = 256;

/// Maximum length of the head of a request, in bytes. A connection takes about as much memory.
const HEAD_BYTES: u32 = 64 << 10;

/// Creates the async runtime of a server: one thread for each processor, and up to [`THREADS`] that
/// may block on disks and slow clients. It also makes the allocator return large freed buffers to
/// the system, in the whole process.
///
/// # Errors
/// An error of the operating system.
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
    is_stopping: watch::Sender<bool>,
}

/// A handle that stops a server.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    handle: Handle<SocketAddr>,
    is_stopping: watch::Sender<bool>,
}

impl ShutdownHandle {
    /// Stops accepting requests, and lets those in progress end within `limits.stop_secs`.
    pub fn stop(&self) {
        self.handle.graceful_shutdown(None);
        self.is_stopping.send_replace(true);
    }
}

impl Listening {
    /// Listens at the address in the settings.
    ///
    /// # Errors
    /// An error of the operating system, such as that the address is in use.
    pub fn new(server: Server) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(server.settings().listen)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, server, handle: Handle::new(), is_stopping: watch::Sender::default() })
    }

    /// Returns the address that the server listens at.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a handle that stops the server.
    pub fn stop(&self) -> ShutdownHandle {
        ShutdownHandle { handle: self.handle.clone(), is_stopping: self.is_stopping.clone() }
    }

    /// Answers requests until the server is stopped.
    ///
    /// # Errors
    /// An error of the operating system, or a certificate that cannot be used.
    pub async fn answer(self) -> io::Result<()> {
        let limits = &self.server.settings().limits;
        let clock = self.server.clock();
        let patience = Duration::from_secs(limits.header_secs);
        let (silence, stall) = (patience, limits.stall());
        let timeouts = ConnectionTimeouts { silence, stall, clock: clock.clone() };
        let stop_timeout = Duration::from_secs(limits.stop_secs);
        let ending = end_after(stop_timeout, clock.clone(), &self.is_stopping, &self.handle);
        let _ending = AbortOnDrop(tokio::spawn(ending).abort_handle());
        let sockets =
            ConnectionLimiter::new(self.server.settings(), Arc::clone(self.server.metrics()));
        let lines = Arc::clone(self.server.lines());
        let mut server = axum_server::from_tcp(self.listener)?.handle(self.handle);
        let builder = server.http_builder();
        builder
            .http1()
            .timer(clock.clone())
            .header_read_timeout(patience)
            .max_buf_size(HEAD_BYTES as usize);
        builder
            .http2()
            .timer(clock.clone())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEAD_BYTES)
            .keep_alive_interval(patience)
            .keep_alive_timeout(patience);
        let around = AppService::new(self.server.clone());
        let service =
            ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(around);
        let Some(tls) = self.server.settings().tls.clone() else {
            let acceptor = TimeoutAcceptor::new(sockets, lines, timeouts);
            return server.acceptor(acceptor).serve(service).await;
        };
        let (config, follower) = tls.followed().map_err(io::Error::other)?;
        let config = RustlsConfig::from_config(config);
        let follow = tokio::spawn(follower.follow(config.clone(), clock.clone()));
        let _follow = AbortOnDrop(follow.abort_handle());
        let tls = RustlsAcceptor::new(config).handshake_timeout(patience).acceptor(sockets);
        let acceptor = TimeoutAcceptor::new(tls, lines, timeouts);
        server.acceptor(acceptor).serve(service).await
    }
}

/// Aborts a task when this is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Closes all connections once the server has been stopping for `timeout`.
fn end_after(
    timeout: Duration,
    clock: Clock,
    is_stopping: &watch::Sender<bool>,
    handle: &Handle<SocketAddr>,
) -> impl Future<Output = ()> + use<> {
    let (mut is_stopping, handle) = (is_stopping.subscribe(), handle.clone());
    async move {
        if is_stopping.wait_for(|is_stopping| *is_stopping).await.is_ok() {
            clock.sleep(timeout).await;
            handle.shutdown();
        }
    }
}
