//! The strict reader: what the dialect allows, and nothing that a library would also let through.

use crate::error::{Error, Result};

/// One part of a list: every `step`-th value from `first` to `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) step: u32,
}

impl Part {
    pub(super) fn values(self) -> impl Iterator<Item = u32> {
        (self.first..=self.last).step_by(usize::try_from(self.step).unwrap_or(1).max(1))
    }
}

/// One of the five fields as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Field {
    /// Whether its text starts with a star: Vixie cron's mark for "not restricted", which `*/2` bears too.
    pub(super) starred: bool,
    /// The parts of its list.
    pub(super) parts: Vec<Part>,
}

/// What a field may hold.
struct Kind {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const KINDS: [Kind; 5] = [
    Kind { name: "minute", least: 0, most: 59, names: &[] },
    Kind { name: "hour", least: 0, most: 23, names: &[] },
    Kind { name: "day of month", least: 1, most: 31, names: &[] },
    Kind { name: "month", least: 1, most: 12, names: &MONTHS },
    // Sunday is 0 and 7: a range may end in either.
    Kind { name: "day of week", least: 0, most: 7, names: &WEEKDAYS },
];
/// The nicknames with what they stand for.
const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];
/// Longest expression, bytes: every value of every field written out fits.
const MAX_LEN: usize = 1024;

pub(super) fn invalid(message: String) -> Error {
    Error::usage(message)
        .code("invalid_expression")
        .hint("five fields: minute hour day-of-month month day-of-week, such as \"30 9 * * MON-FRI\", or @daily")
}

/// Reads an expression that isn't blank.
pub(super) fn fields(text: &str) -> Result<[Field; 5]> {
    if text.len() > MAX_LEN {
        return Err(invalid(format!("the expression has {} bytes; at most {MAX_LEN} are read", text.len())));
    }
    let mut text = text.trim();
    if text.starts_with('@') {
        let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        text = known.ok_or_else(|| invalid(format!("{text:?} is not a nickname: expected one of {}", nicknames())))?.1;
    }
    let written: Vec<&str> = text.split([' ', '\t']).filter(|field| !field.is_empty()).collect();
    let Ok(written) = <[&str; 5]>::try_from(written.as_slice()) else {
        return Err(invalid(format!("{text:?} has {} fields: expected five", written.len())));
    };
    let [minute, hour, day, month, weekday] = [0, 1, 2, 3, 4].map(|at| field(&KINDS[at], written[at]));
    Ok([minute?, hour?, day?, month?, weekday?])
}

fn nicknames() -> String {
    NICKNAMES.map(|(name, _)| name).join(", ")
}

fn field(kind: &Kind, text: &str) -> Result<Field> {
    let parts = text.split(',').map(|part| self::part(kind, text, part)).collect::<Result<_>>()?;
    Ok(Field { starred: text.starts_with('*'), parts })
}

fn part(kind: &Kind, field: &str, text: &str) -> Result<Part> {
    let refuse = |why: String| invalid(format!("{} {field:?}: {why}", kind.name));
    if text.is_empty() {
        return Err(refuse("a list has an empty item".to_owned()));
    }
    let (range, step) = match text.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (text, None),
    };
    let (first, last) = if range == "*" {
        (kind.least, kind.most)
    } else if let Some((first, last)) = range.split_once('-') {
        let (first, last) = (value(kind, first).map_err(refuse)?, value(kind, last).map_err(refuse)?);
        if first > last {
            return Err(refuse(format!("the range {range} runs backward; write it as a list of two ranges")));
        }
        (first, last)
    } else if step.is_some() {
        return Err(refuse(format!("a step follows * or a range, not {range:?}")));
    } else {
        let value = value(kind, range).map_err(refuse)?;
        (value, value)
    };
    let step = match step {
        None => 1,
        Some(step) => {
            let step = number(step).ok_or_else(|| refuse(format!("the step {step:?} is not a number")))?;
            if step == 0 || step > kind.most {
                return Err(refuse(format!("the step {step} is not from 1 to {}", kind.most)));
            }
            step
        }
    };
    Ok(Part { first, last, step })
}

/// Digits only: no sign, no blank, no digits of other scripts.
fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn value(kind: &Kind, text: &str) -> std::result::Result<u32, String> {
    if let Some(at) = kind.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        return Ok(kind.least + u32::try_from(at).unwrap_or(0));
    }
    match number(text) {
        Some(value) if (kind.least..=kind.most).contains(&value) => Ok(value),
        Some(value) => Err(format!("{value} is not from {} to {}", kind.least, kind.most)),
        None if kind.names.is_empty() => Err(format!("{text:?} is not a number")),
        None => Err(format!("{text:?} is neither a number nor one of {}", kind.names.join(", "))),
    }
}
