//! `kiteline plugin inspect`: what a component says about itself, without running anything of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use kiteline_sandbox::{Inspection, inspect};
use serde_json::{Value, json};

use crate::{
    config::hint,
    error::{Chain, Exit, Failure, Problem},
    output::Output,
};

/// Show a component's world, imports, exports, size and digest, and whether this kiteline takes it.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The component.
    file: PathBuf,
}

/// Answers with the description. A component that is not taken is shown all the same, and fails.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let bytes = read(&arguments.file)?;
    let inspection = look(&arguments.file, &bytes)?;
    output.answer(&to_json(&arguments.file, &inspection), || to_text(&arguments.file, &inspection));
    Ok(if inspection.refusal.is_some() { Exit::Failed } else { Exit::Ok })
}

/// Reads a component's file.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| {
        let message = format!("plugin file \"{}\" cannot be read", file.display());
        Problem::new("transform.unreadable-plugin", message).cause(&error).into()
    })
}

/// Describes a component; fails only if it is none.
pub(super) fn look(file: &Path, bytes: &[u8]) -> Result<Inspection, Failure> {
    inspect(bytes).map_err(|error| {
        let problem = Problem::new(error.code(), format!("\"{}\" is not a plugin", file.display())).cause(&error);
        match hint(&error) {
            Some(hint) => problem.hint(hint).into(),
            None => problem.into(),
        }
    })
}

/// The JSON form.
pub(super) fn to_json(file: &Path, found: &Inspection) -> Value {
    let refusal = found.refusal.as_ref().map(|e| json!({ "code": e.code(), "message": Chain(e).to_string() }));
    json!({
        "file": file.display().to_string(), "bytes": found.bytes, "digest": found.digest, "world": found.world,
        "imports": found.imports, "exports": found.exports, "refused": refusal,
    })
}

/// The text form.
pub(super) fn to_text(file: &Path, found: &Inspection) -> String {
    let list = |names: &[String]| if names.is_empty() { "none".into() } else { names.join("\n         ") };
    let taken = match &found.refusal {
        None => "yes".into(),
        Some(error) => format!("no, {}: {}", error.code(), Chain(error)),
    };
    format!(
        "file     {}\nbytes    {}\ndigest   {}\nworld    {}\nimports  {}\nexports  {}\ntaken    {taken}\n",
        file.display(),
        found.bytes,
        found.digest,
        found.world.as_deref().unwrap_or("none of the contract"),
        list(&found.imports),
        list(&found.exports),
    )
}
