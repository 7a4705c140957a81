//! Turning edits into pages and chunks.

use super::filesystem::Filesystem;
use super::page::Root;
use super::source::Sink;
use crate::error::Result;

/// What a capture gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The root with exact totals. Its places may be [`super::page::Place::Fresh`]: the sink resolves them.
    pub root: Root,
    /// Whether it differs from the base; if not, nothing was written.
    pub changed: bool,
}

/// Writes what was edited since the base to `sink`, and nothing else; reads only the pages and chunks on the way to the edits.
///
/// The filesystem stays as it is, edits included: it can be used and captured again. While it runs, calls that change something
/// answer `Busy`. To go on without writing the same things again, call [`Filesystem::rebase`] once the objects are stored.
///
/// # Errors
/// Those of the source, the sink and the spool.
pub async fn capture(filesystem: &Filesystem, sink: &mut dyn Sink) -> Result<Captured> {
    todo!()
}
