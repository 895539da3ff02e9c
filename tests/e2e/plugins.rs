//! Plugins that are replaced while records flow, or that do not belong to the pipeline.

use std::time::Duration;

use kiteline_tests::{
    app::{App, line},
    kafka::{self, header, read_all, send, wait_for},
    orders::{number, order},
    wait,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Records of each source partition: versions change once, nothing is missing, nothing comes twice.
#[test]
fn a_plugin_is_replaced_between_two_records() {
    let (topics, mut settings) = line("stamp", 2);
    settings.config = r#"version = "v1""#.into();
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    // the n-th order goes to partition n % 2
    let orders = |from: u64, to: u64| (from..to).map(|n| order(n, i32::from(n % 2 == 1)));
    send(&topics.from, orders(0, 200));
    wait_for(&topics.to, 200, LIMIT);
    settings.config = r#"version = "v2""#.into();
    app.configure(&settings);
    process.signal("HUP");
    send(&topics.from, orders(200, 2_000));
    process.wait_for_log("revision=2", LIMIT);
    send(&topics.from, orders(2_000, 2_200));
    let came = wait_for(&topics.to, 2_200, LIMIT);
    let log = process.log_text();
    process.stop(LIMIT);
    assert_eq!(log.matches("[transform.switched]").count(), 2, "{log}");
    for parity in 0..2 {
        let of: Vec<(u64, &str)> =
            came.iter().filter(|r| number(r) % 2 == parity).map(|r| (number(r), header(r, "stamped-by"))).collect();
        assert_eq!(of.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (parity..2_200).step_by(2).collect::<Vec<_>>());
        let first_v2 = of.iter().position(|(_, v)| *v == "v2").expect("v2 came");
        assert!(first_v2 > 0 && of[..first_v2].iter().all(|(_, v)| *v == "v1"), "a v1 prefix");
        assert!(of[first_v2..].iter().all(|(_, v)| *v == "v2"), "a v2 suffix");
    }
    for partition in 0..2 {
        assert_eq!(app.checkpoint(&topics.from, partition), Some(1_100));
    }
}

/// What cannot be loaded is not taken: the live plugin goes on, the log says why, and the next good one is taken.
#[test]
fn a_bad_plugin_is_refused_and_the_live_one_goes_on() {
    let (topics, mut settings) = line("stamp", 1);
    settings.config = r#"version = "v1""#.into();
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    send(&topics.from, [order(0, 0)]);
    wait_for(&topics.to, 1, LIMIT);
    let refused = |times: usize| {
        process.signal("HUP");
        wait::until("a refusal", LIMIT, || {
            (process.log_text().matches("[transform.swap-refused]").count() >= times).then_some(())
        });
        process.log_text()
    };
    std::fs::write(app.root.join("lib/plugin.wasm"), b"\0asm\x01\0\0\0").expect("a core module");
    let log = refused(1);
    assert!(log.contains("core module"), "{log}");
    app.put_plugin("faulty-trap");
    settings.config = r#"where = "open""#.into();
    app.configure(&settings);
    let log = refused(2);
    assert!(log.contains("told to panic in open"), "{log}");
    send(&topics.from, [order(1, 0)]);
    wait_for(&topics.to, 2, LIMIT);
    app.put_plugin("stamp");
    settings.config = r#"version = "v3""#.into();
    app.configure(&settings);
    process.signal("HUP");
    process.wait_for_log("revision=2", LIMIT);
    send(&topics.from, [order(2, 0)]);
    let came = wait_for(&topics.to, 3, LIMIT);
    process.stop(LIMIT);
    assert_eq!(came.iter().map(|r| header(r, "stamped-by")).collect::<Vec<_>>(), ["v1", "v1", "v3"]);
}

/// A member id names one process: a second one of that name is refused, and a killed one's successor takes over at once.
#[test]
fn a_member_id_is_used_once() {
    let (topics, mut settings) = line("identity", 1);
    settings.more = "[member]\nid = \"first\"".into();
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    process.wait_for_log("[checkpoint.claimed]", LIMIT);
    let (code, log) = app.run_and_wait(1, &[], LIMIT);
    assert_eq!(code, Some(4), "{log}");
    assert!(log.contains("\"first\"") && log.contains("in use"), "{log}");
    process.kill();
    send(&topics.from, [order(0, 0)]);
    let next = app.run(2, &[]);
    app.wait_for_checkpoint(&topics.from, 0, 1, LIMIT);
    next.stop(LIMIT);
}

/// A member with another plugin than the one that is live would mix two: it is refused, by both names; the first goes on.
#[test]
fn a_member_with_another_plugin_is_refused_by_name() {
    let (topics, settings) = line("identity", 2);
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    process.wait_for_log("[checkpoint.claimed]", LIMIT);
    let mut other = settings.clone();
    other.plugin = "stamp".into();
    let second = App::write(&other);
    let name = app.root.file_name().expect("a name").to_string_lossy().into_owned();
    let (code, log) = second.run_and_wait(1, &["--set", &format!("app.name={name}")], LIMIT);
    assert_eq!(code, Some(4), "{log}");
    assert!(log.contains("the pipeline runs revision 1 of plugin sha256:"), "{log}");
    assert!(log.contains("but this member has plugin sha256:"), "{log}");
    send(&topics.from, [order(0, 0), order(1, 1)]);
    wait_for(&topics.to, 2, LIMIT);
    process.stop(LIMIT);
    assert!(read_all(&topics.dead).is_empty());
    assert_eq!(kafka::ends(&topics.to), [2]);
}
