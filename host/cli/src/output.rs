//! The one place that prints: results on stdout, everything else on stderr.

use std::io::{IsTerminal, Write};

/// Prints a line of a result. A reader that went away (`| head`) is no error.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Writes bytes of a result as they are. A reader that went away is no error.
pub(crate) fn bytes(bytes: &[u8]) -> std::io::Result<()> {
    match std::io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Prints the JSON document.
pub(crate) fn json(value: &serde_json::Value) {
    let _ = writeln!(std::io::stdout().lock(), "{value:#}");
}

/// Prints a line for a person on stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether a person looks at stderr.
pub(crate) fn watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Makes a text from outside safe for a terminal: control characters are shown escaped.
pub(crate) fn safe(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() && c != '\t' { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

/// Formats a number of bytes for a person.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut rest = bytes;
    let mut part = 0;
    while rest >= 1024 && unit < UNITS.len() - 1 {
        part = rest % 1024 * 10 / 1024;
        rest /= 1024;
        unit += 1;
    }
    if unit == 0 { format!("{rest} B") } else { format!("{rest}.{part} {}", UNITS[unit]) }
}

/// Aligns rows into columns with two blanks between; the last column isn't padded.
pub(crate) fn table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> =
        (0..columns).map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
    for row in rows {
        let mut text = String::new();
        for (at, cell) in row.iter().enumerate() {
            text.push_str(cell);
            if at + 1 < row.len() {
                text.extend(std::iter::repeat_n(' ', widths[at] - cell.chars().count() + 2));
            }
        }
        line(text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_and_escapes() {
        assert_eq!(super::size(1023), "1023 B");
        assert_eq!(super::size(1536), "1.5 KiB");
        assert_eq!(super::size(82 << 20), "82.0 MiB");
        assert_eq!(super::safe("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
    }
}
