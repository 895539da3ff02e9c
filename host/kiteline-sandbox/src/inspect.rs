//! What a file is, without running anything of it: header, size, world, imports, exports, and whether this host takes it. Each
//! refusal is an error of its own, with the name of the first difference (cases 69). Not here: compiling.

mod compare;

use sha2::{Digest, Sha256};
use wasmparser::{Payload, Validator, WasmFeatures};
use wit_parser::{
    InterfaceId, Resolve, World, WorldItem,
    decoding::{DecodedWasm, decode},
};

use crate::{
    error::Error,
    wit::since_v0_1_0::{HOST, TEXT, TRANSFORM, TRANSFORM_BYTES, WORLD},
};

/// What a component says about itself.
#[derive(Debug)]
pub struct Inspection {
    /// Size of the file in bytes.
    pub bytes: usize,
    /// `sha256:` and 64 hex digits, the name of the plugin everywhere.
    pub digest: String,
    /// World of the contract that it is of, with the version it was built for; none if it is of no world of the contract.
    pub world: Option<String>,
    /// Names of what it imports, in its order.
    pub imports: Vec<String>,
    /// Names of what it exports, in its order.
    pub exports: Vec<String>,
    /// Why this host does not take it, none if it does.
    pub refusal: Option<Error>,
}

/// Reads a component without running it.
///
/// # Errors
///
/// Only if it is no readable component at all; a component that this host does not take has a [`Inspection::refusal`].
pub fn inspect(bytes: &[u8]) -> Result<Inspection, Error> {
    header(bytes)?;
    let digest = digest(bytes);
    if !exports_anything(bytes)? {
        return Err(Error::Empty { expected: TRANSFORM.into() });
    }
    let (theirs, world) = match decode(bytes) {
        Ok(DecodedWasm::Component(resolve, world)) => (resolve, world),
        Ok(DecodedWasm::WitPackage(..)) => return Err(Error::OnlyDescriptions),
        Err(error) => {
            return Err(Error::Damaged { reason: format!("its interfaces cannot be read: {error:#}") });
        }
    };
    let component = Named::new(&theirs, &theirs.worlds[world]);
    Ok(Inspection {
        bytes: bytes.len(),
        digest,
        world: component.world(),
        imports: component.imports.iter().map(|item| item.name.clone()).collect(),
        exports: component.exports.iter().map(|item| item.name.clone()).collect(),
        refusal: component.check().err(),
    })
}

/// The digest that names a component.
pub(crate) fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(7 + 64);
    text.push_str("sha256:");
    for byte in Sha256::digest(bytes) {
        // writing to a String cannot fail
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Checks the first eight bytes: magic, binary version, layer (component model, "Binary format").
pub(crate) fn header(bytes: &[u8]) -> Result<(), Error> {
    let Some(header) = bytes.first_chunk::<8>() else {
        return Err(Error::TooShort { bytes: bytes.len() });
    };
    let [m0, m1, m2, m3, v0, v1, l0, l1] = *header;
    if [m0, m1, m2, m3] != *b"\0asm" {
        return Err(Error::NotWasm { found: format!("{m0:02x} {m1:02x} {m2:02x} {m3:02x}") });
    }
    match (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([l0, l1])) {
        (13, 1) => Ok(()),
        (1, 0) => Err(Error::CoreModule),
        (version, layer) => Err(Error::BinaryVersion { version, layer }),
    }
}

/// Validates the file and tells whether its outermost component exports anything.
fn exports_anything(bytes: &[u8]) -> Result<bool, Error> {
    let damaged = |error: wasmparser::BinaryReaderError| Error::Damaged { reason: error.to_string() };
    let features = WasmFeatures::default() | WasmFeatures::COMPONENT_MODEL;
    Validator::new_with_features(features).validate_all(bytes).map_err(damaged)?;
    let mut depth = 0u32;
    for payload in wasmparser::Parser::new(0).parse_all(bytes) {
        match payload.map_err(damaged)? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentExportSection(exports) if depth == 0 && exports.count() > 0 => {
                return Ok(true);
            }
            _ => {}
        }
    }
    Ok(false)
}

/// An import or export by its full name.
struct Item {
    name: String,
    interface: Option<InterfaceId>,
}

impl Item {
    /// Name without version, and version, of an interface of the contract's package.
    fn of_contract(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix("kiteline:transform/")?.split_once('@')
    }

    /// Whether it is the interface `full` of the contract in a version that links with this host's: of 0.1.x any x.
    fn links_with(&self, full: &str) -> bool {
        let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
        match (self.of_contract(), full.strip_prefix("kiteline:transform/").and_then(|rest| rest.split_once('@'))) {
            (Some((name, version)), Some((wanted, ours))) => name == wanted && minor(version) == minor(ours),
            _ => false,
        }
    }
}

/// A component's world with names.
struct Named<'a> {
    resolve: &'a Resolve,
    imports: Vec<Item>,
    exports: Vec<Item>,
}

impl<'a> Named<'a> {
    fn new(resolve: &'a Resolve, world: &World) -> Self {
        let items = |list: &mut dyn Iterator<Item = (&wit_parser::WorldKey, &WorldItem)>| {
            list.filter(|(_, item)| !matches!(item, WorldItem::Type { .. }))
                .map(|(key, item)| Item {
                    name: resolve.name_world_key(key),
                    interface: match item {
                        WorldItem::Interface { id, .. } => Some(*id),
                        _ => None,
                    },
                })
                .collect()
        };
        Self { resolve, imports: items(&mut world.imports.iter()), exports: items(&mut world.exports.iter()) }
    }

    /// Name of the contract's world that the exports are of.
    fn world(&self) -> Option<String> {
        self.exports.iter().find_map(|item| match item.of_contract()? {
            ("transform", version) => Some(format!("kiteline:transform/rows@{version}")),
            ("transform-bytes", version) => Some(format!("kiteline:transform/bytes@{version}")),
            _ => None,
        })
    }

    fn check(&self) -> Result<(), Error> {
        let export = self.transform()?;
        self.check_imports()?;
        let ours = contract();
        self.compare(&ours, export, TRANSFORM, true)?;
        self.imports
            .iter()
            .filter(|item| item.links_with(HOST))
            .try_for_each(|item| self.compare(&ours, item, HOST, false))
    }

    /// The export that the host calls.
    fn transform(&self) -> Result<&Item, Error> {
        if let Some(found) = self.exports.iter().find(|item| item.links_with(TRANSFORM)) {
            return Ok(found);
        }
        if self.exports.iter().any(|item| item.links_with(TRANSFORM_BYTES)) {
            let found = self.world().unwrap_or_default();
            return Err(Error::WrongWorld { found, expected: WORLD.into() });
        }
        match self.exports.iter().find(|item| item.of_contract().is_some()) {
            Some(other) => Err(Error::Version { found: other.name.clone(), expected: TRANSFORM.into() }),
            None => {
                let names: Vec<&str> = self.exports.iter().take(8).map(|item| item.name.as_str()).collect();
                Err(Error::MissingExport { expected: TRANSFORM.into(), found: names.join(", ") })
            }
        }
    }

    fn check_imports(&self) -> Result<(), Error> {
        let mut wasi = self.imports.iter().filter(|item| item.name.starts_with("wasi:"));
        if let Some(first) = wasi.next() {
            return Err(Error::Wasi { import: first.name.clone(), more: wasi.count() });
        }
        let types = HOST.replace("/host@", "/types@");
        match self.imports.iter().find(|item| !item.links_with(HOST) && !item.links_with(&types)) {
            None => Ok(()),
            Some(other) if matches!(other.of_contract(), Some(("host" | "types", _))) => {
                Err(Error::Version { found: other.name.clone(), expected: HOST.into() })
            }
            Some(other) => Err(Error::UnknownImport { import: other.name.clone() }),
        }
    }

    /// `whole`: every function of the contract must be there; else every function that is there must be in the contract.
    fn compare(&self, ours: &Resolve, item: &Item, name: &str, whole: bool) -> Result<(), Error> {
        let differs = |at: String, difference: String| Error::Differs {
            interface: name.into(),
            found: item.name.clone(),
            at,
            difference,
        };
        let Some(their_id) = item.interface else {
            return Err(differs("export".into(), "it is a function, not an interface".into()));
        };
        let our_id = ours
            .interfaces
            .iter()
            .find_map(|(id, _)| (ours.id_of(id).as_deref() == Some(name)).then_some(id))
            .expect("the contract has the interfaces that this crate names");
        let (mine, other) = (&ours.interfaces[our_id], &self.resolve.interfaces[their_id]);
        let names = if whole { &mine.functions } else { &other.functions };
        for function in names.keys() {
            let at = format!("function {function}");
            match (mine.functions.get(function), other.functions.get(function)) {
                (Some(mine), Some(other)) => {
                    compare::functions(ours, mine, self.resolve, other)
                        .map_err(|(way, difference)| differs(format!("{at}{way}"), difference))?;
                }
                (Some(_), None) => return Err(differs(at, "the component lacks it".into())),
                _ => return Err(differs(at, "this host lacks it".into())),
            }
        }
        Ok(())
    }
}

/// The contract as this host speaks it.
fn contract() -> Resolve {
    let mut resolve = Resolve::default();
    resolve
        .push_source("kiteline-transform.wit", TEXT)
        .expect("the contract parses: the bindings of this crate are made from the same text");
    resolve
}
