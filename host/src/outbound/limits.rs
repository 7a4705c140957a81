//! How long requests may take and how much they may move.

use std::time::Duration;

/// Most bytes of a response's head, and most of its header lines.
pub const RESPONSE_HEAD_BYTES: usize = 64 << 10;
/// Most header lines of a response.
pub const RESPONSE_HEADERS_MAX: usize = 100;
/// Most time for the name server's answer, and for the TLS handshake.
pub const SETUP: Duration = Duration::from_secs(5);

/// The limits of one door.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DoorLimits {
    /// Until a connection stands.
    pub connect: Duration,
    /// From the sent request to the response's head.
    pub first_byte: Duration,
    /// Between two pieces of the response's body.
    pub gap: Duration,
    /// For all of a request, with its redirects and its body.
    pub total: Duration,
}

/// The limits of an agent's requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboundLimits {
    /// Of `fetch`.
    pub fetch: DoorLimits,
    /// Of `wasi:http`, where model calls think for minutes and stream for more. The turn's own limit ends them too.
    pub http: DoorLimits,
    /// Bytes of a request's body through `fetch`.
    pub request: u64,
    /// Bytes of a response's body through `fetch`, counted after decompression; what is longer is cut.
    pub response: u64,
    /// Requests that are under way at once.
    pub parallel: usize,
    /// Requests to one host that are under way at once.
    pub parallel_host: usize,
    /// Requests in any minute.
    pub per_minute: u32,
    /// Bytes of all bodies of one run, sent and received.
    pub run_bytes: u64,
}

impl Default for OutboundLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            fetch: DoorLimits { connect: seconds(5), first_byte: seconds(30), gap: seconds(10), total: seconds(60) },
            http: DoorLimits { connect: seconds(5), first_byte: seconds(120), gap: seconds(120), total: seconds(15 * 60) },
            request: 1 << 20,
            response: 10 << 20,
            parallel: 16,
            parallel_host: 8,
            per_minute: 600,
            run_bytes: 4 << 30,
        }
    }
}
