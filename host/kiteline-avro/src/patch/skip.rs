//! Walks over a producer's datum without reading more of it than its shape: the program and its run.
//!
//! The ops stand in the writer's order with structs and unions in place, so a place in the datum is a place in the program, and to walk to a field
//! is to run until its op. A jump over that op says that the field lies beneath a null (or in another branch). The datum comes from a
//! producer: nothing in it is trusted, and an answer of [`Broken`] says that it does not have the shape of its schema.

/// One step over the datum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Skip {
    /// Takes nothing: the place of a field without bytes.
    Nothing,
    /// This many bytes.
    Bytes(u32),
    /// This many longs, ints or enum indexes.
    Longs(u32),
    /// A length and as many bytes.
    Counted,
    /// A union of null and one other branch: goes to `to` if the branch is `null`, on if it is the other one.
    Nullable { null: u8, to: u32 },
    /// Any other union: goes to `branches[table + branch]`.
    Union { table: u32, count: u32 },
    /// Goes on at `to`.
    Jump { to: u32 },
    /// Array or map: elements of this block.
    Items { block: u32 },
    /// A struct inside itself.
    Call { block: u32 },
}

/// A run of ops: the datum itself is block 0, elements and recursive structs have blocks of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SkipBlock {
    pub(super) start: u32,
    pub(super) end: u32,
    /// The block takes no bytes, whatever the datum.
    pub(super) empty: bool,
}

/// A program of skips, and the bounds of its run.
#[derive(Debug, Default)]
pub(super) struct SkipProgram {
    pub(super) ops: Vec<Skip>,
    pub(super) blocks: Vec<SkipBlock>,
    pub(super) branches: Vec<u32>,
    pub(super) depth_max: u32,
    pub(super) empty_items_max: u32,
}

/// The datum does not have the shape of its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// A place in a datum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk<'a> {
    pub(super) datum: &'a [u8],
    pub(super) at: usize,
}

impl Walk<'_> {
    #[inline]
    fn bytes(&mut self, count: u64) -> Result<(), Broken> {
        if count > (self.datum.len() - self.at) as u64 {
            return Err(Broken);
        }
        self.at += count as usize;
        Ok(())
    }

    /// A long: at most ten bytes, the last of them no more than the one bit that is left.
    #[inline]
    fn long(&mut self) -> Result<i64, Broken> {
        let rest = &self.datum[self.at..];
        match rest.first() {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                let bits = u64::from(byte);
                Ok((bits >> 1) as i64 ^ -((bits & 1) as i64))
            }
            _ => self.long_slow(),
        }
    }

    fn long_slow(&mut self) -> Result<i64, Broken> {
        let mut bits = 0_u64;
        for (index, &byte) in self.datum[self.at..].iter().take(10).enumerate() {
            if index == 9 && byte > 1 {
                return Err(Broken);
            }
            bits |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.at += index + 1;
                return Ok((bits >> 1) as i64 ^ -((bits & 1) as i64));
            }
        }
        Err(Broken)
    }

    /// Passes a long without its value.
    #[inline]
    fn pass_long(&mut self) -> Result<(), Broken> {
        self.long().map(|_| ())
    }

    fn counted(&mut self) -> Result<(), Broken> {
        let len = self.long()?;
        self.bytes(u64::try_from(len).map_err(|_| Broken)?)
    }
}

impl SkipProgram {
    /// Runs from op `pc` until op `target` or beyond; the answer is the op that comes next. It is beyond `target` if a jump led over it.
    pub(super) fn run(&self, mut pc: u32, target: u32, depth: u32, walk: &mut Walk<'_>) -> Result<u32, Broken> {
        while pc < target {
            let mut next = pc + 1;
            match self.ops[pc as usize] {
                Skip::Nothing => {}
                Skip::Bytes(count) => walk.bytes(u64::from(count))?,
                Skip::Longs(count) => {
                    for _ in 0..count {
                        walk.pass_long()?;
                    }
                }
                Skip::Counted => walk.counted()?,
                Skip::Nullable { null, to } => match walk.long()? {
                    branch if branch == i64::from(null) => next = to,
                    0 | 1 => {}
                    _ => return Err(Broken),
                },
                Skip::Union { table, count } => {
                    let branch = u32::try_from(walk.long()?).map_err(|_| Broken)?;
                    if branch >= count {
                        return Err(Broken);
                    }
                    next = self.branches[(table + branch) as usize];
                }
                Skip::Jump { to } => next = to,
                Skip::Items { block } => self.items(block, depth, walk)?,
                Skip::Call { block } => {
                    let block = self.blocks[block as usize];
                    self.run(block.start, block.end, self.deeper(depth)?, walk)?;
                }
            }
            pc = next;
        }
        Ok(pc)
    }

    /// All blocks of an array or a map: by their size where the producer gave it, else item by item.
    fn items(&self, block: u32, depth: u32, walk: &mut Walk<'_>) -> Result<(), Broken> {
        let block = self.blocks[block as usize];
        let mut empty_items = 0_u64;
        loop {
            let count = walk.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                walk.counted()?;
                continue;
            }
            let count = count.unsigned_abs();
            if block.empty {
                empty_items = empty_items.saturating_add(count);
                if empty_items > u64::from(self.empty_items_max) {
                    return Err(Broken);
                }
                continue;
            }
            let ops = &self.ops[block.start as usize..block.end as usize];
            if let [Skip::Bytes(size)] = ops {
                walk.bytes(count.checked_mul(u64::from(*size)).ok_or(Broken)?)?;
                continue;
            }
            let depth = self.deeper(depth)?;
            for _ in 0..count {
                self.run(block.start, block.end, depth, walk)?;
            }
        }
    }

    fn deeper(&self, depth: u32) -> Result<u32, Broken> {
        if depth >= self.depth_max {
            return Err(Broken);
        }
        Ok(depth + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ops: &[Skip], datum: &[u8], want: Result<usize, Broken>) {
        let program = SkipProgram {
            ops: ops.iter().copied().chain([Skip::Bytes(2), Skip::Longs(1)]).collect(),
            blocks: vec![
                SkipBlock::default(),
                SkipBlock { start: ops.len() as u32, end: ops.len() as u32 + 1, empty: false },
                SkipBlock { start: ops.len() as u32 + 1, end: ops.len() as u32 + 2, empty: false },
                SkipBlock { start: 0, end: 0, empty: true },
            ],
            branches: vec![],
            depth_max: 64,
            empty_items_max: 100,
        };
        let mut walk = Walk { datum, at: 0 };
        let got = program.run(0, ops.len() as u32, 0, &mut walk).map(|_| walk.at);
        assert_eq!(got, want, "{ops:?} {datum:02x?}");
    }

    #[test]
    fn walks_stay_inside_the_datum() {
        let two = Skip::Items { block: 1 };
        let longs = Skip::Items { block: 2 };
        let none = Skip::Items { block: 3 };
        let cases: &[(&[Skip], &[u8], Result<usize, Broken>)] = &[
            (&[Skip::Bytes(3)], &[1, 2, 3], Ok(3)),
            (&[Skip::Bytes(3)], &[1, 2], Err(Broken)),
            (&[Skip::Longs(2)], &[0x80, 1, 2], Ok(3)),
            (&[Skip::Longs(1)], &[0x80], Err(Broken)),
            (&[Skip::Longs(1)], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1], Ok(10)),
            (&[Skip::Longs(1)], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2], Err(Broken)),
            (&[Skip::Longs(1)], &[128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 1], Err(Broken)),
            (&[Skip::Counted], &[4, b'a', b'b'], Ok(3)),
            (&[Skip::Counted], &[4, b'a'], Err(Broken)),
            (&[Skip::Counted], &[1], Err(Broken)),
            (&[Skip::Counted], &[254, 255, 255, 255, 255, 255, 255, 255, 255, 1], Err(Broken)),
            (&[Skip::Nullable { null: 0, to: 2 }, Skip::Bytes(1)], &[0, 9], Ok(1)),
            (&[Skip::Nullable { null: 0, to: 2 }, Skip::Bytes(1)], &[2, 9], Ok(2)),
            (&[Skip::Nullable { null: 0, to: 2 }, Skip::Bytes(1)], &[4, 9], Err(Broken)),
            (&[Skip::Nullable { null: 1, to: 2 }, Skip::Bytes(1)], &[2, 9], Ok(1)),
            (&[two], &[0], Ok(1)),
            (&[two], &[4, 1, 2, 3, 4, 0], Ok(6)),
            (&[two], &[2, 1, 2, 3, 4, 5, 6, 0], Ok(8)),
            (&[two], &[3, 8, 1, 2, 3, 4, 0], Ok(7)),
            (&[two], &[3, 1, 1, 2, 3, 4, 0], Err(Broken)),
            (&[two], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1], Err(Broken)),
            (&[two], &[254, 255, 255, 255, 255, 255, 255, 255, 255, 1], Err(Broken)),
            (&[longs], &[4, 1, 0x80, 1, 0], Ok(5)),
            (&[longs], &[254, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1], Err(Broken)),
            (&[none], &[200, 1, 0], Ok(3)),
            (&[none], &[200, 1, 2, 0], Err(Broken)),
            (&[none], &[200, 1], Err(Broken)),
        ];
        for (ops, datum, want) in cases {
            check(ops, datum, *want);
        }
    }
}
