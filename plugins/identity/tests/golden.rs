//! The golden files, natively.

use identity::Identity;
use kiteline_guest::testing;

#[test]
fn golden() {
    testing::golden::<Identity>(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), include_str!("../../order.avsc"));
}
