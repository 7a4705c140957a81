use proptest::prelude::*;

use super::super::zone::Zone;
use super::Expression;
use crate::tick::Tick;

fn expression(text: &str) -> Expression {
    Expression::parse(text).unwrap().unwrap()
}

/// Every row of the table, by the library.
#[test]
fn the_table_of_expressions_holds() {
    let table = include_str!("../../../../tests/vectors/cron.tsv");
    let mut rows = 0;
    for line in table.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, _, text, zone, after, first, second, ..] = columns[..] else { panic!("{line}") };
        let text = match text {
            "(empty)" => "",
            "(spaces)" => "   ",
            text => text,
        };
        let after: Tick = after.parse().unwrap();
        let answer = Zone::named(zone).and_then(|zone| match Expression::parse(text)? {
            None => Ok(None),
            Some(parsed) => {
                parsed.first(&zone, after)?;
                Ok(Some(parsed.upcoming(&zone, after).take(2).map(|tick| tick.to_string()).collect::<Vec<_>>()))
            }
        });
        match (first, answer) {
            ("error", Err(error)) => assert!(error.next_step().is_some(), "{id}: {error:?} doesn't say what to do"),
            ("never", Ok(None)) => {}
            (_, Ok(Some(ticks))) => assert_eq!(ticks, [first, second], "{id}: {text:?} in {zone} after {after}"),
            (_, answer) => panic!("{id}: {text:?} in {zone}: expected {first}, got {answer:?}"),
        }
        rows += 1;
    }
    assert_eq!(rows, 80);
}

#[test]
fn what_is_outside_the_dialect_is_refused() {
    for text in [
        "* * * *",
        "* * * * * *",
        "0 0 * * * 2026",
        "@",
        "@reboot",
        "@every 5m",
        "@daily *",
        "* * * * @daily",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "-1 * * * *",
        "+1 * * * *",
        "1.5 * * * *",
        "1,,2 * * * *",
        ",1 * * * *",
        "1, * * * *",
        "1-2-3 * * * *",
        "1- * * * *",
        "-5 * * * *",
        "*-5 * * * *",
        "** * * * *",
        "*5 * * * *",
        "*/0 * * * *",
        "*/60 * * * *",
        "*/100 * * * *",
        "* */24 * * *",
        "5/15 * * * *",
        "*/ * * * *",
        "*//2 * * * *",
        "*/2/3 * * * *",
        "*/-2 * * * *",
        "30-10 * * * *",
        "0 22 * * FRI-MON",
        "0 22 * * FRI-SUN",
        "0 0 * DEC-JAN *",
        "0 0 L * *",
        "0 0 15W * *",
        "0 0 LW * *",
        "0 0 * * 5L",
        "0 0 * * 5#2",
        "0 0 ? * MON",
        "0 0 1 * +MON",
        "0 9 * * MONDAY",
        "0 0 * JANUARY *",
        "0 MON * * *",
        "JAN * * * *",
        "0 0 * MON *",
        "0 0 * * JAN",
        "0 0 * * MON/2",
        "H * * * *",
        "~ * * * *",
        "\u{0661} * * * *",
        "0\u{a0}0 * * *",
        "0 0 * *\u{2003}*",
        "0 0 * *\n*",
        "0 0 * * *; ls",
        "4294967296 * * * *",
        "99999999999999999999 * * * *",
    ] {
        let error = Expression::parse(text).unwrap_err();
        assert_eq!(error.stable_code(), "invalid_expression", "{text:?}");
    }
    assert!(Expression::parse(&format!("{} * * * *", "0,".repeat(600) + "0")).is_err(), "an expression has a longest length");
}

#[test]
fn what_the_dialect_allows_is_read() {
    for (one, same) in [
        ("  */5\t* * *   * ", "*/5 * * * *"),
        ("00 09 * * mon-Fri", "0 9 * * 1-5"),
        ("0 0 * jan,MAR-may *", "0 0 * 1,3-5 *"),
        ("@Daily", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("0 0 * * MON-5", "0 0 * * 1-5"),
    ] {
        let (zone, after) = (Zone::named("UTC").unwrap(), Tick::from_seconds(1_767_225_600));
        let ticks = |text: &str| expression(text).upcoming(&zone, after).take(40).collect::<Vec<_>>();
        assert_eq!(ticks(one), ticks(same), "{one:?}");
    }
    for blank in ["", " ", "\t", "\n", "\u{a0}"] {
        assert!(Expression::parse(blank).unwrap().is_none(), "{blank:?}");
    }
}

#[test]
fn a_weekday_range_may_end_in_sunday_as_7() {
    let (zone, after) = (Zone::named("UTC").unwrap(), Tick::from_seconds(1_767_225_600));
    let ticks = |text: &str| expression(text).upcoming(&zone, after).take(20).collect::<Vec<_>>();
    assert_eq!(ticks("0 0 * * 5-7"), ticks("0 0 * * 0,5,6"));
    assert_eq!(ticks("0 0 * * 0-7"), ticks("0 0 * * *"));
    assert_eq!(ticks("0 0 * * */2"), ticks("0 0 * * SUN,TUE,THU,SAT"));
    assert_eq!(ticks("0 0 * * 1-7/2"), ticks("0 0 * * MON,WED,FRI,SUN"));
}

#[test]
fn an_expression_without_a_day_in_ten_years_never_fires() {
    let zone = Zone::named("UTC").unwrap();
    let after: Tick = "2026-01-01T00:00:00Z".parse().unwrap();
    for text in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 FEB *"] {
        assert_eq!(expression(text).first(&zone, after).unwrap_err().stable_code(), "never_fires", "{text}");
    }
    // Both day fields with a star in front: the 30th of February stays out, whatever the weekday.
    assert!(expression("0 0 30 2 */2").first(&zone, after).is_err());
    // Restricted ones are alternatives: its Mondays are there.
    assert!(expression("0 0 30 2 1").first(&zone, after).is_ok());
}

#[test]
fn instants_far_away_are_answered_or_refused_without_overflow() {
    for zone in ["UTC", "Europe/London", "Pacific/Apia"] {
        let zone = Zone::named(zone).unwrap();
        for seconds in [i64::MIN, -400_000_000_000, -1, 0, 253_402_200_000, 400_000_000_000, i64::MAX] {
            for text in ["* * * * *", "30 1 * * *", "0 0 29 2 *"] {
                if let Some(tick) = expression(text).next(&zone, Tick::from_seconds(seconds)) {
                    assert!(tick.seconds() > seconds);
                }
            }
        }
    }
}

#[test]
fn readings_say_what_fires() {
    for (text, reading) in [
        ("* * * * *", "Every minute every day"),
        ("*/5 * * * *", "Every 5 minutes every day"),
        ("*/7 * * * *", "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour every day"),
        ("0 * * * *", "At the start of every hour every day"),
        ("15,45 * * * *", "At minutes 15 and 45 of every hour every day"),
        ("0 */2 * * *", "Every 2 hours on the hour every day"),
        ("30 */6 * * *", "Every 6 hours at 30 minutes past, from 00:30 every day"),
        ("*/10 9-17 * * 1-5", "Every 10 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("30 9 * * *", "At 09:30 every day"),
        ("0 9,17 * * SAT,SUN", "At 09:00 and 17:00 on Saturday and Sunday"),
        ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month"),
        ("0 0 13 * 5", "At 00:00 on day 13 of the month and on every Friday"),
        ("0 0 13 * */2", "At 00:00 on day 13 of the month, if it is a Tuesday, Thursday, Saturday or Sunday"),
        ("0 0 * * 0-6", "At 00:00 every day"),
        ("0 12 29 FEB *", "At 12:00 on day 29 of the month in February"),
        ("@yearly", "At 00:00 on day 1 of the month in January"),
        ("0-9 1 * * *", "At minutes 0 to 9 past 01:00 every day"),
    ] {
        assert_eq!(expression(text).reading(), reading, "{text}");
    }
}

/// A field as sets and marks, made independently of the reader under test.
#[derive(Clone, Debug)]
struct Made {
    text: String,
    starred: bool,
    values: Vec<u32>,
}

fn made(least: u32, most: u32) -> impl Strategy<Value = Made> {
    let star = Just(Made { text: "*".to_owned(), starred: true, values: (least..=most).collect() });
    let step = (1..=most).prop_map(move |step| Made {
        text: format!("*/{step}"),
        starred: true,
        values: (least..=most).filter(|value| (value - least).is_multiple_of(step)).collect(),
    });
    let list = prop::collection::vec((least..=most, 0..4_u32, 1..=3_u32), 1..4).prop_map(move |ranges| {
        let mut made = Made { text: String::new(), starred: false, values: Vec::new() };
        for (first, length, step) in ranges {
            let last = (first + length).min(most);
            let comma = if made.text.is_empty() { "" } else { "," };
            made.text += &if length == 0 { format!("{comma}{first}") } else { format!("{comma}{first}-{last}/{step}") };
            let step = if length == 0 { 1 } else { step };
            made.values.extend((first..=if length == 0 { first } else { last }).filter(|value| (value - first).is_multiple_of(step)));
        }
        made
    });
    prop_oneof![2 => star, 1 => step, 3 => list]
}

/// Says minute by minute what fires: the wall clock is watched as a person would watch it.
fn watched(fields: &[Made; 5], zone: &jiff::tz::TimeZone, from: i64, minutes: i64) -> Vec<i64> {
    let matches = |wall: jiff::civil::DateTime| {
        let has = |at: usize, value: i8| fields[at].values.contains(&u32::from(value.unsigned_abs()));
        let weekday = wall.weekday().to_sunday_zero_offset();
        let (day, weekday) = (has(2, wall.day()), has(4, weekday) || weekday == 0 && has(4, 7));
        let day = if fields[2].starred || fields[4].starred { day && weekday } else { day || weekday };
        has(0, wall.minute()) && has(1, wall.hour()) && has(3, wall.month()) && day
    };
    let fixed = !fields[0].starred && !fields[1].starred;
    let wall = |at: i64| zone.to_datetime(jiff::Timestamp::from_second(at).unwrap());
    let minute = jiff::SignedDuration::from_secs(60);
    let mut fired = Vec::new();
    // Watched from a day before, so that an overlap that is going on is known.
    let mut latest = wall(from - 86_400 - 60);
    for nth in -1440..minutes {
        let at = from + nth * 60;
        let now = wall(at);
        let mut fires = matches(now) && (!fixed || now > latest);
        if fixed {
            let mut lost = latest + minute;
            while lost < now {
                fires |= matches(lost);
                lost += minute;
            }
        }
        latest = latest.max(now);
        if fires && nth > 0 {
            fired.push(at);
        }
    }
    fired
}

/// Minutes around which the clocks of a zone change, whole minutes all.
const CHANGES: [(&str, i64); 14] = [
    ("UTC", 1_772_953_200),
    ("America/New_York", 1_772_953_200),
    ("America/New_York", 1_793_512_800),
    ("Europe/London", 1_774_746_000),
    ("Europe/London", 1_792_890_000),
    ("Australia/Lord_Howe", 1_791_041_400),
    ("Australia/Lord_Howe", 1_775_314_800),
    ("America/Santiago", 1_788_667_200),
    ("America/Santiago", 1_775_358_000),
    ("Africa/Cairo", 1_776_981_600),
    ("Pacific/Apia", 1_325_239_200),
    ("Antarctica/Troll", 1_774_746_000),
    ("Antarctica/Troll", 1_792_890_000),
    ("Africa/Casablanca", 1_771_120_800),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The walk gives what watching the clock minute by minute gives, around the changes of the clocks.
    #[test]
    fn the_walk_is_what_watching_the_clock_gives(
        minute in made(0, 59), hour in made(0, 23), day in made(1, 31), month in made(1, 12), weekday in made(0, 7),
        change in 0..CHANGES.len(), lead in 0..3000_i64,
    ) {
        let (name, at) = CHANGES[change];
        let fields = [minute, hour, day, month, weekday];
        let text = fields.iter().map(|field| field.text.as_str()).collect::<Vec<_>>().join(" ");
        let zone = Zone::named(name).unwrap();
        let rules = jiff::tz::TimeZone::get(name).unwrap();
        let (from, minutes) = (at - lead * 60, 6000);
        let walked: Vec<i64> = expression(&text)
            .upcoming(&zone, Tick::from_seconds(from))
            .map(Tick::seconds)
            .take_while(|tick| *tick < from + minutes * 60)
            .collect();
        prop_assert_eq!(walked, watched(&fields, &rules, from, minutes), "{} in {}", text, name);
    }
}
