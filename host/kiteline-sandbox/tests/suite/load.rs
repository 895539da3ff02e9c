//! Files that are no plugin of this host: each is refused with its own message, naming the first difference, and nothing of it runs
//! (cases 69). And the cache of compiled code.

use std::{fs, path::PathBuf};

use kiteline_sandbox::{Error, Runtime, RuntimeLimits, componentize, inspect};

use crate::guest::{Guest, numbers, runtime};

/// Loads and gives the error's code and text.
fn refusal(bytes: &[u8]) -> String {
    match runtime().load(bytes) {
        Ok(_) => "taken".into(),
        Err(error) => format!("{}: {error}", error.code()),
    }
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A component of a changed copy of the contract.
fn changed(from: &str, to: &str) -> Vec<u8> {
    let contract = include_str!("../../../../wit/since_v0.1.0/kiteline-transform.wit");
    assert!(contract.contains(from), "{from}");
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_source("changed.wit", &contract.replace(from, to)).unwrap();
    let world = resolve.select_world(&[package], Some("rows")).unwrap();
    let mut core = Guest::default().core();
    let utf8 = wit_component::StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut core, &resolve, world, utf8, false).unwrap();
    componentize(&core).unwrap()
}

#[test]
fn case_69_each_wrong_file_has_its_own_refusal() {
    let (t, h) = ("kiteline:transform/transform@0.1.0", "kiteline:transform/host@0.1.0");
    let named = |name: &str| {
        component(&format!(
            r#"(component (component $c) (instance $i (instantiate $c)) (export "{name}" (instance $i)))"#
        ))
    };
    let wasi = component(
        r#"(component (import "wasi:cli/stdin@0.2.0" (instance)) (import "wasi:io/poll@0.2.0" (instance))
           (component $c) (instance $i (instantiate $c)) (export "kiteline:transform/transform@0.1.0" (instance $i)))"#,
    );
    let stranger = component(
        r#"(component (import "acme:secrets/vault@1.0.0" (instance))
           (component $c) (instance $i (instantiate $c)) (export "kiteline:transform/transform@0.1.0" (instance $i)))"#,
    );
    let cases: Vec<(Vec<u8>, String)> = vec![
        (Guest::default().component(), "taken".into()),
        (
            b"\0asm\x01\0\0".to_vec(),
            "transform.not-a-component: file of 7 bytes is too short to be a component, whose header alone has 8".into(),
        ),
        (
            b"#!/bin/sh\necho".to_vec(),
            "transform.not-a-component: file is not webassembly: it begins with 23 21 2f 62, not with 00 61 73 6d".into(),
        ),
        (b"\0asm\x01\0\0\0".to_vec(), "transform.core-module: file is a core module, not a component".into()),
        (
            b"\0asm\x0e\0\x01\0".to_vec(),
            "transform.not-a-component: file has unknown binary version 14 of layer 1; this host knows version 13 of layer 1"
                .into(),
        ),
        (
            b"\0asm\x0d\0\x01\0".to_vec(),
            format!("transform.component-empty: component is empty: it exports nothing, expected {t}"),
        ),
        (
            named("acme:other/run@1.0.0"),
            format!("transform.missing-export: component does not export {t}; it exports acme:other/run@1.0.0"),
        ),
        (
            named("kiteline:transform/transform-bytes@0.1.0"),
            "transform.wrong-world: component is of world kiteline:transform/bytes@0.1.0, which this host does not run \
             yet; expected world kiteline:transform/rows@0.1.0"
                .into(),
        ),
        (
            named("kiteline:transform/transform@0.2.0"),
            format!("transform.contract-version: component is built for kiteline:transform/transform@0.2.0, this host speaks {t}"),
        ),
        (
            wasi,
            "transform.wasi-import: component imports wasi:cli/stdin@0.2.0 (1 more of WASI), and nothing of WASI is \
             granted to a plugin"
                .into(),
        ),
        (
            stranger,
            "transform.unknown-import: component imports acme:secrets/vault@1.0.0, which is no part of the contract".into(),
        ),
        (
            named("kiteline:transform/transform@0.1.0"),
            format!("transform.contract-differs: component differs from the contract in {t} (it says {t}): function describe: the component lacks it"),
        ),
        (
            changed("enum level { trace, debug, info, warn, error }", "enum level { trace, debug, info, warn }"),
            format!("transform.contract-differs: component differs from the contract in {h} (it says {h}): function log, parameter level, enum level: case error is missing in the component"),
        ),
        (
            changed("layout-revision: u32", "layout-revision: s32"),
            format!("transform.contract-differs: component differs from the contract in {t} (it says {t}): function describe, result, result, record manifest, field layout-revision: s32, the contract has u32"),
        ),
    ];
    for (bytes, want) in &cases {
        assert_eq!(refusal(bytes), *want);
    }
    let mut damaged = Guest::default().component();
    let at = damaged.len() / 2;
    damaged[at..at + 64].fill(0xff);
    assert!(refusal(&damaged).starts_with("transform.component-damaged: component is damaged: "));
}

#[test]
fn inspection_names_world_imports_and_exports_without_running() {
    let bytes = Guest { open: "unreachable".into(), ..Guest::default() }.component();
    let seen = inspect(&bytes).unwrap();
    assert_eq!(seen.bytes, bytes.len());
    assert_eq!(seen.world.as_deref(), Some("kiteline:transform/rows@0.1.0"));
    assert_eq!(seen.imports, ["kiteline:transform/types@0.1.0", "kiteline:transform/host@0.1.0"]);
    assert_eq!(seen.exports, ["kiteline:transform/transform@0.1.0"]);
    assert!(seen.refusal.is_none());
    assert_eq!(seen.digest.len(), 7 + 64);
    assert_eq!(seen.digest, runtime().load(&bytes).unwrap().digest());
}

#[test]
fn only_core_modules_are_made_into_components() {
    let code = |bytes: &[u8]| componentize(bytes).map_err(|error| error.code());
    assert_eq!(code(b"text"), Err("transform.not-a-component"));
    assert_eq!(code(&Guest::default().component()), Err("transform.componentize"));
    // a module that lacks an export of the world
    let error = componentize(b"\0asm\x01\0\0\0").unwrap_err();
    assert!(matches!(&error, Error::Componentize { reason } if reason.contains("function `describe`")), "{error}");
}

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kiteline-sandbox-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn small(cache_dir: Option<PathBuf>) -> Result<Runtime, Error> {
    Runtime::new(RuntimeLimits { instances_max: 2, cache_dir, ..RuntimeLimits::default() })
}

#[test]
fn compiled_code_is_kept_and_damage_means_compiling_again() {
    let folder = Folder::new("cache");
    let guest = Guest::default().component();
    let files = || -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    small(Some(folder.0.clone())).unwrap().load(&guest).unwrap();
    let [file] = &files()[..] else { panic!("one file: {:?}", files()) };
    let good = fs::read(file).unwrap();
    let modified = || fs::metadata(file).unwrap().modified().unwrap();
    let written = modified();
    small(Some(folder.0.clone())).unwrap().load(&guest).unwrap().describe(&[], None).unwrap();
    assert_eq!(modified(), written, "a sound file is used, not written again");
    let mut flipped = good.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    for damage in [&b""[..], b"KLCODE1\n", &good[..good.len() - 1], &flipped] {
        fs::write(file, damage).unwrap();
        small(Some(folder.0.clone())).unwrap().load(&guest).unwrap().describe(&[], None).unwrap();
        assert_eq!(fs::read(file).unwrap().len(), good.len(), "it is written again");
    }
    assert_eq!(files().len(), 1, "nothing is left beside it");
}

#[cfg(unix)]
#[test]
fn a_cache_that_others_can_write_into_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("open-cache");
    fs::create_dir(&folder.0).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let error = small(Some(folder.0.clone())).err().unwrap();
    assert_eq!(error.code(), "transform.cache-dir");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(small(Some(folder.0.clone())).is_ok());
}

#[test]
fn instance_slots_are_counted_and_come_back() {
    let runtime = small(None).unwrap();
    let plugin = runtime.load(&Guest::default().component()).unwrap();
    let setup = || kiteline_sandbox::DeploymentSetup {
        config: vec![],
        source_schema: None,
        ports: vec![kiteline_sandbox::PortSetup::default()],
        limits: kiteline_sandbox::CallLimits::default(),
    };
    let deployment = kiteline_sandbox::Deployment::new(&plugin, setup()).unwrap();
    let open = || kiteline_sandbox::Transformer::new(&deployment);
    let (one, two) = (open().unwrap(), open().unwrap());
    let error = open().err().unwrap();
    assert_eq!(error.to_string(), "no instance slot is free, the process has 2");
    drop(one);
    let mut three = open().unwrap();
    drop(two);
    let writer = deployment.writer(&kiteline_avro::Schema::parse(crate::guest::NUMBER).unwrap()).unwrap();
    let batch = numbers(&[Some(1)]);
    let data = [kiteline_sandbox::Datum::At { writer, from: 0 }];
    let report = three.transform(&batch, &data, &mut Default::default(), &mut vec![]).unwrap();
    assert_eq!(report.kept, 1);
}

#[test]
fn the_contract_page_shows_the_contract() {
    let page = include_str!("../../../../wit/README.md");
    let contract = include_str!("../../../../wit/since_v0.1.0/kiteline-transform.wit");
    let shown = page.split("```wit\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(shown, Some(contract));
}
