//! An expression in plain English: what a person checks it against.

use super::Expression;

/// So many times of the day are listed at most.
const LISTED: usize = 8;
const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Describes when an expression fires, on the clock of its zone.
pub(super) fn of(expression: &Expression) -> String {
    let [minutes, hours, days, months, weekdays] = [0, 1, 2, 3, 4].map(|at| values(expression, at));
    let mut text = times(&minutes, &hours);
    let (every_day, every_weekday) = (days.len() == 31, weekdays.len() == 7);
    let either = !expression.fields[2].starred && !expression.fields[4].starred;
    text.push_str(&match (every_day, every_weekday) {
        (true, true) => " every day".to_owned(),
        (true, false) | (false, true) if either => " every day".to_owned(),
        (true, false) => format!(" on {}", runs(&weekdays, |day| WEEKDAYS[day % 7].to_owned())),
        (false, true) => format!(" on {}", month_days(&days)),
        (false, false) => {
            let weekdays = runs(&weekdays, |day| WEEKDAYS[day % 7].to_owned());
            if either {
                format!(" on {} and on every {weekdays}", month_days(&days))
            } else {
                format!(" on {}, if it is a {}", month_days(&days), weekdays.replace(" and ", " or "))
            }
        }
    });
    if months.len() < 12 {
        text.push_str(" in ");
        text.push_str(&runs(&months, |month| MONTHS[(month - 1) % 12].to_owned()));
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The values of a field in order; for weekdays from Monday (1) to Sunday (7).
fn values(expression: &Expression, at: usize) -> Vec<usize> {
    let mut values: Vec<usize> =
        expression.fields[at].parts.iter().flat_map(|part| part.values()).filter_map(|value| value.try_into().ok()).collect();
    if at == 4 {
        values.iter_mut().filter(|day| **day == 0).for_each(|day| *day = 7);
    }
    values.sort_unstable();
    values.dedup();
    values
}

fn times(minutes: &[usize], hours: &[usize]) -> String {
    let during = || match hours {
        _ if hours.len() == 24 => String::new(),
        [first, .., last] if last - first + 1 == hours.len() => format!(" from {first:02}:00 to {last:02}:59"),
        _ => format!(" in {}", counted("hour", hours)),
    };
    if minutes.len() == 60 {
        return format!("every minute{}", during());
    }
    if let Some(step) = even(minutes, 60) {
        return format!("every {step} minutes{}", during());
    }
    if hours.len() == 24 {
        return match minutes {
            [0] => "at the start of every hour".to_owned(),
            _ => format!("at {} of every hour", counted("minute", minutes)),
        };
    }
    if let (Some(step), [minute]) = (even(hours, 24), minutes) {
        return match minute {
            0 => format!("every {step} hours on the hour"),
            _ => format!("every {step} hours at {minute} minutes past, from 00:{minute:02}"),
        };
    }
    if minutes.len() * hours.len() <= LISTED {
        let times = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}")));
        return format!("at {}", list(&times.collect::<Vec<_>>()));
    }
    format!("at {}{}", counted("minute", minutes), if hours.len() == 1 { format!(" past {:02}:00", hours[0]) } else { during() })
}

/// The step, when the values go round the clock in even steps from 0.
fn even(values: &[usize], around: usize) -> Option<usize> {
    let step = *values.get(1)?;
    let fits =
        around.is_multiple_of(step) && values.len() == around / step && values.iter().enumerate().all(|(at, value)| *value == at * step);
    fits.then_some(step)
}

fn month_days(days: &[usize]) -> String {
    format!("{} of the month", counted("day", days))
}

fn counted(what: &str, values: &[usize]) -> String {
    let text = runs(values, |value| value.to_string());
    if values.len() == 1 { format!("{what} {text}") } else { format!("{what}s {text}") }
}

/// A list in which three and more values in a row become a range.
fn runs(values: &[usize], show: impl Fn(usize) -> String) -> String {
    let mut parts = Vec::new();
    for run in values.chunk_by(|one, next| one + 1 == *next) {
        match run {
            [first, _, .., last] => parts.push(format!("{} to {}", show(*first), show(*last))),
            _ => parts.extend(run.iter().map(|value| show(*value))),
        }
    }
    list(&parts)
}

fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
