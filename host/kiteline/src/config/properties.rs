//! Java's properties format: `key=value`, `key: value` or `key value`, `#` and `!` comments, continued lines, escapes.
//!
//! Format: the documentation of `java.util.Properties.load(Reader)`. Owns the text only, not what keys mean.

/// One pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Line on which it begins, from 1.
    pub line: u32,
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}

/// All pairs, in order. As in Java, every text is a properties file; a key without a value has an empty one.
pub(crate) fn parse(text: &str) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut lines = text.lines().zip(1u32..);
    while let Some((first, line)) = lines.next() {
        let first = first.trim_start();
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        while continued(&logical) {
            logical.pop();
            match lines.next() {
                Some((next, _)) => logical.push_str(next.trim_start()),
                None => break,
            }
        }
        let (key, value) = split(&logical);
        pairs.push(Pair { line, key: unescape(key), value: unescape(value) });
    }
    pairs
}

/// An odd number of backslashes at the end goes on with the next line.
fn continued(line: &str) -> bool {
    line.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1
}

/// The key ends at the first unescaped `=`, `:` or blank; blanks around one `=` or `:` belong to neither.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c: char| {
        let ends = !escaped && (c == '=' || c == ':' || c.is_whitespace());
        escaped = !escaped && c == '\\';
        ends
    });
    let Some(end) = end else { return (line, "") };
    let value = line[end..].trim_start();
    (&line[..end], value.strip_prefix(['=', ':']).unwrap_or(value).trim_start())
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let hex: String = chars.by_ref().take(4).collect();
                let unit = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                out.push(unit.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javas_forms_are_read() {
        let check = |text: &str, expected: &[(u32, &str, &str)]| {
            let pairs = parse(text);
            let found: Vec<_> = pairs.iter().map(|p| (p.line, p.key.as_str(), p.value.as_str())).collect();
            assert_eq!(found, expected, "{text:?}");
        };
        check("# c\n! d\n\na=b", &[(4, "a", "b")]);
        check("a = b = c", &[(1, "a", "b = c")]);
        check("a: b\nc d", &[(1, "a", "b"), (2, "c", "d")]);
        check("a\\=b=c\\:d", &[(1, "a=b", "c:d")]);
        check("a=b\\\n   c\nd=\\u00f6\\n", &[(1, "a", "bc"), (3, "d", "ö\n")]);
        check("a", &[(1, "a", "")]);
    }
}
