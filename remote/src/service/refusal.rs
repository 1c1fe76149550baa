//! What OpenDAL says of a request that failed, in words of ours.

use opendal::{Error, ErrorKind};

use super::{ServiceError, What, too_long, transport::Reply};

/// Codes with which S3 and those like it refuse, and what they mean.
const CODES: [(&str, What); 18] = [
    ("RequestTimeTooSkewed", What::Clock),
    ("ExpiredToken", What::Expired),
    ("TokenRefreshRequired", What::Expired),
    ("InvalidAccessKeyId", What::Unauthenticated),
    ("NotSignedUp", What::Unauthenticated),
    ("SignatureDoesNotMatch", What::Unauthenticated),
    ("InvalidToken", What::Unauthenticated),
    ("AuthorizationHeaderMalformed", What::Unauthenticated),
    ("NoSuchBucket", What::NoBucket),
    ("QuotaExceeded", What::Full),
    ("InsufficientStorage", What::Full),
    ("SlowDown", What::Busy),
    ("AccessDenied", What::Denied),
    ("NotImplemented", What::Unsupported),
    // What arrived is not what was sent.
    ("BadDigest", What::Temporary),
    ("InvalidDigest", What::Temporary),
    ("XAmzContentChecksumMismatch", What::Temporary),
    ("XAmzContentSHA256Mismatch", What::Temporary),
];

pub(super) fn told(
    operation: &'static str,
    key: &str,
    error: &Error,
    reply: Reply,
) -> ServiceError {
    if let Some(most) = reply.longer_than {
        return ServiceError { operation, ..too_long(key, most) };
    }
    let code = code(error.message());
    let by_status = match reply.status {
        Some(401) => Some(What::Unauthenticated),
        Some(413 | 507) => Some(What::Full),
        Some(429 | 503) => Some(What::Busy),
        Some(501) => Some(What::Unsupported),
        Some(500 | 502 | 504 | 408) => Some(What::Temporary),
        None if is_unconnected(error) => Some(What::Unreachable),
        None if reply.asked => Some(What::Temporary),
        _ => None,
    };
    let by_kind = || match error.kind() {
        ErrorKind::NotFound => What::NotFound,
        ErrorKind::ConditionNotMatch | ErrorKind::AlreadyExists => What::Conflict,
        ErrorKind::PermissionDenied => What::Denied,
        ErrorKind::RateLimited => What::Busy,
        ErrorKind::RangeNotSatisfied => What::Short,
        // A whole answer, of a range that reaches beyond the end.
        ErrorKind::Unexpected if !error.is_temporary() && is_cut(error) => What::Short,
        ErrorKind::Unsupported => What::Unsupported,
        _ if error.is_temporary() => What::Temporary,
        _ => What::Other,
    };
    let what = match code.or(by_status).unwrap_or_else(by_kind) {
        // Two at once, not one who is wrong.
        What::Other if reply.status == Some(409) => What::Other,
        What::Other if reply.status.is_some_and(|status| status / 100 == 4) => What::Refused,
        what => what,
    };
    // Where a code says it all, the text may name keys.
    let message = match code {
        Some(What::Temporary) => "what arrived there is not what was sent".to_owned(),
        Some(_) => String::new(),
        None => said(error, reply.status),
    };
    ServiceError {
        retry_after: reply.retry_after,
        ..ServiceError::new(operation, key, what, message)
    }
}

/// Whether a reply says that what arrived is not what was sent.
pub(super) fn is_garbled(reply: &str) -> bool {
    code(reply) == Some(What::Temporary)
}

/// What the code in a reply means. Nothing else of the message is looked at,
/// for that names keys, which can be whatever they like.
fn code(message: &str) -> Option<What> {
    // As OpenDAL shows a reply that it could read, and the reply itself.
    let begin = ["code: \"", "<Code>"].iter().find_map(|mark| message.split_once(mark));
    let (_, rest) = begin?;
    let said = rest.split(['"', '<']).next()?;
    CODES.iter().find(|(code, _)| said.contains(code)).map(|(_, what)| *what)
}

fn is_cut(error: &Error) -> bool {
    error.to_string().contains("too little data")
}

/// What a service said, or what status it answered with where it said nothing or
/// something else than services do: a page of a proxy.
fn said(error: &Error, status: Option<u16>) -> String {
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
            format!("it answered with status {status} and says nothing of why")
        }
        (Some(text), None) if text.is_empty() => "it says nothing of why".to_owned(),
        (Some(text), _) => text.chars().filter(|char| !char.is_control()).take(300).collect(),
        (None, _) => plain(error),
    }
}

/// What OpenDAL says, without the parts for developers, and the first cause.
fn plain(error: &Error) -> String {
    let mut text = error.message().to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    if let Some(cause) = cause {
        text = format!("{text}: {cause}");
    }
    text.trim().chars().filter(|char| !char.is_control()).take(300).collect()
}

/// Whether no connection came about.
fn is_unconnected(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<reqwest::Error>());
    cause.is_some_and(reqwest::Error::is_connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_words_is_told_by_its_status() {
        let told = |message: &str| said(&Error::new(ErrorKind::Unexpected, message), Some(502));
        let empty = r#"S3Error { code: "", message: "", resource: "", request_id: "" }"#;
        for message in [empty, "<html><h1>Bad Gateway</h1></html>"] {
            assert_eq!(told(message), "it answered with status 502 and says nothing of why");
        }
        let other = r#"S3Error { code: "Odd", message: "it is odd", resource: "/x" }"#;
        assert_eq!(told(other), "Odd: it is odd");
        assert_eq!(told("plain words"), "plain words");
    }

    #[test]
    fn a_key_that_is_called_like_a_code_means_nothing() {
        let said = |text: &str| code(text);
        let shown = r#"S3Error { code: "NoSuchKey", resource: "/b/refs/heads/NoSuchBucket" }"#;
        assert_eq!(said(shown), None);
        assert_eq!(said(r#"S3Error { code: "NoSuchBucket", message: "" }"#), Some(What::NoBucket));
        assert_eq!(said("<Error><Code>ExpiredToken</Code></Error>"), Some(What::Expired));
        assert_eq!(said(r#"{ code: "XMinioAdminBucketQuotaExceeded" }"#), Some(What::Full));
        assert_eq!(said("AccessDenied"), None);
        assert!(is_garbled("<Error><Code>BadDigest</Code></Error>") && !is_garbled("BadDigest"));
    }
}
