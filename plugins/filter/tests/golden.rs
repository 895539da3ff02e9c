//! The golden files, natively.

use filter::Filter;
use kiteline_guest::testing;

#[test]
fn golden() {
    testing::golden::<Filter>(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), include_str!("../../order.avsc"));
}
