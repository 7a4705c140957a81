//! Guests in Python and JavaScript: their tools from PyPI and npm, and components of what is in `guests/python` and `guests/javascript`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::{command, places};

/// Makes components of Python modules.
const COMPONENTIZE_PY: &str = "0.25.0";
/// Makes components of JavaScript modules.
const COMPONENTIZE_JS: &str = "0.23.0";

/// A language that isn't compiled.
#[derive(Clone, Copy)]
enum Language {
    Python,
    JavaScript,
}

impl Language {
    const ALL: [Self; 2] = [Self::Python, Self::JavaScript];

    /// Its folder below `guests`: each folder in there is a guest.
    fn folder(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
        }
    }

    /// The tool's name and version, for its folder in the cache.
    fn tool(self) -> String {
        match self {
            Self::Python => format!("componentize-py-{COMPONENTIZE_PY}"),
            Self::JavaScript => format!("componentize-js-{COMPONENTIZE_JS}"),
        }
    }

    /// Installs the tool into the cache once, and returns its folder.
    fn install(self) -> Result<PathBuf> {
        let home = places::cache()?.join(self.tool());
        if home.is_dir() {
            return Ok(home);
        }
        println!("setup: installing {} into {}", self.tool(), home.display());
        let fresh = places::cache()?.join(format!("{}.{}.new", self.tool(), std::process::id()));
        let installed = match self {
            Self::Python => command::run(
                Command::new("python3")
                    .args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--root-user-action=ignore"])
                    .arg("--target")
                    .arg(&fresh)
                    .arg(format!("componentize-py=={COMPONENTIZE_PY}")),
            )
            .context("guests in Python need Python 3 with pip, and PyPI"),
            Self::JavaScript => command::run(
                Command::new("npm")
                    .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
                    .arg(&fresh)
                    .arg(format!("@bytecodealliance/componentize-js@{COMPONENTIZE_JS}")),
            )
            .context("guests in JavaScript need Node.js with npm, and the npm registry"),
        };
        // Renamed when complete, so that a broken download is never found; the loser of a race finds the winner's.
        let placed = installed.and_then(|()| fs::rename(&fresh, &home).context("can't place it"));
        if placed.is_err() {
            let _ = fs::remove_dir_all(&fresh);
        }
        if !home.is_dir() {
            placed.with_context(|| format!("can't install {}", self.tool()))?;
        }
        Ok(home)
    }

    fn componentize(self, guest: &Path, to: &Path) -> Result<()> {
        let (home, wit) = (self.install()?, places::root().join("wit"));
        match self {
            Self::Python => command::output(
                Command::new("python3")
                    .env("PYTHONPATH", &home)
                    .env("PYTHONDONTWRITEBYTECODE", "1")
                    .arg(home.join("bin/componentize-py"))
                    .arg("-d")
                    .arg(wit)
                    .args(["-w", "landfall:agent/agent", "componentize", "app", "-p"])
                    .arg(guest)
                    .arg("-o")
                    .arg(to),
            )
            .map(drop),
            Self::JavaScript => command::run(
                Command::new("node").env("NODE_TOOLS", &home).arg(places::root().join("guests/javascript/componentize.mjs")).args([
                    guest.join("agent.js"),
                    wit,
                    to.to_path_buf(),
                ]),
            ),
        }
    }
}

/// Makes the components of all guests, or of those named, and returns their names and files. What didn't change is taken from the cache.
pub(crate) fn build(only: &[String]) -> Result<BTreeMap<String, PathBuf>> {
    let mut built = BTreeMap::new();
    for language in Language::ALL {
        for (name, guest) in guests(language)? {
            if !only.is_empty() && !only.contains(&name) {
                continue;
            }
            let kept = places::cache()?.join("guests-scripted").join(format!("{name}-{}.wasm", key(language, &guest)?));
            if !kept.is_file() {
                println!("building {name} with {}", language.tool());
                fs::create_dir_all(kept.parent().unwrap_or(&kept))?;
                let fresh = kept.with_extension(format!("{}.new", std::process::id()));
                language.componentize(&guest, &fresh).with_context(|| format!("can't build the guest {name}"))?;
                fs::rename(fresh, &kept)?;
            }
            built.insert(name, kept);
        }
    }
    Ok(built)
}

/// Installs the tools of all languages.
pub(crate) fn install() -> Result<()> {
    Language::ALL.iter().try_for_each(|language| language.install().map(drop))
}

/// Whether a guest of this name is written in Python or JavaScript.
pub(crate) fn has(name: &str) -> bool {
    Language::ALL.iter().any(|language| places::root().join("guests").join(language.folder()).join(name).is_dir())
}

fn guests(language: Language) -> Result<BTreeMap<String, PathBuf>> {
    let folder = places::root().join("guests").join(language.folder());
    let mut guests = BTreeMap::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("can't read {}", folder.display()))? {
        let entry = entry?;
        if let (true, Some(name)) = (entry.file_type()?.is_dir(), entry.file_name().to_str()) {
            guests.insert(name.to_owned(), entry.path());
        }
    }
    Ok(guests)
}

/// Returns what a component depends on, as the first half of a SHA-256 in hex: the tool, the interfaces and the guest's files.
fn key(language: Language, guest: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(language.tool());
    let mut add = |folder: &Path| -> Result<()> {
        let mut files = Vec::new();
        list(folder, &mut files)?;
        files.sort();
        for file in files {
            let bytes = fs::read(&file)?;
            let name = file.strip_prefix(folder).unwrap_or(&file).as_os_str().as_encoded_bytes();
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(&bytes);
        }
        Ok(())
    };
    add(&places::root().join("wit"))?;
    add(guest)?;
    Ok(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("can't read {}", folder.display()))? {
        let path = entry?.path();
        match path.is_dir() {
            true if path.ends_with("__pycache__") => {}
            true => list(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
