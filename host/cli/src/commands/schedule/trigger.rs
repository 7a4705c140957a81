//! `landfall schedule trigger`.

use landfall::host::Host;
use landfall::id::ScheduleId;
use serde_json::json;

use crate::args::Global;
use crate::exit::Done;
use crate::output;

pub(super) async fn run(global: &Global, host: &Host, id: &ScheduleId, input: Option<String>, key: Option<String>) -> anyhow::Result<Done> {
    let input = input.as_deref().map(super::add::input).transpose()?;
    let triggered = host.schedules().trigger(id, input.as_deref(), key.as_deref()).await?;
    if global.json {
        output::json(&json!({
            "schedule": id,
            "run": triggered.run,
            "session": triggered.session.to_string(),
            "waits": triggered.waits,
            "repeated": triggered.repeated,
        }));
        return Ok(Done::Ok);
    }
    output::line(&triggered.run.to_string());
    output::note(&match (triggered.repeated, triggered.waits) {
        (true, _) => format!("that key has triggered {id} before: this is its run"),
        (false, true) => format!("{id} waits for an earlier run, then works in {}", triggered.session),
        (false, false) => format!("{id} is in the queue of {}: a server (`landfall serve`) runs it", triggered.session),
    });
    Ok(Done::Ok)
}
