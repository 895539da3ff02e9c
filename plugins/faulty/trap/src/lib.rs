//! Panics on the order whose `id` is `on`, keeps all others: what one broken record must not do to the rest.
//!
//! | config | default | |
//! | --- | --- | --- |
//! | `on` | `TRAP` | the order that breaks it |
//! | `where` | `record` | `open`: panic when opened instead |

use kiteline_guest::prelude::*;

/// The transform.
pub struct Trap {
    id: Field<Text>,
    on: String,
}

impl Transform for Trap {
    fn describe(config: &Config, _source: Option<&str>) -> Result<Manifest> {
        config.only(&["on", "where"])?;
        Ok(Manifest::stateless("faulty-trap", env!("CARGO_PKG_VERSION"))
            .reader_fields(Schema::record("shop.Order").field("id", "string")))
    }

    fn open(context: &Context) -> Result<Self> {
        assert_ne!(context.config.get("where"), Some("open"), "told to panic in open");
        Ok(Trap { id: context.field("id")?, on: context.config.get("on").unwrap_or("TRAP").to_owned() })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        let id = row.get(self.id);
        if id == self.on {
            panic!("told to panic on order {id:?}");
        }
        out.keep(row)
    }
}

kiteline_guest::export!(Trap);
