//! Settings of the ZooKeeper store, and a client made from them. Passwords appear in no message.

use std::time::Duration;

use zookeeper_client as zk;
use zookeeper_client::{Acl, AuthId, Permission};

use super::Trouble;
use crate::{Error, secret::Secret};

/// How ZooKeeper is reached and who one is there.
#[derive(Clone, Debug)]
pub struct ZookeeperConfig {
    /// `host:port,host:port/chroot`. A missing chroot is made. With [`ZookeeperConfig::tls`] all servers speak TLS; without,
    /// `tcp+tls://` before one makes that one speak it, with the system's own authorities.
    pub connect: String,
    /// Wanted session timeout in milliseconds, 1,000 to 600,000; the server may give another. 30,000 is usual.
    pub session_timeout_ms: u64,
    /// Who the nodes belong to, by the `digest` scheme. With this or `sasl`, nodes are made for their creator alone.
    pub digest: Option<Credentials>,
    /// Who one is, by SASL DIGEST-MD5.
    pub sasl: Option<Credentials>,
    /// Certificates, for servers that speak TLS.
    pub tls: Option<Tls>,
    /// Whether everybody may read nodes that only their creator may write.
    pub world_read: bool,
}

/// A user and a password.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Name, without a colon for the `digest` scheme.
    pub user: String,
    /// Password, sent as given.
    pub password: Secret,
}

/// Certificates as PEM text.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Authorities to trust.
    pub ca_pem: Option<String>,
    /// Own certificate and key, if the servers ask for one.
    pub identity_pem: Option<(String, Secret)>,
}

/// Settings that can be used.
pub(in super::super) struct Checked {
    /// Connect string without the chroot.
    servers: String,
    /// Chroot without the slash at its end; empty if there is none.
    chroot: String,
    session: Duration,
    secure: bool,
    template: zk::Connector,
    acls: Vec<Acl>,
}

impl ZookeeperConfig {
    /// Settings with the usual timeout and nothing else.
    pub fn new(connect: impl Into<String>) -> Self {
        Self {
            connect: connect.into(),
            session_timeout_ms: 30_000,
            digest: None,
            sasl: None,
            tls: None,
            world_read: false,
        }
    }

    pub(super) fn check(self) -> Result<Checked, Error> {
        let wrong = |setting, detail: String| Error::StoreSetting { setting, detail };
        let (servers, chroot) = split(&self.connect).map_err(|detail| wrong("connect", detail))?;
        if !(1_000..=600_000).contains(&self.session_timeout_ms) {
            let detail = format!("{} is not from 1000 to 600000", self.session_timeout_ms);
            return Err(wrong("session_timeout_ms", detail));
        }
        let session = Duration::from_millis(self.session_timeout_ms);
        let mut template = zk::Client::connector().with_session_timeout(session).with_fail_eagerly();
        if let Some(Credentials { user, password }) = &self.digest {
            if user.is_empty() || user.contains(':') {
                return Err(wrong("digest", "the user is empty or has a colon".into()));
            }
            template = template.with_auth("digest", format!("{user}:{}", password.reveal()).as_bytes());
        }
        if let Some(Credentials { user, password }) = &self.sasl {
            let options = zk::SaslOptions::digest_md5(user.clone(), password.reveal().to_string());
            template = template.with_sasl(options);
        }
        if let Some(tls) = &self.tls {
            let mut options = zk::TlsOptions::new();
            if let Some(ca) = &tls.ca_pem {
                options = options.with_pem_ca(ca).map_err(|error| wrong("tls.ca", error.to_string()))?;
            }
            if let Some((cert, key)) = &tls.identity_pem {
                let with = options.with_pem_identity(cert, key.reveal());
                options = with.map_err(|_| wrong("tls.identity", "certificate or key cannot be read".into()))?;
            }
            template = template.with_tls(options);
        }
        let mut acls = Vec::new();
        if self.digest.is_some() || self.sasl.is_some() {
            acls.push(Acl::new(Permission::ALL, AuthId::authed()));
            if self.world_read {
                acls.push(Acl::new(Permission::READ, AuthId::anyone()));
            }
        } else {
            acls.push(Acl::new(Permission::ALL, AuthId::anyone()));
        }
        Ok(Checked { servers, chroot, session, secure: self.tls.is_some(), template, acls })
    }
}

impl Checked {
    /// The servers, for messages.
    pub(super) fn servers(&self) -> &str {
        &self.servers
    }

    /// What goes before every path.
    pub(super) fn chroot(&self) -> &str {
        &self.chroot
    }

    /// Wanted session timeout.
    pub(super) fn session(&self) -> Duration {
        self.session
    }

    /// Who may do what with a new node.
    pub(super) fn acls(&self) -> &[Acl] {
        &self.acls
    }

    /// One try to open a session.
    pub(super) async fn connect(&self) -> Result<zk::Client, Trouble> {
        let connector = self.template.clone();
        let opened = if self.secure {
            connector.secure_connect(&self.servers).await
        } else {
            connector.connect(&self.servers).await
        };
        opened.map_err(|error| match error {
            zk::Error::NoHosts | zk::Error::Timeout | zk::Error::ConnectionLoss => {
                Trouble::Waiting(format!("no ZooKeeper server can be reached at '{}'", self.servers))
            }
            zk::Error::AuthFailed => {
                Trouble::Failed(format!("ZooKeeper at '{}' refuses the credentials", self.servers))
            }
            error => Trouble::Failed(format!("no session with ZooKeeper at '{}': {error}", self.servers)),
        })
    }
}

/// Splits the chroot off a connect string.
fn split(connect: &str) -> Result<(String, String), String> {
    // Slashes of `tcp+tls://` are in no chroot: that begins behind the last server.
    let last = connect.rfind(',').map_or(0, |at| at + 1);
    let from = last + connect[last..].find("://").map_or(0, |at| at + 3);
    let at = connect[from..].find('/').map_or(connect.len(), |at| from + at);
    let (servers, chroot) = connect.split_at(at);
    if servers.is_empty() || servers.split(',').any(str::is_empty) {
        return Err("not a list of host:port".into());
    }
    let chroot = chroot.strip_suffix('/').unwrap_or(chroot);
    if chroot.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!("chroot '{chroot}' has an empty part or one of dots"));
    }
    Ok((servers.into(), chroot.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chroot_is_split_off() {
        let cases = [
            ("a:1", Ok(("a:1", ""))),
            ("a:1,b:2/x/y", Ok(("a:1,b:2", "/x/y"))),
            ("a:1/", Ok(("a:1", ""))),
            ("tcp+tls://a:1,tcp://b:2/x/", Ok(("tcp+tls://a:1,tcp://b:2", "/x"))),
            ("tcp+tls://a:1", Ok(("tcp+tls://a:1", ""))),
            ("", Err("not a list of host:port")),
            ("a:1,", Err("not a list of host:port")),
            ("/x", Err("not a list of host:port")),
            ("a:1//x", Err("chroot '//x' has an empty part or one of dots")),
            ("a:1/x/..", Err("chroot '/x/..' has an empty part or one of dots")),
        ];
        for (connect, wanted) in cases {
            let found = split(connect);
            let found = found.as_ref().map(|(a, b)| (a.as_str(), b.as_str())).map_err(String::as_str);
            assert_eq!(found, wanted, "{connect}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let mut config = ZookeeperConfig::new("a:1");
        config.session_timeout_ms = 10;
        config.digest = Some(Credentials { user: "u:v".into(), password: Secret::new("p:a@b/c%") });
        config.tls = Some(Tls { ca_pem: None, identity_pem: Some(("c".into(), Secret::new("p:a@b/c%"))) });
        assert!(!format!("{config:?}").contains("p:a@b/c%"));
        for session_timeout_ms in [10, 30_000] {
            config.session_timeout_ms = session_timeout_ms;
            let error = config.clone().check().err().expect("refused");
            assert!(!format!("{error:?} {error}").contains("p:a@b/c%"));
        }
    }
}
