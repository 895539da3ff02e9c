//! The registry against a stand-in that fails to order.

use std::{sync::Barrier, thread};

use super::*;

#[path = "../../../../../tests/src/registry.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the other suites, which use the rest")]
mod stand_in;

use stand_in::StandInRegistry;

const ORDER: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}"#;
const WAIT: Duration = Duration::from_secs(30);

fn config(server: &StandInRegistry) -> RegistryConfig {
    RegistryConfig { url: server.url(), auth: RegistryAuth::None, timeout_ms: 20_000, ca_pem: None }
}

fn start() -> (StandInRegistry, Registry) {
    let server = StandInRegistry::start().unwrap();
    let registry = Registry::new(&config(&server)).unwrap();
    (server, registry)
}

fn passing(answer: Result<Arc<Schema>, RegistryError>) -> String {
    match answer {
        Err(RegistryError::Passing(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn bad(answer: Result<Arc<Schema>, RegistryError>) -> String {
    match answer {
        Err(RegistryError::BadSchema(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_schema_is_asked_for_once() {
    let (server, registry) = start();
    server.put(7, ORDER);
    for _ in 0..3 {
        assert_eq!(registry.schema(7).unwrap().text(), ORDER);
    }
    assert_eq!(server.requests(), ["GET /schemas/ids/7"]);
}

/// Case 55: passing failures are not remembered, permanent ones for a while.
#[test]
fn case_55_only_definite_answers_are_remembered() {
    let (server, registry) = start();
    server.put(5, ORDER);
    server.script(5, &[503, 500, 429, 404]);
    // The last: a 404 that is not the registry's.
    for named in ["status 503", "status 500", "status 429", "no registry at this path"] {
        let text = passing(registry.schema(5));
        assert!(text.contains(named), "{text}");
    }
    assert_eq!(registry.schema(5).unwrap().text(), ORDER);
    assert_eq!(server.request_count(), 5);

    for _ in 0..3 {
        assert_eq!(registry.schema(6).unwrap_err(), RegistryError::NotFound);
    }
    assert_eq!(server.request_count(), 6);
    // The 30 seconds over, without waiting for them.
    let (_, at) = registry.known().refused.remove(&6).unwrap();
    let long_ago = at.checked_sub(REFUSED_FOR).unwrap();
    registry.known().refused.insert(6, (RegistryError::NotFound, long_ago));
    server.put(6, ORDER);
    assert_eq!(registry.schema(6).unwrap().text(), ORDER);
    assert_eq!(server.request_count(), 7);
}

/// Case 57: an outage is never the record's fault.
#[test]
fn case_57_an_outage_passes() {
    let (server, registry) = start();
    server.put(1, ORDER);
    server.set_down(true);
    let text = passing(registry.schema(1));
    assert!(text.contains(&format!("no answer from '{}'", server.url())), "{text}");
    server.set_down(false);
    server.set_status(Some(401));
    let text = passing(registry.schema(1));
    assert!(text.contains("refuses the credentials (status 401)"), "{text}");
    server.set_status(Some(403));
    passing(registry.schema(1));
    server.set_status(None);
    registry.schema(1).unwrap();

    let gone = StandInRegistry::start().unwrap();
    let registry = Registry::new(&config(&gone)).unwrap();
    drop(gone);
    passing(registry.schema(1));
}

#[test]
fn an_answer_that_does_not_come_is_given_up() {
    let server = StandInRegistry::start().unwrap();
    server.put(1, ORDER);
    server.set_held(true);
    let registry = Registry::new(&RegistryConfig { timeout_ms: 300, ..config(&server) }).unwrap();
    passing(registry.schema(1));
    server.set_held(false);
}

#[test]
fn many_who_ask_at_once_make_one_request() {
    let (server, registry) = start();
    server.put(9, ORDER);
    server.set_held(true);
    let started = Barrier::new(9);
    thread::scope(|scope| {
        let askers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    started.wait();
                    registry.schema(9)
                })
            })
            .collect();
        started.wait();
        assert!(server.wait_for_requests(1, WAIT));
        server.set_held(false);
        for asker in askers {
            assert_eq!(asker.join().unwrap().unwrap().text(), ORDER);
        }
    });
    assert_eq!(server.request_count(), 1);
}

#[test]
fn schemas_that_cannot_be_used_are_the_record_s_fault() {
    let (server, registry) = start();
    server.put(1, r#"{"type":"nonsense"}"#);
    server.put(2, ORDER);
    server.set_kind(2, "PROTOBUF");
    server.put_with(3, ORDER, &[("Item", "item", 1)]);
    bad(registry.schema(1));
    assert_eq!(bad(registry.schema(2)), "it is of type PROTOBUF, not AVRO");
    assert_eq!(bad(registry.schema(3)), "it refers to subject 'item' version 1, which is not there");
    // Remembered, too.
    let count = server.request_count();
    bad(registry.schema(1));
    assert_eq!(server.request_count(), count);
}

/// Case 59: references nested and shared are resolved, circles refused.
#[test]
fn case_59_references() {
    let (server, registry) = start();
    let money = r#"{"type":"record","name":"Money","fields":[{"name":"cents","type":"long"}]}"#;
    let item = r#"{"type":"record","name":"Item","fields":[{"name":"price","type":"Money"}]}"#;
    let order =
        r#"{"type":"record","name":"Order","fields":[{"name":"item","type":"Item"},{"name":"total","type":"Money"}]}"#;
    server.put(1, money);
    server.put_with(2, item, &[("Money", "shop/money", 1)]);
    server.put_with(3, order, &[("Item", "item", 1), ("Money", "shop/money", 1)]);
    server.add_version("shop/money", 1);
    server.add_version("item", 2);
    let schema = registry.schema(3).unwrap();
    assert!(schema.text().contains("cents"), "{}", schema.text());
    let asked = ["GET /schemas/ids/3", "GET /subjects/item/versions/1", "GET /subjects/shop%2Fmoney/versions/1"];
    assert_eq!(server.requests(), asked);

    server.put_with(10, order, &[("B", "b", 1)]);
    server.put_with(11, order, &[("A", "a", 1)]);
    server.add_version("a", 10);
    server.add_version("b", 11);
    assert_eq!(bad(registry.schema(10)), "its references go in a circle through subject 'b' version 1");
}

/// Case 59: a password with every troublesome character is sent as given, and shown nowhere.
#[test]
fn case_59_credentials() {
    let server = StandInRegistry::start().unwrap();
    server.put(1, ORDER);
    let password = "p:a@b/c%";
    server.require_basic("u", password);
    let auth = RegistryAuth::basic(&format!("u:{password}"));
    let config = RegistryConfig { auth, ..config(&server) };
    let registry = Registry::new(&config).unwrap();
    registry.schema(1).unwrap();

    server.require_basic("u", "another");
    let text = passing(registry.schema(2));
    let encoded = "dTpwOmFAYi9jJQ";
    for shown in [text, format!("{config:?}"), format!("{registry:?}")] {
        assert!(!shown.contains(password) && !shown.contains(encoded), "{shown}");
    }

    server.require_bearer("token");
    let auth = RegistryAuth::Bearer(Secret::new("token"));
    Registry::new(&RegistryConfig { auth, ..config.clone() }).unwrap().schema(1).unwrap();

    let refused = [
        ("http://u:p:a@b/c%@host", "credentials have settings of their own"),
        ("host:8081", "it does not begin with http"),
        ("http://", "it does not begin with http"),
        ("http://host/?a=b", "a query"),
    ];
    for (url, named) in refused {
        let error = Registry::new(&RegistryConfig { url: url.into(), ..config.clone() }).unwrap_err().to_string();
        assert!(error.contains(named) && !error.contains(password), "{url}: {error}");
    }
}

#[test]
fn subjects_are_read_checked_and_registered() {
    let (server, registry) = start();
    let schema = Schema::parse(ORDER).unwrap();
    assert_eq!(registry.latest("orders-value").unwrap_err(), RegistryError::NotFound);
    assert_eq!(registry.check("orders-value", &schema).unwrap(), Compatibility::FirstOfSubject);
    assert_eq!(registry.register("orders-value", &schema).unwrap(), 1);
    assert_eq!(registry.register("orders-value", &schema).unwrap(), 1);
    let latest = registry.latest("orders-value").unwrap();
    assert_eq!((latest.id, latest.version, latest.schema.text()), (1, 1, ORDER));
    assert_eq!(registry.check("orders-value", &schema).unwrap(), Compatibility::Compatible);
    server.set_incompatible("orders-value");
    let reasons = vec!["a field has no default".to_string()];
    assert_eq!(registry.check("orders-value", &schema).unwrap(), Compatibility::Incompatible(reasons));
    let error = registry.register("orders-value", &schema).unwrap_err();
    assert_eq!(
        error,
        RegistryError::BadSchema("schema being registered is incompatible with an earlier schema".into())
    );
}
