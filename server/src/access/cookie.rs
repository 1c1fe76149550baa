//! The cookies that a browser keeps for the server.
//!
//! On an encrypted connection their names begin with `__Host-`. A browser accepts a cookie of such
//! a name only from this host and over TLS. So neither another host under the same domain, nor an
//! attacker on an unencrypted connection, can plant one. On an encrypted connection the server
//! accepts no other names.

use http::{HeaderMap, HeaderValue, header};

/// A cookie of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookie {
    /// Holds a token. A browser also sends it when a user follows a link from another site. That is
    /// safe, since a link changes nothing.
    Token,
    /// Holds the secret from which the CSRF token of the login form is derived.
    Form,
}

impl Cookie {
    /// Returns the name of the cookie, for an encrypted connection (`is_encrypted`) or an
    /// unencrypted one.
    pub fn name(self, is_encrypted: bool) -> &'static str {
        match (self, is_encrypted) {
            (Self::Token, true) => "__Host-snap_token",
            (Self::Token, false) => "snap_token",
            (Self::Form, true) => "__Host-snap_form",
            (Self::Form, false) => "snap_form",
        }
    }

    /// Returns the value of the cookie in a request.
    pub fn of(self, headers: &HeaderMap, is_encrypted: bool) -> Option<&str> {
        let all = headers.get_all(header::COOKIE).into_iter();
        let mut pairs =
            all.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
        let name = self.name(is_encrypted);
        pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns a `Set-Cookie` header. The cookie lasts `lasts_secs` seconds; with `None`, until the
    /// browser is closed. Returns `None` if a header cannot contain the value.
    pub fn set(
        self,
        value: &str,
        is_encrypted: bool,
        lasts_secs: Option<i64>,
    ) -> Option<HeaderValue> {
        let name = self.name(is_encrypted);
        let sent = if self == Self::Form { "Strict" } else { "Lax" };
        let secure = if is_encrypted { "; Secure" } else { "" };
        let lasts = lasts_secs.map(|secs| format!("; Max-Age={secs}")).unwrap_or_default();
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite={sent}{secure}{lasts}");
        HeaderValue::from_str(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_read_only_under_its_exact_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=b; snap_tokens=x; snap_form=y".parse().unwrap());
        assert_eq!(Cookie::Token.of(&headers, false), None);
        headers.append(header::COOKIE, "c=d; snap_token=xyz".parse().unwrap());
        assert_eq!(Cookie::Token.of(&headers, false), Some("xyz"));
        assert_eq!(Cookie::Form.of(&headers, false), Some("y"));
        // An attacker on an unencrypted connection could have planted these.
        assert_eq!(Cookie::Token.of(&headers, true), None);
        assert_eq!(Cookie::Form.of(&headers, true), None);
        headers.append(header::COOKIE, "__Host-snap_token=ours".parse().unwrap());
        assert_eq!(Cookie::Token.of(&headers, true), Some("ours"));
    }

    #[test]
    fn cookies_have_the_attributes_that_their_prefix_requires() {
        let set = |is_encrypted| Cookie::Form.set("1", is_encrypted, Some(60)).unwrap();
        let plain = "snap_form=1; Path=/; HttpOnly; SameSite=Strict; Max-Age=60";
        assert_eq!(set(false), plain);
        let secret = "__Host-snap_form=1; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=60";
        assert_eq!(set(true), secret);
        assert_eq!(Cookie::Token.set("a\nb", false, None), None);
    }
}
