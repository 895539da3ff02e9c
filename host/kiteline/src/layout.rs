//! Paths of the install root: the only place that spells them.
//!
//! Does not own what the files mean, and makes no directory by itself.

use std::path::{Path, PathBuf};

/// Name of the app's file in the root.
pub const CONFIG_FILE: &str = "kiteline.toml";
/// Folder of schemas and properties files.
pub const CONF: &str = "conf";
/// Folder of plugins.
pub const LIB: &str = "lib";
/// Folder of everything that kiteline itself writes.
pub const VAR: &str = "var";
/// Folder below [`VAR`] with one checkpoint folder a pipeline.
pub const CHECKPOINTS: &str = "checkpoints";
/// Folder below [`VAR`] of compiled code; safe to delete.
pub const CACHE: &str = "cache";
/// Sample schema that `init` writes into [`CONF`].
pub const SAMPLE_SCHEMA: &str = "order.avsc";
/// Sample plugin that `init` writes into [`LIB`].
pub const SAMPLE_PLUGIN: &str = "identity.wasm";

/// The folder of one app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// The root at `path`, which need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `path` as the app's file means it: relative ones count from the root.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// The app's file.
    pub fn config_file(&self) -> PathBuf {
        self.0.join(CONFIG_FILE)
    }

    /// Where schemas and properties files are.
    pub fn conf(&self) -> PathBuf {
        self.0.join(CONF)
    }

    /// Where plugins are.
    pub fn lib(&self) -> PathBuf {
        self.0.join(LIB)
    }

    /// The checkpoint folder of a pipeline: the embedded store, or the journal where ZooKeeper is the store.
    pub fn checkpoints(&self, pipeline: &str) -> PathBuf {
        self.0.join(VAR).join(CHECKPOINTS).join(pipeline)
    }

    /// Where compiled code is kept.
    pub fn cache(&self) -> PathBuf {
        self.0.join(VAR).join(CACHE)
    }
}
