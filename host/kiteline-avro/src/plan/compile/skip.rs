//! Compiles what the reader does not ask for: ops that check a value and write nothing, with runs of equal ones merged. The same for
//! every reader, but compiled with each plan, since it is interleaved with what is read.

use super::{Compiler, Task};
use crate::error::PlanError;
use crate::plan::{Item, List, Op};
use crate::schema::{RecordType, SchemaId, SchemaKind};

impl Compiler<'_> {
    pub(super) fn skip_item(&mut self, writer: SchemaId, keyed: bool) -> Result<(), PlanError> {
        if keyed {
            self.emit(Op::SkipTexts { count: 1 })?;
        }
        // this block is where a recursive record is entered, so its own fields stand here
        match &self.writer.node(writer).kind {
            SchemaKind::Record(record) => self.skip_fields(record),
            _ => self.skip(writer),
        }
    }

    fn skip_fields(&mut self, record: &RecordType) -> Result<(), PlanError> {
        record.fields.iter().try_for_each(|field| self.skip(field.schema))
    }

    pub(super) fn skip(&mut self, writer: SchemaId) -> Result<(), PlanError> {
        self.enter()?;
        let schema = self.writer;
        let one = |op| Some(op);
        let op = match &schema.node(writer).kind {
            SchemaKind::Null => None,
            SchemaKind::Boolean => one(Op::SkipBooleans { count: 1 }),
            SchemaKind::Int => one(Op::SkipInts { count: 1 }),
            SchemaKind::Long => one(Op::SkipLongs { count: 1 }),
            SchemaKind::Float => one(Op::SkipBytes { count: 4 }),
            SchemaKind::Double => one(Op::SkipBytes { count: 8 }),
            SchemaKind::Bytes => one(Op::SkipCounted { count: 1 }),
            SchemaKind::Text => one(Op::SkipTexts { count: 1 }),
            SchemaKind::Fixed(fixed) => one(Op::SkipBytes { count: fixed.size }),
            SchemaKind::Enum(symbols) => one(Op::SkipEnum { count: symbols.symbols.len() as u32 }),
            SchemaKind::Array(item) => one(self.skip_items(*item, false)),
            SchemaKind::Map(value) => one(self.skip_items(*value, true)),
            SchemaKind::Record(_) if schema.recursive(writer) => {
                one(Op::SkipCall { block: self.block(Task::Skip { writer, keyed: false }) })
            }
            SchemaKind::Record(record) => {
                self.skip_fields(record)?;
                None
            }
            SchemaKind::Union(branches) => {
                self.skip_union(writer, branches)?;
                None
            }
        };
        if let Some(op) = op {
            self.emit(op)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn skip_items(&mut self, writer: SchemaId, keyed: bool) -> Op {
        let block = self.block(Task::Skip { writer, keyed });
        let item = match (keyed, &self.writer.node(writer).kind) {
            (false, SchemaKind::Text) => Item::Text,
            (false, SchemaKind::Long) => Item::Long,
            (true, SchemaKind::Text) => Item::TextText,
            (true, SchemaKind::Long) => Item::TextLong,
            _ => Item::Block,
        };
        let list = self.list(List {
            slot: 0,
            stride: 0,
            bytes_min: self.writer.bytes_min(writer).saturating_add(keyed.into()),
            block,
            item,
        });
        Op::SkipItems { list }
    }

    fn skip_union(&mut self, writer: SchemaId, branches: &[SchemaId]) -> Result<(), PlanError> {
        if let Some((inner, null)) = self.writer.nullable(writer) {
            let at = self.ops.len();
            self.emit(Op::SkipNullable { null: null as u8, to: 0 })?;
            self.label = self.ops.len();
            self.skip(inner)?;
            if let [Op::SkipTexts { count: 1 }] = self.ops[at + 1..] {
                self.ops[at] = Op::SkipNullableText { null: null as u8 };
                self.ops.truncate(at + 1);
                return Ok(());
            }
            let end = self.mark();
            self.ops[at] = Op::SkipNullable { null: null as u8, to: end };
            return Ok(());
        }
        let table = self.program.tables.len() as u32;
        self.program.tables.resize(table as usize + branches.len(), 0);
        self.emit(Op::Union { table, count: branches.len() as u32 })?;
        let mut jumps = Vec::with_capacity(branches.len());
        for (index, &branch) in branches.iter().enumerate() {
            self.program.tables[table as usize + index] = self.mark();
            self.skip(branch)?;
            jumps.push(self.ops.len());
            self.emit(Op::Jump { to: 0 })?;
        }
        let end = self.mark();
        for jump in jumps {
            self.ops[jump] = Op::Jump { to: end };
        }
        Ok(())
    }
}
