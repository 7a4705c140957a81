use std::path::Path;
use std::time::Duration;

use super::*;

fn parse(text: &str) -> Result<Config> {
    Config::parse("landfall.toml", text, Path::new("/etc/landfall"))
}

fn refused(text: &str) -> (String, Option<String>) {
    let error = parse(text).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Config);
    (error.message().to_owned(), error.next_step().map(str::to_owned))
}

#[test]
fn a_full_config_is_read() {
    let config = parse(
        r#"
version = 1
[store]
url = "s3://bucket/prefix"
[agents.reviewer]
component = "reviewer.wasm"
repository = { url = "https://github.com/acme/app", branch = "main" }
credentials = ["GITHUB_READ_TOKEN", "FORGE"]
config = { model = "large" }
args = ["--fast"]
env = { TERM = "dumb" }
on_crash = "fail"
[agents.reviewer.limits]
memory = "64MiB"
turn = "90s"
[credentials.FORGE]
source = { file = "forge.token" }
audience = ["https://git.example.com:8443"]
user = "oauth2"
[policy]
repositories = ["https://github.com/acme/*"]
"#,
    )
    .unwrap();
    let agent = &config.agents[&"reviewer".parse().unwrap()];
    assert_eq!(agent.component, Path::new("/etc/landfall/reviewer.wasm"));
    assert_eq!(agent.limits, Limits { memory: 64 << 20, turn: Duration::from_secs(90), ..Limits::default() });
    assert_eq!(agent.on_crash, OnCrash::Fail);
    assert_eq!(config.credentials["FORGE"].source, CredentialSource::File("/etc/landfall/forge.token".into()));
    assert_eq!(config.credentials["GITHUB_READ_TOKEN"].audience[0].to_string(), "https://github.com");
    assert_eq!(config.policy.unwrap().repositories.unwrap(), ["https://github.com/acme/*"]);
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest_right_name() {
    let (message, hint) = refused("version = 1\n[agents.a]\ncomponent = \"a.wasm\"\nrepositroy = { url = \"https://x.example/y\" }\n");
    assert!(message.starts_with("landfall.toml:4: unknown field `repositroy`"), "{message}");
    assert_eq!(hint.unwrap(), "did you mean `repository`?");
}

#[test]
fn a_dangling_credential_names_the_nearest_one() {
    let (message, hint) = refused("version = 1\n[agents.a]\ncomponent = \"a.wasm\"\ncredentials = [\"GITHUB_READ_TOKN\"]\n");
    assert_eq!(message, "landfall.toml:4: no credential is named \"GITHUB_READ_TOKN\"");
    assert_eq!(hint.unwrap(), "did you mean \"GITHUB_READ_TOKEN\"?");
}

#[test]
fn bad_values_name_their_line() {
    for (line, text) in [
        (1, "version = 2\n"),
        (5, "version = 1\n[agents.a]\ncomponent = \"a\"\n[agents.a.limits]\nmemory = \"12 parsecs\"\n"),
        (5, "version = 1\n[agents.a]\ncomponent = \"a\"\n[agents.a.limits]\noutput = \"2MiB\"\n"),
        (5, "version = 1\n[agents.a]\ncomponent = \"a\"\n[agents.a.limits]\nturn = \"25h\"\n"),
        (5, "version = 1\n[agents.a]\ncomponent = \"a\"\n[agents.a.limits]\nfile = \"99999999999TiB\"\n"),
        (2, "version = 1\n[agents.\" a\"]\ncomponent = \"a\"\n"),
        (4, "version = 1\n[credentials.X]\nsource = { env = \"X\" }\naudience = [\"http://example.com\"]\n"),
        (3, "version = 1\n[agents.a]\nrepository = { url = \"https://user:hunter2hunter2@example.com/x\" }\ncomponent = \"a\"\n"),
        (3, "version = 1\n[agents.a]\ncomponent = 7\n"),
    ] {
        let (message, _) = refused(text);
        assert!(message.starts_with(&format!("landfall.toml:{line}: ")), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn sizes_and_spans() {
    assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
    assert_eq!(parse_bytes("7"), Ok(7));
    assert!(parse_bytes("0").is_err() && parse_bytes("-1").is_err() && parse_bytes("1MB").is_err() && parse_bytes("").is_err());
    assert_eq!(parse_span("1500ms"), Ok(Duration::from_millis(1500)));
    assert!(parse_span("15").is_err() && parse_span("0s").is_err());
}

const EGRESS: &str = r#"
version = 1
[agents.reviewer]
component = "reviewer.wasm"
repository = { url = "https://github.com/acme/app.git" }
credentials = ["GITHUB_READ_TOKEN", "MODEL_KEY"]
allowed_outbound_hosts = ["https://api.example.com", "GET *.example.org/v1"]
[agents.reviewer.private_addresses]
"git.corp.example.com" = ["10.0.0.0/8", "fd00::7"]
[credentials.GITHUB_READ_TOKEN]
for = ["repository", "fetch"]
[credentials.MODEL_KEY]
source = { env = "MODEL_KEY" }
audience = ["https://api.example.com"]
inject = { header = "X-Api-Key" }
"#;

fn credential_at(egress: &crate::policy::egress::Egress, method: &str, url: &str) -> (Option<String>, &'static str) {
    let target = crate::policy::url::Target::parse(url).unwrap();
    let injection = crate::policy::credentials::choose(&egress.credentials, &target, &method.parse().unwrap(), None);
    (injection.rule.map(|rule| egress.credentials[rule].name.clone()), injection.code)
}

#[test]
fn an_agents_gate_has_what_it_asks_for_and_the_policy_allows() {
    let reviewer = "reviewer".parse().unwrap();
    let alone = parse(EGRESS).unwrap().egress(&reviewer).unwrap();
    assert_eq!(alone.credentials.len(), 2);
    assert_eq!(alone.credentials[1].place, Placement { header: "x-api-key".to_owned(), scheme: None });
    assert_eq!(alone.private[0].nets.len(), 2);

    let with = |policy: &str| parse(&format!("{EGRESS}{policy}")).unwrap().egress(&reviewer).unwrap();
    let narrowed =
        with("[policy]\ncredentials = [\"MODEL_KEY\"]\n[policy.private_addresses]\n\"git.corp.example.com\" = [\"10.1.0.0/16\"]\n");
    assert_eq!(narrowed.credentials.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["MODEL_KEY"]);
    assert_eq!(narrowed.private[0].nets, ["10.1.0.0/16".parse().unwrap()]);
    let nothing = with("[policy]\n");
    assert!(nothing.private.is_empty());
    assert_eq!(
        nothing.hosts,
        crate::policy::egress::Hosts::Listed {
            asked: HostList::parse(["https://api.example.com", "GET *.example.org/v1"]).unwrap(),
            allowed: Some(HostList::default()),
        }
    );
    assert!(parse(EGRESS).unwrap().egress(&"other".parse().unwrap()).is_none());
}

#[test]
fn the_built_in_token_reads_its_own_repository_and_nothing_else() {
    let egress = parse(EGRESS).unwrap().egress(&"reviewer".parse().unwrap()).unwrap();
    let token = Some("GITHUB_READ_TOKEN".to_owned());
    for (method, url, expected) in [
        ("GET", "https://api.github.com/repos/acme/app/issues", (token.clone(), "ok")),
        ("HEAD", "https://raw.githubusercontent.com/acme/app/main/README.md", (token.clone(), "ok")),
        ("GET", "https://github.com/acme/app.git/info/refs", (token.clone(), "ok")),
        ("GET", "https://codeload.github.com/acme/app/tar.gz/main", (token, "ok")),
        ("POST", "https://api.github.com/repos/acme/app/issues", (None, "cred_method")),
        ("GET", "https://api.github.com/repos/acme/other", (None, "cred_path")),
        ("GET", "https://api.github.com/user", (None, "cred_path")),
        ("GET", "https://gist.github.com/acme/app", (None, "cred_host")),
    ] {
        assert_eq!(credential_at(&egress, method, url), expected, "{method} {url}");
    }
    // It isn't for requests unless that is asked for, and never without a repository there.
    let unasked = EGRESS.replace("for = [\"repository\", \"fetch\"]", "");
    let egress = parse(&unasked).unwrap().egress(&"reviewer".parse().unwrap()).unwrap();
    assert_eq!(credential_at(&egress, "GET", "https://api.github.com/repos/acme/app"), (None, "cred_host"));
    let elsewhere = EGRESS.replace("https://github.com/acme/app.git", "https://git.example.com/acme/app");
    let egress = parse(&elsewhere).unwrap().egress(&"reviewer".parse().unwrap()).unwrap();
    assert_eq!(credential_at(&egress, "GET", "https://api.github.com/repos/acme/app"), (None, "cred_host"));
}

#[test]
fn what_leaves_is_checked_line_by_line() {
    let agent = "version = 1\n[agents.a]\ncomponent = \"a.wasm\"\n";
    let key = |rest: &str| format!("version = 1\n[credentials.K]\nsource = {{ env = \"K\" }}\n{rest}\n");
    let https = "audience = [\"https://a.example.com\"]";
    for (line, text, says) in [
        (4, format!("{agent}allowed_outbound_hosts = [\"*.com\"]\n"), "everybody can register"),
        (4, format!("{agent}allowed_outbound_host = []\n"), "unknown field"),
        (5, format!("{agent}[agents.a.private_addresses]\n\"*.example.com\" = [\"10.0.0.0/8\"]\n"), "can't be a host"),
        (5, format!("{agent}[agents.a.private_addresses]\n\"a.example.com\" = [\"10.0.0.1/8\"]\n"), "bits set behind"),
        (2, key(""), "has no audience"),
        (2, format!("version = 1\n[credentials.K]\n{https}\n"), "has no source"),
        (4, key("audience = [\"*\"]"), "can't be an audience"),
        (4, key("audience = [\"http://a.example.com\"]"), "in clear"),
        (4, key("audience = [\"https://a.example.com\", \"a.example.com:443\"]"), "twice"),
        (5, key(&format!("{https}\ninject = {{ header = \"Host\" }}")), "can't be the header"),
        (5, key(&format!("{https}\ninject = {{ header = \"x-key\", scheme = \"a b\" }}")), "not an authentication scheme"),
        (5, key(&format!("{https}\nfor = [\"fetching\"]")), "unknown variant"),
        (5, key(&format!("{https}\nmethods = [\"get\"]")), "not a method"),
        (3, "version = 1\n[credentials.GITHUB_READ_TOKEN]\naudience = [\"https://example.com\"]\n".to_owned(), "is only for github.com"),
        (2, "version = 1\n[credentials.GITHUB_READ_TOKEN]\nmethods = [\"POST\"]\n".to_owned(), "only for reading"),
        (3, "version = 1\n[policy]\ncredentials = [\"GITHUB_TOKEN\"]\n".to_owned(), "no credential is named"),
        (3, "version = 1\n[policy]\nallowed_outbound_hosts = [\"https://\"]\n".to_owned(), "can't be a host"),
    ] {
        let (message, _) = refused(&text);
        assert!(message.starts_with(&format!("landfall.toml:{line}: ")) && message.contains(says), "{text}\n{message}");
    }
}

#[test]
fn two_credentials_for_one_header_at_one_host_are_refused() {
    let second =
        "[credentials.OTHER]\nsource = { env = \"OTHER\" }\naudience = [\"https://*.example.com\"]\ninject = { header = \"x-api-key\" }\n";
    let (message, _) = refused(&format!("{}{second}", EGRESS.replace("\"MODEL_KEY\"]", "\"MODEL_KEY\", \"OTHER\"]")));
    assert!(message.starts_with("landfall.toml:6: ") && message.contains("both be the header"), "{message}");
    let elsewhere = second.replace("x-api-key", "x-other");
    assert!(parse(&format!("{}{elsewhere}", EGRESS.replace("\"MODEL_KEY\"]", "\"MODEL_KEY\", \"OTHER\"]"))).is_ok());
}
