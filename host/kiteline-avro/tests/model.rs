//! The crate against an independent model of the row contract: random schemas with their layout table, rows as the model's host lays them out,
//! new rows and patches as its guest lays them out, and damaged ones, each with the bytes or the failed check that the model expects.
//!
//! `fixtures/model.jsonl` holds one case a line. `KITELINE_AVRO_CASES` names another file of the same form for a longer run.

#![allow(
    clippy::unwrap_used,
    clippy::type_complexity,
    reason = "a test that unwraps fails where it stands; its tables are its own documentation"
)]

use std::fs;
use std::path::PathBuf;

use kiteline_avro::{Budget, Encoder, EntryError, Kind, Layout, Limits, Patcher, Plan, Refs, Schema};
use serde_json::Value;

/// How often each kind of check was made: a run that checks nothing must not pass.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    cases: usize,
    rows: usize,
    new_rows: usize,
    damaged: usize,
    damaged_refused: usize,
    patched: usize,
    patches_refused: usize,
}

#[test]
fn agrees_with_the_model() {
    let committed = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/model.jsonl"));
    let other = std::env::var_os("KITELINE_AVRO_CASES").map(PathBuf::from);
    let path = other.as_ref().unwrap_or(&committed);
    let text = fs::read_to_string(path).expect("cases are readable");
    let mut counts = Counts::default();
    for (number, line) in text.lines().enumerate() {
        let case: Value = serde_json::from_str(line).expect("a case is JSON");
        Case::new(&case, number + 1).check(&mut counts);
    }
    println!("{counts:?}");
    if other.is_none() {
        assert_eq!(counts, COMMITTED);
    }
}

/// What the committed file holds.
const COMMITTED: Counts = Counts {
    cases: 292,
    rows: 561,
    new_rows: 271,
    damaged: 1374,
    damaged_refused: 671,
    patched: 609,
    patches_refused: 38,
};

struct Case<'a> {
    json: &'a Value,
    line: usize,
    schema: Schema,
    encoder: Encoder,
    plan: Plan,
    input: Vec<u8>,
    heap: u32,
}

impl<'a> Case<'a> {
    fn new(json: &'a Value, line: usize) -> Case<'a> {
        let schema = Schema::parse(text(json, "schema")).unwrap_or_else(|error| panic!("line {line}: {error}"));
        Case {
            json,
            line,
            encoder: Encoder::compile(&schema, &Limits::default()).expect("encoder compiles"),
            plan: Plan::compile(&schema, &schema, &Limits::default()).expect("plan compiles"),
            schema,
            input: hex(text(json, "input")),
            heap: number(json, "heap") as u32,
        }
    }

    fn check(&self, counts: &mut Counts) {
        counts.cases += 1;
        let layout = Layout::new(&self.schema).expect("layout of a legal schema");
        assert_eq!(layout.table(), text(self.json, "table"), "line {}", self.line);
        assert_eq!(layout.fingerprint(), text(self.json, "fingerprint"), "line {}", self.line);
        for row in list(self.json, "rows") {
            self.row(&layout, row);
            counts.rows += 1;
        }
        let output = hex(text(self.json, "output"));
        for entry in list(self.json, "entries") {
            self.entry(&output, entry);
            counts.new_rows += 1;
        }
        for damage in list(self.json, "damaged") {
            let mut output = output.clone();
            for edit in list(damage, "edits") {
                let at = edit[0].as_u64().unwrap() as usize;
                let bytes = hex(edit[1].as_str().unwrap());
                output[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            for entry in list(damage, "entries") {
                counts.damaged += 1;
                counts.damaged_refused += usize::from(!self.entry(&output, entry));
            }
        }
        for patch in list(self.json, "patches") {
            match self.patch(patch) {
                true => counts.patched += 1,
                false => counts.patches_refused += 1,
            }
        }
    }

    /// The model's row encodes to its datum, and the datum, in whatever blocks, decodes to the model's row.
    fn row(&self, layout: &Layout, row: &Value) {
        let at = number(row, "at");
        let frame = &self.input[at..at + self.encoder.frame_bytes() as usize];
        let want = hex(text(row, "avro"));
        let refs = Refs { input: &self.input, input_low: self.heap, output: &[] };
        assert_eq!(self.encode(&refs, frame), Ok(want.clone()), "line {}", self.line);
        for datum in [&want, &hex(text(row, "datum"))] {
            self.valid(datum);
            let root = layout.node(0).frame_bytes() as usize;
            let mut buffer = vec![0; 8 + root];
            self.plan
                .decode(datum, &mut buffer, 8, 1 << 20)
                .unwrap_or_else(|error| panic!("line {}: {error}", self.line));
            let decoded = buffer[8..8 + root].to_vec();
            assert_eq!(shape(layout, &decoded), shape(layout, frame), "line {}", self.line);
            let refs = Refs { input: &buffer, input_low: 8 + root as u32, output: &[] };
            assert_eq!(self.encode(&refs, &decoded), Ok(want.clone()), "line {}", self.line);
        }
    }

    /// A guest's row gives the model's bytes or fails the model's check. Whether it gave bytes.
    fn entry(&self, output: &[u8], entry: &Value) -> bool {
        let at = number(entry, "at");
        let frame = &output[at..at + self.encoder.frame_bytes() as usize];
        let refs = Refs { input: &self.input, input_low: self.heap, output };
        let got = self.encode(&refs, frame);
        if let Ok(datum) = &got {
            self.valid(datum);
        }
        match (&got, entry["avro"].as_str(), entry["error"].as_str()) {
            (Ok(datum), Some(want), None) => assert_eq!(*datum, hex(want), "line {}", self.line),
            // the model counts its work in other units
            (_, None, Some("any")) => {}
            (Err(error), None, Some(want)) => {
                assert_eq!(name(*error), merged(want), "line {}", self.line)
            }
            (got, ..) => panic!("line {}: {got:02x?} but {entry}", self.line),
        }
        got.is_ok()
    }

    /// A patch gives the model's bytes or fails one of the model's checks. Whether it gave bytes.
    fn patch(&self, patch: &Value) -> bool {
        let reader = match patch["reader"].as_str() {
            Some(text) => Schema::parse(text).expect("a reader schema is legal"),
            None => self.schema.clone(),
        };
        let patcher = Patcher::compile(&self.schema, &reader, &Limits::default()).expect("patcher compiles");
        let datum = hex(text(&self.json["rows"][number(patch, "row")], "datum"));
        let output = hex(text(patch, "buffer"));
        let refs = Refs { input: &self.input, input_low: self.heap, output: &output };
        let at = number(patch, "at");
        let mut out = b"before".to_vec();
        let items = &output[at..at + number(patch, "len")];
        let got = patcher.patch(&refs, items, &datum, &mut out, &mut Budget::new(1 << 24));
        assert_eq!(&out[..6], b"before");
        match (got, patch["avro"].as_str()) {
            (Ok(()), Some(want)) => {
                assert_eq!(out[6..], hex(want), "line {}: {patch}", self.line);
                self.valid(&out[6..]);
                self.damage(&patcher, &refs, items, &datum);
                true
            }
            (Err(error), None) => {
                let names: Vec<&str> = list(patch, "errors").iter().filter_map(Value::as_str).collect();
                assert!(names.contains(&name(error)), "line {}: {error:?} but {patch}", self.line);
                assert_eq!(out, b"before");
                false
            }
            (got, _) => panic!("line {}: {got:?} but {patch}", self.line),
        }
    }

    /// Damaged items give a datum that can still be decoded, or fail; a damaged datum at worst gives another one.
    fn damage(&self, patcher: &Patcher, refs: &Refs<'_>, items: &[u8], datum: &[u8]) {
        let mut out = Vec::new();
        // frames that hold themselves would fill a record each time, so the budget is a small one
        let mut patch = |items: &[u8], datum: &[u8]| {
            out.clear();
            let result = patcher.patch(refs, items, datum, &mut out, &mut Budget::new(1 << 12));
            assert!(result.is_ok() || out.is_empty(), "line {}", self.line);
            result.is_ok().then(|| out.clone())
        };
        for index in 0..items.len() {
            let mut items = items.to_vec();
            items[index] ^= 1 << (index * 5 % 8);
            if let Some(datum) = patch(&items, datum) {
                self.valid(&datum);
            }
        }
        for index in 0..datum.len() {
            let mut datum = datum.to_vec();
            datum[index] ^= 1 << (index * 5 % 8);
            patch(items, &datum);
        }
    }

    /// What was encoded can be decoded.
    fn valid(&self, datum: &[u8]) {
        if let Err(error) = self.plan.check(datum) {
            panic!("line {}: {error}", self.line);
        }
    }

    fn encode(&self, refs: &Refs<'_>, frame: &[u8]) -> Result<Vec<u8>, EntryError> {
        let mut out = Vec::new();
        self.encoder.encode(refs, frame, &mut out, &mut Budget::new(1 << 24)).map(|()| out)
    }
}

/// What of a frame does not depend on where its cells lie: null words, numbers, and of the others length, count or branch.
fn shape(layout: &Layout, frame: &[u8]) -> Vec<u64> {
    fn kinds(layout: &Layout, node: u32, cells: &mut Vec<bool>) {
        match &layout.node(node).kind {
            Kind::Nullable(inner) => kinds(layout, *inner, cells),
            Kind::Struct(fields) => fields.iter().for_each(|field| kinds(layout, field.node, cells)),
            Kind::Null => {}
            Kind::Boolean | Kind::Int | Kind::Long | Kind::Float | Kind::Double | Kind::Enum(_) => cells.push(false),
            _ => cells.push(true),
        }
    }
    let mut cells = vec![false; layout.node(0).null_words() as usize];
    kinds(layout, 0, &mut cells);
    let words = frame.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    words.zip(cells).map(|(word, cell)| if cell { word >> 32 } else { word }).collect()
}

/// The two checks of a place that a guest may fail at once are told apart in another order than the model's.
fn merged(name: &str) -> &str {
    match name {
        "alignment" => "reference",
        name => name,
    }
}

fn name(error: EntryError) -> &'static str {
    match error.0.name() {
        "alignment" => "reference",
        name => name,
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no text '{key}'"))
}

fn number(value: &Value, key: &str) -> usize {
    value[key].as_u64().unwrap_or_else(|| panic!("no number '{key}'")) as usize
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no list '{key}'"))
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hex") as u8;
    text.as_bytes().as_chunks::<2>().0.iter().map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
