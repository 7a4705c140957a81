//! The generated trait over the agent's configuration.

use std::collections::BTreeMap;

use wasmtime::component::HasData;

use super::super::bindings::wasi::config::store as wit;

/// What the implementation sees of a guest's state.
pub(crate) struct View<'a> {
    pub(crate) values: &'a BTreeMap<String, String>,
}

/// The marker that ties the linker to [`View`].
pub(crate) struct HasConfig;

impl HasData for HasConfig {
    type Data<'a> = View<'a>;
}

impl wit::Host for View<'_> {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, wit::Error>> {
        Ok(Ok(self.values.get(&key).cloned()))
    }

    async fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, wit::Error>> {
        Ok(Ok(self.values.iter().map(|(key, value)| (key.clone(), value.clone())).collect()))
    }
}
