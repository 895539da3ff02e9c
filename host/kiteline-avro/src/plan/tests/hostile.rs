//! Bytes that are no values: each gives a code and a position, in bounded memory, time and depth.

use super::{check, decode, hex, plan, schema};
use crate::error::{DatumCode, PlanError, Reason};
use crate::limits::Limits;
use crate::plan::Plan;

fn same(schema: &str, datum: &str, expected: &str) {
    check(schema, schema, datum, expected);
}

#[test]
fn bytes_that_are_no_values() {
    let longs = r#"{"type":"array","items":"long"}"#;
    let texts = r#"{"type":"map","values":"string"}"#;
    let cases = [
        (r#""int""#, "", "Short@0"),
        (r#""int""#, "80", "Short@0"),
        (r#""int""#, "8080808010", "Value@0"),
        (r#""int""#, "808080808001", "Value@0"),
        (r#""int""#, "8000", "Value@0"),
        (r#""long""#, "ffffffffffffffffff02", "Value@0"),
        (r#""long""#, "ffffffffffffffffffff01", "Value@0"),
        (r#""long""#, "80808080808080808000", "Value@0"),
        (r#""boolean""#, "02", "Value@0"),
        (r#""boolean""#, "ff", "Value@0"),
        (r#""float""#, "000000", "Short@0"),
        (r#""double""#, "00000000000000", "Short@0"),
        // case 42: length -1
        (r#""string""#, "01", "Value@0"),
        (r#""string""#, "0461", "Short@0"),
        // case 52
        (r#""string""#, "04c328", "Utf8@0"),
        (r#""string""#, "06eda080", "Utf8@0"),
        // case 39 (b): a length of 2^31 - 1 and more
        (r#""bytes""#, "feffffff0f00", "Short@0"),
        (r#""bytes""#, "feffffffffffffffff01", "Short@0"),
        // case 39 (c)
        (r#"{"type":"fixed","name":"F","size":2000000000}"#, "", "Short@0"),
        // case 42: the smallest long
        (longs, "ffffffffffffffffff0100", "Value@0"),
        (longs, "feffffffffffffffff0100", "Short@0"),
        (longs, "06020400", "Short@4"),
        (longs, "08020400", "Short@0"),
        (longs, "0302020400", "Value@0"),
        (longs, "0306020400", "Value@0"),
        (longs, "0301020400", "Value@1"),
        (longs, "0340020400", "Value@1"),
        (longs, "0204", "Short@2"),
        (texts, "02 02ff 0261 00", "Utf8@1"),
        (texts, "02 0261 02ff 00", "Utf8@3"),
        (texts, "04 0261 00", "Short@0"),
        (r#"["null","int"]"#, "04", "Value@0"),
        (r#"["null","int"]"#, "01", "Value@0"),
        (r#"["null","int","long"]"#, "06", "Value@0"),
        // case 49
        (r#""int""#, "0aff", "Trailing@1"),
        (r#""null""#, "00", "Trailing@0"),
    ];
    for (schema, datum, expected) in cases {
        same(schema, datum, expected);
    }
    let left = decode(&plan(r#""int""#, r#""int""#), &hex("0aff")).expect_err("a byte is left");
    assert_eq!(left.to_string(), "1 byte left after the value, at byte 1");
    let short = decode(&plan(r#""string""#, r#""string""#), &hex("0461")).expect_err("a short string");
    assert_eq!(short.to_string(), "a length goes beyond the end of the datum, at byte 0 of 2");
    assert_eq!((short.code.number(), DatumCode::Limit.number()), (3, 8));
}

#[test]
fn every_prefix_and_every_flipped_bit_gives_a_value_or_an_error() {
    let order = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"double"},{"name":"address","type":["null",
        {"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}]},{"name":"tags","type":{"type":"array","items":["null","string"]}},
        {"name":"more","type":{"type":"map","values":["int","string",{"type":"enum","name":"E","symbols":["A","B"]}]}}]}"#;
    let narrow = r#"{"type":"record","name":"Order","fields":[{"name":"tags","type":{"type":"array","items":["null","string"]}}]}"#;
    let datum = hex("044131000000000000044002084265726e0402027800000602610006026202027802630402 00");
    for plan in [plan(order, order), plan(order, narrow)] {
        decode(&plan, &datum).expect("a value");
        for end in 0..datum.len() {
            let error = decode(&plan, &datum[..end]).expect_err("too short");
            assert!(error.at <= end, "{error}");
        }
        for bit in 0..8 * datum.len() {
            let mut damaged = datum.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&plan, &damaged);
        }
    }
}

#[test]
fn counts_without_bytes_are_bounded() {
    // case 39 (a): 6,000,000 nulls
    let nulls = r#"{"type":"array","items":"null"}"#;
    same(nulls, "80b6dc0500", "Limit@0");
    // over several arrays and blocks of one record together
    let two = r#"{"type":"array","items":{"type":"array","items":"null"}}"#;
    let error = decode(&plan(two, two), &hex("04 80f104 00 80f104 00 00")).expect_err("over 65,536");
    assert_eq!((error.reason, error.at), (Reason::EmptyItems, 5));
    // skipped or not
    let holder = |fields: &str| format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#);
    check(&holder(&format!(r#"{{"name":"a","type":{nulls}}}"#)), &holder(""), "80b6dc0500", "Limit@0");
    let empty = r#"{"type":"array","items":{"type":"record","name":"E","fields":[{"name":"n","type":"null"},{"name":"f","type":{"type":"fixed","name":"F","size":0}}]}}"#;
    same(empty, "feffffffffffffffff0100", "Limit@0");
}

#[test]
fn wide_items_are_bounded_by_the_buffer() {
    // each item is one byte in the datum and 800 in the row
    let fields: Vec<String> =
        (0..100).map(|index| format!(r#"{{"name":"f{index}","type":"long","default":1}}"#)).collect();
    let item = |fields: &str| {
        format!(
            r#"{{"type":"array","items":{{"type":"record","name":"W","fields":[{{"name":"x","type":"int"}}{fields}]}}}}"#
        )
    };
    let plan = plan(&item(""), &item(&format!(",{}", fields.join(","))));
    let mut datum = hex("80a00f"); // 125,952 items
    datum.extend(std::iter::repeat_n(0, 125_952 + 1));
    let mut buffer = vec![0; 8];
    let error = plan.decode(&datum, &mut buffer, 0, 1 << 20).expect_err("100 MB");
    assert_eq!((error.code, error.reason), (DatumCode::Limit, Reason::Buffer));
    assert_eq!(buffer, [0; 8]);
    assert!(buffer.capacity() < 1 << 20, "nothing was reserved for it");
    // a default text in every item
    let plan =
        super::plan(&item(""), &item(&format!(r#",{{"name":"t","type":"string","default":"{}"}}"#, "x".repeat(1_000))));
    let error = plan.decode(&datum, &mut buffer, 0, 4 << 20).expect_err("126 MB");
    assert_eq!(error.reason, Reason::Buffer);
    assert!(buffer.capacity() < 16 << 20);
}

#[test]
fn the_bound_of_the_buffer_is_exact() {
    let plan = plan(r#""string""#, r#""string""#);
    let datum = hex("06666f6f");
    let mut buffer = vec![0; 8];
    plan.decode(&datum, &mut buffer, 0, 11).expect("three bytes fit");
    let mut buffer = vec![0; 8];
    let error = plan.decode(&datum, &mut buffer, 0, 10).expect_err("one byte too many");
    assert_eq!((error.reason, buffer.len()), (Reason::Buffer, 8));
}

#[test]
fn depth_is_bounded() {
    // case 39 (d)
    let chain = r#"{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}"#;
    let holder = r#"{"type":"record","name":"H","fields":[{"name":"c","type":{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}},{"name":"z","type":"int"}]}"#;
    let narrow = r#"{"type":"record","name":"H","fields":[{"name":"z","type":"int"}]}"#;
    let read = |plan: &Plan, levels: usize, tail: &[u8]| {
        let mut datum = vec![2; levels];
        datum.push(0);
        datum.extend(tail);
        decode(plan, &datum).map(|_| ()).map_err(|error| (error.code, error.at))
    };
    let plans = [(plan(chain, chain), vec![]), (plan(holder, narrow), vec![0])];
    for (plan, tail) in &plans {
        assert_eq!(read(plan, 63, tail), Ok(()));
        assert_eq!(read(plan, 900_000, tail).expect_err("too deep").0, DatumCode::Limit);
    }
    assert_eq!(read(&plans[0].0, 64, &[]), Ok(()));
    assert_eq!(read(&plans[0].0, 65, &[]), Err((DatumCode::Limit, 65)));
    let lists = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(70), "}".repeat(70));
    let deep = plan(&lists, &lists);
    let mut datum = vec![2; 70];
    datum.extend([0; 71]);
    assert_eq!(decode(&deep, &datum).expect_err("too deep").reason, Reason::Depth);
    assert_eq!(decode(&deep, &[0]).expect("an empty list"), "[]");
    // an empty list at the last level holds nothing deeper
    let mut datum = vec![2; 64];
    datum.extend([0; 65]);
    decode(&deep, &datum).expect("64 levels");
}

#[test]
fn programs_are_bounded() {
    // each level holds two of the level before: 2^30 fields in place
    let mut fields =
        r#"{"name":"f0","type":{"type":"record","name":"R0","fields":[{"name":"n","type":"null"}]}}"#.to_string();
    for level in 1..30 {
        let below = level - 1;
        fields += &format!(
            r#",{{"name":"f{level}","type":{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":"R{below}"}},{{"name":"b","type":"R{below}"}}]}}}}"#
        );
    }
    let writer = schema(&format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#));
    let reader = schema(r#"{"type":"record","name":"R","fields":[]}"#);
    let error = Plan::compile(&writer, &reader, &Limits::default()).expect_err("too many fields");
    assert!(matches!(error, PlanError::Limit { what: "types visited for a plan", .. }), "{error}");
    // a chain of records, each in place in the next
    let mut fields =
        r#"{"name":"f0","type":{"type":"record","name":"R0","fields":[{"name":"n","type":"int"}]}}"#.to_string();
    for level in 1..5_000 {
        let below = level - 1;
        fields += &format!(
            r#",{{"name":"f{level}","type":{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":"R{below}"}}]}}}}"#
        );
    }
    let writer = schema(&format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#));
    let error = Plan::compile(&writer, &reader, &Limits::default()).expect_err("too deep");
    assert!(matches!(error, PlanError::Limit { what: "nesting of structs", .. }), "{error}");
}
