//! Connections, as answers see them: an answer that nobody takes ends the one
//! that it is for, and while one is sent its reader may have said all it has to.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Waker,
};

use futures::task::AtomicWaker;

/// The connections there are, by their other ends.
#[derive(Debug, Default)]
pub struct Lines {
    /// Over theirs come requests of many, who are not to suffer for each other.
    proxies: Vec<IpAddr>,
    open: Mutex<HashMap<SocketAddr, Arc<Line>>>,
}

/// What is to be known of a connection.
#[derive(Debug, Default)]
pub struct Line {
    is_shared: bool,
    is_ended: AtomicBool,
    /// Long answers on their way.
    sending: AtomicUsize,
    reader: AtomicWaker,
}

/// A connection, as long as it is open.
#[derive(Debug)]
pub struct Open {
    lines: Arc<Lines>,
    address: SocketAddr,
    line: Arc<Line>,
}

/// A long answer on its way.
#[derive(Debug)]
pub(super) struct Sending(Arc<Line>);

impl Lines {
    /// None yet; those of `proxies` are never ended for one answer's sake.
    pub fn new(proxies: Vec<IpAddr>) -> Self {
        Self { proxies, open: Mutex::default() }
    }

    /// There is one more.
    pub fn open(self: &Arc<Self>, address: SocketAddr) -> Open {
        let is_shared = self.proxies.contains(&address.ip().to_canonical());
        let line = Arc::new(Line { is_shared, ..Line::default() });
        self.all().insert(address, Arc::clone(&line));
        Open { lines: Arc::clone(self), address, line }
    }

    /// The one with that other end.
    pub(crate) fn of(&self, address: SocketAddr) -> Option<Arc<Line>> {
        self.all().get(&address).cloned()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Line>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut all = self.lines.all();
        // Another one may have the same other end by now.
        if all.get(&self.address).is_some_and(|line| Arc::ptr_eq(line, &self.line)) {
            all.remove(&self.address);
        }
    }
}

impl Open {
    /// Whether it is to end; who reads is woken then.
    pub(crate) fn is_ended(&self, reader: &Waker) -> bool {
        self.line.reader.register(reader);
        self.line.is_ended.load(Ordering::Acquire)
    }

    /// Whether a long answer is on its way; who reads is woken when it is not
    /// any more.
    pub(crate) fn is_sending(&self, reader: &Waker) -> bool {
        self.line.reader.register(reader);
        self.line.sending.load(Ordering::Acquire) > 0
    }
}

impl Line {
    pub(super) fn sends(self: Arc<Self>) -> Sending {
        self.sending.fetch_add(1, Ordering::AcqRel);
        Sending(self)
    }

    /// Ends it, and all that is on its way there.
    pub(super) fn end(&self) {
        if !self.is_shared {
            self.is_ended.store(true, Ordering::Release);
            self.reader.wake();
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(1, Ordering::AcqRel);
        self.0.reader.wake();
    }
}
