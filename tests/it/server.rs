//! `landfall serve`: turns over HTTP, and replicas that share a store, as real processes.

use std::time::Duration;

use landfall_tests::command::Commands;
use landfall_tests::serve::{Answer, Serving, wait_for};
use serde_json::{Value, json};

const CONFIG: &str = r#"
version = 1
[agents.steps]
component = "{guests}/steps.wasm"
[agents.once]
component = "{guests}/steps.wasm"
on_crash = "fail"
[server]
lease = "2s"
poll = "200ms"
concurrency = 4
grace = "1s"
"#;

fn serve(commands: &Commands, name: &str) -> Serving {
    Serving::start(commands.command(&["--json", "serve", "--listen", "127.0.0.1:0", "--name", name]))
}

fn run_id(answer: &Answer) -> String {
    answer.body["run"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

fn status(replica: &Serving, run: &str) -> Value {
    replica.get(&format!("/v1/runs/{run}")).body["status"].clone()
}

#[test]
fn a_turn_over_http_and_what_can_be_asked_about_it() {
    let commands = Commands::new(CONFIG);
    let replica = serve(&commands, "one");
    assert_eq!(replica.get("/healthz").status, 200);
    assert_eq!(replica.get("/readyz").body["status"], "ready");
    let done = replica.turn("steps", "s", "write /workspace/a one\nsay hello", 60);
    assert_eq!((done.status, &done.body["status"], &done.body["output"]), (200, &json!("completed"), &json!("hello")), "{done:?}");
    let run = run_id(&done);
    assert_eq!(replica.get(&format!("/v1/runs/{run}")).body["checkpoint"], done.body["checkpoint"]);

    // Without a wait the answer comes at once, and the run can be waited for.
    let accepted = replica.turn("steps", "s", "read /workspace/a", 0);
    assert_eq!((accepted.status, &accepted.body["status"]), (202, &json!("queued")));
    assert!(accepted.head.contains(&format!("location: /v1/runs/{}", run_id(&accepted))), "{}", accepted.head);
    let read = replica.get(&format!("/v1/runs/{}?wait=60", run_id(&accepted)));
    assert_eq!((&read.body["output"], &read.body["turn"]), (&json!("one"), &json!(2)));

    // A failed run ends with a record too.
    let failed = replica.turn("steps", "s", "write /workspace/a two\nfail because", 60);
    assert_eq!((failed.status, &failed.body["status"], &failed.body["workspace_rolled_back"]), (200, &json!("failed"), &json!(true)));

    let shown = replica.get("/v1/agents/steps/sessions/s").body;
    assert_eq!((&shown["turns"], &shown["runs"], &shown["state"]), (&json!(2), &json!(3), &json!("idle")));
    assert_eq!(replica.get("/v1/sessions").body["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(replica.get("/v1/agents/once/sessions").body["sessions"], json!([]));
    assert_eq!(replica.get("/v1/agents/steps/sessions/s/runs?limit=2").body["turns"].as_array().unwrap().len(), 2);
    // The command sees the same session.
    assert_eq!(commands.json(&["session", "show", "steps/s"]).1["turns"], 2);
}

#[test]
fn the_same_key_is_the_same_run_also_when_its_entry_is_long_gone() {
    let commands = Commands::new(CONFIG);
    let replica = serve(&commands, "one");
    let keyed = |input: &str, wait: u32| {
        let body = json!({ "input": input }).to_string();
        let headers = [("content-type", "application/json"), ("idempotency-key", "k-1")];
        replica.request("POST", &format!("/v1/agents/steps/sessions/s/turns?wait={wait}"), &headers, Some(body.as_bytes()))
    };
    // The very first turn of the session, twice at once.
    let (first, second) = (keyed("append /workspace/log x\nsleep 300", 0), keyed("append /workspace/log x\nsleep 300", 60));
    assert_eq!((second.status, run_id(&first)), (200, run_id(&second)), "{second:?}");
    let other = keyed("append /workspace/log y", 60);
    assert_eq!((other.status, &other.body["error"]["code"]), (409, &json!("key_reused")), "{other:?}");
    for n in 0..40 {
        assert_eq!(replica.turn("steps", "s", &format!("say {n}"), 60).status, 200);
    }
    // The head has forgotten the run by now; its record hasn't.
    let again = keyed("append /workspace/log x\nsleep 300", 0);
    assert_eq!((again.status, &again.body["status"], run_id(&again)), (200, &json!("completed"), run_id(&first)), "{again:?}");
    assert_eq!(keyed("append /workspace/log y", 0).status, 409);
    assert_eq!(replica.turn("steps", "s", "count /workspace/log", 60).body["output"], "1");
}

#[test]
fn requests_that_can_t_be_met_are_refused_with_a_code() {
    let commands = Commands::new(CONFIG);
    let replica = serve(&commands, "one");
    let json = [("content-type", "application/json")];
    let turns = "/v1/agents/steps/sessions/s/turns";
    let large = format!(r#"{{"input":"{}"}}"#, "x".repeat(2 << 20));
    let huge = vec![b' '; 21 << 20];
    for (method, path, headers, body, status, code) in [
        ("POST", "/v1/agents/stps/sessions/s/turns", &json[..], &b"{}"[..], 404, "unknown_agent"),
        ("POST", "/v1/agents/..%2f/sessions/s/turns", &json, b"{}", 400, "usage"),
        ("POST", "/v1/agents/steps/sessions/%0a/turns", &json, b"{}", 400, "usage"),
        ("POST", turns, &[("content-type", "text/plain")], b"{}", 415, "media_type"),
        ("POST", turns, &[], b"{}", 415, "media_type"),
        ("POST", turns, &json, b"{", 400, "usage"),
        ("POST", turns, &json, br#"{"inptu":"x"}"#, 400, "usage"),
        ("POST", turns, &json, br#"{"commit":"abc"}"#, 400, "usage"),
        ("POST", turns, &json, large.as_bytes(), 413, "request_too_large"),
        ("POST", turns, &json, &huge, 413, "body"),
        ("POST", "/v1/agents/steps/sessions/s/turns?wait=x", &json, b"{}", 400, "usage"),
        ("GET", turns, &[], b"", 405, "method"),
        ("GET", "/v1/runs/01890a5d-ac96-774b-bcce-b302099a8057", &[], b"", 404, "run_missing"),
        ("GET", "/v1/runs/x", &[], b"", 400, "usage"),
        ("POST", "/v1/runs/01890a5d-ac96-774b-bcce-b302099a8057/cancel", &[], b"", 404, "run_missing"),
        ("GET", "/v1/agents/steps/sessions/never", &[], b"", 404, "session_missing"),
        ("GET", "/nothing", &[], b"", 404, "path_missing"),
    ] {
        let answer = replica.request(method, path, headers, Some(body));
        assert_eq!((answer.status, answer.body["error"]["code"].as_str()), (status, Some(code)), "{method} {path}: {answer:?}");
    }
    assert_eq!(replica.get("/v1/sessions").body["sessions"], json!([]), "a refused request left something");
}

#[test]
fn a_web_page_on_this_machine_can_t_use_a_server_without_tokens() {
    let commands = Commands::new(CONFIG);
    let replica = serve(&commands, "one");
    let address = replica.address().to_string();
    for headers in [
        vec![("host", "attacker.example")],
        vec![("host", "attacker.example:7070")],
        vec![("host", "127.0.0.1.attacker.example")],
        vec![("host", "")],
        vec![("host", &*address), ("origin", "http://attacker.example")],
        vec![("host", &*address), ("origin", "null")],
    ] {
        let answer = replica.request("GET", "/v1/sessions", &headers, None);
        assert_eq!(answer.status, 403, "{headers:?}: {answer:?}");
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:7070"] {
        assert_eq!(replica.request("GET", "/v1/sessions", &[("host", host)], None).status, 200, "{host}");
    }
}

#[test]
fn beyond_loopback_a_token_is_needed_and_does_what_its_scopes_and_agents_say() {
    let commands = Commands::new(CONFIG);
    let ran = commands.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("token new"), "{}", ran.stderr);

    let make = |name: &str| {
        let (_, made) = commands.json(&["token", "new", name]);
        (made["token"].as_str().unwrap().to_owned(), made["sha256"].as_str().unwrap().to_owned())
    };
    let ((all, all_digest), (reader, reader_digest), (other, other_digest)) = (make("all"), make("reader"), make("other"));
    let config = format!(
        "{CONFIG}[server.tokens.all]\nsha256 = \"{all_digest}\"\n[server.tokens.reader]\nsha256 = \"{reader_digest}\"\nscopes = [\"read\"]\n\
         [server.tokens.other]\nsha256 = \"{other_digest}\"\nagents = [\"once\"]\n"
    );
    let commands = Commands::new(&config);
    let mut replica = Serving::start(commands.command(&["--json", "serve", "--listen", "0.0.0.0:0"]));
    for headers in [vec![], vec![("authorization", "Bearer x")], vec![("authorization", &*all)], vec![("authorization", "Basic eDp5")]] {
        let answer = replica.request("GET", "/v1/sessions", &headers, None);
        assert_eq!(answer.status, 401, "{headers:?}");
        assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
    }
    assert_eq!(replica.get("/healthz").status, 200);
    replica = replica.with_token(&all);
    let done = replica.turn("steps", "s", "say x", 60);
    assert_eq!(done.status, 200, "{done:?}");
    replica = replica.with_token(&reader);
    assert_eq!(replica.turn("steps", "s", "say x", 60).body["error"]["code"], "scope_missing");
    assert_eq!(replica.get(&format!("/v1/runs/{}", run_id(&done))).status, 200);
    replica = replica.with_token(&other);
    for path in
        ["/v1/agents/steps/sessions/s".to_owned(), format!("/v1/runs/{}", run_id(&done)), "/v1/agents/steps/sessions/s/runs".to_owned()]
    {
        assert_eq!(replica.get(&path).status, 404, "{path}");
    }
    assert_eq!(replica.turn("steps", "s", "say x", 60).status, 404);
    assert_eq!(replica.get("/v1/sessions").body["sessions"], json!([]));
    // No token is anywhere in the store.
    for token in [&all, &reader, &other] {
        let found = std::process::Command::new("grep").args(["-r", "-l", token.as_str()]).arg(commands.store()).output().unwrap();
        assert!(found.stdout.is_empty());
    }
}

#[test]
fn a_killed_replica_s_run_goes_on_on_another_and_commits_once() {
    let commands = Commands::new(CONFIG);
    let (mut one, two) = (serve(&commands, "one"), serve(&commands, "two"));
    assert_eq!(one.turn("steps", "s", "append /workspace/log first", 60).status, 200);
    let accepted = one.turn("steps", "s", "append /workspace/log second\nsleep 1500\nattempt", 0);
    let run = run_id(&accepted);
    let fails = run_id(&one.turn("once", "s", "append /workspace/log second\nsleep 1500\nattempt", 0));
    wait_for("both runs to begin", || status(&two, &run) == "running" && status(&two, &fails) == "running");
    one.kill();
    let done = two.get(&format!("/v1/runs/{run}?wait=60"));
    assert_eq!(
        (&done.body["status"], &done.body["output"], &done.body["replica"]),
        (&json!("completed"), &json!("2"), &json!("two")),
        "{done:?}"
    );
    let failed = two.get(&format!("/v1/runs/{fails}?wait=60"));
    assert_eq!((&failed.body["status"], &failed.body["failure"]["code"]), (&json!("failed"), &json!("abandoned")), "{failed:?}");
    assert_eq!(two.turn("steps", "s", "count /workspace/log", 60).body["output"], "2");
    wait_for("the queue to be empty", || {
        std::fs::read_dir(commands.store().join("queue"))
            .map_or(true, |mut folders| folders.all(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().next().is_none()))
    });
}

#[test]
fn a_stopped_replica_lets_runs_finish_and_gives_the_others_back() {
    let commands = Commands::new(CONFIG);
    let (mut one, two) = (serve(&commands, "one"), serve(&commands, "two"));
    let short = run_id(&one.turn("steps", "short", "sleep 400\nattempt", 0));
    let long = run_id(&one.turn("steps", "long", "sleep 4000\nattempt", 0));
    wait_for("both runs to begin", || status(&two, &short) == "running" && status(&two, &long) == "running");
    one.signal("TERM");
    wait_for("readiness to end", || one.get("/readyz").status != 200);
    let refused = one.turn("steps", "other", "say x", 0);
    assert!(matches!(refused.status, 0 | 503), "{refused:?}");
    assert_eq!(one.ended(), 0);
    let short = two.get(&format!("/v1/runs/{short}?wait=60")).body;
    assert_eq!((&short["status"], &short["replica"]), (&json!("completed"), &json!("one")), "{short}");
    let long = two.get(&format!("/v1/runs/{long}?wait=60")).body;
    assert_eq!(
        (&long["status"], &long["replica"], &long["output"]),
        (&json!("completed"), &json!("two"), &json!("1")),
        "no attempt is lost: {long}"
    );
    assert_eq!(std::fs::read_dir(commands.store().join("replicas")).unwrap().count(), 1, "it is unknown again");
}

#[test]
fn any_replica_cancels_a_run_and_head_order_decides() {
    let commands = Commands::new(CONFIG);
    let (one, two) = (serve(&commands, "one"), serve(&commands, "two"));
    let run = run_id(&one.turn("steps", "s", "write /workspace/x y\nsleep 600000", 0));
    let waiting = run_id(&one.turn("steps", "s", "write /workspace/x z", 0));
    wait_for("the run to begin", || status(&two, &run) == "running");
    // The one that still waits ends without having run, the other one within seconds.
    for run in [&waiting, &run] {
        assert_eq!(two.post(&format!("/v1/runs/{run}/cancel"), &json!({})).status, 202);
    }
    for run in [&run, &waiting] {
        let ended = one.get(&format!("/v1/runs/{run}?wait=60")).body;
        assert_eq!((&ended["status"], &ended["workspace_rolled_back"]), (&json!("cancelled"), &json!(true)), "{ended}");
        let again = two.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
        assert_eq!((again.status, &again.body["error"]["code"]), (409, &json!("already_done")), "{again:?}");
    }
    assert_eq!(one.turn("steps", "s", "count /workspace/x", 60).body["output"], "0");
}

#[test]
fn runs_of_a_session_keep_their_order_over_replicas_and_a_busy_one_can_be_refused() {
    let commands = Commands::new(CONFIG);
    let (one, two) = (serve(&commands, "one"), serve(&commands, "two"));
    let first = run_id(&one.turn("steps", "s", "sleep 1000\nappend /workspace/log 0", 0));
    wait_for("the run to begin", || status(&two, &first) == "running");
    let refused = two.post("/v1/agents/steps/sessions/s/turns", &json!({ "busy": "refuse" }));
    assert_eq!((refused.status, &refused.body["error"]["code"]), (409, &json!("session_busy")), "{refused:?}");
    assert!(refused.body["error"]["message"].as_str().unwrap().contains(&first), "it names the run: {refused:?}");
    let mut last = String::new();
    for n in 1..=6 {
        // The dates of a folder's files are the order; they are finer than this.
        std::thread::sleep(Duration::from_millis(20));
        let replica = if n % 2 == 0 { &one } else { &two };
        last = run_id(&replica.turn("steps", "s", &format!("append /workspace/log {n}"), 0));
    }
    assert_eq!(one.get(&format!("/v1/runs/{last}?wait=60")).body["status"], "completed");
    let log = two.turn("steps", "s", "read /workspace/log", 60);
    assert_eq!(log.body["output"], "0\n1\n2\n3\n4\n5\n6\n", "{log:?}");
}

#[test]
fn the_restart_matrix_for_operators_asks_for_what_it_needs() {
    let commands = Commands::new(CONFIG);
    for (arguments, wanted) in [
        (&["doctor", "--restart-matrix"][..], "--agent NAME"),
        (&["--store", "memory:", "doctor", "--restart-matrix", "--agent", "steps"], "can't be shared"),
        (&["doctor", "--restart-matrix", "--agent", "stps"], "did you mean steps?"),
        (&["doctor", "--agent", "steps"], "--restart-matrix"),
    ] {
        let ran = commands.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{arguments:?}: {}", ran.stderr);
    }
    let left: Vec<_> = std::fs::read_dir(commands.store()).into_iter().flatten().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("restart-matrix")), "{left:?}");
}

#[test]
fn a_component_that_kills_its_host_three_times_is_given_up() {
    let commands = Commands::new(CONFIG);
    let armed = |name: &str| {
        let mut command = commands.command(&["--json", "serve", "--listen", "127.0.0.1:0", "--name", name]);
        command.env("LANDFALL_DRILL", "kill=run.during");
        Serving::start(command)
    };
    let mut victim = armed("victim-1");
    let run = run_id(&victim.turn("steps", "s", "sleep 300\nemit now", 0));
    assert!(victim.ended_by_signal(Duration::from_secs(30)).unwrap());
    for n in 2..=3 {
        assert!(armed(&format!("victim-{n}")).ended_by_signal(Duration::from_secs(30)).unwrap(), "attempt {n}");
    }
    let last = serve(&commands, "last");
    let ended = last.get(&format!("/v1/runs/{run}?wait=60")).body;
    assert_eq!((&ended["status"], &ended["failure"]["code"]), (&json!("failed"), &json!("abandoned")), "{ended}");
    assert!(ended["failure"]["message"].as_str().unwrap().contains("each of its 3 attempts"), "{ended}");
    assert_eq!(last.turn("steps", "s", "say on", 60).body["output"], "on");
}

#[test]
fn a_queue_entry_that_can_t_be_read_holds_nobody_up() {
    let commands = Commands::new(CONFIG);
    let replica = serve(&commands, "one");
    assert_eq!(replica.turn("steps", "s", "say x", 60).status, 200);
    let folder = std::fs::read_dir(commands.store().join("queue")).unwrap().next().unwrap().unwrap().path();
    for (name, bytes) in [("01890a5d-ac96-774b-bcce-b302099a8057", &b"garbage"[..]), ("01890a5d-ac96-774b-bcce-b302099a8058", b"")] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    for n in 0..3 {
        assert_eq!(replica.turn("steps", "s", &format!("say {n}"), 60).body["output"], n.to_string());
    }
    assert_eq!(commands.json(&["run", "steps", "--session", "s", "--input", "say y"]).1["output"], "y");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2, "what can't be read isn't deleted");
}
