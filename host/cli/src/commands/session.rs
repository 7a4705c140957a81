//! `landfall session`: lines of work.

use landfall::capability::types::{Change, ChangeKind, shown};
use landfall::clock::rfc3339;
use landfall::host::{Host, PatchOptions};
use landfall::id::{AgentName, SessionRef};
use landfall::repository::history::{CommitInfo, Signature};
use landfall::session::record::{RunRecord, Text};
use landfall::session::selector::{self, Selector};
use landfall::session::view::{RunView, SessionView};
use serde_json::{Value, json};

use crate::args::{Global, Session, SessionArg};
use crate::environment::Environment;
use crate::exit::Done;
use crate::{output, setup};

/// Reads `AGENT/SESSION`, `AGENT --session S` or `AGENT`.
pub(super) fn session_ref(arg: &SessionArg) -> landfall::Result<SessionRef> {
    match &arg.session {
        Some(session) => Ok(SessionRef { agent: arg.agent.parse()?, session: session.parse()? }),
        None => selector::parse_session(&arg.agent),
    }
}

pub(crate) async fn run(global: &Global, environment: Environment, verb: Session) -> anyhow::Result<Done> {
    let host = setup::host(global, environment, false).await?;
    match verb {
        Session::List { agent } => list(global, &host, agent.map(|agent| agent.parse()).transpose()?.as_ref()).await,
        Session::Show(session) => show(global, &host, &session_ref(&session)?).await,
        Session::Log { session, limit } => log(global, &host, &session_ref(&session)?, limit).await,
        Session::Diff { session, names, paths } => {
            super::checkpoint::diff(global, &host, &Selector::Head(session_ref(&session)?), None, names, &paths).await
        }
        Session::Patch { session, output, uncommitted, ignored } => {
            super::patch::patch(global, &host, &session_ref(&session)?, output.as_deref(), &PatchOptions { uncommitted, ignored }).await
        }
        verb => {
            let done = change(global, &host, verb).await;
            host.close().await?;
            done
        }
    }
}

/// The verbs that change a session.
async fn change(global: &Global, host: &Host, verb: Session) -> anyhow::Result<Done> {
    match verb {
        Session::Fork { from, to } => {
            let from: Selector = from.checkpoint.parse()?;
            let kept = host.find(&from).await?;
            let child = if to.contains('/') {
                selector::parse_session(&to)?
            } else {
                SessionRef { agent: kept.session.agent.clone(), session: to.parse()? }
            };
            let head = host.fork(&from, &child).await?;
            if global.json {
                output::json(&json!(SessionView::of(&head)));
            } else {
                let (child, parent) = (output::safe(&child.to_string()), output::safe(&kept.session.to_string()));
                output::line(&format!("{child} begins with checkpoint {} of {parent}", kept.checkpoint.id));
            }
        }
        Session::Rollback { session, to } => {
            let session = selector::parse_session(&session)?;
            let to: Selector = match to.parse() {
                Ok(run) => Selector::Run(run),
                Err(_) => format!("{}/{}@{to}", session.agent, session.session).parse()?,
            };
            let record = host.rollback(&session, &to).await?;
            if global.json {
                output::json(&json!(RunView::of(&record)));
            } else {
                output::line(&format!(
                    "turn {} of {}: {}",
                    record.turn,
                    output::safe(&session.to_string()),
                    output_text(&record).unwrap_or_default()
                ));
            }
        }
        Session::Delete(session) => {
            let session = session_ref(&session)?;
            let head = host.delete(&session).await?;
            if global.json {
                output::json(&json!(SessionView::of(&head)));
            } else {
                output::line(&format!("{} is deleted; `landfall gc` frees what it took", output::safe(&session.to_string())));
            }
        }
        Session::List { .. } | Session::Show(_) | Session::Log { .. } | Session::Diff { .. } | Session::Patch { .. } => {}
    }
    Ok(Done::Ok)
}

async fn list(global: &Global, host: &Host, agent: Option<&AgentName>) -> anyhow::Result<Done> {
    let mut rows = vec![["SESSION", "TURNS", "RUNS", "STATE", "LAST", "COMMIT"].map(str::to_owned).to_vec()];
    let mut all = Vec::new();
    for head in host.sessions(agent).await? {
        let last = head.recent.first();
        let commit = head.checkpoint.as_ref().and_then(|checkpoint| checkpoint.root.pin.as_ref()).map(|pin| pin.commit.to_string());
        if global.json {
            all.push(json!(SessionView::of(&head)));
        } else {
            rows.push(vec![
                output::safe(&head.session.to_string()),
                head.turn.to_string(),
                head.seq.to_string(),
                SessionView::of(&head).state.to_owned(),
                last.map_or_else(|| "-".to_owned(), |last| last.status.to_string()),
                commit.map_or_else(|| "-".to_owned(), |commit| commit[..12].to_owned()),
            ]);
        }
    }
    if global.json {
        output::json(&json!({ "sessions": all }));
    } else if rows.len() == 1 {
        output::note("no sessions yet: `landfall run AGENT` makes one");
    } else {
        output::table(&rows);
    }
    Ok(Done::Ok)
}

async fn show(global: &Global, host: &Host, session: &SessionRef) -> anyhow::Result<Done> {
    let head = host.session(session).await?;
    let commit = match &head.checkpoint {
        Some(checkpoint) => {
            host.commits(&host.open_checkpoint(checkpoint.clone()), 1).await?.into_iter().next().filter(|commit| !commit.pinned)
        }
        None => None,
    };
    if global.json {
        let mut shown = json!(SessionView::of(&head));
        shown["commit"] = commit.as_ref().map(commit_json).into();
        output::json(&shown);
        return Ok(Done::Ok);
    }
    output::line(&format!("session     {}", output::safe(&head.session.to_string())));
    output::line(&format!("state       {}", SessionView::of(&head).state));
    output::line(&format!("turns       {} committed, {} runs in all", head.turn, head.seq));
    if let Some(checkpoint) = &head.checkpoint {
        output::line(&format!("checkpoint  {}", checkpoint.id));
        if let Some(pin) = &checkpoint.root.pin {
            output::line(&format!("repository  {} {}", pin.url, pin.branch.as_deref().unwrap_or("-")));
            output::line(&format!("pin         {}", pin.commit));
        }
        if let Some(commit) = &commit {
            output::line(&format!("commit      {} {}", commit.id, output::safe(commit.subject())));
        }
    }
    if let Some(from) = &head.forked_from {
        output::line(&format!("forked from {} at {}", output::safe(&from.session.to_string()), from.checkpoint));
    }
    for pin in &head.pins {
        output::line(&format!("forked to   {} at {}", output::safe(&pin.child.to_string()), pin.checkpoint.id));
    }
    if let Some(lease) = &head.lease {
        output::line(&format!("running     {} on {}, attempt {}", lease.run, lease.owner.replica, lease.attempt));
    }
    for save in &head.saves {
        output::line(&format!("saved       {} = {}", output::safe(&save.name), save.checkpoint.id));
    }
    Ok(Done::Ok)
}

async fn log(global: &Global, host: &Host, session: &SessionRef, limit: usize) -> anyhow::Result<Done> {
    let runs = host.runs(session, limit).await?;
    let mut commits = Vec::with_capacity(runs.len());
    for run in &runs {
        commits.push(host.commits_of(run).await?);
    }
    if global.json {
        let turn = |(run, commits): (&RunRecord, &Vec<CommitInfo>)| {
            let mut turn = json!(RunView::of(run));
            turn["commits"] = commits.iter().map(commit_json).collect();
            turn
        };
        let turns: Vec<Value> = runs.iter().zip(&commits).map(turn).collect();
        output::json(&json!({ "session": session.to_string(), "turns": turns }));
        return Ok(Done::Ok);
    }
    let mut rows = vec![["TURN", "STATUS", "RUN", "ENDED", "CHECKPOINT", "CHANGED", "OUTPUT"].map(str::to_owned).to_vec()];
    for (run, commits) in runs.iter().zip(&commits) {
        let first =
            run.failure.as_ref().map(|failure| failure.message.clone()).or_else(|| output_text(run).map(str::to_owned)).unwrap_or_default();
        rows.push(vec![
            if run.is_completed() { run.turn.to_string() } else { "-".to_owned() },
            run.status.to_string(),
            run.run.to_string(),
            run.ended.map_or_else(|| "-".to_owned(), rfc3339),
            run.checkpoint_id().map_or_else(|| "-".to_owned(), |id| id.to_string()[..12].to_owned()),
            output::size(run.usage.store.put_bytes),
            output::safe(&first.lines().next().unwrap_or_default().chars().take(60).collect::<String>()),
        ]);
        for commit in commits {
            let subject = output::safe(&commit.subject().chars().take(60).collect::<String>());
            rows.push(vec![
                String::new(),
                "commit".to_owned(),
                commit.id.to_string(),
                rfc3339(commit.author.time.saturating_mul(1_000_000_000)),
                String::new(),
                String::new(),
                subject,
            ]);
        }
    }
    output::table(&rows);
    Ok(Done::Ok)
}

fn commit_json(commit: &CommitInfo) -> Value {
    let signature = |by: &Signature| json!({ "name": by.name, "email": by.email, "at": rfc3339(by.time.saturating_mul(1_000_000_000)) });
    json!({
        "commit": commit.id,
        "parents": commit.parents,
        "author": signature(&commit.author),
        "committer": signature(&commit.committer),
        "message": commit.message,
    })
}

/// The output, when the record holds it itself; `run` prints longer ones whole.
fn output_text(run: &RunRecord) -> Option<&str> {
    match &run.output {
        Some(Text::Inline(text)) => Some(text),
        _ => None,
    }
}

fn kind(kind: ChangeKind) -> (&'static str, char) {
    match kind {
        ChangeKind::Added => ("added", 'A'),
        ChangeKind::Deleted => ("deleted", 'D'),
        ChangeKind::Modified => ("modified", 'M'),
        ChangeKind::TypeChanged => ("type_changed", 'T'),
    }
}

pub(super) fn change_json(change: &Change) -> Value {
    json!({ "path": shown(&change.path), "change": kind(change.kind).0 })
}

pub(super) fn print_changes(changes: &[Change]) {
    for change in changes {
        output::line(&format!("{} {}", kind(change.kind).1, output::safe(&shown(&change.path))));
    }
}
