//! `landfall schedule` as people use it: declared and added schedules, changes by two people, refusals that say what to do.

use landfall_tests::command::Commands;

const CONFIG: &str = r#"
version = 1
[agents.hello]
component = "{guests}/hello.wasm"
"#;
const NIGHTLY: &str = "[schedules.nightly]\nagent = \"hello\"\ncron = \"0 3 * * *\"\ntimezone = \"Europe/London\"\n";

fn config(commands: &Commands, more: &str) {
    let guests = landfall_tests::guests::target().join("components");
    std::fs::write(commands.folder().join("landfall.toml"), format!("{CONFIG}{more}").replace("{guests}", &guests.display().to_string()))
        .unwrap();
}

#[test]
fn what_the_config_declares_is_armed_and_what_it_no_longer_declares_is_not() {
    let commands = Commands::new(CONFIG);
    config(&commands, NIGHTLY);
    let listed = commands.run(&["schedule", "list"]);
    assert!(listed.stdout.contains("0 3 * * * Europe/London") && listed.stdout.contains("armed"), "{}", listed.stdout);
    assert!(listed.stderr.contains("nightly is declared"), "{}", listed.stderr);
    for verb in ["add", "remove"] {
        let more: &[&str] = if verb == "add" { &["--agent", "hello", "--replace"] } else { &[] };
        let (code, answer) = commands.json(&[&["schedule", verb, "nightly"], more].concat());
        assert_eq!((code, answer["error"]["code"].as_str()), (4, Some("schedule_declared")), "{answer}");
    }
    // A pause is the operator's and stays when the file is read again.
    assert_eq!(commands.json(&["schedule", "pause", "nightly"]).1["paused"], true);
    assert_eq!(commands.json(&["schedule", "show", "nightly"]).1["next"], serde_json::json!([]));
    assert_eq!(commands.json(&["schedule", "resume", "nightly"]).1["armed"], true);
    config(&commands, "");
    let listed = commands.run(&["schedule", "list"]);
    assert!(listed.stderr.contains("nightly isn't in the config any more: it is disarmed"), "{}", listed.stderr);
    assert!(listed.stdout.contains("undeclared"), "{}", listed.stdout);
    assert_eq!(commands.json(&["schedule", "show", "nightly"]).1["armed"], false);
    assert_eq!(commands.run(&["schedule", "remove", "nightly"]).code, 0);
    assert_eq!(commands.json(&["schedule", "show", "nightly"]).1["error"]["code"], "schedule_missing");
}

#[test]
fn what_is_shown_can_be_given_back_and_an_old_revision_is_refused() {
    let commands = Commands::new(CONFIG);
    let (code, made) = commands.json(&["schedule", "add", "weekly", "--agent", "hello", "--cron", "0 7 * * MON", "--tz", "Europe/London"]);
    assert_eq!((code, made["armed"].as_bool(), made["revision"].as_u64()), (0, Some(true), Some(1)), "{made}");
    let file = commands.folder().join("weekly.json");
    std::fs::write(&file, made.to_string()).unwrap();
    let from = |commands: &Commands| commands.json(&["schedule", "add", "weekly", "--from", "weekly.json"]);
    assert_eq!(from(&commands).1["revision"], 1, "nothing changed");
    let mut emptied = made;
    emptied["cron"] = " ".into();
    std::fs::write(&file, emptied.to_string()).unwrap();
    let (code, unarmed) = from(&commands);
    assert_eq!((code, unarmed["armed"].as_bool(), &unarmed["cron"]), (0, Some(false), &serde_json::Value::Null), "{unarmed}");
    let (code, answer) = from(&commands);
    assert_eq!((code, answer["error"]["code"].as_str()), (4, Some("schedule_changed")), "{answer}");
}

#[test]
fn refusals_name_what_is_wrong() {
    let commands = Commands::new(CONFIG);
    assert_eq!(commands.run(&["schedule", "add", "taken", "--agent", "hello"]).code, 0);
    let long = "n".repeat(65);
    let input = "x".repeat(9000);
    for (arguments, code, wanted) in [
        (vec!["taken", "--agent", "hello"], 4, "schedule_exists"),
        (vec!["a", "--agent", "helo"], 2, "unknown_agent"),
        (vec!["a", "--agent", "hello", "--cron", "0 0 30 2 *"], 2, "never_fires"),
        (vec!["a", "--agent", "hello", "--cron", "-1 * * * *"], 2, "invalid_expression"),
        (vec!["a", "--agent", "hello", "--tz", "Mars/Phobos"], 2, "unknown_timezone"),
        (vec!["a", "--agent", "hello", "--jitter", "48h"], 2, "schedule_limit"),
        (vec!["a", "--agent", "hello", "--jitter", "-5s"], 2, "usage"),
        (vec!["a", "--agent", "hello", "--retries", "1000"], 2, "schedule_limit"),
        (vec!["a", "--agent", "hello", "--input", input.as_str()], 2, "schedule_limit"),
        (vec![long.as_str(), "--agent", "hello"], 2, "usage"),
        (vec!["../a", "--agent", "hello"], 2, "usage"),
    ] {
        let ran = commands.run(&[&["--json", "schedule", "add"], &arguments[..]].concat());
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        if let Ok(answer) = serde_json::from_str::<serde_json::Value>(&ran.stdout) {
            assert_eq!(answer["error"]["code"], wanted, "{arguments:?}: {answer}");
        } else {
            assert_eq!(wanted, "usage", "{arguments:?}: {}", ran.stderr);
        }
    }
    for (section, wanted) in [
        ("[schedules.a]\nagent = \"helo\"\n", "did you mean \"hello\"?"),
        ("[schedules.a]\nagent = \"hello\"\ncron = \"60 * * * *\"\n", "landfall.toml:7: minute \"60\""),
        ("[schedules.a]\nagent = \"hello\"\ntimezone = \"utc\"\n", "did you mean UTC?"),
        ("[schedules.a]\nagent = \"hello\"\noverlaps = \"skip\"\n", "did you mean `overlap`?"),
        ("[schedules.\"a/b\"]\nagent = \"hello\"\n", "schedule name"),
        ("[schedules.a]\nagent = \"hello\"\nretries = -1\n", "landfall.toml:7"),
    ] {
        config(&commands, section);
        let ran = commands.run(&["schedule", "list"]);
        assert!(ran.code == 2 && ran.stderr.contains(wanted), "{section}: {} {}", ran.code, ran.stderr);
    }
}

#[test]
fn a_trigger_is_durable_at_once_and_the_history_says_what_became_of_it() {
    let commands = Commands::new(CONFIG);
    assert_eq!(commands.run(&["schedule", "add", "demand", "--agent", "hello"]).code, 0);
    let (code, first) = commands.json(&["schedule", "trigger", "demand", "--input", "one", "--key", "k"]);
    assert_eq!((code, first["waits"].as_bool()), (0, Some(false)), "{first}");
    let (_, again) = commands.json(&["schedule", "trigger", "demand", "--input", "one", "--key", "k"]);
    assert_eq!((&again["run"], again["repeated"].as_bool()), (&first["run"], Some(true)));
    let (code, busy) = commands.json(&["schedule", "trigger", "demand"]);
    assert_eq!((code, busy["error"]["code"].as_str()), (4, Some("overlap")), "{busy}");
    let queued = walk(&commands.store().join("queue"));
    assert_eq!(queued.iter().filter(|name| name.ends_with(first["run"].as_str().unwrap())).count(), 1, "{queued:?}");
    let (_, history) = commands.json(&["schedule", "history", "demand"]);
    assert_eq!(history["history"], serde_json::json!([]));
    // Nothing of the command itself is left.
    assert!(!walk(&commands.store()).iter().any(|name| name.contains("/replicas/")));
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path) } else { vec![path.display().to_string()] }
        })
        .collect()
}
