//! Plugins made on the spot from text, so that no suite needs a compiler for guests.

const IDENTITY: &str = include_str!("../../src/cli/init/identity.wat");

/// A core module, before it is made into a component.
pub(crate) fn core() -> Vec<u8> {
    wat::parse_str(IDENTITY).unwrap()
}

/// A plugin that keeps every record.
pub(crate) fn identity() -> Vec<u8> {
    kiteline_sandbox::componentize(&core()).unwrap()
}

/// A component of the contract's other world.
pub(crate) fn of_world_bytes() -> Vec<u8> {
    let text = r#"(component (instance $none) (export "kiteline:transform/transform-bytes@0.1.0" (instance $none)))"#;
    wat::parse_str(text).unwrap()
}

/// A plugin whose reader schema asks for a field that the sample schema lacks, without a default.
pub(crate) fn wanting_a_missing_field() -> Vec<u8> {
    let schema = r#"{"type":"record","name":"Order","fields":[{"name":"weight","type":"long"}]}"#;
    let none = r#""\00\00\00\00\00\00\00\00\00\00\00\00""#;
    let some = format!(r#""\01\00\00\00\00\03\00\00\{:02x}\00\00\00""#, schema.len());
    let text = IDENTITY.replacen(none, &some, 1);
    let data = format!("(data (i32.const 768) \"{}\")\n  (data (i32.const 128)", schema.replace('"', "\\22"));
    let text = text.replacen("(data (i32.const 128)", &data, 1);
    kiteline_sandbox::componentize(&wat::parse_str(text).unwrap()).unwrap()
}
