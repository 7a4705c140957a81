//! Never ends, in the way that its input names.

use std::hint::black_box;
use std::time::Duration;

use landfall_guest::{Agent, Failure, Request, Response};

struct Spin;

impl Agent for Spin {
    fn run(request: Request) -> Result<Response, Failure> {
        match request.input.as_str() {
            // Never calls the host.
            "loop" => loop {
                black_box(());
            },
            // Calls the host all the time.
            "calls" => loop {
                black_box(std::time::Instant::now());
            },
            // Waits in one call of the host.
            "sleep" => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            other => Err(Failure::InvalidRequest(format!("no way to spin is called {other:?}"))),
        }
    }
}

landfall_guest::export!(Spin);
