//! What the command takes from its environment: the only place that reads variables. It runs before any thread is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use landfall::config::{Agent, Config, CredentialSource, GITHUB_READ_TOKEN};
use landfall::secret::Secret;
use landfall::store::Options;

use crate::args::Global;

/// Everything that was read.
pub(crate) struct Environment {
    /// The config, empty where there is no file and none was named.
    pub(crate) config: Config,
    /// The folder of the config: where `.landfall` is.
    pub(crate) folder: PathBuf,
    /// Settings of the object store's client.
    pub(crate) store: Options,
    /// The values of the credentials that were found.
    pub(crate) secrets: Vec<(String, Secret)>,
    /// The credentials that have none, and why. Only what runs an agent that names one has to stop for it.
    pub(crate) missing: BTreeMap<String, String>,
    /// Whether `GITHUB_TOKEN` is set: agents that name the read token are then refused.
    pub(crate) broad_token: bool,
}

/// The name of the config file that is looked for upward.
const CONFIG_NAME: &str = "landfall.toml";
/// Prefixes of the variables that configure an object store's client.
const STORE_PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// What a verb needs of its environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// Nothing: it answers without a config.
    Nothing,
    /// The config, without the values of the credentials.
    Config,
    /// All of it.
    All,
}

/// Reads the config, the store's settings and the credentials; takes the credentials out of the process's environment.
pub(crate) fn read(global: &Global, needs: Needs) -> anyhow::Result<Environment> {
    // Only a build for tests has drills.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    if landfall::drill::COMPILED
        && let Ok(orders) = std::env::var("LANDFALL_DRILL")
    {
        landfall::drill::arm(&orders)?;
    }
    let here = std::env::current_dir().context("finding the current folder")?;
    let file = match &global.config {
        _ if needs == Needs::Nothing => None,
        Some(file) => Some(here.join(file)),
        None => here.ancestors().map(|folder| folder.join(CONFIG_NAME)).find(|file| file.is_file()),
    };
    let folder = file.as_deref().and_then(Path::parent).unwrap_or(&here).to_path_buf();
    let mut config = match &file {
        Some(file) => {
            let text = read_text(file)?;
            let shown = file.strip_prefix(&here).unwrap_or(file).display().to_string();
            Config::parse(&shown, &text, &folder)?
        }
        None => Config::parse("(no landfall.toml)", "version = 1", &folder)?,
    };
    if let Some(policy) = &global.policy
        && needs != Needs::Nothing
    {
        config.policy = Some(Config::parse_policy(&policy.display().to_string(), &read_text(policy)?)?);
    }
    let mut secrets = Vec::new();
    let mut missing = BTreeMap::new();
    for (name, credential) in &config.credentials {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
        let value = match &credential.source {
            _ if needs != Needs::All => continue,
            CredentialSource::Env(variable) => std::env::var(variable).map_err(|_| format!("the variable {variable} isn't set")),
            CredentialSource::File(file) => {
                std::fs::read_to_string(file).map_err(|error| format!("the file {} can't be read: {error}", file.display()))
            }
        };
        match value.and_then(|value| Secret::new(name, &value).map_err(|error| error.message().to_owned())) {
            Ok(secret) => secrets.push((name.clone(), secret)),
            Err(why) => {
                missing.insert(name.clone(), why);
            }
        }
    }
    let broad_token = std::env::var_os("GITHUB_TOKEN").is_some();
    let variables: Vec<String> = config
        .credentials
        .values()
        .filter_map(|credential| match &credential.source {
            CredentialSource::Env(variable) => Some(variable.clone()),
            CredentialSource::File(_) => None,
        })
        .collect();
    for variable in &variables {
        // SAFETY: no other thread exists yet; `main` calls this before it starts the runtime.
        #[expect(unsafe_code, reason = "removing a variable is sound only while there is one thread, which is the case here")]
        unsafe {
            std::env::remove_var(variable);
        }
    }
    let url = global.store.as_ref().or(config.store.as_ref()).map_or("", String::as_str);
    let store = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| STORE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        // Others belong to other programs: AWS_PROFILE, GOOGLE_CLOUD_PROJECT.
        .filter(|(name, _)| landfall::store::is_option(url, name))
        .collect();
    Ok(Environment { config, folder, store, secrets, missing, broad_token })
}

impl Environment {
    /// Checks that every credential that an agent names has a value. Without the built-in [`GITHUB_READ_TOKEN`] public repositories
    /// can be read, so it may be missing.
    pub(crate) fn check_credentials(&self, agent: &Agent) -> landfall::Result<()> {
        for name in &agent.credentials {
            if let Some(why) = self.missing.get(name)
                && (name != GITHUB_READ_TOKEN || !why.ends_with("isn't set"))
            {
                return Err(landfall::Error::config(format!("the credential {name} has no value: {why}"))
                    .hint(format!("give it one, or take {name} out of the agents that name it")));
            }
        }
        Ok(())
    }
}

fn read_text(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        landfall::Error::config(format!("{} can't be read", file.display())).source(error).hint("check the path and its permissions").into()
    })
}
