//! `landfall schedule next`: when an expression fires, as the binary answers it.

use landfall_tests::command::Commands;

/// Every row of the table, by the binary, in a folder whose config can't be read: the question needs none.
#[test]
fn the_table_of_expressions_holds_for_the_command() {
    let commands = Commands::new("this is no config");
    let mut rows = 0;
    for line in include_str!("../vectors/cron.tsv").lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, _, text, zone, after, first, second, ..] = columns[..] else { panic!("{line}") };
        let text = match text {
            "(empty)" => "",
            "(spaces)" => "   ",
            text => text,
        };
        let (code, answer) = commands.json(&["schedule", "next", text, "--tz", zone, "--after", after, "--count", "2"]);
        match first {
            "error" => {
                assert_eq!(code, 2, "{id}: {answer}");
                assert!(answer["error"]["code"].is_string() && answer["error"]["message"].is_string(), "{id}: {answer}");
            }
            "never" => {
                assert_eq!((code, answer["armed"].as_bool(), &answer["next"]), (0, Some(false), &serde_json::json!([])), "{id}: {answer}");
            }
            _ => {
                assert_eq!((code, &answer["next"]), (0, &serde_json::json!([first, second])), "{id}: {answer}");
                assert_eq!((answer["expression"].as_str(), answer["timezone"].as_str()), (Some(text), Some(zone)));
                assert!(answer["reading"].as_str().is_some_and(|reading| !reading.is_empty()));
            }
        }
        rows += 1;
    }
    assert_eq!(rows, 80);
}

#[test]
fn an_expression_is_read_to_people() {
    let commands = Commands::new("version = 1\n");
    let shown = commands.run(&["schedule", "next", "30 2 * * *", "--tz", "America/New_York", "--after", "2026-03-07T12:00:00Z", "-n", "2"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "At 02:30 every day (America/New_York)",
            "2026-03-08T07:00:00Z  Sun 2026-03-08 03:00:00 EDT",
            "2026-03-09T06:30:00Z  Mon 2026-03-09 02:30:00 EDT",
        ]
    );
    let blank = commands.run(&["schedule", "next", ""]);
    assert!(blank.code == 0 && blank.stdout.starts_with("On demand only"), "{}", blank.stdout);
}

#[test]
fn a_refusal_has_a_code_and_says_what_to_write() {
    let commands = Commands::new("version = 1\n");
    for (arguments, code, hint) in [
        (vec!["0 0 30 2 *", "--after", "2026-01-01T00:00:00Z"], "never_fires", "on demand"),
        (vec!["-1 * * * *"], "invalid_expression", "five fields"),
        (vec!["0 9 * * MONDAY"], "invalid_expression", "five fields"),
        (vec!["0 9 * * *", "--tz", "-05:00"], "unknown_timezone", "Europe/London"),
        (vec!["0 9 * * *", "--tz", "america/new_york"], "unknown_timezone", "America/New_York"),
        (vec!["0 9 * * *", "--tz", ""], "unknown_timezone", "IANA"),
        (vec!["", "--tz", "Mars/Phobos"], "unknown_timezone", "IANA"),
        (vec!["0 9 * * *", "--after", "yesterday"], "invalid_instant", "offset"),
    ] {
        let (exit, answer) = commands.json(&[&["schedule", "next"], &arguments[..]].concat());
        assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some(code)), "{arguments:?}: {answer}");
        assert!(answer["error"]["hint"].as_str().is_some_and(|text| text.contains(hint)), "{arguments:?}: {answer}");
    }
    for count in ["0", "1001", "-1"] {
        assert_eq!(commands.run(&["schedule", "next", "* * * * *", "--count", count]).code, 2, "{count}");
    }
}
