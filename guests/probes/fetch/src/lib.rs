//! Asks the network for what its input says and writes down every byte that it gets.
//!
//! A line is `METHOD FORM URL`, with ` | NAME: VALUE` for each header and ` < BODY` at the end; `form` is text, bytes or readable.

use landfall_guest::fetch::{self, Content};
use landfall_guest::{Agent, Error, Failure, Request, Response};

struct Fetch;

impl Agent for Fetch {
    fn run(request: Request) -> Result<Response, Failure> {
        let lines: Vec<String> = request.input.lines().map(|line| ask(line).unwrap_or_else(told)).collect();
        let said = lines.join("\n");
        // What a hostile agent keeps of what it saw.
        std::fs::write("/state/seen", &said)?;
        Ok(Response::from(said))
    }
}

fn ask(line: &str) -> Result<String, Error> {
    let (line, body) = line.split_once(" < ").unwrap_or((line, ""));
    let mut parts = line.split(" | ");
    let mut first = parts.next().unwrap_or_default().splitn(3, ' ');
    let (method, form, url) = (first.next().unwrap_or_default(), first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let mut asked = fetch::request(method, url).body(body);
    asked = match form {
        "bytes" => asked.bytes(),
        "readable" => asked.readable(),
        _ => asked,
    };
    for header in parts {
        let (name, value) = header.split_once(": ").unwrap_or((header, ""));
        asked = asked.header(name, &value.replace("\\r\\n", "\r\n"));
    }
    let answer = asked.send()?;
    let content = match &answer.content {
        Content::Text(text) => text.clone(),
        Content::Bytes(bytes) => format!("{} bytes {:?}", bytes.len(), &bytes[..bytes.len().min(8)]),
    };
    let headers: Vec<String> = answer.headers.iter().map(|header| format!("{}={}", header.name, header.value)).collect();
    let cut = if answer.truncated { " cut" } else { "" };
    Ok(format!("{} {}{cut} [{}] {content}", answer.status, answer.url, headers.join("; ")))
}

fn told(error: Error) -> String {
    match error {
        Error::Denied(denial) => format!("denied {}: {}; {}", denial.code, denial.why, denial.config_line.unwrap_or_default()),
        error => error.to_string(),
    }
}

landfall_guest::export!(Fetch);
