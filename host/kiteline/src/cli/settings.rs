//! Arguments of every command that reads an app's configuration.

use std::path::PathBuf;

use clap::Args;

use crate::{
    config::{self, Surroundings, plan::Plan},
    error::Failure,
    layout::Root,
};

/// Where the app is, and what stands above its file.
#[derive(Args, Clone, Debug)]
pub(crate) struct Settings {
    /// Install root of the app, the folder with kiteline.toml.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub root: PathBuf,
    /// A setting that stands above all others; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// A properties file with settings, above kiteline.toml and below the environment.
    #[arg(long, value_name = "FILE")]
    pub properties: Option<PathBuf>,
}

impl Settings {
    /// The install root. `.` is left out of what people read.
    pub(crate) fn root(&self) -> Root {
        if self.root.as_os_str() == "." { Root::new("") } else { Root::new(&self.root) }
    }

    /// What stands above the app's file, the process's environment included.
    pub(crate) fn surroundings(&self) -> Surroundings {
        Surroundings { set: self.set.clone(), properties: self.properties.clone(), ..Surroundings::of_process() }
    }

    /// The plan, or everything that is wrong with it.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        config::load(&self.root(), &self.surroundings())
    }
}
