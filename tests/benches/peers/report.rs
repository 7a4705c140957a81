//! Medians as a table for people, JSON for programs, and a picture.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use crate::measure::Measured;
use crate::{OPERATIONS, Options};

#[derive(Default)]
pub(crate) struct Rows(BTreeMap<(&'static str, &'static str), Vec<Measured>>, Vec<&'static str>);

impl Rows {
    pub(crate) fn add(&mut self, tool: &'static str, operation: &'static str, measured: Measured) {
        if !self.1.contains(&tool) {
            self.1.push(tool);
        }
        self.0.entry((tool, operation)).or_default().push(measured);
    }

    fn median(&self, tool: &'static str, operation: &'static str) -> Option<Measured> {
        let all = self.0.get(&(tool, operation))?;
        let of = |value: &dyn Fn(&Measured) -> f64| {
            let mut values: Vec<f64> = all.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let whole = |value: &dyn Fn(&Measured) -> u64| {
            let mut values: Vec<u64> = all.iter().map(value).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        let call = all.iter().all(|one| one.call.is_some()).then(|| of(&|one| one.call.unwrap_or_default()));
        Some(Measured {
            wall: of(&|one| one.wall),
            call,
            cpu: of(&|one| one.cpu),
            rss: whole(&|one| one.rss),
            requests: whole(&|one| one.requests),
            sent: whole(&|one| one.sent),
            received: whole(&|one| one.received),
        })
    }

    /// The table that the README has.
    fn table(&self) -> String {
        let mut text =
            String::from("| operation | tool | wall s | call s | x landfall | cpu s | RSS MiB | requests | MB sent | MB received |\n");
        text.push_str("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
        for operation in OPERATIONS {
            let ours = self.median("landfall", operation).map_or(f64::NAN, |one| one.wall);
            for tool in &self.1 {
                let Some(one) = self.median(tool, operation) else { continue };
                let call = one.call.map_or_else(|| "-".to_owned(), |call| format!("{call:.3}"));
                let (sent, received) = (crate::megabytes(one.sent), crate::megabytes(one.received));
                let ratio = one.wall / ours;
                let rss = one.rss / 1024;
                let _ = writeln!(
                    text,
                    "| {operation} | {tool} | {:.3} | {call} | {ratio:.2} | {:.3} | {rss} | {} | {sent:.3} | {received:.3} |",
                    one.wall, one.cpu, one.requests
                );
            }
        }
        text
    }

    pub(crate) fn print(&self) {
        println!("\n{}", self.table());
    }

    /// Writes `<out>.json`, `<out>.md` and `<out>.svg`.
    pub(crate) fn write(&self, options: &Options, bytes: u64) {
        let mut operations = serde_json::Map::new();
        for operation in OPERATIONS {
            let tools: serde_json::Map<String, serde_json::Value> =
                self.1.iter().filter_map(|tool| Some(((*tool).to_owned(), json!(self.median(tool, operation)?)))).collect();
            operations.insert(operation.to_owned(), tools.into());
        }
        let machine = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = machine
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map(|name| name.trim_start_matches([' ', '\t', ':']).to_owned());
        let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let document = json!({
            "dataset": options.dataset.to_string(), "files": options.files, "bytes": bytes, "rounds": options.rounds,
            "optimised": !cfg!(debug_assertions), "machine": { "cpu": cpu, "processors": processors }, "versions": versions(), "medians": operations,
        });
        let at = |ending: &str| options.out.with_extension(ending);
        std::fs::write(at("json"), format!("{document:#}\n")).unwrap();
        std::fs::write(at("md"), self.table()).unwrap();
        std::fs::write(at("svg"), self.svg()).unwrap();
        println!("written: {}, .md and .svg", at("json").display());
    }

    /// Bars of wall time on a logarithmic scale from a millisecond to a thousand seconds.
    fn svg(&self) -> String {
        let (row, left, width) = (16.0, 230.0, 520.0);
        let mut body = String::new();
        let mut y = 24.0;
        for operation in OPERATIONS {
            let _ = writeln!(body, r##"<text x="8" y="{:.0}" font-weight="bold">{operation}</text>"##, y + 12.0);
            for tool in &self.1 {
                let Some(one) = self.median(tool, operation) else { continue };
                let bar = ((one.wall.max(0.001).log10() + 3.0) / 6.0 * width).max(1.0);
                let colour = if *tool == "landfall" { "#2563eb" } else { "#9ca3af" };
                let (text_y, end) = (y + 12.0, left + bar + 6.0);
                let _ = writeln!(body, r##"<text x="{:.0}" y="{text_y:.0}" text-anchor="end">{tool}</text>"##, left - 6.0);
                let _ = writeln!(body, r##"<rect x="{left}" y="{:.0}" width="{bar:.1}" height="12" fill="{colour}"/>"##, y + 2.0);
                let _ = writeln!(body, r##"<text x="{end:.0}" y="{text_y:.0}">{:.3} s</text>"##, one.wall);
                y += row;
            }
            y += 8.0;
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"840\" height=\"{:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"8\" y=\"14\">wall time, logarithmic: shorter is faster</text>\n{body}</svg>\n",
            y + 8.0
        )
    }
}

fn versions() -> serde_json::Value {
    let said = |program: &str, argument: &str| {
        let output = std::process::Command::new(program).arg(argument).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
    };
    json!({
        "landfall": env!("CARGO_PKG_VERSION"), "restic": said("restic", "version"), "borg": said("borg", "--version"),
        "git": said("git", "--version"), "tar": said("tar", "--version"), "kernel": said("uname", "-r"),
    })
}
