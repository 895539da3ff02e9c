//! Schemas from a registry: frames, ids that are not there, an outage, and the schema of what a plugin makes.

use std::time::Duration;

use kiteline_tests::{
    app::{App, Settings, Topics, line},
    kafka::{Rec, create_topic, header, read_all, send, unique, wait_for},
    orders::{SCHEMA, datum, long, numbers, record, text},
    registry::StandInRegistry,
};

const LIMIT: Duration = Duration::from_secs(60);
const ID: u32 = 5;

fn framed(id: u32, datum: &[u8]) -> Vec<u8> {
    [&[0], &id.to_be_bytes()[..], datum].concat()
}

/// A registry that knows the orders, and a pipeline that decodes with it.
fn with_registry(plugin: &str) -> (StandInRegistry, Topics, Settings) {
    let registry = StandInRegistry::start().expect("a registry");
    let (topics, mut settings) = line(plugin, 1);
    registry.put(ID, SCHEMA);
    registry.add_version(&format!("{}-value", topics.from), ID);
    settings.decode = format!("wire_format = \"confluent\", registry = \"{}\"", registry.url());
    (registry, topics, settings)
}

/// Case 14: no value is a tombstone; values without a whole frame are set aside with why; null and empty keys differ.
#[test]
fn case_14_tombstones_and_foreign_frames() {
    let (registry, topics, settings) = with_registry("stamp");
    let values: [Option<&[u8]>; 5] = [None, Some(b""), Some(&[0]), Some(&[0; 4]), Some(b"Hello")];
    let good = framed(ID, &datum(1, 50, 1.0));
    let records: Vec<Rec> = values
        .into_iter()
        .chain([Some(&good[..])])
        .enumerate()
        .map(|(n, value)| Rec { key: (n % 2 == 0).then(Vec::new), value: value.map(<[u8]>::to_vec), ..Rec::default() })
        .collect();
    send(&topics.from, records.clone());
    App::write(&settings).run_until_end(LIMIT);
    let pairs = |records: &[Rec]| records.iter().map(|r| (r.key.clone(), r.value.clone())).collect::<Vec<_>>();
    let came = read_all(&topics.to);
    assert_eq!(pairs(&came), pairs(&[records[0].clone(), records[5].clone()]));
    assert!(came.iter().all(|r| !header(r, "stamped-by").is_empty()), "the plugin saw the tombstone too: {came:?}");
    let letters = read_all(&topics.dead);
    assert_eq!(pairs(&letters), pairs(&records[1..5]));
    for (letter, word) in letters.iter().zip(["empty", "ends within", "ends within", "0x48"]) {
        assert_eq!(header(letter, "kiteline.code"), "decode.wire-format");
        assert!(header(letter, "kiteline.message").contains(word), "{:?}", letter.headers);
    }
    let asked = registry.requests().iter().filter(|r| r.contains("/schemas/ids/")).count();
    assert!(asked <= 1, "{:?}", registry.requests());
}

/// An id that the registry does not know is that record's fault; an outage is nobody's: the partition waits.
#[test]
fn an_outage_of_the_registry_sets_nothing_aside() {
    let (registry, topics, settings) = with_registry("identity");
    registry.put(6, SCHEMA);
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    let send_one = |n: u64, id: u32| send(&topics.from, [record(n, 0, framed(id, &datum(n, 50, 1.0)))]);
    send_one(0, ID);
    send_one(1, 77);
    send_one(2, ID);
    app.wait_for_checkpoint(&topics.from, 0, 3, LIMIT);
    let letters = read_all(&topics.dead);
    assert_eq!(numbers(&letters), [1]);
    assert_eq!(header(&letters[0], "kiteline.code"), "decode.schema");
    registry.set_down(true);
    send_one(3, 6);
    send_one(4, ID);
    process.wait_for_log("[decode.waits]", LIMIT);
    registry.set_status(Some(503));
    registry.set_down(false);
    let before = registry.request_count();
    assert!(registry.wait_for_requests(before + 2, LIMIT), "it is asked again");
    assert_eq!(app.checkpoint(&topics.from, 0), Some(3), "the partition waits");
    registry.set_status(None);
    app.wait_for_checkpoint(&topics.from, 0, 5, LIMIT);
    process.stop(LIMIT);
    assert_eq!(numbers(&read_all(&topics.to)), [0, 2, 3, 4]);
    assert_eq!(read_all(&topics.dead).len(), 1, "no dead letter for an outage");
}

/// The schema of a port is registered, and what goes there carries its id.
#[test]
fn what_a_plugin_makes_is_registered_and_framed() {
    let (registry, topics, mut settings) = with_registry("fan-out");
    let tagged = unique("tagged");
    create_topic(&tagged, 1, &[]);
    settings.sinks = format!(
        "[[pipeline.p.sink]]\nport = \"out\"\nkind = \"kafka\"\ntopic = \"{}\"\n[[pipeline.p.sink]]\nport = \"tagged\"\nkind = \"kafka\"\ntopic = \"{tagged}\"\n",
        topics.to
    );
    let order = framed(ID, &datum(1, 50, 2.5));
    send(&topics.from, [record(1, 0, order.clone())]);
    App::write(&settings).run_until_end(LIMIT);
    assert_eq!(read_all(&topics.to)[0].value, Some(order));
    let slim = wait_for(&tagged, 1, LIMIT);
    let mut expected = Vec::new();
    text(&mut expected, "order-000000001");
    text(&mut expected, "gift");
    long(&mut expected, 0);
    expected.extend(2.5f64.to_le_bytes());
    long(&mut expected, 1);
    text(&mut expected, "ring twice");
    // the stand-in numbers what it is given from the highest id that it has
    assert_eq!(slim[0].value, Some(framed(ID + 1, &expected)));
    assert!(
        registry.requests().contains(&format!("POST /subjects/{tagged}-value/versions")),
        "{:?}",
        registry.requests()
    );
}
