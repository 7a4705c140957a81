//! Replicas as real processes: `landfall serve` on a store of the test's choice, and a small HTTP client to ask them.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test can't go on without it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A running `landfall serve`. It is killed with its value.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    address: SocketAddr,
    token: Option<String>,
    patience: Duration,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code; 0 when the connection ended without an answer.
    pub status: u16,
    /// The head's lines.
    pub head: String,
    /// The body, null when it isn't JSON.
    pub body: Value,
}

impl Serving {
    /// Starts a command that is `landfall --json ... serve ...` and waits until it listens.
    ///
    /// # Panics
    /// When it ends or says something else.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let said = loop {
            let read = lines.read_line(&mut text).unwrap();
            if let Ok(said) = serde_json::from_str::<Value>(&text) {
                break said;
            }
            if read == 0 {
                let _ = child.wait();
                panic!("serve ended before it listened: {text}");
            }
        };
        let address = said["listening"].as_str().and_then(|address| address.parse().ok()).expect("an address");
        Self { child, address, token: None, patience: Duration::from_secs(300) }
    }

    /// Sends this token with every request from now on.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Waits so long for an answer from now on; none is an answer with the status 0.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks for a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], None)
    }

    /// Posts a JSON body.
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &[("content-type", "application/json")], Some(body.to_string().as_bytes()))
    }

    /// Starts a turn and waits for its end for so many seconds.
    #[must_use]
    pub fn turn(&self, agent: &str, session: &str, input: &str, wait: u64) -> Answer {
        self.post(&format!("/v1/agents/{agent}/sessions/{session}/turns?wait={wait}"), &serde_json::json!({ "input": input }))
    }

    /// Sends any request. A connection that breaks is an answer with the status 0.
    ///
    /// # Panics
    /// When it can't be sent.
    #[must_use]
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
        let nothing = Answer { status: 0, head: String::new(), body: Value::Null };
        let Ok(mut stream) = TcpStream::connect(self.address) else { return nothing };
        stream.set_read_timeout(Some(self.patience)).unwrap();
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text.push_str(&format!("host: {}\r\n", self.address));
        }
        if let Some(token) = &self.token {
            text.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        // A server that refuses early may close before it has read all.
        let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.write_all(body.unwrap_or_default()));
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return nothing };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head, body: serde_json::from_slice(&bytes[end + 4..]).unwrap_or(Value::Null) }
    }

    /// Sends a signal by its name, such as `TERM`.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it at once, as a power cut would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until a signal has ended it; false when it ended otherwise, or not within `limit`.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn ended_by_signal(&mut self, limit: Duration) -> std::io::Result<bool> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code().is_none());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(false)
    }

    /// Waits until it ends by itself, and returns its exit code; -1 when a signal ended it.
    ///
    /// # Panics
    /// When it doesn't within two minutes.
    pub fn ended(&mut self) -> i32 {
        wait_for("the replica to end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for something that surely comes: only a hang ends here.
///
/// # Panics
/// After two minutes.
pub fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !there() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
