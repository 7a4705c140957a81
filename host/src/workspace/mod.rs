//! The workspace as a value: an immutable Merkle tree in the store plus the edits of one turn.

pub mod page;
pub mod source;
