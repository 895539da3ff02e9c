//! From the plan to the settings of the connectors: one function a connector, so that every command wires them alike.

use std::{fs, io, path::Path};

use kiteline_connectors::{
    Secret,
    checkpoint::{Backend, Credentials, StoreConfig, Tls, ZookeeperConfig},
    decode::{Registry, RegistryAuth, RegistryConfig},
};

use super::plan::{self, CheckpointStore, Plan, ZookeeperScheme};
use crate::error::{Exit, Failure, Problem};

/// Longest question to a schema registry, in milliseconds.
const REGISTRY_TIMEOUT_MS: u64 = 5_000;

/// The checkpoint store of one pipeline. Reads the certificates that it names.
pub fn store(plan: &Plan, pipeline: &str, read_only: bool) -> Result<StoreConfig, Failure> {
    let backend = match &plan.checkpoint.store {
        CheckpointStore::File => Backend::File(plan.root.checkpoints(pipeline)),
        CheckpointStore::Zookeeper(settings) => Backend::Zookeeper(zookeeper(settings)?),
    };
    Ok(StoreConfig { app: plan.app.name.to_string(), pipeline: pipeline.into(), read_only, backend })
}

fn zookeeper(settings: &plan::Zookeeper) -> Result<ZookeeperConfig, Failure> {
    let mut config = ZookeeperConfig::new(&settings.connect);
    config.session_timeout_ms = settings.session_timeout_ms.into();
    if let Some(auth) = &settings.auth {
        let password = Secret::new(auth.password.expose());
        let credentials = Some(Credentials { user: auth.user.clone(), password });
        match auth.scheme {
            ZookeeperScheme::Digest => config.digest = credentials,
            ZookeeperScheme::Sasl => config.sasl = credentials,
        }
        config.world_read = auth.world_read;
    }
    if let Some(tls) = &settings.tls {
        let identity_pem = match &tls.client {
            Some((cert, key)) => Some((pem(cert)?, Secret::new(pem(key)?))),
            None => None,
        };
        config.tls = Some(Tls { ca_pem: Some(pem(&tls.ca)?), identity_pem });
    }
    Ok(config)
}

fn pem(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error: io::Error| {
        let message = format!("PEM file \"{}\" cannot be read", path.display());
        Failure::usage(vec![Problem::new("checkpoint.unreadable-pem", message).cause(&error)])
    })
}

/// A client of a schema registry. Nothing is asked of it yet.
pub fn registry(settings: &plan::Registry) -> Result<Registry, Failure> {
    let auth = match &settings.auth {
        None => RegistryAuth::None,
        Some(plan::RegistryAuth::Basic { user, password }) => {
            RegistryAuth::Basic { user: user.clone(), password: Secret::new(password.expose()) }
        }
        Some(plan::RegistryAuth::Bearer(token)) => RegistryAuth::Bearer(Secret::new(token.expose())),
    };
    let config = RegistryConfig { url: settings.url.clone(), auth, timeout_ms: REGISTRY_TIMEOUT_MS, ca_pem: None };
    Registry::new(&config).map_err(|error| {
        let problem = Problem::new("decode.registry", "the schema registry's settings cannot be used").cause(&error);
        Failure::new(Exit::Usage, problem)
    })
}

/// Client properties as Kafka's client takes them. They hold secrets: hand them over, and never show them.
pub fn kafka_properties(kafka: &plan::Kafka) -> Vec<(String, String)> {
    kafka.properties.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
}
