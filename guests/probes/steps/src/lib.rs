//! Does what its input says, one step a line, so that a test decides what a turn changes, how long it takes and how it ends.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::Duration;

use landfall_guest::checkpoints;
use landfall_guest::{Agent, Failure, Request, Response, progress};

struct Steps;

impl Agent for Steps {
    fn run(request: Request) -> Result<Response, Failure> {
        let mut said = Vec::new();
        for line in request.input.lines() {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
            let failed = |error: std::io::Error| Failure::Other(format!("{line}: {error}"));
            match verb {
                // A file with this text.
                "write" => fs::write(first, second).map_err(failed)?,
                // One more line at a file's end.
                "append" => {
                    let mut file = OpenOptions::new().create(true).append(true).open(first).map_err(failed)?;
                    writeln!(file, "{second}").map_err(failed)?;
                }
                // So many bytes that don't compress.
                "fill" => fs::write(first, noise(second.parse().unwrap_or(0))).map_err(failed)?,
                "remove" => fs::remove_file(first).map_err(failed)?,
                // A file's text becomes part of the answer.
                "read" => said.push(fs::read_to_string(first).map_err(failed)?),
                // How many lines a file has, none when it isn't there.
                "count" => said.push(fs::read_to_string(first).map_or(0, |text| text.lines().count()).to_string()),
                "save" => said.push(checkpoints::save(rest).map_err(|error| Failure::Other(format!("{line}: {error}")))?.id),
                "sleep" => std::thread::sleep(Duration::from_millis(first.parse().unwrap_or(0))),
                "emit" => progress::emit("step", rest).map_err(|error| Failure::Other(format!("{line}: {error}")))?,
                "attempt" => said.push(request.attempt.to_string()),
                "say" => said.push(rest.to_owned()),
                // Everything that a guest can see of its process.
                "environment" => {
                    said.extend(std::env::args());
                    said.extend(std::env::vars().map(|(name, value)| format!("{name}={value}")));
                }
                "fail" => return Err(Failure::Other(rest.to_owned())),
                other => return Err(Failure::InvalidRequest(format!("no step is called {other:?}"))),
            }
        }
        Ok(Response::from(said.join("\n")))
    }
}

/// Bytes of a linear congruential generator (the constants of Knuth's MMIX): the same every time, and nothing that a compressor can use.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

landfall_guest::export!(Steps);
