//! Answers with its input and says what it was asked, so that a test sees that a request arrived whole.

use landfall_guest::{Agent, Failure, Request, Response};

struct Hello;

impl Agent for Hello {
    fn run(request: Request) -> Result<Response, Failure> {
        println!("turn {} of {}/{}, attempt {}", request.turn, request.agent, request.session, request.attempt);
        match request.input.strip_prefix("fail:") {
            Some(why) => Err(Failure::Other(why.trim().to_owned())),
            None => Ok(Response::from(format!("hello {}", request.input))),
        }
    }
}

landfall_guest::export!(Hello);
