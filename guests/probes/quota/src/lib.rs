//! Fills its files in the way that its input names, until the host says no, and answers with what it had written and the error.

use std::fs::{self, File};
use std::io::{self, Write};

use landfall_guest::{Agent, Failure, Request, Response};

struct Quota;

impl Agent for Quota {
    fn run(request: Request) -> Result<Response, Failure> {
        let (way, root) = request.input.split_once(' ').unwrap_or((&request.input, "/workspace"));
        let (count, error) = match way {
            "bytes" => bytes(root),
            "entries" => entries(root),
            "depth" => depth(root),
            "name" => name(root),
            other => return Err(Failure::InvalidRequest(format!("no way to fill files is called {other:?}"))),
        };
        Ok(Response::from(format!("{count} {}", error.map_or_else(|| "none".to_owned(), |error| format!("{:?}", error.kind())))))
    }
}

/// One file, in pieces of 64 KiB; counts them.
fn bytes(root: &str) -> (u64, Option<io::Error>) {
    let piece = vec![b'x'; 64 << 10];
    let mut file = match File::create(format!("{root}/large")) {
        Ok(file) => file,
        Err(error) => return (0, Some(error)),
    };
    for count in 0.. {
        if let Err(error) = file.write_all(&piece) {
            return (count, Some(error));
        }
    }
    (u64::MAX, None)
}

fn entries(root: &str) -> (u64, Option<io::Error>) {
    for count in 0.. {
        if let Err(error) = fs::write(format!("{root}/{count}"), "") {
            return (count, Some(error));
        }
    }
    (u64::MAX, None)
}

fn depth(root: &str) -> (u64, Option<io::Error>) {
    let mut path = root.to_owned();
    for count in 0..100_000 {
        path.push_str("/d");
        if let Err(error) = fs::create_dir(&path) {
            return (count, Some(error));
        }
    }
    (100_000, None)
}

fn name(root: &str) -> (u64, Option<io::Error>) {
    for len in 1..10_000 {
        if let Err(error) = fs::write(format!("{root}/{}", "n".repeat(len)), "") {
            return (len as u64, Some(error));
        }
    }
    (10_000, None)
}

landfall_guest::export!(Quota);
