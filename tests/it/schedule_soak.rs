//! Schedules on real processes and a real S3 server: replicas are killed every few seconds while minutes come and triggers are pulled. Each
//! due minute and each trigger has one official run.

use std::collections::BTreeSet;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use landfall_tests::command::Commands;
use landfall_tests::seaweed::Seaweed;
use landfall_tests::serve::{Answer, Serving, wait_for};
use serde_json::{Value, json};

const CONFIG: &str = r#"
version = 1
[agents.steps]
component = "{guests}/steps.wasm"
[agents.steps.limits]
runs_per_hour = 100000
[server]
lease = "2s"
poll = "500ms"
concurrency = 4
grace = "1s"
"#;

const NAMES: [&str; 3] = ["one", "two", "three"];
/// Plans that are due every minute.
const PLANS: usize = 20;
/// Time between two kills.
const PAUSE: Duration = Duration::from_secs(3);

struct Soak {
    commands: Commands,
    seaweed: Seaweed,
    url: String,
    replicas: [RwLock<Option<Serving>>; 3],
    ending: AtomicBool,
}

/// Seconds since 1970, by this machine's clock.
#[expect(clippy::disallowed_methods, reason = "the servers are processes of their own, on the real clock")]
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
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
        *self.replicas[replica].write().unwrap() = Some(Serving::start(command).with_patience(Duration::from_secs(15)));
    }

    /// Asks one replica after another until one says something that isn't a fault of its own.
    fn ask(&self, method: &str, path: &str, body: &Value, key: Option<&str>) -> Answer {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(key.map(|key| ("idempotency-key", key)));
        for attempt in 0.. {
            let replica = self.replicas[attempt % NAMES.len()].read().unwrap();
            let answer = replica.as_ref().map(|replica| replica.request(method, path, &headers, Some(body.to_string().as_bytes())));
            drop(replica);
            match answer {
                Some(answer) if (200..500).contains(&answer.status) => return answer,
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        unreachable!("it is asked until there is an answer")
    }

    /// Pulls a trigger again and again, each time under a key of its own, and returns the runs.
    fn pull(&self) -> Vec<String> {
        let mut runs = Vec::new();
        while !self.ending.load(Ordering::Relaxed) {
            let key = format!("key-{}", runs.len());
            let answer =
                self.ask("POST", "/v1/schedules/asked/trigger", &json!({ "payload": format!("append /workspace/log {key}") }), Some(&key));
            // As many as may wait are waiting: it has to be asked for again.
            if answer.status == 409 || answer.status == 429 {
                std::thread::sleep(Duration::from_millis(200));
                continue;
            }
            assert_eq!(answer.status, 202, "{answer:?}");
            runs.push(answer.body["run"].as_str().unwrap().to_owned());
            std::thread::sleep(Duration::from_millis(100));
        }
        runs
    }

    fn trouble(&self, until: Instant) -> u32 {
        let mut killed = 0;
        for round in 0.. {
            if Instant::now() + PAUSE >= until {
                break;
            }
            std::thread::sleep(PAUSE);
            let victim = round % NAMES.len();
            // Not under the lock: requests to it have to break off.
            let pid = self.replicas[victim].read().unwrap().as_ref().unwrap().pid();
            assert!(std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
            *self.replicas[victim].write().unwrap() = None;
            self.start(victim);
            killed += 1;
        }
        self.ending.store(true, Ordering::Relaxed);
        killed
    }

    /// Waits until nothing of a schedule is under way, and returns its history, oldest first.
    fn history(&self, id: &str) -> Vec<Value> {
        wait_for("the last runs", || self.ask("GET", &format!("/v1/schedules/{id}"), &Value::Null, None).body["running"] == json!([]));
        let mut history = self.ask("GET", &format!("/v1/schedules/{id}/history"), &Value::Null, None).body["history"].take();
        let mut entries = std::mem::take(history.as_array_mut().unwrap());
        entries.reverse();
        entries
    }

    /// The lines that the runs of a schedule left in the files of its session.
    fn lines(&self, id: &str) -> Vec<String> {
        let output = self.command(&["checkpoint", "cat", &format!("steps/{id}"), "/workspace/log"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

#[expect(clippy::print_stdout, reason = "the counts are what it shows")]
fn soak(least: u64, seaweed: Seaweed) {
    let url = seaweed.fresh_url();
    let soak =
        Soak { commands: Commands::new(CONFIG), seaweed, url, replicas: [const { RwLock::new(None) }; 3], ending: AtomicBool::new(false) };
    for replica in 0..NAMES.len() {
        soak.start(replica);
    }
    for plan in 0..PLANS {
        let body =
            json!({ "agent": "steps", "cron": "* * * * *", "overlap": "queue", "catch_up": "all", "input": "append /workspace/log tick" });
        assert_eq!(soak.ask("PUT", &format!("/v1/schedules/p{plan}"), &body, None).status, 201);
    }
    let asked = json!({ "agent": "steps", "overlap": "queue" });
    assert_eq!(soak.ask("PUT", "/v1/schedules/asked", &asked, None).status, 201);
    let armed = now();
    // Past the next minute in any case, and so long that it is killed on both sides of it.
    let end = (armed + least).max(armed.next_multiple_of(60) + 9);
    let until = Instant::now() + Duration::from_secs(end - now());
    let (killed, pulled) = std::thread::scope(|scope| {
        let pulling = scope.spawn(|| soak.pull());
        (soak.trouble(until), pulling.join().unwrap())
    });
    for plan in 0..PLANS {
        assert_eq!(soak.ask("POST", &format!("/v1/schedules/p{plan}/pause"), &json!({}), None).status, 200);
    }
    let (mut ticks, mut late) = (0, Vec::new());
    let last_before_the_end = (end - 8) / 60 * 60;
    for plan in 0..PLANS {
        let id = format!("p{plan}");
        let history = soak.history(&id);
        assert!(history.iter().all(|entry| entry["outcome"] == "ran"), "{history:?}");
        let got: Vec<&str> = history.iter().map(|entry| entry["tick"].as_str().unwrap()).collect();
        // Minute after minute from the first one after it was made, none left out, none twice.
        let first = armed.next_multiple_of(60);
        let want: Vec<String> = (0..).map(|n| first + n * 60).take(got.len()).map(rfc3339).collect();
        // A plan may have been made right before a minute that had begun when the last one was made.
        let skew = usize::from(got.first().is_some_and(|tick| *tick == rfc3339(first - 60)));
        assert_eq!(got[skew..], want[..got.len() - skew], "{id}");
        assert!(got.last().is_some_and(|last| *last >= rfc3339(last_before_the_end).as_str()), "{id}: {got:?} before {end}");
        assert_eq!(soak.lines(&id).len(), got.len(), "{id}: each run left one line");
        ticks += got.len();
        late.extend(history.iter().filter_map(|entry| entry["late_ms"].as_u64()));
    }
    let history = soak.history("asked");
    let ran = soak.lines("asked");
    let wanted: Vec<String> = (0..pulled.len()).map(|n| format!("key-{n}")).collect();
    assert_eq!(ran, wanted, "each trigger ran once, in order");
    assert_eq!(pulled.iter().collect::<BTreeSet<_>>().len(), pulled.len());
    assert!(history.iter().all(|entry| entry["outcome"] == "ran"), "{history:?}");
    late.sort_unstable();
    println!(
        "{ticks} ticks of {PLANS} plans and {} triggers on {} replicas in {} s, {killed} killed: each ran once; lateness p50 {} ms, p95 {} ms, most {} ms",
        pulled.len(),
        NAMES.len(),
        end - armed,
        late[late.len() / 2],
        late[late.len() * 95 / 100],
        late[late.len() - 1]
    );
    assert!(killed > 2 && ticks >= PLANS && !pulled.is_empty());
}

/// Formats seconds since 1970 as ticks are shown.
fn rfc3339(seconds: u64) -> String {
    landfall::tick::Tick::from_seconds(i64::try_from(seconds).unwrap()).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_replicas_leave_out_no_minute_and_no_trigger_and_double_none() {
    let seaweed = Seaweed::shared().await;
    tokio::task::spawn_blocking(move || soak(20, seaweed)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes two minutes: a shorter one runs every time"]
async fn two_minutes_of_it() {
    let seaweed = Seaweed::shared().await;
    tokio::task::spawn_blocking(move || soak(120, seaweed)).await.unwrap();
}
