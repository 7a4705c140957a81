//! The `landfall` binary, with real processes: documents, exit codes, errors that say what to do, and processes that are killed.

use std::path::Path;
use std::time::{Duration, Instant};

use landfall_tests::command::Commands;

const CONFIG: &str = r#"
version = 1
[agents.hello]
component = "{guests}/hello.wasm"
[agents.spin]
component = "{guests}/spin.wasm"
[agents.trap]
component = "{guests}/trap.wasm"
[agents.broken]
component = "broken.wasm"
[agents.missing]
component = "missing.wasm"
"#;

#[test]
fn a_turn_and_what_can_be_asked_about_it_afterwards() {
    let commands = Commands::new(CONFIG);
    let (code, run) = commands.json(&["run", "hello", "--input", "one"]);
    assert_eq!((code, run["status"].as_str(), run["turn"].as_u64()), (0, Some("completed"), Some(1)), "{run}");
    let id = run["run"].as_str().unwrap().to_owned();
    let (code, again) = commands.json(&["run", "hello", "--input", "two"]);
    assert_eq!((code, again["turn"].as_u64()), (0, Some(2)));

    let (_, log) = commands.json(&["session", "log", "hello"]);
    assert_eq!(log["turns"].as_array().unwrap().len(), 2);
    assert_eq!(log["turns"][1]["run"].as_str(), Some(id.as_str()));
    let (_, list) = commands.json(&["session", "list"]);
    assert_eq!(list["sessions"][0]["session"], "hello/default");
    // By its run, by its session, by its turn: the same checkpoint.
    let (_, by_run) = commands.json(&["checkpoint", "show", &id]);
    let (_, by_turn) = commands.json(&["checkpoint", "show", "hello/default@1"]);
    assert_eq!(by_run["checkpoint"], by_turn["checkpoint"]);
    let (code, verified) = commands.json(&["checkpoint", "verify", "hello"]);
    assert_eq!((code, verified["ok"].as_bool()), (0, Some(true)), "{verified}");
    // Nothing is left of processes that have ended.
    let replicas = commands.store().join("replicas");
    assert!(!replicas.exists() || std::fs::read_dir(replicas).unwrap().next().is_none());
}

#[test]
fn a_file_runs_in_a_session_of_its_own_with_its_arguments() {
    let commands = Commands::new("version = 1\n");
    let guest = landfall_tests::guests::path("list-arguments");
    let guest = guest.to_str().unwrap();
    let (code, first) = commands.json(&["run", guest, "--", "/workspace"]);
    assert_eq!(code, 0, "{first}");
    let sessions = commands.json(&["session", "list"]).1;
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_guest_s_failure_is_exit_code_1_and_changes_nothing() {
    let commands = Commands::new(CONFIG);
    let (code, run) = commands.json(&["run", "trap", "--input", "panic"]);
    assert_eq!((code, run["status"].as_str(), run["failure"]["code"].as_str()), (1, Some("failed"), Some("trap")), "{run}");
    assert_eq!(run["workspace_rolled_back"].as_bool(), Some(true));
    let shown = commands.run(&["run", "trap", "--input", "panic"]);
    assert_eq!(shown.code, 1);
    assert!(shown.stderr.contains("no such rule"), "the panic's message is missing: {}", shown.stderr);
}

#[test]
fn errors_name_the_thing_and_the_next_move() {
    let commands = Commands::new(CONFIG);
    std::fs::write(commands.folder().join("broken.wasm"), b"\0asm garbage").unwrap();
    for (arguments, code, wanted) in [
        (vec!["run", "helo"], 2, "did you mean hello?"),
        (vec!["run", "broken"], 2, "broken.wasm"),
        (vec!["run", "missing"], 2, "missing.wasm"),
        (vec!["run", "nothing.wasm"], 2, "nothing.wasm"),
        (vec!["run", "hello", "--commit", "abc"], 2, "40 hex digits"),
        (vec!["run", "hello", "--session", "new", "--branch", "x"], 2, "has no repository"),
        (vec!["run", "hello", "--session", "a\nb"], 2, "session name"),
        (vec!["session", "show", "hello/never"], 2, "session list"),
        (vec!["checkpoint", "cat", "hello/never", "/workspace/x"], 2, "hello/never"),
        (vec!["checkpoint", "show", "01890a5d-ac96-774b-bcce-b302099a8057"], 2, "session log"),
        (vec!["--config", "none.toml", "session", "list"], 2, "none.toml"),
        (vec!["frobnicate"], 2, "frobnicate"),
    ] {
        // The store has to be there for what only reads.
        assert_eq!(commands.run(&["run", "hello"]).code, 0);
        let ran = commands.run(&arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{arguments:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    }
}

#[test]
fn a_config_error_names_file_line_and_the_nearest_name() {
    let commands = Commands::new("version = 1\n[agents.a]\ncomponent = \"a.wasm\"\nlimts = {}\n");
    let ran = commands.run(&["session", "list"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("landfall.toml:4:") && ran.stderr.contains("did you mean `limits`?"), "{}", ran.stderr);
}

#[test]
fn a_store_that_isn_t_one_is_exit_code_5() {
    let commands = Commands::new(CONFIG);
    std::fs::write(commands.folder().join("a-file"), b"x").unwrap();
    let ran = commands.run(&["--store", "a-file", "run", "hello"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    let ran = commands.run(&["--store", "nowhere", "session", "list"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(!commands.folder().join("nowhere").exists(), "looking made a store");
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    // Generous: only a hang ends here.
    let end = Instant::now() + Duration::from_secs(120);
    while !there() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn running(commands: &Commands) -> bool {
    let (_, list) = commands.json(&["session", "list"]);
    list["sessions"].as_array().is_some_and(|sessions| sessions.iter().any(|session| session["state"] == "running"))
}

#[test]
fn a_killed_command_is_settled_by_the_next_one() {
    let commands = Commands::new(CONFIG);
    assert_eq!(commands.run(&["run", "spin", "--input", "nothing"]).code, 1);
    let mut victim = commands.command(&["run", "spin", "--input", "loop", "--quiet"]).spawn().unwrap();
    wait_for("the run to begin", || running(&commands));
    victim.kill().unwrap();
    victim.wait().unwrap();
    let ran = commands.run(&["run", "spin", "--input", "nothing"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let (_, log) = commands.json(&["session", "log", "spin"]);
    let codes: Vec<&str> = log["turns"].as_array().unwrap().iter().map(|run| run["failure"]["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["invalid_request", "abandoned", "invalid_request"], "{log}");
}

#[test]
fn a_terminated_command_ends_its_run_and_gives_the_lease_back() {
    let commands = Commands::new(CONFIG);
    let mut child = commands.command(&["run", "spin", "--input", "sleep", "--quiet"]).spawn().unwrap();
    wait_for("the run to begin", || commands.store().exists() && running(&commands));
    let killed = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let (_, log) = commands.json(&["session", "log", "spin"]);
    assert_eq!(log["turns"][0]["status"], "cancelled");
    assert!(!running(&commands));
}

#[test]
fn damage_is_found_and_named() {
    let commands = Commands::new(CONFIG);
    let (_, run) = commands.json(&["run", "hello", "--input", "x"]);
    let packs = commands.store().join("sessions/hello/default/packs");
    let pack = std::fs::read_dir(&packs).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    write_over(&pack, &bytes);
    let (code, report) = commands.json(&["checkpoint", "verify", run["run"].as_str().unwrap()]);
    let told = code == 1 && report["ok"] == false;
    // The byte may lie in the footer, which a reader doesn't need; the independent verifier looks there too.
    let footer = code == 0 && middle > bytes.len() * 3 / 4;
    assert!(told || footer, "{code} {report}");

    let head = commands.store().join("sessions/hello/default/head");
    let mut bytes = std::fs::read(&head).unwrap();
    let at = bytes.windows(7).position(|window| window == b"\"epoch\"").unwrap() + 8;
    bytes[at] ^= 1;
    write_over(&head, &bytes);
    let ran = commands.run(&["session", "show", "hello"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("head"), "{}", ran.stderr);
}

fn write_over(path: &Path, bytes: &[u8]) {
    let mut permissions = std::fs::metadata(path).unwrap().permissions();
    #[expect(clippy::permissions_set_readonly_false, reason = "a scratch file of this test")]
    permissions.set_readonly(false);
    std::fs::set_permissions(path, permissions).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn what_one_agent_lacks_stops_no_other() {
    let commands = Commands::new(
        r#"
version = 1
[agents.hello]
component = "{guests}/hello.wasm"
[agents.secretive]
component = "{guests}/hello.wasm"
credentials = ["FORGE"]
[agents.filed]
component = "{guests}/hello.wasm"
credentials = ["FILED"]
[agents.outside]
component = "{guests}/hello.wasm"
repository = { url = "https://github.com/acme/../evil/app" }
[agents.untrusted]
component = "{guests}/hello.wasm"
repository = { url = "https://github.com/acme/app", ca_file = "no-such.pem" }
[credentials.FORGE]
source = { env = "LANDFALL_TEST_ABSENT" }
audience = ["https://git.example.com"]
[credentials.FILED]
source = { file = "no-such.token" }
audience = ["https://git.example.com"]
[policy]
repositories = ["https://github.com/acme/*"]
"#,
    );
    assert_eq!(commands.json(&["run", "hello", "--input", "x"]).0, 0);
    assert_eq!(commands.json(&["session", "list"]).0, 0);
    assert_eq!(commands.json(&["doctor"]).0, 0);
    for (agent, code, wanted) in [
        ("secretive", 2, "LANDFALL_TEST_ABSENT"),
        ("filed", 2, "no-such.token"),
        ("outside", 3, "https://github.com/evil/app"),
        ("untrusted", 2, "no-such.pem"),
    ] {
        let ran = commands.run(&["run", agent]);
        assert_eq!(ran.code, code, "{agent}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{agent}: {}", ran.stderr);
    }
}

#[test]
fn a_store_s_folder_may_have_any_name() {
    let commands = Commands::new(CONFIG);
    for name in ["a#b", "a?b", "a%20b", "a b"] {
        let (code, run) = commands.json(&["--store", name, "run", "hello"]);
        assert_eq!(code, 0, "{name}: {run}");
        assert!(commands.folder().join(name).is_dir(), "{name}");
    }
    assert!(!commands.folder().join("a").exists());
}

#[test]
fn variables_of_other_programs_are_no_options_of_the_store() {
    let commands = Commands::new(CONFIG);
    let mut command = commands.command(&["--store", "s3://bucket/prefix", "doctor"]);
    command.env("AWS_PROFILE", "dev").env("AWS_PAGER", "").env("GOOGLE_CLOUD_PROJECT", "x").env("AWS_REGION", "us-east-1");
    // Nothing listens on the discard port: the store is opened, and then doesn't answer.
    command.env("AWS_ENDPOINT", "http://127.0.0.1:9").env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b");
    let ran = landfall_tests::command::Ran::of(&command.output().unwrap());
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("doesn't answer"), "{}", ran.stderr);
}

#[test]
fn a_long_output_is_whole_in_the_document_too() {
    let commands = Commands::new(CONFIG);
    let input = "x".repeat(50_000);
    let (code, run) = commands.json(&["run", "hello", "--input", &input]);
    assert_eq!((code, run["output"].as_str().map(str::len)), (0, Some(50_006)));
}
