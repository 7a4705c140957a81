//! From flags, config and environment to a [`Host`].

use std::path::PathBuf;
use std::sync::Arc;

use landfall::clock::SystemClock;
use landfall::host::{Host, HostBuilder};
use landfall::random::SystemRandom;
use landfall::store::Store;

use crate::args::Global;
use crate::environment::Environment;

/// Folder beside the config that holds the embedded store and the caches.
const DATA_FOLDER: &str = ".landfall";

/// Returns the URL of the store that the flags or the config name, or of the embedded one.
pub(crate) fn store_url(global: &Global, environment: &Environment) -> landfall::Result<String> {
    let folder = match global.store.as_ref().or(environment.config.store.as_ref()) {
        // A plain path is a folder: people type it that way.
        Some(url) if !url.contains(':') => environment.folder.join(url),
        Some(url) => return Ok(url.clone()),
        None => environment.folder.join(DATA_FOLDER).join("store"),
    };
    // A path may hold `#`, `?` or `%`, which a URL has to escape.
    url::Url::from_file_path(&folder)
        .map(String::from)
        .map_err(|()| landfall::Error::config(format!("the store's folder {} isn't an absolute path", folder.display())))
}

/// Opens the store; `create` makes an empty one where there is none yet.
pub(crate) async fn store(global: &Global, environment: &Environment, create: bool) -> landfall::Result<Store> {
    let url = store_url(global, environment)?;
    if create {
        Store::open(&url, &environment.store, Arc::new(SystemClock), Arc::new(SystemRandom)).await
    } else {
        Store::open_existing(&url, &environment.store, Arc::new(SystemClock), Arc::new(SystemRandom)).await
    }
}

/// Makes the host. `create`: whether a missing store is made.
pub(crate) async fn host(global: &Global, environment: Environment, create: bool) -> landfall::Result<Host> {
    builder(global, environment, create).await?.build()
}

/// Begins the host, for those who have more to say of it.
pub(crate) async fn builder(global: &Global, mut environment: Environment, create: bool) -> landfall::Result<HostBuilder> {
    let store = store(global, &environment, create).await?;
    let cache = cache_dir(global, &environment);
    let mut builder = Host::builder(store, std::mem::take(&mut environment.config)).cache_dir(cache).broad_token(environment.broad_token);
    for (name, secret) in environment.secrets {
        builder = builder.secret(name, secret);
    }
    Ok(builder)
}

/// Returns the folder of the caches.
pub(crate) fn cache_dir(global: &Global, environment: &Environment) -> PathBuf {
    global.cache.clone().unwrap_or_else(|| environment.folder.join(DATA_FOLDER).join("cache"))
}
