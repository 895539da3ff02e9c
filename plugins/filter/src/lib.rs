//! Keeps the orders whose `qty` is at least `threshold`, drops the rest.
//!
//! | config | default | |
//! | --- | --- | --- |
//! | `threshold` | 10 | the least quantity that is kept |

use kiteline_guest::prelude::*;

/// The transform: one field, one number.
pub struct Filter {
    qty: Field<i32>,
    threshold: i32,
}

impl Transform for Filter {
    fn describe(config: &Config, _source: Option<&str>) -> Result<Manifest> {
        config.only(&["threshold"])?;
        config.parse::<i32>("threshold")?;
        Ok(Manifest::stateless("filter", env!("CARGO_PKG_VERSION"))
            .reader_fields(Schema::record("shop.Order").field("qty", "int")))
    }

    fn open(context: &Context) -> Result<Self> {
        Ok(Filter { qty: context.field("qty")?, threshold: context.config.parse_or("threshold", 10)? })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        if row.get(self.qty) >= self.threshold { out.keep(row) } else { out.drop(row) }
    }
}

kiteline_guest::export!(Filter);
