//! A real S3 server: one SeaweedFS for all tests of a run. Each test is a process of its own, so they share it through a folder:
//! the first one starts the server and writes down where it is; it is stopped, and the folder removed, when the test runner has ended.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test can't go on without it")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use object_store::ObjectStoreExt as _;
use object_store::aws::AmazonS3Builder;

/// The bucket that is there.
pub const BUCKET: &str = "landfall-tests";
const KEY: &str = "landfall-test-key";
const SECRET: &str = "landfall-test-secret-not-a-secret";
/// How long the server may take to be ready. It usually takes 5 to 40 seconds.
const START: Duration = Duration::from_secs(150);

/// Stops the server when the test runner has ended, or when the server has ended by itself. `$1` is the runner, `$2` the server, `$3` the folder.
const WATCH: &str = r#"while kill -0 "$1" 2>/dev/null && kill -0 "$2" 2>/dev/null; do sleep 1; done; kill "$2" 2>/dev/null; sleep 2; kill -9 "$2" 2>/dev/null; rm -rf "$3""#;

/// The running server.
#[derive(Debug, Clone)]
pub struct Seaweed {
    port: u16,
}

impl Seaweed {
    /// Returns the server of this test run; the first caller starts it.
    ///
    /// # Panics
    /// When it isn't installed or doesn't get ready.
    pub async fn shared() -> Self {
        let runner = std::os::unix::process::parent_id();
        let folder = std::env::temp_dir().join(format!("landfall-seaweed-{runner}"));
        fs::create_dir_all(&folder).unwrap();
        // Waiting for the lock is waiting for the one who starts the server.
        let waiting = folder.clone();
        let port = tokio::task::spawn_blocking(move || {
            let lock = File::create(waiting.join("lock")).unwrap();
            lock.lock().unwrap();
            let ready = waiting.join("ready");
            if let Some(port) = fs::read_to_string(&ready).ok().and_then(|text| text.parse().ok()).filter(|port| answers(*port)) {
                return port;
            }
            let port = (0..3).find_map(|_| start(&waiting, runner)).expect("SeaweedFS got ready");
            fs::write(&ready, port.to_string()).unwrap();
            port
        })
        .await
        .unwrap();
        Self { port }
    }

    /// Returns the URL of an unused prefix.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the server outlives this process, and its prefixes may not come twice")]
    pub fn fresh_url(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Process ids come round again within one run of the tests; the time doesn't.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        format!("s3://{BUCKET}/t{now}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the options to open a store on this server.
    #[must_use]
    pub fn options(&self) -> BTreeMap<String, String> {
        [
            ("aws_endpoint", self.endpoint().as_str()),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", KEY),
            ("aws_secret_access_key", SECRET),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Returns the port that it serves S3 on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the server's URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Starts the server and waits until it serves S3; none when it ended, for one because somebody else took one of the ports.
fn start(folder: &Path, runner: u32) -> Option<u16> {
    let data = folder.join("data");
    let _ = fs::remove_dir_all(&data);
    fs::create_dir_all(&data).unwrap();
    let config = folder.join("s3.json");
    let identity = format!(
        r#"{{"identities":[{{"name":"tests","credentials":[{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}],"actions":["Admin","Read","Write","List","Tagging"]}}]}}"#
    );
    fs::write(&config, identity).unwrap();
    let log = File::create(folder.join("log")).unwrap();
    let held: Vec<TcpListener> = (0..10).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    let ports: Vec<u16> = held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    drop(held);
    let mut command = Command::new(crate::tools::weed());
    command.arg("server").arg(format!("-dir={}", data.display())).arg(format!("-s3.config={}", config.display()));
    command.args([
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-s3",
        "-master.volumeSizeLimitMB=256",
        "-volume.max=64",
    ]);
    let names = [
        "master.port",
        "master.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "filer.port",
        "filer.port.grpc",
        "s3.port",
        "s3.port.grpc",
        "s3.port.iceberg",
        "s3.port.lance",
    ];
    command.args(names.iter().zip(&ports).map(|(name, port)| format!("-{name}={port}")));
    // Its own process group: a Ctrl-C at the runner isn't meant for it, and the watcher stops it anyway.
    command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
    #[expect(clippy::zombie_processes, reason = "it outlives this test process on purpose; the watcher ends it with the run")]
    let mut server = command.spawn().unwrap();
    let args = [runner.to_string(), server.id().to_string(), folder.display().to_string()];
    let watcher = Command::new("sh")
        .args(["-c", WATCH, "sh"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    drop(watcher.unwrap());
    let port = ports[6];
    let began = Instant::now();
    while began.elapsed() < START {
        if server.try_wait().unwrap().is_some() {
            return None;
        }
        if is_writable(port) {
            return Some(port);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let _ = server.kill();
    panic!("SeaweedFS isn't ready after {START:?}: see {}", PathBuf::from(folder).join("log").display());
}

/// The S3 port is open before the rest of the server is there: only a write that succeeds says that it is ready.
/// It also makes the bucket: SeaweedFS does that at the first write into one, which a real S3 doesn't.
fn is_writable(port: u16) -> bool {
    if !answers(port) {
        return false;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = AmazonS3Builder::new()
        .with_endpoint(format!("http://127.0.0.1:{port}"))
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id(KEY)
        .with_secret_access_key(SECRET)
        .with_bucket_name(BUCKET)
        .with_retry(object_store::RetryConfig { max_retries: 0, ..object_store::RetryConfig::default() })
        .build()
        .unwrap();
    runtime.block_on(async { client.put(&"bucket-is-there".into(), "x".into()).await.is_ok() })
}
