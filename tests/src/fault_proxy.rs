//! A proxy before an S3 server that does to chosen requests what networks and servers do, so that the whole client is tested with it: its
//! signatures, its retries, its connections.

#![expect(clippy::unwrap_used, reason = "a test can't go on without it")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::seaweed::Seaweed;

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The server never hears of it, and the answer is this status with this code of S3.
    Answer(u16, &'static str),
    /// The server never hears of it, and the connection is reset.
    Reset,
    /// The answer's body is half sent when the connection is reset.
    ResetInBody,
    /// The answer says that it is whole, and has half of the body.
    Truncate,
    /// One bit in the middle of the answer's body is flipped.
    Flip,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// When it came.
    pub at: Instant,
    /// Its method.
    pub method: String,
    /// Path and query, as they were sent.
    pub path: String,
    /// Whether it asks that the object isn't there yet.
    pub is_create: bool,
}

impl Request {
    /// Whether it is of this method, for an object whose path contains `part`.
    #[must_use]
    pub fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.path.contains(part)
    }
}

type Rule = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

#[derive(Default)]
struct Shared {
    rule: Option<Rule>,
    requests: Vec<(Request, Option<Fault>)>,
}

/// A running proxy. It ends with its value.
pub struct FaultProxy {
    port: u16,
    shared: Arc<Mutex<Shared>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FaultProxy {
    /// Starts one before this server; it has no faults yet.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn before(server: &Seaweed) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (upstream, rules) = (server.port(), Arc::clone(&shared));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let rules = Arc::clone(&rules);
                // A client that goes away in the middle is nobody's fault.
                tokio::spawn(async move { drop(serve(stream, upstream, &rules).await) });
            }
        });
        Self { port, shared, task }
    }

    /// Returns the options to open a store on the server through the proxy.
    #[must_use]
    pub fn options(&self, server: &Seaweed) -> BTreeMap<String, String> {
        let mut options = server.options();
        options.insert("aws_endpoint".to_owned(), format!("http://127.0.0.1:{}", self.port));
        options
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges requests by a rule from now on.
    pub fn rule(&self, rule: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        self.shared().rule = Some(Box::new(rule));
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.shared().rule = None;
    }

    /// Returns the requests that came since this was asked last, with what happened to them.
    #[must_use]
    pub fn requests(&self) -> Vec<(Request, Option<Fault>)> {
        std::mem::take(&mut self.shared().requests)
    }
}

/// Serves one request of a connection, and closes it.
#[expect(clippy::disallowed_methods, reason = "a network is slow in real time")]
async fn serve(mut client: TcpStream, upstream: u16, shared: &Mutex<Shared>) -> std::io::Result<()> {
    let (head, mut body) = read_head(&mut client).await?;
    let length = header(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let so_far = body.len();
    body.resize(length.max(so_far), 0);
    client.read_exact(&mut body[so_far..]).await?;

    let mut line = head.split(' ');
    let request = Request {
        at: Instant::now(),
        method: line.next().unwrap_or_default().to_owned(),
        path: line.next().unwrap_or_default().to_owned(),
        is_create: header(&head, "if-none-match").is_some(),
    };
    let fault = {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = shared.rule.as_mut().and_then(|rule| rule(&request));
        shared.requests.push((request, fault));
        fault
    };
    match fault {
        Some(Fault::Answer(status, code)) => {
            let xml =
                format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>");
            let answer = format!(
                "HTTP/1.1 {status} Fault\r\ncontent-type: application/xml\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{xml}",
                xml.len()
            );
            client.write_all(answer.as_bytes()).await?;
            return client.shutdown().await;
        }
        Some(Fault::Reset) => return client.set_zero_linger(),
        _ => {}
    }
    // The server closes the connection behind its answer, so its end is the answer's end. The signature doesn't cover this header.
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await?;
    let lines = head.trim_end().split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let forwarded = lines.collect::<Vec<_>>().join("\r\n") + "\r\nconnection: close\r\n\r\n";
    server.write_all(forwarded.as_bytes()).await?;
    server.write_all(&body).await?;
    let (mut head, mut body) = read_head(&mut server).await?;
    server.read_to_end(&mut body).await?;
    let half = body.len() / 2;
    match fault {
        Some(Fault::Flip) => {
            if let Some(byte) = body.get_mut(half) {
                *byte ^= 1;
            }
        }
        Some(Fault::Truncate) => {
            let lines = head.trim_end().split("\r\n").map(|line| {
                if line.to_ascii_lowercase().starts_with("content-length:") { format!("content-length: {half}") } else { line.to_owned() }
            });
            head = lines.collect::<Vec<_>>().join("\r\n") + "\r\n\r\n";
            body.truncate(half);
        }
        Some(Fault::ResetInBody) => {
            client.write_all(head.as_bytes()).await?;
            client.write_all(&body[..half]).await?;
            // What was sent arrives before the reset does.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            return client.set_zero_linger();
        }
        _ => {}
    }
    client.write_all(head.as_bytes()).await?;
    client.write_all(&body).await?;
    client.shutdown().await
}

/// Reads up to the end of a head, and returns it with what came behind it.
async fn read_head(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), body));
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.split("\r\n").find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
