//! Patches by hand: the rules of items, the fit of values, and the bytes that stay as produced.

#![allow(
    clippy::unwrap_used,
    clippy::type_complexity,
    reason = "a test that unwraps fails where it stands; its tables are its own documentation"
)]

use kiteline_avro::{Budget, EntryError, Limits, OUTPUT_BIT, Patcher, Refs, Schema};

/// Where the heap of the test's output begins: behind the header, where slots may point.
const HEAP: usize = 32;

/// A slot that points at byte `at` of the heap of the output.
fn points(at: u32, len: u32) -> u64 {
    u64::from(OUTPUT_BIT + HEAP as u32 + at) | u64::from(len) << 32
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.as_chunks::<2>().0.iter().map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn patcher(writer: &str, reader: &str) -> Patcher {
    let schema = |text| Schema::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    Patcher::compile(&schema(writer), &schema(reader), &Limits::default()).expect("compiles")
}

/// The patched datum in hex, or the name of the check that failed.
fn patch(patcher: &Patcher, datum: &str, items: &[u8], heap: &[u8]) -> Result<String, &'static str> {
    let output = [&[0; HEAP], heap].concat();
    let refs = Refs { input: b"", input_low: 0, output: &output };
    let mut out = b"before".to_vec();
    let result = patcher.patch(&refs, items, &hex(datum), &mut out, &mut Budget::new(1 << 20));
    assert_eq!(&out[..6], b"before");
    match result {
        Ok(()) => Ok(to_hex(&out[6..])),
        Err(EntryError(check)) => {
            assert_eq!(out, b"before", "a failed entry leaves nothing");
            Err(check.name())
        }
    }
}

/// A table of (datum, items, result) for one pair of schemas; the heap is "xyz" and a frame of 7.
fn check(writer: &str, reader: &str, cases: &[(&str, &[u64], Result<&str, &'static str>)]) {
    let patcher = patcher(writer, reader);
    let heap = [b"xyz\xff\0\0\0\0", &bytes(&[7, 0, 7, 0, 7])[..]].concat();
    for (datum, items, want) in cases {
        let want = want.map(|want| to_hex(&hex(want)));
        assert_eq!(patch(&patcher, datum, &bytes(items), &heap), want, "{reader} {datum} {items:x?}");
    }
}

/// Numbers: a 0, b 1, c 2, c.x 3, c.y 4, d 5.
const ORDER: &str = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string"},{"name":"c","type":["null",
    {"type":"record","name":"C","fields":[{"name":"x","type":"int"},{"name":"y","type":["null","string"]}]}]},{"name":"d","type":"double"}]}"#;
/// {1, "hi", {5, null}, 2.5}
const DATUM: &str = "02 046869 020a00 0000000000000440";
/// {1, "hi", null, 2.5}
const NULL_C: &str = "02 046869 00 0000000000000440";

#[test]
fn spans_are_replaced_and_the_rest_stays() {
    let two = 2.0_f64.to_bits();
    check(
        ORDER,
        ORDER,
        &[
            (DATUM, &[], Ok(DATUM)),
            (DATUM, &[0, 7], Ok("0e 046869 020a00 0000000000000440")),
            (DATUM, &[1, points(0, 3)], Ok("02 0678797a 020a00 0000000000000440")),
            (DATUM, &[1, 0], Ok("02 00 020a00 0000000000000440")),
            (DATUM, &[2, 0b01, 9, 9], Ok(NULL_C)),
            (DATUM, &[2, 0b10, 9, 9], Ok("02 046869 021200 0000000000000440")),
            (DATUM, &[2, 0b00, 9, points(1, 1)], Ok("02 046869 02120202 79 0000000000000440")),
            (NULL_C, &[2, 0b10, 9, 9], Ok("02 046869 021200 0000000000000440")),
            (DATUM, &[3, 9], Ok("02 046869 021200 0000000000000440")),
            (DATUM, &[4, 0, points(0, 1)], Ok("02 046869 020a020278 0000000000000440")),
            (DATUM, &[4, 1, 0], Ok(DATUM)),
            (DATUM, &[0, 7, 3, 9, 5, two], Ok("0e 046869 021200 0000000000000040")),
            (DATUM, &[0, 7, 2, 1, 0, 0, 5, two], Ok("0e 046869 00 0000000000000040")),
            (NULL_C, &[5, two], Ok("02 046869 00 0000000000000040")),
        ],
    );
}

#[test]
fn items_keep_their_rules() {
    check(
        ORDER,
        ORDER,
        &[
            (DATUM, &[0], Err("length")),
            (DATUM, &[0, 7, 5], Err("length")),
            (DATUM, &[2, 0, 9], Err("length")),
            (DATUM, &[6, 0], Err("field")),
            (DATUM, &[u64::MAX, 0], Err("field")),
            (DATUM, &[1 << 32, 0], Err("field")),
            (DATUM, &[0, 7, 0, 7], Err("field")),
            (DATUM, &[5, 0, 0, 7], Err("field")),
            (DATUM, &[2, 2, 9, 9, 3, 9], Err("field")),
            (DATUM, &[2, 2, 9, 9, 4, 0, 0], Err("field")),
            (DATUM, &[2, 0b100, 9, 9], Err("spare-bits")),
            (DATUM, &[0, 1 << 31], Err("range")),
            (DATUM, &[1, points(3, 1)], Err("utf8")),
            (DATUM, &[1, 1 << 32], Err("reference")),
            (NULL_C, &[3, 9], Err("null-parent")),
            (NULL_C, &[4, 0, 0], Err("null-parent")),
            (NULL_C, &[0, 7, 4, 0, 0, 5, 0], Err("null-parent")),
            ("02 046869 020a00 00000000000004", &[5, 0], Err("undecodable")),
            ("02 7f", &[5, 0], Err("undecodable")),
            ("02 046869 04", &[5, 0], Err("undecodable")),
        ],
    );
    let patcher = patcher(ORDER, ORDER);
    assert_eq!(patch(&patcher, DATUM, &[0; 4], b""), Err("length"));
    assert_eq!(patch(&patcher, DATUM, &[0; 15], b""), Err("length"));
}

#[test]
fn only_structs_take_patches() {
    check(r#""int""#, r#""int""#, &[("02", &[0, 7], Err("field")), ("02", &[], Ok("02"))]);
    let boxed = r#"["null",{"type":"record","name":"C","fields":[{"name":"x","type":"int"}]}]"#;
    check(boxed, boxed, &[("020a", &[0, 7], Ok("020e")), ("00", &[0, 7], Err("null-parent"))]);
}

#[test]
fn a_pruned_struct_is_patched_field_by_field() {
    let reader = r#"{"type":"record","name":"R","fields":[{"name":"c","type":["null",{"type":"record","name":"C","fields":[{"name":"x","type":"int"}]}]},
        {"name":"new","type":"int","default":1}]}"#;
    check(
        ORDER,
        reader,
        &[
            (DATUM, &[1, 9], Ok("02 046869 021200 0000000000000440")),
            (DATUM, &[0, 0, 9], Err("incomplete")),
            // null says all that there is to say
            (DATUM, &[0, 1, 9], Ok(NULL_C)),
            (NULL_C, &[0, 0, 9], Err("incomplete")),
            (NULL_C, &[1, 9], Err("null-parent")),
            (DATUM, &[2, 9], Err("target")),
        ],
    );
    let writer = r#"{"type":"record","name":"R","fields":[{"name":"l","type":{"type":"array","items":{"type":"record","name":"I","fields":
        [{"name":"p","type":"int"},{"name":"q","type":"int"}]}}},{"name":"s","type":{"type":"record","name":"S","fields":[{"name":"z","type":"int"}]}}]}"#;
    let reader = r#"{"type":"record","name":"R","fields":[{"name":"l","type":{"type":"array","items":{"type":"record","name":"I","fields":
        [{"name":"p","type":"int"}]}}},{"name":"s","type":{"type":"record","name":"S","fields":[{"name":"z","type":"int"},{"name":"new","type":"int","default":0}]}}]}"#;
    check(
        writer,
        reader,
        &[
            ("02 0204 00 08", &[0, points(8, 1)], Err("incomplete")),
            ("02 0204 00 08", &[0, 0], Ok("00 08")),
            ("02 0204 00 08", &[1, 1, 2], Err("target")),
            ("02 0204 00 08", &[2, 1], Ok("02 0204 00 02")),
            ("02 0204 00 08", &[3, 1], Err("target")),
        ],
    );
}

#[test]
fn fields_match_by_name_and_alias_in_any_order() {
    let writer = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"s","type":{"type":"record","name":"S","fields":
        [{"name":"p","type":"int"},{"name":"q","type":"int"}]}},{"name":"b","type":"int"}]}"#;
    let reader = r#"{"type":"record","name":"R","fields":[{"name":"bb","aliases":["b"],"type":"int"},{"name":"s","type":{"type":"record","name":"S","fields":
        [{"name":"q","type":"int"},{"name":"p","type":"int"}]}},{"name":"a","type":"int"}]}"#;
    check(
        writer,
        reader,
        &[
            ("02 0406 08", &[0, 10], Ok("02 0406 14")),
            ("02 0406 08", &[0, 10, 2, 20, 3, 30, 4, 40], Ok("50 3c28 14")),
            ("02 0406 08", &[1, 20, 30, 4, 40], Ok("50 3c28 08")),
        ],
    );
}

#[test]
fn many_edits_in_another_order() {
    let field = |index: usize| format!(r#"{{"name":"f{index}","type":"int"}}"#);
    let record = |fields: Vec<String>| format!(r#"{{"type":"record","name":"R","fields":[{}]}}"#, fields.join(","));
    let writer = record((0..100).map(field).collect());
    let reader = record((0..100).rev().map(field).collect());
    // field n of the reader is field 99 - n of the writer, and gets 49 - n
    let items: Vec<u64> = (0..100_i64).flat_map(|number| [number as u64, (49 - number) as u64]).collect();
    // zigzag of -50 to 49
    let want: String = (-50..50_i64).map(|value| format!("{:02x}", ((value << 1) ^ (value >> 63)) as u8)).collect();
    assert_eq!(patch(&patcher(&writer, &reader), &"00".repeat(100), &bytes(&items), b""), Ok(want));
}

#[test]
fn values_fit_the_writers_type() {
    let double = |value: f64| value.to_bits();
    let long = |value: i64| value as u64;
    let cases: &[(&str, &str, u64, Result<&str, &'static str>)] = &[
        ("int", "long", long(-1), Ok("01")),
        ("int", "long", long(1 << 31), Err("range")),
        ("int", "double", double(7.0), Ok("0e")),
        ("int", "double", double(7.5), Err("range")),
        ("int", "double", double(2_147_483_648.0), Err("range")),
        ("int", "double", double(-2_147_483_648.0), Ok("ffffffff0f")),
        ("int", "float", double(-3.0), Ok("05")),
        ("int", "float", double(0.5), Err("range")),
        ("int", "float", double(1e39), Err("range")),
        ("long", "double", double(9_007_199_254_740_992.0), Ok("8080808080808020")),
        ("long", "double", double(9_223_372_036_854_775_808.0), Err("range")),
        ("long", "double", double(-9_223_372_036_854_775_808.0), Ok("ffffffffffffffffff01")),
        ("long", "double", double(f64::NAN), Err("range")),
        ("long", "double", double(f64::INFINITY), Err("range")),
        ("long", "float", double(-0.0), Ok("00")),
        ("long", "int", 1 << 31, Err("range")),
        ("float", "double", double(1.1), Ok("cdcc8c3f")),
        ("float", "double", double(f64::INFINITY), Ok("0000807f")),
        ("float", "double", double(1e39), Err("range")),
        ("string", "bytes", points(0, 1), Ok("0278")),
        ("string", "bytes", points(3, 1), Err("utf8")),
        ("bytes", "string", points(0, 1), Ok("0278")),
        ("bytes", "string", points(3, 1), Err("utf8")),
    ];
    for (writer, reader, slot, want) in cases {
        let record =
            |kind: &str| format!(r#"{{"type":"record","name":"R","fields":[{{"name":"f","type":"{kind}"}}]}}"#);
        let datum = match *writer {
            "float" => "00000000",
            _ => "00",
        };
        check(&record(writer), &record(reader), &[(datum, &[0, *slot], *want)]);
    }
}

#[test]
fn enums_go_by_symbol_and_unions_by_branch() {
    let record = |kind: &str| {
        format!(r#"{{"type":"record","name":"R","fields":[{{"name":"f","type":{kind}}},{{"name":"z","type":"int"}}]}}"#)
    };
    let cases: &[(&str, &str, &str, &[u64], Result<&str, &'static str>)] = &[
        (
            r#"{"type":"enum","name":"E","symbols":["A","B","C"]}"#,
            r#"{"type":"enum","name":"E","symbols":["C","A","Z"],"default":"Z"}"#,
            "02",
            &[0, 0],
            Ok("04"),
        ),
        (
            r#"{"type":"enum","name":"E","symbols":["A","B","C"]}"#,
            r#"{"type":"enum","name":"E","symbols":["C","A","Z"],"default":"Z"}"#,
            "02",
            &[0, 2],
            Err("range"),
        ),
        (
            r#"{"type":"enum","name":"E","symbols":["A","B","C"]}"#,
            r#"{"type":"enum","name":"E","symbols":["C","A","Z"],"default":"Z"}"#,
            "02",
            &[0, 3],
            Err("range"),
        ),
        (r#"["int","null"]"#, r#"["null","int"]"#, "000a", &[0, 1, 5], Ok("02")),
        (r#"["int","null"]"#, r#"["null","int"]"#, "02", &[0, 0, 5], Ok("000a")),
        (r#"["int","null"]"#, r#"["null","double"]"#, "02", &[0, 0, 5.0_f64.to_bits()], Ok("000a")),
        (r#"["int","null"]"#, r#"["null","double"]"#, "02", &[0, 0, 5.5_f64.to_bits()], Err("range")),
        (r#""int""#, r#"["null","int"]"#, "02", &[0, 0, 5], Ok("0a")),
        (r#""int""#, r#"["null","int"]"#, "02", &[0, 1, 5], Err("range")),
        (r#"["null","int"]"#, r#""int""#, "00", &[0, 5], Ok("020a")),
        (r#"["int"]"#, r#""int""#, "0002", &[0, 5], Ok("000a")),
        (r#"["string","long","null"]"#, r#"["null","string","int"]"#, "04", &[0, points(8, 3)], Err("range")),
        (r#"["string","long","null"]"#, r#"["null","int","string"]"#, "04", &[0, 0], Ok("04")),
        (r#"["string","long","null"]"#, r#"["null","int","string"]"#, "04", &[0, points(8, 1)], Ok("020e")),
        (r#"["string","long","null"]"#, r#"["null","int"]"#, "04", &[0, 1, 0], Ok("04")),
        (r#"["string","long","null"]"#, r#"["null","int"]"#, "04", &[0, 0, 9], Ok("0212")),
    ];
    for (writer, reader, datum, items, want) in cases {
        let want = want.map(|want| format!("{want}08"));
        check(
            &record(writer),
            &record(reader),
            &[(&format!("{datum}08"), items, want.as_deref().map_err(|name| *name))],
        );
    }
}

#[test]
fn walks_pass_whatever_the_writer_has() {
    let writer = r#"{"type":"record","name":"N","fields":[
        {"name":"n","type":"null"},{"name":"e","type":{"type":"record","name":"E","fields":[]}},
        {"name":"list","type":["null","N"]},{"name":"map","type":{"type":"map","values":["int","string","E"]}},
        {"name":"f","type":{"type":"fixed","name":"F","size":3}},{"name":"b","type":"boolean"},{"name":"v","type":"int"}]}"#;
    let reader = r#"{"type":"record","name":"N","fields":[{"name":"n","type":"null"},{"name":"e","type":{"type":"record","name":"E","fields":[]}},{"name":"v","type":"int"}]}"#;
    // list: {null, no entries, abc, 1, 5}; map: one entry "k" of "xy", then a block by size with "l" of 7 and "m" of {}
    let head = "02 00 00 616263 01 0a  02 026b 02047879  03 0e 026c 000e 026d 04 00  616263 00";
    check(
        writer,
        reader,
        &[
            (&format!("{head} 08"), &[2, 9], Ok(&format!("{head} 12"))),
            (&format!("{head} 08"), &[0, 1, 2, 9], Ok(&format!("{head} 12"))),
            (&format!("{head} 08"), &[0], Ok(&format!("{head} 08"))),
        ],
    );
    // a list as long as the depth allows, and one longer
    for (cells, want) in [(64, Ok("12")), (65, Err("undecodable"))] {
        let datum = format!("{}00 {}00 616263 00 08", "02".repeat(cells), "00 616263 00 08".repeat(cells));
        let want = want.map(|end| format!("{}{end}", &datum[..datum.len() - 2]));
        check(writer, reader, &[(&datum, &[2, 9], want.as_deref().map_err(|name| *name))]);
    }
}

#[test]
fn fields_without_bytes_have_their_place() {
    let writer = r#"{"type":"record","name":"R","fields":[{"name":"s","type":["null",{"type":"record","name":"S","fields":[{"name":"n","type":"null"}]}]},{"name":"v","type":"int"}]}"#;
    check(
        writer,
        writer,
        &[
            ("02 08", &[1], Ok("02 08")),
            ("00 08", &[1], Err("null-parent")),
            ("00 08", &[0, 0], Ok("02 08")),
            ("02 08", &[0, 1, 2, 9], Ok("00 12")),
        ],
    );
}

#[test]
fn a_boxed_field_is_one_slot() {
    let list = r#"{"type":"record","name":"N","fields":[{"name":"v","type":"int"},{"name":"n","type":["null","N"]}]}"#;
    check(
        list,
        list,
        &[
            ("02 02 04 00", &[0, 9], Ok("12 02 04 00")),
            ("02 02 04 00", &[1, 1, 0], Ok("02 00")),
            // a frame of N lies at 16: null word 0, then v = 7 and n a box of nothing; at 24 with null word 7 the spare bits are set
            ("02 02 04 00", &[1, 0, points(8, 1)], Err("spare-bits")),
            ("02 02 04 00", &[1, 0, points(16, 1)], Err("range")),
            ("02 02 04 00", &[1, 0, points(16, 2)], Err("range")),
        ],
    );
}

#[test]
fn copied_bytes_are_work() {
    let patcher = patcher(ORDER, ORDER);
    let refs = Refs { input: b"", input_low: 0, output: &[] };
    let datum = hex(DATUM);
    for (left, want) in [(100, Ok(85)), (15, Ok(0)), (14, Err(0))] {
        let mut budget = Budget::new(left);
        let mut out = Vec::new();
        let result = patcher.patch(&refs, &bytes(&[0, 7]), &datum, &mut out, &mut budget);
        let got = result.map(|()| budget.bytes_left).map_err(|_| budget.bytes_left);
        assert_eq!(got, want, "{left}");
    }
}
