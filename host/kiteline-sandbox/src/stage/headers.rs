//! Edits of headers: done in order on a copy of the source's list. The copy is of descriptions, names and values that stay are spans
//! into the source. Every step is charged, since a few bytes can ask for a long list to be searched again and again.

use kiteline_avro::{EntryCheck, EntryError};
use kiteline_engine::record::{Header, OWN, OutputRecord, Record, Span};

use super::entry::Work;
use crate::buffers::{NULL, i64_at, slot_at};

/// Bytes of an edit: operation, name slot, value slot.
const EDIT_BYTES: usize = 24;
/// What one header costs of a batch's budget beside its bytes: its description here and its framing in the sink.
const HEADER_COST: u64 = 16;

/// Puts the source's headers with the edits at `(off, count)` applied behind the other edited headers, and tells the output.
pub(super) fn edit(
    work: &mut Work<'_>,
    (off, count): (u32, u32),
    record: &Record,
    output: &mut OutputRecord,
) -> Result<(), EntryError> {
    let refs = work.refs;
    let edits = refs.frames(off, EDIT_BYTES as u32, count)?;
    let at = work.out.headers.len();
    let source = work.source;
    let originals = source.headers_of(record);
    work.charge(HEADER_COST * originals.len() as u64)?;
    work.out.headers.extend_from_slice(originals);
    for edit in edits.as_chunks::<EDIT_BYTES>().0 {
        work.charge(HEADER_COST)?;
        let (name_off, name_len) = slot_at(edit, 8);
        let name = refs.bytes(name_off, name_len)?;
        match i64_at(edit, 0) {
            0 => append(work, name, edit)?,
            1 => {
                remove(work, at, name)?;
                append(work, name, edit)?;
            }
            2 => remove(work, at, name)?,
            3 => work.out.headers.truncate(at),
            _ => return Err(EntryCheck::Range.into()),
        }
    }
    let number = |count: usize| u32::try_from(count).map_err(|_| EntryCheck::TooLarge);
    output.headers_at = number(at)?;
    output.headers_count = number(work.out.headers.len() - at)?;
    output.headers_kept = false;
    Ok(())
}

fn append(work: &mut Work<'_>, name: &[u8], edit: &[u8]) -> Result<(), EntryError> {
    let (off, len) = slot_at(edit, 16);
    let refs = work.refs;
    let name = work.copy(name)?;
    let value = if len == NULL { Span::NULL } else { work.copy(refs.bytes(off, len)?)? };
    work.out.headers.push(Header { name, value });
    Ok(())
}

/// Removes all headers of that name, from `at` on.
fn remove(work: &mut Work<'_>, at: usize, name: &[u8]) -> Result<(), EntryError> {
    let listed = work.out.headers.len() - at;
    work.charge(listed as u64 * (1 + name.len() as u64))?;
    let (source, own) = (&work.source.bytes, &work.out.bytes);
    let mut to = at;
    for from in at..work.out.headers.len() {
        let header = work.out.headers[from];
        let its = match header.name {
            Span { off, len } if off >= OWN => Span { off: off - OWN, len }.of(own),
            span => span.of(source),
        };
        if its != Some(name) {
            work.out.headers[to] = header;
            to += 1;
        }
    }
    work.out.headers.truncate(to);
    Ok(())
}
