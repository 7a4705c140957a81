//! `landfall run`: one turn.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use landfall::cancel::{CancelReason, Canceller};
use landfall::config::{Agent, Config};
use landfall::id::AgentName;
use landfall::session::view::RunView;
use landfall::trigger::{Attachment, Busy, Origin, PinChoice, Trigger, TurnRequest};

use crate::args::{Global, Run};
use crate::environment::Environment;
use crate::exit::Done;
use crate::progress::Progress;
use crate::{output, setup};

pub(crate) async fn run(global: &Global, mut environment: Environment, args: Run) -> anyhow::Result<Done> {
    let (agent, is_file) = agent(&mut environment.config, &args.agent)?;
    let input = if args.input == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading the input from stdin")?;
        text
    } else {
        args.input.clone()
    };
    let mut attachments = Vec::new();
    for file in &args.attach {
        attachments.push(attachment(file)?);
    }
    let mut params = Vec::new();
    for param in &args.param {
        let (name, value) = param.split_once('=').ok_or_else(|| landfall::Error::usage(format!("--param {param:?} isn't NAME=VALUE")))?;
        params.push((name.to_owned(), value.to_owned()));
    }
    let choice = match (&args.commit, &args.branch) {
        (Some(commit), _) => Some(PinChoice::Commit(commit.parse()?)),
        (None, Some(branch)) => Some(PinChoice::Branch(branch.clone())),
        (None, None) => None,
    };
    if let Some(named) = environment.config.agents.get(&agent) {
        environment.check_credentials(named)?;
    }
    let host = setup::host(global, environment, true).await?;
    let session = match args.session {
        Some(session) => session.parse()?,
        // A file alone is tried out: each time in a session of its own.
        None if is_file => host.fresh_session_name()?,
        None => landfall::session::selector::DEFAULT_SESSION.parse()?,
    };
    let request = TurnRequest {
        agent,
        session,
        input,
        attachments,
        choice,
        args: (!args.args.is_empty()).then_some(args.args),
        params,
        trigger: Trigger::Manual,
        key: args.key,
        busy: if args.no_wait { Busy::Refuse } else { Busy::Wait },
        origin: Origin::Command,
        run: None,
    };
    let (canceller, cancel) = Canceller::new();
    let progress = Arc::new(Progress::new(global.quiet || global.json));
    let watcher = tokio::spawn(stop_on_signal(canceller));
    let record = host.run(request, Arc::clone(&progress) as _, cancel).await;
    watcher.abort();
    progress.finish();
    // Others needn't wait to notice that this process is gone. The run's own outcome is what counts, so a failure here is only told.
    if let Err(error) = host.close().await {
        output::note(&format!("warning: {}", landfall::Error::chain(&error)));
    }
    let record = record?;
    let ok = record.is_completed();
    if global.json {
        let text = host.output(&record).await?;
        output::json(&serde_json::json!(RunView::of(&record).with_output(&text)));
        return Ok(if ok { Done::Ok } else { Done::Failed });
    }
    if ok {
        let text = host.output(&record).await?;
        output::bytes(&text)?;
        if !text.is_empty() && !text.ends_with(b"\n") {
            output::line("");
        }
    }
    if !global.quiet {
        summary(&record);
    }
    Ok(if ok { Done::Ok } else { Done::Failed })
}

fn summary(record: &landfall::session::record::RunRecord) {
    let id = record.checkpoint_id().map_or_else(|| "no checkpoint".to_owned(), |id| format!("checkpoint {}", &id.to_string()[..12]));
    if record.is_completed() {
        output::note(&format!(
            "turn {} of {} committed: {id}, {} new in {} uploads, run {}",
            record.turn,
            output::safe(&record.session.to_string()),
            output::size(record.usage.store.put_bytes),
            record.usage.store.puts,
            record.run
        ));
        return;
    }
    let reason = record.failure.as_ref();
    output::note(&format!(
        "run {} {}: {}",
        record.run,
        record.status,
        output::safe(reason.map_or("no reason was recorded", |reason| &reason.message))
    ));
    if let Some(hint) = reason.and_then(|reason| reason.hint.as_ref()) {
        output::note(&format!("  hint: {}", output::safe(hint)));
    }
    output::note(&format!("the session's files are as they were ({id})"));
}

/// Returns the name of the agent: one of the config, or one made for a component's file.
fn agent(config: &mut Config, text: &str) -> anyhow::Result<(AgentName, bool)> {
    if let Ok(name) = text.parse::<AgentName>()
        && config.agents.contains_key(&name)
    {
        return Ok((name, false));
    }
    let path = Path::new(text);
    if path.extension().is_some_and(|extension| extension == "wasm") || text.contains('/') {
        if !path.is_file() {
            return Err(landfall::Error::usage(format!("{text} is no file"))
                .hint("give a component's file, or an agent of the config")
                .into());
        }
        let stem: String = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
            .take(AgentName::MAX_LEN)
            .collect();
        let name: AgentName = stem.trim_start_matches(['.', '_', '-']).parse()?;
        let file = std::path::absolute(path).with_context(|| format!("finding {text}"))?;
        // A file never takes over what the config grants to an agent of that name.
        config.agents.insert(name.clone(), Agent::of_component(file));
        return Ok((name, true));
    }
    Ok((text.parse()?, false))
}

fn attachment(file: &Path) -> anyhow::Result<Attachment> {
    let bytes = std::fs::read(file).with_context(|| format!("reading the attachment {}", file.display()))?;
    let name = file.file_name().context("an attachment needs a file name")?.to_string_lossy().into_owned();
    Ok(Attachment { name, media_type: "application/octet-stream".to_owned(), bytes: bytes.into() })
}

/// The first Ctrl-C or SIGTERM cancels the run, which then commits nothing and gives its lease back; a second one ends the process.
async fn stop_on_signal(canceller: Canceller) {
    let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else { return };
    let mut told = false;
    loop {
        tokio::select! {
            done = tokio::signal::ctrl_c() => if done.is_err() { return },
            done = terminate.recv() => if done.is_none() { return },
        }
        if told {
            #[expect(clippy::exit, reason = "the person asked twice; the run's lease is settled by the next command on the session")]
            std::process::exit(130);
        }
        told = true;
        output::note("stopping the run; again to leave at once");
        canceller.cancel(CancelReason::Requested);
    }
}
