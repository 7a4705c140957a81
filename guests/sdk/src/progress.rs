//! Telling whoever watches the run how it goes. Plain log lines need no function: print them.

use crate::Error;
use crate::bindings::landfall::agent::progress as host;

/// Sends one event to the watchers of the run and into its record.
///
/// The kind is 1 to 64 of `a` to `z`, `0` to `9`, `.`, `_` and `-`, such as `files.scanned`; the payload is text for a person, or JSON
/// where the kind's watchers expect it.
///
/// # Errors
/// [`Error::Invalid`] for a bad kind; [`Error::Limit`] when the run's events would have more than 1 MiB together.
pub fn emit(kind: &str, payload: &str) -> Result<(), Error> {
    Ok(host::emit(kind, payload)?)
}
