//! Guests that break: each bad record ends alone as a rejection with its reason, everything else goes on, a fresh instance serves it,
//! and the process lives (cases 60, 63, 65, 66).

use std::collections::BTreeSet;

use kiteline_engine::record::OWN;
use kiteline_sandbox::{CallLimits, LogLevel};

use crate::guest::{Guest, Line, Out, blobs, each_row, echo, hex, long, numbers, slot, varint};

/// Keeps each number, but for some it does something else.
fn faulty() -> Guest {
    let when = |n: i64, body: &str| format!("(if (i64.eq (local.get $n) (i64.const {n})) (then {body}))\n");
    let process = [
        when(600, "(call $log (i32.const 4) (i32.const 0x8000) (i32.const 13)) unreachable"),
        when(601, "(loop (br 0))"),
        when(602, "(call $deep)"),
        when(603, "(return (call $fault (i32.const -1) (i32.const 0x8000) (i32.const 13)))"),
        when(604, "(return (call $fault (local.get $i) (i32.const 0x8000) (i32.const 13)))"),
        when(605, "(call $emit (i32.const 0x8000) (i32.const 40) (i32.const 64)) (return (call $ok))"),
        when(606, "(return (call $fault (i32.const 999) (i32.const 0x8000) (i32.const 13)))"),
        when(607, "(loop (drop (memory.grow (i32.const 1))) (br 0))"),
        when(608, "(call $deep_host)"),
        when(609, "(drop (i32.load (i32.const -8)))"),
        when(610, "(return (i32.const 0x1ffffff))"),
        when(611, "(call $emit (i32.const 0x8000) (i32.const 0x7fffffff) (i32.const 64))"),
        when(
            612,
            "(loop $more (call $entry (local.get $i) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
               (br_if $more (i32.lt_u (global.get $entries) (i32.const 40000)))) (call $send)",
        ),
        when(613, "(call $deep_slow)"),
    ]
    .concat()
        + "(call $count (i32.const 0x8010) (i32.const 4) (i32.const 1))
           (call $entry (local.get $i) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))";
    let functions = "
        (func $deep (call $deep) (call $deep))
        (func $deep_host (call $log (i32.const 0) (i32.const 0x8000) (i32.const 13)) (call $deep_host) (call $deep_host))
        (func $deep_slow (local i64 i64 i64 i64) (call $emit (i32.const 0) (i32.const 0) (i32.const 64)) (call $deep_slow) (call $deep_slow))
    ";
    let data = b"it went\nwrong\0\0\0rows".to_vec();
    Guest { process: each_row(&process), functions: functions.into(), data, ..Guest::default() }
}

/// Short deadline for those that need one; the others end by themselves.
fn line(guest: &Guest, call_deadline_ms: u32) -> Line {
    guest.deploy_with(CallLimits { call_deadline_ms, ..CallLimits::default() }, |_| {}).unwrap()
}

#[test]
fn case_60_a_trap_costs_one_record_and_one_instance_each() {
    let guest = faulty();
    let mut lines = [guest.deploy(), guest.deploy()];
    // two partitions of 50, every tenth record is bad
    for line in &mut lines {
        let given: Vec<Option<i64>> = (0..50).map(|n| Some(if n % 10 == 5 { 600 } else { n })).collect();
        let batch = numbers(&given);
        let report = line.run_plain(&batch);
        let good: Vec<String> = (0..50).filter(|n| n % 10 != 5).map(|n| format!("{n}:{}", hex(&varint(n)))).collect();
        assert_eq!(line.values(&batch), good);
        let bad: Vec<String> = [5, 15, 25, 35, 45]
            .map(|n| format!("{n} transform.trap it went\\nwrong (wasm trap: wasm `unreachable` instruction executed)"))
            .to_vec();
        assert_eq!(line.rejections(), bad);
        assert_eq!((report.rows, report.kept, report.dropped), (50, 45, 0));
        assert!(report.traps > 5 && report.instances <= report.traps, "{report:?}");
        // counted once each although the batch was replayed in parts
        assert_eq!(report.counters, [("rows".to_owned(), 45)]);
        // the next batch is served by a fresh instance
        let next = numbers(&[Some(1), Some(2)]);
        let report = line.run_plain(&next);
        assert_eq!(line.values(&next), ["0:02", "1:04"]);
        assert_eq!((report.traps, line.rejected.len()), (0, 0));
    }
}

#[test]
fn one_guilty_row_of_256_takes_at_most_16_partial_replays() {
    let mut line = faulty().deploy();
    for guilty in [0, 100, 255] {
        let given: Vec<Option<i64>> = (0..256).map(|n| Some(if n == guilty { 600 } else { n })).collect();
        let batch = numbers(&given);
        let report = line.run_plain(&batch);
        assert_eq!(report.traps, 9, "256, 128, ... 1");
        assert!(report.instances <= 9, "{}", report.instances);
        assert_eq!((line.out.records.len(), line.rejected.len()), (255, 1));
        assert_eq!(line.rejected[0].source, guilty as u32);
    }
}

#[test]
fn case_63_loops_recursion_and_growth_end_as_rejections() {
    let cases = [
        (601, "transform.deadline", "the call passed its deadline of 300 ms"),
        (602, "transform.trap", "wasm trap: call stack exhausted"),
        (607, "transform.deadline", "the call passed its deadline of 300 ms"),
        (608, "transform.trap", "wasm trap: call stack exhausted"),
        (609, "transform.trap", "wasm trap: out of bounds memory access"),
        (613, "transform.trap", "wasm trap: call stack exhausted"),
    ];
    // The smallest thread that is allowed to run guests: their stack, the host's reserve, and what is used already.
    let run = move || {
        let mut line = line(&faulty(), 300);
        for (number, code, message) in cases {
            let batch = numbers(&[Some(7), Some(number), Some(8)]);
            let report = line.run_plain(&batch);
            assert_eq!(line.values(&batch), ["0:0e", "2:10"]);
            assert_eq!(line.rejections(), [format!("1 {code} {message}")]);
            assert_eq!(report.traps + report.deadlines, 2 + u32::from(report.traps + report.deadlines == 3));
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn faults_and_refused_buffers_end_as_rejections() {
    let malformed = "emit was refused: malformed, header: magic is not KLO1";
    let cases = [
        (603, "transform.fault", "it went\\nwrong"),
        (604, "transform.fault", "it went\\nwrong"),
        (605, "transform.fault", malformed),
        (606, "transform.fault", "it went\\nwrong"),
        (612, "transform.fault", "emit was refused: more than 30000 entries in one batch"),
    ];
    let limits = CallLimits { call_deadline_ms: 20_000, emit_entries_max: 30_000, ..CallLimits::default() };
    let mut line = faulty().deploy_with(limits, |_| {}).unwrap();
    for (number, code, message) in cases {
        let batch = numbers(&[Some(7), Some(8), Some(number), Some(9), Some(10)]);
        let report = line.run_plain(&batch);
        assert_eq!(line.values(&batch), ["0:0e", "1:10", "3:12", "4:14"], "{number}");
        assert_eq!(line.rejections(), [format!("2 {code} {message}")]);
        assert_eq!((report.traps, report.instances), (0, 0), "a fault leaves the instance alive");
    }
    for number in [610, 611] {
        let batch = numbers(&[Some(number), Some(9)]);
        line.run_plain(&batch);
        assert_eq!(line.values(&batch), ["1:12"]);
        assert_eq!(line.rejected[0].code, "transform.trap", "{}", line.rejected[0].message);
    }
}

#[test]
fn a_plugin_with_state_is_not_replayed() {
    let mut line = Guest { stateless: false, ..faulty() }.deploy();
    let batch = numbers(&[Some(1), Some(604), Some(2)]);
    let report = line.run_plain(&batch);
    assert_eq!((line.out.records.len(), report.kept), (0, 0));
    let said = "transform.fault it went\\nwrong (3 records failed together, since the plugin keeps state)";
    assert_eq!(line.rejections(), [0, 1, 2].map(|n| format!("{n} {said}")));
    let next = numbers(&[Some(1)]);
    line.run_plain(&next);
    assert_eq!(line.values(&next), ["0:02"]);
}

#[test]
fn memory_is_limited_over_all_of_an_instance() {
    // 2 MiB at the start, a little over 3 MiB allowed (a table is there too): the second of two growths by 1 MiB fails, and the guest notices
    let process = each_row("(if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))");
    let guest = Guest { process, ..Guest::default() };
    let limits = CallLimits { memory_bytes_max: (3 << 20) + 4096, call_deadline_ms: 20_000, ..CallLimits::default() };
    let mut line = guest.deploy_with(limits, |_| {}).unwrap();
    let batch = numbers(&[Some(1)]);
    line.run_plain(&batch);
    assert_eq!(line.rejections(), [""; 0]);
    line.run_plain(&batch);
    assert_eq!(
        line.rejections(),
        [
            "0 transform.trap wasm trap: wasm `unreachable` instruction executed; its memory limit of 3149824 bytes was reached"
        ]
    );
    // a start that needs more is refused at deployment
    let limits = CallLimits { memory_bytes_max: 1 << 20, ..CallLimits::default() };
    let error = guest.deploy_with(limits, |_| {}).err().unwrap();
    assert_eq!(error.code(), "transform.broke", "{error}");
    assert!(error.to_string().ends_with("its memory limit of 1048576 bytes was reached"), "{error}");
}

#[test]
fn case_65_log_lines_are_bounded_and_stay_one_line() {
    let line_text = b"ok\n{\"level\":\"ERROR\",\"tenant\":\"other\"}";
    let process = each_row(
        "(call $log (i32.const 2) (i32.const 0x8000) (i32.const 37)) (call $log (i32.const 3) (i32.const 0x8000) (i32.const 9000))",
    );
    let mut line = Guest { process, data: line_text.to_vec(), ..Guest::default() }.deploy();
    let given: Vec<Option<i64>> = (0..50).map(Some).collect();
    let report = line.run_plain(&numbers(&given));
    assert_eq!((report.log.len(), report.cut, report.dropped), (64, 36, 50));
    assert_eq!(report.log[0].level, LogLevel::Info);
    assert_eq!(report.log[0].text, "ok\\n{\"level\":\"ERROR\",\"tenant\":\"other\"}");
    assert_eq!(report.log[1].text.len(), 4096);
    assert!(report.log.iter().all(|line| !line.text.contains(|c: char| c.is_control())));
    let next = line.run_plain(&numbers(&[Some(1)]));
    assert_eq!((next.log.len(), next.cut), (2, 0), "the bound is per batch");
}

#[test]
fn nothing_can_be_emitted_outside_a_batch_and_open_must_end() {
    let emit = Guest {
        open: "(call $emit (i32.const 0x8000) (i32.const 32) (i32.const 64))
               (if (i32.ne (i32.load8_u (i32.const 68)) (i32.const 2)) (then unreachable))"
            .into(),
        ..Guest::default()
    };
    assert!(emit.deploy_with(CallLimits::default(), |_| {}).is_ok(), "the answer is no-batch");
    let trap = Guest { open: "unreachable".into(), ..Guest::default() };
    assert_eq!(
        trap.deploy_with(CallLimits::default(), |_| {}).err().unwrap().to_string(),
        "plugin broke in open: wasm trap: wasm `unreachable` instruction executed"
    );
    let wrong = Guest { revision: 2, ..Guest::default() };
    assert_eq!(
        wrong.deploy_with(CallLimits::default(), |_| {}).err().unwrap().to_string(),
        "plugin was built for row layout revision 2, this host speaks 1"
    );
}

#[test]
fn a_hostile_buffer_never_gets_through() {
    // Every damaged byte of a good buffer: outputs, rejections or a refusal, never a panic, and what remains is sound.
    let good = Out::default()
        .entry(0, 0, 0, &[])
        .entry(
            0,
            2 + 16 + 64,
            2,
            &[slot(OWN + 128, 4), 5i64.to_le_bytes().to_vec(), long(3), slot(OWN + 128, 4)].concat(),
        )
        .entry(1, 4, 0, &[long(7), slot(OWN + 128, 4)].concat())
        .heap(b"text\0\0\0\0")
        .finish();
    // 3 entries end at 80, payloads of 32 and 16 bytes at 128
    assert_eq!(&good[128..132], b"text");
    let mut line = echo(0).deploy();
    let mut codes = BTreeSet::new();
    for at in 0..good.len() {
        for flip in [1u8, 8, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            let batch = blobs(&[(1, &bytes), (2, b"")]);
            let report = line.run_plain(&batch);
            assert_eq!(report.traps, 0);
            for output in &line.out.records {
                let value = line.out.bytes_of(&batch, output.value).unwrap_or(&[]);
                assert!(output.port != 2 || value.is_empty() || value.len() >= 2, "{}", hex(value));
            }
            assert!(line.rejected.iter().all(|rejection| rejection.source < 2));
            codes.extend(line.rejected.iter().map(|rejection| rejection.code.to_string()));
        }
    }
    let want = ["transform.fault", "transform.length", "transform.range", "transform.reference", "transform.reject"];
    assert_eq!(codes.iter().collect::<Vec<_>>(), want);
}
