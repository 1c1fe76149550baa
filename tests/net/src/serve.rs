//! A service on its own port, with its own threads, until it is dropped.

use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    thread::{self, JoinHandle},
};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::oneshot,
};

/// Number of threads, so that neither a slow client nor hashing blocks the others.
const WORKER_THREADS: usize = 2;

/// A service that accepts connections. Dropping it closes all of them.
#[derive(Debug)]
pub(crate) struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Binds a free port and runs `serve` for each connection, in a task.
    pub(crate) fn start<S, F>(serve: S) -> Self
    where
        S: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_multi_thread()
                .worker_threads(WORKER_THREADS)
                .enable_all()
                .build()
                .expect("a runtime starts");
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, serve) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the bound port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already made requests, and so a test, fail.
            let _panicked = thread.join();
        }
    }
}

/// Accepts connections for ever.
async fn accept<S, F>(listener: std::net::TcpListener, serve: S)
where
    S: Fn(TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::from_std(listener).expect("a runtime with I/O");
    loop {
        // A client may close a connection before it is accepted.
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Without it, small replies wait 40 ms for an acknowledgement.
        if stream.set_nodelay(true).is_ok() {
            tokio::spawn(serve(stream));
        }
    }
}
