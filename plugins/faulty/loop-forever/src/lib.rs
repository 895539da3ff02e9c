//! Never returns from the order whose `id` is `on`, keeps all others: what the host's deadline is for.
//!
//! | config | default | |
//! | --- | --- | --- |
//! | `on` | `LOOP` | the order that it hangs on |

use kiteline_guest::prelude::*;
use std::hint::black_box;

/// The transform.
pub struct LoopForever {
    id: Field<Text>,
    on: String,
}

impl Transform for LoopForever {
    fn describe(config: &Config, _source: Option<&str>) -> Result<Manifest> {
        config.only(&["on"])?;
        let reader = Schema::record("shop.Order").field("id", "string");
        Ok(Manifest::stateless("faulty-loop-forever", env!("CARGO_PKG_VERSION")).reader_fields(reader))
    }

    fn open(context: &Context) -> Result<Self> {
        Ok(LoopForever { id: context.field("id")?, on: context.config.get("on").unwrap_or("LOOP").to_owned() })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        let mut turns = 0u64;
        while row.get(self.id) == self.on {
            turns = black_box(turns.wrapping_add(1));
        }
        out.keep(row)
    }
}

kiteline_guest::export!(LoopForever);
