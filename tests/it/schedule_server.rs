//! Schedules on servers: over HTTP, and on replicas as real processes that are killed.

use std::collections::BTreeSet;

use landfall_tests::command::Commands;
use landfall_tests::serve::{Answer, Serving, wait_for};
use serde_json::{Value, json};

const CONFIG: &str = r#"
version = 1
[agents.hello]
component = "{guests}/hello.wasm"
[agents.hello.limits]
runs_per_hour = 1000
[agents.other]
component = "{guests}/hello.wasm"
[schedules.declared]
agent = "hello"
[server]
lease = "2s"
poll = "200ms"
grace = "1s"
"#;

fn serve(commands: &Commands, name: &str) -> Serving {
    Serving::start(commands.command(&["--json", "serve", "--listen", "127.0.0.1:0", "--name", name]))
}

fn send(replica: &Serving, method: &str, path: &str, body: &Value, key: Option<&str>) -> Answer {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    replica.request(method, path, &headers, Some(body.to_string().as_bytes()))
}

#[test]
fn a_schedule_over_http_from_its_making_to_its_removal() {
    let commands = Commands::new(CONFIG);
    let replica = serve(&commands, "one");
    assert_eq!(replica.get("/v1/schedules/declared").body["armed"], false);
    let made = send(&replica, "PUT", "/v1/schedules/weekly", &json!({ "agent": "hello", "cron": "0 7 * * MON" }), None);
    assert_eq!((made.status, &made.body["armed"], &made.body["revision"]), (201, &json!(true), &json!(1)), "{made:?}");
    // What was read is written back, changed; whoever still has the old one is told of the newer revision.
    let mut change = made.body.clone();
    change["cron"] = Value::Null;
    let changed = send(&replica, "PUT", "/v1/schedules/weekly", &change, None);
    assert_eq!((changed.status, &changed.body["cron"], &changed.body["armed"]), (200, &Value::Null, &json!(false)), "{changed:?}");
    change["cron"] = json!("0 8 * * *");
    let late = send(&replica, "PUT", "/v1/schedules/weekly", &change, None);
    assert_eq!((late.status, &late.body["error"]["code"]), (409, &json!("schedule_changed")), "{late:?}");
    assert!(late.body["error"]["message"].as_str().unwrap().contains("revision 2"));
    for (body, status, code) in [
        (json!({ "agent": "hello", "cron": "0 0 30 2 *" }), 400, "never_fires"),
        (json!({ "agent": "hello", "timezone": "local" }), 400, "unknown_timezone"),
        (json!({ "agent": "nobody" }), 404, "unknown_agent"),
        (json!({ "agent": "hello", "chron": "* * * * *" }), 400, "invalid_schedule"),
        (json!({ "agent": "hello", "jitter": -1 }), 400, "invalid_schedule"),
    ] {
        let answer = send(&replica, "PUT", "/v1/schedules/bad", &body, None);
        assert_eq!((answer.status, answer.body["error"]["code"].as_str()), (status, Some(code)), "{body}: {answer:?}");
    }
    // A trigger answers at once, works on what is paused and unarmed, and is one run for its key.
    assert_eq!(send(&replica, "POST", "/v1/schedules/weekly/pause", &json!({}), None).body["paused"], true);
    let first = send(&replica, "POST", "/v1/schedules/weekly/trigger", &json!({ "payload": "now" }), Some("k"));
    assert_eq!(first.status, 202, "{first:?}");
    let run = first.body["run"].as_str().unwrap().to_owned();
    assert!(first.head.contains(&format!("location: /v1/runs/{run}")), "{}", first.head);
    assert_eq!(replica.get(&format!("/v1/runs/{run}?wait=60")).body["status"], "completed");
    let again = send(&replica, "POST", "/v1/schedules/weekly/trigger", &json!({ "payload": "now" }), Some("k"));
    assert_eq!((again.status, again.body["run"].as_str(), &again.body["repeated"]), (202, Some(run.as_str()), &json!(true)));
    let other = send(&replica, "POST", "/v1/schedules/weekly/trigger", &json!({ "payload": "then" }), Some("k"));
    assert_eq!((other.status, &other.body["error"]["code"]), (409, &json!("key_reused")));
    wait_for("the history", || replica.get("/v1/schedules/weekly/history").body["history"][0]["run"] == json!(run));
    assert_eq!(replica.get("/v1/schedules/weekly").body["revision"], 3, "a trigger never changes the plan");
    assert_eq!(replica.request("DELETE", "/v1/schedules/weekly", &[], None).status, 204);
    assert_eq!(replica.get("/v1/schedules/weekly").status, 404);
    assert_eq!(replica.request("DELETE", "/v1/schedules/declared", &[], None).status, 409);
}

/// Servers are killed, one after the other, while triggers come in; each trigger has one official run.
#[test]
fn every_trigger_has_one_run_while_servers_are_killed() {
    let commands = Commands::new(CONFIG);
    let mut replicas = [serve(&commands, "a"), serve(&commands, "b")];
    let body = json!({ "agent": "hello", "overlap": "queue", "session": "fresh" });
    assert_eq!(send(&replicas[0], "PUT", "/v1/schedules/many", &body, None).status, 201);
    let mut wanted = BTreeSet::new();
    for n in 0..12 {
        let key = format!("k{n}");
        // A killed server may have taken it: the same key again is the same run.
        let mut answer = send(&replicas[n % 2], "POST", "/v1/schedules/many/trigger", &json!({ "payload": key }), Some(&key));
        if answer.status != 202 {
            answer = send(&replicas[(n + 1) % 2], "POST", "/v1/schedules/many/trigger", &json!({ "payload": key }), Some(&key));
        }
        assert_eq!(answer.status, 202, "{answer:?}");
        wanted.insert(answer.body["run"].as_str().unwrap().to_owned());
        if n % 4 == 3 {
            let at = n / 4 % 2;
            replicas[at].signal("KILL");
            replicas[at] = serve(&commands, if at == 0 { "a" } else { "b" });
        }
    }
    assert_eq!(wanted.len(), 12);
    wait_for("all runs", || replicas[0].get("/v1/schedules/many").body["totals"]["ran"] == json!(12));
    let history = replicas[1].get("/v1/schedules/many/history").body;
    let ran: Vec<&str> = history["history"].as_array().unwrap().iter().map(|entry| entry["run"].as_str().unwrap()).collect();
    assert_eq!(ran.iter().map(|run| (*run).to_owned()).collect::<BTreeSet<_>>(), wanted);
    assert_eq!(ran.len(), 12, "{history}");
}
