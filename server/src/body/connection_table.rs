//! Connections, as response bodies see them. A response that the client does not receive closes its
//! connection. A client may half-close the connection while it receives a response.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Waker,
};

use futures::task::AtomicWaker;
use parking_lot::Mutex;

/// The open connections, by the address of their peer.
#[derive(Debug, Default)]
pub struct ConnectionTable {
    /// Trusted proxies. Their connections carry requests of many clients, so a stalled response of
    /// one client must not close them.
    proxies: Vec<IpAddr>,
    open: Mutex<HashMap<SocketAddr, Arc<ConnectionState>>>,
}

/// The state of a connection, shared between its reader and its responses.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// True for a connection of a proxy.
    is_proxy: bool,
    /// True once the connection is to be closed.
    is_ended: AtomicBool,
    /// Number of long responses that are being sent.
    sending: AtomicUsize,
    /// The task that reads from the connection.
    reader: AtomicWaker,
}

/// An open connection. It is unlisted on drop.
#[derive(Debug)]
pub struct OpenConnection {
    lines: Arc<ConnectionTable>,
    address: SocketAddr,
    line: Arc<ConnectionState>,
}

/// A long response that is being sent, counted until it is dropped.
#[derive(Debug)]
pub(super) struct ResponseGuard(Arc<ConnectionState>);

impl ConnectionTable {
    /// Creates an empty table. A stalled response never closes a connection of `proxies`.
    pub fn new(proxies: Vec<IpAddr>) -> Self {
        Self { proxies, open: Mutex::default() }
    }

    /// Lists a new connection.
    pub fn open(self: &Arc<Self>, address: SocketAddr) -> OpenConnection {
        let is_shared = self.proxies.contains(&address.ip().to_canonical());
        let line = Arc::new(ConnectionState { is_proxy: is_shared, ..ConnectionState::default() });
        self.open.lock().insert(address, Arc::clone(&line));
        OpenConnection { lines: Arc::clone(self), address, line }
    }

    /// Returns the connection with this peer.
    pub(crate) fn of(&self, address: SocketAddr) -> Option<Arc<ConnectionState>> {
        self.open.lock().get(&address).cloned()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut all = self.lines.open.lock();
        // A newer connection may have the same peer by now.
        if all.get(&self.address).is_some_and(|line| Arc::ptr_eq(line, &self.line)) {
            all.remove(&self.address);
        }
    }
}

impl OpenConnection {
    /// Returns true if the connection must close. Wakes `reader` when that changes.
    pub(crate) fn is_ended(&self, reader: &Waker) -> bool {
        self.line.reader.register(reader);
        self.line.is_ended.load(Ordering::Acquire)
    }

    /// Returns true if a long response is being sent. Wakes `reader` when one ends.
    pub(crate) fn is_sending(&self, reader: &Waker) -> bool {
        self.line.reader.register(reader);
        self.line.sending.load(Ordering::Acquire) > 0
    }
}

impl ConnectionState {
    pub(super) fn begin_response(self: Arc<Self>) -> ResponseGuard {
        self.sending.fetch_add(1, Ordering::AcqRel);
        ResponseGuard(self)
    }

    /// Closes the connection, with all responses on it, unless it belongs to a proxy.
    pub(super) fn end(&self) {
        if !self.is_proxy {
            self.is_ended.store(true, Ordering::Release);
            self.reader.wake();
        }
    }
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(1, Ordering::AcqRel);
        self.0.reader.wake();
    }
}
