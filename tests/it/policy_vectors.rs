//! The table of what leaves and what doesn't (`tests/data/fetch.tsv`), row by row, by the library and by `landfall policy check`.

use std::net::IpAddr;

use http::{HeaderMap, Method, StatusCode, header};
use landfall::policy::addresses::{self, OwnAddresses};
use landfall::policy::credentials::{self, Audience, Chain, CredentialRule, Placement};
use landfall::policy::egress::{Ask, Egress};
use landfall::policy::hosts::HostList;
use landfall::policy::redirects;
use landfall::policy::resolve::{Answer, GivenAnswers};
use landfall::policy::url::Target;
use landfall_tests::command::Commands;

const PUBLIC: &str = "93.184.216.34";
const OWN: &str = "203.0.114.7";

struct Row {
    id: String,
    kind: String,
    input: String,
    context: String,
    expect: String,
    code: String,
}

fn rows(kinds: &[&str]) -> Vec<Row> {
    let table = include_str!("../data/fetch.tsv");
    let rows: Vec<Row> = table
        .lines()
        .skip(1)
        .map(|line| {
            let line = line.replace("{U+00AD}", "\u{ad}");
            let fields: Vec<&str> = line.split('\t').collect();
            let field = |at: usize| fields[at].to_owned();
            Row { id: field(0), kind: field(1), input: field(2), context: field(3), expect: field(4), code: field(5) }
        })
        .filter(|row| kinds.contains(&row.kind.as_str()))
        .collect();
    assert!(rows.len() > 5, "the table has too few rows of {kinds:?}");
    rows
}

fn own() -> OwnAddresses {
    [OWN.parse::<IpAddr>().unwrap()].into_iter().collect()
}

fn resolver(context: &str) -> GivenAnswers {
    let answer = match context.strip_prefix("dns=").unwrap_or(PUBLIC) {
        "EMPTY" => Answer::Addresses(Vec::new()),
        "NXDOMAIN" => Answer::NoSuchName,
        "SELF" => Answer::Addresses(vec![OWN.parse().unwrap()]),
        addresses => Answer::Addresses(addresses.split(';').map(|address| address.parse().unwrap()).collect()),
    };
    GivenAnswers::new().every(answer)
}

/// Compares all answers before it fails, so that one run shows every wrong row.
fn compare(answers: Vec<(&Row, (String, String))>) {
    let wrong: Vec<String> = answers
        .into_iter()
        .filter(|(row, (verdict, code))| *verdict != row.expect || *code != row.code)
        .map(|(row, answer)| format!("{} {} {}: {answer:?} instead of {} {}", row.id, row.input, row.context, row.expect, row.code))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn allow() -> (String, String) {
    ("allow".to_owned(), "ok".to_owned())
}

fn deny(code: &str) -> (String, String) {
    ("deny".to_owned(), code.to_owned())
}

async fn admit(egress: &Egress, url: &str, context: &str) -> (String, String) {
    let ask = Ask { url, method: &Method::GET, headers: &[], from: None };
    match egress.admit(&ask, &resolver(context), &own()).await {
        Ok(_) => allow(),
        Err(refused) => deny(refused.code),
    }
}

#[test]
fn addresses_are_judged_as_the_table_says() {
    let rows = rows(&["addr"]);
    let answer = |row: &Row| {
        let judged = addresses::judge(row.input.parse().unwrap(), &own());
        if judged.is_allowed() { allow() } else { deny(judged.code()) }
    };
    compare(rows.iter().map(|row| (row, answer(row))).collect());
}

#[tokio::test]
async fn urls_and_lists_are_judged_as_the_table_says() {
    let rows = rows(&["url", "allowlist"]);
    let mut answers = Vec::new();
    for row in &rows {
        let egress = match row.context.strip_prefix("entry=") {
            None => Egress::unlisted(),
            Some(entry) => match HostList::parse([entry]) {
                Ok(list) => Egress::listed("", list),
                Err(_) => {
                    answers.push((row, deny("config_error")));
                    continue;
                }
            },
        };
        answers.push((row, admit(&egress, &row.input, &row.context).await));
    }
    compare(answers);
}

#[tokio::test]
async fn redirects_are_followed_as_the_table_says() {
    let rows = rows(&["redirect"]);
    let mut answers = Vec::new();
    for row in &rows {
        let (first, response) = row.input.split_once(" -> ").unwrap();
        let (status, rest) = response.split_once(' ').unwrap();
        let list = row.context.strip_prefix("allow-list=").unwrap();
        let egress = Egress::listed("", HostList::parse([list]).unwrap());
        let mut headers = HeaderMap::new();
        match rest {
            "(no Location)" => {}
            refresh if refresh.starts_with("Refresh: ") => {
                headers.insert(header::REFRESH, refresh.trim_start_matches("Refresh: ").parse().unwrap());
            }
            location => {
                headers.insert(header::LOCATION, location.parse().unwrap());
            }
        }
        let page = Target::parse(first).unwrap();
        let status = StatusCode::from_bytes(status.as_bytes()).unwrap();
        let answer = match redirects::of_response(status, &headers, &Method::GET) {
            None => allow(),
            Some(redirect) => {
                let chain = Chain::begin(&page);
                let ask = Ask { url: redirect.location, method: &redirect.method, headers: &[], from: Some((&page, &chain)) };
                egress.admit(&ask, &resolver("-"), &own()).await.map_or_else(|refused| deny(refused.code), |_| allow())
            }
        };
        answers.push((row, answer));
    }
    compare(answers);
}

fn rule(audience: &str) -> Result<CredentialRule, landfall::policy::hosts::BadPattern> {
    let audience = Audience::parse(audience)?;
    Ok(CredentialRule { name: "GITHUB_TOKEN".to_owned(), audience: vec![audience], place: Placement::default(), methods: None })
}

fn injected(rules: &[CredentialRule], hops: &[Target]) -> (String, String) {
    let (last, before) = hops.split_last().unwrap();
    let chain = before.split_first().map(|(first, rest)| {
        let mut chain = Chain::begin(first);
        rest.iter().for_each(|hop| chain.follow(hop));
        chain
    });
    let injection = credentials::choose(rules, last, &Method::GET, chain.as_ref());
    let verdict = if injection.rule.is_some() { "inject" } else { "no-inject" };
    (verdict.to_owned(), injection.code.to_owned())
}

#[test]
fn credentials_go_where_the_table_says() {
    let rows = rows(&["cred"]);
    let mut answers = Vec::new();
    let url = |text: &str| Target::parse(text).unwrap();
    for row in &rows {
        let scope = row.context.strip_prefix("scope=").unwrap_or("https://api.github.com");
        let answer = if let Some(header) = row.input.strip_prefix("guest header ") {
            let (name, value) = header.split_once(": ").unwrap();
            let value = value.replace("\\r\\n", "\r\n");
            let egress = Egress { credentials: vec![rule(scope).unwrap()], ..Egress::unlisted() };
            match egress.check_headers(&url("https://api.github.com/"), [(name, value.as_bytes())]) {
                Ok(()) => allow(),
                Err(refused) => deny(refused.code),
            }
        } else if let Some(scope) = row.input.strip_prefix("config scope=") {
            match rule(scope) {
                Ok(rule) => injected(&[rule], &[url(&row.context)]),
                Err(_) => deny("config_error"),
            }
        } else if row.input.contains("placeholder") {
            let asked = url("https://api.github.com/x?key={GITHUB_TOKEN}");
            assert!(asked.to_string().contains("GITHUB_TOKEN"), "nothing is written into a guest's text");
            injected(&[rule(scope).unwrap()], &[asked])
        } else if let Some(chain) = row.input.strip_prefix("redirect ") {
            let hops: Vec<Target> = chain.split(" -> ").map(|host| url(&format!("https://{host}/"))).collect();
            injected(&[rule(scope).unwrap()], &hops)
        } else if row.input.starts_with("response ") {
            // Responses are scanned where they are read.
            continue;
        } else {
            injected(&[rule(scope).unwrap()], &[url(&row.input)])
        };
        answers.push((row, answer));
    }
    assert!(answers.len() >= 10);
    compare(answers);
}

#[test]
fn the_command_says_what_the_table_says() {
    let commands = Commands::new("this is no config, and none is needed");
    let rows = rows(&["addr", "url", "allowlist"]);
    let mut answers = Vec::new();
    for row in &rows {
        let dns = row.context.strip_prefix("dns=").unwrap_or(PUBLIC).replace(';', ",");
        let resolve = format!("*={dns}");
        let mut arguments = vec!["policy", "check", row.input.as_str(), "--resolve", resolve.as_str()];
        if let Some(entry) = row.context.strip_prefix("entry=") {
            arguments.extend(["--allow", entry]);
        }
        let (code, document) = commands.json(&arguments);
        let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
        let exit = match (text("verdict").as_str(), text("code").as_str()) {
            ("allow", _) => 0,
            (_, "config_error") => 2,
            _ => 3,
        };
        assert_eq!(code, exit, "{}: {document}", row.id);
        answers.push((row, (text("verdict"), text("code"))));
    }
    compare(answers);
}
