//! Which texts are schemas, and what their graphs say.

use super::{Schema, SchemaId, SchemaKind};
use crate::error::SchemaError;

fn refused(text: &str) -> String {
    match Schema::parse(text) {
        Ok(schema) => panic!("accepted: {schema:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn refusals_name_the_place() {
    let cases = [
        ("[]", "schema at '(root)': a union has no branches"),
        (r#"["int",["null","long"]]"#, "schema at '(root)': a union is directly inside a union"),
        (r#"["int","null","int"]"#, "schema at '(root)': a union has two branches of type 'int'"),
        (r#""Foo""#, "schema at '(root)': unknown type 'Foo'"),
        ("7", "schema at '(root)': a schema is a name, an object or a list"),
        (r#"{"items":"int"}"#, "schema at '(root)': a schema object has no 'type'"),
        (
            r#"{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array"}}]}"#,
            "schema at 'a': an array has no 'items'",
        ),
        (
            r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}"#,
            "schema at '(root)': record 'R' has two fields 'a'",
        ),
        (
            r#"{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"fixed","name":"R","size":1}}]}"#,
            "schema at 'a': type 'R' is defined twice",
        ),
        (r#"{"type":"enum","name":"E","symbols":["A","A"]}"#, "schema at '(root)': enum 'E' has symbol 'A' twice"),
        (
            r#"{"type":"enum","name":"E","symbols":["A"],"default":"B"}"#,
            "schema at '(root)': default \"B\" of enum 'E' is no symbol of it",
        ),
        (r#"{"type":"fixed","name":"F","size":-1}"#, "schema at '(root)': fixed 'F' has no size in bytes below 2^31"),
        (r#"{"type":"record","name":"a.int","fields":[]}"#, "schema at '(root)': 'a.int' is no type name"),
        (
            // case 41: records that always contain one another
            r#"{"type":"record","name":"A","fields":[{"name":"b","type":{"type":"record","name":"B","fields":[{"name":"a","type":"A"}]}}]}"#,
            "record 'A' always contains itself, so that no value of it is finite",
        ),
        (
            r#"{"type":"record","name":"A","fields":[{"name":"b","type":["A"]}]}"#,
            "record 'A' always contains itself, so that no value of it is finite",
        ),
        ("{", "schema is not valid JSON"),
    ];
    for (text, message) in cases {
        assert_eq!(refused(text), message, "{text}");
    }
    assert!(matches!(Schema::parse(&"[".repeat(200)), Err(SchemaError::Json { .. })));
    let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(120), "}".repeat(120));
    Schema::parse(&deep).expect("120 levels are legal");
}

#[test]
fn names_follow_their_namespace() {
    // case 47 (b): the inner type inherits the namespace, and is used by short and by full name
    let schema = Schema::parse(
        r#"{"type":"record","name":"my.ns.R","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["A"]}},
            {"name":"f","type":"E"},{"name":"g","type":["null","my.ns.E"]},
            {"name":"h","type":{"type":"fixed","name":"H","namespace":"","size":2,"aliases":["I","x.J"]}}]}"#,
    )
    .expect("legal schema");
    let SchemaKind::Record(record) = &schema.node(SchemaId::ROOT).kind else {
        panic!("a record");
    };
    assert_eq!(&*record.name.full, "my.ns.R");
    assert_eq!(record.fields[0].schema, record.fields[1].schema);
    assert_eq!(schema.nullable(record.fields[2].schema), Some((record.fields[0].schema, 0)));
    assert_eq!(schema.describe(record.fields[0].schema), "enum 'my.ns.E'");
    let SchemaKind::Fixed(fixed) = &schema.node(record.fields[3].schema).kind else {
        panic!("a fixed");
    };
    assert_eq!(&*fixed.name.full, "H");
    let aliases: Vec<&str> = fixed.name.aliases.iter().map(|alias| &**alias).collect();
    assert_eq!(aliases, ["I", "x.J"]);
}

#[test]
fn references_are_put_in_place() {
    let city = r#"{"type":"record","name":"City","namespace":"geo","fields":[{"name":"name","type":"string"},{"name":"c","type":{"type":"enum","name":"C","symbols":["X"]}}]}"#;
    let street = r#"{"type":"record","name":"geo.Street","fields":[{"name":"city","type":"City"}]}"#;
    let order = r#"{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"s","type":["null","geo.Street"]},{"name":"c","type":"geo.City"},{"name":"e","type":"geo.C"}]}"#;
    let schema = Schema::parse_with(order, &[city, street]).expect("legal schema");
    let again = Schema::parse(schema.text()).expect("the text stands for itself");
    assert_eq!(again.node_count(), schema.node_count());
    assert!(schema.text().contains(r#""namespace":"geo""#), "{}", schema.text());
    // references do not hide what is missing
    assert!(matches!(Schema::parse_with(order, &[city]), Err(SchemaError::UnknownName { .. })));
    // two references that need one another still give a definition each, in place
    let a = r#"{"type":"record","name":"A","fields":[{"name":"b","type":["null","B"]}]}"#;
    let b = r#"{"type":"record","name":"B","fields":[{"name":"a","type":["null","A"]}]}"#;
    Schema::parse_with(r#"["null","A","B"]"#, &[a, b]).expect("legal schema");
}

#[test]
fn odd_but_legal_texts() {
    for text in [
        r#"{"type":{"type":{"type":"string"}}}"#,
        r#"{"type":["null","int"]}"#,
        r#"{"type":"record","name":"R","fields":[],"doc":"none","x":1}"#,
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":["int","null"],"default":null}]}"#,
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"never used"}]}"#,
        r#"{"type":"fixed","name":"F","size":0}"#,
        r#"{"type":"enum","name":"E","symbols":["A","B"],"default":"B"}"#,
        r#"{"type":"bytes","logicalType":"decimal","precision":-4}"#,
        r#"[{"type":"array","items":"int"},{"type":"map","values":"int"},{"type":"enum","name":"E","symbols":["A"]}]"#,
        " string ",
    ] {
        Schema::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
}
