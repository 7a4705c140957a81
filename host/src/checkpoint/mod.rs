//! Checkpoints: what a turn left behind, as packs of content and pages under one small root record.

pub mod root;
