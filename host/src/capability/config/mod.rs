//! `wasi:config/store`: the names and values of an agent's `config` table, sorted, so that every replica answers in the same order.

mod host;

pub(crate) use host::{HasConfig, View};
