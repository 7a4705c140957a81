//! `landfall explain`: what an agent asks for, what the policy allows, and what comes of both.

use std::sync::Arc;

use landfall::clock::SystemClock;
use landfall::config::explain::Explanation;
use landfall::host::Host;
use landfall::id::AgentName;
use landfall::random::SystemRandom;
use landfall::store::Store;

use crate::args::{Explain, Global};
use crate::environment::Environment;
use crate::exit::Done;
use crate::{output, setup};

pub(crate) async fn run(global: &Global, environment: Environment, args: &Explain) -> anyhow::Result<Done> {
    let config = &environment.config;
    let name: AgentName = args.agent.parse()?;
    if !config.agents.contains_key(&name) {
        return Err(config.unknown_agent(&args.agent).into());
    }
    // No store is needed to look at a component.
    let store = Store::memory(Arc::new(SystemClock), Arc::new(SystemRandom));
    let host = Host::builder(store, config.clone()).cache_dir(setup::cache_dir(global, &environment)).build()?;
    let imports = match host.imports(&name).await {
        Ok(imports) => Some(imports),
        Err(error) => {
            output::note(&format!("the component's imports can't be shown: {}", output::safe(&error.chain())));
            None
        }
    };
    let Some(explanation) = config.explain(&name, imports) else { return Err(config.unknown_agent(&args.agent).into()) };
    if global.json {
        output::json(&serde_json::to_value(&explanation)?);
    } else {
        show(&explanation);
    }
    Ok(Done::Ok)
}

fn show(explanation: &Explanation) {
    let policy = if explanation.has_policy { "with a policy beside it" } else { "no policy: the entry stands as it is" };
    output::line(&format!("agent {} ({policy})", explanation.agent));
    output::line(&format!("component {}", output::safe(&explanation.component)));
    for import in explanation.imports.iter().flatten() {
        let granted = match (import.granted, import.capability) {
            (true, None) => "yes",
            (true, Some(_)) => "granted",
            (false, _) => "NOT GRANTED",
        };
        output::line(&format!("  imports  {:<44} {granted}", output::safe(&import.name)));
    }
    match &explanation.repository {
        None => output::line("repository  none"),
        Some(repository) => {
            let branch = repository.branch.as_deref().unwrap_or("the remote's default branch");
            output::line(&format!("repository  {} ({branch})", output::safe(&repository.url)));
        }
    }
    output::line(if explanation.hosts.is_empty() { "hosts  none: nothing leaves" } else { "hosts" });
    for host in &explanation.hosts {
        let reach = match (&host.allowed_by, host.reachable) {
            (None, _) => "reachable".to_owned(),
            (Some(_), false) => "NOT ALLOWED by the policy".to_owned(),
            (Some(by), true) => format!("as far as the policy allows {}", by.join(", ")),
        };
        output::line(&format!("  {:<44} {}", output::safe(&host.asked), output::safe(&reach)));
    }
    for (host, nets) in &explanation.private_addresses {
        output::line(&format!("  {host} may be at {}", nets.join(", ")));
    }
    output::line(if explanation.credentials.is_empty() { "credentials  none" } else { "credentials" });
    for credential in &explanation.credentials {
        let mut uses = Vec::new();
        if credential.repository {
            uses.push("the git client sends it to the repository".to_owned());
        }
        if let (Some(header), false) = (&credential.header, credential.fetch_audience.is_empty()) {
            let methods = credential.methods.as_ref().map(|methods| format!(" of {}", methods.join(", "))).unwrap_or_default();
            uses.push(format!("header {header} of requests{methods} to {}", credential.fetch_audience.join(", ")));
        }
        let told = match (credential.allowed, uses.is_empty()) {
            (false, _) => "NOT ALLOWED by the policy".to_owned(),
            (true, true) => "never sent".to_owned(),
            (true, false) => uses.join("; "),
        };
        output::line(&format!("  {:<24} {}", credential.name, output::safe(&told)));
    }
    output::line("limits");
    let rows: Vec<Vec<String>> = explanation.limits.iter().map(|(name, value)| vec![format!("  {name}"), value.to_string()]).collect();
    output::table(&rows);
}
