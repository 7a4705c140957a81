//! What the tests stand on: guests, tools and fixtures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on ends by panicking")]
#![allow(unreachable_pub, missing_debug_implementations, clippy::type_complexity, reason = "nothing here is used from outside")]

pub mod appender;
pub mod clocks;
pub mod command;
pub mod components;
pub mod dated_store;
pub mod fault_proxy;
pub mod fault_store;
pub mod git_server;
pub mod guests;
pub mod matrix;
pub mod replicas;
pub mod seaweed;
pub mod serve;
pub mod simulation;
pub mod small_disk;
pub mod tools;
pub mod turns;
pub mod wasi_commands;
pub mod web;
