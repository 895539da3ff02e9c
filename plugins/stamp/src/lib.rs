//! Stamps every record with a version from its configuration, in a header: what a swap did, and when, can be read from the output.
//!
//! | config | default | |
//! | --- | --- | --- |
//! | `version` | the plugin's own | value of the header |
//! | `header` | `stamped-by` | name of the header |
//! | `append` | false | append one more header instead of replacing those of the name |

use kiteline_guest::prelude::*;

/// The transform.
pub struct Stamp {
    header: String,
    version: String,
    append: bool,
}

impl Transform for Stamp {
    fn describe(config: &Config, _source: Option<&str>) -> Result<Manifest> {
        config.only(&["version", "header", "append"])?;
        config.parse::<bool>("append")?;
        Ok(Manifest::stateless("stamp", env!("CARGO_PKG_VERSION"))
            .reader_fields(Schema::record("shop.Order"))
            .want_tombstones())
    }

    fn open(context: &Context) -> Result<Self> {
        let text = |key, default: &str| context.config.get(key).unwrap_or(default).to_owned();
        Ok(Stamp {
            header: text("header", "stamped-by"),
            version: text("version", env!("CARGO_PKG_VERSION")),
            append: context.config.parse_or("append", false)?,
        })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        let version = self.version.as_bytes();
        let edit = if self.append {
            HeaderEdit::append(&self.header, version)
        } else {
            HeaderEdit::set(&self.header, version)
        };
        out.keep_with(row, &With::new().headers(&[edit]))
    }

    fn tombstone(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        self.record(row, out)
    }
}

kiteline_guest::export!(Stamp);
