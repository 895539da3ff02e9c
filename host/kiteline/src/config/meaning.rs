//! From the configuration as written to the one as meant: defaults, relations, files, secrets.
//!
//! Needs no network and returns every problem. What plugins say about themselves is checked in [`super::plugins`], what live
//! systems say by `validate --live`. Pipelines are read in [`super::pipelines`].

use super::{
    keys,
    pipelines::{self, PluginUse},
    plan::{
        App, Checkpoint, CheckpointStore, Kafka, Member, Name, Pipeline, Plan, Registry, RegistryAuth, Zookeeper,
        ZookeeperAuth, ZookeeperScheme, ZookeeperTls,
    },
    section::{Context, Section},
    tree::Node,
    written,
};
use crate::{error::Problem, layout::Root};

/// What a configuration means, as far as it means anything.
pub(crate) struct Meaning {
    /// The whole plan; none if there is any problem.
    pub plan: Option<Plan>,
    /// The plugins that could be made out, also where other things are wrong.
    pub plugins: Vec<PluginUse>,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

/// Client properties that kiteline sets itself, and why nobody else may.
const OWN_PROPERTIES: &[(&str, &str)] = &[
    ("bootstrap.servers", "write kafka.bootstrap_servers"),
    ("metadata.broker.list", "write kafka.bootstrap_servers"),
    ("group.id", "write source.group of the pipeline"),
    ("group.instance.id", "write member.instance_id"),
    ("client.id", "it is made of app, pipeline and member"),
    ("auto.offset.reset", "write source.start and on_lost_position of the pipeline"),
    ("enable.auto.commit", "checkpoints are kiteline's own"),
    ("enable.auto.offset.store", "checkpoints are kiteline's own"),
    ("enable.partition.eof", "the source relies on it"),
    ("isolation.level", "only committed records are read"),
    ("partition.assignment.strategy", "it is cooperative-sticky"),
    ("acks", "an acknowledged record is on all replicas in sync"),
    ("request.required.acks", "an acknowledged record is on all replicas in sync"),
    ("enable.idempotence", "it is always on"),
    ("transactional.id", "it is kiteline's own"),
];

/// Reads `tree`, which need not be free of problems as written.
pub(crate) fn read(root: &Root, tree: &Node) -> Meaning {
    let mut context = Context { root, problems: Vec::new() };
    let top = Section::new(Some(tree), keys::ROOT, "", &tree.origin);
    let app = app(&table(&top, "app"), &mut context);
    let kafka = kafka(&table(&top, "kafka"), &mut context);
    let checkpoint = checkpoint(&table(&top, "checkpoint"), &mut context);
    let member = member(&table(&top, "member"), &mut context);
    let name = app.as_ref().map(|a| a.name.clone());
    let mut pipelines = Vec::new();
    let mut plugins = Vec::new();
    let named = top.node("pipeline").map_or(&[][..], Node::entries);
    for entry in named {
        let path = written::join("pipeline", &entry.name);
        let section = Section::new(Some(&entry.node), top.keys_of("pipeline"), &path, &entry.key_origin);
        let pipeline =
            pipelines::read(&entry.name, name.as_ref(), &section, checkpoint.as_ref(), &mut plugins, &mut context);
        pipelines.extend(pipeline);
    }
    if named.is_empty() {
        let problem = Problem::new("config.missing-key", "no pipeline").hint("write a section [pipeline.NAME]");
        context.problems.push(problem.at(top.place("pipeline")));
    }
    groups_differ(&pipelines, &top, &mut context);
    let plan = || {
        let (root, app, kafka, checkpoint) = (root.clone(), app?, kafka?, checkpoint?);
        Some(Plan { root, app, kafka, checkpoint, member, pipelines })
    };
    let plan = if context.problems.is_empty() { plan() } else { None };
    Meaning { plan, plugins, problems: context.problems }
}

/// The table `name` of a top-level section, whose path is its name.
fn table<'a>(top: &Section<'a>, name: &'a str) -> Section<'a> {
    Section::new(top.node(name), top.keys_of(name), name, top.origin())
}

fn app(section: &Section<'_>, context: &mut Context<'_>) -> Option<App> {
    let text = section.required("name", context)?;
    let release = section.text("release").unwrap_or_default().to_owned();
    let name = name("name", text, section, context)?;
    Some(App { name, release })
}

fn name(key: &str, text: &str, section: &Section<'_>, context: &mut Context<'_>) -> Option<Name> {
    let name = Name::new(text);
    if name.is_none() {
        let problem = Problem::new("config.bad-name", format!("\"{text}\" cannot be a name"));
        let hint = "a name has 1 to 100 letters, digits, - and _, and begins with a letter or digit";
        context.problems.push(problem.hint(hint).at(section.place(key)));
    }
    name
}

fn kafka(section: &Section<'_>, context: &mut Context<'_>) -> Option<Kafka> {
    let bootstrap_servers = section.required("bootstrap_servers", context).map(str::to_owned);
    let mut flat = Vec::new();
    if let Some(node) = section.node("properties") {
        written::flatten(node, "", &mut flat);
    }
    let mut properties = Vec::new();
    for (name, node) in flat {
        let place = || node.origin.place(format!("kafka.properties.{name}"));
        if let Some((_, why)) = OWN_PROPERTIES.iter().find(|(own, _)| *own == name) {
            let problem = Problem::new("config.own-property", format!("client property \"{name}\" is kiteline's own"));
            context.problems.push(problem.hint(*why).at(place()));
        } else if let Some(text) = written::scalar(&node.value) {
            properties.extend(context.expand(&text, place).map(|secret| (name, secret)));
        }
    }
    Some(Kafka { bootstrap_servers: bootstrap_servers?, properties })
}

fn checkpoint(section: &Section<'_>, context: &mut Context<'_>) -> Option<Checkpoint> {
    let interval_ms = section.number("interval_ms");
    let store = match section.choice("store") {
        Some("zookeeper") => CheckpointStore::Zookeeper(zookeeper(section, context)?),
        _ => CheckpointStore::File,
    };
    Some(Checkpoint { store, interval_ms })
}

fn zookeeper(section: &Section<'_>, context: &mut Context<'_>) -> Option<Zookeeper> {
    let connect = section.required("connect", context).map(str::to_owned);
    let below = |name| section.path_of(name);
    let (auth_path, tls_path) = (below("auth"), below("tls"));
    let auth = Section::new(section.node("auth"), section.keys_of("auth"), &auth_path, section.origin());
    let auth = auth.there().then(|| {
        let user = auth.required("user", context).map(str::to_owned);
        if auth.node("password").is_none() {
            context.problems.push(auth.missing("password"));
        }
        let password = auth.secret("password", context);
        let scheme = match auth.choice("scheme") {
            Some("sasl") => ZookeeperScheme::Sasl,
            _ => ZookeeperScheme::Digest,
        };
        let world_read = auth.truth("world_read");
        Some(ZookeeperAuth { scheme, user: user?, password: password?, world_read })
    });
    let tls = Section::new(section.node("tls"), section.keys_of("tls"), &tls_path, section.origin());
    let tls = tls.there().then(|| {
        let ca = tls.required("ca", context).map(|file| context.root.join(file));
        let file = |name| tls.text(name).map(|file| context.root.join(file));
        let client = match (file("cert"), file("key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (cert, _) => {
                context.problems.push(tls.missing(if cert.is_some() { "key" } else { "cert" }));
                None
            }
        };
        Some(ZookeeperTls { ca: ca?, client })
    });
    let session_timeout_ms = section.number("session_timeout_ms");
    let auth = match auth {
        Some(auth) => Some(auth?),
        None => None,
    };
    let tls = match tls {
        Some(tls) => Some(tls?),
        None => None,
    };
    Some(Zookeeper { connect: connect?, session_timeout_ms, auth, tls })
}

fn member(section: &Section<'_>, context: &mut Context<'_>) -> Member {
    let id = section.text("id").and_then(|text| name("id", text, section, context));
    let instance_id = section.text("instance_id").filter(|id| !id.is_empty()).map(str::to_owned);
    let workers = section.integer("workers").and_then(|n| u32::try_from(n).ok());
    Member { id, instance_id, workers, grace_ms: section.number("grace_ms") }
}

/// A registry address and its credentials; `section` holds `registry` and `registry_auth`.
pub(crate) fn registry(section: &Section<'_>, context: &mut Context<'_>) -> Option<Registry> {
    let url = section.text("registry")?;
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let place = section.place("registry");
    let problem = match rest {
        None | Some("") => {
            Some(Problem::new("config.bad-address", "the registry's address is not an http:// or https:// one"))
        }
        Some(rest) if rest.split('/').next().unwrap_or_default().contains('@') => Some(
            Problem::new("config.literal-secret", "credentials are written into the registry's address")
                .hint("write registry_auth = { user = \"…\", password = \"${env:NAME}\" }"),
        ),
        Some(_) => None,
    };
    let bad = problem.is_some();
    context.problems.extend(problem.map(|p| p.at(place)));
    let path = section.path_of("registry_auth");
    let auth = Section::new(section.node("registry_auth"), section.keys_of("registry_auth"), &path, section.origin());
    let auth = if auth.there() { Some(registry_auth(&auth, context)?) } else { None };
    (!bad).then(|| Registry { url: url.trim_end_matches('/').into(), auth })
}

fn registry_auth(section: &Section<'_>, context: &mut Context<'_>) -> Option<RegistryAuth> {
    if section.node("token").is_some() {
        if section.node("user").is_some() || section.node("password").is_some() {
            let problem = Problem::new("config.conflict", "both a token and a user are given");
            context.problems.push(problem.hint("keep one of them").at(section.place("token")));
        }
        return section.secret("token", context).map(RegistryAuth::Bearer);
    }
    let user = section.required("user", context).map(str::to_owned);
    if section.node("password").is_none() {
        context.problems.push(section.missing("password"));
    }
    let password = section.secret("password", context);
    Some(RegistryAuth::Basic { user: user?, password: password? })
}

/// Two pipelines in one group would get each other's partitions.
fn groups_differ(pipelines: &[Pipeline], top: &Section<'_>, context: &mut Context<'_>) {
    for (index, pipeline) in pipelines.iter().enumerate() {
        if let Some(other) = pipelines[..index].iter().find(|p| p.source.group == pipeline.source.group) {
            let (group, other) = (&pipeline.source.group, &other.name);
            let problem =
                Problem::new("config.conflict", format!("group \"{group}\" is also that of pipeline \"{other}\""));
            let key = format!("pipeline.{}.source.group", pipeline.name);
            let found = top.node("pipeline").and_then(|p| p.get(pipeline.name.as_str())?.get("source")?.get("group"));
            context.problems.push(problem.at(found.map_or(top.origin(), |n| &n.origin).place(key)));
        }
    }
}
