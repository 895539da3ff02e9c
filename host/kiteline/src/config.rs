//! The configuration: read from its layers as written, then turned into what is meant.
//!
//! | step | file | finds |
//! | --- | --- | --- |
//! | layers to one tree | `layers`, `tree`, `properties` | unreadable files, syntax, unknown `--set` and variables |
//! | as written | `written`, by the grammar in `keys` | unknown keys, types, ranges, words, secrets in the open |
//! | as meant | `meaning`, `pipelines` into `plan` | missing keys, relations, schema files, references |
//! | plugins | `plugins` | files, world, ports, schemas that do not resolve |
//!
//! No step needs a network, and each problem is found in one pass with all others. Live systems are asked elsewhere.

pub mod plan;
pub mod wiring;

mod explain;
mod keys;
mod layers;
mod meaning;
mod pipelines;
mod plugins;
mod properties;
mod section;
mod tree;
mod written;

pub use explain::{Explanation, explain};
pub use layers::{ENVIRONMENT_PREFIX, Surroundings};
pub use pipelines::PluginUse;
pub use plugins::{connect, hint};
pub use tree::Node;

use crate::{
    error::{Failure, Problem},
    layout::Root,
};

/// The configuration looked at from all sides.
pub struct Examined {
    /// As written.
    pub tree: Node,
    /// As meant; none if anything is wrong.
    pub plan: Option<plan::Plan>,
    /// The plugins that could be made out, also where other things are wrong.
    pub plugins: Vec<PluginUse>,
    /// Everything that is wrong, in the order of places.
    pub problems: Vec<Problem>,
}

/// Reads the configuration and finds everything that is wrong with it, plugins left aside.
pub fn examine(root: &Root, surroundings: &Surroundings) -> Examined {
    let (tree, mut problems) = layers::read(root, surroundings);
    // Of a file that could not be read every key would be missing, which helps nobody.
    if tree.entries().is_empty() && !problems.is_empty() {
        return Examined { tree, plan: None, plugins: Vec::new(), problems };
    }
    problems.extend(written::check(&tree));
    let meaning = meaning::read(root, &tree);
    problems.extend(meaning.problems);
    sort(&mut problems);
    let plan = meaning.plan.filter(|_| problems.is_empty());
    Examined { tree, plan, plugins: meaning.plugins, problems }
}

/// [`examine`], and the plugins with it: everything that can be checked without a network. Compiles the plugins.
pub fn examine_with_plugins(root: &Root, surroundings: &Surroundings) -> Examined {
    let mut examined = examine(root, surroundings);
    plugins::check(&examined.plugins, &mut examined.problems);
    sort(&mut examined.problems);
    if !examined.problems.is_empty() {
        examined.plan = None;
    }
    examined
}

/// The plan, or all problems. Plugins are not looked at: whoever runs them loads them anyway.
pub fn load(root: &Root, surroundings: &Surroundings) -> Result<plan::Plan, Failure> {
    let examined = examine(root, surroundings);
    examined.plan.ok_or_else(|| Failure::usage(examined.problems))
}

/// By file, line and column, so that a person reads from top to bottom; what has no place comes first.
fn sort(problems: &mut [Problem]) {
    problems.sort_by_key(|problem| {
        let place = problem.place.as_deref().cloned().unwrap_or_default();
        (place.source, place.line, place.column)
    });
}
