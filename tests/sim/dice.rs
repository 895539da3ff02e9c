//! The only source of chance in the simulator: one generator, seeded, so that a seed is a whole history.
//!
//! splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Not for secrets.

/// A seeded generator.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// All draws follow from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number of `low..=high`.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True in so many of a thousand cases.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        // no draw for what never happens: a plan without a fault keeps the history of the rest
        per_mille > 0 && self.next() % 1000 < per_mille
    }

    /// Any order of the list.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            let j = usize::try_from(self.range(0, i as u64)).expect("an index of the list");
            list.swap(i, j);
        }
    }
}

/// Spreads the bits of a number, so that properties of records can be drawn from their names.
pub(crate) fn mix(n: u64) -> u64 {
    let mut z = n;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
