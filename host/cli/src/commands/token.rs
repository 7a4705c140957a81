//! `landfall token`: tokens for the server.

use landfall::id::sha256;
use landfall::random::{Random as _, SystemRandom};
use serde_json::json;

use crate::args::{Global, Token};
use crate::exit::Done;
use crate::output;

/// Begins every token, so that scanners for leaked secrets can find one.
const PREFIX: &str = "landfall_";

pub(crate) fn run(global: &Global, verb: Token) -> anyhow::Result<Done> {
    let Token::New { name } = verb;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
        return Err(landfall::Error::usage(format!("{name:?} can't name a token: letters, digits, _ and -")).into());
    }
    let mut bytes = [0; 32];
    SystemRandom.fill(&mut bytes);
    let token = format!("{PREFIX}{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let digest = sha256(token.as_bytes());
    if global.json {
        output::json(&json!({ "name": name, "token": token, "sha256": digest }));
        return Ok(Done::Ok);
    }
    output::line(&token);
    output::note("it isn't kept anywhere; for landfall.toml (agents and scopes may be narrowed):");
    output::note(&format!("\n[server.tokens.{name}]\nsha256 = \"{digest}\"\n# agents = [\"NAME\"]\n# scopes = [\"read\", \"run\"]"));
    Ok(Done::Ok)
}
