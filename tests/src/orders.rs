//! Orders in Avro, encoded by hand: an encoder that shares no code with the product.

use crate::kafka::Rec;

/// Schema of the orders.
pub const SCHEMA: &str = include_str!("../../plugins/order.avsc");

/// Datum of the n-th order; `qty` says whether a filter keeps it.
pub fn datum(n: u64, qty: i32, amount: f64) -> Vec<u8> {
    datum_named(&format!("order-{n:09}"), n, qty, amount)
}

/// The same with an `id` of one's own, of any length.
pub fn datum_named(id: &str, n: u64, qty: i32, amount: f64) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, id);
    long(&mut out, 1_790_000_000_000 + i64::try_from(n).expect("small"));
    out.extend(amount.to_le_bytes());
    long(&mut out, i64::try_from(n % 4).expect("small"));
    if n.is_multiple_of(2) {
        long(&mut out, 0);
    } else {
        long(&mut out, 1);
        text(&mut out, "ring twice");
    }
    text(&mut out, "1 Harbour Street");
    text(&mut out, ["Oslo", "Turin", "Bern"][(n % 3) as usize]);
    text(&mut out, "01234");
    long(&mut out, 1);
    text(&mut out, "gift");
    long(&mut out, 0);
    long(&mut out, 1);
    text(&mut out, "views");
    long(&mut out, 7);
    long(&mut out, 0);
    out.extend([9; 16]);
    long(&mut out, qty.into());
    out.push(1);
    long(&mut out, 2);
    out.extend([1, 2]);
    out
}

/// Appends an Avro int or long.
pub fn long(out: &mut Vec<u8>, value: i64) {
    let mut z = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while z >= 0x80 {
        out.push((z & 0x7f) as u8 | 0x80);
        z >>= 7;
    }
    out.push(z as u8);
}

/// Appends an Avro string.
pub fn text(out: &mut Vec<u8>, value: &str) {
    long(out, i64::try_from(value.len()).expect("short"));
    out.extend(value.as_bytes());
}

/// The n-th order as a record: its number is the key, its quantity 50.
pub fn order(n: u64, partition: i32) -> Rec {
    record(n, partition, datum(n, 50, 1.0))
}

/// A record with a number as its key.
pub fn record(n: u64, partition: i32, value: Vec<u8>) -> Rec {
    Rec { partition, key: Some(n.to_be_bytes().to_vec()), value: Some(value), ..Rec::default() }
}

/// The number that [`record`] gave it.
pub fn number(record: &Rec) -> u64 {
    u64::from_be_bytes(record.key.as_deref().expect("a key").try_into().expect("eight bytes"))
}

/// Numbers of records, in their order.
pub fn numbers(records: &[Rec]) -> Vec<u64> {
    records.iter().map(number).collect()
}
