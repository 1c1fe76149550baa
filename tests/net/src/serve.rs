//! A service on a port of its own, in threads of its own, until it is dropped.

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

/// Threads that serve, so that neither a slow client nor a hash holds up the
/// rest.
const WORKER_THREADS: usize = 2;

/// A service that accepts connections; dropping it closes them all.
#[derive(Debug)]
pub(crate) struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Binds a free port and gives each connection to `serve`, in a task.
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

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has failed requests, and so a test, already.
            let _panicked = thread.join();
        }
    }
}

/// Accepts for ever.
async fn accept<S, F>(listener: std::net::TcpListener, serve: S)
where
    S: Fn(TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::from_std(listener).expect("a runtime with I/O");
    loop {
        // What a client gave up before it was accepted is of no interest.
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Otherwise small replies wait for an acknowledgement, 40 ms.
        if stream.set_nodelay(true).is_ok() {
            tokio::spawn(serve(stream));
        }
    }
}
