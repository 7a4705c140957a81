//! The workspace as a value: an immutable Merkle tree in the store plus the edits of one turn.

pub(crate) mod cbor;
pub mod memory;
pub mod page;
pub mod page_codec;
pub mod source;
pub mod tree;
