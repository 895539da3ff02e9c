//! What holds of the source as a whole: who may know whom, documented files of bounded length, `unsafe` in two files only, nothing
//! left to do by a stranger. Reads the checkout; runs nothing of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kiteline_tests::process::repository;

/// The only files with `unsafe`, each with its reason in its head.
const UNSAFE: [&str; 2] = ["host/kiteline-connectors/src/kafka_calls.rs", "host/kiteline-sandbox/src/cache.rs"];

/// A file past this is to be split.
const LINES_MAX: usize = 800;

fn files(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", ".git", "fixtures"].contains(&name.as_str()) {
                files(&path, ends, found);
            }
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

/// Every file of the checkout with one of these endings, as path from its root and text.
fn sources(ends: &[&str]) -> Vec<(String, String)> {
    let root = repository();
    let mut found = Vec::new();
    files(&root, ends, &mut found);
    found.sort();
    let text = |path: PathBuf| {
        let name = path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("text"))
    };
    found.into_iter().map(text).collect()
}

fn check(what: &str, wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_rust_file_opens_with_its_documentation() {
    let first = |text: &str| text.lines().find(|l| !l.trim().is_empty() && !l.starts_with("#!")).map(str::to_owned);
    let wrong = sources(&[".rs"]).into_iter().filter(|(_, text)| !first(text).is_some_and(|l| l.starts_with("//!")));
    check("these say nothing of what they own", wrong.map(|(name, _)| name).collect());
}

#[test]
fn no_file_is_too_long() {
    let long = sources(&[".rs"]).into_iter().filter(|(_, text)| text.lines().count() > LINES_MAX);
    check("these are to be split", long.map(|(name, text)| format!("{name}: {}", text.lines().count())).collect());
}

#[test]
fn unsafe_code_is_in_two_files() {
    let word = ["unsafe ", "{"].concat();
    let function = ["unsafe ", "fn"].concat();
    let block = ["unsafe ", "extern"].concat();
    let has = |text: &str| text.contains(&word) || text.contains(&function) || text.contains(&block);
    let wrong = sources(&[".rs"]).into_iter().filter(|(name, text)| has(text) && !UNSAFE.contains(&name.as_str()));
    check("these must do without", wrong.map(|(name, _)| name).collect());
}

/// Engine and avro know nobody; sandbox and connectors know these two and not each other; the program knows all.
#[test]
fn crates_know_only_whom_they_may() {
    let may: [(&str, &[&str]); 6] = [
        ("host/kiteline-engine", &[]),
        ("host/kiteline-avro", &[]),
        ("host/kiteline-sandbox", &["kiteline-engine", "kiteline-avro"]),
        ("host/kiteline-connectors", &["kiteline-engine", "kiteline-avro"]),
        ("guest-sdk/rust", &[]),
        ("host/kiteline", &["kiteline-engine", "kiteline-avro", "kiteline-sandbox", "kiteline-connectors"]),
    ];
    let ours =
        ["kiteline-engine", "kiteline-avro", "kiteline-sandbox", "kiteline-connectors", "kiteline", "kiteline-guest"];
    let mut wrong = Vec::new();
    for (folder, allowed) in may {
        let manifest = fs::read_to_string(repository().join(folder).join("Cargo.toml")).expect("a manifest");
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines() {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if ours.contains(&name) && !allowed.contains(&name) {
                wrong.push(format!("{folder} knows {name}"));
            }
        }
    }
    check("arrows that must not be", wrong);
}

/// The engine is pure: nothing of the outside world is named in it. Its clippy.toml bans the calls; this bans the imports.
#[test]
fn the_engine_is_pure() {
    let banned = ["std::fs", "std::net", "std::thread", "std::time", "std::env", "std::process", "async ", "serde"];
    let engine = sources(&[".rs"]).into_iter().filter(|(name, _)| name.starts_with("host/kiteline-engine/src/"));
    let code = |text: &str| text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let wrong = engine.filter(|(_, text)| banned.iter().any(|b| code(text).contains(b))).map(|(name, _)| name);
    check("these name the outside world", wrong.collect());
}

/// Wasmtime's types stay in the sandbox, and binding types in its `wit` module.
#[test]
fn foreign_types_stay_where_they_belong() {
    let belongs: [(&str, &[&str]); 3] = [
        ("wasmtime::", &["host/kiteline-sandbox/"]),
        ("rdkafka::", &["host/kiteline-connectors/", "tests/"]),
        ("zookeeper_client", &["host/kiteline-connectors/"]),
    ];
    let mut wrong = Vec::new();
    for (name, text) in sources(&[".rs"]) {
        for (word, homes) in belongs {
            if text.contains(&format!("use {word}")) && !homes.iter().any(|home| name.starts_with(home)) {
                wrong.push(format!("{name}: {word}"));
            }
        }
    }
    check("foreign types away from home", wrong);
}

#[test]
fn nothing_is_left_to_do_and_no_test_is_switched_off() {
    let words = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["#[ign", "ore"],
        ["#[should_", "panic"],
        ["todo", "!("],
        ["unimplemented", "!("],
    ];
    let words: Vec<String> = words.iter().map(|w| w.concat()).collect();
    let mut wrong = Vec::new();
    for (name, text) in sources(&[".rs", ".toml", ".md", ".wit"]) {
        if name != "Cargo.toml" && name != "plugins/Cargo.toml" {
            wrong.extend(words.iter().filter(|w| text.contains(*w)).map(|w| format!("{name}: {w}")));
        }
    }
    check("unfinished", wrong);
}

/// Paths in README and ARCHITECTURE lead somewhere.
#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for (name, text) in sources(&[".md"]) {
        let folder = Path::new(&name).parent().expect("a folder").to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            let outside = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !outside && !repository().join(&folder).join(target).exists() {
                wrong.push(format!("{name}: {target}"));
            }
        }
    }
    check("dead links", wrong);
}
