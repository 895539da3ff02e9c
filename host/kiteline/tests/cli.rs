//! The commands that need no service, from the outside: arguments in; answer, files and exit code out.

#![allow(clippy::unwrap_used, reason = "a test ends where it panics")]

mod support;

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use support::{App, kiteline, plugins, run};

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_new_app_is_valid_and_is_not_written_over() {
    let app = App::empty("init");
    let (code, out, err) = run(&app.path, &["init", "orders"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for file in ["kiteline.toml", "conf/order.avsc", "lib/identity.wasm"] {
        assert!(app.path.join("orders").join(file).is_file(), "{file}");
    }
    let (code, out, err) = run(&app.path, &["validate", "--root", "orders"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "app \"orders\" is valid: orders\n", ""));
    let (code, out, _) = run(&app.path.join("orders"), &["validate", "--format", "json"]);
    let answer = json!({ "app": "orders", "pipelines": ["orders"], "live": false, "errors": [] });
    assert_eq!((code, json_of(&out)), (0, answer));
    let before = app.read("orders/kiteline.toml");
    let (code, out, err) = run(&app.path, &["init", "orders"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with("error[init.not-empty]: folder \"orders\" is not empty\n"), "{err}");
    assert_eq!(app.read("orders/kiteline.toml"), before);
}

#[test]
fn an_app_is_installed_whole_and_once() {
    let app = App::empty("install");
    assert_eq!(run(&app.path, &["init", "src"]).0, 0);
    app.write("src/var/cache/x", b"not copied");
    let (code, out, err) = run(&app.path, &["install", "src", "orders", "--format", "json"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!((&json_of(&out)["root"], &json_of(&out)["files"]), (&json!("orders"), &json!(3)));
    for file in ["kiteline.toml", "conf/order.avsc", "lib/identity.wasm"] {
        let read = |root: &str| fs::read(app.path.join(root).join(file)).unwrap();
        assert!(read("src") == read("orders"), "{file}");
    }
    assert!(!app.path.join("orders/var").exists());
    let check = |arguments: &[&str], code: i32, message: &str| {
        let (found, out, err) = run(&app.path, arguments);
        assert_eq!((found, out.as_str()), (code, ""), "{err}");
        assert!(err.starts_with(&format!("error[{message}")), "{err}");
    };
    check(&["install", "src", "orders"], 2, "install.root-exists]: install root \"orders\" is there already");
    fs::create_dir(app.path.join("empty")).unwrap();
    check(&["install", "src", "empty"], 2, "install.root-exists]");
    check(&["install", "empty", "other"], 2, "install.no-app]: \"empty\" has no kiteline.toml");
    check(&["install", "none", "other"], 1, "install.failed]: could not open \"none\"");
    check(&["install", "src", "none/other"], 1, "install.failed]: could not open \"none\"");
    std::os::unix::fs::symlink("/etc/hostname", app.path.join("src/conf/link")).unwrap();
    check(&["install", "src", "other"], 2, "install.bad-file]: \"conf/link\" is neither a file nor a folder");
    // Nothing is left of the attempts that failed.
    let mut left: Vec<_> = fs::read_dir(&app.path).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["empty", "orders", "src"]);
}

#[test]
fn the_stronger_layer_wins_and_explain_says_so() {
    let app = App::empty("layers");
    assert_eq!(run(&app.path, &["init", "."]).0, 0);
    app.write(
        "conf/p.properties",
        b"# strong\npipeline.orders.source.group=from-properties\nmember.grace_ms = 5_000\n",
    );
    let explain = |key: &str, arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = kiteline(&app.path, &["config", "explain", key, "--format", "json"]);
        let ended = command.args(arguments).envs(environment.iter().copied()).output().unwrap();
        let out = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{out}");
        json_of(&out)[0].clone()
    };
    let check = |found: Value, value: &str, layer: &str, overridden: &[&str]| {
        assert_eq!((&found["value"], &found["layer"]), (&json!(value), &json!(layer)), "{found}");
        let values: Vec<_> = found["overridden"].as_array().unwrap().iter().map(|o| o["value"].clone()).collect();
        assert_eq!(values, overridden, "{found}");
    };
    let group = "pipeline.orders.source.group";
    let properties = ["--properties", "conf/p.properties"];
    let variable = [("KITELINE__PIPELINE__ORDERS__SOURCE__GROUP", "from-environment")];
    check(explain(group, &[], &[]), "kiteline.<app>.<pipeline>", "default", &[]);
    check(explain(group, &properties, &[]), "from-properties", "properties", &[]);
    check(explain(group, &properties, &variable), "from-environment", "environment", &["from-properties"]);
    let set = ["--set", "pipeline.orders.source.group=a=b", "--properties", "conf/p.properties"];
    check(explain(group, &set, &variable), "a=b", "command line", &["from-environment", "from-properties"]);
    check(explain("app.release", &[], &[]), "1", "file", &[]);
    check(explain("app.release", &["--set", "app.release=2"], &[]), "2", "command line", &["1"]);
    check(explain("member.grace_ms", &properties, &[]), "5000", "properties", &[]);
    let topics = ["--set", "pipeline.orders.source.topics=a, b"];
    check(explain("pipeline.orders.source.topics", &topics, &[]), "[a, b]", "command line", &["[orders]"]);
    let first = ["--set", "pipeline.orders.transform.0.config.threshold=5"];
    check(explain("pipeline.orders.transform[0].config.threshold", &first, &[]), "5", "command line", &[]);
    let protocol = [("KITELINE__KAFKA__PROPERTIES__SECURITY_PROTOCOL", "ssl")];
    check(explain("kafka.properties.security.protocol", &[], &protocol), "ssl", "environment", &[]);
    let password = ["--set", "kafka.properties.sasl.password=hunter2"];
    check(explain("kafka.properties.sasl.password", &password, &[]), "***", "command line", &[]);
    let password = ["--set", "kafka.properties.sasl.password=${env:PW}"];
    check(explain("kafka.properties.sasl.password", &password, &[]), "${env:PW}", "command line", &[]);
}

#[test]
fn one_key_is_explained_in_full() {
    let app = App::empty("explain");
    assert_eq!(run(&app.path, &["init", "."]).0, 0);
    let (code, out, err) = run(&app.path, &["config", "explain", "checkpoint.store", "--set", "checkpoint.store=file"]);
    let expected = "checkpoint.store = file\n  from: --set on the command line\n  over: file from kiteline.toml:23:9\n  takes: one \
                    of file, zookeeper\n  means: where checkpoints live; file serves one process only\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, expected, ""));
    let (code, _, err) = run(&app.path, &["config", "explain", "checkpoint.stor"]);
    assert_eq!(code, 2);
    assert!(err.contains("unknown key \"stor\"") && err.contains("did you mean \"store\"?"), "{err}");
    let (code, out, _) = run(&app.path, &["config", "explain"]);
    assert_eq!(code, 0);
    assert!(out.contains("pipeline.orders.limits.batch_records_max"), "{out}");
}

#[test]
fn a_datum_is_decoded() {
    let app = App::empty("avro");
    let schema =
        r#"{"type":"record","name":"R","fields":[{"name":"id","type":"string"},{"name":"n","type":["null","long"]}]}"#;
    app.write("r.avsc", schema.as_bytes());
    app.write("r.bin", &[0, 0, 0, 0, 7, 2, b'a', 2, 4]);
    let check = |arguments: &[&str], code: i32, out: &str, err: &str| {
        let arguments = [&["avro", "decode", "--schema", "r.avsc"], arguments].concat();
        assert_eq!(run(&app.path, &arguments), (code, out.to_owned(), err.to_owned()), "{arguments:?}");
    };
    check(&["--hex", "02 61 02 04"], 0, "{\"id\":\"a\",\"n\":{\"long\":2}}\n", "");
    check(&["--file", "r.bin", "--wire", "confluent"], 0, "{\"id\":\"a\",\"n\":{\"long\":2}}\n", "schema id 7\n");
    let wrong = "error[decode.bad-datum]: the datum is not of this schema\n  = detail: 1 byte left after the value, at byte 3\n";
    check(&["--hex", "02610000"], 1, "", wrong);
    let wrong = "error[usage.bad-hex]: the value of --hex is not pairs of hex digits\n";
    check(&["--hex", "026"], 2, "", wrong);
    let (code, out, _) =
        run(&app.path, &["avro", "decode", "--schema", "r.avsc", "--hex", "02610204", "--format", "json"]);
    let answer = json!({ "schema_id": null, "value": { "id": "a", "n": { "long": 2 } } });
    assert_eq!((code, json_of(&out)), (0, answer));
    let mut command = kiteline(&app.path, &["avro", "decode", "--schema", "r.avsc"]);
    let stdin = fs::File::open(app.path.join("r.bin")).unwrap();
    let ended = command.stdin(Stdio::from(stdin)).output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "the prefix is no part of a plain datum");
}

#[test]
fn a_component_is_inspected() {
    let app = App::empty("inspect");
    app.write("identity.wasm", &plugins::identity());
    app.write("bytes.wasm", &plugins::of_world_bytes());
    app.write("core.wasm", &plugins::core());
    let (code, out, _) = run(&app.path, &["plugin", "inspect", "identity.wasm", "--format", "json"]);
    let answer = json_of(&out);
    assert_eq!(
        (code, &answer["refused"], &answer["world"]),
        (0, &Value::Null, &json!("kiteline:transform/rows@0.1.0"))
    );
    assert_eq!(answer["exports"], json!(["kiteline:transform/transform@0.1.0"]));
    assert_eq!(answer["bytes"], json!(plugins::identity().len()));
    let (code, out, _) = run(&app.path, &["plugin", "inspect", "bytes.wasm"]);
    assert_eq!(code, 1);
    assert!(out.contains("no, transform.wrong-world: component is of world"), "{out}");
    let (code, _, err) = run(&app.path, &["plugin", "inspect", "core.wasm"]);
    assert_eq!(code, 1);
    assert!(err.starts_with("error[transform.core-module]: \"core.wasm\" is not a plugin\n"), "{err}");
}

#[test]
fn checkpoints_of_an_app_that_never_ran_are_none() {
    let app = App::empty("checkpoint");
    assert_eq!(run(&app.path, &["init", "."]).0, 0);
    let (code, out, err) = run(&app.path, &["checkpoint", "show"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "pipeline orders: never started\n", ""));
    assert!(!app.path.join("var").exists(), "looking leaves nothing behind");
    let (code, _, err) = run(&app.path, &["checkpoint", "show", "other"]);
    assert_eq!(code, 2);
    assert!(err.starts_with("error[usage.unknown-pipeline]: there is no pipeline \"other\"\n"), "{err}");
}

#[test]
fn wrong_arguments_end_with_2_in_either_form() {
    let app = App::empty("usage");
    let (code, out, err) = run(&app.path, &["validat"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("validate"), "{err}");
    let (code, out, _) = run(&app.path, &["validat", "--format", "json"]);
    assert_eq!((code, &json_of(&out)["errors"][0]["code"]), (2, &json!("usage.arguments")));
    let (code, out, _) = run(&app.path, &["--help"]);
    assert_eq!(code, 0);
    assert!(out.contains("Exit codes:"), "{out}");
}
