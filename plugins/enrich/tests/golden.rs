//! The golden files, natively.

use enrich::Enrich;
use kiteline_guest::testing;

#[test]
fn golden() {
    testing::golden::<Enrich>(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), include_str!("../../order.avsc"));
}
