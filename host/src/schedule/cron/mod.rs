//! Cron expressions: five fields, read strictly, evaluated in a time zone.
//!
//! The dialect is Vixie cron's: names, lists, ranges and steps; Sunday is 0 or 7; day of month and day of week are alternatives when
//! both are restricted, and a field that starts with a star counts as not restricted. The `cron` crate parses and holds the field sets;
//! the reader in front of it, the days, and what happens when clocks change are ours, because its own answers drop the times in a gap
//! and double those in an overlap.

mod read;
mod reading;
mod walk;

use std::fmt;
use std::fmt::Write as _;

use cron::TimeUnitSpec as _;

use super::zone::Zone;
use crate::error::{Error, Result};
use crate::tick::Tick;
use read::Field;

/// How far ahead the next tick is looked for: an expression with none in ten years never fires. Seconds.
const HORIZON: i64 = 3653 * 86_400;

/// A cron expression.
#[derive(Clone)]
pub struct Expression {
    text: String,
    fields: [Field; 5],
    /// The field sets, as the crate holds them: with seconds, and Sunday as day 1.
    sets: cron::Schedule,
}

impl Expression {
    /// Reads an expression; a blank one is none: registered, but never armed.
    ///
    /// # Errors
    /// `Usage` with the code `invalid_expression` that names the field and what is wrong with it.
    pub fn parse(text: &str) -> Result<Option<Self>> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let fields = read::fields(text)?;
        let sets = field_sets(&fields).parse().map_err(|error| read::invalid(format!("{text:?} can't be used")).source(error))?;
        Ok(Some(Self { text: text.trim().to_owned(), fields, sets }))
    }

    /// Returns the expression as it was written, without blanks at its ends.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the first tick after `after`; none when there is none in the ten years that follow.
    #[must_use]
    pub fn next(&self, zone: &Zone, after: Tick) -> Option<Tick> {
        walk::next(self, zone, after.seconds(), after.seconds().saturating_add(HORIZON)).map(Tick::from_seconds)
    }

    /// Returns the first tick after `after`.
    ///
    /// # Errors
    /// `Usage` with the code `never_fires` when there is none in ten years.
    pub fn first(&self, zone: &Zone, after: Tick) -> Result<Tick> {
        self.next(zone, after).ok_or_else(|| {
            Error::usage(format!("{:?} never fires: no day in the ten years after {after} matches it", self.text))
                .code("never_fires")
                .hint("check the day of the month against the months, or leave the expression out to run on demand only")
        })
    }

    /// Returns the ticks after `after`, in order.
    pub fn upcoming<'a>(&'a self, zone: &'a Zone, after: Tick) -> impl Iterator<Item = Tick> + 'a {
        std::iter::successors(self.next(zone, after), |tick| self.next(zone, *tick))
    }

    /// Says in plain English when it fires.
    #[must_use]
    pub fn reading(&self) -> String {
        reading::of(self)
    }

    /// Whether it is for fixed times of the day: neither minute nor hour starts with a star.
    fn is_fixed(&self) -> bool {
        !self.fields[0].starred && !self.fields[1].starred
    }

    /// Whether a day of the calendar matches: month, and the day's two fields by Vixie cron's rule.
    fn matches_day(&self, date: jiff::civil::Date) -> bool {
        let unsigned = |value: i8| u32::from(value.unsigned_abs());
        if !self.sets.months().includes(unsigned(date.month())) {
            return false;
        }
        let day = self.sets.days_of_month().includes(unsigned(date.day()));
        let weekday = self.sets.days_of_week().includes(unsigned(date.weekday().to_sunday_one_offset()));
        if self.fields[2].starred || self.fields[4].starred { day && weekday } else { day || weekday }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

impl Eq for Expression {}

/// Writes the fields for the crate: seconds in front, every value named, Sunday as 1.
fn field_sets(fields: &[Field; 5]) -> String {
    let mut text = String::from("0");
    for (at, field) in fields.iter().enumerate() {
        let mut values: Vec<u32> = field.parts.iter().flat_map(|part| part.values()).collect();
        if at == 4 {
            values.iter_mut().for_each(|day| *day = *day % 7 + 1);
        }
        values.sort_unstable();
        values.dedup();
        for (nth, value) in values.iter().enumerate() {
            let _ = write!(text, "{}{value}", if nth == 0 { ' ' } else { ',' });
        }
    }
    text
}

#[cfg(test)]
mod tests;
