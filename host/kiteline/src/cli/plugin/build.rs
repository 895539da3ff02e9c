//! `kiteline plugin build`: cargo for wasm32-unknown-unknown, then core modules made into components in this process.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::Args;
use kiteline_sandbox::componentize;
use serde_json::Value;

use super::inspect;
use crate::{
    error::{Exit, Failure, Problem},
    output::Output,
};

/// The target that needs no system interface.
const TARGET: &str = "wasm32-unknown-unknown";
/// Folder of the components, in cargo's target folder.
const FOLDER: &str = "kiteline";

/// Build the Rust plugins of a folder, as components.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Folder with a Cargo.toml, of one plugin or of a workspace of them.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Only this package of a workspace.
    #[arg(long, short, value_name = "NAME")]
    package: Option<String>,
    /// Folder for the components; without it `kiteline` in cargo's target folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Answers with a description of each component that was made.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let modules = cargo(arguments)?;
    if modules.is_empty() {
        let message = format!("\"{}\" builds no plugin", arguments.dir.display());
        let hint = "a plugin's Cargo.toml has [lib] crate-type = [\"cdylib\"]";
        return Err(Problem::new("plugin.nothing-built", message).hint(hint).into());
    }
    let mut json = Vec::new();
    let mut text = Vec::new();
    for module in modules {
        let (file, bytes) = component(&module, arguments.out.as_deref())?;
        let inspection = inspect::look(&file, &bytes)?;
        json.push(inspect::to_json(&file, &inspection));
        text.push(inspect::to_text(&file, &inspection));
    }
    output.answer(&Value::from(json), || text.join("\n"));
    Ok(Exit::Ok)
}

/// Runs cargo and returns the core modules that it made. Its messages go to standard error as they come.
fn cargo(arguments: &Arguments) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: &io::Error| {
        let hint = "it comes with Rust's toolchain; `rustup target add wasm32-unknown-unknown` adds the target";
        Failure::from(Problem::new("plugin.no-cargo", "cargo could not be run").cause(error).hint(hint))
    };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--target", TARGET, "--message-format", "json-render-diagnostics"]);
    if let Some(package) = &arguments.package {
        command.args(["--package", package]);
    }
    let mut child = command
        .current_dir(&arguments.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&e))?;
    let mut modules = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            modules.extend(modules_of(&line.map_err(|e| failed(&e))?));
        }
    }
    let status = child.wait().map_err(|e| failed(&e))?;
    if !status.success() {
        let message = format!("plugins in \"{}\" do not build", arguments.dir.display());
        return Err(Problem::new("plugin.build-failed", message).detail(format!("cargo ended with {status}")).into());
    }
    Ok(modules)
}

/// Core modules named in one of cargo's messages.
fn modules_of(line: &str) -> Vec<PathBuf> {
    let Ok(message) = serde_json::from_str::<Value>(line) else { return Vec::new() };
    let cdylib = message["target"]["crate_types"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "cdylib"));
    if message["reason"] != "compiler-artifact" || !cdylib {
        return Vec::new();
    }
    let files = message["filenames"].as_array().map_or(&[][..], Vec::as_slice);
    files.iter().filter_map(Value::as_str).filter(|f| f.ends_with(".wasm")).map(PathBuf::from).collect()
}

/// Makes a core module into a component and writes it.
fn component(module: &Path, out: Option<&Path>) -> Result<(PathBuf, Vec<u8>), Failure> {
    let failed = |what: &str, path: &Path, error: &io::Error| {
        let message = format!("could not {what} \"{}\"", path.display());
        Failure::from(Problem::new("plugin.build-failed", message).cause(error))
    };
    let core = fs::read(module).map_err(|e| failed("read", module, &e))?;
    let bytes = componentize(&core).map_err(|error| {
        let message = format!("\"{}\" cannot be made into a component", module.display());
        Problem::new(error.code(), message).cause(&error).hint("is it built with the kiteline guest SDK?")
    })?;
    // target/wasm32-unknown-unknown/release/x.wasm: the target folder is three above.
    let target = module.ancestors().nth(3).unwrap_or(Path::new("."));
    let folder = out.map_or_else(|| target.join(FOLDER), Path::to_owned);
    fs::create_dir_all(&folder).map_err(|e| failed("make", &folder, &e))?;
    let file = folder.join(module.file_name().unwrap_or_default());
    write_whole(&file, &bytes).map_err(|e| failed("write", &file, &e))?;
    Ok((file, bytes))
}

/// Written beside and renamed, so that whoever loads it never sees half of it.
fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = file.with_extension(format!("wasm.{}", std::process::id()));
    fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, file)).inspect_err(|_| {
        // What could not be renamed is of no use to anybody.
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plugins_are_taken_from_cargos_messages() {
        let check = |line: &str, expected: &[&str]| {
            assert_eq!(modules_of(line), expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{line}");
        };
        let artifact = |kinds: &str, files: &str| {
            format!(r#"{{"reason":"compiler-artifact","target":{{"crate_types":[{kinds}]}},"filenames":[{files}]}}"#)
        };
        check(&artifact(r#""cdylib","rlib""#, r#""/t/a.wasm","/t/a.rlib""#), &["/t/a.wasm"]);
        check(&artifact(r#""rlib""#, r#""/t/b.rlib""#), &[]);
        check(r#"{"reason":"build-finished","success":true}"#, &[]);
        check("not json", &[]);
    }
}
