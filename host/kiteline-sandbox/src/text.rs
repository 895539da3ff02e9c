//! Text that came out of a guest, made safe for logs, reports and headers: bounded, one line, no control characters.

use std::fmt::Write as _;

/// Longest text kept of one log line, reject or panic, in bytes before escaping (contract: 4 KiB).
pub(crate) const TEXT_BYTES_MAX: usize = 4096;

/// Decodes `bytes` as UTF-8 with replacement, cuts at [`TEXT_BYTES_MAX`] bytes and escapes control characters, so that
/// no guest can forge a second log line (cases 65).
pub(crate) fn clean(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    let mut text = String::with_capacity(cut.len());
    for chunk in cut.utf8_chunks() {
        for character in chunk.valid().chars() {
            push(&mut text, character);
        }
        // a character that was only cut in two is left out, not replaced
        let cut_off = cut.len() < bytes.len() && chunk.invalid().len() < 4 && cut.ends_with(chunk.invalid());
        if !chunk.invalid().is_empty() && !cut_off {
            text.push('\u{fffd}');
        }
    }
    // Escapes make text longer; the bound holds for what leaves here.
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// One character, escaped if it controls a terminal or ends a line. The line and paragraph separators and the marks that
/// turn the direction of writing count as such.
fn push(text: &mut String, character: char) {
    match character {
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        c if c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
        {
            // writing to a String cannot fail
            let _ = write!(text, "\\u{{{:x}}}", u32::from(c));
        }
        c => text.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_bounded_line() {
        let cases: &[(&[u8], &str)] = &[
            (b"plain", "plain"),
            (b"ok\n{\"level\":\"ERROR\"}", "ok\\n{\"level\":\"ERROR\"}"),
            (b"a\x1b[31mb\x00\x7f", "a\\u{1b}[31mb\\u{0}\\u{7f}"),
            (b"bad \xff\xfe end", "bad \u{fffd}\u{fffd} end"),
            ("Zürich \u{2028}\u{202e}".as_bytes(), "Zürich \\u{2028}\\u{202e}"),
            (b"", ""),
        ];
        for (bytes, want) in cases {
            assert_eq!(clean(bytes), *want);
        }
        assert_eq!(clean(&[b'x'; 5000]).len(), 4096);
        assert_eq!(clean(&[b'\n'; 5000]).len(), 4096);
        let split = [vec![b'x'; 4095], "é".as_bytes().to_vec()].concat();
        assert_eq!(clean(&split), "x".repeat(4095));
    }
}
