//! Plans against bytes made by hand: every type, every rule of resolution, hostile datums. Rows are read back here by the contract's
//! text alone, and printed, so that a case is a line.

mod generated;
mod hostile;
mod resolve;
mod types;

use crate::error::{DatumError, PlanError};
use crate::layout::{Kind, Layout};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::schema::Schema;

/// A buffer's bound that no test reaches by accident.
const BUFFER_MAX: usize = 16 << 20;

fn schema(text: &str) -> Schema {
    Schema::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn plan(writer: &str, reader: &str) -> Plan {
    Plan::compile(&schema(writer), &schema(reader), &Limits::default())
        .unwrap_or_else(|error| panic!("{writer} as {reader}: {error}"))
}

fn refusal(writer: &str, reader: &str) -> PlanError {
    match Plan::compile(&schema(writer), &schema(reader), &Limits::default()) {
        Ok(plan) => panic!("{writer} as {reader} compiles to {plan:?}"),
        Err(error) => error,
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    assert!(digits.len().is_multiple_of(2), "{text}");
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a hex digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Decodes behind 16 bytes that are not ours and prints the row; checks on the way what holds for every datum.
fn decode(plan: &Plan, datum: &[u8]) -> Result<String, DatumError> {
    let frame = plan.layout().node(0).frame_bytes() as usize;
    let mut buffer = vec![0xee; 16];
    buffer.resize(16 + frame, 0);
    let result = plan.decode(datum, &mut buffer, 16, BUFFER_MAX);
    assert_eq!(&buffer[..16], &[0xee; 16]);
    assert_eq!(plan.check(datum).map_err(|error| error.reason), result.map_err(|error| error.reason));
    match result {
        Ok(()) => Ok(show_frame(plan.layout(), &buffer, 0, 16)),
        Err(error) => {
            assert_eq!(buffer.len(), 16 + frame, "cut back");
            assert!(buffer[16..].iter().all(|&byte| byte == 0), "zeroed");
            Err(error)
        }
    }
}

/// One case: writer, reader, datum as hex, and the row or `code@position`.
fn check(writer: &str, reader: &str, datum: &str, expected: &str) {
    let got = match decode(&plan(writer, reader), &hex(datum)) {
        Ok(row) => row,
        Err(error) => format!("{:?}@{}", error.code, error.at),
    };
    assert_eq!(got, expected, "{writer} as {reader}, {datum}");
}

fn word(buffer: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(buffer[at..at + 8].try_into().expect("8 bytes"))
}

fn show_frame(layout: &Layout, buffer: &[u8], node: u32, at: usize) -> String {
    let info = layout.node(node);
    assert!(at.is_multiple_of(8));
    for spare in info.null_bits..info.null_words() * 64 {
        assert!(!bit(buffer, at, spare), "spare bits are zero");
    }
    let mut text = String::new();
    show(layout, buffer, node, at, 0, at + 8 * info.null_words() as usize, &mut text);
    text
}

fn bit(buffer: &[u8], words: usize, bit: u32) -> bool {
    buffer[words + bit as usize / 8] >> (bit % 8) & 1 == 1
}

fn bytes(buffer: &[u8], at: usize) -> Vec<u8> {
    let (offset, len) = (word(buffer, at) as u32 as usize, (word(buffer, at) >> 32) as usize);
    assert!(len > 0 || offset == 0, "an empty reference has offset 0");
    buffer[offset..offset + len].to_vec()
}

/// Numbers as Rust prints them, floats with a point, bytes as `x` and hex, maps with their keys in braces, branches as `#branch:`.
fn show(layout: &Layout, buffer: &[u8], node: u32, words: usize, bit_at: u32, slot: usize, out: &mut String) {
    let info = layout.node(node);
    match &info.kind {
        Kind::Null => *out += "null",
        Kind::Boolean => *out += ["false", "true"][word(buffer, slot) as usize],
        Kind::Int | Kind::Long => *out += &(word(buffer, slot) as i64).to_string(),
        Kind::Float | Kind::Double => *out += &format!("{:?}", f64::from_bits(word(buffer, slot))),
        Kind::Enum(symbols) => *out += &symbols[word(buffer, slot) as usize],
        Kind::Text => *out += &format!("{:?}", String::from_utf8(bytes(buffer, slot)).expect("UTF-8")),
        Kind::Bytes | Kind::Fixed(_) => {
            *out += "x";
            bytes(buffer, slot).iter().for_each(|byte| *out += &format!("{byte:02x}"));
        }
        Kind::Struct(fields) => {
            *out += "(";
            for (index, field) in fields.iter().enumerate() {
                *out += if index > 0 { ", " } else { "" };
                let place = slot + 8 * field.slot as usize;
                show(layout, buffer, field.node, words, bit_at + field.null_bit, place, out);
            }
            *out += ")";
        }
        Kind::Nullable(inner) => match bit(buffer, words, bit_at) {
            true => {
                *out += "null";
                for beneath in 0..info.null_bits {
                    assert!(bit(buffer, words, bit_at + beneath), "every bit beneath a null is set");
                }
                for beneath in 0..info.slots as usize {
                    assert_eq!(word(buffer, slot + 8 * beneath), 0, "slots beneath a null are zero");
                }
            }
            false => show(layout, buffer, *inner, words, bit_at + 1, slot, out),
        },
        Kind::Array(inner) => show_items(layout, buffer, *inner, false, slot, out),
        Kind::Map(inner) => show_items(layout, buffer, *inner, true, slot, out),
        Kind::Union(branches) => {
            let branch = (word(buffer, slot) >> 32) as usize;
            *out += &format!("#{branch}:");
            *out += &show_frame(layout, buffer, branches[branch], word(buffer, slot) as u32 as usize);
        }
        Kind::Boxed(inner) => {
            assert_eq!(word(buffer, slot) >> 32, 1);
            *out += &show_frame(layout, buffer, *inner, word(buffer, slot) as u32 as usize);
        }
    }
}

fn show_items(layout: &Layout, buffer: &[u8], inner: u32, keyed: bool, slot: usize, out: &mut String) {
    let info = layout.node(inner);
    let head = 8 * info.null_words() as usize;
    let stride = info.frame_bytes() as usize + if keyed { 8 } else { 0 };
    let (offset, count) = (word(buffer, slot) as u32 as usize, (word(buffer, slot) >> 32) as usize);
    *out += if keyed { "{" } else { "[" };
    for index in 0..count {
        *out += if index > 0 { ", " } else { "" };
        let at = offset + index * stride;
        if keyed {
            *out += &format!("{}: ", String::from_utf8(bytes(buffer, at + head)).expect("UTF-8"));
            show(layout, buffer, inner, at, 0, at + head + 8, out);
        } else {
            *out += &show_frame(layout, buffer, inner, at);
        }
    }
    *out += if keyed { "}" } else { "]" };
}
