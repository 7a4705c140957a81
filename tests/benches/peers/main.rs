//! What checkpoints cost, beside other tools that keep files: `cargo xtask bench checkpoint`.
//!
//! One machine, one run, one S3 server (SeaweedFS) behind a proxy that counts requests and bytes. Each operation is a process of its own, measured by
//! `wait4`; the tools take turns, and the figures are medians of the rounds. For Landfall there is also the time of the call alone, as a host
//! that is running already has it. borg and git write to a local folder: neither speaks S3.
#![allow(missing_docs, reason = "a program for people at a terminal")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a program for people at a terminal"
)]

mod data;
mod measure;
mod ours;
mod proxy;
mod report;
mod theirs;

use std::path::{Path, PathBuf};

use landfall_tests::seaweed::Seaweed;

use self::measure::Measured;
use self::report::Rows;

/// What is measured, and how often.
pub(crate) struct Options {
    pub(crate) dataset: data::Dataset,
    pub(crate) files: usize,
    pub(crate) rounds: usize,
    pub(crate) out: PathBuf,
    pub(crate) work: PathBuf,
}

impl Options {
    fn read(arguments: &[String]) -> Self {
        let value = |name: &str| arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1)).cloned();
        let number = |name: &str, default: usize| value(name).map_or(default, |text| text.parse().unwrap());
        let dataset = value("--dataset").map_or(data::Dataset::Source, |name| name.parse().unwrap());
        Self {
            dataset,
            files: number("--files", dataset.files()),
            rounds: number("--rounds", 3),
            out: value("--out").map_or_else(|| PathBuf::from("bench-checkpoint"), PathBuf::from),
            work: value("--work").map_or_else(std::env::temp_dir, PathBuf::from),
        }
    }
}

/// What every tool does, in this order.
pub(crate) const OPERATIONS: [&str; 6] =
    ["first put", "no change", "one file changed", "a directory renamed", "full restore", "one file read, fresh"];

/// A tool that is measured.
pub(crate) trait Tool {
    fn name(&self) -> &'static str;
    /// Does one of [`OPERATIONS`] on the files in a folder; none where the tool has no such thing.
    fn run(&mut self, operation: &str, files: &Path, to: &Path) -> Option<Measured>;
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--child") {
        return ours::child(&arguments[1..]);
    }
    let options = Options::read(&arguments);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Seaweed::shared());
    let work = tempfile::tempdir_in(&options.work).unwrap();
    let files = work.path().join("files");
    let bytes = data::make(options.dataset, options.files, &files);
    println!("{} files, {:.1} MB ({}), {} rounds", options.files, megabytes(bytes), options.dataset, options.rounds);
    let mut rows = Rows::default();
    for round in 0..options.rounds {
        let place = work.path().join(format!("round-{round}"));
        std::fs::create_dir(&place).unwrap();
        let mut tools = theirs::all(&server, &place, round);
        tools.insert(0, Box::new(ours::Ours::new(&server, &place, round)));
        for tool in &mut tools {
            data::reset(&files);
            for operation in OPERATIONS {
                match operation {
                    "one file changed" => data::change(&files),
                    "a directory renamed" => data::rename(&files),
                    _ => {}
                }
                let to = place.join(format!("restored-{}", tool.name()));
                let measured = tool.run(operation, &files, &to);
                if operation == "full restore" && measured.is_some() {
                    data::same(&files, &to);
                }
                if let Some(measured) = measured {
                    println!("{round} {:<10} {operation:<22} {measured}", tool.name());
                    rows.add(tool.name(), operation, measured);
                }
                let _ = std::fs::remove_dir_all(&to);
            }
        }
        drop(tools);
        std::fs::remove_dir_all(&place).unwrap();
    }
    rows.print();
    rows.write(&options, bytes);
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes / 1000).unwrap_or(u32::MAX)) / 1000.0
}
