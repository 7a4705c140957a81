//! Forks: a new session that begins with a checkpoint of another. Nothing is copied: the parent's head keeps what the fork stands on.

use super::head::{Head, Kept};
use super::sessions::{Sessions, Snapshot, Wrote};
use crate::error::{Error, Result};
use crate::id::SessionRef;
use crate::store::Nonce;

impl Sessions {
    /// Makes the session `child` with a checkpoint of another one: first a pin in the parent's head, then the child's head.
    ///
    /// A crash in between leaves a pin without a child, which is dropped when it is old; last the pin is settled, which fails if it was.
    ///
    /// # Errors
    /// `Conflict` with the code `session_exists`, or `checkpoint_dropped` when the parent doesn't keep the checkpoint any more; `NotFound` for
    /// the parent; `Limit` (`head_full`); `Usage` when both are the same; `Store`.
    pub async fn fork(&self, of: &Kept, child: &SessionRef) -> Result<Snapshot> {
        if *child == of.session {
            return Err(Error::usage(format!("session {child} can't be a fork of itself"))
                .hint("`landfall session rollback` takes a session back to one of its checkpoints"));
        }
        let over = self.load(child).await?;
        if over.as_ref().is_some_and(|found| found.head.is_open()) {
            return Err(exists(child));
        }
        let incarnation = Nonce::draw(&**self.store.random());
        let now = self.store.clock().now();
        self.alter(&of.session, |head| head.pin(of, child, incarnation, now)).await?;
        let head = Head::forked(of, child, over.as_ref().map(|found| &found.head), incarnation, now)
            .map_err(|refusal| refusal.into_error(child))?;
        // An error leaves the pin: the child's head may have been written all the same.
        match self.write(child, over.as_ref().map(|found| &found.version), &head).await? {
            Wrote::Done(version) => {
                // Whoever took the pin for one of a fork that was never made has been faster, or is refused from here on.
                if let Err(error) = self.alter_any(&of.session, |head| head.settle_pin(incarnation)).await {
                    if error.stable_code() == "save_missing" {
                        self.alter(child, |head| head.delete(now)).await?;
                        let why = format!("the pin of fork {child} was dropped before the fork was made");
                        return Err(Error::conflict(why).code("fork_too_slow").hint("repeat it"));
                    }
                    tracing::warn!(%child, error = %error.chain(), "a fork's pin could not be settled; it is kept for as long as the fork is there");
                }
                Ok(Snapshot { head, version })
            }
            Wrote::Changed(_) => {
                // Somebody else made it, so the pin is nobody's.
                match self.alter_any(&of.session, |head| head.unpin(incarnation)).await {
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%child, error = %error.chain(), "a fork's pin was left over; a later collection drops it"),
                }
                Err(exists(child))
            }
        }
    }
}

/// The error for a session that should be made and is there.
pub(crate) fn exists(session: &SessionRef) -> Error {
    Error::conflict(format!("there is a session {session} already"))
        .code("session_exists")
        .hint("choose another name, or delete that one first: `landfall session delete`")
}
