//! TBD

pub mod cache;
