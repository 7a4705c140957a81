//! What a turn runs: a component on the engine, or a program's own code in its place.

use std::fmt;
use std::sync::Arc;

use super::engine::Engine;
use super::invoke::{self, Call, Invoked};
use super::load::Loaded;
use crate::cancel::Cancel;
use crate::error::Result;
use crate::id::Digest;
use crate::policy::grants::Grants;

/// A guest that is ready to be called.
///
/// The host's own bodies are components. A program that embeds the library can give one of its own
/// ([`crate::host::HostBuilder::body`]): it gets the same call, on the same workspace and under the same lease, and what it leaves is
/// captured and committed in the same way.
#[async_trait::async_trait]
pub trait Body: Send + Sync + fmt::Debug {
    /// Returns what tells it from other bodies: of a component the SHA-256 of its file. It is kept in each run's record.
    fn digest(&self) -> Digest;

    /// Checks that an agent is granted all that the body asks for.
    ///
    /// # Errors
    /// `Denied`, naming what isn't granted.
    fn check_granted(&self, grants: &Grants) -> Result<()>;

    /// Runs one call to its end, or until it is cancelled. The future may be dropped at any await.
    ///
    /// # Errors
    /// What the host does wrong, as in [`invoke::invoke`]; what the guest does wrong is in [`Invoked::result`].
    async fn invoke(&self, call: Call, cancel: &Cancel) -> Result<Invoked>;
}

/// A component with the engine that runs it.
#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) engine: Engine,
    pub(crate) loaded: Arc<Loaded>,
}

#[async_trait::async_trait]
impl Body for Component {
    fn digest(&self) -> Digest {
        self.loaded.digest()
    }

    fn check_granted(&self, grants: &Grants) -> Result<()> {
        self.loaded.check_granted(grants)
    }

    async fn invoke(&self, call: Call, cancel: &Cancel) -> Result<Invoked> {
        invoke::invoke(&self.engine, &self.loaded, call, cancel).await
    }
}
