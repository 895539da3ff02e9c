//! The engine that all plugins of a process run on: its settings (measured, see docs of [`config`]), the clock of deadlines, the pool
//! of instances, and the way from bytes to a [`Plugin`]. Not here: anything of one plugin or pipeline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use wasmtime::{
    Config, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig,
    component::{Component, Linker},
};

use crate::{
    cache::Cache,
    error::Error,
    host::{self, State},
    inspect::inspect,
    limiter::{CORE_INSTANCES_MAX, MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX},
    limits::RuntimeLimits,
    plugin::Plugin,
    wit::since_v0_1_0::RowsPre,
};

/// Stack of the thread that compiles. Deeply nested functions need it; address space only, memory as it is used.
const COMPILE_STACK_BYTES: usize = 32 << 20;
/// Most ticks made up for in one go. After a pause of the whole machine no call shall find its time gone at once.
const CATCH_UP_MAX: u64 = 20;

/// The engine of a process. Cheap to clone; the ticking thread ends with the last clone and plugin.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    linker: Linker<State>,
    limits: RuntimeLimits,
    ticks: Ticks,
    cache: Option<Cache>,
}

/// Milliseconds since the runtime began, as its ticking thread counts them: the same clock as the deadlines of guests, and
/// cheap enough to be asked for each entry of an output.
#[derive(Clone, Debug)]
pub(crate) struct Ticks(Arc<AtomicU64>);

impl Ticks {
    /// Now. Only differences mean something.
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Runtime {
    /// Makes the engine and starts its clock.
    ///
    /// # Errors
    ///
    /// A limit out of range, a cache folder that cannot be trusted, or an engine that this machine cannot have (no address space).
    pub fn new(limits: RuntimeLimits) -> Result<Self, Error> {
        limits.check()?;
        let host =
            |call: &'static str| move |error: wasmtime::Error| Error::Host { call, reason: format!("{error:#}") };
        let engine = Engine::new(&config(&limits)).map_err(host("engine"))?;
        let mut linker = Linker::new(&engine);
        host::link(&mut linker).map_err(host("link"))?;
        let cache = limits.cache_dir.as_deref().map(Cache::open).transpose()?;
        let ticks = Ticks(Arc::default());
        let (weak, counter) = (engine.weak(), ticks.clone());
        thread::Builder::new()
            .name("kiteline-ticks".into())
            .spawn(move || tick(&weak, &counter))
            .map_err(|error| Error::Host { call: "start of the ticking thread", reason: error.to_string() })?;
        Ok(Self { inner: Arc::new(Inner { engine, linker, limits, ticks, cache }) })
    }

    /// Checks a component, compiles it or takes its compiled code from the cache, and links it. Nothing of it runs.
    ///
    /// # Errors
    ///
    /// One error per reason why a file is no plugin of this host; see [`crate::inspect`].
    pub fn load(&self, bytes: &[u8]) -> Result<Plugin, Error> {
        let bytes_max = self.inner.limits.component_bytes_max;
        if bytes.len() > bytes_max {
            return Err(Error::TooLarge { bytes: bytes.len(), bytes_max });
        }
        let inspection = inspect(bytes)?;
        if let Some(refusal) = inspection.refusal {
            return Err(refusal);
        }
        let component = self.component(bytes, &inspection.digest)?;
        let refuse = |error: wasmtime::Error| Error::Compile { reason: format!("{error:#}") };
        let linked = self.inner.linker.instantiate_pre(&component).map_err(refuse)?;
        let pre = RowsPre::new(linked).map_err(refuse)?;
        Ok(Plugin::new(self.clone(), pre, inspection.digest))
    }

    fn component(&self, bytes: &[u8], digest: &str) -> Result<Component, Error> {
        let Inner { engine, cache, .. } = &*self.inner;
        if let Some(component) = cache.as_ref().and_then(|cache| cache.load(engine, digest)) {
            return Ok(component);
        }
        let compiled = thread::scope(|scope| {
            thread::Builder::new()
                .name("kiteline-compile".into())
                .stack_size(COMPILE_STACK_BYTES)
                .spawn_scoped(scope, || Component::from_binary(engine, bytes))
                .map_err(|error| Error::Host { call: "start of the compiling thread", reason: error.to_string() })?
                .join()
                .map_err(|_| Error::Compile { reason: "the compiler panicked".into() })?
                .map_err(|error| Error::Compile { reason: format!("{error:#}") })
        })?;
        if let Some(cache) = cache {
            // a cache that cannot be written costs time at the next start, nothing else
            let _ = cache.store(engine, digest, &compiled);
        }
        Ok(compiled)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn limits(&self) -> &RuntimeLimits {
        &self.inner.limits
    }

    pub(crate) fn ticks(&self) -> &Ticks {
        &self.inner.ticks
    }
}

/// Settings of the data path. Without concurrency support a call costs 0.35 us instead of 0.87; epochs cost up to 8 ns a
/// record, fuel up to 12; with the full reservation of 4 GiB per memory there are no bounds checks, which cost 40 to 55 % of
/// a guest's time; a pooled instance is made in 12 us instead of 25.
fn config(limits: &RuntimeLimits) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(limits.instances_max)
        .total_core_instances(limits.instances_max.saturating_mul(8))
        .total_memories(limits.instances_max)
        .total_tables(limits.instances_max.saturating_mul(8))
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_memory_size(usize::try_from(limits.memory_bytes_max).unwrap_or(usize::MAX));
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .memory_reservation(4 << 30)
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(limits.stack_bytes);
    config
}

/// Advances the engine's epoch and the counter by one for each millisecond that passed, until the engine is gone.
fn tick(engine: &EngineWeak, ticks: &Ticks) {
    let start = Instant::now();
    let mut seen = 0;
    loop {
        thread::sleep(Duration::from_millis(1));
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let passed = now.saturating_sub(seen).min(CATCH_UP_MAX);
        seen = now;
        ticks.0.fetch_add(passed, Ordering::Relaxed);
        (0..passed).for_each(|_| engine.increment_epoch());
    }
}
