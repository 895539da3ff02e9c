//! One live instance: a store, the guest in it, and the calls of the contract with their deadlines. Tells a trap from a deadline
//! and both from a failure of the host. Not here: what rows and outputs are.

use wasmtime::{PoolConcurrencyLimitError, Store, Trap};

use crate::{
    error::Error,
    host::{Console, DeadlineInEmit, State},
    limiter::Limiter,
    manifest::Manifest,
    plugin::Plugin,
    stage::Stage,
    text::clean,
    wit::since_v0_1_0::{self as wit, Fault, OpenContext, Rows},
};

/// How a call of `process` ended.
pub(crate) enum Outcome {
    /// The guest is content.
    Ok,
    /// The guest says that the batch failed, and at which row if it knows.
    Fault {
        /// Row of the call.
        at: Option<u32>,
        /// Its words, bounded and escaped.
        message: String,
    },
    /// The guest broke. The instance must not be used again.
    Trap(String),
    /// Time ran out. The instance must not be used again.
    Deadline,
}

/// One live guest. After a trap or a deadline it is thrown away, never called again.
pub(crate) struct Instance {
    store: Store<State>,
    rows: Rows,
    start_deadline_ms: u32,
}

impl Instance {
    /// Instantiates the plugin within its memory limit and the deadline for starts.
    pub(crate) fn start(plugin: &Plugin, memory_bytes_max: u64, console: Console) -> Result<Self, Error> {
        let runtime = plugin.runtime();
        let state = State { limiter: Limiter::new(memory_bytes_max), console, stage: None };
        let mut store = Store::try_new(runtime.engine(), state)
            .map_err(|error| Error::Host { call: "start", reason: format!("{error:#}") })?;
        store.limiter(|state| &mut state.limiter);
        let start_deadline_ms = runtime.limits().start_deadline_ms;
        store.set_epoch_deadline(deadline(start_deadline_ms));
        store.data_mut().console.begin();
        match plugin.pre().instantiate(&mut store) {
            Ok(rows) => Ok(Self { store, rows, start_deadline_ms }),
            Err(error) if error.is::<PoolConcurrencyLimitError>() => {
                Err(Error::NoSlot { instances_max: runtime.limits().instances_max })
            }
            Err(error) if error.is::<Trap>() || store.data().limiter.refused().is_some() => {
                Err(broke("start", &error, store.data()))
            }
            Err(error) => Err(Error::Host { call: "start", reason: format!("{error:#}") }),
        }
    }

    pub(crate) fn describe(
        &mut self,
        config: &[(String, String)],
        source_schema: Option<&str>,
    ) -> Result<Manifest, Error> {
        self.begin(self.start_deadline_ms);
        let said = self.rows.kiteline_transform_transform().call_describe(&mut self.store, config, source_schema);
        Ok(wit::manifest(self.settle("describe", said)?))
    }

    pub(crate) fn open(&mut self, context: &OpenContext) -> Result<(), Error> {
        self.begin(self.start_deadline_ms);
        let said = self.rows.kiteline_transform_transform().call_open(&mut self.store, context);
        self.settle("open", said)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.begin(self.start_deadline_ms);
        let said = self.rows.kiteline_transform_transform().call_flush(&mut self.store);
        self.settle("flush", said)
    }

    /// One call of `process`. What it emits goes to `stage`, which comes back.
    pub(crate) fn process(&mut self, input: &[u8], deadline_ms: u32, stage: Box<Stage>) -> (Box<Stage>, Outcome) {
        self.begin(deadline_ms);
        self.store.data_mut().stage = Some(stage);
        let said = self.rows.kiteline_transform_transform().call_process(&mut self.store, input);
        let stage =
            self.store.data_mut().stage.take().expect("only this function and emit take it, and emit puts it back");
        let outcome = match said {
            Ok(Ok(())) => Outcome::Ok,
            Ok(Err(Fault { at, message })) => Outcome::Fault { at, message: clean(message.as_bytes()) },
            Err(error) if late(&error) => Outcome::Deadline,
            Err(error) => Outcome::Trap(report(&error, self.store.data())),
        };
        (stage, outcome)
    }

    pub(crate) fn console(&mut self) -> &mut Console {
        &mut self.store.data_mut().console
    }

    fn begin(&mut self, deadline_ms: u32) {
        self.store.set_epoch_deadline(deadline(deadline_ms));
        self.store.data_mut().console.begin();
    }

    fn settle<T>(&mut self, call: &'static str, said: wasmtime::Result<Result<T, String>>) -> Result<T, Error> {
        let settled = match said {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(message)) => Err(Error::Refused { call, message: clean(message.as_bytes()) }),
            Err(error) => Err(broke(call, &error, self.store.data())),
        };
        self.store.data_mut().console.end(settled.is_ok());
        settled
    }
}

/// Ticks beyond the current one after which at least `ms` milliseconds have passed: the current one may be almost over.
fn deadline(ms: u32) -> u64 {
    u64::from(ms) + 1
}

fn late(error: &wasmtime::Error) -> bool {
    error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) || error.is::<DeadlineInEmit>()
}

fn broke(call: &'static str, error: &wasmtime::Error, state: &State) -> Error {
    let message = if late(error) { "it passed its deadline".into() } else { report(error, state) };
    Error::Broke { call, message }
}

/// What a person reads about a trap: the guest's last line at `error`, which is where an SDK puts a panic's text, and the
/// trap; and that memory was refused, if it was, since guests seldom say so.
fn report(error: &wasmtime::Error, state: &State) -> String {
    let trap = match error.downcast_ref::<Trap>() {
        Some(trap) => trap.to_string(),
        None => error.root_cause().to_string(),
    };
    let mut text = match state.console.last_error() {
        Some(line) => format!("{line} ({trap})"),
        None => trap,
    };
    if let Some(bytes_max) = state.limiter.refused() {
        text.push_str(&format!("; its memory limit of {bytes_max} bytes was reached"));
    }
    clean(text.as_bytes())
}
