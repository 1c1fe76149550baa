//! Tests of settings: reading, merging, editing, and error messages.

use super::{
    edit::Edit,
    error::SettingOrigin,
    key::{KEYS, KeyPath, ValueType},
    *,
};
use crate::base::kind::ErrorKind;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new(FILE))
}

fn path(name: &str) -> KeyPath {
    name.parse().unwrap()
}

fn layer(text: &str, owner: ConfigOwner) -> Layer {
    Layer::parse(text, Path::new(FILE), owner).unwrap()
}

fn store(text: &str) -> Edit<'_> {
    Edit { text, path: Path::new(FILE), owner: ConfigOwner::Store }
}

#[test]
fn the_default_settings_survive_a_round_trip() {
    let config = Config::default();
    assert_eq!(parse(&config.to_text()).unwrap(), config);
    assert_eq!(parse("version = 5").unwrap(), config);
}

#[test]
fn a_new_store_sets_only_its_version() {
    let text = Config::default().to_text();
    let layer = layer(&text, ConfigOwner::Store);
    let said: Vec<String> = layer.values().map(|(path, _)| path.to_string()).collect();
    assert_eq!(said, ["version"]);
}

#[test]
fn a_setting_replaces_its_commented_out_line() {
    let mut text = Config::default().to_text();
    let lines = text.lines().count();
    for (key, value) in [
        ("compression.level", "7"),
        ("commit.author", "Ann \"A\" O'Neil"),
        ("commit.exclude", r#"["*.o", "/tmp"]"#),
        ("commit.gitignore", "true"),
    ] {
        text = store(&text).set(&path(key), value).unwrap();
    }
    let config = parse(&text).unwrap();
    assert_eq!(config.commit.exclude, ["*.o", "/tmp"]);
    assert_eq!(config.commit.author.as_deref(), Some("Ann \"A\" O'Neil"));
    assert_eq!(config.compression_level, 7);
    assert_eq!(text.lines().count(), lines, "{text}");
    assert_eq!(parse(&config.to_text()).unwrap(), config);
}

#[test]
fn set_and_unset_keep_the_rest_of_the_file() {
    let text = "# mine\nversion = 5 # one\n\n[commit] # c\n# who\nauthor = 'a' # me\n\
                exclude = [\n  '*.o', # objects\n]\n\
                [profile.home]\nlabels = { set = 'home', a = 'b' }\n";
    let edit = store(text);
    assert_eq!(
        edit.set(&path("commit.author"), "b").unwrap(),
        text.replace("author = 'a'", "author = \"b\"")
    );
    let unset = |key: &str| edit.unset(&path(key)).unwrap().unwrap();
    assert_eq!(unset("commit.author"), text.replace("author = 'a' # me\n", ""));
    assert_eq!(unset("commit.exclude"), text.replace("exclude = [\n  '*.o', # objects\n]\n", ""));
    assert_eq!(
        unset("profile.home.labels.a"),
        text.replace("{ set = 'home', a = 'b' }", "{ set = 'home'}")
    );
    assert_eq!(unset("profile.home"), text.split_once("[profile").unwrap().0);
    assert_eq!(edit.unset(&path("commit.host")).unwrap(), None);
    assert_eq!(
        edit.set(&path("profile.home.labels.c"), "d").unwrap(),
        text.replace("'b' }", "'b' , c = \"d\" }")
    );
    let added = edit.set(&path("profile.work.hooks.pre_commit"), "true").unwrap();
    assert!(added.starts_with(text), "{added}");
    assert!(added.ends_with("\n[profile.work.hooks]\npre_commit = \"true\"\n"), "{added}");
    let more = store(&added).set(&path("profile.work.paths"), "/etc").unwrap();
    assert_eq!(more, format!("{added}\n[profile.work]\npaths = [\"/etc\"]\n"));
    let dotted = "version = 5\nprofile.a.message = 'm'\n";
    let set = |key: &str| store(dotted).set(&path(key), "x").unwrap();
    assert_eq!(set("profile.a.branch"), format!("{dotted}profile.a.branch = \"x\"\n"));
    assert_eq!(set("profile.b.branch"), format!("{dotted}\n[profile.b]\nbranch = \"x\"\n"));
}

#[test]
fn a_new_section_goes_after_the_last_comment() {
    let text = Config::default().to_text();
    let with = store(&text).set(&path("hooks.pre_commit"), "true").unwrap();
    assert_eq!(with, format!("{text}\n[hooks]\npre_commit = \"true\"\n"));
    let both = store(&with).set(&path("commit.author"), "ann").unwrap();
    assert_eq!(both, with.replace("# author = \"\"", "author = \"ann\""));
}

#[test]
fn text_like_a_commented_out_setting_stays() {
    let text = "version = 5\n[profile.a]\nmessage = '''\n[commit]\n# author = x\n'''\n";
    let changed = store(text).set(&path("commit.author"), "ann").unwrap();
    assert!(changed.starts_with(text), "{changed}");
}

#[test]
fn errors_name_the_file_the_line_and_the_setting() {
    for (text, message) in [
        ("version = 5\nchunks = 3", "config.toml:2: `chunks` is not a setting"),
        ("version = 5\n[compression]\nlevel = 20", "config.toml:3: `compression.level` is 20"),
        ("version = 5\n[compression]\nlevel = -1", "is -1, but must be a number from 1 to 19"),
        ("version = 5\ncommit = 3", "`commit` is 3, but must be a section, `[commit]`"),
        ("version = 5\n[[commit]]", "`commit` is a list of sections, but must be a section"),
        ("version = 5\n[commit.author]", "`commit.author` is a section, but must be a text"),
        ("version = 5\n[ui]\ncolor = 'never'", "config.toml:3: `ui.color` is not allowed here"),
        ("version = 5\n[profile.a]\nstore = '/s'", "`profile.a.store` is not allowed here"),
        ("version = 5\n[hooks]\non_failure = 'cry'", "is 'cry', but must be `stop` or `report`"),
        ("version = 5\n[profile.a]\npaths = ['x', 3]", "is ['x', 3], but must be a list"),
        ("version = 5\nversion = 5", "config.toml:2: duplicate key"),
        ("version = 6\nnews = 1", "has store version 6; this snap reads up to 5"),
        ("", "config.toml: `version` is missing"),
        ("version = 0", "has store version 0, from before the first release"),
        (
            "version = 4\nold = 1",
            "has store version 4, from before the first release; this snap reads version 5",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.to_string().contains(message), "{text:?}: {error}");
        let is_other = error.is_of_version() || matches!(error, ConfigError::NoVersion { .. });
        let kind = if is_other { ErrorKind::Unsupported } else { ErrorKind::Invalid };
        assert_eq!(error.kind(), kind, "{text:?}");
    }
    let close = |text| match parse(text).unwrap_err() {
        ConfigError::Unknown { close, .. } => close,
        other => panic!("{other}"),
    };
    assert_eq!(close("version = 5\n[commit]\nauthr = 'a'"), ["commit.author"]);
    assert_eq!(close("version = 5\n[profile.me]\npath = ['a']")[0], "profile.me.paths");
    let unknown = store("version = 5").set(&path("commit.size"), "1").unwrap_err();
    assert_eq!(unknown.to_string(), "`commit.size` is not a setting");
    let fixed = store("version = 5").set(&path("version"), "2").unwrap_err();
    assert!(matches!(fixed, ConfigError::FixedVersion));
}

#[test]
fn nobody_sets_the_sizes_of_chunks() {
    let text = "[chunk]\nmin = 8192\n";
    for (text, owner) in
        [(text.to_owned(), ConfigOwner::User), (format!("version = 5\n{text}"), ConfigOwner::Store)]
    {
        let error = Layer::parse(&text, Path::new(FILE), owner).unwrap_err().to_string();
        let said = "`chunk` cannot be set: all stores cut large files in the same way";
        assert!(error.ends_with(said), "{error}");
    }
    let error = store("version = 5").set(&path("chunk.min"), "8192").unwrap_err().to_string();
    assert_eq!(error, "`chunk.min` cannot be set: all stores cut large files in the same way");
}

#[test]
fn only_the_file_of_a_store_sets_the_version() {
    let text = "[compression]\nlevel = 9\n";
    let user =
        SettingLayers::new(layer(text, ConfigOwner::User), Layer::default(), Layer::default());
    let store = user.with_store(layer("version = 5\n", ConfigOwner::Store));
    assert_eq!(store.config().unwrap().compression_level, 9);
    let error = Layer::parse("version = 5", Path::new(FILE), ConfigOwner::User).unwrap_err();
    assert!(error.to_string().contains("`version` is not allowed here"), "{error}");
}

#[test]
fn the_highest_layer_wins() {
    let key = path("commit.author");
    let says = |origin: SettingOrigin, value: &str| {
        let mut layer = Layer::default();
        layer.insert(key.clone(), key.key().unwrap().kind.of_text(value).unwrap(), origin);
        layer
    };
    let none = Layer::default;
    let holds = |options: Layer, variables: Layer, store: Layer, user: Layer| {
        SettingLayers::new(user, variables, options).with_store(store).text(&key)
    };
    let file = |owner| SettingOrigin::File { owner, path: FILE.into(), line: 1 };
    let u = says(file(ConfigOwner::User), "user");
    let s = says(file(ConfigOwner::Store), "store");
    let v = says(SettingOrigin::Variable("SNAP_AUTHOR".to_owned()), "variable");
    let o = says(SettingOrigin::Option("--author"), "option");
    assert_eq!(holds(none(), none(), none(), none()), None);
    assert_eq!(holds(none(), none(), none(), u.clone()).as_deref(), Some("user"));
    assert_eq!(holds(none(), none(), s.clone(), u.clone()).as_deref(), Some("store"));
    assert_eq!(holds(none(), v.clone(), s.clone(), u.clone()).as_deref(), Some("variable"));
    assert_eq!(holds(o, v, s, u).as_deref(), Some("option"));
}

#[test]
fn plain_text_is_parsed_by_the_type_of_the_setting() {
    let of = |kind: ValueType, text: &str| kind.of_text(text).map(|value| value.to_string());
    assert_eq!(of(ValueType::Text, "Ann Lee").as_deref(), Some("\"Ann Lee\""));
    assert_eq!(of(ValueType::Text, "'Ann'").as_deref(), Some("\"Ann\""));
    assert_eq!(of(ValueType::Text, "42").as_deref(), Some("\"42\""));
    assert_eq!(of(ValueType::Command, "\"x\" y\t\u{1}").as_deref(), Some(r#""\"x\" y\t\u0001""#));
    assert_eq!(of(ValueType::List, "*.o").as_deref(), Some(r#"["*.o"]"#));
    assert_eq!(of(ValueType::List, "*.o\n[ab].c").as_deref(), Some(r#"["*.o", "[ab].c"]"#));
    assert_eq!(of(ValueType::List, "[ab].c").as_deref(), Some(r#"["[ab].c"]"#));
    assert_eq!(of(ValueType::List, "['a', \"b\"]").as_deref(), Some(r#"["a", "b"]"#));
    assert_eq!(of(ValueType::List, "").as_deref(), Some("[]"));
    assert_eq!(of(ValueType::Flag, "true").as_deref(), Some("true"));
    assert_eq!(of(ValueType::Amount, "0.0055").as_deref(), Some("0.0055"));
    assert_eq!(of(ValueType::Amount, "12").as_deref(), Some("12.0"));
    assert_eq!(of(ValueType::CommandOrNone, "false").as_deref(), Some("false"));
    assert_eq!(of(ValueType::CommandOrNone, "less -R").as_deref(), Some("\"less -R\""));
    assert_eq!(of(ValueType::Age, "1y5m7d").as_deref(), Some("\"1y5m7d\""));
    assert_eq!(of(ValueType::Duration, "'36h'").as_deref(), Some("\"36h\""));
    assert_eq!(of(ValueType::Size, "4096").as_deref(), Some("\"4096\""));
    assert_eq!(of(ValueType::Rate, "2M").as_deref(), Some("\"2M\""));
    for (kind, text) in [
        (ValueType::Flag, "yes"),
        (ValueType::Number { min: 1, max: 19 }, "20"),
        (ValueType::Number { min: 1, max: 19 }, "high"),
        (ValueType::Choice(&["a", "b"]), "c"),
        (ValueType::Amount, "-1"),
        (ValueType::Amount, "nan"),
        (ValueType::List, "[1]"),
        (ValueType::Age, "30x"),
        (ValueType::Age, "90s"),
        (ValueType::Duration, "30m"),
        (ValueType::Duration, "1y"),
        (ValueType::Size, "5Q"),
        (ValueType::Rate, "0"),
    ] {
        assert_eq!(of(kind, text), None, "{text}");
    }
}

/// This test would take forever if the parser counted the line of each setting from the start of
/// the file.
#[test]
fn settings_of_a_large_file_have_the_right_lines() {
    let mut text = String::from("version = 5\n");
    for number in 0..30_000 {
        text.push_str(&format!("[profile.p{number}]\npaths = ['x']\n"));
    }
    let layer = layer(&text, ConfigOwner::Store);
    let (_, origin) = layer.get(&path("profile.p29999.paths")).unwrap();
    assert_eq!(origin.file().map(|(_, line)| line), Some(60_001));
}

#[test]
fn setting_names_survive_a_round_trip() {
    for parts in [&["profile", "a.b", "labels", ""][..], &["profile", "ä\"\n", "paths"]] {
        let path = KeyPath::new(parts.iter().copied());
        assert_eq!(path.to_string().parse::<KeyPath>().unwrap(), path);
        assert!(path.key().is_some(), "{path}");
    }
    assert!(path("profile.x").is_section() && !path("profile.x").is_in(&path("commit")));
    assert!(path("commit.author.x").key().is_none() && !path("commit.author").is_section());
}

#[test]
fn each_default_has_the_type_of_its_setting() {
    for key in &KEYS {
        let Some(value) = (key.default)() else { continue };
        let text = value.to_string().replace('"', "");
        assert_eq!(key.kind.of_text(&text), Some(value), "{}", key.name);
    }
}
