//! Sessions: the head that compare-and-swap moves from checkpoint to checkpoint, the lease on it, the records of runs, and the queue.
//!
//! What a crash leaves at each step of a turn, and who goes on, is the table in `ARCHITECTURE.md`; the pure rules are in [`head`], their I/O in [`lease`].

pub mod head;
pub mod lease;
pub mod queue;
pub mod record;
pub mod replica;
pub mod selector;

pub use self::head::{Head, Owner};
pub use self::lease::{Acquired, Committed, Held, Sessions, Snapshot};
pub use self::queue::QueueEntry;
pub use self::record::{Origin, RunRecord, Status, Trigger};
pub use self::replica::Replica;
