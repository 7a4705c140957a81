//! `landfall schedule history`: a compact timeline of what became of ticks and triggers, and why.

use landfall::host::Host;
use landfall::id::ScheduleId;
use landfall::schedule::history::{Entry, Outcome};
use landfall::schedule::view::history_document;

use crate::args::Global;
use crate::exit::Done;
use crate::output;

pub(super) async fn run(global: &Global, host: &Host, id: &ScheduleId, limit: usize) -> anyhow::Result<Done> {
    let view = host.schedules().get(id).await?;
    let history = &view.state.history[..view.state.history.len().min(limit)];
    if global.json {
        output::json(&history_document(&view, limit));
        return Ok(Done::Ok);
    }
    if history.is_empty() {
        output::note("nothing became due yet");
        return Ok(Done::Ok);
    }
    output::line(&line(history));
    let mut rows = vec![["DUE", "OUTCOME", "LATE", "RUN", "WHY"].map(str::to_owned).to_vec()];
    for entry in history {
        let due = entry.tick.due().map_or_else(|| "triggered".to_owned(), |tick| tick.to_string());
        rows.push(vec![
            if entry.count > 1 { format!("{due} and {} before", entry.count - 1) } else { due },
            if entry.attempts > 1 {
                format!("{} ({} attempts)", entry.outcome.as_str(), entry.attempts)
            } else {
                entry.outcome.as_str().to_owned()
            },
            entry.late_ms.map_or_else(|| "-".to_owned(), |late| format!("{}.{:03} s", late / 1000, late % 1000)),
            entry.run.map_or_else(|| "-".to_owned(), |run| run.to_string()),
            output::safe(&entry.reason),
        ]);
    }
    output::table(&rows);
    Ok(Done::Ok)
}

/// One character for each entry, oldest first.
fn line(history: &[Entry]) -> String {
    let marks: String = history
        .iter()
        .rev()
        .map(|entry| match entry.outcome {
            Outcome::Ran => '#',
            Outcome::Failed | Outcome::TimedOut => 'x',
            Outcome::Cancelled => 'c',
            Outcome::Skipped => 's',
            Outcome::Missed => 'm',
            Outcome::Refused => 'r',
        })
        .collect();
    format!("{marks}   # ran, x failed, c cancelled, s skipped, m missed, r refused; the newest at the right")
}
