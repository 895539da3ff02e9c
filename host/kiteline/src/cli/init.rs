//! `kiteline init`: a new app in a folder, which `validate` accepts as it is.
//!
//! Owns the sample: configuration, schema, and a plugin that keeps every record.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use kiteline_sandbox::componentize;
use serde_json::json;

use crate::{
    error::{Exit, Failure, Problem},
    layout::{Root, SAMPLE_PLUGIN, SAMPLE_SCHEMA},
    output::Output,
};

const CONFIG: &str = include_str!("init/kiteline.toml");
const SCHEMA: &str = include_str!("init/order.avsc");
/// Core module of the sample plugin, from identity.wat.
const IDENTITY: &[u8] = include_bytes!("init/identity.wasm");

/// Make a new app in a folder: kiteline.toml with comments, a schema, a plugin that keeps every record.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The folder; made if it is not there, refused if anything is in it.
    dir: PathBuf,
}

/// Answers with the files that were written.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let dir = &arguments.dir;
    let failed = |path: &Path, error: &io::Error| {
        let message = format!("could not write \"{}\"", path.display());
        Failure::from(Problem::new("init.failed", message).cause(error))
    };
    let plugin = componentize(IDENTITY).map_err(|error| {
        Problem::new(error.code(), "the sample plugin cannot be made into a component").cause(&error)
    })?;
    fs::create_dir_all(dir).map_err(|e| failed(dir, &e))?;
    let mut entries = fs::read_dir(dir).map_err(|e| failed(dir, &e))?;
    if entries.next().is_some() {
        let problem = Problem::new("init.not-empty", format!("folder \"{}\" is not empty", dir.display()));
        return Err(Failure::usage(vec![problem.hint("name a folder that is empty or not there")]));
    }
    let root = Root::new(dir);
    let files: [(PathBuf, &[u8]); 3] = [
        (root.conf().join(SAMPLE_SCHEMA), SCHEMA.as_bytes()),
        (root.lib().join(SAMPLE_PLUGIN), &plugin),
        (root.config_file(), CONFIG.as_bytes()),
    ];
    for (path, bytes) in &files {
        write(path, bytes).map_err(|e| failed(path, &e))?;
    }
    let names: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    let json = json!({ "root": dir.display().to_string(), "files": names });
    output.answer(&json, || {
        let next = format!("next: kiteline validate --root {0}, then kiteline run --root {0}", dir.display());
        format!("wrote {}\n{next}", names.join("\nwrote "))
    });
    Ok(Exit::Ok)
}

/// Never over a file that is there: somebody else may be writing too.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::File::create_new(path)?.write_all(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it panics")]
mod tests {
    use super::*;

    #[test]
    fn the_sample_plugin_is_its_source() {
        let source = include_str!("init/identity.wat");
        let bytes = wat::parse_str(source).unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/init/identity.wasm");
            fs::write(file, &bytes).unwrap();
            return;
        }
        assert_eq!(bytes, IDENTITY, "identity.wasm is not identity.wat; UPDATE_GOLDEN=1 writes it anew");
    }
}
