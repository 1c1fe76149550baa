//! Derives rights and a name from the claims of a token.

use serde_json::{Map, Value};

use crate::{access::principal::Grant, settings::Mapping};

/// Longest name in logs, in characters.
const NAME_CHARS: usize = 96;

/// Claims that by convention hold several values, separated by spaces.
const WORDS: [&str; 2] = ["scope", "scp"];

/// Returns the rights that the mappings give to some claims.
pub(super) fn grants(claims: &Map<String, Value>, mappings: &[Mapping]) -> Vec<Grant> {
    let fits = |mapping: &&Mapping| match claim(claims, &mapping.claim) {
        Some(Value::Array(all)) => all.iter().any(|one| is(one, &mapping.value)),
        Some(Value::String(words)) if WORDS.contains(&mapping.claim.as_str()) => {
            words.split(' ').any(|word| word == mapping.value)
        }
        Some(one) => is(one, &mapping.value),
        None => false,
    };
    let grant = |mapping: &Mapping| {
        let repositories = mapping.repositories.clone();
        let repositories = repositories.map(|names| names.into_iter().collect());
        Grant { right: mapping.scope, repositories }
    };
    mappings.iter().filter(fits).map(grant).collect()
}

/// Finds a claim by its name, or by a JSON pointer if the name begins with `/`.
fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    let Some(pointer) = name.strip_prefix('/') else { return claims.get(name) };
    // A `Map` has no `pointer`, so the first part is resolved here. `~1` and `~0` stand for
    // `/` and `~` in a JSON pointer.
    let (first, rest) = pointer.split_once('/').unwrap_or((pointer, ""));
    let first = claims.get(&first.replace("~1", "/").replace("~0", "~"))?;
    match rest {
        "" => Some(first),
        rest => first.pointer(&format!("/{rest}")),
    }
}

fn is(claim: &Value, wanted: &str) -> bool {
    match claim {
        Value::String(text) => text == wanted,
        Value::Bool(is_so) => wanted == if *is_so { "true" } else { "false" },
        Value::Number(number) => {
            let digits = number.to_string();
            digits == wanted
        }
        _ => false,
    }
}

/// Returns the name of the client with these claims, for logs. The prefix `oidc:` sets it apart
/// from tokens of the token file. If the name is shortened or characters are replaced, a hash keeps
/// it distinct.
pub(super) fn name(claims: &Map<String, Value>, name_claim: &str) -> String {
    let name = [name_claim, "sub"].into_iter().find_map(|name| match claim(claims, name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(number @ Value::Number(_)) => Some(number.to_string()),
        _ => None,
    });
    let Some(name) = name else { return "oidc:unknown".to_owned() };
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || ".@_-|:/+".contains(c) => c,
        _ => '_',
    };
    let shown: String = name.chars().take(NAME_CHARS).map(plain).collect();
    if shown == name {
        return format!("oidc:{shown}");
    }
    let hash = blake3::hash(name.as_bytes()).to_hex();
    format!("oidc:{shown}~{}", &hash[..8])
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use snap_remote::wire::right::Right;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_mapping_matches_a_claim_or_one_of_its_values() {
        let claims = map(json!({
            "repository": "team/project",
            "groups": ["dev", "ops", 7],
            "id": 12,
            "admin": true,
            "scope": "openid snap.read",
            "other": "openid snap.read",
            "realm_access": {"roles": ["backup"], "a/b": "deep"},
            "a.b": "dotted",
        }));
        let fits = |claim: &str, value: &str| {
            let (claim, value) = (claim.to_owned(), value.to_owned());
            let mapping = Mapping { claim, value, scope: Right::Read, repositories: None };
            !grants(&claims, &[mapping]).is_empty()
        };
        for (claim, value) in [
            ("repository", "team/project"),
            ("groups", "ops"),
            ("groups", "7"),
            ("id", "12"),
            ("admin", "true"),
            ("scope", "snap.read"),
            ("/realm_access/roles", "backup"),
            ("/realm_access/a~1b", "deep"),
            ("/id", "12"),
            ("a.b", "dotted"),
        ] {
            assert!(fits(claim, value), "{claim} {value}");
        }
        for (claim, value) in [
            ("repository", "team/project2"),
            ("repository", "team"),
            ("repository", "TEAM/PROJECT"),
            ("groups", "de"),
            ("groups", "[\"dev\"]"),
            ("scope", "snap"),
            ("scope", "openid snap.read "),
            ("other", "snap.read"),
            ("realm_access", "backup"),
            ("/realm_access", "backup"),
            ("/realm_access/none/roles", "backup"),
            ("missing", "null"),
            ("", ""),
        ] {
            assert!(!fits(claim, value), "{claim} {value}");
        }
    }

    #[test]
    fn granted_rights_add_up() {
        let mapping = |value: &str, scope, repository: Option<&str>| Mapping {
            claim: "groups".into(),
            value: value.into(),
            scope,
            repositories: repository.map(|name| vec![name.to_owned()]),
        };
        let all = [
            mapping("dev", Right::Read, None),
            mapping("dev", Right::Write, Some("a")),
            mapping("ops", Right::Admin, None),
        ];
        let granted = grants(&map(json!({"groups": ["dev"]})), &all);
        let who = crate::access::principal::Principal::new("x", granted);
        assert!(who.can(Right::Write, "a") && who.can(Right::Read, "b"));
        assert!(!who.can(Right::Append, "b") && !who.can(Right::Admin, "a"));
    }

    #[test]
    fn client_names_are_sanitised_and_stay_distinct() {
        let of = |value: Value| name(&map(json!({"email": value, "sub": "s-1"})), "email");
        assert_eq!(of(json!("ada@example.org")), "oidc:ada@example.org");
        assert_eq!(of(json!(7)), "oidc:7");
        assert_eq!(of(json!(["x"])), "oidc:s-1");
        assert_eq!(name(&Map::new(), "sub"), "oidc:unknown");
        let (one, two) = (of(json!("a\nb")), of(json!("a b")));
        assert!(one.starts_with("oidc:a_b~") && two.starts_with("oidc:a_b~") && one != two);
        let long = of(json!("ä".repeat(10_000)));
        assert!(long.len() < 120 && long.is_ascii(), "{long}");
    }
}
