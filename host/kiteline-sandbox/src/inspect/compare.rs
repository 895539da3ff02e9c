//! Structural comparison of two interfaces' functions, to name the first difference. Names of types do not matter, names of
//! fields, cases and flags and their order do: that is what linking checks too, but it names neither side.

use wit_parser::{Function, Resolve, Type, TypeDefKind};

/// Way to the difference, beginning with `, `, and what it is.
pub(super) type Difference = (String, String);

/// The first difference between two functions, if there is one.
pub(super) fn functions(ours: &Resolve, mine: &Function, theirs: &Resolve, other: &Function) -> Result<(), Difference> {
    let pair = Pair { ours, theirs };
    if mine.params.len() != other.params.len() {
        return Err((String::new(), counts("parameters", mine.params.len(), other.params.len())));
    }
    for (a, b) in mine.params.iter().zip(&other.params) {
        pair.types(&a.ty, &b.ty).map_err(|difference| inside("parameter", &a.name, difference))?;
    }
    pair.options(mine.result.as_ref(), other.result.as_ref()).map_err(|difference| inside("result", "", difference))
}

fn counts(what: &str, ours: usize, theirs: usize) -> String {
    format!("{theirs} {what}, the contract has {ours}")
}

fn inside(what: &str, name: &str, (way, difference): Difference) -> Difference {
    let space = if name.is_empty() { "" } else { " " };
    (format!(", {what}{space}{name}{way}"), difference)
}

struct Pair<'a> {
    ours: &'a Resolve,
    theirs: &'a Resolve,
}

impl Pair<'_> {
    fn options(&self, mine: Option<&Type>, other: Option<&Type>) -> Result<(), Difference> {
        match (mine, other) {
            (None, None) => Ok(()),
            (Some(mine), Some(other)) => self.types(mine, other),
            (Some(_), None) => Err((String::new(), "the component has no type here".into())),
            (None, Some(_)) => Err((String::new(), "the contract has no type here".into())),
        }
    }

    fn types(&self, mine: &Type, other: &Type) -> Result<(), Difference> {
        let (mine, other) = (open(self.ours, mine), open(self.theirs, other));
        let (Type::Id(a), Type::Id(b)) = (mine, other) else {
            let same = mine == other && !matches!(mine, Type::Id(_));
            let [a, b] = [word(self.ours, &mine), word(self.theirs, &other)];
            return if same { Ok(()) } else { Err((String::new(), format!("{b}, the contract has {a}"))) };
        };
        let (a, b) = (&self.ours.types[a], &self.theirs.types[b]);
        let name = a.name.as_deref().unwrap_or("");
        self.kinds(&a.kind, &b.kind).map_err(|difference| inside(a.kind.as_str(), name, difference))
    }

    fn kinds(&self, mine: &TypeDefKind, other: &TypeDefKind) -> Result<(), Difference> {
        use TypeDefKind as K;
        match (mine, other) {
            (K::Record(a), K::Record(b)) => {
                names("field", a.fields.iter().map(|x| &*x.name), b.fields.iter().map(|x| &*x.name))?;
                a.fields.iter().zip(&b.fields).try_for_each(|(a, b)| {
                    self.types(&a.ty, &b.ty).map_err(|difference| inside("field", &a.name, difference))
                })
            }
            (K::Variant(a), K::Variant(b)) => {
                names("case", a.cases.iter().map(|x| &*x.name), b.cases.iter().map(|x| &*x.name))?;
                a.cases.iter().zip(&b.cases).try_for_each(|(a, b)| {
                    self.options(a.ty.as_ref(), b.ty.as_ref()).map_err(|difference| inside("case", &a.name, difference))
                })
            }
            (K::Enum(a), K::Enum(b)) => {
                names("case", a.cases.iter().map(|x| &*x.name), b.cases.iter().map(|x| &*x.name))
            }
            (K::Flags(a), K::Flags(b)) => {
                names("flag", a.flags.iter().map(|x| &*x.name), b.flags.iter().map(|x| &*x.name))
            }
            (K::Tuple(a), K::Tuple(b)) if a.types.len() == b.types.len() => {
                a.types.iter().zip(&b.types).try_for_each(|(a, b)| self.types(a, b))
            }
            (K::Option(a), K::Option(b)) | (K::List(a), K::List(b)) => self.types(a, b),
            (K::Result(a), K::Result(b)) => {
                self.options(a.ok.as_ref(), b.ok.as_ref())?;
                self.options(a.err.as_ref(), b.err.as_ref()).map_err(|difference| inside("error", "", difference))
            }
            (a, b) => Err((String::new(), format!("{}, the contract has {}", b.as_str(), a.as_str()))),
        }
    }
}

/// Follows `use` and aliases.
fn open(resolve: &Resolve, ty: &Type) -> Type {
    let mut ty = *ty;
    while let Type::Id(id) = ty {
        match resolve.types[id].kind {
            TypeDefKind::Type(inner) => ty = inner,
            _ => break,
        }
    }
    ty
}

fn word(resolve: &Resolve, ty: &Type) -> String {
    match ty {
        Type::Id(id) => resolve.types[*id].kind.as_str().into(),
        simple => format!("{simple:?}").to_lowercase(),
    }
}

/// Compares two lists of names; the first one that is missing, unknown or elsewhere is the difference.
fn names<'a>(
    what: &str,
    mine: impl Iterator<Item = &'a str>,
    other: impl Iterator<Item = &'a str>,
) -> Result<(), Difference> {
    let (mine, other): (Vec<&str>, Vec<&str>) = (mine.collect(), other.collect());
    let difference =
        match (mine.iter().find(|name| !other.contains(name)), other.iter().find(|name| !mine.contains(name))) {
            _ if mine == other => return Ok(()),
            (Some(name), _) => format!("{what} {name} is missing in the component"),
            (None, Some(name)) => format!("{what} {name} of the component is unknown to this host"),
            (None, None) => format!("{what}s are in another order"),
        };
    Err((String::new(), difference))
}
