//! The demo plugin, version 2: amounts times 1.2, stamped `v2`.

use demo::{FilterAndEnrich, Version};

/// What makes it this version.
pub struct V2;

impl Version for V2 {
    const NAME: &'static str = "v2";
    const FACTOR: f64 = 1.2;
}

kiteline_guest::export!(FilterAndEnrich<V2>);
