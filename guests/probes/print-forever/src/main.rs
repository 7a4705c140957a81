//! Prints without end: to stderr, or to stdout when its first argument says so. With a second argument, that many lines only.

use std::io::Write;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut target: Box<dyn Write> = match arguments.next().as_deref() {
        Some("stdout") => Box::new(std::io::stdout()),
        _ => Box::new(std::io::stderr()),
    };
    let lines = arguments.next().and_then(|lines| lines.parse().ok()).unwrap_or(u64::MAX);
    for line in 0..lines {
        writeln!(target, "line {line}: {}", "x".repeat(80))?;
    }
    target.flush()
}
