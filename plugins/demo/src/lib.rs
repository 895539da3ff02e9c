//! Keeps the orders whose `qty` is at least `threshold`, multiplies their `amount`, and stamps them with the version that did it.
//!
//! Two versions are built from this, so that the demo can replace one by the other while records flow.
//!
//! | config | default | |
//! | --- | --- | --- |
//! | `threshold` | 50 | the least quantity that is kept |

use std::marker::PhantomData;

use kiteline_guest::prelude::*;

/// What differs between the versions.
pub trait Version: 'static {
    /// Value of the header `version`.
    const NAME: &'static str;
    /// What the amount is multiplied by.
    const FACTOR: f64;
}

/// The transform.
pub struct FilterAndEnrich<V> {
    qty: Field<i32>,
    amount: Field<f64>,
    threshold: i32,
    version: PhantomData<V>,
}

impl<V: Version> Transform for FilterAndEnrich<V> {
    fn describe(config: &Config, _source: Option<&str>) -> Result<Manifest> {
        config.only(&["threshold"])?;
        config.parse::<i32>("threshold")?;
        let reader = Schema::record("shop.Order").field("amount", "double").field("qty", "int");
        Ok(Manifest::stateless("demo", V::NAME).reader_fields(reader))
    }

    fn open(context: &Context) -> Result<Self> {
        Ok(FilterAndEnrich {
            qty: context.field("qty")?,
            amount: context.field("amount")?,
            threshold: context.config.parse_or("threshold", 50)?,
            version: PhantomData,
        })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        if row.get(self.qty) < self.threshold {
            return out.drop(row);
        }
        row.set(self.amount, row.get(self.amount) * V::FACTOR)?;
        out.keep_with(row, &With::new().headers(&[HeaderEdit::set("version", V::NAME.as_bytes())]))
    }
}
