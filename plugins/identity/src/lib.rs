//! Keeps every record as it is: the least that a plugin can do, and the floor that benchmarks measure from.
//!
//! Reads no field, has no configuration. Value, key, headers and timestamp leave byte for byte as they came.

use kiteline_guest::prelude::*;

/// The transform; it knows nothing.
pub struct Identity;

impl Transform for Identity {
    fn describe(config: &Config, _source: Option<&str>) -> Result<Manifest> {
        config.only(&[])?;
        // a reader schema without fields: the host decodes nothing, and still checks the record
        Ok(Manifest::stateless("identity", env!("CARGO_PKG_VERSION")).reader_fields(Schema::record("shop.Order")))
    }

    fn open(_context: &Context) -> Result<Self> {
        Ok(Identity)
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        out.keep(row)
    }
}

kiteline_guest::export!(Identity);
