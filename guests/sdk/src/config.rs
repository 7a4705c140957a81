//! The agent's configuration: the names and values of `[agents.NAME.config]`.

use crate::Error;
use crate::bindings::wasi::config::store as host;

/// Returns the value of a name; none when it isn't set.
///
/// # Errors
/// [`Error::Other`] when the host can't read its configuration.
pub fn get(name: &str) -> Result<Option<String>, Error> {
    host::get(name).map_err(convert)
}

/// Returns all names and values.
///
/// # Errors
/// [`Error::Other`] when the host can't read its configuration.
pub fn all() -> Result<Vec<(String, String)>, Error> {
    host::get_all().map_err(convert)
}

fn convert(error: host::Error) -> Error {
    match error {
        host::Error::Upstream(why) | host::Error::Io(why) => Error::Other(why),
    }
}
