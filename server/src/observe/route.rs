//! Paths without what is particular about them, so that metrics have few
//! labels whatever is asked for.

/// Words that stand in paths for themselves.
const WORDS: &[&str] = &[
    "archive", "assets", "bundle", "bundles", "c", "commits", "config", "diff", "file", "files",
    "find", "head", "health", "history", "index", "log", "login", "logout", "metadata", "metrics",
    "missing", "objects", "packs", "r", "raw", "ready", "refs", "repos", "search", "stats",
    "status", "tree", "uploads", "v1",
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
    fn what_is_particular_is_left_out() {
        for (path, wanted) in [
            ("/", "/"),
            ("/v1", "/v1"),
            ("/v1/repos", "/v1/repos"),
            ("/v1/repos/a", "/v1/repos/*"),
            ("/v1/repos/a/packs/5f0c", "/v1/repos/*/packs/*"),
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
