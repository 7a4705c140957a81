//! Traps in the way that its input names.

use landfall_guest::{Agent, Failure, Request, Response};

struct Trap;

impl Agent for Trap {
    fn run(request: Request) -> Result<Response, Failure> {
        match request.input.as_str() {
            "panic" => panic!("no such rule"),
            "bounds" => Ok(Response::from(read(u32::MAX as usize - 8).to_string())),
            "recursion" => Ok(Response::from(ackermann(4 + request.turn, 9).to_string())),
            "recursion in memory" => Ok(Response::from(recurse(request.turn).to_string())),
            "exit" => std::process::exit(3),
            other => Err(Failure::InvalidRequest(format!("no way to trap is called {other:?}"))),
        }
    }
}

fn read(address: usize) -> u8 {
    // SAFETY: outside the memory, so the machine traps before anything is read.
    unsafe { std::ptr::read_volatile(address as *const u8) }
}

/// Keeps nothing in memory: the machine's own stack overflows.
fn ackermann(m: u64, n: u64) -> u64 {
    match (m, n) {
        (0, _) => n.wrapping_add(1),
        (_, 0) => ackermann(m - 1, 1),
        _ => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

/// Keeps an array in memory: the stack there overflows first.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 16]);
    if depth == 0 { frame[0] } else { recurse(depth + 1).wrapping_add(frame[15]) }
}

landfall_guest::export!(Trap);
