//! x
pub(crate) mod since_v0_1_0;
