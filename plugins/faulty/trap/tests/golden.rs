//! The golden files, natively.

use faulty_trap::Trap;
use kiteline_guest::testing;

#[test]
fn golden() {
    testing::golden::<Trap>(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), include_str!("../../../order.avsc"));
}
