//! Sizes and spans as people write them: `512MiB`, `15m`.

use std::time::Duration;

/// Reads a number of bytes: a whole number and an optional unit `B`, `KiB`, `MiB`, `GiB`, `TiB`.
///
/// # Errors
/// A sentence that says what was expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(format!("{text:?} is not a size: expected a number and B, KiB, MiB, GiB or TiB, such as \"512MiB\"")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("{text:?} is not a size: expected a whole number above zero, such as \"512MiB\""))
}

/// Reads a span of time: a whole number and a unit `ms`, `s`, `m` or `h`.
///
/// # Errors
/// A sentence that says what was expected.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{text:?} is not a span of time: expected a number and ms, s, m or h, such as \"15m\"")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(millis))
        .filter(|millis| *millis > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is not a span of time: expected a whole number above zero, such as \"15m\""))
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}
