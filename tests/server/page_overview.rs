//! Tests of the list of repositories: what it tells an administrator.

use snap_core::{
    base::{id::CommitId, observe::Silent, time::Time},
    ops::verify::{self, Data, VerifyOptions},
    repo::{ref_name::RefName, refs::RefLogMessage},
};
use snap_server::{
    access::principal::Right,
    settings::{Quota, ServerSettings},
};

use crate::{
    page::page,
    place::{Place, Serving},
    tokens::token,
};

const DAY_SECS: i64 = 24 * 3600;

/// Returns the part of the page that lists what needs attention.
fn attention(home: &str) -> &str {
    let (_, rest) = home.split_once("<h2 id=\"attention\">").unwrap_or_default();
    rest.split("</section>").next().unwrap()
}

/// Moves a branch, as a push did at that time.
fn push(place: &Place, branch: &str, id: CommitId, secs: i64) {
    let change = RefLogMessage { time: Time { secs, nanos: 0 }, who: "ci", reason: "push" };
    let name = RefName::branch(branch).unwrap();
    place.repo.refs().update(&name, None, Some(id), &change).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_shows_the_time_and_author_of_its_last_push() {
    let place = Place::new();
    let first = place.change("a", "first");
    let second = place.change("a", "second");
    let secret = token(&place, "backup-7", Right::Write, None);
    let serving = Serving::of(&place);
    let home = async || {
        let home = serving.client.get(serving.origin()).bearer_auth(&secret);
        home.send().await.unwrap().text().await.unwrap()
    };
    let local = home().await;
    assert!(local.contains("moved <time ") && local.contains("</time> by ada"), "{local}");
    let refs = serving.get("refs/heads/main").bearer_auth(&secret).send().await.unwrap();
    let tag = &refs.headers()["etag"];
    let back = serving.put("refs/heads/main", format!("{{\"commit\":\"{first}\"}}"));
    let moved = back.bearer_auth(&secret).header("if-match", tag).send().await.unwrap();
    assert_eq!(moved.status(), 200);
    let pushed = home().await;
    assert!(pushed.contains("pushed <time "), "{pushed}");
    assert!(pushed.contains("</time> by backup-7") && !pushed.contains("by ada"), "{pushed}");
    // Without its log, a branch has the time of its commit.
    fs_err::remove_dir_all(place.store().join("logs")).unwrap();
    let time = place.repo.store().commit(&first).unwrap().time;
    let unknown = home().await;
    let told = format!("last commit <time datetime=\"{}\"", Time { nanos: 0, ..time }.rfc3339());
    assert!(unknown.contains(&told) && !unknown.contains("</time> by"), "{unknown}");
    assert_ne!(first, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_token_has_no_name() {
    let place = Place::new();
    let id = place.change("a", "content");
    let open =
        ServerSettings { without_tokens_anyone_may_read_and_write: true, ..Default::default() };
    let serving = Serving::start(&place, open);
    let new = serving.put("refs/heads/new", format!("{{\"commit\":\"{id}\"}}"));
    assert_eq!(new.header("if-none-match", "*").send().await.unwrap().status(), 201);
    let home = page(&serving, "/").await;
    assert!(home.contains("pushed <time ") && !home.contains("by client"), "{home}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_lists_the_five_most_recently_pushed_branches() {
    let place = Place::new();
    let id = place.change("a", "content");
    let after = Time::now().secs + 1000;
    for number in 0..9 {
        push(&place, &format!("b{number}"), id, after + number);
    }
    let serving = Serving::of(&place);
    let home = page(&serving, "/").await;
    let (_, list) = home.split_once("<ul class=\"branches\">").unwrap();
    let names: Vec<&str> =
        list.split("<bdi>").skip(1).map(|name| name.split_once("</bdi>").unwrap().0).collect();
    assert_eq!(names, ["b8", "b7", "b6", "b5", "b4"], "{home}");
    let link = "<a href=\"/r/default/refs\">5 more branches</a>";
    assert!(home.contains(link), "{home}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unverified_data_needs_attention() {
    let place = Place::new();
    let serving = Serving::of(&place);
    assert_eq!(attention(&page(&serving, "/").await), "", "an empty repository has no data");
    place.change("a", "first");
    let home = page(&serving, "/").await;
    let told =
        "<strong>Not verified for 30 days</strong>: <a href=\"/r/default\">default</a> (never)";
    assert!(attention(&home).contains(told), "{home}");
    assert!(home.contains("<dt>Verified</dt><dd>never</dd>"), "{home}");
    verify::run(&place.repo, &VerifyOptions { data: Data::All }, &Silent).unwrap();
    let home = page(&serving, "/").await;
    assert_eq!(attention(&home), "", "{home}");
    assert!(home.contains("<dt>Verified</dt><dd><time "), "{home}");
    // A push brings packs that were not verified.
    place.change("a", "second");
    let home = page(&serving, "/").await;
    assert_eq!(attention(&home), "", "{home}");
    assert!(home.contains("</time>, except 1 of 2 packs</dd>"), "{home}");
    let record = place.store().join("cache/checked");
    let line = fs_err::read_to_string(&record).unwrap();
    let [pack, secs, identity] = line.trim().split(' ').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    let secs = secs.parse::<i64>().unwrap() - 31 * DAY_SECS - 60;
    fs_err::write(&record, format!("{pack} {secs} {identity}\n")).unwrap();
    let home = page(&serving, "/").await;
    assert!(attention(&home).contains("default</a> (1 month ago)"), "{home}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_shows_the_used_part_of_a_quota() {
    let place = Place::new();
    place.change("a", "content");
    let packs = place.repo.store().packs();
    let bytes = packs.iter().map(|id| place.pack_bytes(id).len() as u64).sum::<u64>();
    let with = |default_bytes| {
        let quota = Quota { default_bytes: Some(default_bytes), ..Default::default() };
        Serving::start(&place, ServerSettings { quota, ..Default::default() })
    };
    let (wide, narrow) = (with(100 * bytes), with(bytes));
    let home = page(&wide, "/").await;
    assert!(home.contains(" % of the quota of ") && !home.contains("Quota almost"), "{home}");
    let home = page(&narrow, "/").await;
    assert!(attention(&home).contains("<strong>Quota almost used up</strong>"), "{home}");
    let unlimited = page(&Serving::of(&place), "/").await;
    assert!(!unlimited.contains("quota"), "{unlimited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_above_the_repository_list() {
    let place = Place::new();
    place.change("a", "first");
    // The newest commit needs nothing of this pack.
    let [pack] = place.repo.store().packs()[..] else { panic!("one pack") };
    let id = place.change("a", "second");
    fs_err::write(place.store().join("refs/heads/other"), format!("{id}\nand more\n")).unwrap();
    let serving = Serving::of(&place);
    let home = page(&serving, "/").await;
    let told = "<strong>Damaged branches or tags</strong>: <a href=\"/r/default\">default</a>";
    assert!(attention(&home).contains(told), "{home}");
    assert!(!attention(&home).contains("<strong>Damaged</strong>"), "{home}");
    let path = place.repo.store().pack_path(&pack);
    let mut bytes = fs_err::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::remove_file(&path).unwrap();
    fs_err::write(&path, bytes).unwrap();
    verify::run(&place.repo, &VerifyOptions { data: Data::All }, &Silent).unwrap();
    let home = page(&serving, "/").await;
    assert!(attention(&home).contains("<strong>Damaged</strong>: <a href"), "{home}");
    assert!(home.contains("Damaged packs: 1."), "{home}");
}
