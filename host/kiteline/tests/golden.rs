//! What people and programs see of wrong input: one folder a case below `golden/`, with the app and what `validate` says to it
//! as text and as JSON. `UPDATE_GOLDEN=1` writes the expectations anew. No service is needed.

#![allow(clippy::unwrap_used, reason = "a test ends where it panics")]

mod support;

use std::{fs, path::Path};

use support::{App, kiteline, plugins};

/// A file of `lib/` and how it is made.
type Lib = (&'static str, fn() -> Vec<u8>);

/// A case: its folder, what lies in `lib/`, further arguments, environment.
struct Case {
    name: &'static str,
    lib: &'static [Lib],
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const IDENTITY: Lib = ("identity.wasm", plugins::identity);

const fn case(name: &'static str, lib: &'static [Lib]) -> Case {
    Case { name, lib, arguments: &[], environment: &[] }
}

const CASES: &[Case] = &[
    case("unknown-key", &[IDENTITY]),
    case("missing-schema", &[IDENTITY]),
    case("unreadable-plugin", &[]),
    case("core-module", &[("core.wasm", plugins::core)]),
    case("wrong-world", &[("bytes.wasm", plugins::of_world_bytes)]),
    case("unresolvable-schema", &[("reader.wasm", plugins::wanting_a_missing_field)]),
    case("several", &[("core.wasm", plugins::core)]),
    case("syntax", &[]),
    case("secrets", &[IDENTITY]),
    case("relations", &[IDENTITY]),
    Case {
        name: "layers",
        lib: &[IDENTITY],
        arguments: &[
            "--properties",
            "conf/more.properties",
            "--set",
            "pipeline.p.sourc.start=latest",
            "--set",
            "nothing",
        ],
        environment: &[("KITELINE__MEMBER__WORKERS", "many"), ("KITELINE__PIPELINE__P__SOURCE__STRAT", "latest")],
    },
];

#[test]
fn wrong_input_is_told_as_it_should_be() {
    let mut wrong = Vec::new();
    for case in CASES {
        check(case, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}\nUPDATE_GOLDEN=1 writes them anew", wrong.join("\n"));
}

#[test]
fn every_folder_is_a_case() {
    for entry in fs::read_dir(folder("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(CASES.iter().any(|c| c.name == name), "golden/{name} is no case");
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn check(case: &Case, wrong: &mut Vec<String>) {
    let from = folder(case.name);
    let app = App::copy(&from, case.name);
    for (name, bytes) in case.lib {
        app.write(&format!("lib/{name}"), &bytes());
    }
    for (form, file) in [("text", "expected.txt"), ("json", "expected.json")] {
        let mut command = kiteline(&app.path, &["validate", "--format", form]);
        command.args(case.arguments).envs(case.environment.iter().copied());
        let ended = command.output().unwrap();
        let (out, err) = (String::from_utf8(ended.stdout).unwrap(), String::from_utf8(ended.stderr).unwrap());
        assert_eq!(ended.status.code(), Some(2), "{}: {out}{err}", case.name);
        // Text goes to people, JSON to programs; the other stream stays empty.
        let (found, other) = if form == "json" { (out, err) } else { (err, out) };
        assert_eq!(other, "", "{} as {form}", case.name);
        assert!(!found.contains("hunter2"), "{} as {form} shows a secret:\n{found}", case.name);
        let expected = from.join(file);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&expected, &found).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != found {
            wrong.push(format!("{} is not what came:\n{found}", expected.display()));
        }
    }
}
