//! `landfall policy check AGENT` and `landfall explain`: what an operator asks before anything runs.

use landfall_tests::command::Commands;

const CONFIG: &str = r#"
version = 1
[agents.hello]
component = "{guests}/hello.wasm"
credentials = ["KEY", "OTHER"]
allowed_outbound_hosts = ["https://api.example.com", "GET *.example.org", "https://files.example.net"]
[agents.asks]
component = "{guests}/fetch.wasm"
[credentials.KEY]
source = { env = "LANDFALL_TEST_KEY_THAT_IS_NOT_SET" }
audience = ["https://api.example.com"]
inject = { header = "x-api-key" }
[credentials.OTHER]
source = { env = "LANDFALL_TEST_OTHER_THAT_IS_NOT_SET" }
audience = ["https://api.example.com"]
inject = { header = "x-other" }
[policy]
allowed_outbound_hosts = ["https://*.example.com", "*.example.org"]
credentials = ["KEY"]
"#;

#[test]
fn an_agents_request_is_judged_by_both_owners_without_any_secret() {
    let commands = Commands::new(CONFIG);
    let public = "*=93.184.216.34";
    let (code, document) = commands.json(&["policy", "check", "hello", "https://api.example.com/v1", "--resolve", public]);
    assert_eq!((code, document["verdict"].as_str(), document["credential"].as_str()), (0, Some("allow"), Some("KEY")), "{document}");
    assert_eq!(document["addresses"][0], "93.184.216.34");
    let (code, document) = commands.json(&["policy", "check", "hello", "https://a.example.org/", "--method", "post", "--resolve", public]);
    assert_eq!((code, document["code"].as_str()), (3, Some("not_allowed")), "{document}");
    let (code, document) = commands.json(&["policy", "check", "hello", "https://files.example.net/", "--resolve", public]);
    assert_eq!(code, 3);
    assert_eq!(document["config_line"], r#"[policy] allowed_outbound_hosts = ["https://files.example.net"]"#);
    let (code, document) = commands.json(&["policy", "check", "hello", "https://a.example.org/", "--resolve", "*=10.0.0.7"]);
    assert_eq!((code, document["code"].as_str(), document["step"].as_str()), (3, Some("ip_private"), Some("address")), "{document}");
    let ran = commands.run(&["policy", "check", "hello", "https://files.example.net/", "--resolve", public]);
    assert!(ran.code == 3 && ran.stdout.contains("allowed by  [policy]"), "{}", ran.stdout);
}

#[test]
fn questions_that_cannot_be_meant_are_usage_errors() {
    let commands = Commands::new(CONFIG);
    for arguments in [
        &["policy", "check", "helo", "https://api.example.com/"][..],
        &["policy", "check", "https://a.example.com/", "--method", "G T"],
        &["policy", "check", "https://a.example.com/", "--resolve", "a.example.com"],
        &["policy", "check", "https://a.example.com/", "--resolve", "a.example.com=no address"],
        &["policy", "check", "https://a.example.com/", "--allow", "*.com"],
        &["policy", "check", "hello", "https://api.example.com/", "--allow", "*"],
        &["policy", "check"],
        &["explain", "helo"],
    ] {
        let ran = commands.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    }
    assert!(commands.run(&["policy", "check", "helo", "https://x.example.com/"]).stderr.contains("did you mean hello?"));
}

#[test]
fn an_explanation_has_both_columns_and_what_comes_of_them() {
    let commands = Commands::new(CONFIG);
    let (code, document) = commands.json(&["explain", "hello"]);
    assert_eq!(code, 0, "{document}");
    assert_eq!(document["has_policy"], true);
    let hosts: Vec<(&str, bool)> = document["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| (host["asked"].as_str().unwrap(), host["reachable"].as_bool().unwrap()))
        .collect();
    assert_eq!(hosts, [("https://api.example.com", true), ("GET *.example.org", true), ("https://files.example.net", false)]);
    assert_eq!(document["hosts"][0]["allowed_by"][0], "https://*.example.com");
    let credentials = document["credentials"].as_array().unwrap();
    assert_eq!((credentials[0]["allowed"].as_bool(), credentials[1]["allowed"].as_bool()), (Some(true), Some(false)));
    assert_eq!((credentials[0]["header"].as_str(), &credentials[1]["fetch_audience"]), (Some("x-api-key"), &serde_json::json!([])));
    assert!(document["imports"].as_array().unwrap().iter().all(|import| import["granted"] == true));
    assert_eq!(document["limits"]["memory"], 512 << 20);
    // Asked twice, answered the same.
    assert_eq!(commands.json(&["explain", "hello"]).1, document);

    let asks = commands.run(&["explain", "asks"]);
    assert_eq!(asks.code, 0);
    // The interface is there for every agent; each of its calls is denied.
    let fetch = asks.stdout.lines().find(|line| line.contains("landfall:agent/fetch@0.1.0")).unwrap();
    assert!(fetch.ends_with(" yes"), "{}", asks.stdout);
    assert!(asks.stdout.contains("hosts  none: nothing leaves"), "{}", asks.stdout);
}
