//! Converts errors of OpenDAL to [`ServiceError`].

use std::{io, iter};

use opendal::{Error, ErrorKind};
use rustls::{CertificateError, OtherError};

use super::{FailureDetail, FailureReason, ServiceError, call::HttpReply, too_long};

/// Error codes of S3 and compatible services, and their meanings.
const CODES: [(&str, FailureReason); 18] = [
    ("RequestTimeTooSkewed", FailureReason::Clock),
    ("ExpiredToken", FailureReason::Expired),
    ("TokenRefreshRequired", FailureReason::Expired),
    ("InvalidAccessKeyId", FailureReason::Unauthenticated),
    ("NotSignedUp", FailureReason::Unauthenticated),
    ("SignatureDoesNotMatch", FailureReason::Unauthenticated),
    ("InvalidToken", FailureReason::Unauthenticated),
    ("AuthorizationHeaderMalformed", FailureReason::Unauthenticated),
    ("NoSuchBucket", FailureReason::NoBucket),
    ("QuotaExceeded", FailureReason::Full),
    ("InsufficientStorage", FailureReason::Full),
    ("SlowDown", FailureReason::Busy),
    ("AccessDenied", FailureReason::Denied),
    ("NotImplemented", FailureReason::Unsupported),
    // The body was damaged in transit.
    ("BadDigest", FailureReason::Temporary),
    ("InvalidDigest", FailureReason::Temporary),
    ("XAmzContentChecksumMismatch", FailureReason::Temporary),
    ("XAmzContentSHA256Mismatch", FailureReason::Temporary),
];

pub(crate) fn service_error(
    operation: &'static str,
    key: &str,
    error: &Error,
    reply: &HttpReply,
) -> ServiceError {
    if let Some(most) = reply.longer_than {
        return ServiceError { operation, ..too_long(key, most) };
    }
    if let Some(why) = reply.endless_listing {
        let message = format!("the listing does not end: {why}");
        return ServiceError::new(operation, key, FailureReason::Other, message);
    }
    let code = code(error.message());
    let by_status = match reply.status {
        Some(401) => Some(FailureReason::Unauthenticated),
        Some(413 | 507) => Some(FailureReason::Full),
        // A range after the end of the object.
        Some(416) => Some(FailureReason::Short),
        Some(429 | 503) => Some(FailureReason::Busy),
        Some(501) => Some(FailureReason::Unsupported),
        Some(500 | 502 | 504 | 408) => Some(FailureReason::Temporary),
        None if is_unconnected(error) => Some(FailureReason::Unreachable),
        None if lacks_credentials(error) => Some(FailureReason::Unauthenticated),
        None if reply.asked => Some(FailureReason::Temporary),
        _ => None,
    };
    let by_kind = || match error.kind() {
        ErrorKind::NotFound => FailureReason::NotFound,
        ErrorKind::ConditionNotMatch | ErrorKind::AlreadyExists => FailureReason::Conflict,
        ErrorKind::PermissionDenied => FailureReason::Denied,
        ErrorKind::RateLimited => FailureReason::Busy,
        ErrorKind::RangeNotSatisfied => FailureReason::Short,
        // The reply is complete, but the range ends after the object.
        ErrorKind::Unexpected if !error.is_temporary() && is_cut(error) => FailureReason::Short,
        // The reply is longer than the range, but it is not the whole object. A service that
        // ignores ranges sends the whole object.
        ErrorKind::Unexpected if is_long(error) && reply.status != Some(200) => {
            FailureReason::Temporary
        }
        ErrorKind::Unsupported => FailureReason::Unsupported,
        _ if error.is_temporary() => FailureReason::Temporary,
        _ => FailureReason::Other,
    };
    let what = match code.or(by_status).unwrap_or_else(by_kind) {
        // Two concurrent requests conflicted; neither is wrong.
        FailureReason::Other if reply.status == Some(409) => FailureReason::Other,
        FailureReason::Other if reply.status.is_some_and(|status| status / 100 == 4) => {
            FailureReason::Refused
        }
        what => what,
    };
    let is_unreachable = what == FailureReason::Unreachable;
    // A known code says enough. Do not show the text, which may name keys.
    let message = match code {
        Some(FailureReason::Temporary) => "the data was damaged in transit".to_owned(),
        Some(_) => String::new(),
        None if lacks_credentials(error) => "no credentials were found".to_owned(),
        None if is_unreachable => unreachable(error, reply.host.as_deref()),
        None => service_message(error, reply.status),
    };
    ServiceError {
        detail: is_unreachable.then(|| certificate_problem(error)).flatten(),
        retry_after: reply.retry_after,
        ..ServiceError::new(operation, key, what, message)
    }
}

/// Returns true if a reply says that the body was damaged in transit.
pub(super) fn is_garbled(reply: &str) -> bool {
    code(reply) == Some(FailureReason::Temporary)
}

/// Returns the meaning of the code in a reply. Ignores the rest of the message, which names object
/// keys: they may contain the text of a code.
fn code(message: &str) -> Option<FailureReason> {
    // The two forms: OpenDAL's debug output of a parsed reply, and the XML itself.
    let begin = ["code: \"", "<Code>"].iter().find_map(|mark| message.split_once(mark));
    let (_, rest) = begin?;
    let said = rest.split(['"', '<']).next()?;
    CODES.iter().find(|(code, _)| said.contains(code)).map(|(_, what)| *what)
}

/// Returns true if the request was not sent, because there are no credentials to sign it with.
fn lacks_credentials(error: &Error) -> bool {
    deepest_source(error)
        .is_some_and(|cause| cause.to_string().contains("failed to load signing credential"))
}

fn is_cut(error: &Error) -> bool {
    error.to_string().contains("too little data")
}

pub(super) fn is_long(error: &Error) -> bool {
    error.to_string().contains("too much data")
}

/// Returns the message of the service. If the message is empty, or is the page of a proxy, returns
/// the status instead.
fn service_message(error: &Error, status: Option<u16>) -> String {
    let message = error.message();
    let text = match message.trim_start() {
        shown if shown.starts_with("S3Error {") || shown.starts_with("AzblobError {") => {
            let part = |mark: &str| {
                let (_, rest) = shown.split_once(mark)?;
                rest.split('"').next().filter(|said| !said.is_empty()).map(str::to_owned)
            };
            let parts = [part("code: \""), part("message: \"")];
            Some(parts.into_iter().flatten().collect::<Vec<_>>().join(": "))
        }
        shown if shown.starts_with('<') => Some(String::new()),
        _ => None,
    };
    match (text, status) {
        (Some(text), Some(status)) if text.is_empty() => {
            format!("the service replied with status {status} and no message")
        }
        (Some(text), None) if text.is_empty() => "the service sent no message".to_owned(),
        (Some(text), _) => text.chars().filter(|char| !char.is_control()).take(300).collect(),
        (None, _) => root_cause(error),
    }
}

/// Returns the message for a connection that was not established.
fn unreachable(error: &Error, host: Option<&str>) -> String {
    let host = host.unwrap_or("the host");
    match deepest_source(error) {
        Some(cause) => printable(&format!("cannot connect to {host}: {cause}")),
        None => format!("cannot connect to {host}"),
    }
}

/// Returns the message of OpenDAL and its root cause, without the parts for developers.
fn root_cause(error: &Error) -> String {
    match deepest_source(error) {
        Some(cause) => printable(&format!("{}: {cause}", error.message())),
        None => printable(error.message()),
    }
}

fn deepest_source(error: &Error) -> Option<&dyn std::error::Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    cause
}

/// Returns the beginning of a text, without control characters.
fn printable(text: &str) -> String {
    text.trim().chars().filter(|char| !char.is_control()).take(300).collect()
}

/// Returns the problem with the certificate of the server, if one ended the connection.
fn certificate_problem(error: &Error) -> Option<FailureDetail> {
    let causes = iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.filter_map(tls_error).find_map(|error| match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(cause)))
            if matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
        {
            Some(FailureDetail::CaCertificate)
        }
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            Some(FailureDetail::Certificate)
        }
        _ => None,
    })
}

/// Returns the TLS error that an error is or wraps. `source()` of an I/O error skips the wrapped
/// error.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => tls_error(error.get_ref()?),
        None => error.downcast_ref(),
    }
}

/// Returns true if no connection was established.
fn is_unconnected(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<reqwest::Error>());
    cause.is_some_and(reqwest::Error::is_connect)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_error_without_a_message_is_described_by_its_status() {
        let told =
            |message: &str| service_message(&Error::new(ErrorKind::Unexpected, message), Some(502));
        let empty = r#"S3Error { code: "", message: "", resource: "", request_id: "" }"#;
        for message in [empty, "<html><h1>Bad Gateway</h1></html>"] {
            assert_eq!(told(message), "the service replied with status 502 and no message");
        }
        let other = r#"S3Error { code: "Odd", message: "it is odd", resource: "/x" }"#;
        assert_eq!(told(other), "Odd: it is odd");
        assert_eq!(told("plain words"), "plain words");
    }

    #[test]
    fn an_object_key_is_not_parsed_as_an_error_code() {
        let said = |text: &str| code(text);
        let shown = r#"S3Error { code: "NoSuchKey", resource: "/b/refs/heads/NoSuchBucket" }"#;
        assert_eq!(said(shown), None);
        assert_eq!(
            said(r#"S3Error { code: "NoSuchBucket", message: "" }"#),
            Some(FailureReason::NoBucket)
        );
        assert_eq!(said("<Error><Code>ExpiredToken</Code></Error>"), Some(FailureReason::Expired));
        assert_eq!(
            said(r#"{ code: "XMinioAdminBucketQuotaExceeded" }"#),
            Some(FailureReason::Full)
        );
        assert_eq!(said("AccessDenied"), None);
        assert!(is_garbled("<Error><Code>BadDigest</Code></Error>") && !is_garbled("BadDigest"));
    }

    #[test]
    fn certificate_errors_are_distinguished() {
        let problem = |refused: CertificateError| {
            // Hyper reports a failed handshake in this way: one I/O error in another.
            let refused = rustls::Error::InvalidCertificate(refused);
            let inner = io::Error::new(io::ErrorKind::InvalidData, refused);
            let outer = io::Error::other(inner);
            certificate_problem(&Error::new(ErrorKind::Unexpected, "x").set_source(outer))
        };
        let of_library = |error| CertificateError::Other(OtherError(Arc::new(error)));
        assert_eq!(problem(CertificateError::UnknownIssuer), Some(FailureDetail::Certificate));
        assert_eq!(
            problem(of_library(webpki::Error::CaUsedAsEndEntity)),
            Some(FailureDetail::CaCertificate)
        );
        assert_eq!(problem(of_library(webpki::Error::BadDer)), Some(FailureDetail::Certificate));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let refused = Error::new(ErrorKind::Unexpected, "x").set_source(refused);
        assert_eq!(certificate_problem(&refused), None);
    }
}
