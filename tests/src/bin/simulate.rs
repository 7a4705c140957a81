//! Runs seeds of the simulation: `simulate --seeds N [--from S]`, or `simulate --seed S` with all its events. `--without SAFEGUARD` takes one of
//! the library's safeguards away, such as `nonces`, to see what shows it; `--times 2` runs each seed twice and compares all that happened.
//! `cargo xtask sim` starts it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for people at a terminal")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landfall::drill::Safeguard;
use landfall_tests::simulation::{Options, Report, simulate};

/// Most failing seeds that are shown.
const SHOWN: usize = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((asked, without)) = Asked::parse(&arguments) else {
        eprintln!("usage: simulate --seeds N [--from S] [--threads T] [--times T] | --seed S, either with [--without SAFEGUARD]");
        return ExitCode::from(2);
    };
    // What a panic says is in the report; the default hook would print it in the middle.
    std::panic::set_hook(Box::new(|_| {}));
    match asked {
        Asked::One(seed) => one(seed, without),
        Asked::Many { from, count, threads, times } => many(from..from.saturating_add(count), threads, times, without),
    }
}

enum Asked {
    One(u64),
    Many { from: u64, count: u64, threads: usize, times: u64 },
}

impl Asked {
    fn parse(arguments: &[String]) -> Option<(Self, Option<Safeguard>)> {
        let (mut seed, mut from, mut count, mut times, mut without) = (None, 0, None, 1, None);
        let mut threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return None };
            if name == "--without" {
                without = Some(*Safeguard::ALL.iter().find(|one| one.name() == value)?);
                continue;
            }
            let value: u64 = value.parse().ok()?;
            match name.as_str() {
                "--seed" => seed = Some(value),
                "--seeds" => count = Some(value),
                "--from" => from = value,
                "--times" => times = value.max(1),
                "--threads" => threads = usize::try_from(value).ok()?.max(1),
                _ => return None,
            }
        }
        match (seed, count) {
            (Some(seed), None) => Some((Self::One(seed), without)),
            (None, Some(count)) => Some((Self::Many { from, count, threads, times }, without)),
            _ => None,
        }
    }
}

fn one(seed: u64, without: Option<Safeguard>) -> ExitCode {
    let report = simulate(seed, Options { trace: true, without });
    for line in &report.trace {
        println!("{line}");
    }
    println!(
        "seed {seed}: {} requests, {} runs, {} mishaps, {:.0?} simulated, fingerprint {:016x}",
        report.requests, report.runs, report.mishaps, report.time, report.fingerprint
    );
    match &report.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("WRONG: {violation}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a seed, and again as often as is asked: what happens has to be the same each time.
fn repeated(seed: u64, times: u64, without: Option<Safeguard>) -> Report {
    let options = Options { without, ..Options::default() };
    let mut report = simulate(seed, options);
    for _ in 1..times {
        let again = simulate(seed, options);
        if again.fingerprint != report.fingerprint {
            report.violation.get_or_insert_with(|| String::from("two runs of it differ"));
        }
    }
    report
}

fn many(seeds: std::ops::Range<u64>, threads: usize, times: u64, without: Option<Safeguard>) -> ExitCode {
    let (next, begun) = (AtomicU64::new(seeds.start), Instant::now());
    let wrong: Mutex<Vec<(u64, String)>> = Mutex::default();
    let total = Mutex::new((0_u64, 0_u64, 0_u64, Duration::ZERO));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || wrong.lock().is_ok_and(|wrong| wrong.len() >= SHOWN) {
                        return;
                    }
                    let report = std::panic::catch_unwind(|| repeated(seed, times, without));
                    let violation = match report {
                        Ok(Report { violation, requests, runs, mishaps, time, .. }) => {
                            if let Ok(mut total) = total.lock() {
                                *total = (total.0 + requests, total.1 + runs, total.2 + mishaps, total.3 + time);
                            }
                            violation
                        }
                        Err(panic) => Some(format!("a panic: {:?}", panic.downcast_ref::<String>())),
                    };
                    if let (Some(violation), Ok(mut wrong)) = (violation, wrong.lock()) {
                        eprintln!("seed {seed}: {violation}\n  repeat it: cargo xtask sim --seed {seed}");
                        wrong.push((seed, violation));
                    }
                }
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let done = next.load(Ordering::Relaxed).min(seeds.end) - seeds.start;
    let (requests, runs, mishaps, time) = total.into_inner().unwrap_or_default();
    let wrong = wrong.into_inner().unwrap_or_default();
    println!(
        "{done} seeds in {seconds:.1} s ({:.0} seeds/s on {threads} threads): {requests} requests, {runs} runs, {mishaps} mishaps, {:.0} h simulated; {} wrong",
        f64::from(u32::try_from(done).unwrap_or(u32::MAX)) / seconds,
        time.as_secs_f64() / 3600.0,
        wrong.len()
    );
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
