//! `landfall gc`: frees what no checkpoint needs any more.

use landfall::clock::rfc3339;
use landfall::gc::{Collected, Options, Retention};
use serde_json::{Value, json};

use crate::args::{Gc, Global};
use crate::environment::Environment;
use crate::exit::Done;
use crate::{output, setup};

pub(crate) async fn run(global: &Global, environment: Environment, gc: Gc) -> anyhow::Result<Done> {
    let host = setup::host(global, environment, false).await?;
    let kept = host.retention();
    let retention = Retention { keep_last: gc.keep_last.unwrap_or(kept.keep_last), keep_days: gc.keep_days.unwrap_or(kept.keep_days) };
    let options = Options { retention, dry_run: gc.dry_run, ..Options::default() };
    let compacted = if gc.dry_run || gc.no_compact { Vec::new() } else { host.compact().await? };
    let report = host.collect(&options).await?;
    let scrubbed = match gc.scrub {
        Some(percent) => Some(host.scrub(percent).await?),
        None => None,
    };
    let sound = scrubbed.as_ref().is_none_or(|scrubbed| scrubbed.damaged.is_empty());
    if global.json {
        let sessions: serde_json::Map<String, Value> =
            report.sessions.iter().map(|(session, one)| (session.to_string(), json!(one))).collect();
        let left: serde_json::Map<String, Value> = report
            .left_alone
            .iter()
            .map(|(session, error)| (session.to_string(), json!({ "code": error.stable_code(), "why": error.chain() })))
            .collect();
        let compacted: serde_json::Map<String, Value> = compacted.iter().map(|(session, one)| (session.to_string(), json!(one))).collect();
        let scrubbed =
            scrubbed.as_ref().map(|one| json!({ "packs": one.packs, "read": one.read, "bytes": one.bytes, "damaged": one.damaged }));
        output::json(
            &json!({ "dry_run": gc.dry_run, "sessions": sessions, "left_alone": left, "imports": report.imports, "compacted": compacted, "scrubbed": scrubbed }),
        );
    } else {
        for (session, one) in &compacted {
            let session = output::safe(&session.to_string());
            output::line(&format!("{session}: written again from {} packs into {}", one.packs_before, one.packs_after));
        }
        for (session, one) in &report.sessions {
            print(&output::safe(&session.to_string()), one, gc.dry_run);
        }
        if let Some(imports) = report.imports.as_ref().filter(|imports| imports.kept > 0 || imports.deleted_packs > 0) {
            let (drops, deletes) = if gc.dry_run { ("would drop", "would delete") } else { ("dropped", "deleted") };
            output::line(&format!("imported commits: {} kept", imports.kept));
            for dropped in &imports.dropped {
                output::line(&format!("  {drops} {}: no session stands on it", output::safe(dropped)));
            }
            if imports.deleted_packs > 0 {
                output::line(&format!("  {deletes} {} packs, {}", imports.deleted_packs, output::size(imports.deleted_bytes)));
            }
        }
        for (session, error) in &report.left_alone {
            output::line(&format!("{}: left alone: {}", output::safe(&session.to_string()), error.chain()));
        }
        if let Some(scrubbed) = &scrubbed {
            output::line(&format!("scrubbed {} of {} packs, {}", scrubbed.read, scrubbed.packs, output::size(scrubbed.bytes)));
            for (key, harm) in &scrubbed.damaged {
                let sessions: Vec<String> = harm.sessions.iter().map(|session| output::safe(&session.to_string())).collect();
                output::line(&format!("damaged: {key}: {}; sessions: {}", harm.error.chain(), sessions.join(", ")));
            }
        }
    }
    Ok(if report.left_alone.is_empty() && sound { Done::Ok } else { Done::Failed })
}

fn print(session: &str, one: &Collected, dry: bool) {
    let state = match (one.deleted, one.busy) {
        (true, _) => " (deleted)",
        (false, true) => " (a run goes on)",
        (false, false) => "",
    };
    let (packs, bytes) = (one.live_packs, output::size(one.live_bytes));
    output::line(&format!("{session}{state}: {} checkpoints kept, in {packs} packs, {bytes}", one.kept));
    let (drops, puts, deletes) = if dry { ("would drop", "would discard", "would delete") } else { ("dropped", "discarded", "deleted") };
    if one.dropped > 0 {
        output::line(&format!("  {drops} {} checkpoints by retention", one.dropped));
    }
    for why in &one.discarded {
        let (bytes, written) = (output::size(why.bytes), rfc3339(why.written));
        output::line(&format!("  {puts} pack {}, {bytes} of {written}: nothing that is kept needs it", why.pack));
    }
    if one.waiting > 0 {
        output::line(&format!("  {} packs wait for their grace to end", one.waiting));
    }
    if one.deleted_packs > 0 {
        output::line(&format!("  {deletes} {} packs, {}", one.deleted_packs, output::size(one.deleted_bytes)));
    }
    if one.unpinned > 0 {
        output::line(&format!("  {drops} the pins of {} forks that are gone", one.unpinned));
    }
}
