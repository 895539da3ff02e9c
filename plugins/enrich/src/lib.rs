//! Multiplies `amount` by `factor`, and routes each order to the topic of its city if told so.
//!
//! Only the eight bytes of `amount` change; every other field, those that this plugin never saw among them, stays as the producer wrote it.
//!
//! | config | default | |
//! | --- | --- | --- |
//! | `factor` | 1.1 | what the amount is multiplied by |
//! | `route` | false | send to `<topic>-<city>`; an order whose city cannot be part of a topic's name is rejected with code 100 |

use kiteline_guest::prelude::*;
use std::fmt::Write;

/// Code of an order that cannot be routed: Kafka's topics are named by letters of ASCII, digits, `.`, `_` and `-`.
pub const NO_CITY: u32 = 100;

/// The transform.
pub struct Enrich {
    amount: Field<f64>,
    city: Field<Text>,
    factor: f64,
    route: bool,
    /// The topic's name, written anew for each record.
    topic: String,
}

impl Transform for Enrich {
    fn describe(config: &Config, _source: Option<&str>) -> Result<Manifest> {
        config.only(&["factor", "route"])?;
        config.parse::<f64>("factor")?;
        config.parse::<bool>("route")?;
        let reader = Schema::record("shop.Order")
            .field("amount", "double")
            .nested("address", Schema::record("shop.Address").field("city", "string"));
        Ok(Manifest::stateless("enrich", env!("CARGO_PKG_VERSION")).reader_fields(reader))
    }

    fn open(context: &Context) -> Result<Self> {
        Ok(Enrich {
            amount: context.field("amount")?,
            city: context.field("address.city")?,
            factor: context.config.parse_or("factor", 1.1)?,
            route: context.config.parse_or("route", false)?,
            topic: String::new(),
        })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        row.set(self.amount, row.get(self.amount) * self.factor)?;
        if !self.route {
            return out.keep(row);
        }
        let city = row.get(self.city);
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if city.is_empty() || !city.bytes().all(fits) {
            return out.reject(row, NO_CITY, &format!("no topic can be named after the order's city {city:?}"));
        }
        self.topic.clear();
        write!(self.topic, "{}-{city}", row.topic())?;
        out.keep_to(row, &self.topic)
    }
}

kiteline_guest::export!(Enrich);
