//! The restart matrix: a replica is killed or frozen at a chosen point of a turn, another one goes on, and a verifier that knows nothing but
//! the format says what is in the store.
//!
//! A row is a point, a way of going on, and a kind of store. Its session stands on a private repository; a command makes the first turn, the
//! victim gets the second one, and whoever goes on makes the third. The client repeats its request under the same key, as clients do.

#![expect(clippy::expect_used, reason = "a test can't go on without it")]

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use landfall::drill::{Point, Safeguard};
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::command::Commands;
use crate::git_server::{GitServer, TestRepository};
use crate::seaweed::Seaweed;
use crate::serve::{Answer, Serving};

/// The token that the host uses for the repository. It may be nowhere but in its environment and at the git server.
const TOKEN: &str = "landfall-matrix-secret-4f1d9c07ab";
/// How long a client waits for a run before it looks again.
const WAIT: u64 = 60;

/// How long anything may take that surely comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who goes on after the victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoesOn {
    /// The same replica, started again.
    Same,
    /// Another one, running all the time.
    Other,
    /// Two others at once.
    Two,
    /// Another one; the victim was only frozen, and wakes up when all is over.
    OtherAndThenTheFrozen,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Where the victim is killed, or frozen.
    pub point: Point,
    /// Who goes on.
    pub goes_on: GoesOn,
    /// A safeguard that every process lacks.
    pub without: Option<Safeguard>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<22} {:?}", self.point.name(), self.goes_on)?;
        match self.without {
            Some(safeguard) => write!(f, " without {}", safeguard.name()),
            None => Ok(()),
        }
    }
}

/// Returns the rows of a way of going on: every point for a killed victim; for a frozen one, those from its lease to its commit.
#[must_use]
pub fn rows(goes_on: GoesOn) -> Vec<Row> {
    let frozen = goes_on == GoesOn::OtherAndThenTheFrozen;
    let late = [
        Point::AcceptBefore,
        Point::AcceptAfter,
        Point::LeaseBefore,
        Point::ImportUploadBefore,
        Point::ImportUploadAfter,
        Point::CleanAfter,
    ];
    Point::ALL.iter().filter(|point| !frozen || !late.contains(point)).map(|point| Row { point: *point, goes_on, without: None }).collect()
}

/// What all rows share: the repository, a template of a cache with the compiled guest, and the S3 server.
pub struct Matrix {
    folder: tempfile::TempDir,
    server: GitServer,
    commit: String,
    files: BTreeMap<String, String>,
    seaweed: Option<Seaweed>,
}

/// How a row ended.
#[derive(Debug)]
pub struct Outcome {
    /// The row.
    pub row: Row,
    /// What went wrong.
    pub fault: Option<String>,
    /// From the victim's end to the end of its turn elsewhere.
    pub took: Duration,
}

impl Matrix {
    /// Makes what the rows share.
    ///
    /// # Errors
    /// When a fixture can't be had.
    pub async fn new(seaweed: Option<Seaweed>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let served = folder.path().join("served");
        std::fs::create_dir(&served)?;
        let server = GitServer::start(&served).await?;
        let repository = TestRepository::create(&served, "app")?;
        let mut files = BTreeMap::new();
        for (path, text) in [("README.md", "the application\n"), ("src/main.rs", "fn main() {}\n"), ("src/lib.rs", "// a library\n")] {
            repository.write(path, text)?;
            files.insert(path.to_owned(), sha256(text.as_bytes()));
        }
        let commit = repository.commit("first")?;
        server.require(Some(("x-access-token", TOKEN)));
        std::fs::write(folder.path().join("ca.pem"), server.ca_pem().context("a certificate")?)?;
        Ok(Self { folder, server, commit, files, seaweed })
    }

    /// Runs rows, so many at a time, and returns how each ended.
    ///
    /// # Errors
    /// When the guest can't be compiled once for all.
    pub fn run(&self, rows: &[Row], at_a_time: usize) -> Result<Vec<Outcome>> {
        // One run of another session compiles the guest; each process gets a copy of the result.
        let warm = World::new(self, &self.template())?;
        let (code, _) = warm.commands_json("warm", "say warm")?;
        ensure!(code == 0, "the guest can't be run at all");
        let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..at_a_time {
                scope.spawn(|| {
                    while let Some(row) = rows.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let ended = self.row(*row);
                        let (fault, took) = match ended {
                            Ok(took) => (None, took),
                            Err(error) => (Some(format!("{error:#}")), Duration::ZERO),
                        };
                        outcomes.lock().expect("no thread panics").push(Outcome { row: *row, fault, took });
                    }
                });
            }
        });
        Ok(outcomes.into_inner().expect("no thread panics"))
    }

    fn template(&self) -> PathBuf {
        self.folder.path().join("template")
    }

    fn row(&self, row: Row) -> Result<Duration> {
        let world = World::new(self, &self.template())?;
        let (kill, frozen) = match row.goes_on {
            GoesOn::OtherAndThenTheFrozen => ("freeze", true),
            _ => ("kill", false),
        };
        let without = row.without.map(|safeguard| format!(" without={}", safeguard.name())).unwrap_or_default();
        let orders = format!("{kill}={} hide{without}", row.point.name());
        let peace = format!("hide{without}");
        let imports = matches!(row.point, Point::ImportUploadBefore | Point::ImportUploadAfter);
        let mut runs = Vec::new();
        if !imports {
            let (code, first) = world.commands_json("s", "append /workspace/log one")?;
            ensure!(code == 0, "the first turn: {first}");
            runs.push(first["run"].as_str().context("a run")?.to_owned());
        }
        let others: Vec<Serving> = match row.goes_on {
            GoesOn::Same => vec![],
            GoesOn::Two => vec![world.serve("two", &peace)?, world.serve("three", &peace)?],
            GoesOn::Other | GoesOn::OtherAndThenTheFrozen => vec![world.serve("two", &peace)?],
        };
        let mut victim = world.serve("one", &orders)?.with_patience(Duration::from_secs(3));
        let second = "append /workspace/log two\nwrite /state/memory kept\nfill /workspace/large 200000\nsave half\nemit here\nenvironment\nsleep 20";
        // It may stop before it has answered; on a slow machine the client may also give up before it was heard, and asks again.
        let (end, mut asked) = (Instant::now() + PATIENCE, keyed(&victim, second, 0));
        loop {
            let stopped = if frozen { is_stopped(victim.pid()) } else { victim.ended_by_signal(Duration::from_secs(2))? };
            if stopped {
                break;
            }
            ensure!(Instant::now() < end, "the victim didn't come to its point: {asked:?}");
            std::thread::sleep(Duration::from_millis(20));
            if asked.status == 0 {
                asked = keyed(&victim, second, 0);
            }
        }
        let ended = Instant::now();
        let others = if others.is_empty() { vec![world.serve("one", &peace)?] } else { others };
        // The client repeats its request at each of those that are left, at once.
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let asking: Vec<_> = others.iter().map(|other| scope.spawn(move || keyed(other, second, WAIT))).collect();
            asking.into_iter().map(|asked| asked.join().expect("no thread panics")).collect()
        });
        let took = ended.elapsed();
        for answer in &answers {
            ensure!(answer.status == 200 && answer.body["status"] == "completed", "the second turn: {answer:?}");
            ensure!(answer.body["run"] == answers[0].body["run"], "one request became two runs");
        }
        ensure!(asked.body["run"].is_null() || asked.body["run"] == answers[0].body["run"], "the repeated request became another run");
        let output = answers[0].body["output"].as_str().unwrap_or_default();
        ensure!(!output.contains(TOKEN), "the guest saw the token");
        runs.push(answers[0].body["run"].as_str().context("a run")?.to_owned());
        let third = others[0].turn("steps", "s", "append /workspace/log three", WAIT);
        ensure!(third.status == 200 && third.body["status"] == "completed", "the third turn: {third:?}");
        runs.push(third.body["run"].as_str().context("a run")?.to_owned());
        if frozen {
            // What the sleeper still has in hand must come to nothing.
            victim.signal("CONT");
            wait(|| victim.get("/readyz").body["running"] == 0)?;
            let again = others[0].turn("steps", "s", "count /workspace/log", WAIT);
            runs.push(again.body["run"].as_str().with_context(|| format!("after the sleeper woke up: {again:?}"))?.to_owned());
        }
        // All who are left end in peace.
        for mut process in others.into_iter().chain(frozen.then_some(victim)) {
            process.signal("TERM");
            ensure!(process.ended() == 0, "a replica didn't end in peace");
        }
        let log = if imports { "two\nthree\n" } else { "one\ntwo\nthree\n" };
        let mut files = self.files.clone();
        files.insert("log".to_owned(), sha256(log.as_bytes()));
        files.insert("large".to_owned(), sha256(&noise(200_000)));
        let expected = json!({
            "sessions": [{
                "agent": "steps", "session": "s", "commit": self.commit, "turns": runs.len(), "files": files, "saves": ["half"],
                "runs": runs.iter().map(|run| (run.clone(), "completed")).collect::<BTreeMap<_, _>>(),
            }],
            "absent": [TOKEN],
            "idle": true,
        });
        world.verify(&expected)?;
        Ok(took)
    }
}

/// One row's folder, store and processes.
struct World<'m> {
    matrix: &'m Matrix,
    commands: Commands,
    template: PathBuf,
    store: Option<String>,
}

impl<'m> World<'m> {
    fn new(matrix: &'m Matrix, template: &Path) -> Result<Self> {
        let store = matrix.seaweed.as_ref().map(Seaweed::fresh_url);
        let config = format!(
            "version = 1\n{}[agents.steps]\ncomponent = \"{{guests}}/steps.wasm\"\nrepository = {{ url = \"{}\", ca_file = \"{}\" }}\n\
             credentials = [\"GIT\"]\n[credentials.GIT]\nsource = {{ env = \"MATRIX_TOKEN\" }}\naudience = [\"https://{}\"]\n\
             user = \"x-access-token\"\n[server]\nlease = \"2s\"\npoll = \"200ms\"\nconcurrency = 4\ngrace = \"10s\"\n",
            store.as_ref().map(|url| format!("[store]\nurl = \"{url}\"\n")).unwrap_or_default(),
            matrix.server.url("app"),
            matrix.folder.path().join("ca.pem").display(),
            matrix.server.authority(),
        );
        Ok(Self { matrix, commands: Commands::new(&config), template: template.to_owned(), store })
    }

    fn command(&self, cache: &str, arguments: &[&str]) -> Result<Command> {
        let cache = self.commands.folder().join(format!("cache-{cache}"));
        if self.template.exists() && !cache.exists() {
            copy(&self.template, &cache)?;
        }
        let cache = cache.to_str().context("a path")?;
        let mut command = self.commands.command(&[&["--json", "--cache", cache], arguments].concat());
        command.env("MATRIX_TOKEN", TOKEN);
        if let Some(seaweed) = &self.matrix.seaweed {
            command.envs(seaweed.options().iter().map(|(name, value)| (name.to_uppercase(), value.clone())));
        }
        Ok(command)
    }

    fn commands_json(&self, session: &str, input: &str) -> Result<(i32, Value)> {
        let name = if self.template.exists() { "command" } else { "template" };
        let ran = self.command(name, &["run", "steps", "--session", session, "--input", input])?.output()?;
        if name == "template" {
            copy(&self.commands.folder().join("cache-template"), &self.template)?;
            // Nothing but the compiled guest: packs are to be fetched.
            let _ = std::fs::remove_dir_all(self.template.join("packs"));
            let _ = std::fs::remove_dir_all(self.template.join("git"));
        }
        let text = String::from_utf8_lossy(&ran.stdout);
        let document = serde_json::from_str(&text).with_context(|| format!("{text}{}", String::from_utf8_lossy(&ran.stderr)))?;
        Ok((ran.status.code().unwrap_or(-1), document))
    }

    fn serve(&self, name: &str, orders: &str) -> Result<Serving> {
        let log = File::options().create(true).append(true).open(self.commands.folder().join("log"))?;
        let cache = if orders.contains('=') { format!("{name}-victim") } else { name.to_owned() };
        let mut command = self.command(&cache, &["serve", "--listen", "127.0.0.1:0", "--name", name])?;
        command.env("LANDFALL_DRILL", orders).env("LANDFALL_LOG", "info").stderr(log);
        Ok(Serving::start(command))
    }

    /// Asks the verifier, which reads only the store, and looks through what the processes said.
    fn verify(&self, expected: &Value) -> Result<()> {
        let log = std::fs::read_to_string(self.commands.folder().join("log"))?;
        ensure!(!log.contains(TOKEN), "the token is in a log");
        let folder = match &self.store {
            None => self.commands.store(),
            Some(url) => self.download(url)?,
        };
        let file = self.commands.folder().join("expected.json");
        std::fs::write(&file, expected.to_string())?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("verify_store.py");
        let checked = Command::new("python3").arg("-B").arg(script).arg(folder).arg(&file).output()?;
        if !checked.status.success() {
            let report: Value = serde_json::from_slice(&checked.stdout).unwrap_or_default();
            bail!("{}{}\n{}", report["problems"], String::from_utf8_lossy(&checked.stderr), last_lines(&log));
        }
        Ok(())
    }

    /// Copies the objects of an S3 store into a folder, byte for byte.
    fn download(&self, url: &str) -> Result<PathBuf> {
        use futures::TryStreamExt as _;
        use object_store::{ObjectStore as _, ObjectStoreExt as _};
        let (bucket, prefix) = url.trim_start_matches("s3://").split_once('/').context("a prefix")?;
        let options = self.matrix.seaweed.as_ref().context("a server")?.options();
        let mut builder = object_store::aws::AmazonS3Builder::new().with_bucket_name(bucket).with_allow_http(true);
        for (name, value) in options {
            builder = builder.with_config(name.parse()?, value);
        }
        let (store, to) = (builder.build()?, self.commands.folder().join("downloaded"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let all: Vec<_> = store.list(Some(&prefix.into())).try_collect().await?;
            for meta in all {
                let below = meta.location.as_ref().trim_start_matches(prefix).trim_start_matches('/').to_owned();
                let file = to.join(below);
                std::fs::create_dir_all(file.parent().context("a folder")?)?;
                std::fs::write(file, store.get(&meta.location).await?.bytes().await?)?;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        Ok(to)
    }
}

/// Asks for a turn under one key, as a client does that may have to repeat it.
fn keyed(replica: &Serving, input: &str, wait: u64) -> Answer {
    let body = json!({ "input": input }).to_string();
    let headers = [("content-type", "application/json"), ("idempotency-key", "the-second-turn")];
    let mut answer = replica.request("POST", &format!("/v1/agents/steps/sessions/s/turns?wait={wait}"), &headers, Some(body.as_bytes()));
    for _ in 0..2 {
        if wait > 0 && answer.status == 202 {
            answer = replica.get(&format!("/v1/runs/{}?wait={wait}", answer.body["run"].as_str().unwrap_or_default()));
        }
    }
    answer
}

fn wait(mut there: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !there() {
        ensure!(Instant::now() < end, "waited too long");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(done.success(), "cp -a {} {}", from.display(), to.display());
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(sha2::Sha256::digest(bytes))
}

/// What the guest's `fill` writes.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect()
}
