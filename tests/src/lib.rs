//! What the tests stand on: guests, tools and fixtures.

pub mod guests;
pub mod tools;
