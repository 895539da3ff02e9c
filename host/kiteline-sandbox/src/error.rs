//! Everything that can go wrong here outside the handling of records. What a guest does to a record never ends up in
//! this enum: it becomes an outcome or a rejection. Not here: how an error is printed for people.

use kiteline_avro::{PlanError, SchemaError};

/// Why a plugin was not taken, a transform not deployed, or the host broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file shorter than the header of any component.
    #[error("file of {bytes} bytes is too short to be a component, whose header alone has 8")]
    TooShort {
        /// Length of the file in bytes.
        bytes: usize,
    },
    /// A file that does not begin as webassembly does.
    #[error("file is not webassembly: it begins with {found}, not with 00 61 73 6d")]
    NotWasm {
        /// The first four bytes in hex.
        found: String,
    },
    /// A core module: what a compiler writes before it is made into a component.
    #[error("file is a core module, not a component")]
    CoreModule,
    /// A component, or something like it, of a binary version that this host does not know.
    #[error("file has unknown binary version {version} of layer {layer}; this host knows version 13 of layer 1")]
    BinaryVersion {
        /// Version in the header.
        version: u16,
        /// Layer in the header: 0 is a core module, 1 a component.
        layer: u16,
    },
    /// A file over [`crate::RuntimeLimits::component_bytes_max`].
    #[error("component of {bytes} bytes is larger than the limit of {bytes_max}")]
    TooLarge {
        /// Length of the file in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// A component that does not validate.
    #[error("component is damaged: {reason}")]
    Damaged {
        /// What the validator says.
        reason: String,
    },
    /// A package of interface descriptions: it has a component's header but no code.
    #[error("file holds interface descriptions only, no code")]
    OnlyDescriptions,
    /// A component that exports nothing at all.
    #[error("component is empty: it exports nothing, expected {expected}")]
    Empty {
        /// The interface that was looked for.
        expected: String,
    },
    /// A component of another world of the contract.
    #[error("component is of world {found}, which this host does not run yet; expected world {expected}")]
    WrongWorld {
        /// World that it was built for.
        found: String,
        /// World that this host runs.
        expected: String,
    },
    /// A component without the interface that the host calls.
    #[error("component does not export {expected}; it exports {found}")]
    MissingExport {
        /// The interface that was looked for.
        expected: String,
        /// What it exports instead, by name.
        found: String,
    },
    /// A component of another version of the contract.
    #[error("component is built for {found}, this host speaks {expected}")]
    Version {
        /// Interface and version of the component.
        found: String,
        /// Interface and version of this host.
        expected: String,
    },
    /// A component that wants system interfaces, which nobody granted.
    #[error("component imports {import} ({more} more of WASI), and nothing of WASI is granted to a plugin")]
    Wasi {
        /// The first such import.
        import: String,
        /// How many more there are.
        more: usize,
    },
    /// A component that imports something else than the contract.
    #[error("component imports {import}, which is no part of the contract")]
    UnknownImport {
        /// The first such import.
        import: String,
    },
    /// A component that has the right names but other types: built against a changed copy of the contract.
    #[error("component differs from the contract in {interface} (it says {found}): {at}: {difference}")]
    Differs {
        /// Interface and version of this host.
        interface: String,
        /// Interface and version of the component.
        found: String,
        /// Way to the first difference, outermost first.
        at: String,
        /// What differs there.
        difference: String,
    },
    /// The compiler refused or failed.
    #[error("component cannot be compiled: {reason}")]
    Compile {
        /// What the compiler says.
        reason: String,
    },
    /// A core module that cannot be made into a component.
    #[error("core module cannot be made into a component: {reason}")]
    Componentize {
        /// What the encoder says.
        reason: String,
    },
    /// A folder for compiled code that others could write into.
    #[error("folder for compiled code {path:?} cannot be used: {reason}")]
    CacheDir {
        /// The folder.
        path: std::path::PathBuf,
        /// Why.
        reason: String,
    },
    /// The guest's `describe` or `open` refused; for `describe` that is a config error.
    #[error("plugin refused in {call}: {message}")]
    Refused {
        /// Function of the contract.
        call: &'static str,
        /// The guest's text, bounded and escaped.
        message: String,
    },
    /// The guest broke in `describe`, `open` or `flush`, or while it was instantiated.
    #[error("plugin broke in {call}: {message}")]
    Broke {
        /// Function of the contract, or `start` for the instantiation.
        call: &'static str,
        /// Trap and panic text, bounded and escaped.
        message: String,
    },
    /// Buffers of a revision that this host does not write.
    #[error("plugin was built for row layout revision {found}, this host speaks {expected}")]
    LayoutRevision {
        /// The plugin's revision.
        found: u32,
        /// This host's revision.
        expected: u32,
    },
    /// A manifest that this host cannot serve.
    #[error("plugin's manifest is refused: {reason}")]
    Manifest {
        /// What is wrong, with the name of the part.
        reason: String,
    },
    /// A schema of the manifest or of the pipeline is not usable.
    #[error("{what} is refused")]
    Schema {
        /// Whose schema: `reader schema`, `schema of port "slim"`.
        what: String,
        /// Why.
        #[source]
        source: SchemaError,
    },
    /// The reader or a port schema cannot be reached from a writer's schema.
    #[error("{what} cannot be resolved")]
    Resolve {
        /// Which pair: `reader schema against the source schema`.
        what: String,
        /// Why.
        #[source]
        source: PlanError,
    },
    /// Neither the plugin nor the pipeline states a schema of the input.
    #[error("plugin declares no reader schema and the pipeline has no source schema")]
    NoSchema,
    /// The pipeline connects another number of ports than the plugin has.
    #[error("plugin has {declared} ports ({names}), the pipeline connects {connected}")]
    Ports {
        /// Ports of the manifest.
        declared: usize,
        /// Their names, in order.
        names: String,
        /// Ports of the setup.
        connected: usize,
    },
    /// More writer schemas than one deployment keeps plans for.
    #[error("more than {writers_max} writer schemas in one deployment")]
    Writers {
        /// The limit.
        writers_max: usize,
    },
    /// A limit out of its range.
    #[error("limit {name} is {value}, allowed are {min} to {max}")]
    Limit {
        /// Name of the limit.
        name: &'static str,
        /// Value asked for.
        value: u64,
        /// Least allowed value.
        min: u64,
        /// Greatest allowed value.
        max: u64,
    },
    /// The thread that would run guests has less stack than a guest may use.
    #[error("thread has {have} bytes of stack left, running plugins needs {need}")]
    Stack {
        /// Bytes left on this thread.
        have: usize,
        /// Bytes needed: the guest's limit and a reserve for the host.
        need: usize,
    },
    /// All instance slots are in use.
    #[error("no instance slot is free, the process has {instances_max}")]
    NoSlot {
        /// Number of slots of the process.
        instances_max: u32,
    },
    /// The sandbox itself failed, not the guest.
    #[error("sandbox failed in {call}: {reason}")]
    Host {
        /// What was being done.
        call: &'static str,
        /// What the sandbox says.
        reason: String,
    },
}

impl Error {
    /// Stable code for people and programs, its first word the stage.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooShort { .. } | Self::NotWasm { .. } | Self::BinaryVersion { .. } => "transform.not-a-component",
            Self::CoreModule => "transform.core-module",
            Self::TooLarge { .. } => "transform.component-too-large",
            Self::Damaged { .. } => "transform.component-damaged",
            Self::OnlyDescriptions | Self::Empty { .. } => "transform.component-empty",
            Self::WrongWorld { .. } => "transform.wrong-world",
            Self::MissingExport { .. } => "transform.missing-export",
            Self::Version { .. } => "transform.contract-version",
            Self::Wasi { .. } => "transform.wasi-import",
            Self::UnknownImport { .. } => "transform.unknown-import",
            Self::Differs { .. } => "transform.contract-differs",
            Self::Compile { .. } => "transform.compile",
            Self::Componentize { .. } => "transform.componentize",
            Self::CacheDir { .. } => "transform.cache-dir",
            Self::Refused { .. } => "transform.refused",
            Self::Broke { .. } => "transform.broke",
            Self::LayoutRevision { .. } => "transform.layout-revision",
            Self::Manifest { .. } => "transform.manifest",
            Self::Schema { .. } | Self::NoSchema => "transform.schema",
            Self::Resolve { .. } => "transform.resolve",
            Self::Ports { .. } => "transform.ports",
            Self::Writers { .. } => "transform.writers",
            Self::Limit { .. } => "transform.limit",
            Self::Stack { .. } => "transform.stack",
            Self::NoSlot { .. } => "transform.no-slot",
            Self::Host { .. } => "transform.host",
        }
    }
}
