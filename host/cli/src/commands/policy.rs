//! `landfall policy check`: what the gate says of one URL or address, and why.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use landfall::policy::addresses::{self, OwnAddresses};
use landfall::policy::egress::{Ask, Egress};
use landfall::policy::hosts::{BadPattern, HostList};
use landfall::policy::refused::Refused;
use landfall::policy::resolve::{Answer, GivenAnswers, SystemResolver};
use landfall::policy::url::host_key;
use serde_json::{Value, json};

use crate::args::{Global, Policy, PolicyCheck};
use crate::environment::Environment;
use crate::exit::Done;
use crate::output;

pub(crate) async fn run(global: &Global, environment: &Environment, verb: Policy) -> anyhow::Result<Done> {
    match verb {
        Policy::Check(args) => check(global, environment, &args).await,
    }
}

async fn check(global: &Global, environment: &Environment, args: &PolicyCheck) -> anyhow::Result<Done> {
    let (agent, asked) = args.agent_and_target();
    let method = match &args.method {
        None => Method::GET,
        Some(text) => Method::from_bytes(text.to_ascii_uppercase().as_bytes())
            .map_err(|_| landfall::Error::usage(format!("{text:?} is not a method")).hint("methods are such as GET or POST"))?,
    };
    let egress = match agent {
        Some(name) => {
            if !args.allow.is_empty() {
                return Err(landfall::Error::usage("an agent's own list can't be replaced by --allow")
                    .hint("leave out the agent to try a list, or leave out --allow")
                    .into());
            }
            let known = name.parse().ok().and_then(|name| environment.config.egress(&name));
            known.ok_or_else(|| environment.config.unknown_agent(name))?
        }
        None if args.allow.is_empty() => Egress::unlisted(),
        None => match HostList::parse(args.allow.iter().map(String::as_str)) {
            Ok(list) => Egress::listed("", list),
            Err(error) => return Ok(bad_pattern(global, &error)),
        },
    };
    let mut own = OwnAddresses::read()?;
    let resolver = answers(&args.resolve, &mut own)?;

    if let Some(address) = bare_address(asked) {
        let judged = addresses::judge(address, &own);
        let document = json!({
            "verdict": if judged.is_allowed() { "allow" } else { "deny" },
            "code": judged.code(),
            "why": judged.why(),
            "addresses": [address],
            "credential": null,
        });
        return Ok(answer(global, asked, &document));
    }
    let ask = Ask { url: asked, method: &method, headers: &[], from: None };
    let document = match egress.admit(&ask, &resolver, &own).await {
        Ok(admitted) => {
            let credential = admitted.injection.rule.map(|rule| egress.credentials[rule].name.as_str());
            let why = match &admitted.entry {
                Some(entry) => format!("{} is covered by {entry:?}", admitted.target.origin()),
                None => "a public address by the rules for URLs and addresses".to_owned(),
            };
            json!({
                "verdict": "allow",
                "code": "ok",
                "why": why,
                "addresses": admitted.addresses,
                "credential": credential,
                "credential_code": admitted.injection.code,
                "url": admitted.target.to_string(),
                "entry": admitted.entry,
            })
        }
        Err(refused) => denied(&refused),
    };
    Ok(answer(global, asked, &document))
}

fn denied(refused: &Refused) -> Value {
    json!({
        "verdict": "deny",
        "code": refused.code,
        "why": refused.why,
        "addresses": refused.addresses,
        "credential": null,
        "step": refused.step.name(),
        "config_line": refused.config_line,
    })
}

/// A pattern that can't be meant is an error of the configuration, and denies whatever is asked.
fn bad_pattern(global: &Global, error: &BadPattern) -> Done {
    if global.json {
        output::json(&json!({
            "verdict": "deny",
            "code": "config_error",
            "why": error.message,
            "addresses": [],
            "credential": null,
            "error": { "code": "config_error", "message": error.message, "hint": error.hint },
        }));
    } else {
        output::note(&format!("error: the pattern {}", output::safe(&error.message)));
        output::note(&format!("  hint: {}", output::safe(&error.hint)));
    }
    Done::Usage
}

fn answer(global: &Global, asked: &str, document: &Value) -> Done {
    let allowed = document["verdict"] == "allow";
    if global.json {
        output::json(document);
    } else {
        let text = |key: &str| document[key].as_str().unwrap_or_default();
        output::line(&format!("{}  {}  ({})", text("verdict"), output::safe(asked), text("code")));
        output::line(&format!("  why         {}", output::safe(text("why"))));
        if document["step"].is_string() {
            output::line(&format!("  step        {}", text("step")));
        }
        let addresses: Vec<&str> = document["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !addresses.is_empty() {
            output::line(&format!("  addresses   {}", addresses.join(", ")));
        }
        if allowed && document.get("entry").is_some() {
            let credential = document["credential"].as_str().unwrap_or("none");
            output::line(&format!("  credential  {credential} ({})", text("credential_code")));
        }
        if document["config_line"].is_string() {
            output::line(&format!("  allowed by  {}", output::safe(text("config_line"))));
        }
    }
    if allowed { Done::Ok } else { Done::Denied }
}

/// An address by itself, with or without brackets.
fn bare_address(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

/// Makes a resolver of `HOST=IP,IP`, with the system's behind it.
fn answers(given: &[String], own: &mut OwnAddresses) -> anyhow::Result<GivenAnswers> {
    let mut resolver = GivenAnswers::new();
    let mut every = false;
    for text in given {
        let wrong = |what: String| landfall::Error::usage(what).hint("write --resolve HOST=IP,IP, or EMPTY, NXDOMAIN or SELF after the =");
        let (host, answer) = text.split_once('=').ok_or_else(|| wrong(format!("{text:?} gives no answer")))?;
        let answer = match answer {
            "EMPTY" => Answer::Addresses(Vec::new()),
            "NXDOMAIN" => Answer::NoSuchName,
            "SELF" => Answer::Addresses(vec![own_address(own)]),
            addresses => Answer::Addresses(
                addresses
                    .split([',', ';'])
                    .map(|address| address.trim().parse().map_err(|_| wrong(format!("{address:?} is not an address"))))
                    .collect::<Result<_, _>>()?,
            ),
        };
        if host == "*" {
            every = true;
            resolver = resolver.every(answer);
        } else {
            let host = host_key(host).ok_or_else(|| wrong(format!("{host:?} is not a host")))?;
            resolver = resolver.name(host, answer);
        }
    }
    Ok(if every { resolver } else { resolver.or_else(Arc::new(SystemResolver)) })
}

/// Returns an address of this machine. One that has only a loopback interface is asked about as if it had another.
fn own_address(own: &mut OwnAddresses) -> IpAddr {
    if let Some(address) = own.outward() {
        return address;
    }
    let stand_in = IpAddr::from([1, 1, 1, 1]);
    *own = [stand_in].into_iter().collect();
    stand_in
}
