//! A proxy before the S3 server that counts. It passes bytes on as they are, the `Host` header too, which is part of a request's signature.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[derive(Clone, Default)]
pub(crate) struct Counts {
    requests: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

impl Counts {
    /// Requests, bytes sent to the server and bytes got from it, so far.
    pub(crate) fn now(&self) -> (u64, u64, u64) {
        (self.requests.load(Ordering::SeqCst), self.sent.load(Ordering::SeqCst), self.received.load(Ordering::SeqCst))
    }
}

/// Starts a proxy before a server on this machine's `port`, and returns its own port.
pub(crate) fn start(port: u16) -> (u16, Counts) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let own = listener.local_addr().unwrap().port();
    let counts = Counts::default();
    let counted = counts.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (Ok(client_in), Ok(server_in)) = (client.try_clone(), server.try_clone()) else { continue };
            let up = counted.clone();
            thread::spawn(move || pass(client_in, server, &up.sent, Some(&up.requests)));
            let down = counted.clone();
            thread::spawn(move || pass(server_in, client, &down.received, None));
        }
    });
    (own, counts)
}

fn pass(mut from: TcpStream, mut to: TcpStream, bytes: &AtomicU64, requests: Option<&AtomicU64>) {
    let mut buffer = vec![0; 64 << 10];
    let mut heads = Heads::default();
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        bytes.fetch_add(count as u64, Ordering::SeqCst);
        if let Some(requests) = requests {
            requests.fetch_add(heads.count(&buffer[..count]), Ordering::SeqCst);
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Finds where requests begin in a stream of HTTP/1.1, by the lengths of their bodies.
#[derive(Default)]
struct Heads {
    head: Vec<u8>,
    body: u64,
}

impl Heads {
    fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut found = 0;
        while !bytes.is_empty() {
            let skipped = usize::try_from(self.body).unwrap_or(usize::MAX).min(bytes.len());
            self.body -= skipped as u64;
            bytes = &bytes[skipped..];
            for (at, byte) in bytes.iter().enumerate() {
                self.head.push(*byte);
                if self.head.ends_with(b"\r\n\r\n") {
                    found += 1;
                    self.body = length(&self.head);
                    self.head.clear();
                    bytes = &bytes[at + 1..];
                    break;
                }
                if at + 1 == bytes.len() {
                    return found;
                }
            }
        }
        found
    }
}

fn length(head: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let lines = text.lines().find_map(|line| line.strip_prefix("content-length:").map(str::to_owned));
    lines.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
