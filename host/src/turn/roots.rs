//! The roots of a workspace as they are captured.

use std::sync::Arc;

use super::Turn;
use crate::checkpoint::root::RootRecord;
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::error::{Context as _, Result};
use crate::pin::Pin;
use crate::workspace::Workspace;
use crate::workspace::capture::capture;
use crate::workspace::page::{Home, Root};
use crate::workspace::source::Sink;

/// The captured roots of a workspace; their places are the writer's to resolve.
pub(super) struct Roots {
    pub(super) workspace: Root,
    pub(super) state: Root,
}

/// Captures `/workspace` and `/state`.
pub(super) async fn capture_roots(workspace: &Workspace, writer: &mut dyn Sink) -> Result<Roots> {
    let captured = capture(&workspace.workspace, writer).await.context_with(|| "capturing /workspace")?;
    let state = capture(&workspace.state, writer).await.context_with(|| "capturing /state")?;
    Ok(Roots { workspace: captured.root, state: state.root })
}

impl Roots {
    /// Returns the root record, once the writer has stored them.
    ///
    /// # Errors
    /// `Internal` for roots that this writer hasn't stored.
    pub(super) fn record(&self, writer: &PackWriter, git: Option<Root>, pin: Option<Pin>) -> Result<RootRecord> {
        Ok(RootRecord { workspace: writer.resolve_root(&self.workspace)?, state: writer.resolve_root(&self.state)?, git, pin })
    }
}

impl Turn<'_> {
    /// Makes a writer of the session's packs.
    pub(super) fn writer(&self) -> PackWriter {
        let home = Arc::new(Home::Session(self.session.clone()));
        let options = WriterOptions { known: None, reader: Some(self.reader.clone()), ..WriterOptions::default() };
        PackWriter::new(self.store.clone(), home, options)
    }
}
