//! What source and sink share when they make a client: properties that are refused, the codecs that must be there, and errors
//! that never show a value. Owns no default of either; those are stated where they are used.

use rdkafka::{ClientConfig, config::RDKafkaLogLevel, error::KafkaError};

use crate::Error;

/// Codecs that every client must be able to read, since a topic may hold any of them.
const CODECS: [&str; 4] = ["gzip", "snappy", "lz4", "zstd"];

/// Makes the configuration of a client: `defaults`, then the operator's `properties` (the last of a name wins), then `fixed`.
/// A property named in `fixed` or `refused` is an error, since kiteline's promises depend on it.
pub(crate) fn client_config(
    defaults: &[(&str, String)],
    properties: &[(String, String)],
    fixed: &[(&str, String)],
    refused: &[&str],
) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::new();
    for (name, value) in defaults {
        config.set(*name, value);
    }
    for (name, value) in properties {
        if refused.contains(&name.as_str()) || fixed.iter().any(|(own, _)| own == name) {
            let detail = "it is set by kiteline and cannot be changed".to_owned();
            return Err(Error::KafkaSetting { setting: name.clone(), detail });
        }
        config.set(name, value);
    }
    for (name, value) in fixed {
        config.set(*name, value);
    }
    config.set_log_level(RDKafkaLogLevel::Critical);
    check_codecs(&config)?;
    Ok(config)
}

/// Proves that the client was built with every codec.
fn check_codecs(config: &ClientConfig) -> Result<(), Error> {
    let features = config
        .create_native_config()
        .and_then(|native| native.get("builtin.features"))
        .map_err(|error| client_error("any", error))?;
    let missing: Vec<&str> =
        CODECS.into_iter().filter(|codec| !features.split(',').any(|feature| feature.trim() == *codec)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::KafkaClient { role: "any", detail: format!("it was built without {}", missing.join(", ")) })
}

/// Turns the crate's error into ours. A value is never shown: it may be a password.
pub(crate) fn client_error(role: &'static str, error: KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(_, detail, setting, _) => Error::KafkaSetting { setting, detail },
        other => Error::KafkaClient { role, detail: other.to_string() },
    }
}

/// Names of properties, values hidden, for `Debug`.
pub(crate) fn names_only(properties: &[(String, String)]) -> Vec<&str> {
    properties.iter().map(|(name, _)| name.as_str()).collect()
}
