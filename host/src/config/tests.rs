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
    assert_eq!(config.credentials["GITHUB_READ_TOKEN"].audience, ["https://github.com"]);
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
