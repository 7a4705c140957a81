//! `landfall doctor --restart-matrix`: replicas of this program are killed in the middle of turns on the operator's own store.
//!
//! A release build can't be told to die at a place in its code. So the matrix looks at the store, and kills the replica that has the run as soon as
//! it sees there what a turn leaves on its way: the lease, a pack, the record, the commit; and at fractions of the time that an undisturbed turn took.
//! Then the same replica is started again, or one or two that were running all the time go on. Nothing outside a scratch prefix is touched.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use landfall::cancel::Cancel;
use landfall::clock::{Clock as _, SystemClock};
use landfall::host::Host;
use landfall::id::{AgentName, RunId, SessionRef};
use landfall::random::{Random as _, SystemRandom};
use landfall::session::RunState;
use landfall::store::{Key, Prefix, Store};
use landfall::trigger::{NoWatch, TurnRequest};
use serde_json::{Value, json};

use super::children::{Replica, Starter};
use crate::args::{Doctor, Global};
use crate::environment::Environment;
use crate::exit::Done;
use crate::{output, setup};

/// The verifier: it knows nothing but the format, and reads only the store.
const VERIFIER: &str = include_str!("../../../../../tests/verify_store.py");
/// Time between two looks at the store.
const LOOK: Duration = Duration::from_millis(5);
/// How long a turn may take until a row is given up.
const PATIENCE: Duration = Duration::from_secs(300);
/// Who goes on.
const WAYS: [&str; 3] = ["same", "other", "two"];

/// When the replica is killed.
#[derive(Clone, Copy)]
enum When {
    Leased,
    Writing,
    Recorded,
    Committed,
    /// So many percent of an undisturbed turn after the lease.
    After(u32),
}

const WHEN: [(&str, When); 7] = [
    ("the lease is seen", When::Leased),
    ("after 25 % of a turn", When::After(25)),
    ("after 50 % of a turn", When::After(50)),
    ("after 75 % of a turn", When::After(75)),
    ("a new pack is seen", When::Writing),
    ("the record is seen", When::Recorded),
    ("the commit is seen", When::Committed),
];

struct Row {
    when: &'static str,
    way: &'static str,
    took: Duration,
    fault: Option<String>,
}

pub(crate) async fn run(global: &Global, mut environment: Environment, args: Doctor) -> anyhow::Result<Done> {
    let url = setup::store_url(global, &environment)?;
    if url.starts_with("memory:") {
        return Err(landfall::Error::usage("a store in memory can't be shared by replicas")
            .hint("give a folder or a bucket with --store")
            .into());
    }
    let mut nonce = [0; 6];
    SystemRandom.fill(&mut nonce);
    let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    let scratch = format!("{}/restart-matrix-{nonce}", url.trim_end_matches('/'));
    let store = Store::open(&scratch, &environment.store, Arc::new(SystemClock), Arc::new(SystemRandom)).await?;
    let rows = rows(global, &mut environment, &args, &store, &scratch, &nonce).await;
    // Whatever happened, nothing is left behind.
    if let Err(error) = clean(&store, &scratch).await {
        output::note(&format!("warning: {scratch} could not be deleted: {error:#}"));
    }
    let (rows, verdict) = rows?;
    let red = rows.iter().filter(|row| row.fault.is_some()).count() + usize::from(verdict.fault.is_some());
    if global.json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| json!({ "killed_when": row.when, "goes_on": row.way, "ok": row.fault.is_none(), "took_ms": row.took.as_millis(), "fault": row.fault }))
            .collect();
        output::json(&json!({
            "store": url,
            "ok": red == 0,
            "rows": rows,
            "verified": { "by": verdict.by, "ok": verdict.fault.is_none(), "fault": verdict.fault },
        }));
    } else {
        let mut table = vec![["", "KILLED WHEN", "GOES ON", "TURN ENDED AFTER"].map(str::to_owned).to_vec()];
        for row in &rows {
            let colour = if row.fault.is_none() { "green" } else { "RED" };
            let took = row.fault.clone().unwrap_or_else(|| format!("{} ms", row.took.as_millis()));
            table.push(vec![colour.to_owned(), row.when.to_owned(), row.way.to_owned(), output::safe(&took)]);
        }
        output::table(&table);
        output::line(&match &verdict.fault {
            None => format!("{} rows, {red} red; the store was verified by {}", rows.len(), verdict.by),
            Some(fault) => format!("{} rows; {} found: {}", rows.len(), verdict.by, output::safe(fault)),
        });
    }
    Ok(if red == 0 { Done::Ok } else { Done::Failed })
}

/// What was found in the store when all rows were over.
struct Verdict {
    by: &'static str,
    fault: Option<String>,
}

async fn rows(
    global: &Global,
    environment: &mut Environment,
    args: &Doctor,
    store: &Store,
    scratch: &str,
    nonce: &str,
) -> anyhow::Result<(Vec<Row>, Verdict)> {
    let agent = chosen(environment, args)?;
    let folder = std::env::temp_dir().join(format!("landfall-restart-matrix-{nonce}"));
    std::fs::create_dir_all(&folder)?;
    let starter = Starter::new(global, environment, scratch, &folder)?;
    let secrets: Vec<String> = environment.secrets.iter().map(|(_, secret)| secret.expose().to_owned()).collect();
    let mut builder = Host::builder(store.clone(), std::mem::take(&mut environment.config))
        .cache_dir(setup::cache_dir(global, environment))
        .broad_token(environment.broad_token);
    for (name, secret) in std::mem::take(&mut environment.secrets) {
        builder = builder.secret(name, secret);
    }
    let host = builder.build()?;
    let bench = Bench { host, store: store.clone(), starter, agent, input: args.input.clone() };
    // The component is compiled, the commit imported, and a turn timed.
    bench.undisturbed("warm").await?;
    let turn = bench.undisturbed("warm").await?;
    let (mut rows, mut sessions) = (Vec::new(), Vec::new());
    for (n, (when, way)) in WHEN.iter().flat_map(|when| WAYS.map(|way| (when, way))).enumerate() {
        let mut expected = BTreeMap::new();
        let session = format!("row-{n}");
        let (took, fault) = match bench.row(n, &session, when.1, way, turn, &mut expected).await {
            Ok(took) => (took, None),
            Err(error) => (Duration::ZERO, Some(format!("{error:#}"))),
        };
        if !global.quiet {
            output::note(&format!(
                "{:>2} of {}: {}, {way}: {}",
                n + 1,
                WHEN.len() * WAYS.len(),
                when.0,
                fault.as_deref().unwrap_or("green")
            ));
        }
        rows.push(Row { when: when.0, way, took, fault });
        let head = bench.host.session(&bench.session(&session)?).await?;
        let pin = head.checkpoint.as_ref().and_then(|checkpoint| checkpoint.root.pin.as_ref()).map(|pin| pin.commit);
        let turns = expected.values().filter(|status| *status == "completed").count();
        sessions.push(json!({ "agent": bench.agent, "session": session, "commit": pin, "turns": turns, "runs": expected }));
    }
    bench.host.close().await?;
    let expected = json!({ "sessions": sessions, "absent": secrets, "idle": true });
    let verdict = verify(store, &folder, &expected).await;
    let logs = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&folder);
    let mut verdict = verdict?;
    if verdict.fault.is_none() && secrets.iter().any(|secret| logs.contains(secret)) {
        verdict.fault = Some("a credential is in a replica's log".to_owned());
    }
    Ok((rows, verdict))
}

fn chosen(environment: &Environment, args: &Doctor) -> anyhow::Result<AgentName> {
    if let Some(agent) = &args.agent {
        return Ok(agent.parse()?);
    }
    let mut agents = environment.config.agents.keys();
    match (agents.next(), agents.next()) {
        (Some(only), None) => Ok(only.clone()),
        _ => Err(landfall::Error::usage("the restart matrix needs an agent whose turns may be cut off and repeated")
            .hint("--agent NAME")
            .into()),
    }
}

/// What the rows are run with.
struct Bench {
    host: Host,
    store: Store,
    starter: Starter,
    agent: AgentName,
    input: String,
}

impl Bench {
    fn session(&self, name: &str) -> landfall::Result<SessionRef> {
        Ok(SessionRef { agent: self.agent.clone(), session: name.parse()? })
    }

    fn request(&self, session: &str) -> landfall::Result<TurnRequest> {
        Ok(TurnRequest::new(self.agent.clone(), session.parse()?, self.input.clone()))
    }

    /// Runs a turn in this process, and returns how long it took.
    async fn undisturbed(&self, session: &str) -> anyhow::Result<Duration> {
        let began = SystemClock.boot();
        self.host.run(self.request(session)?, Arc::new(NoWatch), Cancel::never()).await?;
        Ok(SystemClock.boot().saturating_sub(began))
    }

    /// One row: a turn in peace, one that is cut off, and one after it.
    async fn row(
        &self,
        n: usize,
        name: &str,
        when: When,
        way: &str,
        turn: Duration,
        expected: &mut BTreeMap<String, String>,
    ) -> anyhow::Result<Duration> {
        let session = self.session(name)?;
        let first = self.host.run(self.request(name)?, Arc::new(NoWatch), Cancel::never()).await?;
        expected.insert(first.run.to_string(), first.status.to_string());
        let names = match way {
            "same" => &["one"][..],
            "other" => &["one", "two"],
            _ => &["one", "two", "three"],
        };
        let mut replicas: Vec<Replica> = names.iter().map(|name| self.starter.start(name, n)).collect::<anyhow::Result<_>>()?;
        let run = self.host.submit(self.request(name)?).await?.run;
        let owner = self.seen(&session, run, when, turn).await?;
        let began = SystemClock.boot();
        let victim = replicas.iter().position(|replica| Some(&replica.name) == owner.as_ref()).unwrap_or(0);
        let mut victim = replicas.remove(victim);
        victim.kill().await?;
        if way == "same" {
            replicas.push(self.starter.start(&victim.name, n)?);
        }
        let status = self.ended(&session, run).await?;
        let took = SystemClock.boot().saturating_sub(began);
        expected.insert(run.to_string(), status);
        let last = self.host.submit(self.request(name)?).await?.run;
        let status = self.ended(&session, last).await?;
        expected.insert(last.to_string(), status);
        // Every record in its place, every page and chunk what its id says.
        let runs = self.host.runs(&session, 100).await?;
        if runs.len() != expected.len() {
            bail!("{} runs have ended, not {}", runs.len(), expected.len());
        }
        if let Some(checkpoint) = self.host.session(&session).await?.checkpoint {
            let report = self.host.verify(&self.host.open_checkpoint(checkpoint), true).await?;
            if !report.is_ok() {
                bail!("the session's checkpoint is damaged");
            }
        }
        Ok(took)
    }

    /// Waits until the store shows it, and returns the replica that has the run.
    async fn seen(&self, session: &SessionRef, run: RunId, when: When, turn: Duration) -> anyhow::Result<Option<String>> {
        let packs = self.packs(session).await?;
        let (mut owner, mut leased) = (None, None);
        let end = SystemClock.boot() + PATIENCE;
        loop {
            let now = SystemClock.boot();
            if now >= end {
                bail!("the turn didn't get so far");
            }
            let head = self.host.session(session).await?;
            if let Some(lease) = head.lease.as_ref().filter(|lease| lease.run == run) {
                owner = Some(lease.owner.replica.to_string());
                leased.get_or_insert(now);
            }
            let seen = match when {
                // A turn that was faster than the looks has been through all of them.
                _ if head.ended(run).is_some() => true,
                When::Leased => owner.is_some(),
                When::Writing => owner.is_some() && self.packs(session).await? > packs,
                When::Recorded => owner.is_some() && self.store.size(&Key::Run(session.clone(), run)).await?.is_some(),
                When::Committed => false,
                When::After(percent) => leased.is_some_and(|leased| now >= leased + turn * percent / 100),
            };
            if seen {
                return Ok(owner);
            }
            SystemClock.sleep(LOOK).await;
        }
    }

    async fn packs(&self, session: &SessionRef) -> landfall::Result<usize> {
        Ok(self.store.list(&Prefix::SessionPacks(session.clone())).await?.objects.len())
    }

    async fn ended(&self, session: &SessionRef, run: RunId) -> anyhow::Result<String> {
        let end = SystemClock.boot() + PATIENCE;
        loop {
            if let RunState::Ended(record) = self.host.run_state(session, run).await? {
                return Ok(record.status.to_string());
            }
            if SystemClock.boot() >= end {
                bail!("run {run} didn't end");
            }
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Copies the store into a folder and has it verified by a program that shares no code with this one, where Python 3 is there to run it.
async fn verify(store: &Store, folder: &Path, expected: &Value) -> anyhow::Result<Verdict> {
    let copy = folder.join("store");
    let mut raw = Vec::new();
    for listed in store.list(&Prefix::All).await?.objects {
        let object = store.get(&listed.key, listed.size).await?;
        let file = copy.join(listed.key.to_string());
        std::fs::create_dir_all(file.parent().context("a key has a folder")?)?;
        std::fs::write(&file, &object.bytes)?;
        raw.push((listed.key, object.bytes));
    }
    std::fs::write(folder.join("verify_store.py"), VERIFIER)?;
    std::fs::write(folder.join("expected.json"), expected.to_string())?;
    let asked = tokio::process::Command::new("python3")
        .arg("-B")
        .args([folder.join("verify_store.py"), copy, folder.join("expected.json")])
        .stdin(Stdio::null())
        .output()
        .await;
    let Ok(answer) = asked else {
        let secrets = expected["absent"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = raw.iter().find(|(_, bytes)| {
            secrets.iter().filter_map(Value::as_str).any(|secret| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()))
        });
        let fault = found.map(|(key, _)| format!("a credential is in {key}"));
        return Ok(Verdict { by: "this program alone: an independent verifier needs python3", fault });
    };
    let report: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
    let fault = match (answer.status.success(), report["problems"].as_array()) {
        (true, _) => None,
        (false, Some(problems)) => {
            Some(problems.iter().map(|one| format!("{}: {}", one["where"], one["why"])).collect::<Vec<_>>().join("; "))
        }
        (false, None) => Some(String::from_utf8_lossy(&answer.stderr).into_owned()),
    };
    Ok(Verdict { by: "an independent verifier (verify_store.py)", fault })
}

/// Deletes every object of the scratch store.
async fn clean(store: &Store, url: &str) -> anyhow::Result<()> {
    for listed in store.list(&Prefix::All).await?.objects {
        store.delete(&listed.key).await?;
    }
    // A folder has lock files and empty folders besides.
    if let Some(folder) = url::Url::parse(url).ok().filter(|url| url.scheme() == "file").and_then(|url| url.to_file_path().ok()) {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}
