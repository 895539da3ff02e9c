//! The golden files, natively.

use fan_out::FanOut;
use kiteline_guest::testing;

#[test]
fn golden() {
    testing::golden::<FanOut>(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), include_str!("../../order.avsc"));
}
