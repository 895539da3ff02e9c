//! One batch: reads the header, calls the author's function for each row, hands the outputs over. The same code natively and in the sandbox.

use crate::{
    arena::Arena,
    buffer::{Buffer, PIECE_BYTES},
    context::Context,
    error::{EmitError, Error, Fault, Result},
    out::Out,
    read::{Memory, text, u32_at, u64_at},
    row::{Batch, PREFIX_BYTES, Row},
    transform::Transform,
};
use std::cell::RefCell;

const MAGIC: &[u8; 4] = b"KLR1";
const HEADER_BYTES: usize = 48;

/// An opened transform with its buffers, which are kept from batch to batch.
pub struct Running<T> {
    transform: T,
    context: Context,
    buffer: RefCell<Buffer>,
    piece_bytes: usize,
}

/// The header of an input buffer.
struct Header {
    rows: u32,
    stride: usize,
    rows_at: usize,
    heap_at: usize,
    partition: u32,
    base_offset: i64,
    topic: (u32, u32),
}

impl Header {
    fn read(batch: &[u8], frame_bytes: usize) -> Result<Header> {
        if batch.len() < HEADER_BYTES || &batch[..4] != MAGIC {
            return Err(Error::new("the batch does not begin with KLR1: this plugin reads row layout revision 1"));
        }
        let word = |at: usize| u32_at(batch, at);
        let header = Header {
            rows: word(4),
            stride: word(8) as usize,
            rows_at: word(12) as usize,
            heap_at: word(16) as usize,
            partition: word(24),
            base_offset: u64_at(batch, 32) as i64,
            topic: (word(40), word(44)),
        };
        let rows_end = header.rows_at + header.rows as usize * header.stride;
        if word(20) as usize != batch.len() || header.heap_at > batch.len() || rows_end > header.heap_at {
            return Err(Error::new("the batch's header does not fit its length"));
        }
        if header.stride != PREFIX_BYTES + frame_bytes {
            return Err(Error::new("the batch's rows do not have the size of the layout given in open"));
        }
        Ok(header)
    }
}

impl<T: Transform> Running<T> {
    /// Opens the transform.
    pub fn open(context: Context) -> Result<Running<T>> {
        let transform = T::open(&context)?;
        // half of what a batch may emit, so that a host with tight limits still gets several pieces
        let piece_bytes = PIECE_BYTES.min(context.limits.emit_bytes_max as usize / 2);
        Ok(Running { transform, context, buffer: RefCell::new(Buffer::output()), piece_bytes })
    }

    /// Runs one batch. `batch` may lie at any address; its rows are changed in place, its heap is not.
    pub fn process(
        &mut self,
        batch: &mut [u8],
        emit: &mut dyn FnMut(&[u8]) -> std::result::Result<(), EmitError>,
    ) -> std::result::Result<(), Fault> {
        let Running { transform, context, buffer, piece_bytes } = self;
        let whole = |error: Error| Fault { at: None, message: error.message().to_owned() };
        let frame_bytes = context.input.node(0).frame_bytes() as usize;
        let header = Header::read(batch, frame_bytes).map_err(whole)?;
        let (front, heap) = batch.split_at_mut(header.heap_at);
        let arena = Arena::default();
        let (heap, heap_at) = (&*heap, header.heap_at as u32);
        let memory = Memory { heap, heap_at, out: &[], out_at: 0, arena: &arena, layout: &context.input };
        let shared = Batch {
            heap,
            heap_at,
            topic: text(memory.bytes(header.topic.0, header.topic.1 as usize)),
            partition: header.partition,
            base_offset: header.base_offset,
            layout: &context.input,
            key: context.key.as_ref(),
            arena: &arena,
            buffer,
        };
        buffer.borrow_mut().begin_batch(header.rows);
        let mut out = Out::new(buffer, &context.ports, emit);
        let rows = &mut front[header.rows_at..header.rows_at + header.rows as usize * header.stride];
        for (index, bytes) in rows.chunks_exact_mut(header.stride).enumerate() {
            let mut row = Row::new(bytes, index as u32, &shared);
            buffer.borrow_mut().begin_row();
            let result = call(transform, &mut row, &mut out);
            let result = result.or_else(|error| {
                buffer.borrow_mut().withdraw();
                out.reject_index(index as u32, error.code(), error.message())
            });
            buffer.borrow_mut().end_row();
            let result = result.and_then(|()| out.between_rows(*piece_bytes));
            if result.is_err() || out.refused().is_some() {
                return Err(refused(&out, buffer, context, index as u32));
            }
        }
        out.between_rows(0).map_err(|_| refused(&out, buffer, context, u32::MAX))
    }

    /// Last call.
    pub fn flush(&mut self) -> Result {
        self.transform.flush()
    }
}

fn call<T: Transform>(transform: &mut T, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
    if row.decode_error().is_some() {
        transform.undecodable(row, out)
    } else if row.is_tombstone() {
        transform.tombstone(row, out)
    } else {
        transform.record(row, out)
    }
}

/// The fault of a refused `emit`. A row is named only where its outputs alone pass a limit: else the batch as a whole was too much.
fn refused(out: &Out<'_>, buffer: &RefCell<Buffer>, context: &Context, index: u32) -> Fault {
    let (entries, bytes) = buffer.borrow().row_cost();
    let alone = match out.refused() {
        Some(EmitError::BytesLimit) => bytes > context.limits.emit_bytes_max as usize,
        Some(EmitError::EntriesLimit) => entries > context.limits.emit_entries_max,
        _ => false,
    };
    let message = out.refused().map_or_else(|| "an output could not be written".to_owned(), ToString::to_string);
    Fault { at: (alone && index != u32::MAX).then_some(index), message }
}
