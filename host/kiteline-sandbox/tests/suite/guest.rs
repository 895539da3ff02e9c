//! Guests written by hand as core modules in text form, made into components by the crate under test, and the batches that they are
//! fed. Owns the canonical ABI as these guests need it (component model, "Canonical ABI"); not here: anything that is checked.

use std::{fmt::Write as _, sync::Arc, sync::OnceLock};

use kiteline_avro::Schema;
use kiteline_engine::record::{Header, OffsetRange, OutputBatch, Record, RecordBatch, Rejection, Span, TimestampKind};
use kiteline_sandbox::{
    CallLimits, Datum, Deployment, DeploymentSetup, Error, PortSetup, Report, Runtime, RuntimeLimits, Transformer,
    WriterId, componentize,
};

/// A record of one long: its frame is one slot, its datum one varint.
pub(crate) const NUMBER: &str = r#"{"type":"record","name":"Number","fields":[{"name":"n","type":"long"}]}"#;

/// What a guest says about itself and does.
#[derive(Clone)]
pub(crate) struct Guest {
    pub(crate) reader: Option<String>,
    /// Bits of `wants`: 1 key, 2 headers, 4 tombstones, 8 undecodable.
    pub(crate) wants: u8,
    /// Names and formats: 0 same, 1 raw, 2 avro with a schema.
    pub(crate) ports: Vec<(&'static str, u8, String)>,
    pub(crate) revision: u32,
    pub(crate) stateless: bool,
    /// Bytes of first memory, in pages of 64 KiB.
    pub(crate) pages: u32,
    /// Body of `open` before it answers ok.
    pub(crate) open: String,
    /// Body of `process`: parameters `$buf` and `$len`, answers by `(return (call $ok))` or the like.
    pub(crate) process: String,
    /// More functions.
    pub(crate) functions: String,
    /// Bytes placed at [`DATA`].
    pub(crate) data: Vec<u8>,
}

/// Where [`Guest::data`] lies.
pub(crate) const DATA: u32 = 0x8000;

impl Default for Guest {
    fn default() -> Self {
        Self {
            reader: Some(NUMBER.into()),
            wants: 0,
            ports: vec![("out", 0, String::new())],
            revision: 1,
            stateless: true,
            pages: 32,
            open: String::new(),
            process: keep_all(),
            functions: String::new(),
            data: Vec::new(),
        }
    }
}

/// Keeps every row.
pub(crate) fn keep_all() -> String {
    each_row("(call $entry (local.get $i) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))")
}

/// Runs `body` for each row, with `$i` its number, `$row` its address and `$n` its first slot; then emits and answers ok.
pub(crate) fn each_row(body: &str) -> String {
    format!(
        "(local.set $row (i32.add (local.get $buf) (i32.load offset=12 (local.get $buf))))
         (block $done (loop $next
           (br_if $done (i32.ge_u (local.get $i) (i32.load offset=4 (local.get $buf))))
           (local.set $n (i64.load offset=32 (local.get $row)))
           {body}
           (local.set $row (i32.add (local.get $row) (i32.load offset=8 (local.get $buf))))
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br $next)))
         (call $send) (return (call $ok))"
    )
}

/// Emits [`Guest::data`] as it is and answers ok, whatever the host said.
pub(crate) fn emit_data(len: usize) -> String {
    format!("(call $emit (i32.const {DATA}) (i32.const {len}) (i32.const 64)) (return (call $ok))")
}

/// Writes bytes as a text-form string.
fn text(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "\\{byte:02x}");
        out
    })
}

impl Guest {
    /// The manifest as canonical ABI lays it out, and the strings behind it: `result<manifest, string>` at 1024.
    fn manifest(&self) -> Vec<u8> {
        const AT: usize = 1024;
        let mut bytes = vec![0u8; 64 + 32 * self.ports.len()];
        let put = |bytes: &mut Vec<u8>, at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let string = |bytes: &mut Vec<u8>, at: usize, value: &str| {
            let place = (AT + bytes.len()) as u32;
            bytes.extend_from_slice(value.as_bytes());
            put(bytes, at, place);
            put(bytes, at + 4, value.len() as u32);
        };
        string(&mut bytes, 4, "test");
        string(&mut bytes, 12, "1.2.3");
        put(&mut bytes, 20, self.revision);
        if let Some(reader) = &self.reader {
            bytes[24] = 1;
            string(&mut bytes, 28, reader);
        }
        bytes[48] = self.wants;
        put(&mut bytes, 52, (AT + 64) as u32);
        put(&mut bytes, 56, self.ports.len() as u32);
        bytes[60] = self.stateless.into();
        for (index, (name, format, schema)) in self.ports.iter().enumerate() {
            let at = 64 + 32 * index;
            string(&mut bytes, at, name);
            bytes[at + 8] = *format;
            string(&mut bytes, at + 12, schema);
        }
        bytes
    }

    /// The core module.
    pub(crate) fn core(&self) -> Vec<u8> {
        let Self { pages, open, process, functions, .. } = self;
        let manifest = text(&self.manifest());
        let data = text(&self.data);
        let module = format!(
            r#"(module
  (import "kiteline:transform/host@0.1.0" "emit" (func $emit (param i32 i32 i32)))
  (import "kiteline:transform/host@0.1.0" "log" (func $log (param i32 i32 i32)))
  (import "kiteline:transform/host@0.1.0" "counter-add" (func $count (param i32 i32 i32)))
  (memory (export "memory") {pages})
  (global $heap (mut i32) (i32.const 0x100000))
  (global $entries (mut i32) (i32.const 0))
  (data (i32.const 1024) "{manifest}")
  (data (i32.const {DATA}) "{data}")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.sub (local.get 2) (i32.const 1))) (i32.sub (i32.const 0) (local.get 2))))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  ;; result<_, _> at 32 is ok
  (func $ok (result i32) (global.set $heap (i32.const 0x100000)) (i32.store (i32.const 32) (i32.const 0)) (i32.const 32))
  ;; process: fault; row -1 is none
  (func $fault (param $row i32) (param $text i32) (param $len i32) (result i32)
    (global.set $heap (i32.const 0x100000))
    (i32.store (i32.const 32) (i32.const 1))
    (i32.store (i32.const 36) (i32.ne (local.get $row) (i32.const -1)))
    (i32.store (i32.const 40) (local.get $row))
    (i32.store (i32.const 44) (local.get $text))
    (i32.store (i32.const 48) (local.get $len))
    (i32.const 32))
  ;; one entry of the output buffer at 0x40000
  (func $entry (param $src i32) (param $kind i32) (param $port i32) (param $topic i32) (param $off i32) (param $len i32)
    (local $at i32)
    (local.set $at (i32.add (i32.const 0x40020) (i32.mul (i32.const 16) (global.get $entries))))
    (i32.store (local.get $at) (local.get $src))
    (i32.store8 offset=4 (local.get $at) (local.get $kind))
    (i32.store8 offset=5 (local.get $at) (local.get $port))
    (i32.store16 offset=6 (local.get $at) (local.get $topic))
    (i32.store offset=8 (local.get $at) (local.get $off))
    (i32.store offset=12 (local.get $at) (local.get $len))
    (global.set $entries (i32.add (global.get $entries) (i32.const 1))))
  (func $send
    (local $total i32)
    (local.set $total (i32.add (i32.const 32) (i32.mul (i32.const 16) (global.get $entries))))
    (i32.store (i32.const 0x40000) (i32.const 0x314f4c4b))
    (i32.store (i32.const 0x40004) (global.get $entries))
    (i32.store (i32.const 0x40010) (local.get $total))
    (global.set $entries (i32.const 0))
    (call $emit (i32.const 0x40000) (local.get $total) (i32.const 64)))
  {functions}
  (func (export "kiteline:transform/transform@0.1.0#describe") (param i32 i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "kiteline:transform/transform@0.1.0#open") (param i32) (result i32) {open} (call $ok))
  (func (export "kiteline:transform/transform@0.1.0#process") (param $buf i32) (param $len i32) (result i32)
    (local $i i32) (local $row i32) (local $n i64)
    (global.set $entries (i32.const 0))
    {process}
    unreachable)
  (func (export "kiteline:transform/transform@0.1.0#flush") (result i32) (call $ok)))"#
        );
        wat::parse_str(&module).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn component(&self) -> Vec<u8> {
        componentize(&self.core()).unwrap()
    }

    /// Deployed with patient deadlines: the machine that runs this may be busy.
    pub(crate) fn deploy(&self) -> Line {
        self.deploy_with(CallLimits { call_deadline_ms: 20_000, ..CallLimits::default() }, |_| {}).unwrap()
    }

    pub(crate) fn deploy_with(
        &self,
        limits: CallLimits,
        adapt: impl FnOnce(&mut DeploymentSetup),
    ) -> Result<Line, Error> {
        let plugin = runtime().load(&self.component())?;
        let source = Schema::parse(self.reader.as_deref().unwrap_or(NUMBER)).unwrap();
        let mut setup = DeploymentSetup {
            config: vec![],
            source_schema: Some(source.clone()),
            ports: vec![PortSetup::default(); self.ports.len()],
            limits,
        };
        adapt(&mut setup);
        let deployment = Deployment::new(&plugin, setup)?;
        let writer = deployment.writer(&source)?;
        let transformer = Transformer::new(&deployment)?;
        Ok(Line { deployment, transformer, writer, out: OutputBatch::default(), rejected: vec![] })
    }
}

/// One engine for all tests of this process, as in the program.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new(RuntimeLimits::default()).unwrap())
}

/// A deployed guest with one worker's transformer.
pub(crate) struct Line {
    pub(crate) deployment: Deployment,
    pub(crate) transformer: Transformer,
    pub(crate) writer: WriterId,
    pub(crate) out: OutputBatch,
    pub(crate) rejected: Vec<Rejection>,
}

impl Line {
    pub(crate) fn run(&mut self, batch: &RecordBatch, data: &[Datum]) -> Report {
        self.transformer.transform(batch, data, &mut self.out, &mut self.rejected).unwrap()
    }

    /// Runs values that have no framing and are all written with the source schema.
    pub(crate) fn run_plain(&mut self, batch: &RecordBatch) -> Report {
        let datum = |record: &Record| match record.value.null() {
            true => Datum::Tombstone,
            false => Datum::At { writer: self.writer, from: 0 },
        };
        let data: Vec<Datum> = batch.records.iter().map(datum).collect();
        self.run(batch, &data)
    }

    /// Values that left, as `source:hex`, `-` for null.
    pub(crate) fn values(&self, batch: &RecordBatch) -> Vec<String> {
        let value = |output: &kiteline_engine::record::OutputRecord| {
            let bytes = self.out.bytes_of(batch, output.value);
            format!("{}:{}", output.source, bytes.map_or("-".into(), hex))
        };
        self.out.records.iter().map(value).collect()
    }

    /// Rejections, as `source code message`.
    pub(crate) fn rejections(&self) -> Vec<String> {
        self.rejected.iter().map(|r| format!("{} {} {}", r.source, r.code, r.message)).collect()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// A record to be.
#[derive(Clone, Default)]
pub(crate) struct Given<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: &'a [(&'a str, Option<&'a [u8]>)],
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: i64,
}

pub(crate) fn batch(topic: &str, partition: i32, given: &[Given<'_>]) -> RecordBatch {
    let from = given.first().map_or(0, |record| record.offset);
    let until = given.last().map_or(0, |record| record.offset + 1);
    let mut batch = RecordBatch {
        topic: Arc::from(topic),
        partition,
        range: OffsetRange { from, until },
        records: vec![],
        headers: vec![],
        bytes: vec![],
    };
    let put = |bytes: &mut Vec<u8>, what: Option<&[u8]>| match what {
        None => Span::NULL,
        Some(what) => {
            let off = bytes.len() as u32;
            bytes.extend_from_slice(what);
            Span { off, len: what.len() as u32 }
        }
    };
    for record in given {
        let headers_at = batch.headers.len() as u32;
        for (name, value) in record.headers {
            let name = put(&mut batch.bytes, Some(name.as_bytes()));
            let value = put(&mut batch.bytes, *value);
            batch.headers.push(Header { name, value });
        }
        let record = Record {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            timestamp_kind: TimestampKind::Create,
            key: put(&mut batch.bytes, record.key),
            value: put(&mut batch.bytes, record.value),
            headers_at,
            headers_count: record.headers.len() as u32,
        };
        batch.records.push(record);
    }
    batch
}

/// One record of [`NUMBER`] per number; none is a tombstone.
pub(crate) fn numbers(given: &[Option<i64>]) -> RecordBatch {
    let values: Vec<Option<Vec<u8>>> = given.iter().map(|n| n.map(varint)).collect();
    let records: Vec<Given<'_>> = values
        .iter()
        .enumerate()
        .map(|(index, value)| Given { value: value.as_deref(), offset: 100 + index as i64, ..Given::default() })
        .collect();
    batch("numbers", 0, &records)
}

/// Avro's long: zigzag, then seven bits a byte, lowest first.
pub(crate) fn varint(n: i64) -> Vec<u8> {
    let mut rest = ((n << 1) ^ (n >> 63)) as u64;
    let mut bytes = vec![];
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// A number and bytes: the guest of [`echo`] emits the bytes as an output buffer.
pub(crate) const BLOB: &str =
    r#"{"type":"record","name":"Blob","fields":[{"name":"n","type":"long"},{"name":"b","type":"bytes"}]}"#;

/// A guest that emits what stands in its rows: one component for every output buffer that a test thinks of. Its ports: 0 `same`,
/// 1 `raw`, 2 `blob` of [`BLOB`] itself, 3 `wide` of a schema that [`BLOB`] can be resolved to, 4 `far` of one that it cannot.
pub(crate) fn echo(wants: u8) -> Guest {
    let wide = BLOB.replace("]}", r#",{"name":"note","type":["null","string"],"default":null}]}"#);
    let ports = vec![
        ("same", 0, String::new()),
        ("raw", 1, String::new()),
        ("blob", 2, BLOB.into()),
        ("wide", 2, wide),
        ("far", 2, r#"{"type":"record","name":"Far","fields":[{"name":"id","type":"string"}]}"#.into()),
    ];
    let process = each_row(
        "(if (i32.load offset=44 (local.get $row)) (then
           (call $emit (i32.add (local.get $buf) (i32.load offset=40 (local.get $row))) (i32.load offset=44 (local.get $row)) (i32.const 64))))",
    );
    Guest { reader: Some(BLOB.into()), wants, ports, process: process.replace("(call $send)", ""), ..Guest::default() }
}

/// The datum of a [`BLOB`].
pub(crate) fn blob(n: i64, b: &[u8]) -> Vec<u8> {
    [varint(n), varint(b.len() as i64), b.to_vec()].concat()
}

/// A batch of [`BLOB`]s.
pub(crate) fn blobs(given: &[(i64, &[u8])]) -> RecordBatch {
    let values: Vec<Vec<u8>> = given.iter().map(|(n, b)| blob(*n, b)).collect();
    let records: Vec<Given<'_>> = values
        .iter()
        .enumerate()
        .map(|(index, value)| Given { value: Some(value), offset: index as i64, ..Given::default() })
        .collect();
    batch("blobs", 0, &records)
}

/// An output buffer in the making: entries first, then their payloads, a heap, and the topics.
#[derive(Default)]
pub(crate) struct Out {
    entries: Vec<(u32, u8, u8, u16, Vec<u8>)>,
    heap: Vec<u8>,
    topics: Vec<(u32, u32)>,
}

impl Out {
    pub(crate) fn entry(self, source: u32, kind: u8, port: u8, payload: &[u8]) -> Self {
        self.to(0, source, kind, port, payload)
    }

    /// An entry with a topic of the table.
    pub(crate) fn to(mut self, topic: u16, source: u32, kind: u8, port: u8, payload: &[u8]) -> Self {
        self.entries.push((source, kind, port, topic, payload.to_vec()));
        self
    }

    pub(crate) fn heap(mut self, bytes: &[u8]) -> Self {
        self.heap.extend_from_slice(bytes);
        self
    }

    /// A topic by the slot of its name.
    pub(crate) fn topic(mut self, off: u32, len: u32) -> Self {
        self.topics.push((off, len));
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut bytes = vec![0u8; 32 + 16 * self.entries.len()];
        for (index, (source, kind, port, topic, payload)) in self.entries.iter().enumerate() {
            let off = if payload.is_empty() { 0 } else { bytes.len() as u32 };
            let entry = [
                &source.to_le_bytes()[..],
                &[*kind, *port],
                &topic.to_le_bytes(),
                &off.to_le_bytes(),
                &(payload.len() as u32).to_le_bytes(),
            ]
            .concat();
            bytes[32 + 16 * index..48 + 16 * index].copy_from_slice(&entry);
            bytes.extend_from_slice(payload);
        }
        bytes.extend_from_slice(&self.heap);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let topics_at = bytes.len() as u32;
        for (off, len) in &self.topics {
            bytes.extend_from_slice(&slot(*off, *len));
        }
        let header = [
            &b"KLO1"[..],
            &(self.entries.len() as u32).to_le_bytes(),
            &(self.topics.len() as u32).to_le_bytes(),
            &topics_at.to_le_bytes(),
            &(bytes.len() as u32).to_le_bytes(),
        ]
        .concat();
        bytes[..20].copy_from_slice(&header);
        bytes
    }
}

/// A slot of offset and length.
pub(crate) fn slot(off: u32, len: u32) -> Vec<u8> {
    [off.to_le_bytes(), len.to_le_bytes()].concat()
}

/// A slot of a whole number.
pub(crate) fn long(n: i64) -> Vec<u8> {
    n.to_le_bytes().to_vec()
}
