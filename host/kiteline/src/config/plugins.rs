//! What plugins say about themselves, held against the pipelines that use them. No network; compiles and opens each one once.

use std::{fs, io};

use kiteline_sandbox::{
    CallLimits, Deployment, DeploymentSetup, Error, Manifest, Plugin, PortSetup, Runtime, RuntimeLimits,
};

use super::{keys::nearest, pipelines::PluginUse, plan::TransformLimits};
use crate::error::{Chain, Problem};

impl TransformLimits {
    /// The bounds as the sandbox takes them; those of batches are the sandbox's defaults.
    pub fn call_limits(&self) -> CallLimits {
        CallLimits {
            emit_bytes_max: self.emit_bytes_max,
            emit_entries_max: self.emit_entries_max,
            output_bytes_max: self.output_bytes_max,
            record_bytes_max: self.record_bytes_max,
            depth_max: self.depth_max,
            call_deadline_ms: self.call_deadline_ms,
            memory_bytes_max: self.memory_bytes,
            ..CallLimits::default()
        }
    }
}

/// Which sink each port leads to.
///
/// `ports` are the plugin's, in order; `sinks` are the pipeline's, none for the first port. Returns an index into `sinks` for each
/// port, or what does not fit: the index of a sink whose port does not exist, or a port without a sink.
pub fn connect(ports: &[&str], sinks: &[Option<&str>]) -> Result<Vec<usize>, (Option<usize>, String)> {
    let first = ports.first().copied().unwrap_or_default();
    let wanted: Vec<&str> = sinks.iter().map(|s| s.unwrap_or(first)).collect();
    let names = || ports.join(", ");
    for (index, name) in wanted.iter().enumerate() {
        if !ports.contains(name) {
            let near =
                nearest(name, ports.iter().copied()).map_or(String::new(), |n| format!("; did you mean \"{n}\"?"));
            return Err((Some(index), format!("the plugin has no port \"{name}\", it has {}{near}", names())));
        }
        if wanted[..index].contains(name) {
            return Err((Some(index), format!("port \"{name}\" has two sinks")));
        }
    }
    ports
        .iter()
        .map(|port| {
            let sink = wanted.iter().position(|name| name == port);
            sink.ok_or_else(|| (None, format!("port \"{port}\" of the plugin leads to no sink")))
        })
        .collect()
}

/// Checks every plugin and adds what is wrong to `problems`.
pub(super) fn check(uses: &[PluginUse], problems: &mut Vec<Problem>) {
    let memory_bytes_max = uses.iter().map(|u| u.limits.memory_bytes).max().unwrap_or(0);
    let limits = RuntimeLimits::default();
    let limits = RuntimeLimits { memory_bytes_max: limits.memory_bytes_max.max(memory_bytes_max), ..limits };
    // Made when the first plugin has passed the checks that need no sandbox.
    let mut runtime = None;
    for one in uses {
        let found = read(one, &limits).and_then(|bytes| {
            let runtime = match &runtime {
                Some(runtime) => runtime,
                None => runtime.insert(Runtime::new(limits.clone()).map_err(|e| refused(one, &e))?),
            };
            runtime.load(&bytes).map_err(|e| refused(one, &e)).and_then(|plugin| deploy(one, &plugin))
        });
        problems.extend(found.err());
    }
}

/// Reads the file and looks at it from outside.
fn read(one: &PluginUse, limits: &RuntimeLimits) -> Result<Vec<u8>, Problem> {
    let unreadable = |error: io::Error| {
        let message = format!("plugin file \"{}\" cannot be read", one.file);
        let hint = "a relative path counts from the install root; `kiteline plugin build` makes one";
        Problem::new("transform.unreadable-plugin", message).cause(&error).hint(hint).at(one.place.clone())
    };
    let length = fs::metadata(&one.path).map_err(unreadable)?.len();
    if length > limits.component_bytes_max as u64 {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        return Err(refused(one, &Error::TooLarge { bytes, bytes_max: limits.component_bytes_max }));
    }
    let bytes = fs::read(&one.path).map_err(unreadable)?;
    let inspection = kiteline_sandbox::inspect(&bytes).map_err(|e| refused(one, &e))?;
    match inspection.refusal {
        Some(error) => Err(refused(one, &error)),
        None => Ok(bytes),
    }
}

/// Connects the ports and opens a trial instance, where the source schema is known without a network.
fn deploy(one: &PluginUse, plugin: &Plugin) -> Result<(), Problem> {
    let Some(source_schema) = &one.source_schema else { return Ok(()) };
    let manifest = plugin.describe(&one.config, Some(source_schema.text())).map_err(|e| refused(one, &e))?;
    ports(one, &manifest)?;
    let ports = manifest.outputs.iter().map(|_| PortSetup { prefix: Vec::new(), topics_allowed: Vec::new() }).collect();
    let setup = DeploymentSetup {
        config: one.config.clone(),
        source_schema: Some(source_schema.clone()),
        ports,
        limits: one.limits.call_limits(),
    };
    let deployment = Deployment::new(plugin, setup).map_err(|e| refused(one, &e))?;
    deployment.writer(source_schema).map(drop).map_err(|error| {
        let message = format!("plugin \"{}\" cannot read what the source schema writes", one.file);
        Problem::new("transform.resolve", message).detail(Chain(&error).to_string()).at(one.place.clone())
    })
}

fn ports(one: &PluginUse, manifest: &Manifest) -> Result<(), Problem> {
    let names: Vec<&str> = manifest.outputs.iter().map(|o| o.name.as_str()).collect();
    let sinks: Vec<Option<&str>> = one.ports.iter().map(|(port, _)| port.as_deref()).collect();
    connect(&names, &sinks).map(drop).map_err(|(sink, message)| {
        let place = sink.and_then(|index| one.ports.get(index)).map_or(&one.place, |(_, place)| place);
        Problem::new("transform.ports", message).at(place.clone())
    })
}

fn refused(one: &PluginUse, error: &Error) -> Problem {
    let message = format!("plugin \"{}\" of pipeline \"{}\" is refused", one.file, one.pipeline);
    let problem = Problem::new(error.code(), message).cause(error).at(one.place.clone());
    match hint(error) {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// What to do about a plugin that is refused.
pub fn hint(error: &Error) -> Option<&'static str> {
    match error {
        Error::CoreModule => Some("`kiteline plugin build` makes a component of it"),
        Error::WrongWorld { .. } | Error::MissingExport { .. } | Error::Empty { .. } | Error::OnlyDescriptions => {
            Some("build it against world `rows` of the contract, with `kiteline plugin build`")
        }
        Error::Version { .. } | Error::Differs { .. } | Error::LayoutRevision { .. } => {
            Some("build it again with the SDK of this version")
        }
        Error::Wasi { .. } => Some("build it for wasm32-unknown-unknown, not for a WASI target"),
        Error::Resolve { .. } => Some("give the field a default in the plugin's reader schema, or ask for less"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lead_to_sinks() {
        let check = |ports: &[&str], sinks: &[Option<&str>], expected: Result<&[usize], (Option<usize>, &str)>| {
            let found = connect(ports, sinks);
            let expected = expected.map(<[usize]>::to_vec).map_err(|(index, text)| (index, text.to_owned()));
            assert_eq!(found, expected, "{ports:?} {sinks:?}");
        };
        check(&["out"], &[None], Ok(&[0]));
        check(&["out", "late"], &[Some("late"), None], Ok(&[1, 0]));
        check(&["out", "late"], &[None], Err((None, "port \"late\" of the plugin leads to no sink")));
        let missing = "the plugin has no port \"outt\", it has out; did you mean \"out\"?";
        check(&["out"], &[Some("outt")], Err((Some(0), missing)));
        check(&["out"], &[None, Some("out")], Err((Some(1), "port \"out\" has two sinks")));
    }
}
