//! Sessions: the head that compare-and-swap moves from checkpoint to checkpoint, the lease on it, the records of runs, and the queue.
//!
//! What a crash leaves at each step of a turn, and who goes on, is the table in `ARCHITECTURE.md`; the pure rules are in [`head`], their I/O in
//! [`sessions`], [`lease`], [`commit`], [`log`], [`queue`], [`fork`] and [`delete`].

pub(crate) mod at_work;
pub mod commit;
pub mod delete;
pub mod fork;
pub mod head;
pub mod keeping;
pub mod lease;
pub mod log;
pub mod queue;
pub mod record;
pub mod replica;
pub mod rollback;
pub mod selector;
pub mod sessions;
pub mod view;

pub use self::commit::Committed;
pub use self::head::{Head, Kept, Owner};
pub use self::lease::{Acquired, Held};
pub use self::log::RunState;
pub use self::queue::{QueueEntry, QueuePlace};
pub use self::record::{Origin, RunRecord, Status, Trigger};
pub use self::replica::Replica;
pub use self::sessions::{Sessions, Snapshot};
