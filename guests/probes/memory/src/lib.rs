//! Takes memory in blocks of 1 MiB: as many as its input says, or, when it says `all`, until there is no more. `try` stops there and
//! answers with the number of blocks; `all` aborts.

use landfall_guest::{Agent, Failure, Request, Response};

struct Memory;

const BLOCK: usize = 1 << 20;

impl Agent for Memory {
    fn run(request: Request) -> Result<Response, Failure> {
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        let count = match request.input.as_str() {
            "all" => loop {
                blocks.push(vec![1; BLOCK]);
            },
            "try" => usize::MAX,
            number => number.parse().map_err(|_| Failure::InvalidRequest(format!("{number:?} is not a number of blocks")))?,
        };
        for _ in 0..count {
            let mut block = Vec::new();
            if block.try_reserve_exact(BLOCK).is_err() {
                break;
            }
            block.resize(BLOCK, 1);
            blocks.push(block);
        }
        let len = blocks.len();
        Ok(Response::from(std::hint::black_box(blocks).len().min(len).to_string()))
    }
}

landfall_guest::export!(Memory);
