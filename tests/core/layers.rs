//! The structure of the source: layers import only from lower layers, each file has a
//! header, and core does not know the outside world.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The layers of core, lowest first. Modules on the same layer do not import each
/// other.
const LAYERS: [&[&str]; 6] =
    [&["base"], &["format"], &["chunk", "codec", "disk"], &["store", "local"], &["repo"], &["ops"]];

/// What core must not use: terminal, environment, network, async runtimes.
const OUTSIDE: [&str; 14] = [
    "tokio",
    "async fn",
    "reqwest",
    "opendal",
    "std::env",
    "env!(",
    "std::net",
    "TcpStream",
    "println!",
    "eprintln!",
    "print!(",
    "std::io::stdout",
    "std::io::stderr",
    "home_dir",
];

struct Source {
    name: String,
    text: String,
}

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = walkdir::WalkDir::new(root.join(folder)).sort_by_file_name().into_iter();
    let read = |path: PathBuf| Source {
        name: path.strip_prefix(root).unwrap().display().to_string(),
        text: fs_err::read_to_string(path).unwrap(),
    };
    let found: Vec<Source> = files
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .map(read)
        .collect();
    assert!(found.len() > 3, "no sources in {folder}");
    found
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Returns the modules in the table at the top of a package's `lib.rs`. Each imports
/// only from those above it.
fn modules_of(package: &str) -> Vec<String> {
    let root = text_of(&format!("{package}/src/lib.rs"));
    let named = root.lines().filter_map(|line| line.strip_prefix("//! | [`")?.split_once("`] |"));
    named.map(|(module, _)| module.to_owned()).collect()
}

/// Reads a file, by its path in the repository.
fn text_of(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs_err::read_to_string(root.join(name)).unwrap()
}

/// Removes comments, everything after `//` inside a string, and code that is compiled
/// only for tests.
fn code(text: &str) -> String {
    let mut out = String::new();
    let mut skip_item = false;
    let mut depth = 0_i32;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        if depth == 0 && line.trim_start().starts_with("#[cfg(test)]") {
            skip_item = true;
            continue;
        }
        if skip_item {
            let braces = |c| line.matches(c).count() as i32;
            depth += braces('{') - braces('}');
            skip_item = depth > 0 || !(line.contains('}') || line.contains(';'));
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Returns the modules directly below `crate` that a text names.
fn imports(text: &str) -> Vec<String> {
    let code = code(text);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group_heads(group)),
            None => found.push(word(rest)),
        }
    }
    found
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns the first words of the members of `a::b, c::{d, e}, f}`.
fn group_heads(group: &str) -> Vec<String> {
    let (mut heads, mut depth, mut expected) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expected = true,
            c if expected && !c.is_whitespace() => {
                heads.push(word(&group[at..]));
                expected = false;
            }
            _ => {}
        }
    }
    heads
}

fn wrong_imports(name: &str, text: &str) -> Vec<String> {
    match name.strip_prefix("core/src/") {
        Some(inside) => wrong_by(name, inside, text, &layer),
        None => Vec::new(),
    }
}

/// Returns imports from the same or a higher layer. `layer` returns the layer of a
/// module.
fn wrong_by(
    name: &str,
    inside: &str,
    text: &str,
    layer: &dyn Fn(&str) -> Option<usize>,
) -> Vec<String> {
    let own = inside.split(['/', '.']).next().unwrap_or_default();
    let Some(own_layer) = layer(own) else { return Vec::new() };
    let wrong =
        |module: &String| module != own && layer(module).is_none_or(|layer| layer >= own_layer);
    let found = imports(text).into_iter().filter(wrong);
    found.map(|module| format!("{name}: `{own}` imports `{module}`")).collect()
}

fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

#[test]
fn core_imports_downwards_only() {
    let sources = sources("core/src");
    let wrong: Vec<String> = sources
        .iter()
        .filter(|source| !is_test(&source.name))
        .flat_map(|source| wrong_imports(&source.name, &source.text))
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    let count: usize = sources.iter().map(|source| imports(&source.text).len()).sum();
    assert!(count > 150, "only {count} imports were found");
}

#[test]
fn every_module_of_core_has_a_layer() {
    let modules = modules_in("core/src/lib.rs");
    assert!(modules.len() >= 9);
    for module in modules {
        assert!(layer(&module).is_some(), "`{module}` is in no layer");
    }
}

fn modules_in(root: &str) -> Vec<String> {
    let text = text_of(root);
    let module = |line: &str| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
    text.lines().filter_map(module).collect()
}

#[test]
fn remote_and_server_import_downwards_only() {
    for package in ["remote", "server"] {
        let order = modules_of(package);
        let layer = |module: &str| order.iter().position(|other| other == module);
        let (mut wrong, mut count) = (Vec::new(), 0);
        for Source { name, text } in sources(&format!("{package}/src")) {
            let inside = name.strip_prefix(&format!("{package}/src/")).unwrap();
            wrong.extend(wrong_by(&name, inside, &text, &layer));
            count += imports(&text).len();
        }
        assert_eq!(wrong, Vec::<String>::new());
        assert!(count > 20, "only {count} imports were found in {package}");
        let mut listed = order.clone();
        listed.sort();
        let modules = modules_in(&format!("{package}/src/lib.rs"));
        assert_eq!(listed, modules, "each module is in the table, once");
    }
    let order = modules_of("remote");
    let layer = |module: &str| order.iter().position(|other| other == module);
    let upwards =
        wrong_by("x", "bucket/x.rs", "use crate::{ranges::Plan, location::Scheme};", &layer);
    assert_eq!(upwards, ["x: `bucket` imports `ranges`"]);
}

#[test]
fn the_layer_test_detects_wrong_imports() {
    let nested =
        "use crate::{\n    base::{id, kind},\n    store::{Store,\n  pack::X},\n    ops,\n};\n";
    assert_eq!(imports(nested), ["base", "store", "ops"]);
    assert_eq!(
        wrong_imports("core/src/store/x.rs", nested),
        ["core/src/store/x.rs: `store` imports `ops`"]
    );
    let neighbour = "fn f() { crate::local::scan::x() }";
    assert_eq!(wrong_imports("core/src/store/x.rs", neighbour).len(), 1);
    assert_eq!(wrong_imports("core/src/local/x.rs", neighbour).len(), 0);
    assert_eq!(wrong_imports("core/src/disk/mod.rs", "use crate::codec::Codec;").len(), 1);
    let comment = "//! See [`x`](crate::ops::x).\n/// crate::repo\nuse crate::base::id;";
    assert_eq!(wrong_imports("core/src/format/x.rs", comment).len(), 0);
    let tests = "use crate::base;\n#[cfg(test)]\nmod tests {\n  use crate::ops;\n  fn f() {\n }\n}\nuse crate::repo;";
    assert_eq!(imports(tests), ["base", "repo"]);
}

#[test]
fn core_does_not_use_the_environment_or_network() {
    let mut found = Vec::new();
    for source in sources("core/src").iter().filter(|source| !is_test(&source.name)) {
        let code = code(&source.text);
        for word in OUTSIDE.iter().filter(|word| code.contains(**word)) {
            found.push(format!("{}: {word}", source.name));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_file_opens_with_a_module_comment() {
    let mut wrong = Vec::new();
    for folder in ["core/src", "remote", "server", "cli/src", "tests", "benches"] {
        for Source { name, text } in sources(folder) {
            if !text.lines().next().is_some_and(|line| line.starts_with("//! ") && line.len() > 8) {
                wrong.push(format!("{name} does not open with `//!`"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Methods that ask what kind of store or bucket another object is, and what it can do. `facts`
/// returns all that a bucket tells about itself.
const FLAGS: [&str; 9] = [
    "conditions",
    "facts",
    "known_conditions",
    "local_store",
    "maintains_index",
    "may_resume",
    "must_create_store_first",
    "must_prove_conditions",
    "takes_parts",
];

/// The folders that may ask a bucket for its facts.
const BUCKETS: [&str; 2] = ["remote/src/bucket/", "remote/src/peer/bucket/"];

/// Returns the calls of flag methods in a text.
fn flag_questions(text: &str) -> usize {
    let code = code(text);
    let calls = FLAGS.iter().map(|flag| code.matches(&format!(".{flag}(")).count());
    calls.sum()
}

/// Returns the methods of each type in a package: functions in blocks `impl Type`, in any file.
fn methods_of_types(package: &str) -> BTreeMap<String, usize> {
    let mut types = BTreeMap::new();
    for Source { name, text } in sources(&format!("{package}/src")) {
        if is_test(&name) {
            continue;
        }
        let mut current: Option<String> = None;
        for line in code(&text).lines() {
            if let Some(rest) = line.strip_prefix("impl") {
                let rest = rest.trim_start_matches(|c| c != ' ').trim_start();
                current = (!line.contains(" for ")).then(|| word(rest));
            } else if line.starts_with('}') {
                current = None;
            } else if let Some(name) = &current
                && line.strip_prefix("    ").is_some_and(is_function)
            {
                *types.entry(name.clone()).or_default() += 1;
            }
        }
    }
    types
}

/// Returns true if a line of an `impl` block, without its indentation, begins a function.
fn is_function(line: &str) -> bool {
    let mut words = line.split(' ');
    let is_modifier = |word: &&str| {
        word.starts_with("pub")
            || matches!(*word, "in" | "const" | "async" | "unsafe")
            || word.ends_with("::store)")
    };
    words.find(|word| !is_modifier(word)) == Some("fn")
}

#[test]
fn flag_questions_only_fall() {
    let mut found = 0;
    for package in ["remote", "server", "cli"] {
        for Source { name, text } in sources(&format!("{package}/src")) {
            if !is_test(&name) && !BUCKETS.iter().any(|folder| name.starts_with(folder)) {
                assert!(!code(&text).contains("BucketFacts"), "{name} uses the facts of a bucket");
                assert!(!code(&text).contains(".facts("), "{name} asks for the facts of a bucket");
                found += flag_questions(&text);
            }
        }
    }
    assert_eq!(found, 0, "the number of flag questions; it must only fall");
    assert_eq!(flag_questions("if client.maintains_index() { s.facts() } // .takes_parts()"), 2);
}

#[test]
fn the_largest_types_only_shrink() {
    for (package, most) in [("core", 171), ("remote", 40), ("server", 40), ("cli", 75)] {
        let types = methods_of_types(package);
        let largest = types.iter().max_by_key(|(_, methods)| **methods).unwrap();
        assert_eq!(*largest.1, most, "methods of `{}` in {package}; it must only fall", largest.0);
    }
}
