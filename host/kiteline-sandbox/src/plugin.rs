//! A loaded plugin: compiled, checked, linked, named by its digest. Not here: how it is used in a pipeline.

use std::sync::Arc;

use crate::{
    error::Error, host::Console, instance::Instance, limits::CallLimits, manifest::Manifest, runtime::Runtime,
    wit::since_v0_1_0::RowsPre,
};

/// A component that this host takes, ready to be instantiated. Cheap to clone.
#[derive(Clone)]
pub struct Plugin {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Runtime,
    pre: RowsPre<crate::host::State>,
    digest: String,
}

impl Plugin {
    pub(crate) fn new(runtime: Runtime, pre: RowsPre<crate::host::State>, digest: String) -> Self {
        Self { inner: Arc::new(Inner { runtime, pre, digest }) }
    }

    /// `sha256:` and 64 hex digits of the component's bytes.
    pub fn digest(&self) -> &str {
        &self.inner.digest
    }

    /// Asks the plugin in an instance of its own what it is, given the pipeline's settings and the newest writer schema.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the plugin's words (a config error), [`Error::Broke`] if it trapped or took too long, or a
    /// manifest that this host cannot serve.
    pub fn describe(&self, config: &[(String, String)], source_schema: Option<&str>) -> Result<Manifest, Error> {
        let memory_bytes_max = CallLimits::default().memory_bytes_max.min(self.runtime().limits().memory_bytes_max);
        let mut trial = Instance::start(self, memory_bytes_max, Console::default())?;
        let manifest = trial.describe(config, source_schema)?;
        manifest.check()?;
        Ok(manifest)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    pub(crate) fn pre(&self) -> &RowsPre<crate::host::State> {
        &self.inner.pre
    }
}
