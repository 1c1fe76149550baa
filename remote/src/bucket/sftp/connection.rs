//! A pool of connections to one host, opened on demand and shared by requests.
//!
//! Requests for small objects share one connection, and large bodies use others. Replies come in
//! the order of the requests, so a small request behind megabytes of a pack would have to wait.

use std::{
    io::{self, SeekFrom},
    pin::Pin,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use openssh_sftp_client::{Error, Sftp, SftpOptions, error::SftpErrorKind, file::File};
use parking_lot::Mutex;
use tokio::{
    io::AsyncSeek as _,
    process::Child,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use super::{
    frames::CheckedFrames,
    ssh::{SshHost, SshStderr, reason_of_message},
};
use crate::bucket::FailureReason;

/// Bodies with fewer bytes use the connection for small requests.
const SMALL_BYTES: u64 = 256 << 10;

/// Maximum number of connections for large bodies. With the one for small requests, two clients
/// together stay below the 10 concurrent logins at which OpenSSH begins to refuse some
/// (`MaxStartups`).
const BULK_CONNECTIONS: usize = 3;

/// Number of bytes in flight on each connection, above which the pool opens another one.
const BUSY_BYTES: u64 = 4 << 20;

/// Maximum bytes of reads and writes in flight on a connection: twice the channel window of
/// OpenSSH, so that the connection is never idle between two requests.
const WINDOW_BYTES: usize = 4 << 20;

/// Bytes of one permit of that window.
const UNIT_BYTES: usize = 1 << 10;

/// Maximum number of bytes that one request reads or writes: the limit of OpenSSH since 8.5.
const PIECE_BYTES: u64 = 255 << 10;

/// Timeout for `ssh` to exit and to report the reason after its pipe has closed.
const ENDING: Duration = Duration::from_secs(2);

/// Why a connection could not be opened, or a request failed.
#[derive(Clone, Debug)]
pub(super) struct SftpFailure {
    pub(super) reason: FailureReason,
    pub(super) message: String,
}

impl SftpFailure {
    fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Connections to one host.
#[derive(Debug)]
pub(super) struct SftpConnections {
    host: SshHost,
    small: ConnectionPool,
    bulk: ConnectionPool,
}

/// Connections for requests of one kind.
#[derive(Debug)]
struct ConnectionPool {
    open: Mutex<Vec<Arc<SftpConnection>>>,
    /// Maximum number of open connections. It falls if the server refuses another one.
    most: AtomicUsize,
    /// A lock that makes logins happen one at a time.
    opening: tokio::sync::Mutex<()>,
    /// Why a login last failed. The requests that waited for that login fail with it.
    failure: Mutex<Option<Arc<SftpFailure>>>,
}

/// An `ssh` process that speaks SFTP.
#[derive(Debug)]
pub(super) struct SftpConnection {
    sftp: Sftp,
    child: Mutex<Child>,
    stderr: SshStderr,
    is_broken: AtomicBool,
    /// Bytes of the bodies in flight.
    load: AtomicU64,
    window: Semaphore,
    /// Maximum bytes that the server reads or writes in one request. It falls with the first
    /// shorter reply.
    piece: AtomicU64,
}

/// A connection that a request uses, with its share of the load. Released on drop.
#[derive(Debug)]
pub(super) struct Lease {
    connection: Arc<SftpConnection>,
    bytes: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.load.fetch_sub(self.bytes, Relaxed);
    }
}

impl std::ops::Deref for Lease {
    type Target = SftpConnection;

    fn deref(&self) -> &SftpConnection {
        &self.connection
    }
}

impl SftpConnections {
    /// Creates an empty pool for `host`.
    pub(super) fn new(host: SshHost) -> Self {
        Self { host, small: ConnectionPool::new(1), bulk: ConnectionPool::new(BULK_CONNECTIONS) }
    }

    /// Returns true if a body of this length uses the connection for small requests.
    pub(super) fn is_small(bytes: u64) -> bool {
        bytes < SMALL_BYTES
    }

    /// Returns a connection for a request with a body of `bytes`.
    pub(super) async fn lease(&self, bytes: u64) -> Result<Lease, SftpFailure> {
        let lane = if Self::is_small(bytes) { &self.small } else { &self.bulk };
        loop {
            let Some(lease) = lane.take(bytes) else {
                let before = lane.failure.lock().clone();
                let _opening = lane.opening.lock().await;
                // Another request may have opened a connection in the meantime, or failed to.
                if lane.take(0).is_some() {
                    continue;
                }
                let now = lane.failure.lock().clone();
                if let Some(now) = now
                    && before.is_none_or(|before| !Arc::ptr_eq(&before, &now))
                {
                    return Err((*now).clone());
                }
                match SftpConnection::open(&self.host).await {
                    Ok(connection) => lane.add(connection),
                    Err(error) => {
                        *lane.failure.lock() = Some(Arc::new(error.clone()));
                        return Err(error);
                    }
                }
                continue;
            };
            if !lane.wants_more(&lease) {
                return Ok(lease);
            }
            let Ok(_opening) = lane.opening.try_lock() else { return Ok(lease) };
            match SftpConnection::open(&self.host).await {
                Ok(connection) => lane.add(connection),
                // The server may allow no more connections.
                Err(_) => lane.has_enough(),
            }
        }
    }
}

impl ConnectionPool {
    fn new(most: usize) -> Self {
        Self {
            open: Mutex::default(),
            most: AtomicUsize::new(most),
            opening: tokio::sync::Mutex::default(),
            failure: Mutex::default(),
        }
    }

    fn add(&self, connection: SftpConnection) {
        self.open.lock().push(Arc::new(connection));
    }

    /// Returns the connection with the fewest bytes in flight, or `None` if none is open.
    fn take(&self, bytes: u64) -> Option<Lease> {
        let mut open = self.open.lock();
        open.retain(|connection| connection.is_usable());
        let connection = open.iter().min_by_key(|connection| connection.load.load(Relaxed))?;
        connection.load.fetch_add(bytes, Relaxed);
        Some(Lease { connection: Arc::clone(connection), bytes })
    }

    /// Returns true if all connections were busy before this lease and the limit allows another
    /// one.
    fn wants_more(&self, lease: &Lease) -> bool {
        let before = lease.load.load(Relaxed).saturating_sub(lease.bytes);
        before >= BUSY_BYTES && self.open.lock().len() < self.most.load(Relaxed)
    }

    fn has_enough(&self) {
        self.most.store(self.open.lock().len().max(1), Relaxed);
    }
}

impl SftpConnection {
    async fn open(host: &SshHost) -> Result<Self, SftpFailure> {
        let failed = |error: &io::Error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "the program `ssh` is not installed".to_owned(),
                _ => format!("cannot start `ssh`: {error}"),
            };
            SftpFailure::new(FailureReason::Other, why)
        };
        let mut child = host.command().spawn().map_err(|error| failed(&error))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed(&io::Error::other("it has no pipes")));
        };
        let (stderr_tail, is_garbled) = (SshStderr::default(), Arc::new(AtomicBool::new(false)));
        let listening = stderr_tail.listen(stderr);
        // Send requests without delay.
        let options = SftpOptions::new().flush_interval(Duration::ZERO);
        let error =
            match Sftp::new(stdin, CheckedFrames::new(stdout, Arc::clone(&is_garbled)), options)
                .await
            {
                Ok(sftp) => {
                    return Ok(Self {
                        sftp,
                        child: Mutex::new(child),
                        stderr: stderr_tail,
                        is_broken: AtomicBool::new(false),
                        load: AtomicU64::new(0),
                        window: Semaphore::new(WINDOW_BYTES / UNIT_BYTES),
                        piece: AtomicU64::new(PIECE_BYTES),
                    });
                }
                Err(error) => error,
            };
        if is_garbled.load(Relaxed) {
            // Usually a line printed by the profile of a shell, or a menu.
            let why = "the server did not reply with SFTP; its shell profile may print text";
            return Err(SftpFailure::new(FailureReason::Unsupported, why));
        }
        let status = timeout(ENDING, child.wait()).await;
        let _closed = timeout(ENDING, listening).await;
        let output = stderr_tail.last_lines();
        Err(match (error, status) {
            (error @ Error::UnsupportedSftpProtocol { .. }, _) => {
                SftpFailure::new(FailureReason::Unsupported, error.to_string())
            }
            _ if !output.is_empty() => match reason_of_message(&output) {
                FailureReason::Unreachable => SftpFailure::new(
                    FailureReason::Unreachable,
                    format!("cannot connect to {}: {output}", host.name),
                ),
                reason => SftpFailure::new(reason, output),
            },
            (_, Ok(Ok(status))) if status.code() != Some(255) => {
                // `ssh` reports its own failures as 255. A server that refuses the program ends
                // with another status.
                SftpFailure::new(FailureReason::Other, ended(status))
            }
            (_, Ok(Ok(status))) => SftpFailure::new(FailureReason::Temporary, ended(status)),
            (error, _) => SftpFailure::new(FailureReason::Temporary, error.to_string()),
        })
    }

    pub(super) fn sftp(&self) -> &Sftp {
        &self.sftp
    }

    fn is_usable(&self) -> bool {
        !self.is_broken.load(Relaxed) && matches!(self.child.lock().try_wait(), Ok(None))
    }

    /// Converts an error of a request. After the end of the connection, marks it as broken; it is
    /// then unknown whether the server has carried out the request.
    pub(super) async fn request_error(&self, error: Error) -> SftpFailure {
        let Error::SftpError(kind, message) = error else { return self.lost(&error).await };
        let what = match kind {
            SftpErrorKind::NoSuchFile => FailureReason::NotFound,
            SftpErrorKind::PermDenied => FailureReason::Denied,
            SftpErrorKind::OpUnsupported => FailureReason::Unsupported,
            SftpErrorKind::BadMessage => FailureReason::Refused,
            // OpenSSH reports most errors with this code, including temporary ones.
            _ => FailureReason::Temporary,
        };
        let text = message.get().0.chars().filter(|char| !char.is_control()).take(300);
        let text: String = text.collect();
        // For these two reasons the message says no more than the code.
        let is_told = matches!(what, FailureReason::NotFound | FailureReason::Denied);
        SftpFailure::new(what, if is_told { String::new() } else { text })
    }

    async fn lost(&self, error: &Error) -> SftpFailure {
        self.is_broken.store(true, Relaxed);
        let until = Instant::now() + ENDING;
        let status = loop {
            match self.child.lock().try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => {}
                _ => break None,
            }
            sleep(Duration::from_millis(10)).await;
        };
        if status.is_none() {
            // A failure means that `ssh` has exited by now.
            let _ended = self.child.lock().start_kill();
        }
        let text = self.stderr.last_lines();
        let why = match status {
            // A signal ended `ssh`, so its earlier output is not the reason.
            Some(status) if status.code().is_none() => ended(status),
            _ if !text.is_empty() => text,
            Some(status) => ended(status),
            None => error.to_string(),
        };
        SftpFailure::new(FailureReason::Temporary, format!("the connection broke: {why}"))
    }

    /// Returns the number of bytes of one request.
    pub(super) fn piece(&self) -> u64 {
        self.piece.load(Relaxed)
    }

    /// Returns the number of concurrent requests for one body.
    pub(super) fn pieces_at_once(&self) -> usize {
        WINDOW_BYTES / self.piece().max(UNIT_BYTES as u64) as usize
    }

    /// Lowers the number of bytes of one request to those that the server transferred in one reply.
    fn lower_piece_limit(&self, bytes: usize) {
        self.piece.fetch_min((bytes as u64).max(UNIT_BYTES as u64), Relaxed);
    }

    /// Waits for room for a piece in the window.
    async fn room(&self, bytes: usize) -> impl Drop + use<'_> {
        let units = bytes.div_ceil(UNIT_BYTES) as u32;
        self.window.acquire_many(units).await.expect("never closed")
    }

    /// Reads `length` bytes at `at` into `buffer`, or up to the end of the file.
    pub(super) async fn read_piece(
        &self,
        mut file: File,
        at: u64,
        length: usize,
        mut buffer: BytesMut,
    ) -> Result<BytesMut, Error> {
        let _room = self.room(length).await;
        let mut reads = 0;
        while buffer.len() < length {
            let (got, left) = (buffer.len(), length - buffer.len());
            Pin::new(&mut file).start_seek(SeekFrom::Start(at + got as u64))?;
            let rest = buffer.split_off(got);
            let Some(bytes) = file.read(left as u32, rest).await? else { break };
            if bytes.len() > left {
                let more = io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the reply is longer than requested",
                );
                return Err(more.into());
            }
            reads += 1;
            if reads > 1 {
                self.lower_piece_limit(got / (reads - 1));
            }
            buffer.unsplit(bytes);
        }
        Ok(buffer)
    }

    /// Writes all bytes at `at`.
    pub(super) async fn write_piece(
        &self,
        mut file: File,
        at: u64,
        mut bytes: Bytes,
    ) -> Result<(), Error> {
        let _room = self.room(bytes.len()).await;
        Pin::new(&mut file).start_seek(SeekFrom::Start(at))?;
        while !bytes.is_empty() {
            let written = file.write_zero_copy(std::slice::from_ref(&bytes)).await?;
            let rest = bytes.split_off(written);
            if !rest.is_empty() {
                self.lower_piece_limit(written);
            }
            bytes = rest;
        }
        Ok(())
    }
}

fn ended(status: ExitStatus) -> String {
    format!("`ssh` ended with {status}")
}
