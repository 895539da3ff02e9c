//! What a user sees when something is wrong: code, message, detail, hint, and where; and the table of exit codes.
//!
//! Every failure that leaves the program passes through [`Failure`]. Owns its two forms, text and JSON, and the one adapter
//! that prints a chain of causes. Does not own the wording of single problems; those are made where they are found.

use std::{borrow::Cow, error::Error, fmt};

use serde_json::{Value, json};

/// How the program ends. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 0: all done.
    Ok = 0,
    /// 1: it was tried and failed.
    Failed = 1,
    /// 2: the command line or the configuration is wrong; nothing was tried.
    Usage = 2,
    /// 3: Kafka, ZooKeeper or the registry could not be reached, or refused access.
    Unreachable = 3,
    /// 4: a pipeline stopped and waits for a person, for example at a lost position.
    Stopped = 4,
    /// 5: records without an outcome were found.
    Lost = 5,
}

/// The table of exit codes, as shown by `kiteline --help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  all done
  1  it was tried and failed
  2  the command line or the configuration is wrong; nothing was tried
  3  Kafka, ZooKeeper or the schema registry could not be reached, or refused access
  4  a pipeline stopped and waits for a person, for example at a lost position
  5  records without an outcome were found";

/// Where a problem is: in a file, at a key, on a line, as far as each is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// File, environment variable or command-line option that holds it.
    pub source: Option<String>,
    /// Key path, such as `pipeline.enrich.source.topics`.
    pub key: Option<String>,
    /// Line from 1; 0 if not known.
    pub line: u32,
    /// Column in characters from 1; 0 if not known.
    pub column: u32,
}

impl Place {
    /// A file as a whole.
    pub fn file(path: impl fmt::Display) -> Self {
        Self { source: Some(path.to_string()), ..Self::default() }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Stable dotted code, the stage or subject first, such as `config.unknown-key`.
    pub code: Cow<'static, str>,
    /// What is wrong, one line, lower-case, no full stop; object kind and quoted name.
    pub message: String,
    /// More of it: causes, what was found instead. May have several lines.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where it is.
    pub place: Option<Box<Place>>,
}

impl Problem {
    /// A problem with neither detail, hint nor place.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), detail: None, hint: None, place: None }
    }

    /// Adds what was found.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the chain of causes of `error` as the detail.
    #[must_use]
    pub fn cause(self, error: &dyn Error) -> Self {
        self.detail(Chain(error).to_string())
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds where it is.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    /// The JSON form: `code`, `message`, and whichever of `detail`, `hint`, `file`, `key`, `line`, `column` are known.
    pub fn to_json(&self) -> Value {
        let mut object = json!({ "code": self.code, "message": self.message });
        let mut put = |name: &str, value: Option<Value>| {
            if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
                object.insert(name.into(), value);
            }
        };
        put("detail", self.detail.clone().map(Value::from));
        put("hint", self.hint.clone().map(Value::from));
        if let Some(place) = &self.place {
            put("file", place.source.clone().map(Value::from));
            put("key", place.key.clone().map(Value::from));
            put("line", (place.line > 0).then(|| place.line.into()));
            put("column", (place.column > 0).then(|| place.column.into()));
        }
        object
    }
}

/// The text form, as compilers write it.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(place) = &self.place {
            if let Some(source) = &place.source {
                write!(f, "\n  --> {source}")?;
                if place.line > 0 {
                    write!(f, ":{}:{}", place.line, place.column)?;
                }
            }
            if let Some(key) = &place.key {
                write!(f, "\n  = key: {key}")?;
            }
        }
        for (label, text) in [("detail", &self.detail), ("hint", &self.hint)] {
            if let Some(text) = text {
                write!(f, "\n  = {label}: {}", text.replace('\n', "\n    "))?;
            }
        }
        Ok(())
    }
}

/// Why a command ends without having done what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How the program ends.
    pub exit: Exit,
    /// Everything that is wrong, in the order of finding.
    pub problems: Vec<Problem>,
}

impl Failure {
    /// One problem.
    pub fn new(exit: Exit, problem: Problem) -> Self {
        Self { exit, problems: vec![problem] }
    }

    /// All of `problems`, which are configuration problems.
    pub fn usage(problems: Vec<Problem>) -> Self {
        Self { exit: Exit::Usage, problems }
    }

    /// The JSON form: `{"errors": […], "exit": N}`.
    pub fn to_json(&self) -> Value {
        json!({ "errors": self.problems.iter().map(Problem::to_json).collect::<Vec<_>>(), "exit": self.exit as u8 })
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::new(Exit::Failed, problem)
    }
}

/// The text form: all problems, and their number if there are several.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        match self.problems.len() {
            0 | 1 => Ok(()),
            n => writeln!(f, "{n} errors"),
        }
    }
}

impl Error for Failure {}

/// Prints an error and its causes on one line: `outer: cause: its cause`.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_problem_reads_like_a_compiler_error() {
        let place = Place { source: Some("kiteline.toml".into()), key: Some("app.nme".into()), line: 3, column: 7 };
        let problem =
            Problem::new("config.unknown-key", "unknown key \"nme\"").hint("did you mean \"name\"?").at(place);
        let text = "error[config.unknown-key]: unknown key \"nme\"\n  --> kiteline.toml:3:7\n  = key: app.nme\n  \
                    = hint: did you mean \"name\"?";
        assert_eq!(problem.to_string(), text);
        let json = r#"{"code":"config.unknown-key","message":"unknown key \"nme\"","hint":"did you mean \"name\"?","file":"kiteline.toml","key":"app.nme","line":3,"column":7}"#;
        assert_eq!(problem.to_json().to_string(), json);
    }

    #[test]
    fn causes_are_chained_once_each() {
        let error = Outer(std::io::Error::other("inner"));
        assert_eq!(Chain(&error).to_string(), "outer: inner");
        assert_eq!(Problem::new("x.y", "z").cause(&error).to_string(), "error[x.y]: z\n  = detail: outer: inner");
    }

    #[test]
    fn the_table_of_exit_codes_is_whole() {
        let all = [Exit::Ok, Exit::Failed, Exit::Usage, Exit::Unreachable, Exit::Stopped, Exit::Lost];
        for (line, exit) in EXIT_CODES.lines().skip(1).zip(all) {
            assert!(line.starts_with(&format!("  {}  ", exit as u8)), "{line}");
        }
        assert_eq!(EXIT_CODES.lines().count(), all.len() + 1);
    }
}
