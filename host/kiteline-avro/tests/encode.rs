//! Encoding by hand-made frames: the worked example of the row contract, each entry check, and the count of work.

#![allow(
    clippy::unwrap_used,
    clippy::type_complexity,
    reason = "a test that unwraps fails where it stands; its tables are its own documentation"
)]

use kiteline_avro::{Budget, Encoder, EntryError, Limits, OUTPUT_BIT, Refs, Schema};

/// Where the heap of the test's output begins: behind the header, where slots may point.
const HEAP: usize = 32;

fn encoder(schema: &str) -> Encoder {
    Encoder::compile(&Schema::parse(schema).expect("legal schema"), &Limits::default()).expect("compiles")
}

/// A slot that points at byte `at` of the heap of the output.
fn points(at: u32, len: u32) -> u64 {
    u64::from(OUTPUT_BIT + HEAP as u32 + at) | u64::from(len) << 32
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Encodes the frame of these words; slots may point into `heap`.
fn encode(schema: &str, frame: &[u64], heap: &[u8]) -> Result<Vec<u8>, &'static str> {
    let output = [&[0; HEAP], heap].concat();
    let refs = Refs { input: b"", input_low: 0, output: &output };
    let mut out = b"before".to_vec();
    let result = encoder(schema).encode(&refs, &bytes(frame), &mut out, &mut Budget::new(1 << 20));
    assert_eq!(&out[..6], b"before");
    match result {
        Ok(()) => Ok(out.split_off(6)),
        Err(EntryError(check)) => {
            assert_eq!(out, b"before", "a failed entry leaves nothing");
            Err(check.name())
        }
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.as_chunks::<2>().0.iter().map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn frames_of_every_type() {
    let record = r#"{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]},{"name":"b","type":["long","null"]},{"name":"n","type":"null"}]}"#;
    let inner = r#"{"type":"record","name":"R","fields":[{"name":"s","type":["null",{"type":"record","name":"S","fields":[{"name":"x","type":["null","int"]},{"name":"y","type":"int"}]}]}]}"#;
    let list = r#"{"type":"record","name":"N","fields":[{"name":"v","type":"int"},{"name":"n","type":["null","N"]}]}"#;
    let cases: &[(&str, &[u64], &[u8], &str)] = &[
        (r#""null""#, &[], b"", ""),
        (r#""boolean""#, &[1], b"", "01"),
        (r#""int""#, &[i64::from(i32::MIN) as u64], b"", "ffffffff0f"),
        (r#""long""#, &[i64::MIN as u64], b"", "ffffffffffffffffff01"),
        (r#""long""#, &[64], b"", "8001"),
        (r#""long""#, &[8192], b"", "808001"),
        (r#""float""#, &[1.1_f64.to_bits()], b"", "cdcc8c3f"),
        (r#""float""#, &[f64::NEG_INFINITY.to_bits()], b"", "000080ff"),
        (r#""double""#, &[1.1_f64.to_bits()], b"", "9a9999999999f13f"),
        (r#""string""#, &[points(1, 2)], b"xab", "046162"),
        (r#""string""#, &[u64::from(u32::MAX)], b"", "00"),
        (r#""bytes""#, &[points(0, 1)], b"\xff", "02ff"),
        (r#"{"type":"fixed","name":"F","size":2}"#, &[points(0, 2)], b"ab", "6162"),
        (r#"{"type":"fixed","name":"F","size":0}"#, &[7], b"", ""),
        (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, &[1], b"", "02"),
        (r#"["null","int"]"#, &[1, 9], b"", "00"),
        (r#"["null","int"]"#, &[0, 9], b"", "0212"),
        (r#"["int","null"]"#, &[1, 9], b"", "02"),
        (r#"["int","null"]"#, &[0, 9], b"", "0012"),
        (r#"["int"]"#, &[9], b"", "0012"),
        (r#"["null"]"#, &[], b"", "00"),
        (record, &[0b01, 5, 6], b"", "00000c"),
        (record, &[0b10, 5, 6], b"", "020a02"),
        // bits and slots beneath a null are the guest's own business
        (inner, &[0b11, 1 << 40, 0], b"", "00"),
        (inner, &[0b01, 1 << 40, 0], b"", "00"),
        (inner, &[0b10, 1 << 40, 3], b"", "020006"),
        (r#"{"type":"array","items":"int"}"#, &[points(8, 2)], &bytes(&[0, 1, 2]), "04020400"),
        (r#"{"type":"array","items":"int"}"#, &[3], b"", "00"),
        (r#"{"type":"array","items":"null"}"#, &[3 | 3 << 32], b"", "0600"),
        (r#"{"type":"array","items":["null","int"]}"#, &[points(0, 2)], &bytes(&[1, 0, 0, 7]), "0400020e00"),
        (r#"{"type":"map","values":"int"}"#, &[points(0, 1)], &bytes(&[points(16, 1), 7, 0x6b]), "02026b0e00"),
        (
            r#"{"type":"map","values":["null","int"]}"#,
            &[points(0, 1)],
            &bytes(&[1, points(24, 1), 7, 0x6b]),
            "02026b0000",
        ),
        (r#"["null","int","string"]"#, &[points(0, 1)], &bytes(&[7]), "020e"),
        (r#"["null","int","string"]"#, &[0], b"", "00"),
        (list, &[0, 1, points(0, 1)], &bytes(&[1, 2, 0]), "02020400"),
    ];
    for (schema, frame, heap, want) in cases {
        assert_eq!(encode(schema, frame, heap), Ok(hex(want)), "{schema} {frame:x?}");
    }
}

#[test]
fn hostile_frames_fail_by_name() {
    let pair = r#"{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]},{"name":"b","type":["null","int"]}]}"#;
    let tree = r#"{"type":"record","name":"T","fields":[{"name":"c","type":{"type":"array","items":"T"}}]}"#;
    let list = r#"{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}"#;
    let cases: &[(&str, &[u64], &[u8], &str)] = &[
        (r#""int""#, &[], b"", "length"),
        (r#""int""#, &[0, 0], b"", "length"),
        (r#""null""#, &[0], b"", "length"),
        (r#""boolean""#, &[2], b"", "range"),
        (r#""boolean""#, &[1 << 32], b"", "range"),
        (r#""int""#, &[1 << 31], b"", "range"),
        (r#""int""#, &[0xffff_ffff], b"", "range"),
        (r#""float""#, &[3.5e38_f64.to_bits()], b"", "range"),
        (r#""float""#, &[f64::MAX.to_bits()], b"", "range"),
        (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, &[2], b"", "range"),
        (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, &[u64::MAX], b"", "range"),
        (r#""string""#, &[points(0, 1)], b"\xff", "utf8"),
        // an overlong form, a surrogate, a character cut at the end
        (r#""string""#, &[points(0, 2)], b"\xc0\x80", "utf8"),
        (r#""string""#, &[points(0, 3)], b"\xed\xa0\x80", "utf8"),
        (r#""string""#, &[points(0, 2)], b"a\xc3", "utf8"),
        (r#""string""#, &[points(0, 2)], b"a", "reference"),
        (r#""string""#, &[1 << 32], b"a", "reference"),
        (r#""bytes""#, &[u64::from(OUTPUT_BIT + 31) | 1 << 32], b"a", "reference"),
        (r#""bytes""#, &[u64::MAX], b"a", "reference"),
        (r#"{"type":"fixed","name":"F","size":2}"#, &[points(0, 1)], b"ab", "size"),
        (r#"{"type":"fixed","name":"F","size":0}"#, &[points(0, 1)], b"ab", "size"),
        (pair, &[0b100, 0, 0], b"", "spare-bits"),
        (pair, &[1 << 63 | 0b11, 0, 0], b"", "spare-bits"),
        (r#"{"type":"array","items":["null","int"]}"#, &[points(0, 1)], &bytes(&[2, 0]), "spare-bits"),
        (r#"{"type":"array","items":"int"}"#, &[points(4, 1)], &bytes(&[0, 0]), "alignment"),
        (r#"{"type":"array","items":"int"}"#, &[points(0, 2)], &bytes(&[0]), "reference"),
        (r#"{"type":"array","items":"int"}"#, &[points(0, u32::MAX)], &bytes(&[0]), "reference"),
        (r#"{"type":"array","items":"null"}"#, &[65_537 << 32], b"", "too-large"),
        // 33,000 twice is over the limit of a record
        (
            r#"{"type":"array","items":{"type":"array","items":"null"}}"#,
            &[points(0, 2)],
            &bytes(&[33_000 << 32, 33_000 << 32]),
            "too-large",
        ),
        (r#"{"type":"map","values":"int"}"#, &[points(0, 1)], &bytes(&[points(16, 1), 7, 0xff]), "utf8"),
        (r#"["null","int","string"]"#, &[points(0, 3)], &bytes(&[7]), "range"),
        (r#"["null","int","string"]"#, &[points(4, 1)], &bytes(&[7, 7]), "alignment"),
        (list, &[0, points(0, 0)], &bytes(&[1, 0]), "range"),
        (list, &[0, points(0, 2)], &bytes(&[1, 0]), "range"),
        // frames that hold themselves
        (list, &[0, points(0, 1)], &bytes(&[0, points(0, 1)]), "depth"),
        (tree, &[points(0, 1)], &bytes(&[points(0, 1)]), "depth"),
    ];
    for (schema, frame, heap, want) in cases {
        assert_eq!(encode(schema, frame, heap), Err(*want), "{schema} {frame:x?}");
    }
}

#[test]
fn depth_is_allowed_up_to_its_limit() {
    let tree = r#"{"type":"record","name":"T","fields":[{"name":"c","type":{"type":"array","items":"T"}}]}"#;
    let chain = |cells: u32| -> Vec<u64> {
        (1..=cells).map(|next| if next == cells { 0 } else { points(8 * next, 1) }).collect()
    };
    let want = [vec![2; 64], vec![0; 65]].concat();
    assert_eq!(encode(tree, &[points(0, 1)], &bytes(&chain(64))), Ok(want));
    assert_eq!(encode(tree, &[points(0, 1)], &bytes(&chain(65))), Err("depth"));
}

#[test]
fn worked_example_of_the_contract() {
    let order = encoder(
        r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"double"},{"name":"address","type":["null",
           {"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}]},{"name":"tags","type":{"type":"array","items":["null","string"]}}]}"#,
    );
    let slim = encoder(
        r#"{"type":"record","name":"Slim","fields":[{"name":"id","type":"string"},{"name":"total","type":"double"},{"name":"note","type":["null","string"]}]}"#,
    );
    let (input, output) = (hex(INPUT), hex(OUTPUT));
    assert_eq!((input.len(), output.len()), (259, 217));
    let refs = Refs { input: &input, input_low: 192, output: &output };
    let encode = |encoder: &Encoder, frame: &[u8]| {
        let mut out = Vec::new();
        encoder.encode(&refs, frame, &mut out, &mut Budget::new(1_000)).map(|()| out)
    };
    assert_eq!(encode(&order, &input[80..120]), Ok(hex("044131000000000000044002084265726e040202780000")));
    assert_eq!(encode(&order, &input[152..192]), Ok(hex("044232000000000000f0bf0000")));
    assert_eq!(encode(&slim, &output[136..168]), Ok(hex("044131000000000000144002046869")));
}

#[test]
fn work_is_counted_and_ends_with_the_budget() {
    // 100 items that all point at the same 1,000 bytes
    let schema = r#"{"type":"array","items":"bytes"}"#;
    let heap = [bytes(&[points(800, 1_000); 100]), vec![7; 1_000]].concat();
    let output = [&[0; HEAP][..], &heap].concat();
    let refs = Refs { input: b"", input_low: 0, output: &output };
    let run = |schema: &str, frame: &[u64], left: u64| {
        let mut budget = Budget::new(left);
        let mut out = Vec::new();
        let result = encoder(schema).encode(&refs, &bytes(frame), &mut out, &mut budget);
        (result.map(|()| out.len()).map_err(|error| error.0.name()), budget.bytes_left)
    };
    let whole = 2 + 100 * 1_002 + 1;
    assert_eq!(run(schema, &[points(0, 100)], 200_000), (Ok(whole), 200_000 - whole as u64));
    assert_eq!(run(schema, &[points(0, 100)], whole as u64), (Ok(whole), 0));
    assert_eq!(run(schema, &[points(0, 100)], whole as u64 - 1), (Err("too-large"), 0));
    assert_eq!(run(schema, &[points(0, 100)], 5_000), (Err("too-large"), 0));
    // what failed was work too: the text was read
    assert_eq!(run(r#""string""#, &[points(800, 1_000)], 5_000), (Ok(1_002), 3_998));
    assert_eq!(run(r#""string""#, &[points(799, 1)], 5_000), (Ok(2), 4_998));
    assert_eq!(run(r#""boolean""#, &[9], 5_000), (Err("range"), 4_999));
    // elements without bytes count one each, and a record over its own limit leaves the batch its budget
    let nulls = r#"{"type":"array","items":"null"}"#;
    assert_eq!(run(nulls, &[1_000 << 32], 5_000), (Ok(3), 5_000 - 1_003));
    assert_eq!(run(nulls, &[6_000 << 32], 5_000), (Err("too-large"), 0));
}

#[test]
fn a_record_over_its_limit_leaves_the_rest_of_the_budget() {
    let limits = Limits { record_bytes_max: 100, ..Limits::default() };
    let encoder = Encoder::compile(&Schema::parse(r#""bytes""#).expect("legal schema"), &limits).expect("compiles");
    let output = vec![0; HEAP + 200];
    let refs = Refs { input: b"", input_low: 0, output: &output };
    let mut out = Vec::new();
    let mut budget = Budget::new(10_000);
    for (len, want) in [(98, Ok(())), (99, Err("too-large")), (200, Err("too-large"))] {
        let result = encoder.encode(&refs, &bytes(&[points(0, len)]), &mut out, &mut budget);
        assert_eq!(result.map_err(|error| error.0.name()), want, "{len}");
    }
    assert_eq!(out.len(), 100);
    // 100 bytes that stay, 101 that were taken back, and one for a try that wrote nothing
    assert_eq!(budget.bytes_left, 10_000 - 202);
}

const INPUT: &str = "
4b4c5231 02000000 48000000 30000000 c0000000 03010000
03000000 00000000 581b0000 00000000 c0000000 06000000
c6000000 02000000 0068e5cf 8b010000 c8000000 01000000
00000000 00000000 00000000 00000000
da000000 02000000 00000000 00000440
dc000000 04000000 e0000000 02000000
00000000 ffffffff ffffffff ffffffff 00000000 00000000
02000000 00000000 01000000 00000000
01010000 02000000 00000000 0000f0bf
00000000 00000000 00000000 00000000
6f72646572736b31 d800000001000000 d900000001000000
687641314265726e
0000000000000000 0001000001000000
0100000000000000 0000000000000000 784232";

const OUTPUT: &str = "
4b4c4f31 04000000 01000000 c8000000 d9000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000
00000000 01000100 60000000 28000000
00000000 02010000 88000000 20000000
01000000 04000000 b0000000 10000000
01000000 00000000 00000000 00000640
02000000 00000000 0100000000000000 0000000000000000
0000000000000000 da000000 02000000
00000000 00001440 a8000080 02000000 6869 000000000000
07000000 00000000 c0000080 07000000 6e6f2074616773 00
d0000080 09000000 6f72646572732d6575";
