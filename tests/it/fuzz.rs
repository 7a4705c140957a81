//! The fuzz targets with no fuzzer: every seed and some thousand mutations of seeds, drawn from a fixed number, in each run of the tests.
//!
//! `tests/fuzz` has the same functions for libFuzzer. A failure prints the input; kept in `tests/fuzz/seeds/<target>/` it stays a test.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use landfall::fuzzing::TARGETS;

/// Mutations of a target in one run of the tests, and how long they may take; slow machines get through fewer.
const ROUNDS: u32 = 4_000;
const ENOUGH: u32 = 500;
const TIME: Duration = Duration::from_secs(40);
/// Most memory of the whole process, in KiB: no input of some kilobytes makes a decoder take much.
const MEMORY: u64 = 512 << 10;

fn tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The seed of the numbers: another one by `LANDFALL_FUZZ_SEED`, to look further than the last run did.
#[expect(clippy::disallowed_methods, reason = "whoever runs the tests chooses")]
fn seed() -> u64 {
    std::env::var("LANDFALL_FUZZ_SEED").ok().map_or(0x1a4d_fa11, |text| text.parse().expect("LANDFALL_FUZZ_SEED is a number"))
}

/// xorshift64*.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 when there is none.
    fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { usize::try_from(self.next() >> 11).unwrap() % end }
    }

    fn one_of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}

/// Numbers at the edges of their types.
const EDGES: [u64; 14] =
    [0, 1, 23, 24, 255, 256, 65_535, 65_536, 1 << 20, (1 << 31) - 1, u32::MAX as u64, 1 << 32, i64::MAX as u64, u64::MAX];
/// Texts that a decoder of text may trip over.
const TEXTS: [&str; 16] =
    ["..", ".", "/", "\\", "\0", "%2e", "%00", "\u{202e}", "\u{ff0e}", "@", "*", "-1", "1e999", "null", "\"", "18446744073709551616"];

/// One to four changes of a seed.
fn mutated(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut data = numbers.one_of(seeds).clone();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(data.len() + 1);
        match numbers.below(10) {
            // A bit, or a byte.
            0 | 1 => {
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << numbers.below(8);
                }
            }
            2 => {
                if let Some(byte) = data.get_mut(at) {
                    *byte = *numbers.one_of(&[0, 1, 0x17, 0x18, 0x1b, 0x40, 0x5b, 0x7f, 0x80, 0x9b, 0x9f, 0xf6, 0xff]);
                }
            }
            3 => data.truncate(at),
            // A part cut out, or twice.
            4 | 5 => {
                let end = at + numbers.below((data.len() - at).min(64) + 1);
                let part = data[at..end].to_vec();
                let to = if numbers.below(2) == 0 { at..end } else { end..end };
                data.splice(to.clone(), if to.is_empty() { part } else { Vec::new() });
            }
            // A part of another seed.
            6 => {
                let other = numbers.one_of(seeds);
                let from = numbers.below(other.len() + 1);
                let part = other[from..from + numbers.below((other.len() - from).min(200) + 1)].to_vec();
                let end = at + numbers.below((data.len() - at).min(64) + 1);
                data.splice(at..end, part);
            }
            // A number at the edge of its type, as CBOR, in bytes, or in place of one that is written in digits.
            7 => {
                let edge = *numbers.one_of(&EDGES);
                let major = *numbers.one_of(&[0x00, 0x20, 0x40, 0x80]);
                let part = match numbers.below(4) {
                    0 => [&[major | 0x1b][..], &edge.to_be_bytes()].concat(),
                    1 => [&[major | 0x1a][..], &edge.to_be_bytes()[4..]].concat(),
                    2 => edge.to_le_bytes()[..4].to_vec(),
                    _ => edge.to_be_bytes().to_vec(),
                };
                let end = at + part.len().min(data.len() - at).min(numbers.below(9));
                data.splice(at..end, part);
            }
            8 => {
                let digits = |from: usize| data[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let from = (at..data.len()).find(|at| digits(*at) > 0).unwrap_or(at);
                let end = from + digits(from.min(data.len()));
                let edge = numbers.one_of(&EDGES).to_string();
                data.splice(from..end, edge.into_bytes());
            }
            _ => drop(data.splice(at..at, numbers.one_of(&TEXTS).bytes())),
        }
    }
    data
}

/// Runs a function on all seeds and on mutations of them; returns the first input that it panics on and the number of inputs.
fn search(target: &dyn Fn(&[u8]), seeds: &[Vec<u8>], seed: u64) -> (u32, Option<Vec<u8>>) {
    let mut numbers = Numbers::new(seed);
    let began = Instant::now();
    let mut rounds = 0;
    let fails = |data: &[u8]| catch_unwind(AssertUnwindSafe(|| target(data))).is_err();
    for data in seeds {
        if fails(data) {
            return (rounds, Some(data.clone()));
        }
    }
    while rounds < ROUNDS && began.elapsed() < TIME {
        rounds += 1;
        let data = mutated(&mut numbers, seeds);
        if fails(&data) {
            return (rounds, Some(data));
        }
    }
    (rounds, None)
}

/// The values of a field in a golden file of blocks.
fn golden(file: &str, field: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(tests().join("golden").join(file)).unwrap();
    text.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(' ')).map(|value| hex::decode(value).unwrap()).collect()
}

/// A column of a table of vectors whose rows are of a kind.
fn column(file: &str, kind: &str, column: usize) -> Vec<String> {
    let text = std::fs::read_to_string(tests().join(file)).unwrap();
    text.lines()
        .skip(1)
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|row| kind.is_empty() || row[1] == kind)
        .map(|row| row[column].to_owned())
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// What a target begins with: the files that are kept for it, and what is golden of its kind.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = files(&tests().join("fuzz/seeds").join(target)).iter().map(|path| std::fs::read(path).unwrap()).collect();
    let kind = match target {
        "import_record" => "import",
        other => other,
    };
    let of_kind = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().split('-').next() == Some(kind);
    seeds.extend(files(&tests().join("golden/documents")).iter().filter(|path| of_kind(path)).map(|path| std::fs::read(path).unwrap()));
    match target {
        "directory_page" | "list_page" | "link_table" => {
            // Whole, and as the items of a body.
            let bodies = golden("pages.txt", "body");
            seeds.extend(bodies.iter().map(|body| body[2..].to_vec()));
            seeds.extend(bodies);
        }
        "stored_page" => seeds.extend(golden("pages.txt", "stored")),
        "frame" => seeds.extend(golden("frames.txt", "stored")),
        "pack" => {
            for pack in golden("packs.txt", "stored") {
                let end = pack.len() - 12;
                let footer = u32::from_le_bytes(pack[end..end + 4].try_into().unwrap()) as usize;
                let frames = u16::try_from(end - footer - 8).unwrap();
                seeds.push([&frames.to_le_bytes(), &pack[8..end]].concat());
                seeds.push(pack);
            }
        }
        "cron" => seeds.extend(column("vectors/cron.tsv", "", 2).iter().zip(0_u8..).map(|(text, n)| {
            let instant = 1_772_953_200_u32.wrapping_add(u32::from(n) * 86_400).to_le_bytes();
            [&[n], &instant[..], text.as_bytes()].concat()
        })),
        "egress" => {
            let urls = [column("data/fetch.tsv", "url", 2), column("data/fetch.tsv", "redirect", 2)].concat();
            seeds.extend(urls.iter().map(|url| format!("*.example.com\n{url}\n../x?y#z").into_bytes()));
        }
        "repository_url" => seeds.extend(column("data/fetch.tsv", "url", 2).into_iter().map(String::into_bytes)),
        _ => {}
    }
    assert!(!seeds.is_empty(), "{target} has nothing to begin with: put a file into tests/fuzz/seeds/{target}/");
    seeds
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn holds(name: &str) {
    let (_, target) = TARGETS.iter().find(|(target, _)| *target == name).unwrap();
    let (rounds, failed) = search(target, &seeds(name), seed());
    if let Some(data) = failed {
        panic!("{name} failed with LANDFALL_FUZZ_SEED={} in round {rounds} on these {} bytes:\n{}", seed(), data.len(), hex::encode(&data));
    }
    assert!(rounds >= ENOUGH, "only {rounds} inputs in {TIME:?}: one of them takes too long");
    assert!(peak_kib() < MEMORY, "{} KiB of memory were taken", peak_kib());
}

macro_rules! targets {
    ($($name:ident,)*) => {
        const TESTED: &[&str] = &[$(stringify!($name),)*];
        $(#[test]
        fn $name() {
            holds(stringify!($name));
        })*
    };
}

targets! {
    attributes,
    claim,
    cron,
    directory_page,
    egress,
    frame,
    git_tree,
    head,
    import_record,
    key,
    link_table,
    list_page,
    name,
    pack,
    plan,
    queued,
    replica,
    repository_url,
    run,
    schedule,
    stored_page,
    tar,
}

#[test]
fn every_target_is_tested_and_has_its_file_for_the_fuzzer() {
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, TESTED);
    let names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
    let stems = |folder: &str| -> BTreeSet<String> {
        files(&tests().join("fuzz").join(folder)).iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stems("fuzz_targets"), names);
    assert!(stems("seeds").is_subset(&names), "seeds of a target that isn't there");
    let manifest = std::fs::read_to_string(tests().join("fuzz/Cargo.toml")).unwrap();
    for name in names {
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n")), "{name} is no binary of tests/fuzz");
        let file = std::fs::read_to_string(tests().join(format!("fuzz/fuzz_targets/{name}.rs"))).unwrap();
        assert!(file.contains(&format!("landfall::fuzzing::{name}(data)")), "{name}");
    }
}

/// The search finds what is wrong: decoders with the mistakes that they could have.
#[test]
fn mistakes_are_found() {
    let frames = golden("frames.txt", "stored");
    let plain = golden("frames.txt", "plain");
    // One that takes whatever a frame decodes to for what was written.
    let believing = |data: &[u8]| {
        if let Ok(found) = landfall::checkpoint::frame::decode(&bytes::Bytes::copy_from_slice(data)) {
            assert!(plain.iter().any(|plain| *plain == found));
        }
    };
    // One that makes room for what is declared.
    let counting = |data: &[u8]| {
        let mut decoder = data.iter().copied();
        if let (Some(0x82), Some(_), Some(0x9b)) = (decoder.next(), decoder.next(), decoder.next()) {
            let count = decoder.take(8).fold(0_u64, |count, byte| count << 8 | u64::from(byte));
            assert!(count < 1 << 32, "{count} items");
        }
    };
    // One that a cut text runs out of.
    let reading = |data: &[u8]| assert!(data.is_empty() || data.ends_with(b"}\n"));
    for seed in 1..=3 {
        assert!(search(&believing, &frames, seed).1.is_some(), "seed {seed}");
        assert!(search(&counting, &golden("pages.txt", "body")[..1], seed).1.is_some(), "seed {seed}");
        assert!(search(&reading, &seeds("head"), seed).1.is_some(), "seed {seed}");
    }
    // The same number gives the same inputs.
    assert_eq!(search(&believing, &frames, 7), search(&believing, &frames, 7));
}
