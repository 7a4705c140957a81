//! `landfall schedule`: agents by the clock and on demand.

pub(super) mod next;

use crate::args::{Global, Schedule};
use crate::environment::Environment;
use crate::exit::Done;

#[expect(clippy::unused_async, reason = "its other verbs ask the store")]
pub(crate) async fn run(global: &Global, _environment: Environment, verb: Schedule) -> anyhow::Result<Done> {
    match verb {
        Schedule::Next(args) => next::run(global, &args),
    }
}
