//! Defaults of fields that a writer lacks: checked against their type, and compiled to ops that write them. Nothing of the JSON is left
//! in the program.

use serde_json::Value;

use super::compile::{Compiler, Place, Task, inside};
use super::{CellInfo, Op};
use crate::error::PlanError;
use crate::layout::Kind;
use crate::schema::{Schema, SchemaId, SchemaKind};

/// Types looked at while one default is checked; a record's default may leave out fields with defaults of their own, which can go round
/// in circles.
const FITS_STEPS_MAX: u32 = 100_000;
/// Nesting of a default.
const FITS_DEPTH_MAX: u32 = 128;

/// Frames of defaults that lie together: items, entries with their keys, one branch or one box.
pub(super) struct DefaultFrames {
    node: u32,
    keyed: bool,
    frames: Vec<(String, Value)>,
}

impl Compiler<'_> {
    /// Whether a default is a value of its type. Of a union, any branch will do.
    pub(super) fn default_fits(&self, schema: SchemaId, value: &Value) -> bool {
        fits(self.reader, schema, value, 0, &mut 0)
    }

    /// Writes a default that fits.
    pub(super) fn default(&mut self, node: u32, value: &Value, place: Place) -> Result<(), PlanError> {
        self.enter()?;
        let layout = self.layout;
        let info = layout.node(node);
        let slot = place.slot;
        match &info.kind {
            Kind::Null => {}
            Kind::Nullable(_) if value.is_null() => self.emit(Op::Nulls { bit: place.bit, bits: info.null_bits })?,
            Kind::Nullable(inner) => {
                let bit = place.bit + 1;
                self.default(*inner, value, Place { slot, bit })?;
            }
            Kind::Boolean => self.default_slot(slot, value.as_bool().unwrap_or(false).into())?,
            Kind::Int | Kind::Long => self.default_slot(slot, value.as_i64().unwrap_or(0) as u64)?,
            Kind::Float => self.default_slot(slot, f64::from(number(value).unwrap_or(0.0) as f32).to_bits())?,
            Kind::Double => self.default_slot(slot, number(value).unwrap_or(0.0).to_bits())?,
            Kind::Enum(symbols) => {
                let index = symbols.iter().position(|symbol| Some(&**symbol) == value.as_str());
                self.default_slot(slot, index.unwrap_or(0) as u64)?;
            }
            Kind::Text => self.default_bytes(slot, value.as_str().unwrap_or("").as_bytes())?,
            Kind::Bytes | Kind::Fixed(_) => {
                let bytes = value.as_str().and_then(latin1).unwrap_or_default();
                self.default_bytes(slot, &bytes)?;
            }
            Kind::Array(item) => {
                let items = value.as_array().map_or(&[][..], |items| items);
                let frames = items.iter().map(|item| (String::new(), item.clone())).collect();
                self.default_cell(slot, items.len() as u32, *item, false, frames)?;
            }
            Kind::Map(inner) => {
                let entries = value.as_object().into_iter().flatten();
                let frames: Vec<_> = entries.map(|(key, value)| (key.clone(), value.clone())).collect();
                self.default_cell(slot, frames.len() as u32, *inner, true, frames)?;
            }
            Kind::Union(branches) => {
                let branch = branches.iter().position(|&branch| self.default_fits(layout.node(branch).schema, value));
                let branch = branch.unwrap_or(0);
                self.default_cell(slot, branch as u32, branches[branch], false, vec![(String::new(), value.clone())])?;
            }
            Kind::Boxed(inner) => self.default_cell(slot, 1, *inner, false, vec![(String::new(), value.clone())])?,
            Kind::Struct(fields) => {
                let reader = self.reader;
                let SchemaKind::Record(record) = &reader.node(info.schema).kind else {
                    unreachable!("a struct is made of a record");
                };
                for (field, slots) in record.fields.iter().zip(fields.iter()) {
                    let given = value.get(&*field.name).or(field.default.as_ref());
                    self.default(slots.node, given.unwrap_or(&Value::Null), inside(place, slots))?;
                }
            }
        }
        self.leave();
        Ok(())
    }

    /// The block of a [`Task::Defaults`].
    pub(super) fn write_default_frames(&mut self, number: u32) -> Result<(), PlanError> {
        let DefaultFrames { node, keyed, frames } = std::mem::replace(
            &mut self.default_frames[number as usize],
            DefaultFrames { node: 0, keyed: false, frames: Vec::new() },
        );
        let info = self.layout.node(node);
        let (words, stride) = (8 * info.null_words(), info.frame_bytes() + 8 * u32::from(keyed));
        let bytes = frames.len() as u64 * u64::from(stride);
        if bytes > self.tables_max() {
            return Err(self.limit("bytes of a default", self.tables_max()));
        }
        for ((key, value), index) in frames.iter().zip(0u32..) {
            let at = index * stride;
            let mut slot = at + words;
            if keyed {
                self.default_bytes(slot, key.as_bytes())?;
                slot += 8;
            }
            self.default(node, value, Place { slot, bit: 8 * at })?;
        }
        Ok(())
    }

    fn default_slot(&mut self, slot: u32, value: u64) -> Result<(), PlanError> {
        match value {
            // frames are zeroed
            0 => Ok(()),
            _ => self.emit(Op::Slot { slot, value }),
        }
    }

    fn default_bytes(&mut self, slot: u32, bytes: &[u8]) -> Result<(), PlanError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let start = self.program.constants.len();
        let max = self.tables_max();
        if (start + bytes.len()) as u64 > max {
            return Err(self.limit("bytes of defaults", max));
        }
        self.program.constants.extend_from_slice(bytes);
        let (start, len) = (start as u32, bytes.len() as u32);
        self.emit(Op::Constant { slot, start, len })
    }

    fn default_cell(
        &mut self,
        slot: u32,
        tag: u32,
        node: u32,
        keyed: bool,
        frames: Vec<(String, Value)>,
    ) -> Result<(), PlanError> {
        let stride = self.layout.node(node).frame_bytes() + 8 * u32::from(keyed);
        let bytes = u64::from(stride) * frames.len() as u64;
        if bytes == 0 {
            // offset 0; items or a branch without a frame
            return self.default_slot(slot, u64::from(tag) << 32);
        }
        let Ok(bytes) = u32::try_from(bytes) else {
            return Err(self.limit("bytes of a default", u32::MAX.into()));
        };
        let number = self.default_frames.len() as u32;
        self.default_frames.push(DefaultFrames { node, keyed, frames });
        let block = self.block(Task::Defaults { number });
        let cell = self.cell(CellInfo { slot, bytes, tag, block });
        self.emit(Op::ConstantCell { cell })
    }
}

/// A JSON number, or one of the three words for what JSON cannot say.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(word) => match word.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => value.as_f64(),
    }
}

/// "Unicode code points 0-255 are mapped to unsigned 8-bit byte values 0-255."
fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|point| u8::try_from(u32::from(point)).ok()).collect()
}

fn fits(schema: &Schema, id: SchemaId, value: &Value, depth: u32, steps: &mut u32) -> bool {
    *steps += 1;
    if *steps > FITS_STEPS_MAX || depth > FITS_DEPTH_MAX {
        return false;
    }
    let mut inner = |id: SchemaId, value: &Value| fits(schema, id, value, depth + 1, steps);
    match &schema.node(id).kind {
        SchemaKind::Null => value.is_null(),
        SchemaKind::Boolean => value.is_boolean(),
        SchemaKind::Int => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        SchemaKind::Long => value.as_i64().is_some(),
        // a number that a float cannot hold is none
        SchemaKind::Float => number(value).is_some_and(|number| !number.is_finite() || (number as f32).is_finite()),
        SchemaKind::Double => number(value).is_some(),
        SchemaKind::Text => value.is_string(),
        SchemaKind::Bytes => value.as_str().is_some_and(|text| latin1(text).is_some()),
        SchemaKind::Fixed(fixed) => {
            let bytes = value.as_str().and_then(latin1);
            bytes.is_some_and(|bytes| bytes.len() == fixed.size as usize)
        }
        SchemaKind::Enum(symbols) => symbols.symbols.iter().any(|symbol| Some(&**symbol) == value.as_str()),
        SchemaKind::Array(item) => value.as_array().is_some_and(|items| items.iter().all(|value| inner(*item, value))),
        SchemaKind::Map(item) => {
            value.as_object().is_some_and(|entries| entries.values().all(|value| inner(*item, value)))
        }
        SchemaKind::Union(branches) => branches.iter().any(|&branch| inner(branch, value)),
        SchemaKind::Record(record) => {
            let fields = record.fields.iter();
            value.as_object().is_some_and(|entries| {
                fields.into_iter().all(|field| {
                    let given = entries.get(&*field.name).or(field.default.as_ref());
                    given.is_some_and(|value| inner(field.schema, value))
                })
            })
        }
    }
}
