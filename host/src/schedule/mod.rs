//! Plans to run agents by the clock, and what fires them.

pub mod cron;
pub mod zone;
