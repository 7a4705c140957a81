//! What the tests stand on: guests, tools and fixtures.

pub mod components;
pub mod git_server;
pub mod guests;
pub mod tools;
pub mod turns;
