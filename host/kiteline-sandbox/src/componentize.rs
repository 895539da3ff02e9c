//! A core module, as compilers write it, made into a component of world `rows`, in process. Not here: building the module.

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::{
    error::Error,
    inspect::header,
    wit::since_v0_1_0::{TEXT, WORLD},
};

/// Makes a component out of a core module. A module that carries its world already (wit-bindgen's Rust and C output does)
/// keeps it; one without (Go) is taken to be of world `rows`. No WASI adapter is added: a plugin is granted nothing of WASI.
///
/// # Errors
///
/// The errors of a bad header (a component is none, too), or [`Error::Componentize`] with the encoder's words.
pub fn componentize(core: &[u8]) -> Result<Vec<u8>, Error> {
    let refuse = |reason: String| Error::Componentize { reason };
    match header(core) {
        Err(Error::CoreModule) => {}
        Ok(()) => return Err(refuse("it is a component already".into())),
        Err(error) => return Err(error),
    }
    let mut module = core.to_vec();
    if !carries_world(core) {
        let mut resolve = Resolve::default();
        let package =
            resolve.push_source("kiteline-transform.wit", TEXT).map_err(|error| refuse(format!("{error:#}")))?;
        let world = resolve.select_world(&[package], Some(WORLD)).map_err(|error| refuse(format!("{error:#}")))?;
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
            .map_err(|error| refuse(format!("{error:#}")))?;
    }
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true);
    encoder.module(&module).map_err(|error| refuse(format!("{error:#}")))?;
    encoder.encode().map_err(|error| refuse(format!("{error:#}")))
}

/// Whether a custom section says which world the module is of.
fn carries_world(core: &[u8]) -> bool {
    Parser::new(0).parse_all(core).map_while(Result::ok).any(
        |payload| matches!(payload, Payload::CustomSection(section) if section.name().starts_with("component-type")),
    )
}
