//! Encoding: frames that a guest wrote become Avro data. Owns the encoder of new rows and the machine that patches use for their values; a frame is
//! hostile in every byte, so each slot is checked before it is used. Which entry goes where is not known here.

mod compile;
mod program;
mod run;

use std::sync::Arc;

use crate::error::SchemaError;
use crate::layout::Layout;
use crate::limits::Limits;
use crate::refs::{Budget, EntryCheck, EntryError, Refs};
use crate::schema::{Schema, SchemaId};

pub(crate) use compile::{Compiler, TooBig, choose, match_fields};
pub(crate) use program::Program;
pub(crate) use run::{Sink, SinkLimits};

/// Encodes frames of a schema's layout as data of that schema. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Encoder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    layout: Layout,
    program: Program,
    /// Block of the root's frame.
    root: u32,
    limits: SinkLimits,
}

impl Encoder {
    /// Compiles the encoder of `schema`.
    ///
    /// # Errors
    ///
    /// If the layout of the schema is refused, or the program would have more than `limits.program_ops_max` operations.
    pub fn compile(schema: &Schema, limits: &Limits) -> Result<Encoder, SchemaError> {
        let layout = Layout::new(schema)?;
        let mut compiler = Compiler::new(&layout, schema, limits.program_ops_max);
        let root = compiler.block(0, SchemaId::ROOT);
        let program = compiler.finish().map_err(|TooBig { what, max }| SchemaError::Limit {
            path: schema.describe(SchemaId::ROOT),
            what,
            max: max.into(),
        })?;
        let limits = SinkLimits::new(limits);
        Ok(Encoder { inner: Arc::new(Inner { layout, program, root, limits }) })
    }

    /// The layout of the frames.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    /// Bytes of the frame that [`Encoder::encode`] takes.
    #[must_use]
    pub fn frame_bytes(&self) -> u32 {
        self.inner.layout.node(0).frame_bytes()
    }

    /// Appends the datum of the root frame `frame` to `out`; what its slots point at comes from `refs`. The work is charged to `budget`, also that of a
    /// frame that fails: encoded bytes, one for each element without bytes, at least one. If the budget does not suffice, nothing of it is left.
    ///
    /// # Errors
    ///
    /// The entry check that failed; then `out` has its former length.
    pub fn encode(
        &self,
        refs: &Refs<'_>,
        frame: &[u8],
        out: &mut Vec<u8>,
        budget: &mut Budget,
    ) -> Result<(), EntryError> {
        let Inner { program, root, limits, .. } = &*self.inner;
        let mut sink = Sink::new(refs, out, budget, *limits);
        let result = if frame.len() == self.frame_bytes() as usize {
            program.run(*root, frame, 0, &mut sink)
        } else {
            Err(EntryCheck::Length.into())
        };
        sink.finish(result)
    }
}
