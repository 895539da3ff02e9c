//! `kiteline config explain`: which value a key has, and which layer gave it.

use clap::Subcommand;
use serde_json::Value;

use super::settings::Settings;
use crate::{
    config::{self, Explanation},
    error::{Exit, Failure},
    output::{Output, table},
};

/// Look at the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Say which value a key has and where it came from. Secrets are not shown.
    Explain {
        /// Key path, such as `pipeline.enrich.source.start`; a table shows all that is in it, nothing shows everything.
        #[arg(default_value = "", hide_default_value = true)]
        key: String,
        #[command(flatten)]
        settings: Settings,
    },
}

/// Answers with one line a key, or with all there is to say if it is only one.
pub(crate) fn run(verb: &Verb, output: &mut Output) -> Result<Exit, Failure> {
    let Verb::Explain { key, settings } = verb;
    let examined = config::examine(&settings.root(), &settings.surroundings());
    // Of a file that cannot be read nothing can be explained; other problems are for `validate`.
    if examined.tree.entries().is_empty() && !examined.problems.is_empty() {
        return Err(Failure::usage(examined.problems));
    }
    let found = config::explain(&examined.tree, key).map_err(|problem| Failure::usage(vec![problem]))?;
    let json = Value::from(found.iter().map(Explanation::to_json).collect::<Vec<_>>());
    output.answer(&json, || match &found[..] {
        [one] => whole(one),
        many => list(many),
    });
    if !examined.problems.is_empty() {
        output.note(format!(
            "note: {} problems in the configuration; `kiteline validate` shows them",
            examined.problems.len()
        ));
    }
    Ok(Exit::Ok)
}

fn origin(one: &Explanation) -> String {
    if one.origin.is_empty() { one.layer.into() } else { one.origin.clone() }
}

fn whole(one: &Explanation) -> String {
    let mut text = format!("{} = {}\n", one.key, one.value.as_deref().unwrap_or("(not set)"));
    text.push_str(&format!("  from: {}\n", origin(one)));
    for (origin, value) in &one.overridden {
        text.push_str(&format!("  over: {value} from {origin}\n"));
    }
    text.push_str(&format!("  takes: {}\n", one.takes));
    text.push_str(&format!("  means: {}\n", one.doc));
    text
}

fn list(many: &[Explanation]) -> String {
    let row = |one: &Explanation| vec![one.key.clone(), one.value.clone().unwrap_or_default(), origin(one)];
    table(&["key", "value", "from"], &many.iter().map(row).collect::<Vec<_>>())
}
