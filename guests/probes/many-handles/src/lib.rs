//! Opens files and closes none, as many as its input says or without end.

use std::fs::File;

use landfall_guest::{Agent, Failure, Request, Response};

struct ManyHandles;

impl Agent for ManyHandles {
    fn run(request: Request) -> Result<Response, Failure> {
        let count = request.input.parse().unwrap_or(u64::MAX);
        std::fs::write("/tmp/file", "x")?;
        for _ in 0..count {
            std::mem::forget(File::open("/tmp/file")?);
        }
        Ok(Response::from(count.to_string()))
    }
}

landfall_guest::export!(ManyHandles);
