//! The golden files, natively.

use faulty_loop_forever::LoopForever;
use kiteline_guest::testing;

#[test]
fn golden() {
    testing::golden::<LoopForever>(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), include_str!("../../../order.avsc"));
}
