//! Reads all of stdin, prints it, prints its arguments to stderr and ends with the exit code of its first argument.

use std::io::{Read, Write};

fn main() -> std::io::Result<()> {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    std::io::stdout().write_all(&input)?;
    std::io::stdout().flush()?;
    let arguments: Vec<String> = std::env::args().collect();
    eprintln!("arguments: {}", arguments.join(" "));
    for (name, value) in std::env::vars() {
        eprintln!("environment: {name}={value}");
    }
    std::process::exit(arguments.get(1).and_then(|code| code.parse().ok()).unwrap_or(0))
}
