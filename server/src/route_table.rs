//! The table of routes. A route declares its method, its path, the access that it requires, and its
//! handler. The declarations define the router, access control, and the labels of metrics.

use std::collections::BTreeMap;

use axum::{
    Router,
    handler::Handler,
    routing::{MethodFilter, MethodRouter, on},
};
use http::Method;
use percent_encoding::percent_decode_str;
use snap_remote::wire::{
    right::{Right, RouteAccess},
    routes::RouteSpec,
};

/// The access that a request requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequiredAccess {
    /// As [`RouteAccess::Nothing`].
    Nothing,
    /// As [`RouteAccess::AnyRight`].
    AnyRight,
    /// A right in the repository of this name.
    Repository(Right, String),
    /// As [`RouteAccess::ReadAll`].
    ReadAll,
    /// As [`RouteAccess::Page`].
    Page,
}

impl RequiredAccess {
    /// Returns the name of the repository that the request concerns.
    pub fn repository(&self) -> Option<&str> {
        match self {
            Self::Repository(_, name) => Some(name),
            _ => None,
        }
    }
}

/// Collects the routes of a part of the server.
#[derive(Debug)]
pub struct Routes<S> {
    router: Router<S>,
    declared: Vec<RouteSpec>,
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// Returns no routes.
    pub fn new() -> Self {
        Self { router: Router::new(), declared: Vec::new() }
    }

    /// Adds a route.
    ///
    /// # Panics
    /// Panics, when the server starts, if the path is malformed or already has a route for this
    /// method.
    #[must_use]
    pub fn route<T: 'static>(
        self,
        method: Method,
        path: &'static str,
        access: RouteAccess,
        handler: impl Handler<T, S>,
    ) -> Self {
        let methods = on(filter(&method), handler);
        self.add(RouteSpec { method, path, access }, methods)
    }

    /// Adds a route with its handler.
    ///
    /// # Panics
    /// As [`route`](Self::route).
    #[must_use]
    pub fn add(mut self, spec: RouteSpec, handler: MethodRouter<S>) -> Self {
        self.router = self.router.route(spec.path, handler);
        self.declared.push(spec);
        self
    }

    /// Adds the routes of `other`.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.declared.extend(other.declared);
        self
    }

    /// Adds middleware or fallbacks to the router. `change` must not add routes.
    #[must_use]
    pub fn map_router(mut self, change: impl FnOnce(Router<S>) -> Router<S>) -> Self {
        self.router = change(self.router);
        self
    }

    /// Returns the declarations.
    pub fn declared(&self) -> &[RouteSpec] {
        &self.declared
    }

    /// Returns the router for a state, and the declarations.
    pub fn with_state(self, state: S) -> (Router, Vec<RouteSpec>) {
        (self.router.with_state(state), self.declared)
    }
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the filter of axum for a method.
///
/// # Panics
/// Panics if axum cannot route the method.
pub fn filter(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).expect("axum routes this method")
}

/// The access that a request requires if no route is declared for its method and path. The response
/// is 404 or 405, and only clients that may see a repository learn which.
const UNDECLARED: [(&str, RouteAccess); 7] = [
    ("/v1", RouteAccess::AnyRight),
    ("/v1/{*rest}", RouteAccess::AnyRight),
    ("/v1/repos/{repo}", RouteAccess::Repository(Right::Read)),
    ("/v1/repos/{repo}/", RouteAccess::Repository(Right::Read)),
    ("/v1/repos/{repo}/{*rest}", RouteAccess::Repository(Right::Read)),
    ("/r/{repo}", RouteAccess::Repository(Right::Read)),
    ("/r/{repo}/{*rest}", RouteAccess::Repository(Right::Read)),
];

/// Finds the access that a request requires, and its label in metrics.
#[derive(Clone, Debug)]
pub struct RouteTable {
    declared: matchit::Router<DeclaredPath>,
    undeclared: matchit::Router<RouteAccess>,
}

/// The routes of one path.
#[derive(Clone, Debug)]
struct DeclaredPath {
    /// The path with `*` in place of each variable part.
    label: String,
    methods: Vec<(Method, RouteAccess)>,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedRoute<'t> {
    pub access: RequiredAccess,
    /// The path with `*` in place of each variable part, or `other`. This bounds the number of
    /// labels in metrics.
    pub label: &'t str,
}

impl RouteTable {
    /// Creates the table of all routes.
    ///
    /// # Panics
    /// Panics, when the server starts, if two paths contradict each other. The router of axum would
    /// panic, too.
    pub fn new(declared: impl IntoIterator<Item = RouteSpec>) -> Self {
        let mut paths = BTreeMap::new();
        for RouteSpec { method, path, access } in declared {
            let of_path = || DeclaredPath { label: label(path), methods: Vec::new() };
            paths.entry(path).or_insert_with(of_path).methods.push((method, access));
        }
        let mut table = matchit::Router::new();
        for (path, methods) in paths {
            table.insert(path, methods).expect("axum accepts these paths");
        }
        let mut undeclared = matchit::Router::new();
        for (path, access) in UNDECLARED {
            undeclared.insert(path, access).expect("the constant paths are consistent");
        }
        Self { declared: table, undeclared }
    }

    /// Looks up a request. Its path is percent-encoded.
    pub fn find(&self, method: &Method, path: &str) -> MatchedRoute<'_> {
        let declared = self.declared.at(path).ok();
        let label = declared.as_ref().map_or("other", |found| &found.value.label);
        let access = declared.and_then(|found| {
            let access = found.value.of(method)?;
            Some(required(access, &found.params))
        });
        let access = access.unwrap_or_else(|| match self.undeclared.at(path) {
            Ok(found) => required(*found.value, &found.params),
            Err(_) => RequiredAccess::Page,
        });
        MatchedRoute { access, label }
    }
}

impl DeclaredPath {
    fn of(&self, method: &Method) -> Option<RouteAccess> {
        let of = |wanted: &Method| {
            let found = self.methods.iter().find(|(method, _)| method == wanted);
            found.map(|(_, access)| *access)
        };
        of(method).or_else(|| of(&Method::GET).filter(|_| method == Method::HEAD))
    }
}

fn required(access: RouteAccess, params: &matchit::Params<'_, '_>) -> RequiredAccess {
    match access {
        RouteAccess::Nothing => RequiredAccess::Nothing,
        RouteAccess::AnyRight => RequiredAccess::AnyRight,
        RouteAccess::ReadAll => RequiredAccess::ReadAll,
        RouteAccess::Page => RequiredAccess::Page,
        RouteAccess::Repository(right) => {
            let name = params.get("repo").unwrap_or_default();
            let name = percent_decode_str(name).decode_utf8_lossy();
            RequiredAccess::Repository(right, name.into_owned())
        }
    }
}

fn label(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "*" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{page, routes};

    fn table() -> RouteTable {
        let (protocol, pages) = (routes::routes(), page::routes());
        RouteTable::new([protocol.declared(), pages.declared()].concat())
    }

    #[test]
    fn each_route_requires_its_declared_access() {
        let table = table();
        let within = |right, name: &str| RequiredAccess::Repository(right, name.to_owned());
        let (get, put, post) = (Method::GET, Method::PUT, Method::POST);
        for (method, path, needs) in [
            (&get, "/health", RequiredAccess::Nothing),
            (&get, "/v1", RequiredAccess::Nothing),
            (&post, "/v1", RequiredAccess::AnyRight),
            (&get, "/v1/repos", RequiredAccess::AnyRight),
            (&get, "/v1/other", RequiredAccess::AnyRight),
            (&get, "/metrics", RequiredAccess::ReadAll),
            (&Method::HEAD, "/metrics", RequiredAccess::ReadAll),
            (&get, "/", RequiredAccess::Page),
            (&get, "/assets/style.css", RequiredAccess::Nothing),
            (&post, "/login", RequiredAccess::Nothing),
            (&get, "/r/team%2Fa/c/main", within(Right::Read, "team/a")),
            (&get, "/r/a/what", within(Right::Read, "a")),
            (&get, "/v1/repos/a/refs", within(Right::Read, "a")),
            (&get, "/v1/repos/team%2Fa/packs", within(Right::Read, "team/a")),
            (&put, "/v1/repos/a", within(Right::Admin, "a")),
            (&put, "/v1/repos/a/packs/x", within(Right::Append, "a")),
            (&put, "/v1/repos/a/index/x", within(Right::Append, "a")),
            (&Method::HEAD, "/v1/repos/a/packs/x", within(Right::Read, "a")),
            (&put, "/v1/repos/a/refs/heads/x", within(Right::Append, "a")),
            (&post, "/v1/repos/a/missing", within(Right::Read, "a")),
            (&post, "/v1/repos/a/bundles", within(Right::Append, "a")),
            (&post, "/v1/repos/a/commits/5f/bundle", within(Right::Read, "a")),
            (&post, "/v1/repos/a/config", within(Right::Write, "a")),
            (&post, "/v1/repos/a/head", within(Right::Write, "a")),
            (&Method::DELETE, "/v1/repos/a/refs/heads/x", within(Right::Write, "a")),
            // No route is declared for these.
            (&put, "/v1/repos/a/config", within(Right::Read, "a")),
            (&Method::DELETE, "/v1/repos/a/packs/x", within(Right::Read, "a")),
            (&post, "/v1/repos/a/commits/5f/other", within(Right::Read, "a")),
            (&get, "/v1/repos/a/", within(Right::Read, "a")),
        ] {
            assert_eq!(table.find(method, path).access, needs, "{method} {path}");
        }
    }

    #[test]
    fn route_labels_contain_no_variable_parts() {
        let table = table();
        for (path, wanted) in [
            ("/", "/"),
            ("/v1", "/v1"),
            ("/v1/repos", "/v1/repos"),
            ("/v1/repos/a", "/v1/repos/*"),
            ("/v1/repos/a/packs/5f0c", "/v1/repos/*/packs/*"),
            ("/v1/repos/a/refs/heads/x/y", "/v1/repos/*/refs/*"),
            ("/v1/repos/a/what", "other"),
            ("/v1/repos/a/commits/5f/files/a/b", "/v1/repos/*/commits/*/files/*"),
            ("/r/a/c/main/x", "/r/*/c/*/*"),
            ("/assets/x", "/assets/*"),
            ("/a/b/c/d", "other"),
            ("", "other"),
        ] {
            assert_eq!(table.find(&Method::GET, path).label, wanted, "{path}");
        }
    }
}
