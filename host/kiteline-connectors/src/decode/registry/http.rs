//! The registry's REST interface: requests, and which of its refusals say something definite. Owns the credentials.
//!
//! The interface is Confluent's (`/schemas/ids`, `/subjects`, `/compatibility`, errors as `{"error_code", "message"}`), which other
//! registries speak too. A 404 counts as "not there" only with one of the error codes that mean it: a 404 of a wrong path or of
//! a proxy would turn every record into a dead letter.

use std::time::Instant;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
};

use super::{RegistryAuth, RegistryConfig};
use crate::{Error, Secret};

/// Longest answer in bytes. Schemas may have up to 1 MiB, and are JSON inside JSON.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Longest text of the registry that is passed on, in characters.
const TEXT_CHARS_MAX: usize = 300;

const MEDIA_TYPES: &str = "application/vnd.schemaregistry.v1+json, application/json";

/// Error codes of "subject", "version" and "schema not found".
const NOT_FOUND_CODES: [i64; 3] = [40_401, 40_402, 40_403];

/// A connection pool for one registry.
#[derive(Debug)]
pub(super) struct Http {
    agent: Agent,
    /// Without a slash at its end.
    base: String,
    authorization: Option<Secret>,
}

/// A refusal.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A definite "not there".
    NotFound,
    /// What was sent is not legal or does not fit (409, 422).
    Invalid(String),
    /// Everything else.
    Passing(String),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Complaint {
    error_code: i64,
    message: String,
}

impl Http {
    pub(super) fn new(config: &RegistryConfig) -> Result<Self, Error> {
        let wrong = |setting, detail: &str| Error::RegistrySetting { setting, detail: detail.into() };
        let base = config.url.trim_end_matches('/');
        let rest = base.strip_prefix("http://").or_else(|| base.strip_prefix("https://"));
        let rest = rest.ok_or_else(|| wrong("url", "it does not begin with http:// or https://"))?;
        let host = rest.split('/').next().unwrap_or_default();
        if rest.contains(['?', '#']) || host.is_empty() {
            return Err(wrong("url", "it has no host, or a query"));
        }
        if rest.contains('@') {
            return Err(wrong("url", "credentials have settings of their own, they are not part of the address"));
        }
        let authorization = match &config.auth {
            RegistryAuth::None => None,
            RegistryAuth::Basic { user, .. } if user.contains(':') => {
                return Err(wrong("auth", "the user has a colon"));
            }
            RegistryAuth::Basic { user, password } => {
                Some(format!("Basic {}", base64(format!("{user}:{}", password.reveal()).as_bytes())))
            }
            RegistryAuth::Bearer(token) => Some(format!("Bearer {}", token.reveal())),
        };
        if authorization.as_deref().is_some_and(|header| !header.bytes().all(|b| (0x20..0x7f).contains(&b))) {
            return Err(wrong("auth", "the token has characters that no header can carry"));
        }
        let roots = match &config.ca_pem {
            None => RootCerts::PlatformVerifier,
            Some(pem) => {
                let certificate = Certificate::from_pem(pem.as_bytes());
                let certificate = certificate.map_err(|_| wrong("ca", "it is not a certificate as PEM text"))?;
                RootCerts::new_with_certs(&[certificate])
            }
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // The registry is a neighbour: no proxy is taken from the environment.
            .proxy(None)
            .max_redirects(3)
            .user_agent(concat!("kiteline/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().provider(TlsProvider::NativeTls).root_certs(roots).build())
            .build()
            .new_agent();
        Ok(Self { agent, base: base.into(), authorization: authorization.map(Secret::new) })
    }

    /// Asks for something.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str, until: Instant) -> Result<T, Refusal> {
        let mut request = self.agent.get(self.base.clone() + path).header("accept", MEDIA_TYPES);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization.reveal());
        }
        self.answer(request.config().timeout_global(Some(left(until)?)).build().call())
    }

    /// Sends something.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &Value, until: Instant) -> Result<T, Refusal> {
        let mut request = self.agent.post(self.base.clone() + path).header("accept", MEDIA_TYPES);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization.reveal());
        }
        let request = request.header("content-type", "application/vnd.schemaregistry.v1+json");
        self.answer(request.config().timeout_global(Some(left(until)?)).build().send(body.to_string()))
    }

    fn answer<T: DeserializeOwned>(
        &self,
        answered: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T, Refusal> {
        let base = &self.base;
        let unreachable =
            |error: ureq::Error| Refusal::Passing(format!("no answer from '{base}': {}", tidy(&error.to_string())));
        let mut answer = answered.map_err(unreachable)?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(unreachable)?;
        if (200..300).contains(&status) {
            return serde_json::from_str(&text)
                .map_err(|error| Refusal::Passing(format!("the answer of '{base}' is not a registry's: {error}")));
        }
        let Complaint { error_code, message } = serde_json::from_str(&text).unwrap_or_default();
        let message = tidy(&message);
        Err(match status {
            404 if NOT_FOUND_CODES.contains(&error_code) => Refusal::NotFound,
            409 | 422 => Refusal::Invalid(message),
            401 | 403 => Refusal::Passing(format!("'{base}' refuses the credentials (status {status})")),
            404 => Refusal::Passing(format!("'{base}' has no registry at this path (status 404)")),
            _ => Refusal::Passing(format!("'{base}' answers status {status}: {message}")),
        })
    }
}

fn left(until: Instant) -> Result<std::time::Duration, Refusal> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Refusal::Passing("no answer in time".into())) } else { Ok(left) }
}

/// Foreign text, short and on one line.
fn tidy(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= group.len() { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_of_the_standard() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, text) in cases {
            assert_eq!(super::base64(plain.as_bytes()), text);
        }
        assert_eq!(super::base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
