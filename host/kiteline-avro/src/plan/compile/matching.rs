//! Which types and fields of two schemas belong together, by Avro 1.12, "Schema Resolution". Pure functions; what follows from a match
//! is in `compile`.

use std::collections::HashMap;

use crate::plan::Op;
use crate::schema::{Logical, RecordType, SchemaKind, TypeName, unqualified};

/// By writer's field: the reader's field it goes to. Names come before aliases, and no field is read twice.
pub(super) fn field_targets(from: &RecordType, to: &RecordType) -> Vec<Option<usize>> {
    let positions: HashMap<&str, usize> =
        from.fields.iter().enumerate().map(|(index, field)| (&*field.name, index)).collect();
    let mut targets = vec![None; from.fields.len()];
    let mut by_alias = Vec::new();
    for (index, field) in to.fields.iter().enumerate() {
        match positions.get(&*field.name) {
            Some(&position) => targets[position] = Some(index),
            None => by_alias.push((index, field)),
        }
    }
    for (index, field) in by_alias {
        let mut known = field.aliases.iter().filter_map(|alias| positions.get(&**alias));
        if let Some(&position) = known.find(|&&position| targets[position].is_none()) {
            targets[position] = Some(index);
        }
    }
    targets
}

/// Named types match by the last part of their names, or by an alias of the reader's; `exact`: by full names.
pub(super) fn names_match(writer: &TypeName, reader: &TypeName, exact: bool) -> bool {
    let same = |name: &str| match exact {
        true => name == &*writer.full,
        false => unqualified(name) == writer.unqualified(),
    };
    same(&reader.full) || reader.aliases.iter().any(|alias| same(alias))
}

/// "Two decimals match if their scales and precisions match"; a decimal and a plain type match by their bases.
pub(super) fn decimals_match(writer: &Option<Logical>, reader: &Option<Logical>) -> bool {
    match (writer, reader) {
        (Some(w @ Logical::Decimal { .. }), Some(r @ Logical::Decimal { .. })) => w == r,
        _ => true,
    }
}

/// Primitives of the same type, and the promotions.
pub(super) fn scalar(writer: &SchemaKind, reader: &SchemaKind, slot: u32) -> Option<Op> {
    Some(match (writer, reader) {
        // nothing to read, but a match
        (SchemaKind::Null, SchemaKind::Null) => Op::SkipBytes { count: 0 },
        (SchemaKind::Boolean, SchemaKind::Boolean) => Op::Boolean { slot },
        (SchemaKind::Int, SchemaKind::Int | SchemaKind::Long) => Op::Int { slot },
        (SchemaKind::Int, SchemaKind::Float) => Op::IntToFloat { slot },
        (SchemaKind::Int, SchemaKind::Double) => Op::IntToDouble { slot },
        (SchemaKind::Long, SchemaKind::Long) => Op::Long { slot },
        (SchemaKind::Long, SchemaKind::Float) => Op::LongToFloat { slot },
        (SchemaKind::Long, SchemaKind::Double) => Op::LongToDouble { slot },
        (SchemaKind::Float, SchemaKind::Float | SchemaKind::Double) => Op::Float { slot },
        (SchemaKind::Double, SchemaKind::Double) => Op::Double { slot },
        (SchemaKind::Text, SchemaKind::Text | SchemaKind::Bytes) | (SchemaKind::Bytes, SchemaKind::Text) => {
            Op::Text { slot }
        }
        (SchemaKind::Bytes, SchemaKind::Bytes) => Op::Bytes { slot },
        _ => return None,
    })
}
