//! Files of a fixed seed: the same in every run and on every machine.

use std::fmt;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A kind of tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dataset {
    /// Source-like text, 50 files of about 4 KiB to a directory.
    Source,
    /// All files in one directory.
    Flat,
    /// Source files, some of 50 MiB, and a database of 200 MiB in pages of 4 KiB.
    Mixed,
    /// Deep paths and names that give trouble.
    Odd,
}

impl Dataset {
    /// How many files it has unless something else is said.
    pub(crate) fn files(self) -> usize {
        match self {
            Self::Source => 20_000,
            Self::Flat => 50_000,
            Self::Mixed => 8_000,
            Self::Odd => 5_000,
        }
    }
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Flat => "flat",
            Self::Mixed => "mixed",
            Self::Odd => "odd",
        })
    }
}

impl FromStr for Dataset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Source, Self::Flat, Self::Mixed, Self::Odd]
            .into_iter()
            .find(|dataset| dataset.to_string() == text)
            .ok_or_else(|| format!("{text:?} is no dataset: source, flat, mixed or odd"))
    }
}

/// xorshift64*
pub(crate) struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

const WORDS: [&str; 24] = [
    "let", "fn", "return", "self", "struct", "match", "while", "error", "buffer", "index", "value", "result", "config", "session",
    "module", "plugin", "handle", "import", "async", "await", "Option", "String", "vec", "impl",
];

fn source(seeded: &mut Seeded) -> String {
    let want = usize::try_from(2_000 + seeded.below(4_200)).unwrap();
    let mut text = String::new();
    while text.len() < want {
        for _ in 0..8 {
            let word = usize::try_from(seeded.below(24)).unwrap();
            text.push_str(WORDS[word]);
            text.push(' ');
        }
        let _ = writeln!(text, "{}", seeded.below(1_000_000));
    }
    text
}

/// Makes the files and returns their bytes.
pub(crate) fn make(dataset: Dataset, files: usize, at: &Path) -> u64 {
    let mut seeded = Seeded(0x5eed_5eed_5eed_5eed);
    let mut bytes = 0;
    for n in 0..files {
        let path = match dataset {
            Dataset::Source | Dataset::Mixed => at.join(format!("d{:03}/s{}/f{n:06}.rs", n / 250, n / 50 % 5)),
            Dataset::Flat => at.join(format!("d000/f{n:06}.rs")),
            Dataset::Odd => {
                let deep: PathBuf = (0..n % 30).map(|level| format!("level {level} \u{e4}\u{f6}")).collect();
                at.join(format!("d{:03}", n / 250)).join(deep).join(format!("'{n}' \"\\ \n\u{1f600}.rs"))
            }
        };
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = source(&mut seeded);
        bytes += text.len() as u64;
        std::fs::write(path, text).unwrap();
    }
    if dataset == Dataset::Mixed {
        for n in 0..15 {
            let noise: Vec<u8> = (0..50 << 17).flat_map(|_| seeded.next().to_le_bytes()).collect();
            bytes += noise.len() as u64;
            std::fs::write(at.join(format!("large-{n}.bin")), noise).unwrap();
        }
        let mut pages = Vec::new();
        for _ in 0..50 << 10 {
            let mut page = source(&mut seeded).into_bytes();
            page.resize(4096, 0);
            pages.extend_from_slice(&page);
        }
        bytes += pages.len() as u64;
        std::fs::write(at.join("state.sqlite"), pages).unwrap();
    }
    bytes
}

fn first_file(files: &Path) -> PathBuf {
    let mut names: Vec<PathBuf> = std::fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    match names.into_iter().find(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs")) {
        Some(path) if path.is_dir() => first_file(&path),
        Some(path) => path,
        None => panic!("{} has no files", files.display()),
    }
}

/// The file that is changed and read, below the folder.
pub(crate) fn changed(files: &Path) -> PathBuf {
    first_file(files).strip_prefix(files).unwrap().to_path_buf()
}

pub(crate) const CHANGE: &str = "one more line\n";
/// The directory that is renamed, and its other name.
pub(crate) const RENAMED: (&str, &str) = ("d000", "z000");

pub(crate) fn change(files: &Path) {
    let path = first_file(files);
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str(CHANGE);
    std::fs::write(path, text).unwrap();
}

pub(crate) fn rename(files: &Path) {
    std::fs::rename(files.join(RENAMED.0), files.join(RENAMED.1)).unwrap();
}

/// Takes back what [`change`] and [`rename`] have done.
pub(crate) fn reset(files: &Path) {
    let _ = std::fs::rename(files.join(RENAMED.1), files.join(RENAMED.0));
    let path = first_file(files);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, text.replace(CHANGE, "")).unwrap();
}

/// Fails unless a restored folder holds the same files. A tool may restore them below the path that they had.
pub(crate) fn same(files: &Path, restored: &Path) {
    let below = restored.join(files.strip_prefix("/").unwrap_or(files));
    let at = if below.is_dir() { below } else { restored.to_path_buf() };
    let done = std::process::Command::new("diff").args(["-r", "-q", "--exclude=.git"]).arg(files).arg(at).output().unwrap();
    assert!(done.status.success(), "a restore isn't what was put: {}", String::from_utf8_lossy(&done.stdout));
}
