//! Random schemas and values from a seed: what is written is read back, also by pruned and reordered readers, and damaged bytes
//! give a value or an error.

use super::{decode, plan};
use crate::layout::Kind;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A type with enough to write its values: the JSON text and, for a value, bytes and the row as the tests print it.
#[derive(Clone)]
enum Type {
    Word(&'static str),
    Fixed(u64, u64),
    Enum(u64),
    Struct(u64, Vec<(String, Type)>),
    Array(Box<Type>),
    Map(Box<Type>),
    Nullable(Box<Type>, bool),
    Union(Vec<Type>),
}

const SYMBOLS: [&str; 4] = ["NORTH", "EAST", "SOUTH", "WEST"];

struct Maker {
    random: Random,
    names: u64,
}

impl Maker {
    fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    fn schema(&mut self, depth: u64) -> Type {
        let words = ["null", "boolean", "int", "long", "float", "double", "bytes", "string", "string", "long"];
        let simple = depth >= 4;
        match self.random.below(if simple { 11 } else { 18 }) {
            choice @ 0..=8 => Type::Word(words[choice as usize]),
            9 => Type::Fixed(self.name(), self.random.below(20)),
            10 => Type::Enum(self.name()),
            11 | 12 => {
                let count = self.random.below(6);
                let name = self.name();
                Type::Struct(name, (0..count).map(|index| (format!("f{index}"), self.schema(depth + 1))).collect())
            }
            13 => Type::Array(Box::new(self.schema(depth + 1))),
            14 => Type::Map(Box::new(self.schema(depth + 1))),
            15 | 16 => {
                let inner = self.branch(depth + 1);
                Type::Nullable(Box::new(inner), self.random.below(2) == 0)
            }
            _ => Type::Union(vec![
                Type::Word("int"),
                Type::Word("string"),
                Type::Fixed(self.name(), 2),
                Type::Array(Box::new(self.schema(depth + 1))),
                Type::Struct(self.name(), vec![("u".to_string(), self.schema(depth + 1))]),
            ]),
        }
    }

    /// A type that may stand in a union beside null.
    fn branch(&mut self, depth: u64) -> Type {
        loop {
            match self.schema(depth) {
                Type::Word("null") | Type::Nullable(..) | Type::Union(_) => {}
                other => return other,
            }
        }
    }

    fn long(&mut self, out: &mut Vec<u8>, value: i64) {
        let mut raw = (value << 1 ^ value >> 63) as u64;
        while raw >= 0x80 {
            out.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        out.push(raw as u8);
    }

    fn text(&mut self) -> String {
        let longest = if self.random.below(8) == 0 { 90 } else { 20 };
        let len = self.random.below(longest);
        (0..len)
            .map(|_| if self.random.below(40) == 0 { 'é' } else { (b'a' + self.random.below(26) as u8) as char })
            .collect()
    }

    /// Writes a value and says how its row prints.
    fn value(&mut self, schema: &Type, out: &mut Vec<u8>) -> String {
        match schema {
            Type::Word("null") => "null".to_string(),
            Type::Word("boolean") => {
                let value = self.random.below(2);
                out.push(value as u8);
                (value == 1).to_string()
            }
            Type::Word("int") => {
                let value = self.random.next() as i32 >> self.random.below(31);
                self.long(out, value.into());
                value.to_string()
            }
            Type::Word("long") => {
                let value = self.random.next() as i64 >> self.random.below(63);
                self.long(out, value);
                value.to_string()
            }
            Type::Word("float") => {
                let value = self.random.next() as f32 / 3.0;
                out.extend(value.to_le_bytes());
                format!("{:?}", f64::from(value))
            }
            Type::Word("double") => {
                let value = self.random.next() as f64 / 3.0;
                out.extend(value.to_le_bytes());
                format!("{value:?}")
            }
            Type::Word("bytes") => {
                let len = self.random.below(40);
                self.long(out, len as i64);
                self.raw(out, len)
            }
            Type::Word(_) => {
                let text = self.text();
                self.long(out, text.len() as i64);
                out.extend(text.as_bytes());
                format!("{text:?}")
            }
            Type::Fixed(_, size) => self.raw(out, *size),
            Type::Enum(_) => {
                let index = self.random.below(4);
                self.long(out, index as i64);
                SYMBOLS[index as usize].to_string()
            }
            Type::Struct(_, fields) => {
                let shown: Vec<String> = fields.iter().map(|(_, schema)| self.value(schema, out)).collect();
                format!("({})", shown.join(", "))
            }
            Type::Array(inner) => format!("[{}]", self.blocks(inner, false, out)),
            Type::Map(inner) => format!("{{{}}}", self.blocks(inner, true, out)),
            Type::Nullable(inner, first) => {
                let null = self.random.below(3) == 0;
                out.push(if null != *first { 2 } else { 0 });
                if null { "null".to_string() } else { self.value(inner, out) }
            }
            Type::Union(branches) => {
                let branch = self.random.below(branches.len() as u64);
                self.long(out, branch as i64);
                format!("#{branch}:{}", self.value(&branches[branch as usize], out))
            }
        }
    }

    fn raw(&mut self, out: &mut Vec<u8>, len: u64) -> String {
        let bytes: Vec<u8> = (0..len).map(|_| self.random.next() as u8).collect();
        out.extend(&bytes);
        bytes.iter().fold("x".to_string(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// One to three blocks, with and without their byte sizes.
    fn blocks(&mut self, inner: &Type, keyed: bool, out: &mut Vec<u8>) -> String {
        let mut shown = Vec::new();
        for _ in 0..self.random.below(3) {
            let count = 1 + self.random.below(3);
            let mut block = Vec::new();
            for _ in 0..count {
                let key = self.text();
                if keyed {
                    self.long(&mut block, key.len() as i64);
                    block.extend(key.as_bytes());
                }
                let value = self.value(inner, &mut block);
                shown.push(if keyed { format!("{key}: {value}") } else { value });
            }
            let sized = self.random.below(2) == 0;
            self.long(out, if sized { -(count as i64) } else { count as i64 });
            if sized {
                self.long(out, block.len() as i64);
            }
            out.extend(block);
        }
        out.push(0);
        shown.join(", ")
    }
}

fn json(schema: &Type) -> String {
    match schema {
        Type::Word(word) => format!("\"{word}\""),
        Type::Fixed(name, size) => format!(r#"{{"type":"fixed","name":"F{name}","size":{size}}}"#),
        Type::Enum(name) => format!(r#"{{"type":"enum","name":"E{name}","symbols":{SYMBOLS:?}}}"#),
        Type::Struct(name, fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, schema)| format!(r#"{{"name":"{name}","type":{}}}"#, json(schema))).collect();
            format!(r#"{{"type":"record","name":"R{name}","fields":[{}]}}"#, fields.join(","))
        }
        Type::Array(inner) => format!(r#"{{"type":"array","items":{}}}"#, json(inner)),
        Type::Map(inner) => format!(r#"{{"type":"map","values":{}}}"#, json(inner)),
        Type::Nullable(inner, true) => format!(r#"["null",{}]"#, json(inner)),
        Type::Nullable(inner, false) => format!(r#"[{},"null"]"#, json(inner)),
        Type::Union(branches) => format!("[{}]", branches.iter().map(json).collect::<Vec<_>>().join(",")),
    }
}

#[test]
fn what_is_written_is_read() {
    let mut maker = Maker { random: Random(20_261_201), names: 0 };
    let (mut values, mut kinds) = (0, 0);
    for _ in 0..1_500 {
        let schema = maker.schema(0);
        let text = json(&schema);
        let plan = plan(&text, &text);
        kinds |= 1 << kind_number(&plan.layout().node(0).kind);
        for _ in 0..6 {
            let mut datum = Vec::new();
            let shown = maker.value(&schema, &mut datum);
            assert_eq!(decode(&plan, &datum).as_ref(), Ok(&shown), "{text} {datum:02x?}");
            values += 1;
            if !datum.is_empty() {
                let at = maker.random.below(datum.len() as u64) as usize;
                datum[at] ^= 1 << maker.random.below(8);
                let _ = decode(&plan, &datum);
            }
        }
    }
    assert_eq!(values, 9_000);
    assert_eq!(kinds, 0b1111_1110_1111_1111, "every kind but boxed was a root: {kinds:b}");
}

#[test]
fn pruned_and_reordered_readers_see_the_same_fields() {
    let mut maker = Maker { random: Random(7), names: 0 };
    for _ in 0..1_500 {
        let count = 1 + maker.random.below(8);
        let fields: Vec<(String, Type)> = (0..count).map(|index| (format!("f{index}"), maker.schema(1))).collect();
        let mut wanted: Vec<usize> = (0..fields.len()).filter(|_| maker.random.below(2) == 0).collect();
        for index in (1..wanted.len()).rev() {
            wanted.swap(index, maker.random.below(index as u64 + 1) as usize);
        }
        let writer = json(&Type::Struct(0, fields.clone()));
        let reader = json(&Type::Struct(0, wanted.iter().map(|&index| fields[index].clone()).collect()));
        let plan = plan(&writer, &reader);
        let (mut datum, mut shown) = (Vec::new(), Vec::new());
        for (_, schema) in &fields {
            shown.push(maker.value(schema, &mut datum));
        }
        let expected: Vec<&str> = wanted.iter().map(|&index| &*shown[index]).collect();
        assert_eq!(
            decode(&plan, &datum),
            Ok(format!("({})", expected.join(", "))),
            "{writer} as {reader}, {datum:02x?}"
        );
    }
}

fn kind_number(kind: &Kind) -> u32 {
    match kind {
        Kind::Null => 0,
        Kind::Boolean => 1,
        Kind::Int => 2,
        Kind::Long => 3,
        Kind::Float => 4,
        Kind::Double => 5,
        Kind::Bytes => 6,
        Kind::Text => 7,
        Kind::Boxed(_) => 8,
        Kind::Fixed(_) => 9,
        Kind::Enum(_) => 10,
        Kind::Struct(_) => 11,
        Kind::Array(_) => 12,
        Kind::Map(_) => 13,
        Kind::Nullable(_) => 14,
        Kind::Union(_) => 15,
    }
}
