//! What a guest's way out costs: 100 MB through `wasi:http` beside curl, and 1,000 small requests on a warm connection beside a bare
//! client on the same server, all in one run, interleaved. Reports, asserts nothing.
//!
//! `cargo bench -p landfall-tests --bench outbound`

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use landfall::clock::SystemClock;
use landfall::component::cancel::Cancel;
use landfall::component::{CacheOptions, EngineOptions};
use landfall::config::Config;
use landfall::host::Host;
use landfall::policy::resolve::{Answer, GivenAnswers};
use landfall::random::SystemRandom;
use landfall::store::Store;
use landfall::trigger::{NoWatch, TurnRequest};
use landfall_tests::guests;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const LARGE: usize = 100_000_000;
const SMALL: usize = 1_000;
const ROUNDS: usize = 5;

#[expect(clippy::print_stdout, reason = "a benchmark's output")]
fn say(text: &str) {
    println!("{text}");
}

fn main() -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure())
}

async fn measure() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let folder = tempfile::tempdir()?;
    let host = host(folder.path(), server).await?;
    // Compiles the guest, and fills the pools.
    let (large, small) = (format!("http://a.example.com:{}/large", server.port()), format!("http://a.example.com:{}/small", server.port()));
    run(&host, &format!("time 10 GET {small}")).await?;
    let (mut guest, mut curl, mut ours, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        guest.push(asked(&run(&host, &format!("time 1 GET {large}")).await?)?[0]);
        curl.push(tokio::task::spawn_blocking(move || by_curl(server)).await??);
        ours.push(median(asked(&run(&host, &format!("time {SMALL} GET {small}")).await?)?));
        bare.push(median(by_hand(server).await?));
    }
    let (guest, curl, ours, bare) = (median(guest), median(curl), median(ours), median(bare));
    let rate = |took: Duration| LARGE as f64 / took.as_secs_f64() / 1e6;
    say(&format!(
        "100 MB: guest {:.0} ms ({:.0} MB/s), curl {:.0} ms ({:.0} MB/s): {:.2} of curl's rate (goal 0.70), medians of {ROUNDS}",
        guest.as_secs_f64() * 1e3,
        rate(guest),
        curl.as_secs_f64() * 1e3,
        rate(curl),
        rate(guest) / rate(curl)
    ));
    say(&format!(
        "{SMALL} small requests on a warm connection, p50: guest {:.3} ms, bare client {:.3} ms: {:.3} ms over it (goal 1 ms)",
        ours.as_secs_f64() * 1e3,
        bare.as_secs_f64() * 1e3,
        ours.saturating_sub(bare).as_secs_f64() * 1e3
    ));
    Ok(())
}

async fn host(folder: &std::path::Path, server: SocketAddr) -> Result<Host> {
    let text = format!(
        "version = 1\n[agents.probe]\ncomponent = \"{}\"\nallowed_outbound_hosts = [\"http://a.example.com:{}\"]\n\
         [agents.probe.outbound]\nper_minute = 1000000\nrun_bytes = \"1GiB\"\n\
         [agents.probe.private_addresses]\n\"a.example.com\" = [\"127.0.0.1\"]\n",
        guests::path("http-client").display(),
        server.port()
    );
    let config = Config::parse("landfall.toml", &text, folder)?;
    let store = Store::open("memory:", &landfall::store::Options::new(), Arc::new(SystemClock), Arc::new(SystemRandom)).await?;
    Ok(Host::builder(store, config)
        .cache_dir(folder.join("cache"))
        .engine(EngineOptions { cache: Some(CacheOptions::new(folder.join("components"))), ..EngineOptions::default() })
        .resolver(Arc::new(GivenAnswers::new().every(Answer::Addresses(vec!["127.0.0.1".parse()?]))))
        .build()?)
}

async fn run(host: &Host, input: &str) -> Result<String> {
    let request = TurnRequest::new("probe".parse()?, "s".parse()?, input);
    let record = host.run(request, Arc::new(NoWatch), Cancel::never()).await?;
    ensure!(record.is_completed(), "{:?}", record.failure);
    Ok(String::from_utf8_lossy(&host.output(&record).await?).into_owned())
}

/// Reads what the guest measured: microseconds, one after the other.
fn asked(said: &str) -> Result<Vec<Duration>> {
    let times: Result<Vec<u64>, _> = said.trim().split(' ').map(str::parse).collect();
    Ok(times.with_context(|| format!("the guest says {said}"))?.into_iter().map(Duration::from_micros).collect())
}

fn by_curl(server: SocketAddr) -> Result<Duration> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--noproxy", "*", "--output", "/dev/null", "--write-out", "%{size_download} %{time_total}"]);
    let ran = curl.arg(format!("http://{server}/large")).stderr(Stdio::inherit()).output().context("can't start curl")?;
    let said = String::from_utf8(ran.stdout)?;
    let (size, seconds) = said.split_once(' ').context("curl says nothing")?;
    ensure!(size.parse() == Ok(LARGE), "curl got {size} bytes");
    Ok(Duration::from_secs_f64(seconds.parse()?))
}

/// A client that does no more than it has to: what is left of a request's time is the server's and the kernel's.
async fn by_hand(server: SocketAddr) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let (mut times, mut buffer) = (Vec::new(), vec![0; 4096]);
    for _ in 0..SMALL {
        let start = Instant::now();
        stream.write_all(b"GET /small HTTP/1.1\r\nhost: a.example.com\r\n\r\n").await?;
        let mut got = 0;
        while !buffer[..got].ends_with(b"hello") {
            let read = stream.read(&mut buffer[got..]).await?;
            ensure!(read > 0, "the server hung up");
            got += read;
        }
        times.push(start.elapsed());
    }
    Ok(times)
}

async fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let (mut head, piece) = (Vec::new(), vec![b'x'; 256 << 10]);
    loop {
        head.clear();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        if head.starts_with(b"GET /large") {
            let mut answer = String::new();
            write!(answer, "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {LARGE}\r\n\r\n")?;
            stream.write_all(answer.as_bytes()).await?;
            let mut left = LARGE;
            while left > 0 {
                let now = left.min(piece.len());
                stream.write_all(&piece[..now]).await?;
                left -= now;
            }
        } else {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello").await?;
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
