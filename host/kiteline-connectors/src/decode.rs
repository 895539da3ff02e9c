//! From the bytes of a record to what is needed to read them: which schema they name, and that schema. The Avro codec itself
//! is `kiteline-avro`.

mod wire_format;

mod registry;

pub use registry::{Compatibility, Latest, Registry, RegistryAuth, RegistryConfig, RegistryError};
pub use wire_format::{WireError, WireFormat};
