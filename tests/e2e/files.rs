//! Sinks that are files, and more than one pipeline in a process.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use kiteline_tests::{
    app::{App, line, names},
    kafka::{create_topic, read_all, send},
    orders::{datum, numbers, order, record},
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// The lines of a file, each of which must be whole.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn source_offset(line: &Value) -> i64 {
    line["source"]["offset"].as_i64().unwrap_or_else(|| panic!("no source offset: {line}"))
}

/// Case 24: JSON lines with the process killed again and again; what a checkpoint covers is in the files, every line is whole.
#[test]
fn case_24_lines_are_synced_before_the_checkpoint_moves() {
    const ORDERS: u64 = 30_000;
    let (topics, mut settings) = line("identity", 1);
    settings.store = "file".into();
    settings.sinks = "[[pipeline.p.sink]]\nkind = \"file\"\npath = \"out/orders.jsonl\"\n".into();
    settings.dead_letter = "path = \"out/dead.jsonl\"".into();
    let poisoned = |n: u64| n % 1_000 == 7;
    send(
        &topics.from,
        (0..ORDERS).map(|n| if poisoned(n) { record(n, 0, vec![0xff, 0xff]) } else { record(n, 0, datum(n, 50, 1.0)) }),
    );
    let app = App::write(&settings);
    fs::create_dir_all(app.root.join("out")).expect("a folder");
    let (out, dead) = (app.root.join("out/orders.jsonl"), app.root.join("out/dead.jsonl"));
    let mut committed = 0;
    for round in 0..5 {
        let process = app.run(0, &[]);
        let size = fs::metadata(&out).map_or(0, |m| m.len());
        wait::until("more lines", LIMIT, || {
            (fs::metadata(&out).is_ok_and(|m| m.len() > size) || committed == ORDERS as i64).then_some(())
        });
        process.kill();
        // the store's lock is gone with the process; the torn tail is cut at the next start
        let now = app.checkpoint(&topics.from, 0).unwrap_or(0);
        assert!(now >= committed, "round {round}: the checkpoint went back from {committed} to {now}");
        committed = now;
        let covered =
            whole_lines(&out).iter().chain(&whole_lines(&dead)).map(source_offset).fold(BTreeMap::new(), |mut m, o| {
                *m.entry(o).or_insert(0) += 1;
                m
            });
        let missing: Vec<i64> = (0..committed).filter(|o| !covered.contains_key(o)).take(5).collect();
        assert!(missing.is_empty(), "round {round}: checkpoint {committed}, not in the files: {missing:?}");
    }
    app.run_until_end(LIMIT);
    let (orders, letters) = (lines(&out), lines(&dead));
    let mut offsets: Vec<i64> = orders.iter().chain(&letters).map(source_offset).collect();
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len() as u64, ORDERS);
    assert!(letters.iter().all(|l| poisoned(source_offset(l).cast_unsigned())), "only poison is set aside");
    assert_eq!(orders[0]["value"]["id"], "order-000000000");
}

/// Lines of a file that may end within one.
fn whole_lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Two pipelines of one app in one process: one filters, one keeps; each has checkpoints of its own.
#[test]
fn two_pipelines_of_one_app() {
    let (topics, mut settings) = line("filter", 1);
    let second = names();
    create_topic(&second.to, 1, &[]);
    create_topic(&second.dead, 1, &[]);
    settings.more = format!(
        "[pipeline.q]\nsource = {{ topics = [\"{}\"] }}\ndecode = {{ {} }}\ndead_letter = {{ topic = \"{}\" }}\n\
         [[pipeline.q.transform]]\nplugin = \"lib/second.wasm\"\n[[pipeline.q.sink]]\nkind = \"kafka\"\ntopic = \"{}\"\n",
        topics.from, settings.decode, second.dead, second.to
    );
    let qty = |n: u64| if n.is_multiple_of(2) { 50 } else { 5 };
    send(&topics.from, (0..10).map(|n| record(n, 0, datum(n, qty(n), 1.0))));
    let app = App::write(&settings);
    fs::copy(kiteline_tests::process::plugin("identity"), app.root.join("lib/second.wasm")).expect("a plugin");
    app.run_until_end(LIMIT);
    assert_eq!(numbers(&read_all(&topics.to)), [0, 2, 4, 6, 8]);
    assert_eq!(numbers(&read_all(&second.to)), (0..10).collect::<Vec<_>>());
    let found: Vec<i64> = app.checkpoints().into_iter().map(|(_, next, _)| next).collect();
    assert_eq!(found, [10, 10]);
    send(&topics.from, [order(10, 0)]);
    app.run_until_end(LIMIT);
    assert_eq!(numbers(&read_all(&topics.to)), [0, 2, 4, 6, 8, 10]);
}
