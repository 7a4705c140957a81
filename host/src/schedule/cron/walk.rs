//! From field sets to instants: over the days of the local calendar, through the changes of the clocks.
//!
//! An expression for fixed times of the day means moments of the wall clock: one that a change of the clocks leaves out fires at the
//! first instant after the gap, several of them once together, and one that comes twice fires the first time. An expression with a
//! starred minute or hour means an interval: it fires at every real instant whose wall clock matches.

use cron::TimeUnitSpec as _;

use super::Expression;
use crate::schedule::zone::Zone;

const DAY: i64 = 86_400;
/// How long ago a change of the clocks can have been for its overlap to go on: longer than any zone was ever set back. Seconds.
const OVERLAP: i64 = 3 * DAY;

/// Returns the first instant after `after` and not after `until` at which the expression fires. Seconds since 1970.
pub(super) fn next(expression: &Expression, zone: &Zone, after: i64, until: i64) -> Option<i64> {
    let before = zone.stretches(after, OVERLAP);
    let (&first, passed) = before.split_last()?;
    // The latest wall-clock time that has been shown before the stretch.
    let mut shown = passed.iter().map(|stretch| stretch.end.saturating_add(stretch.offset)).max();
    let mut stretch = first;
    loop {
        if stretch.start > until {
            return None;
        }
        let opens = stretch.start.saturating_add(stretch.offset);
        let mut from = opens.max(after.saturating_add(1).saturating_add(stretch.offset));
        if expression.is_fixed() {
            if let Some(shown) = shown.filter(|shown| *shown < opens)
                && stretch.start > after
                && local(expression, shown, opens).is_some()
            {
                return Some(stretch.start);
            }
            from = shown.map_or(from, |shown| from.max(shown));
        }
        let closes = stretch.end.min(until.saturating_add(1)).saturating_add(stretch.offset);
        if let Some(found) = local(expression, from, closes) {
            return Some(found - stretch.offset);
        }
        shown = shown.max(Some(stretch.end.saturating_add(stretch.offset)));
        stretch = zone.after(stretch)?;
    }
}

/// Returns the first matching wall-clock time from `from` on and before `end`. Seconds since 1970-01-01T00:00 on the wall clock.
fn local(expression: &Expression, from: i64, end: i64) -> Option<i64> {
    let mut days = from.div_euclid(DAY);
    let mut date = jiff::civil::date(1970, 1, 1).checked_add(jiff::SignedDuration::from_secs(days.checked_mul(DAY)?)).ok()?;
    while days * DAY < end {
        if expression.matches_day(date) {
            // On the first day only what is left of it.
            let left = (from - days * DAY).clamp(0, DAY);
            let first_hour = u32::try_from(left / 3600).ok()?;
            for hour in expression.sets.hours().range(first_hour..) {
                let opens = i64::from(hour) * 3600;
                let first_minute = u32::try_from((left - opens).max(0)).ok()?.div_ceil(60);
                if let Some(minute) = expression.sets.minutes().range(first_minute..).next() {
                    let found = days * DAY + opens + i64::from(minute) * 60;
                    return (found < end).then_some(found);
                }
            }
        }
        date = date.tomorrow().ok()?;
        days += 1;
    }
    None
}
