//! What an author writes: the trait, with one function per record.

use crate::{
    context::{Config, Context},
    error::{Error, Result},
    manifest::Manifest,
    out::Out,
    row::Row,
};

/// A transform. `export!` makes a plugin of it.
///
/// An `Err` from `record`, `tombstone` or `undecodable` rejects that one record with the error's code (1 if it has none) and text; the
/// batch goes on. A panic is logged with its place and ends the instance.
pub trait Transform: Sized + 'static {
    /// Says what the plugin is, which fields it reads and where its outputs go. Called at deployment, without `open`; it must depend on
    /// its arguments alone. `source_schema`: the topic's newest schema, for transforms that derive theirs from it.
    ///
    /// Errors are shown as errors of the configuration.
    fn describe(config: &Config, source_schema: Option<&str>) -> Result<Manifest>;

    /// Makes the transform: resolves its fields, reads its configuration. Called once per instance.
    fn open(context: &Context) -> Result<Self>;

    /// One record. No word to `out` drops it.
    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result;

    /// A record without a value, if the manifest wants them: kept, unless this is written.
    fn tombstone(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        out.keep(row)
    }

    /// A record that could not be decoded, if the manifest wants them: rejected, unless this is written.
    fn undecodable(&mut self, row: &mut Row<'_>, _out: &mut Out<'_>) -> Result {
        Err(Error::new(format!("the record could not be decoded (decode error {})", row.decode_error().unwrap_or(0))))
    }

    /// Last call before a planned stop, a swap or a rebalance; it cannot emit.
    fn flush(&mut self) -> Result {
        Ok(())
    }
}
