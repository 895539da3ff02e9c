//! Every type read as itself, from bytes of the specification or made by hand.

use super::{check, decode, hex, plan};

fn same(schema: &str, datum: &str, expected: &str) {
    check(schema, schema, datum, expected);
}

#[test]
fn primitives() {
    let cases = [
        ("null", "", "null"),
        ("boolean", "00", "false"),
        ("boolean", "01", "true"),
        ("int", "00", "0"),
        ("int", "01", "-1"),
        ("int", "8001", "64"),
        ("int", "feffffff0f", "2147483647"),
        ("int", "ffffffff0f", "-2147483648"),
        ("long", "feffffffffffffffff01", "9223372036854775807"),
        ("long", "ffffffffffffffffff01", "-9223372036854775808"),
        ("long", "b717", "-1500"),
        ("float", "0000c03f", "1.5"),
        ("float", "cdcccc3d", "0.10000000149011612"),
        ("double", "0000000000000440", "2.5"),
        ("double", "000000000000f07f", "inf"),
        ("double", "000000000000f8ff", "NaN"),
        ("bytes", "00", "x"),
        ("bytes", "06ff00fe", "xff00fe"),
        ("string", "00", "\"\""),
        ("string", "06666f6f", "\"foo\""),
        ("string", "04c3a9", "\"é\""),
    ];
    for (schema, datum, expected) in cases {
        same(&format!("\"{schema}\""), datum, expected);
    }
}

#[test]
fn named_and_nested() {
    same(r#"{"type":"fixed","name":"F","size":3}"#, "0a0b0c", "x0a0b0c");
    same(r#"{"type":"fixed","name":"F","size":0}"#, "", "x");
    same(r#"{"type":"enum","name":"E","symbols":["A","B","C"]}"#, "04", "C");
    let nested = r#"{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]},
        {"name":"s","type":["null",{"type":"record","name":"S","fields":[{"name":"x","type":["string","null"]},{"name":"y","type":"boolean"}]}]},
        {"name":"t","type":"S"}]}"#;
    same(nested, "00 00 02 01", "(null, null, (null, true))");
    same(nested, "0203 0200026101 000262 00", "(-2, (\"a\", true), (\"b\", false))");
}

#[test]
fn arrays_and_maps_in_every_form_of_blocks() {
    let longs = r#"{"type":"array","items":"long"}"#;
    // case 42
    same(longs, "03 04 02 04 00", "[1, 2]");
    same(longs, "02 02 01 02 04 00", "[1, 2]");
    same(longs, "00", "[]");
    same(longs, "02 02 03 04 04 06 02 08 00", "[1, 2, 3, 4]");
    let texts = r#"{"type":"array","items":"string"}"#;
    same(texts, "04 0261 0262 03 04 0263 0264 00", "Value@5");
    same(texts, "04 0261 0262 03 08 0263 0264 00", "[\"a\", \"b\", \"c\", \"d\"]");
    let optional = r#"{"type":"array","items":["null","string"]}"#;
    same(optional, "04 020278 00 02 020279 00", "[\"x\", null, \"y\"]");
    let pairs = r#"{"type":"array","items":{"type":"record","name":"P","fields":[{"name":"a","type":"int"},{"name":"b","type":["null","string"]}]}}"#;
    same(pairs, "02 02 00 02 04 02 0271 02 06 00 00", "[(1, null), (2, \"q\"), (3, null)]");
    // case 52: repeated keys keep their order; a lookup takes the last
    same(r#"{"type":"map","values":"int"}"#, "04 026102 026104 00", "{a: 1, a: 2}");
    let counts = r#"{"type":"map","values":"long"}"#;
    same(counts, "01 06 0261 02 00", "{a: 1}");
    same(counts, "01 04 0261 02 00", "Value@0");
    same(counts, "01 08 0261 02 00", "Value@0");
    same(counts, "01 0a 0261 02 00", "Value@1");
    same(r#"{"type":"map","values":"string"}"#, "02 0261 026b 02 00 00 00", "{a: \"k\", : \"\"}");
    same(r#"{"type":"map","values":["null","long"]}"#, "04 0261 00 0262 0204 00", "{a: null, b: 2}");
    same(r#"{"type":"array","items":{"type":"array","items":"int"}}"#, "04 02 02 00 04 04 06 00 00", "[[1], [2, 3]]");
    same(r#"{"type":"array","items":"null"}"#, "06 00", "[null, null, null]");
}

#[test]
fn many_blocks_of_one_item_stay_small() {
    let mut datum = Vec::new();
    for _ in 0..100_000 {
        datum.extend([2, 14]);
    }
    datum.push(0);
    let plan = plan(r#"{"type":"array","items":"long"}"#, r#"{"type":"array","items":"long"}"#);
    let mut buffer = vec![0; 8];
    plan.decode(&datum, &mut buffer, 0, 4 << 20).expect("a long array");
    assert!(buffer.len() <= 8 * 100_000 * 4, "{}", buffer.len());
    assert_eq!(u64::from_le_bytes(buffer[..8].try_into().expect("a slot")) >> 32, 100_000);
}

#[test]
fn unions_and_records_inside_themselves() {
    let union = r#"["null","string","long"]"#;
    same(union, "00", "#0:null");
    same(union, "02 0261", "#1:\"a\"");
    same(union, "04 05", "#2:-3");
    same(r#"["int"]"#, "00 08", "4");
    same(r#"["int","null"]"#, "02", "null");
    let list = r#"{"type":"record","name":"N","fields":[{"name":"v","type":"int"},{"name":"n","type":["null","N"]}]}"#;
    same(list, "02 02 04 02 06 00", "(1, (2, (3, null)))");
    let tree = r#"{"type":"record","name":"T","fields":[{"name":"v","type":"int"},{"name":"c","type":{"type":"array","items":"T"}}]}"#;
    same(tree, "02 04 04 00 06 02 08 00 00 00", "(1, [(2, []), (3, [(4, [])])])");
    let expression = r#"{"type":"record","name":"E","fields":[{"name":"e","type":["int","string","E"]},{"name":"m","type":{"type":"map","values":["null","E"]}}]}"#;
    same(expression, "04 0002 00 02 0261 02 0006 00 00", "(#2:(#0:1, {}), {a: (#0:3, {})})");
}

#[test]
fn the_rows_of_the_contracts_example() {
    let order = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"double"},{"name":"address","type":["null",
        {"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}]},{"name":"tags","type":{"type":"array","items":["null","string"]}}]}"#;
    let plan = plan(order, order);
    let first = hex("044131000000000000044002084265726e040202780000");
    assert_eq!(decode(&plan, &first).expect("a value"), r#"("A1", 2.5, ("Bern"), ["x", null])"#);
    let second = hex("044232000000000000f0bf0000");
    // all of the second row's frame but its offsets is as printed in the contract
    let mut buffer = vec![0; 40];
    plan.decode(&second, &mut buffer, 0, 1 << 20).expect("a value");
    assert_eq!(buffer[..8], hex("01000000 00000000"));
    assert_eq!(buffer[8..16], hex("28000000 02000000"));
    assert_eq!(buffer[16..24], hex("00000000 0000f0bf"));
    assert_eq!(buffer[24..40], [0; 16]);
    assert_eq!(&buffer[40..], b"B2");
    let mut buffer = vec![0; 40];
    plan.decode(&first, &mut buffer, 0, 1 << 20).expect("a value");
    // id, city, then the cell of two elements at a multiple of 8, then the element's text
    let expected = "0000000000000000 2800000002000000 0000000000000440 2a00000004000000 3000000002000000
        4131 4265726e 0000 0000000000000000 5000000001000000 0100000000000000 0000000000000000 78";
    assert_eq!(buffer, hex(expected));
}
