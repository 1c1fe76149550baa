//! Tests of the security headers of all responses, and of error pages.

use crate::{
    page::{ask, page},
    place::{Place, Serving, refused},
};

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_html_for_browsers_and_json_for_programs() {
    let place = Place::new();
    place.change("a", "content");
    let serving = Serving::of(&place);
    for (path, status) in [
        ("/r/other", 404),
        ("/r/..%2F..%2Fetc", 404),
        ("/r/default/c/nothing", 404),
        ("/r/default/c/main/b", 404),
        ("/r/default/c/main/a/b", 404),
        ("/r/default/c/main/..%2F..", 400),
        ("/r/default/c/%ff", 404),
        ("/nowhere", 404),
        ("/assets/style.css", 404),
        ("/v1/repos/other/refs", 404),
    ] {
        let answer = ask(&serving, path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text);
        let is_page = answer.headers["content-type"] == "text/html; charset=utf-8";
        assert_eq!(is_page, !path.starts_with("/assets"), "{path}");
    }
    let unnamed = ask(&serving, "/r/default/c/nothing").await.text;
    assert!(unnamed.contains("`nothing` is not a commit, branch or tag"), "{unnamed}");
    let program = serving.client.get(format!("{}/nowhere", serving.origin())).send().await.unwrap();
    assert_eq!(program.headers()["content-type"], "application/problem+json");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_a_strict_content_security_policy() {
    let place = Place::new();
    place.change("a", "content");
    let serving = Serving::of(&place);
    for path in ["/", "/r/default", "/r/default/c/main/a", "/nowhere"] {
        let answer = ask(&serving, path).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        for said in [
            "default-src 'none'",
            "style-src 'self'",
            "img-src 'self'",
            "script-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.split("; ").any(|part| part.trim() == said), "{path}: {policy}");
        }
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["referrer-policy"], "same-origin");
        assert_eq!(answer.headers["cross-origin-resource-policy"], "same-origin");
        assert!(!answer.text.contains("style=") && !answer.text.contains("<style"), "{path}");
        assert_eq!(answer.text.matches("<script").count(), 1, "{path}");
        let linked = answer.text.split("=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for link in linked.filter(|link| link.starts_with("/assets/")) {
            let asset = ask(&serving, link).await;
            assert_eq!(asset.status, 200, "{link}");
            assert!(asset.headers["cache-control"].to_str().unwrap().contains("immutable"));
        }
        for outside in ["https://", "//cdn"] {
            assert!(!answer.text.contains(outside), "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_have_cache_control_and_resource_policy_headers() {
    let place = Place::new();
    let id = place.change("a.js", "window.pwned = 1");
    let serving = Serving::of(&place);
    let file = format!("/v1/repos/default/commits/{id}/files/a.js");
    let get = |path: &str| serving.client.get(format!("{}{path}", serving.origin()));
    for (path, kept) in [
        ("/v1", "private, no-cache"),
        ("/v1/repos", "private, no-cache"),
        ("/v1/repos/default/refs", "private, no-cache"),
        ("/v1/repos/default/refs/heads/main", "private, no-cache"),
        ("/v1/repos/default/log", "private, no-cache"),
        ("/v1/repos/default/diff?to=main", "private, no-cache"),
        ("/v1/repos/other/refs", "private, no-cache"),
        (&file, "private, max-age=31536000, immutable"),
    ] {
        let answer = get(path).send().await.unwrap();
        assert_eq!(answer.headers()["cache-control"], kept, "{path}");
        assert_eq!(answer.headers()["cross-origin-resource-policy"], "same-origin", "{path}");
    }
    // A file from a snapshot cannot be used as a script, worker or stylesheet.
    for dest in ["script", "worker", "style"] {
        refused(get(&file).header("sec-fetch-dest", dest), 403, "forbidden").await;
    }
    let saved = get(&file).header("sec-fetch-dest", "document").send().await.unwrap();
    assert_eq!(
        (saved.status().as_u16(), &saved.headers()["vary"]),
        (200, &"Sec-Fetch-Dest".parse().unwrap())
    );
    let home = ask(&serving, "/").await.text;
    let (_, script) = home.split_once("<script src=\"").unwrap();
    let script = script.split('"').next().unwrap();
    let script = get(script).header("sec-fetch-dest", "script").send().await.unwrap();
    assert_eq!(script.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_marked_up_as_tables_with_roles() {
    let place = Place::new();
    place.change("a", "content");
    let serving = Serving::of(&place);
    for path in ["/r/default", "/r/default/refs", "/r/default/history/main/a"] {
        let shown = page(&serving, path).await;
        assert!(shown.contains("<table class=\"commits\" role=\"table\""), "{path}: {shown}");
        let rest = shown.split_once("<table class=\"commits\"").unwrap().1;
        let list = rest.split("</table>").next().unwrap();
        for (tag, role) in [
            ("<thead", "rowgroup"),
            ("<tbody", "rowgroup"),
            ("<tr", "row"),
            ("<th", "columnheader"),
            ("<td", "cell"),
        ] {
            let with = |rest: &&str| rest.starts_with([' ', '>']);
            let all: Vec<&str> = list.split(tag).skip(1).filter(with).collect();
            let role = format!("role=\"{role}\"");
            let says = |rest: &&str| rest.split('>').next().unwrap().contains(&role);
            assert!(!all.is_empty() && all.iter().all(says), "{path}: {tag} {list}");
        }
    }
}
