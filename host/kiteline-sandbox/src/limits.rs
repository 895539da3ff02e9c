//! Every bound of the sandbox, with its default, its range and the reason. Units are in the names. What crosses the boundary
//! to a guest is in `open-context.limits`; the rest is the host's own business.

use std::path::PathBuf;

use crate::error::Error;

/// Revision of both buffers that this host writes and reads.
pub const LAYOUT_REVISION: u32 = 1;
/// Most ports of a plugin (contract.md, "Layouts and frames").
pub const PORTS_MAX: usize = 64;
/// Most writer schemas of one deployment; each costs one compiled plan per use. A topic has a handful in its life.
pub const WRITERS_MAX: usize = 1_024;
/// Log lines kept of one batch.
pub const LOG_LINES_MAX: usize = 64;
/// Different counters of one instance.
pub const COUNTERS_MAX: usize = 32;
/// Longest name of a counter in bytes.
pub const COUNTER_BYTES_MAX: usize = 48;
/// Bytes of stack that host code may need on top of a guest's: an import called at the guest's deepest point encodes nested
/// values there.
pub const HOST_STACK_BYTES: usize = 256 << 10;

/// Bounds of the whole sandbox, fixed when the process starts.
#[derive(Clone, Debug)]
pub struct RuntimeLimits {
    /// Instances alive at a time, over all pipelines and workers. Each reserves 4 GiB of address space (not memory), so that
    /// no memory access of a guest needs a bounds check.
    pub instances_max: u32,
    /// Hard wall for one linear memory, in bytes; [`CallLimits::memory_bytes_max`] is at most this.
    pub memory_bytes_max: u64,
    /// Stack of a guest in bytes. Threads that run guests need this and [`HOST_STACK_BYTES`], which is checked.
    pub stack_bytes: usize,
    /// Size of a component in bytes. The largest known tool chain, Python, makes 18.5 MB.
    pub component_bytes_max: usize,
    /// Time for one of: instantiate, `describe`, `open`, `flush`, in milliseconds. Interpreters need some to start.
    pub start_deadline_ms: u32,
    /// Folder for compiled code, none to compile at each start. It must be writable for its owner only.
    pub cache_dir: Option<PathBuf>,
}

impl Default for RuntimeLimits {
    fn default() -> Self {
        Self {
            instances_max: 128,
            memory_bytes_max: 64 << 20,
            stack_bytes: 512 << 10,
            component_bytes_max: 64 << 20,
            start_deadline_ms: 5_000,
            cache_dir: None,
        }
    }
}

impl RuntimeLimits {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { instances_max, memory_bytes_max, stack_bytes, component_bytes_max, start_deadline_ms, cache_dir: _ } =
            self;
        // 8,192 instances reserve 32 TiB, a quarter of what a process can address
        range("instances_max", u64::from(*instances_max), 1, 8_192)?;
        range("memory_bytes_max", *memory_bytes_max, 64 << 10, 4 << 30)?;
        range("stack_bytes", *stack_bytes as u64, 64 << 10, 64 << 20)?;
        range("component_bytes_max", *component_bytes_max as u64, 8, 1 << 30)?;
        range("start_deadline_ms", u64::from(*start_deadline_ms), 1, 600_000)
    }
}

/// Bounds of one transform. All but the memory are told to the guest in `open-context.limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Rows of one call.
    pub batch_records_max: u32,
    /// Bytes of one input buffer. A record that alone needs more is undecodable, code 8.
    pub batch_bytes_max: u32,
    /// Bytes of all output buffers of one call.
    pub emit_bytes_max: u32,
    /// Entries of all output buffers of one call.
    pub emit_entries_max: u32,
    /// Work of one call's outputs in bytes: encoded, patched and kept ones, at least one per element and entry.
    pub output_bytes_max: u32,
    /// Bytes of one output, key and headers included; the broker's own limit.
    pub record_bytes_max: u32,
    /// Depth of values, both ways.
    pub depth_max: u32,
    /// Time of one call of `process` with the host's work in it, in milliseconds.
    pub call_deadline_ms: u32,
    /// Bytes of all memories and tables of one instance together.
    pub memory_bytes_max: u64,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            batch_records_max: 256,
            batch_bytes_max: 4 << 20,
            emit_bytes_max: 8 << 20,
            emit_entries_max: 65_536,
            output_bytes_max: 32 << 20,
            record_bytes_max: 1 << 20,
            depth_max: 64,
            call_deadline_ms: 100,
            memory_bytes_max: 64 << 20,
        }
    }
}

impl CallLimits {
    /// `memory_wall`: [`RuntimeLimits::memory_bytes_max`].
    pub(crate) fn check(&self, memory_wall: u64) -> Result<(), Error> {
        let Self {
            batch_records_max,
            batch_bytes_max,
            emit_bytes_max,
            emit_entries_max,
            output_bytes_max,
            record_bytes_max,
            depth_max,
            call_deadline_ms,
            memory_bytes_max,
        } = *self;
        range("batch_records_max", batch_records_max.into(), 1, 65_536)?;
        // Offsets of references below 2^31 mean the input buffer, those above the output buffer.
        range("batch_bytes_max", batch_bytes_max.into(), 1 << 10, 1 << 30)?;
        range("emit_bytes_max", emit_bytes_max.into(), 64, 1 << 30)?;
        range("emit_entries_max", emit_entries_max.into(), 1, 1 << 24)?;
        range("output_bytes_max", output_bytes_max.into(), 64, 1 << 30)?;
        range("record_bytes_max", record_bytes_max.into(), 1, 1 << 30)?;
        // The encoder walks nested values on the stack that HOST_STACK_BYTES reserves.
        range("depth_max", depth_max.into(), 1, 256)?;
        range("call_deadline_ms", call_deadline_ms.into(), 1, 600_000)?;
        range("memory_bytes_max", memory_bytes_max, 64 << 10, memory_wall)
    }
}

fn range(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), Error> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(Error::Limit { name, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_bounds_hold() {
        RuntimeLimits::default().check().expect("defaults are legal");
        CallLimits::default().check(RuntimeLimits::default().memory_bytes_max).expect("defaults are legal");
        let zero = CallLimits { call_deadline_ms: 0, ..CallLimits::default() };
        assert_eq!(
            zero.check(64 << 20).expect_err("0 ms is refused").to_string(),
            "limit call_deadline_ms is 0, allowed are 1 to 600000"
        );
        let wide = CallLimits { memory_bytes_max: 128 << 20, ..CallLimits::default() };
        assert_eq!(
            wide.check(64 << 20).expect_err("the wall holds").to_string(),
            "limit memory_bytes_max is 134217728, allowed are 65536 to 67108864"
        );
    }
}
