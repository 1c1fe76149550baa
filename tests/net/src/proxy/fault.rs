//! Faults, and the rules that apply them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{kind::Kind, seen::Seen};

/// A gate that holds requests until it is opened. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// Lets all requests pass, now and later.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the gate is open.
    pub(super) async fn pass(&self) {
        // The gate has its own sender, so this ends only when it is open.
        let _ = self.0.subscribe().wait_for(|is_open| *is_open).await;
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Gate {}

/// A fault in the handling of a request or its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is delayed by this time and then served normally. The only fault that combines
    /// with others.
    Delay(Duration),
    /// The request is held until the gate is opened, and then served normally.
    Hold(Gate),
    /// The request is neither forwarded nor answered; the connection stays open.
    Stall,
    /// The request is forwarded and served completely, and never answered; the connection stays
    /// open.
    StallReply,
    /// The request is forwarded. The reply stops after its head and half of its body, and the
    /// connection stays open.
    StallBody,
    /// The connection is reset before the request is forwarded.
    Reset,
    /// The request is forwarded and served completely; then the connection is reset instead of
    /// a reply.
    LoseReply,
    /// The request is not forwarded; this is the reply.
    Refuse {
        /// HTTP status.
        status: u16,
        /// Code in the S3 error document, such as `SlowDown`.
        code: &'static str,
        /// Value of a `Retry-After` header.
        retry_after_secs: Option<u64>,
    },
    /// The request is forwarded. The reply announces its whole body, and the connection is closed
    /// after half of it.
    Truncate,
    /// The request is forwarded; one bit in the middle of the body of the reply is flipped.
    FlipReply,
    /// The request is forwarded; one byte is added to the body of the reply and to its length.
    LengthenReply,
    /// One bit in the middle of the body of the request is flipped.
    FlipRequest,
    /// Half of the body of the request is forwarded. Then the connection to the service is
    /// closed, and the one to the client reset.
    CutRequest,
    /// This many bytes of the body of the request are forwarded. Then the connection to the
    /// service is closed, and the one to the client reset. A body that is not longer passes.
    CutAt(u64),
    /// The request is forwarded and served completely; then this status is the reply.
    RefuseAfter(u16),
    /// The request is forwarded twice, one after the other; the second reply is passed on.
    Duplicate,
    /// The connection is reset at once; the request is forwarded after this time.
    Late(Duration),
    /// The request is forwarded without its `Range`, so that the reply is the whole object.
    IgnoreRange,
    /// The request is not forwarded; the reply is a redirect to another path of this host.
    Redirect,
    /// The request is not forwarded; the reply is 200 with a page, as from a network with a login
    /// page.
    Pretend,
    /// The request is forwarded; the reply is an earlier one, to the last request with the same
    /// method, path and range that no fault changed. The rule must select requests; their replies
    /// are kept as long as the rule exists.
    Stale,
}

impl Fault {
    /// Returns the error reply of an S3 service with this status: 429, 500, 503 and others.
    pub fn status(status: u16) -> Self {
        let code = match status {
            400 => "InvalidRequest",
            403 => "AccessDenied",
            404 => "NoSuchKey",
            409 => "ConditionalRequestConflict",
            412 => "PreconditionFailed",
            429 => "TooManyRequests",
            503 => "SlowDown",
            507 => "InsufficientStorage",
            _ => "InternalError",
        };
        Self::Refuse { status, code, retry_after_secs: None }
    }

    /// Returns the reply of an S3 service that asks the client to retry later.
    pub fn retry_after(status: u16, secs: u64) -> Self {
        match Self::status(status) {
            Self::Refuse { status, code, .. } => {
                Self::Refuse { status, code, retry_after_secs: Some(secs) }
            }
            other => other,
        }
    }

    /// Returns the reply of an S3 service with a specific error code, such as
    /// `RequestTimeTooSkewed` (403) and `ExpiredToken` (400).
    pub fn error(status: u16, code: &'static str) -> Self {
        Self::Refuse { status, code, retry_after_secs: None }
    }
}

/// A condition on a request.
type Test = Box<dyn Fn(&Seen) -> bool + Send>;

/// The requests to which a [`Fault`] applies: all of them, unless the functions below restrict
/// the rule.
pub struct Rule {
    pub(super) fault: Fault,
    kind: Option<Kind>,
    path: Option<String>,
    test: Option<Test>,
    skip: u64,
    times: Option<u64>,
    chance: Option<(f64, u64)>,
    during: Option<Arc<AtomicBool>>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("fault", &self.fault)
            .field("kind", &self.kind)
            .field("path", &self.path)
            .field("skip", &self.skip)
            .field("times", &self.times)
            .field("chance", &self.chance)
            .finish_non_exhaustive()
    }
}

impl Rule {
    /// Creates a rule for every request.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            kind: None,
            path: None,
            test: None,
            skip: 0,
            times: None,
            chance: None,
            during: None,
        }
    }

    /// Restricts the rule to requests of this kind.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Restricts the rule to requests with this text in path and query, as they are sent.
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// Restricts the rule to requests for which `test` returns true.
    pub fn test(mut self, test: impl Fn(&Seen) -> bool + Send + 'static) -> Self {
        self.test = Some(Box::new(test));
        self
    }

    /// Skips the first `count` of the requests that the other restrictions select.
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Applies the fault at most `count` times.
    pub fn times(mut self, count: u64) -> Self {
        self.times = Some(count);
        self
    }

    /// Restricts the rule to a share (0 to 1) of the requests, drawn from a seed.
    pub fn chance(mut self, share: f64, seed: u64) -> Self {
        self.chance = Some((share, seed));
        self
    }

    /// Restricts the rule to the time while `is_on` is set.
    pub fn during(mut self, is_on: Arc<AtomicBool>) -> Self {
        self.during = Some(is_on);
        self
    }

    /// Returns true if the rule selects this request by kind, path and test.
    pub(super) fn is_for(&self, seen: &Seen) -> bool {
        self.kind.is_none_or(|kind| kind == seen.kind)
            && self.path.as_ref().is_none_or(|part| seen.path.contains(part.as_str()))
            && self.test.as_ref().is_none_or(|test| test(seen))
    }

    /// Returns true if the fault applies to this request, and counts the request.
    pub(super) fn strikes(&mut self, seen: &Seen) -> bool {
        let is_on = self.during.as_ref().is_none_or(|is_on| is_on.load(Ordering::SeqCst));
        if !is_on || !self.is_for(seen) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times == Some(0) {
            return false;
        }
        if let Some((share, seed)) = &mut self.chance
            && draw(seed) >= *share
        {
            return false;
        }
        if let Some(times) = &mut self.times {
            *times -= 1;
        }
        true
    }
}

/// Returns a number in 0 .. 1 and updates the seed (SplitMix64).
fn draw(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}
