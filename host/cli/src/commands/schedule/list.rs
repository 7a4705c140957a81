//! `landfall schedule list` and `show`.

use landfall::clock::rfc3339;
use landfall::host::Host;
use landfall::id::{AgentName, ScheduleId};
use landfall::schedule::plan::Source;
use landfall::schedule::view::View;
use landfall::schedule::zone::Zone;
use serde_json::json;

use super::next::ON_DEMAND;
use crate::args::Global;
use crate::exit::Done;
use crate::output;

pub(super) async fn list(global: &Global, host: &Host, agent: Option<&AgentName>) -> anyhow::Result<Done> {
    let mut rows = vec![["SCHEDULE", "AGENT", "WHEN", "STATE", "NEXT", "LAST"].map(str::to_owned).to_vec()];
    let mut all = Vec::new();
    for (id, view) in host.schedules().list(agent).await? {
        match view {
            Ok(view) => {
                let when = view
                    .plan
                    .spec
                    .cron
                    .as_ref()
                    .map_or_else(|| "on demand".to_owned(), |cron| format!("{cron} {}", view.plan.spec.timezone));
                let last = view.state.history.first().map_or("-", |entry| entry.outcome.as_str());
                rows.push(vec![
                    id.to_string(),
                    view.plan.spec.agent.to_string(),
                    when,
                    state(&view).to_owned(),
                    view.state.next.map_or_else(|| "-".to_owned(), |tick| tick.to_string()),
                    last.to_owned(),
                ]);
                all.push(serde_json::to_value(view.shown())?);
            }
            Err(error) => {
                rows.push(vec![
                    id.to_string(),
                    "-".to_owned(),
                    "-".to_owned(),
                    "unreadable".to_owned(),
                    "-".to_owned(),
                    output::safe(&error.chain()),
                ]);
                all.push(json!({ "id": id, "error": { "code": error.stable_code(), "message": error.chain() } }));
            }
        }
    }
    if global.json {
        output::json(&json!({ "schedules": all }));
    } else if rows.len() == 1 {
        output::note(
            "no schedules yet: add a section [schedules.NAME] to the config, or `landfall schedule add NAME --agent AGENT --cron EXPR`",
        );
    } else {
        output::table(&rows);
    }
    Ok(Done::Ok)
}

/// The state of a schedule in one word.
fn state(view: &View) -> &'static str {
    let plan = &view.plan;
    match () {
        () if plan.removed.is_some() => "removed",
        () if plan.undeclared.is_some() => "undeclared",
        () if plan.spec.paused => "paused",
        () if !view.state.open.is_empty() => "running",
        () if view.state.problem.is_some() => "problem",
        () if plan.is_armed() => "armed",
        () => "unarmed",
    }
}

pub(super) async fn show(global: &Global, host: &Host, id: &ScheduleId) -> anyhow::Result<Done> {
    let view = host.schedules().get(id).await?;
    if global.json {
        output::json(&serde_json::to_value(view.shown())?);
        return Ok(Done::Ok);
    }
    let (plan, spec) = (&view.plan, &view.plan.spec);
    let made = match plan.source {
        Source::Config => "the config",
        Source::Operator => "the operator",
        Source::Agent => "the agent",
    };
    output::line(&format!("schedule   {id}, revision {}, made by {made}", plan.generation));
    output::line(&format!("agent      {}", spec.agent));
    let reading = spec
        .expression()?
        .map_or_else(|| ON_DEMAND.to_owned(), |expression| format!("{expression} = {} ({})", expression.reading(), spec.timezone));
    output::line(&format!("when       {reading}"));
    output::line(&format!("state      {}", state(&view)));
    if plan.undeclared.is_some() {
        output::line("           the config doesn't declare it any more: nothing fires; `landfall schedule remove` takes it away");
    }
    if let Some(problem) = &view.state.problem {
        output::line(&format!("problem    {} ({})", output::safe(&problem.message), rfc3339(problem.at)));
    }
    let zone = Zone::named(&spec.timezone)?;
    for (nth, tick) in view.next(3).into_iter().enumerate() {
        output::line(&format!("{}  {tick}  {}", if nth == 0 { "next     " } else { "         " }, zone.show(tick)));
    }
    for open in &view.state.open {
        output::line(&format!(
            "running    {} of {}, attempt {}, session {}",
            open.run,
            open.tick,
            open.attempt,
            output::safe(&open.session.to_string())
        ));
    }
    let totals = view.state.totals;
    output::line(&format!(
        "so far     {} ran, {} failed, {} skipped, {} missed, {} refused",
        totals.ran, totals.failed, totals.skipped, totals.missed, totals.refused
    ));
    Ok(Done::Ok)
}

/// Shows what a change left.
pub(super) fn changed(global: &Global, what: &str, view: &View) -> anyhow::Result<Done> {
    if global.json {
        output::json(&serde_json::to_value(view.shown())?);
    } else {
        let next = view.state.next.map_or_else(|| "nothing fires by itself".to_owned(), |tick| format!("next at {tick}"));
        output::line(&format!("{what} {}, revision {}: {next}", view.plan.id, view.plan.generation));
    }
    Ok(Done::Ok)
}
