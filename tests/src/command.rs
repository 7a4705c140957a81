//! The `landfall` binary in a folder of its own, as a person would use it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a config, and the binary to run there.
pub struct Commands {
    folder: tempfile::TempDir,
}

/// What a command did.
pub struct Ran {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Commands {
    /// Makes the folder, with this text as `landfall.toml`; `{guests}` in it stands for the folder of the built guests.
    ///
    /// # Panics
    /// When there is no folder to be had.
    #[must_use]
    pub fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let guests = crate::guests::target().join("components");
        std::fs::write(folder.path().join("landfall.toml"), config.replace("{guests}", &guests.display().to_string())).unwrap();
        Self { folder }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The embedded store.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.folder().join(".landfall/store")
    }

    /// Returns a command that is ready to start.
    ///
    /// # Panics
    /// When the binary isn't built.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let binary = crate::guests::target().join("debug/landfall");
        assert!(binary.is_file(), "{} is missing: run `cargo build --workspace --bins`", binary.display());
        let mut command = Command::new(binary);
        command.current_dir(self.folder()).args(arguments).stdin(std::process::Stdio::null());
        for variable in ["GITHUB_TOKEN", "GITHUB_READ_TOKEN"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs the binary to its end.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(arguments).output().unwrap())
    }

    /// Runs it with `--json` and returns its exit code and document.
    ///
    /// # Panics
    /// When stdout isn't one JSON document.
    #[must_use]
    pub fn json(&self, arguments: &[&str]) -> (i32, serde_json::Value) {
        let ran = self.run(&[&["--json"], arguments].concat());
        let document = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", ran.stdout, ran.stderr));
        (ran.code, document)
    }
}

impl Ran {
    /// Takes what a process left.
    #[must_use]
    pub fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
