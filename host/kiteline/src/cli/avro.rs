//! `kiteline avro decode`: one datum as Avro JSON, with the decoder that pipelines use.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, ValueEnum};
use kiteline_avro::{Limits, Schema, to_json};
use kiteline_connectors::decode::WireFormat;
use serde_json::{Value, json};

use crate::{
    error::{Exit, Failure, Problem},
    output::{Format, Output},
};

/// Largest datum that is read.
const DATUM_BYTES_MAX: u64 = 64 << 20;

/// Look at Avro data.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Decode(Decode),
}

/// Decode one datum to Avro JSON: unions tagged, bytes as ISO-8859-1 text, NaN and infinities as strings.
#[derive(Args, Debug)]
pub(crate) struct Decode {
    /// File of the schema that it was written with.
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// The datum as hex digits; blanks between bytes are allowed.
    #[arg(long, conflicts_with = "file")]
    hex: Option<String>,
    /// File of the datum; without this and --hex standard input is read.
    #[arg(long)]
    file: Option<PathBuf>,
    /// How a schema id is attached to it; it is shown and not looked up.
    #[arg(long, value_enum, default_value_t)]
    wire: Wire,
}

/// How a schema id is attached.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Wire {
    /// Not at all.
    #[default]
    Plain,
    /// 0, then four bytes of schema id.
    Confluent,
}

/// Answers with the datum; `{"schema_id": …, "value": …}` in JSON.
pub(crate) fn run(verb: &Verb, output: &mut Output) -> Result<Exit, Failure> {
    let Verb::Decode(arguments) = verb;
    let text = fs::read_to_string(&arguments.schema).map_err(|e| unreadable("schema", &arguments.schema, &e))?;
    let schema = Schema::parse(&text).map_err(|error| {
        let message = format!("schema file \"{}\" is not a usable Avro schema", arguments.schema.display());
        Problem::new("decode.bad-schema", message).cause(&error)
    })?;
    let value = datum(arguments)?;
    let format = match arguments.wire {
        Wire::Plain => WireFormat::Plain,
        Wire::Confluent => WireFormat::Confluent,
    };
    let (schema_id, from) = format.strip(&value).map_err(|error| {
        Problem::new("decode.wire-format", "the value does not have this wire format").cause(&error)
    })?;
    let limits = Limits { record_bytes_max: u32::try_from(DATUM_BYTES_MAX).unwrap_or(u32::MAX), ..Limits::default() };
    let mut decoded = String::new();
    to_json(&schema, &value[from..], &limits, &mut decoded)
        .map_err(|error| Problem::new("decode.bad-datum", "the datum is not of this schema").cause(&error))?;
    if let (Format::Text, Some(id)) = (output.format(), schema_id) {
        output.note(format!("schema id {id}"));
    }
    let parsed: Value = match output.format() {
        Format::Text => Value::Null,
        Format::Json => serde_json::from_str(&decoded)
            .map_err(|error| Problem::new("decode.bad-datum", "the decoded form is not JSON").cause(&error))?,
    };
    output.answer(&json!({ "schema_id": schema_id, "value": parsed }), || decoded);
    Ok(Exit::Ok)
}

fn unreadable(what: &str, path: &Path, error: &io::Error) -> Failure {
    let message = format!("{what} file \"{}\" cannot be read", path.display());
    Failure::usage(vec![Problem::new("usage.unreadable-file", message).cause(error)])
}

fn datum(arguments: &Decode) -> Result<Vec<u8>, Failure> {
    if let Some(text) = &arguments.hex {
        return unhex(text).ok_or_else(|| {
            Failure::usage(vec![Problem::new("usage.bad-hex", "the value of --hex is not pairs of hex digits")])
        });
    }
    let stdin = Path::new("-");
    let path = arguments.file.as_deref().unwrap_or(stdin);
    let source: Box<dyn Read> = match &arguments.file {
        Some(file) => Box::new(fs::File::open(file).map_err(|e| unreadable("datum", path, &e))?),
        None => Box::new(io::stdin()),
    };
    let mut bytes = Vec::new();
    source.take(DATUM_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| unreadable("datum", path, &e))?;
    if bytes.len() as u64 > DATUM_BYTES_MAX {
        let too_large = io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB");
        return Err(unreadable("datum", path, &too_large));
    }
    Ok(bytes)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let digit = |b: u8| char::from(b).to_digit(16);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_in_pairs() {
        assert_eq!(unhex("0A ff"), Some(vec![10, 255]));
        assert_eq!(unhex(""), Some(vec![]));
        assert_eq!(unhex("0A f"), None);
        assert_eq!(unhex("0g"), None);
    }
}
