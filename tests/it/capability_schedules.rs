//! `landfall:agent/schedules` from the guest's side, and what the operator sees of it: the binary with a real component.

use landfall_tests::command::Commands;

const CONFIG: &str = r#"
version = 1
[agents.granted]
component = "{guests}/scheduler.wasm"
[agents.granted.schedules]
max_schedules = 2
min_interval = "10m"
[agents.other]
component = "{guests}/scheduler.wasm"
[agents.other.schedules]
[agents.bare]
component = "{guests}/scheduler.wasm"
[schedules.nightly]
agent = "granted"
cron = "0 3 * * *"
"#;

fn calls(commands: &Commands, agent: &str, input: &str) -> Vec<String> {
    let (code, run) = commands.json(&["run", agent, "--input", input]);
    assert_eq!(code, 0, "{run}");
    run["output"].as_str().unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn an_agent_has_its_own_schedules_within_its_grant_and_no_others() {
    let commands = Commands::new(CONFIG);
    let said = calls(
        &commands,
        "granted",
        "put a */15 * * * *\nput b\nput c\nput a * * * * *\nput a 0 0 30 2 *\nput a/b\nput ../x\nlist x\nget nightly\nremove nightly\nget a",
    );
    assert_eq!(said[0], "a armed true revision 1");
    assert_eq!(said[1], "b armed false revision 1");
    assert!(said[2].contains("max_schedules"), "{said:?}");
    assert!(said[3].contains("min_interval"), "{said:?}");
    assert!(said[4].contains("never fires"), "{said:?}");
    assert!(said[5].contains("schedule name") && said[6].contains("schedule name"), "{said:?}");
    assert_eq!(said[7], "a,b");
    assert!(said[8].contains("no schedule") && said[9].contains("no schedule"), "the operator's schedules aren't its own: {said:?}");
    assert_eq!(said[10], "a armed true revision 1");
    // Another agent's schedule of the same name is another schedule.
    let said = calls(&commands, "other", "list x\nget a\nput a 0 0 * * *\nremove a");
    assert_eq!((said[0].as_str(), said[2].as_str(), said[3].as_str()), ("", "a armed true revision 1", "removed"));
    assert!(said[1].contains("no schedule"));
    let (_, list) = commands.json(&["schedule", "list"]);
    let ids: Vec<_> = list["schedules"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["granted/a", "granted/b", "nightly"]);
}

#[test]
fn without_a_grant_every_call_is_a_denial_that_names_the_line_to_write() {
    let commands = Commands::new(CONFIG);
    let said = calls(&commands, "bare", "put a */15 * * * *\nget a\nlist x\nremove a\ntrigger a\nhistory a");
    assert_eq!(said.len(), 6);
    for line in said {
        assert!(line.contains("isn't granted schedules") && line.contains("[agents.bare.schedules]"), "{line}");
    }
    assert_eq!(commands.json(&["schedule", "list", "bare"]).1["schedules"], serde_json::json!([]));
}

#[test]
fn a_trigger_from_the_guest_is_one_run_for_its_key() {
    let commands = Commands::new(CONFIG);
    let said = calls(&commands, "granted", "put a\ntrigger a list x\ntrigger a list x\ntrigger a other\nhistory a");
    assert_eq!(said[1], said[2]);
    assert!(said[3].contains("another payload"), "{said:?}");
    let (_, shown) = commands.json(&["schedule", "show", "granted/a"]);
    assert_eq!(shown["running"][0]["run"].as_str(), Some(said[1].as_str()));
}
