//! Tests of clients that receive or send slowly, send many requests, or half-close the
//! connection. They use raw sockets, since HTTP libraries do not behave like this.

use std::{
    fmt::Write as _,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use snap_core::base::id::BlobId;
use snap_server::{
    access::principal::Right,
    settings::{ServerLimits, ServerSettings},
};

use crate::{
    limits::{connect, is_served, rest, start},
    place::{Place, Serving, eventually, random, refused, within_guard},
    tokens::token,
};

/// An HTTP/2 preface with an initial window of 0, so the server may not send any body
/// bytes yet.
const NOTHING_YET: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x06\x04\x00\x00\x00\x00\x00\
    \x00\x04\x00\x00\x00\x00";

/// Entries of HPACK's static table.
const GET: u8 = 0x82;
const POST: u8 = 0x83;

/// Builds an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Builds a HEADERS frame. `flags` can end the stream.
fn head(stream: u32, flags: u8, (method, path): (u8, &str), token: Option<&str>) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut block = [&[method, 0x86, 0x04][..], &text(path), &[0x01], &text("localhost")].concat();
    if let Some(token) = token {
        block.extend([&[0x0f, 0x08][..], &text(&format!("Bearer {token}"))].concat());
    }
    assert!(path.len() < 127 && token.is_none_or(|token| token.len() < 120));
    frame(0x01, flags, stream, &block)
}

/// Reads until this text arrives.
fn read_until(stream: &mut TcpStream, text: &[u8]) {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while !all.windows(text.len()).any(|part| part == text) {
        let bytes = stream.read(&mut piece).unwrap();
        assert!(bytes > 0, "the server closed the connection");
        all.extend_from_slice(&piece[..bytes]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_client_that_reads_nothing_is_disconnected() {
    let place = Place::new();
    let bytes = random(1, 200 << 10);
    let commit = place.change("a", &bytes);
    let limits = ServerLimits { header_secs: 600, ..ServerLimits::default() };
    let stall = limits.stall();
    let (pack, blob) = (place.repo.store().packs()[0], BlobId::of(&bytes));
    let paths =
        [format!("packs/{pack}"), format!("objects/{blob}"), format!("commits/{commit}/files/a")];
    let patient = Serving::of(&place);
    for path in &paths {
        let whole = patient.get(path).send().await.unwrap();
        assert_eq!(whole.status(), 200, "{path}");
        assert!(whole.bytes().await.unwrap().len() > 64 << 10, "{path}");
    }
    patient.stop().await;
    let serving = start(&place, limits);
    for path in paths {
        let mut stream = connect(&serving);
        let path = format!("/v1/repos/default/{path}");
        let heads = (0..20).flat_map(|number| head(2 * number + 1, 0x05, (GET, &path), None));
        stream.write_all(&[NOTHING_YET, &heads.collect::<Vec<_>>()].concat()).unwrap();
        // The client never enlarges the window, although the connection itself is
        // alive.
        let answer = tokio::task::spawn_blocking(|| rest(stream));
        serving.until_sleeping(stall).await;
        assert!(!answer.is_finished(), "{path}");
        let answer = serving.passing(stall, answer).await.unwrap();
        assert!(!answer.is_empty(), "{path}");
    }
    is_served(&serving).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_of_one_token_do_not_block_others() {
    let place = Place::new();
    let [greedy, other] =
        ["greedy", "other"].map(|name| token(&place, name, Right::Read, Some("default")));
    let serving = Serving::of(&place);
    let mut stream = connect(&serving);
    let path = "/v1/repos/default/missing";
    let slow = (0..120).flat_map(|number| {
        let stream = 2 * number + 1;
        let head = head(stream, 0x04, (POST, path), Some(&greedy));
        // The beginning of an id, without the rest.
        [head, frame(0x00, 0, stream, b"5f5f")].concat()
    });
    let settings: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    stream.write_all(&[settings, &slow.collect::<Vec<_>>()].concat()).unwrap();
    let told = tokio::task::spawn_blocking(move || {
        read_until(&mut stream, b"\"unavailable\"");
        stream
    });
    // The server waits for threads for a while before it refuses a request.
    let patience = Duration::from_secs(5);
    let _stream = serving.passing(patience, told).await.unwrap();
    let asked = serving.client.post(format!("{}/missing", serving.base)).bearer_auth(&other);
    let answer = within_guard(asked.body(vec![7; 32]).send(), "others wait").await.unwrap();
    assert_eq!(answer.bytes().await.unwrap(), vec![7; 32]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_ids_fit_in_one_request() {
    let place = Place::new();
    place.change("a", "content");
    let serving = Serving::of(&place);
    let there = BlobId::of(b"content").as_bytes().to_owned();
    let ids: Vec<[u8; 32]> = (0..1_000_000_u32)
        .map(|number| match number {
            0 | 500_000 | 999_999 => there,
            _ => std::array::from_fn(|at| number.to_le_bytes()[at % 4]),
        })
        .collect();
    let missing: Vec<_> = ids.iter().filter(|id| **id != there).copied().collect();
    let ask = || serving.client.post(format!("{}/missing", serving.base));
    let answer = ask().body(ids.concat()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.bytes().await.unwrap() == missing.concat(), "other ids are reported as missing");
    let text = |key: &str, ids: &[[u8; 32]]| {
        let mut text = format!("{{\"{key}\":[");
        for (number, id) in ids.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(text, "{comma}\"{}\"", blake3::Hash::from_bytes(*id)).unwrap();
        }
        text + "]}"
    };
    let of_json =
        |ids: &[[u8; 32]]| ask().header("content-type", "application/json").body(text("ids", ids));
    let answer = of_json(&ids).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert!(
        answer.text().await.unwrap() == text("missing", &missing),
        "other ids are reported as missing"
    );
    let few = of_json(&ids[..3]).send().await.unwrap();
    assert_eq!(few.text().await.unwrap(), text("missing", &ids[1..3]));
    let more = [&ids[..], &[there]].concat();
    refused(ask().body(more.concat()), 413, "too-large").await;
    refused(of_json(&more), 413, "too-large").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_cut_by_a_half_closed_connection_leaves_no_file() {
    let place = Place::new();
    let serving = Serving::of(&place);
    let name = "5f".repeat(32);
    for request in [
        format!("PUT /v1/repos/default/packs/{name}"),
        "POST /v1/repos/default/missing".to_owned(),
        "POST /v1/repos/default/bundles".to_owned(),
    ] {
        let mut stream = connect(&serving);
        write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n")
            .unwrap();
        stream.write_all(b"SNAPPACK").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = tokio::task::spawn_blocking(|| rest(stream)).await.unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{request}: {answer}");
    }
    is_served(&serving).await;
    let is_empty = async || {
        let staged = fs_err::read_dir(place.staged());
        staged.map_or(true, |mut left| left.next().is_none()).then_some(())
    };
    eventually("temporary files remain", is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_closed_client_receives_the_whole_response() {
    let place = Place::new();
    place.change("a", random(1, 32 << 20));
    let serving = Serving::start(&place, ServerSettings::default());
    let mut ids = place.repo.store().packs();
    ids.sort_by_key(|id| place.pack_bytes(id).len());
    let pack = ids.pop().unwrap();
    let wanted = place.pack_bytes(&pack);
    // More than the buffers between client and server hold.
    assert!(wanted.len() > 8 << 20, "{}", wanted.len());
    let mut stream = connect(&serving);
    write!(stream, "GET /v1/repos/default/packs/{pack} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let answer = tokio::task::spawn_blocking(move || {
        let mut all = vec![0; 1000];
        stream.read_exact(&mut all).unwrap();
        // Before the server has sent the rest, it sees that nothing more will come.
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    let answer = answer.await.unwrap();
    assert!(answer.ends_with(&wanted), "received {} of {} bytes", answer.len(), wanted.len());
}
