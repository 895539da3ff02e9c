//! The golden files, natively.

use kiteline_guest::testing;
use stamp::Stamp;

#[test]
fn golden() {
    testing::golden::<Stamp>(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), include_str!("../../order.avsc"));
}
