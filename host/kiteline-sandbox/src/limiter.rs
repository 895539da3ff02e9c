//! How much memory an instance may take: one sum over all its memories and tables, so that many small ones are no way
//! around the limit. Not here: the hard wall of one memory, which is the pool's.

use wasmtime::ResourceLimiter;

/// Core instances, tables and memories of one component. wit-component makes 3 or 4 instances of a plugin, a composed one has a
/// few times that; the pool's slots have the same bounds.
pub(crate) const CORE_INSTANCES_MAX: u32 = 32;
/// See [`CORE_INSTANCES_MAX`].
pub(crate) const TABLES_MAX: u32 = 32;
/// See [`CORE_INSTANCES_MAX`].
pub(crate) const MEMORIES_MAX: u32 = 4;
/// Elements of one table: an interpreter's function table has some ten thousand.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 1 << 20;

/// Counts the memory of one instance.
#[derive(Debug)]
pub(crate) struct Limiter {
    bytes: u64,
    bytes_max: u64,
    /// What the last permission added: taken back if the growth fails after all.
    granted: u64,
    refused: bool,
}

impl Limiter {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes: 0, bytes_max, granted: 0, refused: false }
    }

    /// The limit in bytes, if the guest has asked for more: a hint why it broke.
    pub(crate) fn refused(&self) -> Option<u64> {
        self.refused.then_some(self.bytes_max)
    }

    fn grow(&mut self, by: u64, possible: bool) -> bool {
        let sum = self.bytes.saturating_add(by);
        let fits = possible && sum <= self.bytes_max;
        if fits {
            self.bytes = sum;
            self.granted = by;
        } else {
            self.refused = true;
        }
        fits
    }

    fn take_back(&mut self) {
        self.bytes = self.bytes.saturating_sub(std::mem::take(&mut self.granted));
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let by = desired.saturating_sub(current) as u64;
        Ok(self.grow(by, maximum.is_none_or(|maximum| desired <= maximum)))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.take_back();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // one pointer per element, as wasmtime documents
        let by = desired.saturating_sub(current).saturating_mul(size_of::<usize>()) as u64;
        Ok(self.grow(by, maximum.is_none_or(|maximum| desired <= maximum)))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.take_back();
        Ok(())
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_sum() {
        let mut limiter = Limiter::new(3 << 16);
        assert!(limiter.memory_growing(0, 1 << 16, None).expect("no error"));
        assert!(limiter.table_growing(0, (1 << 16) / 8, None).expect("no error"));
        assert_eq!(limiter.refused(), None);
        assert!(!limiter.memory_growing(1 << 16, 3 << 16, None).expect("no error"));
        assert_eq!(limiter.refused(), Some(3 << 16));
        assert!(limiter.memory_growing(0, 1 << 16, None).expect("no error"));
        assert!(!limiter.table_growing(0, 1, None).expect("no error"));
        // a growth that fails after all is no memory
        limiter.memory_grow_failed(wasmtime::Error::msg("no pages")).expect("no error");
        assert!(limiter.table_growing(0, 1, None).expect("no error"));
        assert!(!limiter.memory_growing(0, 1, Some(0)).expect("no error"));
    }
}
