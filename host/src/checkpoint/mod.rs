//! Checkpoints: what a turn left behind, as packs of content and pages under one small root record.

pub mod export;
pub mod frame;
pub mod import;
pub mod inspect;
pub mod materialise;
pub mod pack;
pub mod reader;
pub mod root;
pub mod root_codec;
pub mod verify;
pub mod writer;

#[cfg(test)]
pub(crate) mod testing;
