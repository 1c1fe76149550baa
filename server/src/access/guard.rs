//! The middleware for access control. It puts the client of a request, as a [`Principal`], into
//! the extensions of the request.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, Request},
    response::{IntoResponse, Response},
};
use http::{Extensions, HeaderMap, Method};
use snap_remote::wire::headers::EpochTag;

use super::{
    AccessControl,
    browser::{foreign, malformed_host, runs},
    cookie::Cookie,
    from_header, network, no_rights,
    principal::{Principal, PrincipalSlot, Right},
};
use crate::{
    body::{ClientKey, drain},
    hub::no_repository,
    problem::{Code, HttpProblem},
    route_table::RequiredAccess,
};

/// Header in which a proxy names the address of its client.
const FORWARDED: &str = "x-forwarded-for";

/// Header in which a proxy names the scheme that its client used.
const PROTO: &str = "x-forwarded-proto";

/// Forwards a request if its client has the required right and is within the rate limits. Returns a
/// refusal otherwise.
pub async fn guard<A: Future<Output = Response>>(
    access: &Arc<AccessControl>,
    needs: &RequiredAccess,
    mut request: Request,
    next: impl FnOnce(Request) -> A,
) -> Response {
    access.reload_if_due().await;
    let address = access.address(request.headers(), request.extensions());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let needs = match needs {
        RequiredAccess::ReadAll if access.metrics_are_public => &RequiredAccess::Nothing,
        needs => needs,
    };
    let is_encrypted = access.is_encrypted(request.headers(), request.extensions());
    let headers = request.headers();
    let wrong = malformed_host(headers).or_else(|| runs(&path, headers)).or_else(|| {
        let malformed = EpochTag::in_request(headers).err()?;
        Some(HttpProblem::new(Code::Invalid, malformed.to_string()))
    });
    let identified = match wrong.or_else(|| access.foreign(&request)) {
        Some(problem) => Err(problem),
        None => access.who(needs, &method, request.headers(), is_encrypted, address).await,
    };
    let (who, problem) = match identified {
        Ok(who) => {
            let problem = refused(needs, &who);
            (who, problem)
        }
        Err(problem) => (Principal::anonymous(), Some(problem)),
    };
    if let Some(slot) = request.extensions().get::<PrincipalSlot>() {
        slot.note(&who);
    }
    let reads = matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
    // Only changes of a repository count as uploads: queries and the login form have a body, too.
    let changes = matches!(needs, RequiredAccess::Repository(right, _) if *right > Right::Read);
    let is_upload = changes && method != Method::DELETE;
    let paced = match problem {
        Some(problem) => Err(problem),
        None if *needs == RequiredAccess::Nothing && reads => Ok(None),
        None => access.pace.request(&who, address).and_then(|()| match is_upload {
            true => access.pace.upload(&who, address),
            false => Ok(None),
        }),
    };
    match paced {
        Err(problem) => {
            let (head, body) = request.into_parts();
            drain(access.clock(), &head.headers, body).await;
            problem.into_response()
        }
        Ok(upload) => {
            // For a client without a token, the quotas apply to its network.
            let from = who.name().is_none().then(|| network(address));
            let client_key = ClientKey::new((who.name(), from));
            request.extensions_mut().insert(who);
            if let Some(upload) = &upload {
                request = request.map(|body| upload.paced(body));
            }
            client_key.scope(next(request)).await
        }
    }
}

/// Returns the refusal of a client that lacks the required right; `None` if it has the right.
fn refused(needs: &RequiredAccess, who: &Principal) -> Option<HttpProblem> {
    match needs {
        RequiredAccess::Nothing | RequiredAccess::Page => None,
        _ if !who.has_grants() => Some(no_rights(who)),
        RequiredAccess::AnyRight => None,
        RequiredAccess::ReadAll if who.can_everywhere(Right::Read) => None,
        RequiredAccess::ReadAll => Some(HttpProblem::new(
            Code::Forbidden,
            "the token does not grant `read` on all repositories",
        )),
        RequiredAccess::Repository(right, name) if who.can(*right, name) => None,
        // A repository that the client may not read does not exist for it.
        RequiredAccess::Repository(_, name) if !who.can(Right::Read, name) => {
            Some(HttpProblem::new(Code::NoRepository, no_repository(name)))
        }
        RequiredAccess::Repository(right, name) => {
            let why = format!("the token does not grant `{}` on `{name}`", right.name());
            Some(HttpProblem::new(Code::Forbidden, why))
        }
    }
}

impl AccessControl {
    /// Returns the refusal of a request that a page of another site may have made. Only a server
    /// that has no tokens and is not opened explicitly refuses such requests. It lets every client
    /// do everything, on the assumption that only its own machine can reach it.
    fn foreign(&self, request: &Request) -> Option<HttpProblem> {
        let is_private = !self.is_open && !self.is_guarded();
        is_private.then(|| foreign(request.method(), request.uri(), request.headers())).flatten()
    }

    /// Identifies the client: [`Principal::unrestricted`] on a server without tokens,
    /// [`Principal::anonymous`] if the request has no token or needs none.
    async fn who(
        &self,
        needs: &RequiredAccess,
        method: &Method,
        headers: &HeaderMap,
        is_encrypted: bool,
        address: IpAddr,
    ) -> Result<Principal, HttpProblem> {
        if !self.is_guarded() {
            return Ok(Principal::unrestricted());
        }
        if *needs == RequiredAccess::Nothing {
            return Ok(Principal::anonymous());
        }
        if let Some(secret) = from_header(headers) {
            return self.identify(secret, address).await;
        }
        // A browser sends its cookie with requests of any page, so outside of pages the cookie
        // allows only reads.
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let cookie = Cookie::Token.of(headers, is_encrypted);
        match cookie.filter(|_| reads || *needs == RequiredAccess::Page) {
            None => Ok(Principal::anonymous()),
            Some(secret) => match self.identify(secret, address).await {
                // An old cookie must not lock users out of the login page, even after many wrong
                // tokens from their network.
                Err(problem) if *needs == RequiredAccess::Page && is_wrong(&problem) => {
                    Ok(Principal::anonymous())
                }
                who => who,
            },
        }
    }

    /// Returns the address of the client. If the peer is a trusted proxy, this is the last
    /// address in `X-Forwarded-For` that is not a trusted proxy; otherwise it is the peer.
    pub fn address(&self, headers: &HeaderMap, extensions: &Extensions) -> IpAddr {
        let peer = peer(extensions);
        if !self.proxies.contains(&peer) {
            return peer;
        }
        let all: Vec<&str> = headers
            .get_all(FORWARDED)
            .into_iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|text| text.split(','))
            .collect();
        let named = all.iter().rev().map_while(|text| text.trim().parse::<IpAddr>().ok());
        let mut others = named.map(|address| address.to_canonical());
        others.find(|address| !self.proxies.contains(address)).unwrap_or(peer)
    }

    /// Returns true if the connection is encrypted all the way to the client: by TLS of
    /// this server, or of a trusted proxy.
    pub fn is_encrypted(&self, headers: &HeaderMap, extensions: &Extensions) -> bool {
        let by_proxy = || headers.get(PROTO).is_some_and(|scheme| scheme == "https");
        self.has_tls || (self.proxies.contains(&peer(extensions)) && by_proxy())
    }
}

/// Returns true if a request was refused because of a wrong token.
fn is_wrong(problem: &HttpProblem) -> bool {
    matches!(problem.code, Code::Unauthorized | Code::SlowDown)
}

/// Returns the address of the other end of the connection.
fn peer(extensions: &Extensions) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, settings::ServerSettings};

    #[test]
    fn only_trusted_proxies_set_the_client_address() {
        let proxies = vec!["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let settings = ServerSettings { proxies, ..ServerSettings::default() };
        let access = AccessControl::new(None, &settings, Clock::default());
        let mut headers = HeaderMap::new();
        headers.append(FORWARDED, "10.0.0.1, 198.51.100.7".parse().unwrap());
        headers.append(FORWARDED, "192.0.2.2".parse().unwrap());
        let from = |peer: &str, headers: &HeaderMap| {
            let mut extensions = Extensions::new();
            let peer: IpAddr = peer.parse().unwrap();
            extensions.insert(ConnectInfo(SocketAddr::from((peer, 1))));
            access.address(headers, &extensions).to_string()
        };
        assert_eq!(from("203.0.113.5", &headers), "203.0.113.5");
        assert_eq!(from("192.0.2.1", &headers), "198.51.100.7");
        assert_eq!(from("::ffff:192.0.2.1", &HeaderMap::new()), "192.0.2.1");
    }
}
