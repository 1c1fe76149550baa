//! Harm, and the rules by which it is done.

use std::{fmt, time::Duration};

use super::{kind::Kind, seen::Seen};

/// What is done to a request or its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Held back for that long, then served as if nothing were. The one fault
    /// that goes together with others.
    Delay(Duration),
    /// Never answered, nor forwarded; the connection stays open.
    Stall,
    /// Forwarded; of the reply the head and half of the body come, then nothing,
    /// and the connection stays open.
    StallBody,
    /// The connection is reset before anything is forwarded.
    Reset,
    /// Forwarded, and served whole; then the connection is reset in place of a
    /// reply.
    LoseReply,
    /// Not forwarded; this is the reply.
    Refuse {
        /// HTTP status.
        status: u16,
        /// Code in the S3 error that is the body, such as `SlowDown`.
        code: &'static str,
        /// Value of a `Retry-After` header.
        retry_after_secs: Option<u64>,
    },
    /// Forwarded; the reply announces its whole body, and the connection is
    /// closed after half of it.
    Truncate,
    /// Forwarded; a bit in the middle of the reply's body is flipped.
    FlipReply,
    /// A bit in the middle of the request's body is flipped on its way.
    FlipRequest,
    /// Half of the request's body is forwarded; then the connection to the
    /// service is closed, and that to the client reset.
    CutRequest,
    /// So many bytes of the request's body are forwarded as they come; then the
    /// connection to the service is closed, and that to the client reset. A body
    /// that is no longer passes.
    CutAt(u64),
    /// Forwarded, and served whole; then this status is the reply.
    RefuseAfter(u16),
    /// Forwarded twice, one after the other; the second reply is passed on.
    Duplicate,
    /// The connection is reset at once; the request is forwarded that much later.
    Late(Duration),
    /// Forwarded without its `Range`, so that the reply is the whole object.
    IgnoreRange,
    /// Not forwarded; the reply is a redirection to another path of this host.
    Redirect,
    /// Not forwarded; the reply is 200 and a page, as of a network that wants its
    /// users to log in.
    Pretend,
}

impl Fault {
    /// The reply of an S3 service with that status: 429, 500, 503 and others.
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

    /// The reply of an S3 service that wants to be left alone for a while.
    pub fn retry_after(status: u16, secs: u64) -> Self {
        match Self::status(status) {
            Self::Refuse { status, code, .. } => {
                Self::Refuse { status, code, retry_after_secs: Some(secs) }
            }
            other => other,
        }
    }

    /// The reply of an S3 service with an error code of its own, such as
    /// `RequestTimeTooSkewed` (403) and `ExpiredToken` (400).
    pub fn error(status: u16, code: &'static str) -> Self {
        Self::Refuse { status, code, retry_after_secs: None }
    }
}

/// What a caller wants to know of a request.
type Test = Box<dyn Fn(&Seen) -> bool + Send>;

/// When a [`Fault`] strikes: at each request, less what the functions below
/// leave out.
pub struct Rule {
    pub(super) fault: Fault,
    kind: Option<Kind>,
    path: Option<String>,
    test: Option<Test>,
    skip: u64,
    times: Option<u64>,
    chance: Option<(f64, u64)>,
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
    /// Strikes at each request.
    pub fn new(fault: Fault) -> Self {
        Self { fault, kind: None, path: None, test: None, skip: 0, times: None, chance: None }
    }

    /// Only at requests of this kind.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Only where this occurs in path and query, as they are sent.
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// Only where `test` says so.
    pub fn test(mut self, test: impl Fn(&Seen) -> bool + Send + 'static) -> Self {
        self.test = Some(Box::new(test));
        self
    }

    /// Not at the first `count` of the requests that the rules above leave.
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Not more than `count` times.
    pub fn times(mut self, count: u64) -> Self {
        self.times = Some(count);
        self
    }

    /// Only at a share (0 to 1) of the requests, drawn from a seed.
    pub fn chance(mut self, share: f64, seed: u64) -> Self {
        self.chance = Some((share, seed));
        self
    }

    /// Whether the fault strikes at this request, which is thereby counted.
    pub(super) fn strikes(&mut self, seen: &Seen) -> bool {
        let meant = self.kind.is_none_or(|kind| kind == seen.kind)
            && self.path.as_ref().is_none_or(|part| seen.path.contains(part.as_str()))
            && self.test.as_ref().is_none_or(|test| test(seen));
        if !meant {
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

/// Number in 0 .. 1, and the next seed (splitmix64).
fn draw(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}
