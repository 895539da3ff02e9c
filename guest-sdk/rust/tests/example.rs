//! The worked example of the contract, byte for byte: both buffers as the document prints them.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use kiteline_guest::{prelude::*, testing::Harness};

const ORDER: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"double"},{"name":"address","type":["null",
 {"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}]},{"name":"tags","type":{"type":"array","items":["null","string"]}}]}"#;

const SLIM: &str = r#"{"type":"record","name":"Slim","fields":[{"name":"id","type":"string"},{"name":"total","type":"double"},{"name":"note","type":["null","string"]}]}"#;

const TABLE: &str = "struct-of Order id:1:0:0:0 amount:2:1:0:1 address:3:2:0:2 tags:6:3:1:4 /4/1\ntext /1/0\ndouble /1/0\nnullable 4 /1/1\n\
    struct-of Address city:5:0:0:0 /1/0\ntext /1/0\narray-of 7 /1/0\nnullable 8 /1/1\ntext /1/0\n";

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

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

struct Example {
    id: Field<Text>,
    amount: Field<f64>,
    address: Field<Option<Struct>>,
    city: Field<Option<Text>>,
    tags: Field<List<Option<Text>>>,
    slim: Port,
    slim_id: Field<Text>,
    total: Field<f64>,
    note: Field<Option<Text>>,
}

impl Transform for Example {
    fn describe(_: &Config, _: Option<&str>) -> Result<Manifest> {
        Ok(Manifest::stateless("example", "1")
            .reader(ORDER)
            .want_keys()
            .want_headers()
            .port("out")
            .port_avro("slim", SLIM))
    }

    fn open(context: &Context) -> Result<Example> {
        let slim = context.port(1)?;
        let layout = context.output(slim)?;
        Ok(Example {
            id: context.field("id")?,
            amount: context.field("amount")?,
            address: context.field("address")?,
            city: context.field("address.city")?,
            tags: context.field("tags")?,
            slim,
            slim_id: layout.field("id")?,
            total: layout.field("total")?,
            note: layout.field("note")?,
        })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        let tags: Vec<Option<&str>> = row.get(self.tags).iter().collect();
        let headers: Vec<(&[u8], Option<&[u8]>)> = row.headers().map(|h| (h.name, h.value)).collect();
        assert_eq!((row.topic(), row.partition()), ("orders", 3));
        if row.get(self.id) == "B2" {
            assert_eq!((row.offset(), row.key(), row.timestamp_ms()), (7002, None, None));
            assert_eq!((row.get(self.amount), row.get(self.city), row.is_null(self.address)), (-1.0, None, true));
            assert_eq!((tags.len(), headers.len()), (0, 0));
            return out.reject(row, 7, "no tags");
        }
        assert_eq!((row.offset(), row.key(), row.timestamp_ms()), (7000, Some(&b"k1"[..]), Some(1_700_000_000_000)));
        assert_eq!((row.get(self.id), row.get(self.amount), row.get(self.city)), ("A1", 2.5, Some("Bern")));
        assert_eq!((tags, headers), (vec![Some("x"), None], vec![(&b"h"[..], Some(&b"v"[..]))]));

        out.keep(row)?;
        row.set(self.amount, 2.75)?;
        row.set_null(self.address)?;
        out.keep_to(row, "orders-eu")?;
        let mut slim = out.row(self.slim, row)?;
        slim.set(self.slim_id, row.get(self.id))?;
        slim.set(self.total, 5.0)?;
        slim.set(self.note, Some("hi"))?;
        slim.emit()
    }
}

#[test]
fn the_example_is_read_and_written_byte_for_byte() {
    let mut harness: Harness<Example> = Harness::new(&[], ORDER).unwrap();
    assert_eq!(harness.input().table(), TABLE);
    assert_eq!(harness.input().fingerprint, "c94957bbb48705aa");
    let mut input = bytes(INPUT);
    assert_eq!(input.len(), 259);
    let pieces = harness.run_buffer(&mut input).unwrap();
    assert_eq!(pieces, [bytes(OUTPUT)]);
}

#[test]
fn part_of_a_batch_is_the_same_buffer_with_other_rows() {
    // the host halves a batch by changing "rows" and "rows at" alone
    let mut harness: Harness<Example> = Harness::new(&[], ORDER).unwrap();
    let mut input = bytes(INPUT);
    input[4] = 1;
    input[12] = 48 + 72;
    let pieces = harness.run_buffer(&mut input).unwrap();
    // one entry: source 0 (of the part), reject with code 7
    assert_eq!(pieces.len(), 1);
    assert_eq!(pieces[0][4..8], 1u32.to_le_bytes());
    assert_eq!(pieces[0][32..38], [0, 0, 0, 0, 4, 0]);
    let mut input = bytes(INPUT);
    input[4] = 0;
    assert_eq!(harness.run_buffer(&mut input).unwrap().len(), 0);
}

#[test]
fn a_buffer_of_another_shape_is_a_fault() {
    let mut harness: Harness<Example> = Harness::new(&[], ORDER).unwrap();
    for (at, byte, text) in [
        (3, b'2', "revision 1"),
        (8, 64, "size of the layout"),
        (20, 0, "does not fit its length"),
        (4, 3, "does not fit its length"),
        (17, 9, "does not fit its length"),
    ] {
        let mut input = bytes(INPUT);
        input[at] = byte;
        let fault = harness.run_buffer(&mut input).unwrap_err();
        assert!(fault.message.contains(text), "byte {at}: {}", fault.message);
        assert_eq!(fault.at, None);
    }
    assert!(harness.run_buffer(&mut []).is_err());
}
