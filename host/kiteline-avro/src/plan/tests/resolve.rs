//! Resolution of a writer's to a reader's schema, rule by rule.

use super::{check, plan, refusal};
use crate::error::PlanError;

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#)
}

#[test]
fn promotions() {
    let cases = [
        ("int", "long", "03", "-2"),
        ("int", "float", "feffffff0f", "2147483648.0"),
        ("int", "double", "feffffff0f", "2147483647.0"),
        ("long", "float", "03", "-2.0"),
        ("long", "double", "8280808080808020", "9007199254740993.0"),
        ("float", "double", "0000c03f", "1.5"),
        ("string", "bytes", "04c3a9", "xc3a9"),
        ("string", "bytes", "04c328", "Utf8@0"),
        ("bytes", "string", "04c3a9", "\"é\""),
        ("bytes", "string", "04c328", "Utf8@0"),
    ];
    for (writer, reader, datum, expected) in cases {
        if (writer, reader) == ("long", "double") {
            // 2^53 + 1 rounds to even
            check(r#""long""#, r#""double""#, "8280808080808020", "9007199254740992.0");
            continue;
        }
        check(&format!("\"{writer}\""), &format!("\"{reader}\""), datum, expected);
    }
    let all = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];
    let allowed =
        |writer: &str, reader: &str| writer == reader || cases.iter().any(|case| (case.0, case.1) == (writer, reader));
    for writer in all {
        for reader in all.into_iter().filter(|reader| !allowed(writer, reader)) {
            let error = refusal(&format!("\"{writer}\""), &format!("\"{reader}\""));
            assert_eq!(error.to_string(), format!("field '(root)': written as {writer}, cannot be read as {reader}"));
        }
    }
}

#[test]
fn fields_by_name_then_alias_then_default() {
    // case 47 (c): positions are the writer's business only
    let two = |first: &str, second: &str| {
        record(&format!(r#"{{"name":"{first}","type":"int"}},{{"name":"{second}","type":"int"}}"#))
    };
    check(&two("f1", "f2"), &two("f2", "f1"), "02 04", "(2, 1)");
    // case 46
    let old = record(r#"{"name":"old","type":"int"}"#);
    let new = record(r#"{"name":"new","type":"int","aliases":["older","old"],"default":1}"#);
    check(&old, &new, "0e", "(7)");
    check(&record(r#"{"name":"other","type":"int"}"#), &new, "0e", "(1)");
    // the name counts more than another field's alias
    let both = record(r#"{"name":"new","type":"int","aliases":["old"],"default":1},{"name":"old","type":"int"}"#);
    check(&old, &both, "0e", "(1, 7)");
    let missing = record(r#"{"name":"x","type":["null","string"]}"#);
    assert_eq!(
        refusal(&old, &missing).to_string(),
        "field 'x': the writer's record 'R' lacks it, and it has no default (reader type union [null, string])"
    );
    // what the reader lacks is skipped, and checked on the way
    let wide = record(
        r#"{"name":"a","type":"string"},{"name":"b","type":"string"},{"name":"c","type":{"type":"fixed","name":"F","size":2}},{"name":"d","type":"double"},
        {"name":"e","type":["null","string"]},{"name":"f","type":["long","null"]},{"name":"g","type":{"type":"map","values":"string"}},
        {"name":"h","type":"boolean"},{"name":"i","type":{"type":"enum","name":"E","symbols":["A"]}},{"name":"k","type":"bytes"},{"name":"l","type":"int"}"#,
    );
    let narrow = record(r#"{"name":"l","type":"int"}"#);
    let datum = "0261 0262 aabb 0000000000000000 020263 00ff01 020278027900 01 00 02ff 54";
    check(&wide, &narrow, datum, "(42)");
    check(&wide, &narrow, &datum.replace("0262", "02ff"), "Utf8@2");
    check(&wide, &narrow, &datum.replace(" 01 00 ", " 02 00 "), "Value@26");
    check(&wide, &narrow, &datum.replace(" 01 00 ", " 01 02 "), "Value@27");
    let program = format!("{:?}", plan(&wide, &narrow));
    assert!(program.contains("SkipTexts { count: 2 }") && program.contains("SkipBytes { count: 10 }"), "{program}");
}

#[test]
fn nullable_and_plain() {
    check(r#""int""#, r#"["null","long"]"#, "06", "3");
    check(r#""null""#, r#"["string","null"]"#, "", "null");
    check(r#"["null","int"]"#, r#"["long","null"]"#, "00", "null");
    check(r#"["null","int"]"#, r#"["long","null"]"#, "0206", "3");
    check(r#"["int","null"]"#, r#""long""#, "0006", "3");
    check(r#"["int","null"]"#, r#""long""#, "02", "Resolution@1");
    assert_eq!(
        plan(r#"["int","null"]"#, r#""long""#).partial()[0].to_string(),
        "field '(root)': written as null, cannot be read as long"
    );
    assert!(plan(r#"["int","null"]"#, r#"["null","double"]"#).partial().is_empty());
    // a branch without a place is an error of its records alone
    check(r#"["null","string"]"#, r#"["null","int"]"#, "00", "null");
    check(r#"["null","string"]"#, r#"["null","int"]"#, "020261", "Resolution@1");
    assert_eq!(
        refusal(r#"["null","string"]"#, r#""int""#).to_string(),
        "field '(root)': written as union [null, string], cannot be read as int"
    );
    // null sets the bits of everything beneath
    let inner =
        r#"{"type":"record","name":"S","fields":[{"name":"x","type":["null","int"]},{"name":"y","type":"string"}]}"#;
    let holder = record(&format!(r#"{{"name":"s","type":["null",{inner}]}},{{"name":"t","type":["null","S"]}}"#));
    check(&holder, &holder, "00 02 02 06 00", "(null, (3, \"\"))");
}

#[test]
fn unions_take_the_first_branch_that_matches() {
    check(r#""int""#, r#"["string","double","long"]"#, "06", "#1:3.0");
    check(r#"["int","string"]"#, r#"["string","long"]"#, "0006", "#1:3");
    check(r#"["int","string"]"#, r#"["string","long"]"#, "020261", "#0:\"a\"");
    check(r#"["int","string"]"#, r#""string""#, "020261", "\"a\"");
    check(r#"["int","string"]"#, r#""string""#, "0006", "Resolution@1");
    // case 47 (a): branches by name, not by shape
    let a = r#"{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}"#;
    let b = r#"{"type":"record","name":"B","fields":[{"name":"x","type":"int"}]}"#;
    check(&format!("[{a},{b}]"), &format!("[{b},{a}]"), "02 12", "#0:(9)");
    // the full name counts more than the last part of one before it
    let ours = r#"{"type":"record","name":"x.A","fields":[{"name":"x","type":"int"}]}"#;
    check(a, &format!("[{ours},{a}]"), "12", "#1:(9)");
    check(a, &format!(r#"["int",{ours}]"#), "12", "#1:(9)");
    let renamed = r#"{"type":"record","name":"C","aliases":["A"],"fields":[{"name":"x","type":"int"}]}"#;
    check(a, &format!("[{b},{renamed}]"), "12", "#1:(9)");
    // arrays match by their items
    let lists = r#"[{"type":"map","values":"int"},{"type":"array","items":"long"}]"#;
    check(r#"{"type":"array","items":"int"}"#, lists, "02 06 00", "#1:[3]");
    assert!(matches!(refusal(r#"{"type":"array","items":"string"}"#, lists), PlanError::Mismatch { .. }));
}

#[test]
fn names_of_records_enums_and_fixed() {
    let named = |kind: &str, name: &str| match kind {
        "record" => format!(r#"{{"type":"record","name":"{name}","fields":[]}}"#),
        "enum" => format!(r#"{{"type":"enum","name":"{name}","symbols":["A"]}}"#),
        _ => format!(r#"{{"type":"fixed","name":"{name}","size":1}}"#),
    };
    for kind in ["record", "enum", "fixed"] {
        plan(&named(kind, "a.X"), &named(kind, "b.X"));
        let text = refusal(&named(kind, "a.X"), &named(kind, "a.Y")).to_string();
        assert!(
            text.contains(&format!("written as {kind} 'a.X'"))
                && text.contains(&format!("cannot be read as {kind} 'a.Y'")),
            "{text}"
        );
    }
    let other = r#"{"type":"fixed","name":"X","size":2}"#;
    assert_eq!(
        refusal(&named("fixed", "X"), other).to_string(),
        "field '(root)': written as fixed 'X' of 1 bytes, cannot be read as fixed 'X' of 2 bytes"
    );
}

#[test]
fn enums_by_symbol() {
    // case 45
    let symbols = |list: &str, default: &str| format!(r#"{{"type":"enum","name":"E","symbols":[{list}]{default}}}"#);
    let writer = symbols(r#""A","B","C""#, "");
    let defaulted = symbols(r#""A","B""#, r#","default":"B""#);
    check(
        &record(&format!(r#"{{"name":"e","type":{writer}}}"#)),
        &record(&format!(r#"{{"name":"e","type":{defaulted},"default":"A"}}"#)),
        "04",
        "(B)",
    );
    check(&format!(r#"["null",{writer}]"#), &format!(r#"["null",{defaulted}]"#), "0204", "B");
    check(&writer, &symbols(r#""B","A""#, ""), "00", "A");
    check(&writer, &symbols(r#""B","A""#, ""), "02", "B");
    check(&writer, &symbols(r#""B","A""#, ""), "04", "Resolution@0");
    check(&writer, &writer, "06", "Value@0");
    check(&writer, &writer, "01", "Value@0");
    check(&writer, &symbols(r#""A","B","C","D""#, ""), "06", "Value@0");
}

#[test]
fn decimals_of_another_scale_do_not_match() {
    let decimal = |precision: u32, scale: u32| {
        format!(r#"{{"type":"bytes","logicalType":"decimal","precision":{precision},"scale":{scale}}}"#)
    };
    check(&decimal(9, 2), &decimal(9, 2), "02ff", "xff");
    check(&decimal(9, 2), r#""bytes""#, "02ff", "xff");
    check(r#""bytes""#, &decimal(9, 2), "02ff", "xff");
    assert_eq!(
        refusal(&decimal(9, 2), &decimal(9, 3)).to_string(),
        "field '(root)': written as bytes (decimal(9,2)), cannot be read as bytes (decimal(9,3))"
    );
    // other logical types change nothing
    check(
        r#"{"type":"long","logicalType":"timestamp-millis"}"#,
        r#"{"type":"long","logicalType":"timestamp-micros"}"#,
        "02",
        "1",
    );
}

#[test]
fn defaults_of_every_type() {
    let cases = [
        (r#""boolean""#, "true", "true"),
        (r#""int""#, "-7", "-7"),
        (r#""long""#, "9223372036854775807", "9223372036854775807"),
        (r#""float""#, "0.1", "0.10000000149011612"),
        (r#""double""#, "1", "1.0"),
        (r#""double""#, r#""NaN""#, "NaN"),
        (r#""string""#, r#""é""#, "\"é\""),
        // case 46: code points are bytes
        (r#""bytes""#, r#""\u00FF\u0001""#, "xff01"),
        (r#"{"type":"fixed","name":"F","size":2}"#, r#""\u00FF\u0001""#, "xff01"),
        (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, r#""B""#, "B"),
        (r#""null""#, "null", "null"),
        (r#"["null","int"]"#, "null", "null"),
        (r#"["int","null"]"#, "null", "null"),
        (r#"["int","null"]"#, "5", "5"),
        (r#"["null","int"]"#, "5", "5"),
        (r#"["int","null","string"]"#, r#""q""#, "#2:\"q\""),
        (r#"["int","null","string"]"#, "null", "#1:null"),
        (r#"{"type":"array","items":"int"}"#, "[]", "[]"),
        (r#"{"type":"array","items":["null","string"]}"#, r#"["a",null,""]"#, "[\"a\", null, \"\"]"),
        (r#"{"type":"array","items":"null"}"#, "[null,null]", "[null, null]"),
        (r#"{"type":"map","values":["null","long"]}"#, r#"{"a":1,"b":null}"#, "{a: 1, b: null}"),
        (
            r#"{"type":"record","name":"S","fields":[{"name":"x","type":"int","default":3},{"name":"y","type":["null","S"],"default":null},{"name":"z","type":["null","int"]}]}"#,
            r#"{"y":{"x":4,"z":null},"z":6}"#,
            "(3, (4, null, null), 6)",
        ),
    ];
    for (schema, default, expected) in cases {
        let reader =
            record(&format!(r#"{{"name":"a","type":"int"}},{{"name":"d","type":{schema},"default":{default}}}"#));
        check(&record(r#"{"name":"a","type":"int"}"#), &reader, "02", &format!("(1, {expected})"));
    }
    let wrong = [
        (r#""int""#, "2147483648"),
        (r#""int""#, "1.5"),
        (r#""long""#, r#""1""#),
        (r#""float""#, "1e39"),
        (r#""string""#, "null"),
        (r#""bytes""#, r#""\u0100""#),
        (r#"{"type":"fixed","name":"F","size":2}"#, r#""a""#),
        (r#"{"type":"enum","name":"E","symbols":["A"]}"#, r#""B""#),
        (r#"["null","int"]"#, r#""x""#),
        (r#"{"type":"array","items":"int"}"#, "[1,null]"),
        (r#"{"type":"map","values":"int"}"#, "[]"),
        (r#"{"type":"record","name":"S","fields":[{"name":"x","type":"int"}]}"#, "{}"),
        // a default that goes round in a circle
        (r#"{"type":"record","name":"S","fields":[{"name":"x","type":["S","null"],"default":{}}]}"#, "{}"),
    ];
    for (schema, default) in wrong {
        let reader = record(&format!(r#"{{"name":"d","type":{schema},"default":{default}}}"#));
        match refusal(&record(""), &reader) {
            PlanError::Default { path, .. } => assert_eq!(path, "d"),
            other => panic!("{schema} {default}: {other}"),
        }
    }
}

#[test]
fn defaults_inside_items_and_recursive_records() {
    let old = r#"{"type":"array","items":{"type":"record","name":"P","fields":[{"name":"a","type":"int"}]}}"#;
    let new = r#"{"type":"array","items":{"type":"record","name":"P","fields":[{"name":"a","type":"long"},{"name":"b","type":["null","string"],"default":null},{"name":"c","type":"string","default":"cc"}]}}"#;
    check(old, new, "04 02 04 00", "[(1, null, \"cc\"), (2, null, \"cc\")]");
    // items without bytes that still have defaults
    let empty = r#"{"type":"array","items":{"type":"record","name":"P","fields":[]}}"#;
    let filled = r#"{"type":"array","items":{"type":"record","name":"P","fields":[{"name":"c","type":"string","default":"cc"}]}}"#;
    check(empty, filled, "04 00", "[(\"cc\"), (\"cc\")]");
    let list = |kind: &str, more: &str| {
        format!(
            r#"{{"type":"record","name":"N","fields":[{{"name":"v","type":"{kind}"}}{more},{{"name":"n","type":["null","N"]}}]}}"#
        )
    };
    let wide = list("int", r#",{"name":"t","type":"string"}"#);
    check(&wide, &list("double", ""), "02 0261 02 04 0262 00", "(1.0, (2.0, null))");
    let outer = format!(
        r#"{{"type":"record","name":"R","fields":[{{"name":"n","type":{wide}}},{{"name":"z","type":"int"}}]}}"#
    );
    check(&outer, &record(r#"{"name":"z","type":"int"}"#), "02 0261 02 04 0262 00 06", "(3)");
    check(&outer, &record(r#"{"name":"z","type":"int"}"#), "02 0261 02 04 02ff 00 06", "Utf8@5");
}

#[test]
fn refusals_name_the_path() {
    let deep = |leaf: &str| {
        format!(
            r#"{{"type":"record","name":"R","fields":[{{"name":"lines","type":{{"type":"array","items":{{"type":"map","values":
            {{"type":"record","name":"L","fields":[{{"name":"price","type":{leaf}}}]}}}}}}}}]}}"#
        )
    };
    assert_eq!(
        refusal(&deep(r#""string""#), &deep(r#""int""#)).to_string(),
        "field 'lines.[].{}.price': written as string, cannot be read as int"
    );
}
