//! Writes `docs/openapi.json` from the operations and the types of the protocol. Run the test with
//! `SNAP_UPDATE_DOCS=1` after a change.

use std::path::PathBuf;

use http::HeaderName;
use schemars::{
    JsonSchema, SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde::Serialize;
use serde_json::{Map, Value, json, ser::PrettyFormatter};

use crate::wire::{
    headers::{
        BUNDLE_TYPE, IDS_TYPE, OUTLINES_TYPE, PACK_TYPE, SNAP_COMMIT, SNAP_EPOCH, SNAP_KIND,
    },
    problem::ProblemBody,
    right::RouteAccess,
    routes::{PROTOCOL, Route},
    types::{
        Have, Head, Ids, Index, Missing, Move, Packs, Ref, Refs, Repositories, ServerInfo, Unpacked,
    },
};

const ID: &str = "^[0-9a-f]{64}$";
const HEX: &str = "^([0-9a-f]{2})*$";
const TIME: &str = "^([-+]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?Z\
                    |@-?[0-9]+\\.[0-9]{9})$";

const EPOCH: &str = "^(0|[1-9][0-9]{0,18})-[0-9a-f]{32}$";

/// For each schema of a record: the file in `docs/schema/` that it equals, and the properties that
/// only the command line prints.
const RECORDS: [(&str, &str, &[&str]); 7] = [
    ("Commit", "commit", &["renames", "forgotten", "forgotten_at"]),
    ("Entry", "entry", &[]),
    ("Change", "change", &["binary", "lines_added", "lines_deleted"]),
    ("Version", "version", &[]),
    ("CommitStats", "stats-commit", &[]),
    ("FileStats", "stats-file", &[]),
    ("StoreStats", "stats-store", &[]),
];

/// The parts of the document that several operations share.
struct Components {
    /// The schemas of requests.
    sent: SchemaGenerator,
    /// The schemas of responses.
    received: SchemaGenerator,
}

/// The description of an operation.
#[derive(Default)]
struct Operation {
    summary: &'static str,
    description: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: Map<String, Value>,
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

fn named(schema: &str) -> Value {
    content("application/json", reference("schemas", schema))
}

fn content(kind: &str, schema: Value) -> Value {
    json!({ kind: { "schema": schema } })
}

/// Content without a schema.
fn bytes(kind: &str) -> Value {
    json!({ kind: {} })
}

fn text(kind: &str) -> Value {
    content(kind, json!({ "type": "string" }))
}

fn matching(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    })
}

impl Components {
    fn new() -> Self {
        let generator = |contract| {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.contract = contract;
                settings.definitions_path = "/components/schemas".into();
            });
            settings.into_generator()
        };
        Self { sent: generator(Contract::Deserialize), received: generator(Contract::Serialize) }
    }

    /// Returns the content of a request.
    fn sent<T: JsonSchema>(&mut self) -> Value {
        content("application/json", self.sent.subschema_for::<T>().to_value())
    }

    /// Returns the content of a response.
    fn received<T: JsonSchema>(&mut self) -> Value {
        content("application/json", self.received.subschema_for::<T>().to_value())
    }
}

impl Operation {
    fn new(summary: &'static str) -> Self {
        Self { summary, ..Self::default() }
    }

    fn about(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// Adds shared parameters.
    fn with(mut self, parameters: &[&str]) -> Self {
        self.parameters.extend(parameters.iter().map(|name| reference("parameters", name)));
        self
    }

    fn parameter(mut self, place: &str, name: &str, is_required: bool, schema: Value) -> Self {
        let parameter =
            json!({ "name": name, "in": place, "required": is_required, "schema": schema });
        self.parameters.push(parameter);
        self
    }

    fn query(self, name: &str) -> Self {
        self.parameter("query", name, false, json!({ "type": "string" }))
    }

    fn takes(self, content: Value) -> Self {
        Self { body: Some(json!({ "required": true, "content": content })), ..self }
    }

    fn gives(self, status: &str, description: &str, content: Value) -> Self {
        self.gives_with(status, description, &[], content)
    }

    /// Adds a response with shared headers.
    fn gives_with(
        mut self,
        status: &str,
        description: &str,
        headers: &[&str],
        content: Value,
    ) -> Self {
        let mut response = json!({ "description": description });
        for name in headers {
            response["headers"][*name] = reference("headers", name);
        }
        if content != Value::Null {
            response["content"] = content;
        }
        self.responses.insert(status.to_owned(), response);
        self
    }

    fn done(self, status: &str, description: &str) -> Self {
        self.gives(status, description, Value::Null)
    }

    /// Adds a response with an `ETag`, and the response to a client that has it.
    fn conditional(self, description: &str, content: Value) -> Self {
        self.with(&["if-none-match"]).gives_with("200", description, &["ETag"], content).unchanged()
    }

    fn unchanged(self) -> Self {
        self.gives_with("304", "The client has this version", &["ETag"], Value::Null)
    }

    /// Adds the responses with a whole content and with a range of it.
    fn ranged(self, kind: &str, more: &[&str]) -> Self {
        let whole = [&["ETag", "Accept-Ranges"], more].concat();
        let part = [&["ETag", "Accept-Ranges", "Content-Range"], more].concat();
        let mut operation = self
            .with(&["range", "if-range", "if-none-match"])
            .gives_with("200", "The whole content", &whole, bytes(kind))
            .gives_with("206", "The requested range", &part, bytes(kind))
            .unchanged();
        operation.responses.insert("416".to_owned(), reference("responses", "NoSuchBytes"));
        operation
    }

    /// Adds the responses with the length of a content.
    fn length(self, more: &[&str]) -> Self {
        let headers = [&["ETag", "Accept-Ranges", "Content-Length"], more].concat();
        self.with(&["if-none-match"])
            .gives_with("200", "It exists", &headers, Value::Null)
            .unchanged()
    }

    /// Returns the operation in the document.
    fn into_json(mut self, route: Route) -> Value {
        let spec = route.spec();
        let mut name = format!("{route:?}");
        name[..1].make_ascii_lowercase();
        let mut operation = json!({ "operationId": name, "summary": self.summary });
        if !self.description.is_empty() {
            operation["description"] = self.description.into();
        }
        if spec.access == RouteAccess::Nothing {
            operation["security"] = json!([]);
        }
        let of_path = parameters(spec.path).into_iter().map(|name| reference("parameters", name));
        let mut parameters: Vec<Value> = of_path.chain(self.parameters).collect();
        let is_of_store = spec.path.contains("{repo}") && route != Route::CreateRepository;
        if is_of_store && spec.access.is_write() {
            parameters.push(reference("parameters", SNAP_EPOCH.as_str()));
        }
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        let in_all = [
            is_of_store.then_some(SNAP_EPOCH),
            spec.path.contains("{commit}").then_some(SNAP_COMMIT),
        ];
        for name in in_all.iter().flatten().map(|name| name.as_str()) {
            let described =
                self.responses.values_mut().filter(|response| response.get("$ref").is_none());
            described.for_each(|response| response["headers"][name] = reference("headers", name));
        }
        self.responses.insert("default".to_owned(), reference("responses", "Problem"));
        operation["responses"] = self.responses.into();
        operation
    }
}

/// Returns the shared parameters of a path.
fn parameters(path: &str) -> Vec<&str> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| if name == "*name" { "ref" } else { name.trim_start_matches('*') }).collect()
}

fn operation(route: Route, types: &mut Components) -> Operation {
    let op = Operation::new;
    let archive = |kind| {
        op("Downloads an archive of a commit, or of a folder or file of it")
            .query("path")
            .conditional("The archive", bytes(kind))
    };
    let tree = |summary| {
        op(summary)
            .parameter("query", "recursive", false, json!({ "type": "boolean" }))
            .conditional("The entries", named("Tree"))
    };
    let stored = |operation: Operation| {
        operation.done("200", "The repository had it").done("201", "The repository has it now")
    };
    let kind = SNAP_KIND;
    match route {
        Route::Health => {
            op("Reports that the server answers").gives("200", "`ok`", text("text/plain"))
        }
        Route::Ready => op("Reports whether the server can read and write what it serves").gives(
            "200",
            "`ready`, and the number of damaged repositories",
            text("text/plain"),
        ),
        Route::Metrics => op("Returns metrics for Prometheus").gives(
            "200",
            "The metrics",
            text("application/openmetrics-text"),
        ),
        Route::Server => op("Describes the server").gives(
            "200",
            "Versions, limits and capabilities",
            types.received::<ServerInfo>(),
        ),
        Route::Openapi => {
            op("Returns this document").gives("200", "This document", bytes("application/json"))
        }
        Route::Repositories => op("Lists the repositories that the client may read").gives(
            "200",
            "Their names",
            types.received::<Repositories>(),
        ),
        Route::CreateRepository => {
            op("Creates a repository").takes(text("application/toml")).done("201", "Created")
        }
        Route::Config => op("Returns the settings of the store").gives(
            "200",
            "The settings",
            bytes("application/toml"),
        ),
        Route::MendConfig => op("Replaces lost or damaged settings")
            .takes(bytes("application/toml"))
            .gives("200", "The settings afterwards", bytes("application/toml")),
        Route::Head => op("Names the default branch").gives(
            "200",
            "The default branch",
            types.received::<Head>(),
        ),
        Route::MendHead => op("Rewrites a lost or damaged `HEAD`").gives(
            "200",
            "The default branch",
            types.received::<Head>(),
        ),
        Route::Refs => op("Lists branches and tags")
            .conditional("The branches and tags", types.received::<Refs>()),
        Route::Ref => {
            op("Reads a branch or a tag").conditional("The branch or tag", types.received::<Ref>())
        }
        Route::MoveRef => op("Creates or moves a branch or a tag")
            .about(
                "Needs either `If-Match` or `If-None-Match: *`. The scope `append` can create refs \
                 and fast-forward branches; other moves get `403`, `append-only`.",
            )
            .with(&["if-match"])
            .parameter("header", "If-None-Match", false, json!({ "const": "*" }))
            .takes(types.sent::<Move>())
            .gives_with("200", "Moved", &["ETag"], Value::Null)
            .gives_with("201", "Created", &["ETag"], Value::Null),
        Route::DeleteRef => {
            op("Deletes a branch or a tag").with(&["if-match"]).done("204", "Deleted")
        }
        Route::Packs => op("Lists published and staged packs").gives(
            "200",
            "Their names and lengths",
            types.received::<Packs>(),
        ),
        Route::Pack => op("Downloads a pack").ranged(PACK_TYPE, &[]),
        Route::PackLength => op("Returns the length of a pack").length(&[]),
        Route::SendPack => stored(op("Uploads a pack").takes(bytes(PACK_TYPE))),
        Route::Index => op("Lists the files of the index").gives(
            "200",
            "Their names and lengths",
            types.received::<Index>(),
        ),
        Route::IndexFile => op("Downloads a file of the index").gives(
            "200",
            "The outlines of packs",
            bytes(OUTLINES_TYPE),
        ),
        Route::Publish => op("Publishes the packs that an index file lists")
            .takes(bytes(OUTLINES_TYPE))
            .done("200", "The packs were published before")
            .done("201", "The packs are published now, or the part is stored"),
        Route::Object => {
            op("Downloads an object").ranged("application/octet-stream", &[kind.as_str()])
        }
        Route::ObjectLength => {
            op("Returns the length and the kind of an object").length(&[kind.as_str()])
        }
        Route::SendObject => {
            let kinds = ["blob", "list part", "chunk list", "tree", "commit"];
            let uploads = op("Uploads an object")
                .parameter("header", kind.as_str(), true, json!({ "enum": kinds }))
                .takes(bytes("application/octet-stream"));
            stored(uploads)
        }
        Route::Missing => {
            let (mut ids, mut missing) = (types.sent::<Ids>(), types.received::<Missing>());
            ids[IDS_TYPE] = json!({});
            missing[IDS_TYPE] = json!({});
            let mut asks = op("Finds out which objects are missing").takes(ids).gives(
                "200",
                "The missing ids, in the same form and order",
                missing,
            );
            // An empty body asks for no ids.
            asks.body.as_mut().unwrap()["required"] = false.into();
            asks
        }
        Route::TakeBundle => op("Unpacks a bundle")
            .takes(bytes(BUNDLE_TYPE))
            .gives("200", "The repository had everything", types.received::<Unpacked>())
            .gives("201", "Unpacked", types.received::<Unpacked>()),
        Route::Log => op("Lists commits, newest first")
            .query("ref")
            .query("path")
            .with(&["limit", "cursor"])
            .gives("200", "A page", named("Log")),
        Route::Diff => op("Lists the differences between two commits")
            .query("from")
            .parameter("query", "to", true, json!({ "type": "string" }))
            .with(&["limit", "cursor-of-two"])
            .gives("200", "A page", named("Diff")),
        Route::Find => op("Finds paths by name in a whole history")
            .parameter("query", "pattern", true, json!({ "type": "string", "minLength": 1 }))
            .query("commit")
            .with(&["limit", "cursor"])
            .gives("200", "A page", named("Find")),
        Route::Stats => op("Returns what each commit added, and the size of the store")
            .query("ref")
            .with(&["limit"])
            .gives("200", "The figures", named("Stats")),
        Route::Commit => op("Reads a commit").conditional("The commit", named("Commit")),
        Route::Tree => tree("Lists the entries of a commit"),
        Route::TreeAt => tree("Lists the entries below a folder, or the entry itself"),
        Route::Tar => archive("application/x-tar"),
        Route::TarZst => archive("application/zstd"),
        Route::Zip => archive("application/zip"),
        Route::Bundle => {
            op("Downloads a commit with everything that it refers to").ranged(BUNDLE_TYPE, &[])
        }
        Route::BundleLength => op("Returns the length of the bundle of a commit").length(&[]),
        Route::BundleWithout => op("Downloads a bundle without the objects that the client has")
            .takes(types.sent::<Have>())
            .gives_with("200", "The bundle", &["ETag"], bytes(BUNDLE_TYPE)),
        Route::File => op("Downloads a file").with(&["download"]).ranged("*/*", &[]),
        Route::FileLength => op("Returns the length of a file").with(&["download"]).length(&[]),
    }
}

fn shared_parameters() -> Value {
    let string = json!({ "type": "string" });
    let some_string = json!({ "type": "string", "minLength": 1 });
    let cursor =
        |commits: usize| matching(&format!("^{}[0-9]{{1,19}}$", "[0-9a-f]{64}\\.".repeat(commits)));
    let etags = "^(\\*|(W/)?\"[!#-~]*\"( *, *(W/)?\"[!#-~]*\")*)$";
    let ref_name = "^(heads|tags)/(?!(refs|heads|tags|remotes)/)(?![0-9A-Fa-f]{12,64}$)\
        (?!(HEAD|latest|@)$)(?!.*(\\.\\.|@\\{|//|/\\.|\\.lock(/|$)|\\.log/))\
        [^\\-./ ~^:?*\\[\\\\\\x00-\\x1f\\x7f-\\x9f]\
        (|[^ ~^:?*\\[\\\\\\x00-\\x1f\\x7f-\\x9f]*[^./ ~^:?*\\[\\\\\\x00-\\x1f\\x7f-\\x9f])$";
    let ref_name =
        json!({ "type": "string", "minLength": 1, "maxLength": 205, "pattern": ref_name });
    let of_path = [
        ("repo", "The name of a repository, with `%2F` for each `/`", some_string.clone()),
        (
            "commit",
            "The id of a commit, a unique prefix of one, or a ref with `%2F` for each `/`",
            some_string.clone(),
        ),
        ("path", "A path in the commit", some_string),
        (
            "id",
            "The id of an object or a pack, or the hash of a bundle",
            reference("schemas", "Id"),
        ),
        (
            "name",
            "The hash of an index file; a group of such files and its parts have an ending",
            matching("^[0-9a-f]{64}(\\.part|\\.group)?$"),
        ),
        ("ref", "A branch or a tag, such as `heads/main` or `tags/v1.0`", ref_name),
    ];
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 1000 });
    let next = "`next` of the page before";
    let of_query = [
        ("limit", "The number of items on a page", limit),
        ("cursor", next, cursor(1)),
        ("cursor-of-two", next, cursor(2)),
        (
            "download",
            "1 makes a browser save the file",
            json!({ "type": "integer", "enum": [0, 1] }),
        ),
    ];
    let epoch = SNAP_EPOCH;
    let of_head = [
        ("range", "`bytes=FIRST-LAST`, one range; others are ignored", string.clone()),
        (
            "if-range",
            "The ETag of the version to which the range belongs; else the whole content is sent",
            string.clone(),
        ),
        ("if-none-match", "The ETags that the client has, or `*`", string),
        (
            "if-match",
            "ETags of the ref (commit, epoch and nonce, or the commit alone), or `*` for any state",
            matching(etags),
        ),
        (
            epoch.as_str(),
            "The epoch that the client relies on, from an earlier response",
            matching(EPOCH),
        ),
    ];
    let places = [("path", &of_path[..]), ("query", &of_query), ("header", &of_head)];
    let all = places.into_iter().flat_map(|(place, all)| all.iter().map(move |one| (place, one)));
    let parameters = all.map(|(place, (key, description, schema))| {
        let name = match *key {
            "ref" => "name",
            "cursor-of-two" => "cursor",
            key => key,
        };
        let is_required = place == "path";
        let parameter = json!({
            "name": name,
            "in": place,
            "required": is_required,
            "description": description,
            "schema": schema,
        });
        ((*key).to_owned(), parameter)
    });
    parameters.collect()
}

fn shared_headers() -> Value {
    let number = json!({ "type": "integer", "minimum": 0 });
    let kinds = ["blob", "chunk list", "list part", "tree", "commit", "link"];
    let names = [SNAP_KIND, SNAP_COMMIT, SNAP_EPOCH];
    let [kind, commit, epoch] = names.each_ref().map(HeaderName::as_str);
    let headers = [
        ("ETag", "Identifies this version", matching("^\"[^\"]+\"$")),
        ("Accept-Ranges", "The content has ranges", json!({ "const": "bytes" })),
        (
            "Content-Range",
            "The range, and the length of the content",
            matching("^bytes [0-9]+-[0-9]+/[0-9]+$"),
        ),
        ("No-Range", "The length of the content", matching("^bytes \\*/[0-9]+$")),
        ("Content-Length", "The length of the content", number),
        (kind, "The kind of the object", json!({ "enum": kinds })),
        (commit, "The commit that the revision in the path stands for", matching(ID)),
        // The epoch of an upstream may be unknown.
        (epoch, "The epoch of the store; clients do not parse it", matching(EPOCH)),
    ];
    let headers = headers.into_iter().map(|(name, description, schema)| {
        let is_required = name != epoch;
        let header =
            json!({ "description": description, "required": is_required, "schema": schema });
        (name.to_owned(), header)
    });
    headers.collect()
}

/// Returns the schemas by name.
fn schemas(types: &mut Components) -> Map<String, Value> {
    let string = |pattern: &str, description: &str| {
        let mut schema = matching(pattern);
        schema["description"] = description.into();
        schema
    };
    let mut schemas = Map::new();
    schemas.insert("Id".to_owned(), string(ID, "BLAKE3-256 in hexadecimal"));
    schemas.insert("Hex".to_owned(), string(HEX, "Exact bytes of what is not UTF-8"));
    let time = "RFC 3339 in UTC; `@SECONDS.NANOS` for other years";
    schemas.insert("Time".to_owned(), string(TIME, time));
    types.received.subschema_for::<ProblemBody>();
    for generator in [&mut types.received, &mut types.sent] {
        for (name, schema) in generator.take_definitions(true) {
            schemas.insert(name, strict(schema));
        }
    }
    for (name, file, only) in RECORDS {
        schemas.insert(name.to_owned(), record(file, only));
    }
    // Both sides of a change have the same schema.
    let sides = &mut schemas["Change"]["properties"];
    let mut side = sides["old"].clone();
    side["description"] = "One side of a change; `null` if there is none".into();
    (sides["old"], sides["new"]) = (reference("schemas", "Side"), reference("schemas", "Side"));
    schemas.insert("Side".to_owned(), side);
    let of = |name: &str| reference("schemas", name);
    let (id, next) = (of("Id"), json!({ "type": "string" }));
    let found = object(
        &["path", "versions"],
        json!({ "path": next, "path_hex": of("Hex"), "versions": list(of("Version")) }),
    );
    let page = |required: &[&str], properties: Value| {
        let mut page = object(required, properties);
        page["properties"]["next"] = next.clone();
        page
    };
    let stats = json!({
        "commits": list(of("CommitStats")),
        "files": list(of("FileStats")),
        "store": of("StoreStats"),
    });
    let changes = json!({ "from": id, "to": id, "changes": list(of("Change")) });
    let entries = json!({ "commit": id, "entries": list(of("Entry")) });
    for (name, schema) in [
        ("Tree", object(&["commit", "entries"], entries)),
        ("Log", page(&["commits"], json!({ "commits": list(of("Commit")) }))),
        ("Diff", page(&["from", "to", "changes"], changes)),
        ("Find", page(&["commit", "found"], json!({ "commit": id, "found": list(found) }))),
        ("Stats", object(&["commits", "files", "store"], stats)),
    ] {
        schemas.insert(name.to_owned(), schema);
    }
    schemas
}

/// Returns a schema that describes this version of the server: it allows no unknown properties.
/// Removes what says nothing about JSON.
fn strict(schema: Value) -> Value {
    let mut schema = match schema {
        Value::Object(map) => map,
        Value::Array(all) => return all.into_iter().map(strict).collect(),
        other => return other,
    };
    // A property may have such a name.
    schema.retain(|key, value| {
        value.is_object()
            || !["$schema", "title", "format", "default", "maximum"].contains(&key.as_str())
    });
    if let Some(Value::Array(words)) = schema.shift_remove("oneOf") {
        let words: Vec<Value> = words.into_iter().map(|mut word| word["const"].take()).collect();
        schema.insert("enum".to_owned(), words.into());
    }
    if schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("additionalProperties".to_owned(), false.into());
        let required = schema.entry("required").or_insert_with(|| json!([])).clone();
        for (name, property) in schema["properties"].as_object_mut().unwrap() {
            if !required.as_array().unwrap().contains(&Value::from(name.as_str())) {
                remove_null(property);
            }
        }
    }
    schema.into_iter().map(|(key, value)| (key, strict(value))).collect()
}

/// Removes `null` from the schema of a property that is absent instead.
fn remove_null(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        schema["type"] = schema["type"][0].take();
    }
    if let Some(Value::Array(mut options)) = schema.as_object_mut().unwrap().shift_remove("anyOf") {
        schema["$ref"] = options[0]["$ref"].take();
    }
}

/// Returns the schema of a record of the command line, without the properties `only`, and without
/// `version` and `type`, which belong to the lines of `--json`.
fn record(name: &str, only: &[&str]) -> Value {
    let file = docs().join(format!("schema/{name}.json"));
    let mut record: Value = serde_json::from_slice(&fs_err::read(file).unwrap()).unwrap();
    for key in ["$schema", "$id", "title"] {
        record.as_object_mut().unwrap().shift_remove(key);
    }
    let is_left_out = |key: &str| ["version", "type"].contains(&key) || only.contains(&key);
    record["properties"].as_object_mut().unwrap().retain(|key, _| !is_left_out(key));
    let required = record["required"].as_array_mut().unwrap();
    required.retain(|key| !is_left_out(key.as_str().unwrap()));
    with_references(record)
}

/// Refers to the schemas of ids, times and exact bytes.
fn with_references(schema: Value) -> Value {
    let mut schema = match schema {
        Value::Object(map) => map,
        Value::Array(all) => return all.into_iter().map(with_references).collect(),
        other => return other,
    };
    let shared = [("Id", ID), ("Hex", HEX), ("Time", TIME)];
    let is_string = schema.get("type").is_some_and(|kind| kind == "string");
    if let Some(pattern) = schema.get("pattern")
        && let Some((name, _)) = shared.iter().find(|(_, known)| is_string && pattern == known)
    {
        schema.shift_remove("type");
        schema.shift_remove("pattern");
        schema.insert("$ref".to_owned(), reference("schemas", name)["$ref"].take());
    }
    schema.into_iter().map(|(key, value)| (key, with_references(value))).collect()
}

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).with_file_name("docs")
}

fn document() -> Value {
    let mut types = Components::new();
    let mut paths = json!({});
    for route in Route::ALL {
        let spec = route.spec();
        let method = spec.method.as_str().to_lowercase();
        let operation = operation(*route, &mut types).into_json(*route);
        paths[spec.path.replace("{*", "{")][method] = operation;
    }
    let problem = |description: &str| {
        let content = content("application/problem+json", reference("schemas", "Problem"));
        json!({ "description": description, "content": content })
    };
    let mut no_such_bytes = problem("The range lies outside the content");
    no_such_bytes["headers"]["Content-Range"] = reference("headers", "No-Range");
    let license = "MIT OR Apache-2.0";
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "snap",
            "version": PROTOCOL.to_string(),
            "description": "The protocol of `snap serve`: docs/protocol.md",
            "license": { "name": license, "identifier": license },
        },
        "servers": [{ "url": "http://127.0.0.1:7627" }],
        // A server may run without tokens.
        "security": [{ "bearer": [] }, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the server, or a JWT of an issuer that it trusts. A \
                                    server without tokens has `\"authentication\": \"none\"` in \
                                    the response of `GET /v1`.",
                },
            },
            "parameters": shared_parameters(),
            "headers": shared_headers(),
            "schemas": schemas(&mut types),
            "responses": {
                "Problem": problem("A refusal"),
                "NoSuchBytes": no_such_bytes,
            },
        },
    })
}

#[test]
fn the_openapi_document_is_up_to_date() {
    let mut text = Vec::new();
    let mut writer =
        serde_json::Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    document().serialize(&mut writer).unwrap();
    text.push(b'\n');
    let file = docs().join("openapi.json");
    if std::env::var_os("SNAP_UPDATE_DOCS").is_some() {
        fs_err::write(&file, &text).unwrap();
    }
    let is_same = fs_err::read(&file).unwrap() == text;
    assert!(is_same, "run the test with SNAP_UPDATE_DOCS=1 to update docs/openapi.json");
}
