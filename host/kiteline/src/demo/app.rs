//! The app that the demo runs: its folder, its file, and what its checkpoints say at the end.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use super::Setup;
use crate::error::{Failure, Problem};

/// Topic of the orders.
pub const ORDERS: &str = "orders";
/// Topic of what the plugin makes of them.
pub const ENRICHED: &str = "orders.enriched";
/// Topic of dead letters.
pub const DEAD_LETTERS: &str = "orders.dead-letter";

/// Schema of the orders.
pub(super) const SCHEMA: &str = include_str!("../../../../plugins/order.avsc");

/// The mock cluster keeps about 5 MiB a partition; an order takes about 240 bytes with its key. Half of it is left free, for
/// nothing may fall out while a worker is being restarted.
const RECORDS_A_PARTITION: u64 = 10_000;

/// Partitions that hold `records` orders without losing any.
pub(super) fn partitions(records: u64) -> i32 {
    i32::try_from(records.div_ceil(RECORDS_A_PARTITION).clamp(4, 512)).unwrap_or(512)
}

/// The app's folder.
pub(super) struct App {
    pub(super) root: PathBuf,
}

impl App {
    pub(super) fn write(setup: &Setup, bootstrap: &str) -> Result<Self, Failure> {
        let root = setup.folder.clone();
        let failed =
            |e: io::Error| Failure::from(Problem::new("demo.folder", "the demo's folder cannot be written").cause(&e));
        for folder in ["conf", "lib"] {
            fs::create_dir_all(root.join(folder)).map_err(failed)?;
        }
        fs::write(root.join("conf/order.avsc"), SCHEMA).map_err(failed)?;
        fs::write(root.join("kiteline.toml"), config(bootstrap)).map_err(failed)?;
        let app = Self { root };
        app.put(&setup.plugins.join("demo_v1.wasm"))?;
        Ok(app)
    }

    /// Replaces the plugin, at once and whole.
    pub(super) fn swap(&self, setup: &Setup) -> Result<(), Failure> {
        self.put(&setup.plugins.join("demo_v2.wasm"))
    }

    fn put(&self, plugin: &Path) -> Result<(), Failure> {
        let failed = |e: io::Error| {
            let problem =
                Problem::new("demo.plugin", format!("the demo's plugin \"{}\" is not there", plugin.display()));
            Failure::from(problem.cause(&e).hint("`make plugins` builds it; `--plugins DIR` names another folder"))
        };
        let (beside, target) = (self.root.join("lib/.demo.wasm"), self.root.join("lib/demo.wasm"));
        fs::copy(plugin, &beside).map_err(failed)?;
        fs::rename(beside, target).map_err(failed)
    }

    /// Sum of all next_offsets, as `kiteline checkpoint show` tells them.
    pub(super) fn checkpointed(&self) -> Result<u64, Failure> {
        let failed =
            |why: String| Failure::from(Problem::new("demo.checkpoint", "the checkpoints cannot be shown").detail(why));
        let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let answer = Command::new(program)
            .args(["checkpoint", "show", "--format", "json", "--root"])
            .arg(&self.root)
            .output()
            .map_err(|e| failed(e.to_string()))?;
        let json: serde_json::Value = serde_json::from_slice(&answer.stdout)
            .map_err(|_| failed(String::from_utf8_lossy(&answer.stderr).into_owned()))?;
        Ok(sum(&json))
    }
}

/// Adds up every `next_offset` in the answer.
fn sum(json: &serde_json::Value) -> u64 {
    match json {
        serde_json::Value::Array(list) => list.iter().map(sum).sum(),
        serde_json::Value::Object(map) => {
            map.iter().map(|(k, v)| if k == "next_offset" { v.as_u64().unwrap_or(0) } else { sum(v) }).sum()
        }
        _ => 0,
    }
}

fn config(bootstrap: &str) -> String {
    format!(
        r#"[app]
name = "demo"
release = "1"

[kafka]
bootstrap_servers = "{bootstrap}"

# a killed worker is noticed soon
[kafka.properties]
"session.timeout.ms" = "2000"
"heartbeat.interval.ms" = "200"

[checkpoint]
store = "file"
interval_ms = 1000

[pipeline.enrich]
source = {{ topics = ["{ORDERS}"], start = "earliest" }}
decode = {{ wire_format = "plain", schema = "conf/order.avsc" }}
dead_letter = {{ topic = "{DEAD_LETTERS}" }}

[[pipeline.enrich.transform]]
plugin = "lib/demo.wasm"
config = {{ threshold = "50" }}

[[pipeline.enrich.sink]]
kind = "kafka"
topic = "{ENRICHED}"
"#
    )
}
