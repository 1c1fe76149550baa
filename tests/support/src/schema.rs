//! JSON Schema: the subset that `docs/schema/` and `docs/openapi.json` use.
//!
//! [`sound`] rejects a schema with other keywords, so that a misspelt keyword cannot become a check
//! that never fails. [`valid`] expects a schema that is sound. A `$ref` is a pointer into the
//! document that contains the schema (`#/components/…`).

use serde_json::{Map, Value};

const KEYWORDS: [&str; 15] = [
    "$schema",
    "$id",
    "$ref",
    "title",
    "description",
    "type",
    "const",
    "enum",
    "pattern",
    "minimum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "examples",
];

/// Checks that a schema uses known keywords only, and lists all properties.
///
/// # Errors
/// A description of the problem.
pub fn sound(document: &Value, schema: &Value) -> Result<(), String> {
    let schema = schema.as_object().ok_or("a schema is an object")?;
    if let Some(other) = schema.keys().find(|key| !KEYWORDS.contains(&key.as_str())) {
        return Err(format!("unknown keyword {other}"));
    }
    if let Some(name) = schema.get("$ref") {
        let alone = schema.keys().all(|key| ["$ref", "description"].contains(&key.as_str()));
        return if alone { named(document, name).map(drop) } else { Err(format!("beside {name}")) };
    }
    let types = types(schema);
    if types.is_empty() && !schema.contains_key("const") && !schema.contains_key("enum") {
        let any = schema.keys().all(|key| key == "description");
        return if any { Ok(()) } else { Err(format!("no type: {schema:?}")) };
    }
    if let Some(pattern) = schema.get("pattern") {
        pattern_fn(pattern.as_str().unwrap_or_default()).ok_or(format!("pattern {pattern}"))?;
    }
    if types.contains(&"object") {
        sound_object(document, schema)?;
    }
    if types.contains(&"array") {
        sound(document, schema.get("items").ok_or("no items")?)?;
    }
    Ok(())
}

fn sound_object(document: &Value, schema: &Map<String, Value>) -> Result<(), String> {
    let more = schema.get("additionalProperties").ok_or("no additionalProperties")?;
    match (more, schema.get("properties").and_then(Value::as_object)) {
        // Keys that users choose: labels.
        (Value::Object(_), None) => sound(document, more),
        (Value::Bool(false), Some(properties)) => {
            properties.values().try_for_each(|schema| sound(document, schema))?;
            let required = schema.get("required").and_then(Value::as_array);
            let mut required = required.ok_or("nothing is required")?.iter();
            let is_known = |name: &Value| name.as_str().is_some_and(|n| properties.contains_key(n));
            let unknown = required.find(|name| !is_known(name));
            unknown.map_or(Ok(()), |name| Err(format!("{name} is required but unknown")))
        }
        _ => Err("additionalProperties must be false".to_owned()),
    }
}

/// Returns the schema that a `$ref` names.
fn named<'a>(document: &'a Value, name: &Value) -> Result<&'a Value, String> {
    let pointer = name.as_str().and_then(|name| name.strip_prefix('#'));
    pointer.and_then(|pointer| document.pointer(pointer)).ok_or(format!("there is no {name}"))
}

fn types(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

type Test = fn(&str) -> bool;

/// Returns the function for one of the patterns in use.
fn pattern_fn(pattern: &str) -> Option<Test> {
    match pattern {
        "^[0-9a-f]{64}$" => Some(|text| text.len() == 64 && is_hex(text)),
        "^([0-9a-f]{2})*$" => Some(|text| text.len() % 2 == 0 && is_hex(text)),
        "^[0-7]{4}$" => {
            Some(|text| text.len() == 4 && text.bytes().all(|b| (b'0'..=b'7').contains(&b)))
        }
        "^(0|[1-9][0-9]{0,18})-[0-9a-f]{32}$" => Some(|text| {
            let parts = text.split_once('-');
            parts.is_some_and(|(number, nonce)| {
                digits(number, (1, 19)) && nonce.len() == 32 && is_hex(nonce)
            })
        }),
        "^\"[^\"]+\"$" => Some(|text| text.len() > 2 && is_quoted(text)),
        "^bytes [0-9]+-[0-9]+/[0-9]+$" => Some(|text| is_part(text, |of| of.split_once('-'))),
        "^bytes \\*/[0-9]+$" => Some(|text| is_part(text, |of| (of == "*").then_some(("0", "0")))),
        TIME => Some(is_time),
        _ => None,
    }
}

fn is_quoted(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.is_some_and(|inner| !inner.contains('"'))
}

/// Checks a `Content-Range`; `ends` splits its byte range.
fn is_part(text: &str, ends: impl Fn(&str) -> Option<(&str, &str)>) -> bool {
    let parts = text.strip_prefix("bytes ").and_then(|text| text.split_once('/'));
    parts.and_then(|(of, length)| Some((ends(of)?, length))).is_some_and(|((from, to), length)| {
        [from, to, length].iter().all(|number| digits(number, (1, 20)))
    })
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// RFC 3339 in UTC, or seconds since 1970 for years outside the range of RFC 3339.
const TIME: &str = "^([-+]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?Z\
    |@-?[0-9]+\\.[0-9]{9})$";

fn is_time(text: &str) -> bool {
    if let Some(since) = text.strip_prefix('@') {
        let since = since.strip_prefix('-').unwrap_or(since);
        let parts = since.split_once('.');
        return parts.is_some_and(|(secs, nanos)| digits(secs, (1, 20)) && digits(nanos, (9, 9)));
    }
    let halves = text.strip_suffix('Z').and_then(|text| text.split_once('T'));
    let Some((date, time)) = halves else { return false };
    let date = date.strip_prefix(['-', '+']).unwrap_or(date);
    let (time, decimals) = time.split_once('.').unwrap_or((time, "0"));
    let parts = |text: &str, between: char, lengths: [(usize, usize); 3]| {
        let parts: Vec<&str> = text.split(between).collect();
        parts.len() == 3 && parts.iter().zip(lengths).all(|(part, length)| digits(part, length))
    };
    parts(date, '-', [(4, 6), (2, 2), (2, 2)])
        && parts(time, ':', [(2, 2); 3])
        && digits(decimals, (1, usize::MAX))
}

fn digits(text: &str, (least, most): (usize, usize)) -> bool {
    (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

/// Checks a value against a schema.
///
/// # Errors
/// A description of the problem and its place.
pub fn valid(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let schema = schema.as_object().ok_or("a schema is an object")?;
    if let Some(name) = schema.get("$ref") {
        return valid(document, named(document, name)?, value);
    }
    let of = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types = types(schema);
    let fits = |known: &&str| *known == of || (*known == "number" && of == "integer");
    if !types.is_empty() && !types.iter().any(fits) {
        return Err(format!("{value} is no {types:?}"));
    }
    if let Some(only) = schema.get("const").filter(|only| *only != value) {
        return Err(format!("{value} is not {only}"));
    }
    let one_of = schema.get("enum").and_then(Value::as_array);
    if let Some(known) = one_of.filter(|known| !known.contains(value)) {
        return Err(format!("{value} is none of {known:?}"));
    }
    if let (Some(least), Some(number)) = (schema.get("minimum"), value.as_f64())
        && least.as_f64().is_none_or(|least| number < least)
    {
        return Err(format!("{value} is less than {least}"));
    }
    if let (Some(Value::String(pattern)), Value::String(text)) = (schema.get("pattern"), value)
        && !pattern_fn(pattern).is_some_and(|fits| fits(text))
    {
        return Err(format!("{value} does not match {pattern}"));
    }
    match value {
        // A schema without types accepts anything.
        _ if types.is_empty() => Ok(()),
        Value::Array(items) => {
            let of = schema.get("items").ok_or("no items")?;
            items.iter().try_for_each(|item| valid(document, of, item))
        }
        Value::Object(map) => valid_object(document, schema, map),
        _ => Ok(()),
    }
}

fn valid_object(
    document: &Value,
    schema: &Map<String, Value>,
    map: &Map<String, Value>,
) -> Result<(), String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let more = schema.get("additionalProperties").filter(|more| more.is_object());
    for (key, value) in map {
        let known = properties.and_then(|properties| properties.get(key)).or(more);
        let known = known.ok_or_else(|| format!("{key} is unknown"))?;
        valid(document, known, value).map_err(|fault| format!("{key}: {fault}"))?;
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let mut required = required.filter_map(Value::as_str);
    required.find(|name| !map.contains_key(*name)).map_or(Ok(()), |name| Err(format!("no {name}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_checker_finds_faults() {
        let document = json!({ "side": { "type": "string", "pattern": TIME } });
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {
                "a": { "type": ["integer", "null"], "minimum": 0 },
                "b": { "type": "string", "pattern": "^[0-7]{4}$" },
                "c": { "type": "array", "items": { "enum": ["x"] } },
                "d": { "$ref": "#/side", "description": "when" },
                "e": { "type": "object", "additionalProperties": { "const": 1 } },
                "f": { "type": "string", "pattern": "^([0-9a-f]{2})*$" },
                "g": { "description": "whatever" },
            },
        });
        assert_eq!(sound(&document, &schema), Ok(()));
        let check = |value: Value| valid(&document, &schema, &value);
        let good = json!({
            "a": null, "b": "0644", "c": ["x"], "d": "2026-11-01T10:00:00.5Z", "e": { "any": 1 },
            "f": "c3e9", "g": [{ "any": 1 }],
        });
        assert_eq!(check(good), Ok(()));
        for bad in [
            json!({}),
            json!({ "a": -1 }),
            json!({ "a": 1.5 }),
            json!({ "a": 1, "b": "0999" }),
            json!({ "a": 1, "c": ["y"] }),
            json!({ "a": 1, "d": "soon" }),
            json!({ "a": 1, "e": { "any": 2 } }),
            json!({ "a": 1, "f": "c3e" }),
            json!({ "a": 1, "h": 1 }),
            json!([]),
        ] {
            assert!(check(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn unsupported_schemas_are_refused() {
        for bad in [
            json!({ "type": "string", "patern": "x" }),
            json!({ "type": "string", "pattern": "^x$" }),
            json!({ "type": "object", "properties": {} }),
            json!({ "type": "object", "properties": {}, "additionalProperties": true }),
            json!({
                "type": "object", "properties": {}, "additionalProperties": false,
                "required": ["a"],
            }),
            json!({ "type": "array" }),
            json!({ "minimum": 1 }),
            json!({ "$ref": "#/none" }),
            json!({ "$ref": "#", "type": "string" }),
            json!("string"),
        ] {
            assert!(sound(&json!({}), &bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_complete_utc_times_are_valid() {
        for good in [
            "2026-11-01T10:00:00Z",
            "-009999-01-02T01:59:59.000000001Z",
            "@253402300800.000000000",
            "@-9223372036854775808.000000001",
        ] {
            assert!(is_time(good), "{good}");
        }
        for bad in [
            "",
            "2026-11-01",
            "2026-11-01T10:00Z",
            "2026-11-01T10:00:00",
            "2026-11-01T10:00:00.Z",
            "2026-11-01T10:00:00+01:00",
            "26-11-01T10:00:00Z",
            "@1",
            "@1.5",
            "@.000000000",
        ] {
            assert!(!is_time(bad), "{bad}");
        }
    }
}
