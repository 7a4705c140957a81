//! Real processes under load on a real S3 server: three replicas, of which one is killed or frozen every few seconds. Nothing may be lost, and
//! nothing doubled.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use landfall_tests::command::Commands;
use landfall_tests::seaweed::Seaweed;
use landfall_tests::serve::Serving;
use serde_json::{Value, json};

const CONFIG: &str = r#"
version = 1
[agents.steps]
component = "{guests}/steps.wasm"
[server]
lease = "2s"
poll = "500ms"
concurrency = 4
grace = "1s"
"#;

const NAMES: [&str; 3] = ["one", "two", "three"];
const SESSIONS: usize = 4;
/// Time between two mishaps.
const PAUSE: Duration = Duration::from_secs(4);
/// How long a frozen replica is silent: longer than its lease.
const FROZEN: Duration = Duration::from_secs(5);

/// A replica, and where it is now; none while it is down.
type Slot = RwLock<Option<Serving>>;

struct Soak {
    commands: Commands,
    seaweed: Seaweed,
    url: String,
    replicas: [Slot; 3],
    ending: AtomicBool,
    repeated: AtomicU64,
}

impl Soak {
    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.commands.command(&[&["--store", &self.url], arguments].concat());
        command.envs(self.seaweed.options().iter().map(|(name, value)| (name.to_uppercase(), value.clone())));
        command
    }

    fn start(&self, replica: usize) {
        let mut command = self.command(&["--json", "serve", "--listen", "127.0.0.1:0", "--name", NAMES[replica]]);
        command.stderr(std::process::Stdio::null());
        let serving = Serving::start(command).with_patience(Duration::from_secs(15));
        *self.replicas[replica].write().unwrap() = Some(serving);
    }

    /// Sends a turn under a key until some replica says that it has completed, and returns its run.
    fn turn(&self, session: usize, number: usize) -> String {
        let body = json!({ "input": format!("append /workspace/log {number}\nsleep 50\nappend /state/log {number}") }).to_string();
        let key = format!("turn-{number}");
        let path = format!("/v1/agents/steps/sessions/s{session}/turns?wait=10");
        for attempt in 0.. {
            let replica = &self.replicas[(session + number + attempt) % NAMES.len()];
            let answer = replica.read().unwrap().as_ref().map(|replica| {
                replica.request("POST", &path, &[("content-type", "application/json"), ("idempotency-key", &key)], Some(body.as_bytes()))
            });
            match answer {
                Some(answer) if answer.status == 200 => {
                    assert_eq!(answer.body["status"], "completed", "{answer:?}");
                    return answer.body["run"].as_str().unwrap().to_owned();
                }
                // A request that was refused for good would be a fault: nothing here is wrong with it.
                Some(answer) if (400..500).contains(&answer.status) && answer.status != 409 => panic!("{answer:?}"),
                _ => {
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
        unreachable!("it is asked for until it is done")
    }

    /// The turns of a session, one after another, until the end.
    fn work(&self, session: usize) -> Vec<String> {
        let mut runs = Vec::new();
        while !self.ending.load(Ordering::Relaxed) {
            runs.push(self.turn(session, runs.len()));
        }
        runs
    }

    /// Kills replicas, and freezes every third one instead, until the end. Returns how often.
    fn trouble(&self, until: Instant) -> (u32, u32) {
        let (mut killed, mut frozen) = (0, 0);
        for round in 0.. {
            if Instant::now() + PAUSE >= until {
                break;
            }
            std::thread::sleep(PAUSE);
            let victim = round % NAMES.len();
            if round % 3 == 2 {
                let slot = self.replicas[victim].read().unwrap();
                let replica = slot.as_ref().unwrap();
                replica.signal("STOP");
                std::thread::sleep(FROZEN);
                replica.signal("CONT");
                frozen += 1;
            } else {
                // Not under the lock: requests to it have to break off.
                let pid = self.replicas[victim].read().unwrap().as_ref().unwrap().pid();
                let sent = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
                assert!(sent.success());
                *self.replicas[victim].write().unwrap() = None;
                self.start(victim);
                killed += 1;
            }
        }
        self.ending.store(true, Ordering::Relaxed);
        (killed, frozen)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// A session has exactly the turns that its client was told of, in their order, in its log and in its files.
    fn check(&self, session: usize, told: &[String]) {
        let name = format!("steps/s{session}");
        let log = self.json(&["--json", "session", "log", &name, "--limit", "100000"]);
        let mut runs: Vec<String> = log["turns"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|turn| turn["status"] == "completed")
            .map(|turn| turn["run"].as_str().unwrap().to_owned())
            .collect();
        runs.reverse();
        assert_eq!(runs, told, "session {session}");
        let lines: String = (0..told.len()).map(|number| format!("{number}\n")).collect();
        for file in ["/workspace/log", "/state/log"] {
            let output = self.command(&["checkpoint", "cat", &name, file]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), lines, "{file} of session {session}: {output:?}");
        }
    }
}

#[expect(clippy::print_stdout, reason = "the counts are what it shows")]
fn soak(time: Duration, seaweed: Seaweed) {
    let url = seaweed.fresh_url();
    let soak = Soak {
        commands: Commands::new(CONFIG),
        seaweed,
        url,
        replicas: [const { RwLock::new(None) }; 3],
        ending: AtomicBool::new(false),
        repeated: AtomicU64::new(0),
    };
    for replica in 0..NAMES.len() {
        soak.start(replica);
    }
    let told: Mutex<Vec<(usize, Vec<String>)>> = Mutex::default();
    let until = Instant::now() + time;
    let (killed, frozen) = std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let (soak, told) = (&soak, &told);
            scope.spawn(move || {
                let runs = soak.work(session);
                told.lock().unwrap().push((session, runs));
            });
        }
        soak.trouble(until)
    });
    let told = told.into_inner().unwrap();
    let turns: usize = told.iter().map(|(_, runs)| runs.len()).sum();
    println!(
        "{turns} turns in {SESSIONS} sessions on {} replicas in {time:?}: {killed} killed, {frozen} frozen, {} requests repeated; nothing lost, nothing doubled",
        NAMES.len(),
        soak.repeated.load(Ordering::Relaxed)
    );
    assert!(killed > 0 && frozen > 0 && turns > SESSIONS, "{killed} killed, {frozen} frozen, {turns} turns");
    for (session, runs) in &told {
        assert!(!runs.is_empty(), "session {session} has no turns");
        soak.check(*session, runs);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_are_killed_and_frozen_lose_and_double_nothing() {
    let seaweed = Seaweed::shared().await;
    tokio::task::spawn_blocking(move || soak(Duration::from_secs(25), seaweed)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes two minutes: a shorter one runs every time"]
async fn two_minutes_of_it() {
    let seaweed = Seaweed::shared().await;
    tokio::task::spawn_blocking(move || soak(Duration::from_secs(120), seaweed)).await.unwrap();
}
