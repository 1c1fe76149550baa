//! The operations of the protocol: the method, the path and the required access of each, and its
//! URL.

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::right::RouteAccess;

/// The name of the only repository of a server without names.
pub const ONLY: &str = "default";

/// The version of the protocol, which is the first part of each path.
pub const PROTOCOL: u32 = 1;

/// Bytes to percent-encode: all but the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Bytes to percent-encode in several segments of a path.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// The declaration of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSpec {
    /// A route for `GET` serves `HEAD`, too, unless another one is declared for `HEAD`.
    pub method: Method,
    /// The path in axum's syntax, such as `/v1/repos/{repo}/refs/{*name}`.
    pub path: &'static str,
    pub access: RouteAccess,
}

macro_rules! routes {
    ($($route:ident $method:ident $path:literal $access:ident;)*) => {
        /// An operation of the protocol. `docs/openapi.json` has the same names, which begin with a
        /// small letter there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Route {
            $($route,)*
        }

        impl Route {
            /// All operations.
            pub const ALL: &[Self] = &[$(Self::$route,)*];

            /// Returns the declaration of the operation.
            pub const fn spec(self) -> RouteSpec {
                match self {
                    $(Self::$route => RouteSpec {
                        method: Method::$method,
                        path: $path,
                        access: RouteAccess::$access,
                    },)*
                }
            }
        }
    };
}

routes! {
    Health GET "/health" Nothing;
    Ready GET "/ready" Nothing;
    Metrics GET "/metrics" ReadAll;
    Server GET "/v1" Nothing;
    Openapi GET "/v1/openapi.json" Nothing;
    Repositories GET "/v1/repos" AnyRight;
    CreateRepository PUT "/v1/repos/{repo}" ADMIN;
    Config GET "/v1/repos/{repo}/config" READ;
    MendConfig POST "/v1/repos/{repo}/config" WRITE;
    Head GET "/v1/repos/{repo}/head" READ;
    MendHead POST "/v1/repos/{repo}/head" WRITE;
    Refs GET "/v1/repos/{repo}/refs" READ;
    Ref GET "/v1/repos/{repo}/refs/{*name}" READ;
    // The handler refuses moves that are not a fast-forward to clients without `write`.
    MoveRef PUT "/v1/repos/{repo}/refs/{*name}" APPEND;
    DeleteRef DELETE "/v1/repos/{repo}/refs/{*name}" WRITE;
    Packs GET "/v1/repos/{repo}/packs" READ;
    Pack GET "/v1/repos/{repo}/packs/{id}" READ;
    PackLength HEAD "/v1/repos/{repo}/packs/{id}" READ;
    SendPack PUT "/v1/repos/{repo}/packs/{id}" APPEND;
    Index GET "/v1/repos/{repo}/index" READ;
    IndexFile GET "/v1/repos/{repo}/index/{name}" READ;
    Publish PUT "/v1/repos/{repo}/index/{name}" APPEND;
    Object GET "/v1/repos/{repo}/objects/{id}" READ;
    ObjectLength HEAD "/v1/repos/{repo}/objects/{id}" READ;
    SendObject PUT "/v1/repos/{repo}/objects/{id}" APPEND;
    // A query by `POST`, because its ids are too long for a URL.
    Missing POST "/v1/repos/{repo}/missing" READ;
    TakeBundle POST "/v1/repos/{repo}/bundles" APPEND;
    Log GET "/v1/repos/{repo}/log" READ;
    Diff GET "/v1/repos/{repo}/diff" READ;
    Find GET "/v1/repos/{repo}/find" READ;
    Stats GET "/v1/repos/{repo}/stats" READ;
    Commit GET "/v1/repos/{repo}/commits/{commit}" READ;
    Tree GET "/v1/repos/{repo}/commits/{commit}/tree" READ;
    TreeAt GET "/v1/repos/{repo}/commits/{commit}/tree/{*path}" READ;
    Tar GET "/v1/repos/{repo}/commits/{commit}/archive.tar" READ;
    TarZst GET "/v1/repos/{repo}/commits/{commit}/archive.tar.zst" READ;
    Zip GET "/v1/repos/{repo}/commits/{commit}/archive.zip" READ;
    Bundle GET "/v1/repos/{repo}/commits/{commit}/bundle" READ;
    BundleLength HEAD "/v1/repos/{repo}/commits/{commit}/bundle" READ;
    BundleWithout POST "/v1/repos/{repo}/commits/{commit}/bundle" READ;
    File GET "/v1/repos/{repo}/commits/{commit}/files/{*path}" READ;
    FileLength HEAD "/v1/repos/{repo}/commits/{commit}/files/{*path}" READ;
}

impl Route {
    /// Returns the path of the URL, with these values of its parameters. Encodes each value: in a
    /// raw name of a ref, `#` would begin a fragment, and `%41` would be another name.
    pub fn url(self, values: &[&[u8]]) -> String {
        let mut values = values.iter();
        let parts = self.spec().path.split('/').map(|part| match part.strip_prefix('{') {
            None => part.to_owned(),
            Some(parameter) => {
                let value = values.next().copied().unwrap_or_default();
                if parameter.starts_with('*') { encode_path(value) } else { encode_segment(value) }
            }
        });
        parts.collect::<Vec<_>>().join("/")
    }
}

/// Encodes a value as one segment of a path, or as a value of a query.
pub fn encode_segment(bytes: &[u8]) -> String {
    percent_encode(bytes, RESERVED).to_string()
}

/// Encodes a path. `/` separates its segments.
pub fn encode_path(bytes: &[u8]) -> String {
    percent_encode(bytes, RESERVED_IN_PATH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_encode_the_values_of_parameters() {
        assert_eq!(Route::Repositories.url(&[]), "/v1/repos");
        assert_eq!(Route::Pack.url(&[b"team/a", b"5f"]), "/v1/repos/team%2Fa/packs/5f");
        let url = Route::Ref.url(&[b"a%2F", b"heads/x#%41/~"]);
        assert_eq!(url, "/v1/repos/a%252F/refs/heads/x%23%2541/~");
        let url = Route::File.url(&[b"a", b"feat/x", b"a b/<\xff>?"]);
        assert_eq!(url, "/v1/repos/a/commits/feat%2Fx/files/a%20b/%3C%FF%3E%3F");
    }
}
