//! An ordinary client of `wasi:http` (the crate `waki`): one request per line of its input, `METHOD URL`, with ` | NAME: VALUE` for each
//! header and ` < BODY` at the end. `upload SIZE URL` sends so many bytes. It prints every byte that it gets. `time N GET URL` asks N times
//! and prints how many microseconds each took, to the last byte.

use std::io::Read as _;

use waki::header::HeaderName;
use waki::{Client, Method};

fn main() -> std::io::Result<()> {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    for line in input.lines() {
        println!("{}", ask(line).unwrap_or_else(|error| format!("error: {error:#?}").replace('\n', " ")));
    }
    Ok(())
}

fn ask(line: &str) -> anyhow::Result<String> {
    if let Some((count, line)) = line.strip_prefix("time ").and_then(|rest| rest.split_once(' ')) {
        return time(count.parse()?, line);
    }
    let (line, body) = line.split_once(" < ").unwrap_or((line, ""));
    let mut parts = line.split(" | ");
    let words: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
    let headers: Vec<(String, String)> = parts
        .filter_map(|header| header.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.replace("\\r\\n", "\r\n")))
        .collect();
    let (method, url, body) = match words.as_slice() {
        ["upload", size, url] => (Method::Post, *url, vec![b'u'; size.parse()?]),
        [method, url] => (
            match *method {
                "GET" => Method::Get,
                "POST" => Method::Post,
                "HEAD" => Method::Head,
                other => Method::Other(other.to_owned()),
            },
            *url,
            body.as_bytes().to_vec(),
        ),
        _ => anyhow::bail!("a line is METHOD URL"),
    };
    let headers = headers.iter().map(|(name, value)| Ok((HeaderName::from_bytes(name.as_bytes())?, value.as_str())));
    let headers = headers.collect::<anyhow::Result<Vec<_>>>()?;
    let answer = Client::new().request(method, url).headers(headers).body(body).send()?;
    let (status, headers) = (answer.status_code(), format!("{:?}", answer.headers()));
    let (mut size, mut start) = (0, Vec::new());
    while let Some(piece) = answer.chunk(64 << 10)? {
        size += piece.len();
        if start.len() < 4096 {
            start.extend_from_slice(&piece);
        }
    }
    Ok(format!("{status} {headers} {size} bytes: {}", String::from_utf8_lossy(&start)))
}

fn time(count: usize, line: &str) -> anyhow::Result<String> {
    let url = line.strip_prefix("GET ").ok_or_else(|| anyhow::anyhow!("only GET is timed"))?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = std::time::Instant::now();
        let answer = Client::new().request(Method::Get, url).send()?;
        let mut size = 0;
        while let Some(piece) = answer.chunk(256 << 10)? {
            size += piece.len();
        }
        anyhow::ensure!(answer.status_code() == 200 && size > 0, "status {}, {size} bytes", answer.status_code());
        times.push(start.elapsed().as_micros().to_string());
    }
    Ok(times.join(" "))
}
