//! The replicas of a restart matrix: processes of this very program, on a scratch store, with caches of their own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use landfall::config::CredentialSource;
use tokio::process::{Child, Command};

use crate::args::Global;
use crate::environment::Environment;
use crate::setup;

/// How to start one.
pub(super) struct Starter {
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    folder: PathBuf,
    compiled: PathBuf,
}

/// A running one. It is killed with its value.
pub(super) struct Replica {
    pub(super) name: String,
    child: Child,
}

impl Starter {
    pub(super) fn new(global: &Global, environment: &Environment, store: &str, folder: &Path) -> anyhow::Result<Self> {
        let mut arguments = vec!["--store".to_owned(), store.to_owned(), "--quiet".to_owned()];
        for (flag, file) in [("--config", &global.config), ("--policy", &global.policy)] {
            if let Some(file) = file {
                arguments.extend([flag.to_owned(), file.to_str().context("a path that isn't UTF-8")?.to_owned()]);
            }
        }
        // This process has taken the credentials out of its environment; its children read them as it did.
        let mut variables = Vec::new();
        for (name, secret) in &environment.secrets {
            if let Some(CredentialSource::Env(variable)) = environment.config.credentials.get(name).map(|credential| &credential.source) {
                variables.push((variable.clone(), secret.expose().to_owned()));
            }
        }
        Ok(Self { arguments, variables, folder: folder.to_owned(), compiled: setup::cache_dir(global, environment) })
    }

    /// Starts a replica. Its cache has the compiled components and nothing else: what it goes on from comes out of the store.
    pub(super) fn start(&self, name: &str, row: usize) -> anyhow::Result<Replica> {
        let cache = self.folder.join(format!("cache-{row}-{name}"));
        if !cache.exists() {
            copy(&self.compiled.join("components"), &cache.join("components"))?;
        }
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let child = Command::new(std::env::current_exe().context("finding this program")?)
            .args(&self.arguments)
            .arg("--cache")
            .arg(&cache)
            .args(["serve", "--listen", "127.0.0.1:0", "--lease", "2s", "--poll", "100ms", "--name", name])
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("starting a replica")?;
        Ok(Replica { name: name.to_owned(), child })
    }
}

impl Replica {
    /// Ends it with SIGKILL, as a power cut would.
    pub(super) async fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill().await
    }
}

/// Copies a folder with its modes; one that isn't there is none.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    let Ok(entries) = std::fs::read_dir(from) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}
