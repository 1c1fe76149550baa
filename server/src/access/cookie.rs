//! Cookies, for people with a browser.
//!
//! Where nobody on the way can read them they are called `__Host-…`: a browser
//! takes a cookie of such a name from this server alone, over TLS, so that no
//! neighbour under the same domain, and nobody on the way to an address without
//! TLS, can plant one. Under TLS no other name counts.

use http::{HeaderMap, HeaderValue, header};

/// A cookie of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookie {
    /// It holds a token. It comes with links from elsewhere, too: nothing changes
    /// by following one.
    Token,
    /// A form to log in belongs to it.
    Form,
}

impl Cookie {
    /// What it is called, where nobody on the way can read it (`is_secret`) or
    /// where they can.
    pub fn name(self, is_secret: bool) -> &'static str {
        match (self, is_secret) {
            (Self::Token, true) => "__Host-snap_token",
            (Self::Token, false) => "snap_token",
            (Self::Form, true) => "__Host-snap_form",
            (Self::Form, false) => "snap_form",
        }
    }

    /// What it says in a request.
    pub fn of(self, headers: &HeaderMap, is_secret: bool) -> Option<&str> {
        let all = headers.get_all(header::COOKIE).into_iter();
        let mut pairs =
            all.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
        let name = self.name(is_secret);
        pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
    }

    /// What sets it, for so many seconds or until the browser is closed; `None`
    /// for what cannot stand in a header.
    pub fn set(self, value: &str, is_secret: bool, lasts_secs: Option<i64>) -> Option<HeaderValue> {
        let name = self.name(is_secret);
        let sent = if self == Self::Form { "Strict" } else { "Lax" };
        let secure = if is_secret { "; Secure" } else { "" };
        let lasts = lasts_secs.map(|secs| format!("; Max-Age={secs}")).unwrap_or_default();
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite={sent}{secure}{lasts}");
        HeaderValue::from_str(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_counts_under_its_own_name_only() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=b; snap_tokens=x; snap_form=y".parse().unwrap());
        assert_eq!(Cookie::Token.of(&headers, false), None);
        headers.append(header::COOKIE, "c=d; snap_token=xyz".parse().unwrap());
        assert_eq!(Cookie::Token.of(&headers, false), Some("xyz"));
        assert_eq!(Cookie::Form.of(&headers, false), Some("y"));
        // Anybody on the way could have planted these.
        assert_eq!(Cookie::Token.of(&headers, true), None);
        assert_eq!(Cookie::Form.of(&headers, true), None);
        headers.append(header::COOKIE, "__Host-snap_token=ours".parse().unwrap());
        assert_eq!(Cookie::Token.of(&headers, true), Some("ours"));
    }

    #[test]
    fn what_a_browser_wants_of_such_a_name_is_said() {
        let set = |is_secret| Cookie::Form.set("1", is_secret, Some(60)).unwrap();
        let plain = "snap_form=1; Path=/; HttpOnly; SameSite=Strict; Max-Age=60";
        assert_eq!(set(false), plain);
        let secret = "__Host-snap_form=1; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=60";
        assert_eq!(set(true), secret);
        assert_eq!(Cookie::Token.set("a\nb", false, None), None);
    }
}
