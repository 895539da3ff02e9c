//! Names as parts of a path, for nodes and for addresses. Owns the spelling only.

/// Spells a name as one path part: everything but ASCII letters, digits, `.`, `_` and `-` becomes `%` and two hex digits, and so
/// do the dots of `.` and `..`, which paths give a meaning. Topic names stay as they are.
pub fn escape(name: &str) -> String {
    let dots = matches!(name, "." | "..");
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && !dots) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Undoes [`escape`]. What is not an escape stays as it is; bytes that are not UTF-8 become replacement characters.
pub fn unescape(part: &str) -> String {
    let bytes = part.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = part.get(at + 1..at + 3).filter(|_| byte == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_parts_and_come_back() {
        let cases = [
            ("orders.v1_a-B", "orders.v1_a-B"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "..."),
            ("a/b", "a%2Fb"),
            ("100%", "100%25"),
            ("%41", "%2541"),
            ("ä", "%C3%A4"),
            ("a b", "a%20b"),
        ];
        for (name, part) in cases {
            assert_eq!(escape(name), part);
            assert_eq!(unescape(part), name);
        }
        assert_eq!(unescape("%zz%"), "%zz%");
    }
}
