//! Secrets: values that are read from references and never shown.
//!
//! Owns the type that hides them and the expansion of `${env:NAME}` and `${file:PATH}`. Does not own which settings are
//! secret; [`crate::config`] says so.

use std::{fmt, fs, io, path::Path};

/// Longest secret read from a file: keys and certificates fit, a data file named by mistake does not.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A value that is never shown: `Debug` and `Display` write `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one call that hands it to a client. It must not reach a log line or a message.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Why a reference gives no value. Names the reference, never a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// `${` without its `}`.
    #[error("a reference begins with `${{` and has no `}}`")]
    Unclosed,
    /// Neither `env:` nor `file:`.
    #[error("a reference is `${{env:NAME}}` or `${{file:PATH}}`, not `${{{0}}}`")]
    Kind(String),
    /// The environment has no such variable, or it is not UTF-8.
    #[error("the environment variable \"{0}\" is not set")]
    Variable(String),
    /// The file cannot be read as text.
    #[error("the secret file \"{path}\" cannot be read")]
    File {
        /// As written in the reference.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Whether `text` holds a reference.
pub fn has_reference(text: &str) -> bool {
    text.replace("$${", "").contains("${")
}

/// `text` with everything but its references hidden.
pub fn masked(text: &str) -> String {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let end = rest[at..].find('}').map_or(rest.len(), |end| at + end + 1);
        if at > 0 {
            parts.push("***");
        }
        parts.push(&rest[at..end]);
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        parts.push("***");
    }
    parts.concat()
}

/// Replaces every reference in `text`; `$${` stands for a plain `${`.
///
/// `${env:NAME}` is the environment variable, `${file:PATH}` the content of a file of at most 64 KiB without its last
/// line break; a relative path counts from `root`.
pub fn expand(text: &str, root: &Path) -> Result<Secret, SecretError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let end = rest[at..].find('}').ok_or(SecretError::Unclosed)? + at;
        out.push_str(&resolve(&rest[at + 2..end], root)?);
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Ok(Secret(out))
}

fn resolve(reference: &str, root: &Path) -> Result<String, SecretError> {
    match reference.split_once(':') {
        Some(("env", name)) => std::env::var(name).map_err(|_| SecretError::Variable(name.into())),
        Some(("file", path)) => {
            read(&root.join(path)).map_err(|source| SecretError::File { path: path.into(), source })
        }
        _ => Err(SecretError::Kind(reference.chars().take(40).collect())),
    }
}

fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 KiB"));
    }
    let mut text = fs::read_to_string(path)?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it panics")]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_values_hidden() {
        let dir = std::env::temp_dir().join(format!("kiteline-secrets-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("pw"), "p:a@b/c%\n").unwrap();
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = expand(text, &dir);
            match (&found, expected) {
                (Ok(secret), Ok(value)) => assert_eq!(secret.expose(), value),
                (Err(error), Err(message)) => assert_eq!(error.to_string(), message),
                _ => panic!("{text}: {found:?}, not {expected:?}"),
            }
        };
        check("plain", Ok("plain"));
        check("${file:pw}", Ok("p:a@b/c%"));
        check("user:${file:pw}!", Ok("user:p:a@b/c%!"));
        check("$${env:X}", Ok("${env:X}"));
        check("${file:pw", Err("a reference begins with `${` and has no `}`"));
        check("${vault:pw}", Err("a reference is `${env:NAME}` or `${file:PATH}`, not `${vault:pw}`"));
        check("${env:KITELINE_NOT_THERE}", Err("the environment variable \"KITELINE_NOT_THERE\" is not set"));
        check("${file:none}", Err("the secret file \"none\" cannot be read"));
        assert_eq!(masked("user:${file:pw}!"), "***${file:pw}***");
        assert_eq!(masked("hunter2"), "***");
        assert_eq!(format!("{:?} {}", Secret::new("x"), Secret::new("x")), "*** ***");
        fs::remove_dir_all(&dir).unwrap();
    }
}
