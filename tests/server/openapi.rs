//! Compares `docs/openapi.json` with the routes and with real responses.
//! `remote/src/wire/tests/openapi.rs` writes the document.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use snap_core::{
    base::id::{BlobId, ChunkListId},
    disk::Disk,
    format::chunk_list::{BlobRef, ChunkList},
    repo::Repo,
};
use snap_remote::wire::right::RouteAccess;
use snap_testkit::schema::{sound, valid};

use crate::{
    place::{Place, Serving},
    upstream_steps::bundle_of,
};

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn document() -> Value {
    serde_json::from_str(&fs_err::read_to_string(root().join("docs/openapi.json")).unwrap())
        .unwrap()
}

/// Returns the paths that support `GET` and `HEAD`, according to the protocol.
fn heads() -> BTreeSet<String> {
    let text = fs_err::read_to_string(root().join("docs/protocol.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `GET`, `HEAD "));
    rows.map(|row| row.split_once('`').unwrap().0.to_owned()).collect()
}

/// Returns the routes that the server has: their paths and methods, and what they need.
fn routes() -> BTreeMap<(String, String), RouteAccess> {
    let declared = snap_server::routes::routes();
    let declared = declared.declared().iter().map(|route| {
        let path = route.path.replace("{*", "{");
        ((path, route.method.as_str().to_lowercase()), route.access)
    });
    declared.collect()
}

/// Resolves a reference in the document.
fn meant<'d>(document: &'d Value, there: &'d Value) -> &'d Value {
    there["$ref"].as_str().map_or(there, |name| document.pointer(&name[1..]).unwrap())
}

/// Returns the operations of the document: path, method, description.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().unwrap();
        item.iter()
            .map(move |(method, operation)| (path.clone(), method.clone(), operation.clone()))
    });
    all.collect()
}

#[test]
fn the_openapi_document_lists_exactly_the_routes() {
    let document = document();
    let told: BTreeSet<(String, String)> =
        operations(&document).into_iter().map(|(path, method, _)| (path, method)).collect();
    let routes: BTreeSet<_> = routes().into_keys().collect();
    assert!(routes.len() > 30, "{routes:?}");
    assert_eq!(told, routes);
    let has = |path: &String, method: &str| routes.contains(&(path.clone(), method.to_owned()));
    let both = routes.iter().map(|(path, _)| path).filter(|path| has(path, "get"));
    assert_eq!(both.filter(|path| has(path, "head")).cloned().collect::<BTreeSet<_>>(), heads());
}

#[test]
fn the_openapi_document_states_which_routes_need_a_token() {
    let document = document();
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    // A server may run without tokens.
    assert_eq!(document["security"], json!([{"bearer": []}, {}]));
    let routes = routes();
    for (path, method, operation) in operations(&document) {
        let needs_none = routes[&(path.clone(), method.clone())] == RouteAccess::Nothing;
        let told = needs_none.then(|| json!([]));
        assert_eq!(operation.get("security"), told.as_ref(), "{method} {path}");
    }
}

/// Every route of the API, and what it needs: a change of this list is a change of who may do what.
const NEEDS: &str = "\
AnyRight GET    /v1/repos
Nothing  GET    /health
Nothing  GET    /ready
Nothing  GET    /v1
Nothing  GET    /v1/openapi.json
ReadAll  GET    /metrics
admin    PUT    /v1/repos/{repo}
append   POST   /v1/repos/{repo}/bundles
append   PUT    /v1/repos/{repo}/index/{name}
append   PUT    /v1/repos/{repo}/objects/{id}
append   PUT    /v1/repos/{repo}/packs/{id}
append   PUT    /v1/repos/{repo}/refs/{*name}
read     GET    /v1/repos/{repo}/commits/{commit}
read     GET    /v1/repos/{repo}/commits/{commit}/archive.tar
read     GET    /v1/repos/{repo}/commits/{commit}/archive.tar.zst
read     GET    /v1/repos/{repo}/commits/{commit}/archive.zip
read     GET    /v1/repos/{repo}/commits/{commit}/bundle
read     GET    /v1/repos/{repo}/commits/{commit}/files/{*path}
read     GET    /v1/repos/{repo}/commits/{commit}/tree
read     GET    /v1/repos/{repo}/commits/{commit}/tree/{*path}
read     GET    /v1/repos/{repo}/config
read     GET    /v1/repos/{repo}/diff
read     GET    /v1/repos/{repo}/find
read     GET    /v1/repos/{repo}/head
read     GET    /v1/repos/{repo}/index
read     GET    /v1/repos/{repo}/index/{name}
read     GET    /v1/repos/{repo}/log
read     GET    /v1/repos/{repo}/objects/{id}
read     GET    /v1/repos/{repo}/packs
read     GET    /v1/repos/{repo}/packs/{id}
read     GET    /v1/repos/{repo}/refs
read     GET    /v1/repos/{repo}/refs/{*name}
read     GET    /v1/repos/{repo}/stats
read     HEAD   /v1/repos/{repo}/commits/{commit}/bundle
read     HEAD   /v1/repos/{repo}/commits/{commit}/files/{*path}
read     HEAD   /v1/repos/{repo}/objects/{id}
read     HEAD   /v1/repos/{repo}/packs/{id}
read     POST   /v1/repos/{repo}/commits/{commit}/bundle
read     POST   /v1/repos/{repo}/missing
write    DELETE /v1/repos/{repo}/refs/{*name}
write    POST   /v1/repos/{repo}/config
write    POST   /v1/repos/{repo}/head
";

#[test]
fn every_route_requires_its_documented_right() {
    let declared = snap_server::routes::routes();
    let lines = declared.declared().iter().map(|route| {
        let needs = match route.access {
            RouteAccess::Repository(right) => right.name().to_owned(),
            other => format!("{other:?}"),
        };
        format!("{needs:8} {:6} {}\n", route.method.as_str(), route.path)
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort_unstable();
    assert_eq!(lines.concat(), NEEDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_served_document_is_the_file() {
    let serving = Serving::of(&Place::new());
    let served = serving.client.get(format!("{}/v1/openapi.json", serving.origin()));
    let served = served.send().await.unwrap().text().await.unwrap();
    assert!(served == fs_err::read_to_string(root().join("docs/openapi.json")).unwrap());
}

#[test]
fn every_schema_can_be_checked() {
    let document = document();
    let named = document["components"]["schemas"].as_object().unwrap().iter();
    let mut schemas: Vec<(String, &Value)> =
        named.map(|(name, schema)| (name.clone(), schema)).collect();
    let operations = operations(&document);
    for (path, method, operation) in &operations {
        for (status, answer) in operation["responses"].as_object().unwrap() {
            let answer = meant(&document, answer);
            for (name, header) in answer["headers"].as_object().into_iter().flatten() {
                let schema = &meant(&document, header)["schema"];
                schemas.push((format!("{method} {path} {status} {name}"), schema));
            }
            for content in answer["content"].as_object().into_iter().flat_map(|map| map.values()) {
                if let Some(schema) = content.get("schema") {
                    schemas.push((format!("{method} {path} {status}"), schema));
                }
            }
        }
    }
    assert!(schemas.len() > 40, "{}", schemas.len());
    for (what, schema) in schemas {
        assert_eq!(sound(&document, schema), Ok(()), "{what}");
    }
}

/// For each schema in the document: the schema of a record of the command line that it must equal,
/// and the properties that only the record has.
const RECORDS: [(&str, &str, &[&str]); 7] = [
    ("Commit", "commit", &["renames", "forgotten", "forgotten_at"]),
    ("Entry", "entry", &[]),
    ("Change", "change", &["binary", "lines_added", "lines_deleted"]),
    ("Version", "version", &[]),
    ("CommitStats", "stats-commit", &[]),
    ("FileStats", "stats-file", &[]),
    ("StoreStats", "stats-store", &[]),
];

/// Normalizes a schema for comparison: without descriptions, with references resolved
/// and lists of words sorted.
fn plain(document: &Value, schema: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        return plain(document, document.pointer(&name[1..]).unwrap());
    }
    match schema {
        Value::Object(map) => {
            let said = ["$schema", "$id", "title", "description"];
            let rest = map.iter().filter(|(key, _)| !said.contains(&key.as_str()));
            rest.map(|(key, value)| (key.clone(), plain(document, value))).collect()
        }
        Value::Array(words) => {
            let mut words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
            words.sort_unstable();
            words.into()
        }
        other => other.clone(),
    }
}

#[test]
fn openapi_records_match_the_json_schemas_of_the_cli() {
    let document = document();
    for (place, name, only) in RECORDS {
        let told = document.pointer(&format!("/components/schemas/{place}")).unwrap();
        let file = root().join(format!("docs/schema/{name}.json"));
        let record: Value = serde_json::from_str(&fs_err::read_to_string(file).unwrap()).unwrap();
        let mut record = plain(&record, &record);
        // `version` and `type` belong to the lines of `--json` only.
        let is_left_out = |key: &str| ["version", "type"].contains(&key) || only.contains(&key);
        record["properties"].as_object_mut().unwrap().retain(|key, _| !is_left_out(key));
        let required = record["required"].as_array_mut().unwrap();
        required.retain(|key| !is_left_out(key.as_str().unwrap()));
        assert_eq!(plain(&document, told), record, "{name}");
    }
}

/// Returns a successful request for each operation, in an order that works.
fn requests(
    serving: &Serving,
    place: &Place,
    new: &Place,
    bundle: Vec<u8>,
) -> Vec<(&'static str, RequestBuilder)> {
    let origin = serving.base.trim_end_matches("/v1/repos/default").to_owned();
    let of_server = |path: &str| serving.client.get(format!("{origin}{path}"));
    let get = |path: &str| serving.get(path);
    let post = |path: &str, body: String| {
        let kind = ("content-type", "application/json");
        serving.client.post(format!("{}/{path}", serving.base)).header(kind.0, kind.1).body(body)
    };
    let tip = place.repo.refs().head_commit().unwrap().unwrap();
    let blob = BlobId::of(b"content");
    let pack = new.repo.store().packs()[0];
    let rest = *new.repo.store().packs().iter().find(|id| **id != pack).unwrap();
    let (index, outlines) = new.outlines(&[pack, rest]);
    let head = |path: &str| serving.client.head(format!("{}/{path}", serving.base));
    let take =
        |bundle: Vec<u8>| serving.client.post(format!("{}/bundles", serving.base)).body(bundle);
    let first = place.repo.store().packs()[0];
    let move_to = format!("{{\"commit\": \"{tip}\"}}");
    let tag = format!("\"{tip}\"");
    vec![
        ("health", of_server("/health")),
        ("ready", of_server("/ready")),
        ("metrics", of_server("/metrics")),
        ("server", of_server("/v1")),
        ("openapi", of_server("/v1/openapi.json")),
        ("repositories", of_server("/v1/repos")),
        ("config", get("config")),
        ("mendConfig", post("config", snap_core::repo::Config::default().to_text())),
        ("head", get("head")),
        ("mendHead", post("head", String::new())),
        ("refs", get("refs")),
        ("ref", get("refs/heads/main")),
        ("moveRef", serving.put("refs/tags/v1", move_to).header("if-none-match", "*")),
        (
            "deleteRef",
            serving.client.delete(format!("{}/refs/tags/v1", serving.base)).header("if-match", tag),
        ),
        ("packs", get("packs")),
        ("pack", get(&format!("packs/{first}"))),
        ("pack", get(&format!("packs/{first}")).header("range", "bytes=0-3")),
        ("pack", get(&format!("packs/{first}")).header("range", "bytes=99999999-")),
        ("pack", get(&format!("packs/{first}")).header("if-none-match", "*")),
        ("packLength", head(&format!("packs/{first}"))),
        ("packLength", head(&format!("packs/{first}")).header("if-none-match", "*")),
        ("sendPack", serving.put(&format!("packs/{pack}"), new.pack_bytes(&pack))),
        ("sendPack", serving.put(&format!("packs/{rest}"), new.pack_bytes(&rest))),
        ("publish", serving.put(&format!("index/{index}"), outlines)),
        ("index", get("index")),
        ("indexFile", get(&format!("index/{index}"))),
        ("object", get(&format!("objects/{blob}"))),
        ("object", get(&format!("objects/{blob}")).header("range", "bytes=1-2")),
        ("object", get(&format!("objects/{blob}")).header("range", "bytes=99-")),
        ("object", get(&format!("objects/{blob}")).header("if-none-match", "*")),
        ("objectLength", head(&format!("objects/{blob}"))),
        (
            "sendObject",
            serving.put(&format!("objects/{}", BlobId::of(b"x")), "x").header("snap-kind", "blob"),
        ),
        ("missing", post("missing", format!("{{\"ids\": [\"{blob}\", \"{}\"]}}", "0".repeat(64)))),
        ("log", get("log?limit=1")),
        ("diff", get("diff?to=main&limit=1")),
        ("find", get("find?pattern=*")),
        ("stats", get("stats")),
        ("commit", get("commits/main")),
        ("tree", get("commits/main/tree")),
        ("treeAt", get("commits/main/tree/sub")),
        ("tar", get("commits/main/archive.tar")),
        ("tarZst", get("commits/main/archive.tar.zst")),
        ("zip", get("commits/main/archive.zip?path=sub")),
        ("bundle", get("commits/main/bundle")),
        ("bundle", get("commits/main/bundle").header("range", "bytes=0-3")),
        ("bundle", get("commits/main/bundle").header("range", "bytes=99999999-")),
        ("bundle", get("commits/main/bundle").header("if-none-match", "*")),
        ("bundleLength", head("commits/main/bundle")),
        ("takeBundle", take(bundle.clone())),
        ("takeBundle", take(bundle)),
        ("bundleWithout", post("commits/main/bundle", "{\"have\": []}".to_owned())),
        ("file", get("commits/main/files/sub/a")),
        ("file", get("commits/main/files/sub/a").header("range", "bytes=1-2")),
        ("file", get("commits/main/files/sub/a").header("range", "bytes=99-")),
        ("file", get("commits/main/files/sub/a").header("if-none-match", "*")),
        ("fileLength", head("commits/main/files/sub/a")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_match_the_openapi_document() {
    let (place, new) = (Place::new(), Place::new());
    fs_err::create_dir(place.folder.path().join("files/sub")).unwrap();
    fs_err::os::unix::fs::symlink("sub/a", place.folder.path().join("files/link")).unwrap();
    place.change("b", "first");
    place.change("sub/a", "content");
    new.change("c", "what the other has");
    new.change("d", "and something more");
    let serving = Serving::of(&place);
    let document = document();
    let operations: BTreeMap<String, Value> = operations(&document)
        .into_iter()
        .map(|(_, _, operation)| (operation["operationId"].as_str().unwrap().to_owned(), operation))
        .collect();
    // It has its own tests, because it needs a hub of several stores.
    let mut left: BTreeSet<&str> = operations.keys().map(String::as_str).collect();
    left.remove("createRepository");
    let other = Place::new();
    let commit = other.change("e", "what comes as a bundle");
    let bundle = bundle_of(&other, commit).await;
    for (name, request) in requests(&serving, &place, &new, bundle) {
        let answer = request.send().await.unwrap();
        let told = &operations[name]["responses"][answer.status().as_str()];
        assert!(told.is_object(), "{name} is answered with {}", answer.status());
        let told = meant(&document, told);
        left.remove(name);
        for (header, about) in told["headers"].as_object().into_iter().flatten() {
            let schema = &meant(&document, about)["schema"];
            let value = answer.headers().get(header).map(|value| value.to_str().unwrap());
            let value = value.unwrap_or_else(|| panic!("{name} has no {header}"));
            let value = match schema["type"].as_str() {
                Some("integer") => serde_json::from_str(value).unwrap(),
                _ => Value::from(value),
            };
            valid(&document, schema, &value).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        let kind =
            answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let kind = kind.unwrap_or_default().split(';').next().unwrap().to_owned();
        let Some(known) = told["content"].as_object() else {
            assert!(answer.bytes().await.unwrap().is_empty(), "{name}");
            continue;
        };
        let content = known.get(&kind).or_else(|| known.get("*/*"));
        let content = content.unwrap_or_else(|| panic!("{name} is answered with {kind}"));
        let body = answer.bytes().await.unwrap();
        if kind == "application/json" && content["schema"].is_object() {
            let value: Value = serde_json::from_slice(&body).unwrap();
            valid(&document, &content["schema"], &value)
                .unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
    assert!(left.is_empty(), "not requested: {left:?}");
    let refusal = serving.get("commits/none").send().await.unwrap();
    assert_eq!(refusal.status(), StatusCode::NOT_FOUND);
    let problem: Value = serde_json::from_slice(&refusal.bytes().await.unwrap()).unwrap();
    let schema = &document["components"]["schemas"]["Problem"];
    assert_eq!(valid(&document, schema, &problem), Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uploaded_object_must_match_its_id_and_be_complete() {
    let (here, there) = (Place::new(), Place::new());
    let id = here.change("a", "content");
    let serving = Serving::of(&there);
    let put = async |id: String, kind: &str, bytes: Vec<u8>| {
        let put = serving.put(&format!("objects/{id}"), bytes).header("snap-kind", kind);
        put.send().await.unwrap().status().as_u16()
    };
    let store = here.repo.store();
    let commit = store.commit(&id).unwrap();
    let tree = store.object(&commit.tree.object(), snap_core::format::pack::ObjectKind::Tree);
    let (tree, blob) = (tree.unwrap(), BlobId::of(b"content").to_string());
    assert_eq!(put(id.to_string(), "commit", commit.encode()).await, 422, "no tree");
    assert_eq!(put(commit.tree.to_string(), "tree", tree.clone()).await, 422, "no content");
    assert_eq!(put(blob.clone(), "blob", b"contend".to_vec()).await, 422);
    assert_eq!(put(blob.clone(), "tree", b"content".to_vec()).await, 422);
    assert_eq!(put(blob.clone(), "chunk list", b"content".to_vec()).await, 422);
    assert_eq!(put(blob.clone(), "link", b"content".to_vec()).await, 400);
    assert!(there.repo.store().packs().is_empty());
    assert_eq!(put(blob.clone(), "blob", b"content".to_vec()).await, 201);
    assert_eq!(put(blob.clone(), "blob", b"content".to_vec()).await, 200, "once more");
    assert_eq!(put(commit.tree.to_string(), "tree", tree).await, 201);
    assert_eq!(put(id.to_string(), "commit", commit.encode()).await, 201);
    let chunk = vec![1; 1 << 20];
    let chunk_ref = BlobRef { id: BlobId::of(&chunk), bytes: chunk.len() as u32 };
    let list = ChunkList::Chunks(vec![chunk_ref; 2]).encode();
    let list_id = ChunkListId::of(&list).to_string();
    assert_eq!(put(list_id.clone(), "chunk list", list.clone()).await, 422, "no chunk");
    assert_eq!(put(chunk_ref.id.to_string(), "blob", chunk).await, 201);
    assert_eq!(put(list_id, "chunk list", list).await, 201);
    // Longer than a frame of small objects.
    let long: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(put(BlobId::of(&long).to_string(), "blob", long.clone()).await, 201);
    assert_eq!(put(BlobId::of(b"").to_string(), "blob", vec![0; 9 << 20]).await, 413);
    let part = serving.get(&format!("objects/{}", BlobId::of(&long))).header("range", "bytes=7-9");
    let part = part.send().await.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.bytes().await.unwrap(), long[7..10]);
    let opened = Repo::open(&there.store(), Disk::default(), &snap_core::base::observe::Silent);
    assert_eq!(opened.unwrap().store().commit(&id).unwrap(), commit);
    let scratch = fs_err::read_dir(there.store().join("tmp")).unwrap();
    let left: Vec<_> = scratch.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "staged"), "{left:?}");
}
