//! The demo plugin, version 1: amounts times 1.1, stamped `v1`.

use demo::{FilterAndEnrich, Version};

/// What makes it this version.
pub struct V1;

impl Version for V1 {
    const NAME: &'static str = "v1";
    const FACTOR: f64 = 1.1;
}

kiteline_guest::export!(FilterAndEnrich<V1>);
