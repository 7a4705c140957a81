//! `landfall schedule next`: when an expression fires. People ask it before they write a plan; it needs nothing but the expression.

use landfall::clock::{Clock as _, SystemClock};
use landfall::schedule::cron::Expression;
use landfall::schedule::zone::Zone;
use landfall::tick::Tick;
use serde_json::json;

use crate::args::{Global, Next};
use crate::exit::Done;
use crate::output;

/// What a blank expression means.
pub(in crate::commands) const ON_DEMAND: &str = "On demand only: it is never armed and runs when it is triggered";

pub(crate) fn run(global: &Global, args: &Next) -> anyhow::Result<Done> {
    // A bad zone is an error also where nothing is armed.
    let zone = Zone::named(&args.tz)?;
    let after = args.after.as_deref().map_or_else(|| Ok(Tick::at_or_before(SystemClock.now())), str::parse)?;
    let Some(expression) = Expression::parse(&args.expression)? else {
        if global.json {
            output::json(&json!({
                "expression": args.expression, "timezone": zone.name(), "next": [], "armed": false, "reading": ON_DEMAND,
            }));
        } else {
            output::line(ON_DEMAND);
        }
        return Ok(Done::Ok);
    };
    expression.first(&zone, after)?;
    let next: Vec<Tick> = expression.upcoming(&zone, after).take(args.count.into()).collect();
    if global.json {
        output::json(&json!({
            "expression": args.expression, "timezone": zone.name(), "next": next, "armed": true, "reading": expression.reading(),
        }));
        return Ok(Done::Ok);
    }
    output::line(&format!("{} ({zone})", expression.reading()));
    let rows: Vec<Vec<String>> = next.iter().map(|tick| vec![tick.to_string(), zone.show(*tick)]).collect();
    output::table(&rows);
    Ok(Done::Ok)
}
