//! One record in, many out: a slim record per tag on port `tagged`, and the order itself, kept, on port `out`.
//!
//! The slim record's `id` and `tag` are references to the input's own bytes: nothing is copied in the sandbox. An order without tags is
//! kept and gives no slim record. No configuration.

use kiteline_guest::prelude::*;

/// The records of port `tagged`.
const TAGGED: &str = r#"{"type":"record","name":"Tagged","namespace":"shop","fields":[
  {"name":"id","type":"string"},
  {"name":"tag","type":"string"},
  {"name":"number","type":"int"},
  {"name":"amount","type":"double"},
  {"name":"note","type":["null","string"],"default":null}]}"#;

/// The transform: fields of the order, fields of the slim record.
pub struct FanOut {
    id: Field<Text>,
    amount: Field<f64>,
    note: Field<Option<Text>>,
    tags: Field<List<Text>>,
    tagged: Port,
    slim_id: Field<Text>,
    slim_tag: Field<Text>,
    slim_number: Field<i32>,
    slim_amount: Field<f64>,
    slim_note: Field<Option<Text>>,
}

impl Transform for FanOut {
    fn describe(config: &Config, _source: Option<&str>) -> Result<Manifest> {
        config.only(&[])?;
        let reader = Schema::record("shop.Order")
            .field("id", "string")
            .field("amount", "double")
            .optional("note", "string")
            .list("tags", "string");
        Ok(Manifest::stateless("fan-out", env!("CARGO_PKG_VERSION"))
            .reader_fields(reader)
            .port("out")
            .port_avro("tagged", TAGGED))
    }

    fn open(context: &Context) -> Result<Self> {
        let tagged = context.port(1)?;
        let slim = context.output(tagged)?;
        Ok(FanOut {
            id: context.field("id")?,
            amount: context.field("amount")?,
            note: context.field("note")?,
            tags: context.field("tags")?,
            tagged,
            slim_id: slim.field("id")?,
            slim_tag: slim.field("tag")?,
            slim_number: slim.field("number")?,
            slim_amount: slim.field("amount")?,
            slim_note: slim.field("note")?,
        })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        for (number, tag) in row.get(self.tags).iter().enumerate() {
            let mut slim = out.row(self.tagged, row)?;
            slim.set(self.slim_id, row.get(self.id))?;
            slim.set(self.slim_tag, tag)?;
            slim.set(self.slim_number, number as i32)?;
            slim.set(self.slim_amount, row.get(self.amount))?;
            slim.copy(self.slim_note, row, self.note)?;
            slim.emit()?;
        }
        out.keep(row)
    }
}

kiteline_guest::export!(FanOut);
