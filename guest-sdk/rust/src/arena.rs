//! A store that only grows, for the few values that must outlive the row's own bytes: a text read back after it was set, a record in
//! place read as a whole. One per batch; it allocates only when used.

use std::cell::{Cell, OnceCell};

/// Entries of a link of the chain; a longer chain is walked, so links are not tiny.
const LINK: usize = 64;

#[derive(Default)]
pub(crate) struct Arena {
    first: OnceCell<Box<Link>>,
}

struct Link {
    kept: [OnceCell<Box<[u8]>>; LINK],
    used: Cell<usize>,
    next: OnceCell<Box<Link>>,
}

impl Link {
    fn new() -> Box<Link> {
        Box::new(Link { kept: [const { OnceCell::new() }; LINK], used: Cell::new(0), next: OnceCell::new() })
    }
}

impl Arena {
    /// Copies bytes to where they stay for the arena's life.
    pub(crate) fn keep(&self, bytes: &[u8]) -> &[u8] {
        let mut link = self.first.get_or_init(Link::new);
        while link.used.get() == LINK {
            link = link.next.get_or_init(Link::new);
        }
        let at = link.used.get();
        link.used.set(at + 1);
        link.kept[at].get_or_init(|| bytes.into())
    }
}
