//! `landfall schedule add`.

use std::io::Read as _;
use std::time::Duration;

use anyhow::Context as _;
use landfall::config::parse_span;
use landfall::host::Host;
use landfall::schedule::change::Expected;
use landfall::schedule::plan::{CatchUp, Overlap, SessionPolicy, Source, Spec};
use landfall::schedule::view::Written;

use crate::args::{Add, Global};
use crate::exit::Done;

pub(super) async fn run(global: &Global, host: &Host, args: Add) -> anyhow::Result<Done> {
    let id = super::id(&args.schedule)?;
    let schedules = host.schedules();
    let (spec, expected) = match &args.from {
        Some(from) => {
            let written: Written = serde_json::from_str(&text(from)?)
                .map_err(|error| landfall::Error::usage(format!("{from} holds no schedule: {error}")).code("invalid_schedule"))?;
            let expected = match written.revision {
                Some(revision) => Expected::Revision(revision),
                None if args.replace => Expected::Any,
                None => Expected::New,
            };
            (written.into_spec()?, expected)
        }
        None => (spec(&args)?, if args.replace { Expected::Any } else { Expected::New }),
    };
    let view = schedules.put(&id, spec, Source::Operator, expected).await?;
    super::list::changed(global, "wrote", &view)
}

fn spec(args: &Add) -> anyhow::Result<Spec> {
    let agent = args.agent.as_deref().unwrap_or_default();
    let mut spec = Spec::on_demand(agent.parse()?);
    spec.cron = args.cron.clone().filter(|cron| !cron.trim().is_empty());
    if let Some(zone) = &args.tz {
        spec.timezone.clone_from(zone);
    }
    if let Some(input) = &args.input {
        spec.input = self::input(input)?;
    }
    spec.session = match args.session.as_deref() {
        None | Some("continue") => SessionPolicy::Continue,
        Some("fresh") => SessionPolicy::Fresh,
        Some(name) => SessionPolicy::Named(name.parse()?),
    };
    if args.overlap.as_deref() == Some("queue") {
        spec.overlap = Overlap::Queue;
    }
    spec.catch_up = match args.catch_up.as_deref() {
        Some("none") => CatchUp::None,
        Some("all") => CatchUp::All,
        _ => CatchUp::Latest,
    };
    spec.catch_up_window = span(args.catch_up_window.as_deref(), spec.catch_up_window)?;
    spec.jitter = span(args.jitter.as_deref(), spec.jitter)?;
    spec.retries = args.retries.unwrap_or(spec.retries);
    spec.retry_pause = span(args.retry_pause.as_deref(), spec.retry_pause)?;
    Ok(spec)
}

fn span(text: Option<&str>, default: u64) -> anyhow::Result<u64> {
    let span = text.map(parse_span).transpose().map_err(landfall::Error::usage)?;
    Ok(span.as_ref().map_or(default, Duration::as_secs))
}

/// Returns the text given, or what standard input has for `-`.
pub(super) fn input(text: &str) -> anyhow::Result<String> {
    if text == "-" { self::text(text) } else { Ok(text.to_owned()) }
}

fn text(from: &str) -> anyhow::Result<String> {
    if from != "-" {
        return std::fs::read_to_string(from).with_context(|| format!("reading {from}"));
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).context("reading standard input")?;
    Ok(text)
}
