//! Every type that a field can be read and set as, and what is said about one that it cannot.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use kiteline_guest::{
    Any, AnyValue, Entries, Union, Value,
    prelude::*,
    testing::{self, Content, Harness, Json, Record, from_avro_json},
};

const ALL: &str = r#"{"type":"record","name":"All","namespace":"t","fields":[
  {"name":"flag","type":"boolean"}, {"name":"small","type":"int"}, {"name":"big","type":"long"},
  {"name":"single","type":"float"}, {"name":"double","type":"double"},
  {"name":"bytes","type":"bytes"}, {"name":"text","type":"string"},
  {"name":"digest","type":{"type":"fixed","name":"Digest","size":4}},
  {"name":"status","type":{"type":"enum","name":"Status","symbols":["NEW","PAID","SENT"]}},
  {"name":"maybe","type":["null","long"]}, {"name":"maybe_text","type":["string","null"]},
  {"name":"maybe_status","type":["null","Status"]},
  {"name":"address","type":{"type":"record","name":"Address","fields":[
     {"name":"city","type":"string"},{"name":"zip","type":["null","int"]}]}},
  {"name":"billing","type":["null","Address"]},
  {"name":"tags","type":{"type":"array","items":"string"}},
  {"name":"numbers","type":{"type":"array","items":["null","long"]}},
  {"name":"matrix","type":{"type":"array","items":{"type":"array","items":"double"}}},
  {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
     {"name":"sku","type":"string"},{"name":"price","type":["null","double"]},{"name":"to","type":"Address"}]}}},
  {"name":"attrs","type":{"type":"map","values":"long"}},
  {"name":"places","type":{"type":"map","values":["null","Address"]}},
  {"name":"either","type":["null","int","string","Address"]},
  {"name":"tree","type":["null",{"type":"record","name":"Tree","fields":[
     {"name":"name","type":"string"},{"name":"next","type":["null","Tree"]}]}]},
  {"name":"nothing","type":"null"}]}"#;

const RECORD: &str = r#"{"flag":true,"small":-2147483648,"big":9007199254740993,"single":0.5,"double":-1.25,
  "bytes":"\u0000\u00ff","text":"Zürich","digest":"abcd","status":"SENT",
  "maybe":-9223372036854775808,"maybe_text":null,"maybe_status":"PAID",
  "address":{"city":"Bern","zip":3000},"billing":null,
  "tags":["a","","Zürich"],"numbers":[1,null,9223372036854775807],"matrix":[[1.5],[],[2,3]],
  "lines":[{"sku":"x","price":null,"to":{"city":"Uri","zip":null}},{"sku":"y","price":2.5,"to":{"city":"Zug","zip":6300}}],
  "attrs":{"k":1,"l":-1},"places":{"home":{"city":"Chur","zip":7000},"none":null},
  "either":{"t.Address":{"city":"Genf","zip":1200}},
  "tree":{"name":"a","next":{"name":"b","next":null}},"nothing":null}"#;

fn order() -> Value {
    let layout = testing::layout(0, ALL).unwrap();
    from_avro_json(&layout, 0, &Json::parse(RECORD).unwrap()).unwrap()
}

/// Runs a closure as a transform over one record of `ALL`.
type Body = fn(&Context, &mut Row<'_>, &mut Out<'_>) -> Result;

thread_local! {
    static BODY: std::cell::Cell<Option<Body>> = const { std::cell::Cell::new(None) };
}

struct Run(Context);

impl Transform for Run {
    fn describe(_: &Config, _: Option<&str>) -> Result<Manifest> {
        Ok(Manifest::stateless("run", "1").port("out").port_avro("all", ALL))
    }

    fn open(context: &Context) -> Result<Run> {
        Ok(Run(context.clone()))
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        BODY.get().expect("set")(&self.0, row, out)
    }
}

fn run(body: Body) -> testing::Outcomes {
    BODY.set(Some(body));
    Harness::<Run>::new(&[], ALL).unwrap().run(&[Record::new(7, order())]).unwrap()
}

/// The value that was sent, whatever else was.
fn sent(body: Body) -> Value {
    let outcomes = run(body);
    assert_eq!(outcomes.rejected, []);
    outcomes.sent[0].value.clone().unwrap()
}

#[test]
fn every_type_is_read() {
    let outcomes = run(|context, row, out| {
        assert!(row.get(context.field::<bool>("flag")?));
        assert_eq!(row.get(context.field::<i32>("small")?), i32::MIN);
        assert_eq!(row.get(context.field::<i64>("small")?), i64::from(i32::MIN));
        assert_eq!(row.get(context.field::<i64>("big")?), 9_007_199_254_740_993);
        assert_eq!(row.get(context.field::<f32>("single")?), 0.5);
        assert_eq!(row.get(context.field::<f64>("single")?), 0.5);
        assert_eq!(row.get(context.field::<f64>("double")?), -1.25);
        assert_eq!(row.get(context.field::<Bytes>("bytes")?), [0, 255]);
        assert_eq!(row.get(context.field::<Text>("text")?), "Zürich");
        assert_eq!(row.get(context.field::<Bytes>("digest")?), b"abcd");
        let status = context.field::<Symbol>("status")?;
        assert_eq!(row.get(status), context.input.symbol("status", "SENT")?);
        assert_eq!((row.get(status), row.symbol_name(status)), (Symbol(2), "SENT"));
        assert_eq!(row.get(context.field::<Option<i64>>("maybe")?), Some(i64::MIN));
        assert_eq!(row.get(context.field::<Option<Text>>("maybe_text")?), None);
        assert_eq!(
            row.get(context.field::<Option<Symbol>>("maybe_status")?),
            Some(context.input.symbol("maybe_status", "PAID")?)
        );
        assert_eq!(row.get(context.field::<Text>("address.city")?), "Bern");
        assert_eq!(row.get(context.field::<Option<Text>>("address.city")?), Some("Bern"));
        assert_eq!(row.get(context.field::<Option<i32>>("address.zip")?), Some(3000));
        assert_eq!(row.get(context.field::<Option<Text>>("billing.city")?), None);
        assert_eq!(row.get(context.field::<Option<i32>>("billing.zip")?), None);
        assert!(row.is_null(context.field::<Option<Struct>>("billing")?));
        assert!(!row.is_null(context.field::<Struct>("address")?));
        out.keep(row)
    });
    assert_eq!(outcomes.sent.len(), 1, "{outcomes:?}");
}

#[test]
fn every_composite_is_read() {
    let outcomes = run(|context, row, out| {
        let tags = row.get(context.field::<List<Text>>("tags")?);
        assert_eq!(tags.iter().collect::<Vec<_>>(), ["a", "", "Zürich"]);
        assert_eq!((tags.len(), tags.get(2), tags.get(3)), (3, Some("Zürich"), None));
        let numbers = row.get(context.field::<List<Option<i64>>>("numbers")?);
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [Some(1), None, Some(i64::MAX)]);
        let matrix = row.get(context.field::<List<List<f64>>>("matrix")?);
        assert_eq!(
            matrix.iter().map(|r| r.iter().collect()).collect::<Vec<Vec<f64>>>(),
            [vec![1.5], vec![], vec![2.0, 3.0]]
        );

        let line = context.input.inner("lines")?;
        let (sku, price) = (line.field::<Text>("sku")?, line.field::<Option<f64>>("price")?);
        let (city, zip) = (line.field::<Text>("to.city")?, line.field::<Option<i32>>("to.zip")?);
        let lines = row.get(context.field::<List<Struct>>("lines")?);
        let seen: Vec<_> = lines.iter().map(|l| (l.get(sku), l.get(price), l.get(city), l.get(zip))).collect();
        assert_eq!(seen, [("x", None, "Uri", None), ("y", Some(2.5), "Zug", Some(6300))]);

        let attrs = row.get(context.field::<Map<i64>>("attrs")?);
        assert_eq!((attrs.len(), attrs.get("l"), attrs.get("m")), (2, Some(-1), None));
        let places = row.get(context.field::<Map<Option<Struct>>>("places")?);
        let (city, zip) = (
            context.input.inner("places")?.field::<Text>("city")?,
            context.input.inner("places")?.field::<Option<i32>>("zip")?,
        );
        let home = places.get("home").flatten().expect("there");
        assert_eq!(
            (home.get(city), home.get(zip), places.get("none").map(|p| p.is_none())),
            ("Chur", Some(7000), Some(true))
        );

        // a record in place, as a whole; the same type, so the same handles
        let address = row.get(context.field::<Struct>("address")?);
        assert_eq!((address.get(city), address.get(zip)), ("Bern", Some(3000)));
        let either = row.get(context.field::<Union>("either")?);
        assert_eq!((either.branch(), either.get::<Text>()), (3, None));
        assert_eq!(either.get::<Struct>().expect("an address").get(city), "Genf");
        assert_eq!(context.input.branches("either")?.len(), 4);

        let tree = context.input.inner("tree")?;
        let (name, next) = (tree.field::<Text>("name")?, tree.field::<Option<Struct>>("next")?);
        let first = row.get(context.field::<Option<Struct>>("tree")?).expect("there");
        let second = first.get(next).expect("there");
        assert_eq!((first.get(name), second.get(name), second.get(next).is_none()), ("a", "b", true));
        assert!(matches!(row.get(context.field::<Any>("nothing")?), AnyValue::Null));
        assert_eq!(Value::from(row.get(context.field::<Any>("")?)), order());
        out.keep(row)
    });
    assert_eq!(outcomes.sent.len(), 1, "{outcomes:?}");
}

#[test]
fn a_wrong_path_or_type_is_named_at_open() {
    let layout = testing::layout(0, ALL).unwrap();
    let text = |error: Option<Error>| error.map_or_else(|| "no error".to_owned(), |e| e.message().to_owned());
    for (came, wanted) in [
        (text(layout.field::<Text>("adress.city").err()), "no field \"adress.city\": t.All has flag, small, big,"),
        (text(layout.field::<Text>("address.town").err()), "no field \"address.town\": t.Address has city, zip"),
        (text(layout.field::<Text>("text.x").err()), "no field \"text.x\": string has no field \"x\""),
        (text(layout.field::<Text>("small").err()), "field \"small\" is int, not Text"),
        (text(layout.field::<i32>("big").err()), "field \"big\" is long, not i32"),
        (text(layout.field::<f32>("double").err()), "field \"double\" is double, not f32"),
        (text(layout.field::<i64>("maybe").err()), "field \"maybe\" may be null: ask for Field<Option<i64>>"),
        (text(layout.field::<bool>("maybe").err()), "field \"maybe\" is nullable long, not bool"),
        (
            text(layout.field::<Text>("billing.city").err()),
            "field \"billing.city\" lies in a record that may be null: ask for Field<Option<Text>>",
        ),
        (text(layout.field::<List<i64>>("tags").err()), "field \"tags\" is array, not List<i64>"),
        (text(layout.inner("attrs").err()), "field \"attrs\" holds long, not records"),
        (
            text(layout.symbol("status", "LOST").err()),
            "field \"status\" has no symbol \"LOST\": it has NEW, PAID, SENT",
        ),
    ] {
        assert!(came.starts_with(wanted), "{came}\nwanted {wanted}");
    }
}

#[test]
fn what_is_set_is_read_back_and_sent() {
    let value = sent(|context, row, out| {
        let text = context.field::<Text>("text")?;
        let tags = context.field::<List<Text>>("tags")?;
        let maybe_text = context.field::<Option<Text>>("maybe_text")?;
        let attrs = context.field::<Map<i64>>("attrs")?;
        let city = row.get(context.field::<Text>("address.city")?);
        row.set(context.field::<bool>("flag")?, false)?;
        row.set(context.field::<i32>("small")?, 5)?;
        row.set(context.field::<i64>("big")?, i64::MAX)?;
        row.set(context.field::<f32>("single")?, 1.5)?;
        row.set(context.field::<f64>("double")?, 1e300)?;
        row.set(context.field::<Bytes>("bytes")?, b"new")?;
        row.set(text, "longer than before, and not from the record")?;
        row.set(context.field::<Bytes>("digest")?, b"wxyz")?;
        row.set(context.field::<Symbol>("status")?, context.input.symbol("status", "NEW")?)?;
        row.set_null(context.field::<Option<i64>>("maybe")?)?;
        row.set(maybe_text, Some(city))?;
        row.set(context.field::<Text>("address.city")?, format!("{city} (Stadt)"))?;
        row.set(tags, ["p", "q"])?;
        row.set(context.field::<List<Option<i64>>>("numbers")?, &[None, Some(3)][..])?;
        row.set(attrs, Entries([("n", 9)]))?;
        row.set(context.field::<List<Struct>>("lines")?, Items(Vec::<&Value>::new()))?;
        row.set(context.field::<Union>("either")?, &Value::Union(2, Box::new(Value::Text("t".into()))))?;

        assert_eq!(row.get(text), "longer than before, and not from the record");
        assert_eq!(row.get(maybe_text), Some("Bern"));
        assert_eq!(row.get(tags).iter().collect::<Vec<_>>(), ["p", "q"]);
        assert_eq!(row.get(attrs).get("n"), Some(9));
        assert_eq!(row.get(context.field::<Symbol>("status")?), Symbol(0));
        assert!(row.is_edited());
        out.keep(row)
    });
    let mut wanted = order();
    let Value::Struct(fields) = &mut wanted else { panic!("a record") };
    let text = |t: &str| Value::Text(t.into());
    for (name, new) in [
        ("flag", Value::Boolean(false)),
        ("small", Value::Long(5)),
        ("big", Value::Long(i64::MAX)),
        ("single", Value::Double(1.5)),
        ("double", Value::Double(1e300)),
        ("bytes", Value::Bytes(b"new".to_vec())),
        ("text", text("longer than before, and not from the record")),
        ("digest", Value::Bytes(b"wxyz".to_vec())),
        ("status", text("NEW")),
        ("maybe", Value::Null),
        ("maybe_text", text("Bern")),
        ("address", Value::Struct(vec![("city".into(), text("Bern (Stadt)")), ("zip".into(), Value::Long(3000))])),
        ("tags", Value::List(vec![text("p"), text("q")])),
        ("numbers", Value::List(vec![Value::Null, Value::Long(3)])),
        ("attrs", Value::Map(vec![("n".into(), Value::Long(9))])),
        ("lines", Value::List(vec![])),
        ("either", Value::Union(2, Box::new(text("t")))),
    ] {
        fields.iter_mut().find(|f| f.0 == name).expect("a field").1 = new;
    }
    assert_eq!(value, wanted);
}

#[test]
fn values_that_do_not_fit_are_errors() {
    let outcomes = run(|context, row, _| {
        let text = |result: Result| result.err().map_or_else(|| "no error".to_owned(), |e| e.message().to_owned());
        let symbol = context.field::<Symbol>("status")?;
        for (came, wanted) in [
            (text(row.set(context.field::<i64>("small")?, 1 << 31)), "2147483648 does not fit an int field"),
            (text(row.set(context.field::<f64>("single")?, 1e300)), "1000000000000000000"),
            (text(row.set(context.field::<Bytes>("digest")?, b"abc")), "3 bytes do not fit a fixed field of 4"),
            (text(row.set(symbol, Symbol(3))), "the enum has no symbol number 3"),
            (text(row.set(symbol, &Value::Text("LOST".into()))), "the enum has no symbol \"LOST\""),
            (
                text(row.set(context.field::<bool>("flag")?, &Value::Long(1))),
                "an integer does not fit a field of type boolean",
            ),
            (text(row.set(context.field::<Struct>("address")?, &Value::Struct(vec![]))), "field \"city\" is missing"),
            (
                text(row.set(context.field::<Option<Text>>("billing.city")?, Some("x"))),
                "the field lies in a record that is null",
            ),
            (text(row.set(context.field::<Any>("")?, &Value::Null)), "the whole record cannot be set"),
            (text(row.set_null(context.field::<Option<Text>>("address.city")?)), "the field cannot be null"),
            (
                text(row.copy(context.field::<Any>("text")?, context.field::<Any>("big")?)),
                "a value of type long cannot be copied",
            ),
        ] {
            assert!(came.starts_with(wanted), "{came}\nwanted {wanted}");
        }
        assert!(!row.is_edited());
        Err(Error::with_code(123, "all refused"))
    });
    assert_eq!(
        (outcomes.sent.len(), outcomes.rejected[0].code, outcomes.rejected[0].text.as_str()),
        (0, 123, "all refused")
    );
}

#[test]
fn new_records_state_every_field() {
    // all of it by one value, and by copies of every field
    for body in [
        (|context, row, out| {
            let port = context.port(1)?;
            let mut new = out.row(port, row)?;
            new.set(context.output(port)?.field::<Any>("")?, &Value::from(row.get(context.field::<Any>("")?)))?;
            new.emit()
        }) as Body,
        |context, row, out| {
            let port = context.port(1)?;
            let layout = context.output(port)?;
            row.set(context.field::<Text>("text")?, "Zürich")?;
            let mut new = out.row(port, row)?;
            for name in [
                "flag",
                "small",
                "big",
                "single",
                "double",
                "bytes",
                "text",
                "digest",
                "status",
                "maybe",
                "maybe_text",
                "maybe_status",
                "address",
                "billing",
                "tags",
                "numbers",
                "matrix",
                "lines",
                "attrs",
                "places",
                "either",
                "tree",
            ] {
                new.copy(layout.field::<Any>(name)?, row, context.field::<Any>(name)?)?;
            }
            new.emit()
        },
    ] {
        let outcomes = run(body);
        assert_eq!(outcomes.sent.iter().map(|s| s.port.as_str()).collect::<Vec<_>>(), ["all"], "{outcomes:?}");
        assert_eq!(outcomes.sent[0].value, Some(order()));
    }
    let outcomes = run(|context, row, out| {
        let mut new = out.row(context.port(1)?, row)?;
        new.set(context.output(context.port(1)?)?.field("flag")?, true)?;
        new.emit()
    });
    assert_eq!(outcomes.rejected[0].text, "field \"small\" of the new record is not set");
    assert_eq!((outcomes.rejected[0].code, outcomes.sent.len()), (1, 0));
}

#[test]
fn a_nullable_record_opens_with_its_first_field() {
    let body: Body = |context, row, out| {
        let port = context.port(1)?;
        let layout = context.output(port)?;
        let mut new = out.row(port, row)?;
        new.set(layout.field::<Any>("")?, &Value::from(row.get(context.field::<Any>("")?)))?;
        new.set(layout.field::<Option<Text>>("billing.city")?, Some("Basel"))?;
        new.emit()
    };
    let value = sent(body);
    let billing = value.get("billing").expect("there");
    assert_eq!(
        *billing,
        Value::Struct(vec![("city".into(), Value::Text("Basel".into())), ("zip".into(), Value::Null)])
    );
    assert_eq!(value.get("text"), order().get("text"));
}

#[test]
fn a_handle_of_another_record_is_noticed() {
    let outcomes = run(|context, row, out| {
        let wrong = context.output(context.port(1)?)?.field::<bool>("flag")?;
        let inner = context.input.inner("lines")?.field::<Text>("sku")?;
        let panics = |f: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err();
        assert!(panics(&|| assert!(row.get(wrong))));
        assert!(panics(&|| assert_eq!(row.get(inner), "x")));
        out.keep(row)
    });
    assert_eq!(outcomes.sent.len(), 1);
}

#[test]
fn records_of_every_content_reach_their_function() {
    BODY.set(Some(|_, row, out| out.keep(row)));
    let mut harness = Harness::<Run>::new(&[], ALL).unwrap();
    let record = |offset, content| Record { content, ..Record::new(offset, Value::Null) };
    let outcomes = harness
        .run(&[record(1, Content::Tombstone), record(2, Content::Undecodable(5)), Record::new(4, order())])
        .unwrap();
    let sources: Vec<_> = outcomes.sent.iter().map(|s| (s.source, s.value.is_some())).collect();
    assert_eq!(sources, [(0, false), (2, true)]);
    assert_eq!(outcomes.rejected[0].source, 1);
}
