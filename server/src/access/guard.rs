//! What lets a request pass, or not. Whoever asks stands in the extensions of
//! the request as a [`Who`].

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, Request},
    response::{IntoResponse, Response},
};
use http::{Extensions, HeaderMap, Method};

use super::{
    Access,
    browser::{foreign, malformed_host, runs},
    cookie::Cookie,
    from_header,
    need::{Need, need},
    network, stranger,
    who::{Asker, Right, Who},
};
use crate::{
    body::{Sharer, linger},
    hub::no_repository,
    problem::{Code, Problem},
};

/// Header in which proxies say for whom they ask.
const FORWARDED: &str = "x-forwarded-for";

/// Header in which they say how they were asked.
const PROTO: &str = "x-forwarded-proto";

/// Lets a request pass if whoever asks may do that.
pub async fn guard<A: Future<Output = Response>>(
    access: &Arc<Access>,
    mut request: Request,
    next: impl FnOnce(Request) -> A,
) -> Response {
    access.follow().await;
    let address = access.address(request.headers(), request.extensions());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let needs = match need(&method, &path) {
        Need::ReadAll if access.is_watched_openly => Need::Nothing,
        needs => needs,
    };
    let is_secret = access.is_secret(request.headers(), request.extensions());
    let headers = request.headers();
    let wrong = malformed_host(headers).or_else(|| runs(&path, headers));
    let asked = match wrong.or_else(|| access.foreign(&request)) {
        Some(problem) => Err(problem),
        None => access.who(&needs, &method, (request.headers(), is_secret), address).await,
    };
    let (who, problem) = match asked {
        Ok(who) => {
            let problem = refused(&needs, &who);
            (who, problem)
        }
        Err(problem) => (Who::nobody(), Some(problem)),
    };
    if let Some(asker) = request.extensions().get::<Asker>() {
        asker.note(&who);
    }
    let reads = matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
    // A question may have a body, too, and so has the form to log in.
    let brings = matches!(&needs, Need::In(right, _) if *right > Right::Read);
    let sends = brings && method != Method::DELETE;
    let paced = match problem {
        Some(problem) => Err(problem),
        None if needs == Need::Nothing && reads => Ok(None),
        None => access.pace.request(&who, address).and_then(|()| match sends {
            true => access.pace.upload(&who, address),
            false => Ok(None),
        }),
    };
    match paced {
        Err(problem) => {
            let (head, body) = request.into_parts();
            linger(&head.headers, body).await;
            problem.into_response()
        }
        Ok(upload) => {
            // Where there is no token it is the address that has a share.
            let from = who.name().is_none().then(|| network(address));
            let sharer = Sharer::new((who.name(), from));
            request.extensions_mut().insert(who);
            if let Some(upload) = &upload {
                request = request.map(|body| upload.paced(body));
            }
            sharer.asks(next(request)).await
        }
    }
}

/// Why somebody may not do what needs that, if they may not.
fn refused(needs: &Need<'_>, who: &Who) -> Option<Problem> {
    match needs {
        Need::Nothing | Need::Page => None,
        _ if !who.is_known() => Some(stranger(who)),
        Need::Somebody => None,
        Need::ReadAll if who.may_everywhere(Right::Read) => None,
        Need::ReadAll => Some(Problem::new(Code::Forbidden, "this token is not for everything")),
        Need::In(right, name) if who.may(*right, name) => None,
        // What somebody may not read is not there for them.
        Need::In(_, name) if !who.may(Right::Read, name) => {
            Some(Problem::new(Code::NoRepository, no_repository(name)))
        }
        Need::In(right, name) => {
            let why = format!("this token may not do that in `{name}`: it needs {}", right.name());
            Some(Problem::new(Code::Forbidden, why))
        }
    }
}

impl Access {
    /// Why a page elsewhere may not have a browser ask that, where whoever
    /// reaches this server may do everything because nobody else should.
    fn foreign(&self, request: &Request) -> Option<Problem> {
        let is_private = !self.is_open && !self.is_guarded();
        is_private.then(|| foreign(request.method(), request.uri(), request.headers())).flatten()
    }

    /// Whoever asks; nobody where no token came, or none is needed.
    async fn who(
        &self,
        needs: &Need<'_>,
        method: &Method,
        (headers, is_secret): (&HeaderMap, bool),
        address: IpAddr,
    ) -> Result<Who, Problem> {
        if !self.is_guarded() {
            return Ok(Who::anybody());
        }
        if *needs == Need::Nothing {
            return Ok(Who::nobody());
        }
        if let Some(secret) = from_header(headers) {
            return self.identify(secret, address).await;
        }
        // A browser sends its cookie whoever makes it ask: in the protocol that
        // is good for reading only.
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let cookie = Cookie::Token.of(headers, is_secret);
        match cookie.filter(|_| reads || *needs == Need::Page) {
            None => Ok(Who::nobody()),
            Some(secret) => match self.identify(secret, address).await {
                // An old cookie must not keep people from the page to log in,
                // however often it, or others of their network, came before.
                Err(problem) if *needs == Need::Page && is_wrong(&problem) => Ok(Who::nobody()),
                who => who,
            },
        }
    }

    /// Where a request comes from: the last address that a proxy of ours names,
    /// else the other end of the connection.
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

    /// Whether nobody on the way can read what is asked and answered: by TLS of
    /// this server, or of a proxy of ours.
    pub fn is_secret(&self, headers: &HeaderMap, extensions: &Extensions) -> bool {
        let by_proxy = || headers.get(PROTO).is_some_and(|scheme| scheme == "https");
        self.has_tls || (self.proxies.contains(&peer(extensions)) && by_proxy())
    }
}

/// Whether a token was found not to hold.
fn is_wrong(problem: &Problem) -> bool {
    matches!(problem.code, Code::Unauthorized | Code::SlowDown)
}

/// The other end of the connection.
fn peer(extensions: &Extensions) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn only_a_proxy_of_ours_says_for_whom_it_asks() {
        let proxies = vec!["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let access = Access::new(None, &Settings { proxies, ..Settings::default() });
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
