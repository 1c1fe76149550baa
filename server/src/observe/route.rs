//! Paths without what is particular about them, so that metrics have few
//! labels whatever is asked for.

/// Words that stand in paths for themselves.
const WORDS: &[&str] = &[
    "archive.tar",
    "archive.tar.zst",
    "archive.zip",
    "assets",
    "bundle",
    "bundles",
    "c",
    "commits",
    "config",
    "diff",
    "files",
    "find",
    "head",
    "health",
    "history",
    "index",
    "log",
    "login",
    "logout",
    "metrics",
    "missing",
    "objects",
    "openapi.json",
    "packs",
    "r",
    "ready",
    "refs",
    "repos",
    "search",
    "stats",
    "tree",
    "uploads",
    "v1",
];

/// Such as `/v1/repos/*/packs/*`: of each path the words that are known at the
/// places where one can be; what follows a name ends it.
pub(super) fn route(path: &str) -> String {
    let word = |part: &str| WORDS.iter().find(|word| **word == part).copied();
    let parts: Vec<&str> = path.split('/').skip(1).take(6).collect();
    let shape: &[bool] = match parts.as_slice() {
        ["v1", "repos", _, "commits", ..] => &[true, true, false, true, false, true],
        ["v1", "repos", ..] => &[true, true, false, true, false],
        ["r", ..] => &[true, false, true, false],
        ["assets", ..] => &[true, false],
        [""] | [] => return "/".to_owned(),
        _ => &[true, true],
    };
    let shown = shape.iter().zip(&parts).map(|(is_word, part)| match is_word {
        true => word(part).unwrap_or("other"),
        false => "*",
    });
    shown.fold(String::new(), |route, part| route + "/" + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_protocol_has_names() {
        let text = include_str!("../../../docs/openapi.json");
        let document: serde_json::Value = serde_json::from_str(text).unwrap();
        let paths = document["paths"].as_object().unwrap();
        assert!(paths.len() > 20, "{}", paths.len());
        for path in paths.keys() {
            assert!(!route(path).contains("other"), "{path} is {}", route(path));
        }
    }

    #[test]
    fn what_is_particular_is_left_out() {
        for (path, wanted) in [
            ("/", "/"),
            ("/v1", "/v1"),
            ("/v1/repos", "/v1/repos"),
            ("/v1/repos/a", "/v1/repos/*"),
            ("/v1/repos/a/packs/5f0c", "/v1/repos/*/packs/*"),
            ("/v1/repos/a/uploads/5f0c", "/v1/repos/*/uploads/*"),
            ("/v1/repos/a/refs/heads/x/y", "/v1/repos/*/refs/*"),
            ("/v1/repos/a/what", "/v1/repos/*/other"),
            ("/v1/repos/a/commits/5f/files/a/b", "/v1/repos/*/commits/*/files"),
            ("/r/a/c/main/x", "/r/*/c/*"),
            ("/assets/x", "/assets/*"),
            ("/a/b/c/d", "/other/other"),
            ("", "/"),
        ] {
            assert_eq!(route(path), wanted, "{path}");
        }
    }
}
