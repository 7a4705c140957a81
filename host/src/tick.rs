//! Due instants: whole seconds in UTC.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::RunId;

const NANOS: i64 = 1_000_000_000;

/// A due instant of a plan, in whole seconds since 1970-01-01T00:00:00Z. Its text is RFC 3339 in UTC: `2026-03-08T07:00:00Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tick(i64);

impl Tick {
    /// Wraps seconds since 1970.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Returns the last whole second that isn't after `at`: the ticks after it are the ticks after `at`.
    #[must_use]
    pub const fn at_or_before(at: UnixNanos) -> Self {
        Self(at.div_euclid(NANOS))
    }

    /// Returns the seconds since 1970.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0
    }

    /// Returns the instant in nanoseconds since 1970, the nearest that fits where it is centuries away.
    #[must_use]
    pub const fn nanos(self) -> UnixNanos {
        self.0.saturating_mul(NANOS)
    }

    /// Returns the instant that is so many seconds later.
    #[must_use]
    pub const fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    pub(crate) fn timestamp(self) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_second(self.0).ok()
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timestamp() {
            Some(at) => write!(f, "{at:.0}"),
            None => write!(f, "{}s", self.0),
        }
    }
}

impl FromStr for Tick {
    type Err = Error;

    /// Reads an RFC 3339 instant with its offset; a fraction of a second is dropped.
    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<jiff::Timestamp>() {
            Ok(at) => Ok(Self(at.as_nanosecond().div_euclid(i128::from(NANOS)).try_into().unwrap_or(i64::MAX))),
            Err(_) => Err(Error::usage(format!("{text:?} is not an instant"))
                .code("invalid_instant")
                .hint("write it with its offset, such as 2026-03-08T07:00:00Z")),
        }
    }
}

impl Serialize for Tick {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Tick {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What a run of a schedule is for: a due instant, or a trigger. Its text is part of keys: `20260308T070000Z`, `t-<run id>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TickName {
    /// A due instant.
    Due(Tick),
    /// Triggered outside the plan.
    Triggered(RunId),
}

impl TickName {
    /// Returns the due instant; none for a trigger.
    #[must_use]
    pub const fn due(self) -> Option<Tick> {
        match self {
            Self::Due(tick) => Some(tick),
            Self::Triggered(_) => None,
        }
    }
}

/// The form of a due instant in a key.
const KEY_FORM: &str = "%Y%m%dT%H%M%SZ";

impl fmt::Display for TickName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Due(tick) => match tick.timestamp() {
                Some(at) => write!(f, "{}", at.strftime(KEY_FORM)),
                None => write!(f, "{}s", tick.seconds()),
            },
            Self::Triggered(run) => write!(f, "t-{run}"),
        }
    }
}

impl FromStr for TickName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(run) = text.strip_prefix("t-") {
            return Ok(Self::Triggered(run.parse()?));
        }
        let parsed = jiff::civil::DateTime::strptime(KEY_FORM, text).ok().and_then(|at| at.to_zoned(jiff::tz::TimeZone::UTC).ok());
        match parsed.map(|at| Self::Due(Tick(at.timestamp().as_second()))) {
            Some(name) if name.to_string() == text => Ok(name),
            _ => Err(Error::damaged(format!("{text:?} names no tick: expected a form such as 20260308T070000Z"))),
        }
    }
}

impl Serialize for TickName {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TickName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_fractions_are_dropped_toward_the_past() {
        let tick: Tick = "2026-03-08T07:00:00Z".parse().unwrap();
        assert_eq!(tick.to_string(), "2026-03-08T07:00:00Z");
        assert_eq!("2026-03-08T09:00:00.9+02:00".parse::<Tick>().unwrap(), tick);
        assert_eq!(Tick::at_or_before(-1).seconds(), -1);
        assert_eq!(Tick::at_or_before(1_999_999_999).seconds(), 1);
        assert!("2026-03-08T07:00:00".parse::<Tick>().is_err());
        assert!("tomorrow".parse::<Tick>().is_err());
        let name = TickName::Due(tick);
        assert_eq!(name.to_string(), "20260308T070000Z");
        assert_eq!(name.to_string().parse::<TickName>().unwrap(), name);
        for bad in ["20260308T070000", "20260230T000000Z", "2026-03-08T07:00:00Z", "t-", "t-x", ""] {
            assert!(bad.parse::<TickName>().is_err(), "{bad:?}");
        }
    }
}
