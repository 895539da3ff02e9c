//! The truth about every record: what has to come of it, what has come of it, and in which order.
//!
//! Held outside of every process, so that no crash loses it. The checkers of gap, order and revision ask it.

use kiteline_engine::ids::Revision;

use crate::{dice::mix, logs::Log};

/// What the plugin makes of a record; follows from its name, whatever the revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// Outputs; 0 without rejection is a drop.
    pub(crate) outputs: u8,
    /// The guest rejects it: it becomes a dead letter.
    pub(crate) rejected: bool,
    /// The sink refuses its outputs for good: they become a dead letter.
    pub(crate) refused: bool,
}

impl Fate {
    /// Outputs that must reach the sink.
    pub(crate) fn wanted(self) -> u8 {
        if self.refused { 0 } else { self.outputs }
    }

    /// Whether it must reach the dead letters.
    pub(crate) fn dead_letter(self) -> bool {
        self.rejected || self.refused
    }
}

/// One record's account.
#[derive(Debug)]
struct Account {
    data: bool,
    fate: Fate,
    /// Sessions and revisions under which a plugin answered for it.
    handled: Vec<(i64, Revision)>,
    /// Outputs that are in the sink, by number.
    landed: u8,
    dead_lettered: bool,
    /// Lost with the log and said so: nothing has to come of it any more.
    excused: bool,
}

impl Account {
    fn complete(&self) -> bool {
        !self.data
            || self.excused
            || (!self.handled.is_empty()
                && self.landed.count_ones() == u32::from(self.fate.wanted())
                && (self.dead_lettered || !self.fate.dead_letter()))
    }
}

/// The accounts of one partition.
#[derive(Debug)]
pub(crate) struct Ledger {
    accounts: Vec<Account>,
    /// Below it, everything has been complete at some time; only rises.
    complete: i64,
    /// Below it, every output that must be in the sink has appeared there.
    appeared: i64,
    /// How many outputs came to the sink again.
    pub(crate) repeats: u64,
}

impl Ledger {
    /// An empty account for each record of a log.
    pub(crate) fn new(seed: u64, partition: usize, log: &Log) -> Self {
        let account = |(offset, data): (usize, &bool)| {
            let drawn = mix(seed ^ ((partition as u64) << 40) ^ offset as u64);
            let outputs = [1, 1, 1, 0, 0, 2, 3, 1][(drawn % 8) as usize];
            let rejected = (drawn >> 8).is_multiple_of(12);
            let refused = !rejected && outputs > 0 && (drawn >> 16).is_multiple_of(20);
            Account {
                data: *data,
                fate: Fate { outputs: if rejected { 0 } else { outputs }, rejected, refused },
                handled: Vec::new(),
                landed: 0,
                dead_lettered: false,
                excused: (offset as i64) < log.start,
            }
        };
        Self { accounts: log.data.iter().enumerate().map(account).collect(), complete: 0, appeared: 0, repeats: 0 }
    }

    fn account(&mut self, offset: i64) -> &mut Account {
        &mut self.accounts[usize::try_from(offset).expect("a record's offset")]
    }

    /// What has to come of a record.
    pub(crate) fn fate(&self, offset: i64) -> Fate {
        self.accounts[usize::try_from(offset).expect("a record's offset")].fate
    }

    /// A plugin has answered for it.
    pub(crate) fn handled(&mut self, offset: i64, session: i64, revision: Revision) {
        let handled = &mut self.account(offset).handled;
        if !handled.contains(&(session, revision)) {
            handled.push((session, revision));
        }
    }

    /// First record of `from..until` for which no plugin of that revision answered in that session.
    pub(crate) fn not_handled_by(&self, from: i64, until: i64, by: (i64, Revision)) -> Option<i64> {
        (from..until).find(|o| {
            let account = &self.accounts[usize::try_from(*o).expect("not negative")];
            account.data && !account.excused && !account.handled.contains(&by)
        })
    }

    /// Output `number` of a record is in the sink now. An error says that it came before one that must be first.
    pub(crate) fn landed(&mut self, offset: i64, number: u8) -> Result<(), String> {
        while self.appeared < offset {
            let account = &self.accounts[usize::try_from(self.appeared).expect("not negative")];
            let all = account.landed.count_ones() == u32::from(account.fate.wanted());
            if account.data && !account.excused && !all {
                return Err(format!(
                    "output {number} of record {offset} is in the sink before record {} is",
                    self.appeared
                ));
            }
            self.appeared += 1;
        }
        let account = self.account(offset);
        if account.landed & (1 << number) != 0 {
            self.repeats += 1;
        } else if u32::from(number) != account.landed.count_ones() && !account.excused {
            return Err(format!("output {number} of record {offset} is in the sink before its siblings"));
        }
        self.account(offset).landed |= 1 << number;
        Ok(())
    }

    /// A record is in the dead letters now.
    pub(crate) fn dead_lettered(&mut self, offset: i64) {
        self.account(offset).dead_lettered = true;
    }

    /// These are lost with the log, and people were told.
    pub(crate) fn excuse(&mut self, from: i64, until: i64) {
        for offset in from..until.min(self.accounts.len() as i64) {
            self.account(offset).excused = true;
        }
    }

    /// First record that has not come to its end.
    pub(crate) fn complete_until(&mut self) -> i64 {
        while self.accounts.get(usize::try_from(self.complete).expect("not negative")).is_some_and(Account::complete) {
            self.complete += 1;
        }
        self.complete
    }
}
